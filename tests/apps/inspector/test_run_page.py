"""The page and the terminal: no name or text of a run drives either of them."""

import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from llm_common._telemetry import record
from llm_common.agents import FileContextPointerStore
from llm_common.apps.cli.trace_commands import show_run
from llm_common.apps.inspector import render_html
from llm_common.core import answer_text
from llm_common.testing import ScriptedClient
from llm_common.trace import RecordedRun
from llm_common.trace.lines import PackingLine
from tests.trace.runs import (
    call_refused,
    file,
    long_story,
    no_room,
    pack,
    recorded,
    turn,
)

HOSTILE = [
    *(
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "' onmouseover='alert(1)",
        "</style><script>x()</script>",
    ),
    *(
        "</title><h1>x",
        "</bdi></td></table><h1>x",
        "<!--",
        "-->",
        "<![CDATA[x]]>",
        "]]>",
        "<svg/onload=alert(1)>",
    ),
    *(
        "javascript:alert(1)",
        "&lt;b&gt;",
        "&#60;b&#62;",
        "&amp",
        "<a href=javascript:alert(1)>x</a>",
        "<base href=//evil>",
    ),
    *(
        "<meta http-equiv=refresh content=0>",
        "<iframe src=//evil>",
        "<link rel=stylesheet href=//evil>",
        "</pre><b>x",
    ),
    *(
        "<details open ontoggle=alert(1)>",
        "<math><mtext></p>",
        "<plaintext>",
        "<textarea>",
        "{{7*7}}",
        "${7*7}",
        "`x`",
        "\\",
    ),
    *(
        "\x1b[2J",
        "\x1b]0;title\x07",
        "\x1b]8;;https://evil\x1b\\x\x1b]8;;\x1b\\",
        "\x9b2J",
        "\x1bP+q\x1b\\",
        "\x08\x08rm",
    ),
    *(
        "\x00nul",
        "\x7fdel",
        "bell\x07",
        "a\rb",
        "a\x0bb\x0cc",
        "\u202eevil",
        "\u2066x\u2069",
        "\u200fx\u200e",
        "\u061cx",
    ),
    *(
        "half \ud800",
        "half \udfff",
        "\ufeffx",
        "[bold red]x[/]",
        "[link=https://evil]x[/link]",
        "[/]",
        "a\u2028b\u2029c",
    ),
    *("🏴" * 40, "\u0301" * 300, "x" * 5_000, "%s %d {0}"),
]
CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class Shape(HTMLParser):
    """The tags of a page, with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, ...]] = []
        self.addresses: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, *(name for name, _ in attrs)))
        self.addresses += [
            value or "" for name, value in attrs if name in {"href", "src", "action", "data"}
        ]


async def story_of(texts: Sequence[str], folder: Path) -> RecordedRun:
    """Record a run in which texts are the names of everything."""

    async def story(store: FileContextPointerStore) -> None:
        await call_refused(store)
        for text in texts:
            record("tool_call", tool=text, args={text: text}, failure=text)
            client = ScriptedClient(f"said {text}")
            await answer_text(
                client, [{"role": "user", "content": text}], model=f"m {text}", timeout_s=5
            )
        files = tuple(
            file(f"{number} {text}", f"The parcel {number} {text}")
            for number, text in enumerate(texts)
        )
        turns = tuple(
            turn(f"{number} {text}", f"{number} {text}") for number, text in enumerate(texts)
        )
        await pack(None, 200_000, context_files=files, session_log=turns)

    return await recorded(story, folder, texts=True, query=" ".join(texts))


def terminal(run: RecordedRun, **options: object) -> str:
    printed = StringIO()
    show_run(run, console=Console(file=printed, width=100, **options))  # type: ignore[arg-type]
    return printed.getvalue()


async def test_hostile_texts_change_neither_page_nor_terminal(tmp_path: Path) -> None:
    run = await story_of(HOSTILE, tmp_path / "hostile")
    twins = [f"{number:02}".ljust(len(text), "x") for number, text in enumerate(HOSTILE)]
    harmless = await story_of(twins, tmp_path / "harmless")
    page = render_html(run)
    shape = Shape(page)
    # Counted, because the order of rows depends on scores.
    assert Counter(shape.tags) == Counter(Shape(render_html(harmless)).tags)
    assert all(re.fullmatch(r"#[\w-]+", address) for address in shape.addresses)
    assert not CONTROLS.search(page)
    for output in (terminal(run), terminal(run, force_terminal=True, color_system="truecolor")):
        assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", output))


def test_no_color_removes_colours(long_run: RecordedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in terminal(long_run, force_terminal=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    output = terminal(long_run, force_terminal=True)
    assert not re.search(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|9[0-7])m", output)
    assert "T turn" in re.sub(r"\x1b\[[0-9;]*m", "", output)


def test_the_page_loads_and_runs_nothing(long_run: RecordedRun) -> None:
    page = render_html(long_run)
    tags = {tag for tag, *_ in Shape(page).tags}
    assert not tags & {
        "script",
        "img",
        "link",
        "iframe",
        "object",
        "form",
        "base",
        "audio",
        "video",
    }
    assert not [
        tag
        for tag in Shape(page).tags
        if any(name == "style" or name.startswith("on") for name in tag[1:])
    ]
    assert "default-src 'none'; style-src 'sha256-" in page


def test_the_page_works_with_keyboard_and_screen_reader(long_run: RecordedRun) -> None:
    page = render_html(long_run)
    tags = Shape(page).tags
    names = [tag for tag, *_ in tags]
    assert {"header", "main", "footer", "h1", "h2", "details", "summary"} <= {*names}
    assert names.count("h1") == 1
    assert names.count("table") == names.count("caption")
    assert all("scope" in tag for tag in tags if tag[0] == "th")
    ids = re.findall(r' id="?([\w-]+)', page)
    assert len(ids) == len(set(ids))
    assert {link[1:] for link in Shape(page).addresses} <= {*ids}


async def test_the_page_shows_the_tokens_that_were_packed(tmp_path: Path) -> None:
    run = await recorded(no_room, tmp_path)
    packed = f"{run.of(PackingLine)[-1].tokens:,}"
    assert f"<dt>Packed</dt><dd><bdi>{packed}</bdi></dd>" in render_html(run)


@pytest.fixture
async def long_run(tmp_path: Path) -> RecordedRun:
    return await recorded(long_story, tmp_path, texts=True)
