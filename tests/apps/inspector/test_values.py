"""The values behind the pages, computed from lines that are written by hand."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from llm_common.apps.inspector import render_html, run_page
from llm_common.apps.inspector.runs_page import RecordedRuns
from llm_common.core.models import LLMUsage
from llm_common.core.structured import Attempt
from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.trace import RecordedRun, shares
from llm_common.trace.lines import (
    LINE,
    AnswerLine,
    Line,
    ModelCallLine,
    PackedItem,
    PackingLine,
    RunBegin,
    RunEnd,
    SentMessage,
    SentPrompt,
    ToolCallLine,
)


def run_of(*lines: Line, name: str = "run.jsonl") -> RecordedRun:
    numbered = [line.model_copy(update={"seq": seq}) for seq, line in enumerate(lines, 1)]
    return RecordedRun(Path(name), tuple(numbered))


def write(path: Path, *lines: Line) -> Path:
    """Write a trace, as `Trace` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    texts = [LINE.dump_json(line, exclude_none=True) + b"\n" for line in run_of(*lines).lines]
    path.write_bytes(b"".join(texts))
    return path


def call(
    usage: LLMUsage | None = None, cost_usd: float | None = None, **prompt: Any
) -> ModelCallLine:
    fields = {"bytes": 40} | prompt
    return ModelCallLine(
        attempt=Attempt("m", 5, usage=usage, cost_usd=cost_usd),
        prompt=SentPrompt.model_validate(fields),
    )


def packing(tokens: int = 300, text: str | None = None, **fields: Any) -> PackingLine:
    item = PackedItem(
        source="file",
        id="a",
        reason="share",
        form="whole",
        tokens=200,
        score=1.0,
        chars=800,
        chars_shown=800,
    )
    out = item.model_copy(
        update={"id": "b", "form": "left_out", "tokens": 0, "chars_shown": 0, "reason": "no_room"}
    )
    line = PackingLine(
        budget=1_000,
        tokens=tokens,
        intent="code_writing",
        strategy="measured",
        allocation={},
        items=(item, out),
        text=text,
    )
    return line.model_copy(update=fields)


USAGE = LLMUsage(prompt_tokens=1_000, completion_tokens=50, cached_tokens=250)
NO_END = {"Ended": ("no end", ""), "Seconds": ("-", "")}
NO_TOKENS = {"Model calls": ("1", ""), "Tokens sent": ("0", ""), "Tokens received": ("0", "")}


@pytest.mark.parametrize(
    ("lines", "totals"),
    [
        pytest.param(
            [
                packing(tokens=100),
                packing(),
                call(USAGE, 0.5),
                call(USAGE),
                call(),
                ToolCallLine(tool="find", failure="TimeoutError"),
                ToolCallLine(tool="find"),
                RunEnd(status="error", seconds=1.256),
            ],
            {
                "Ended": ("error", ""),
                "Seconds": ("1.26", ""),
                "Packed": ("300", ""),
                "Model calls": ("3", ""),
                "Tokens sent": ("2,000", "25% from the cache"),
                "Tokens received": ("100", ""),
                "Cost": ("$0.5000", "at least"),
                "Tool calls": ("2", "1 failed"),
            },
            id="a cost without some prices is a part of it",
        ),
        pytest.param(
            [packing(unlisted=3), call(), ToolCallLine(tool="find")],
            {
                **NO_END,
                "Packed": ("300", ""),
                **NO_TOKENS,
                "Cost": ("unknown", ""),
                "Tool calls": ("1", ""),
            },
            id="a cost without prices is unknown",
        ),
        pytest.param(
            [call(None, 0.25)],
            {**NO_END, **NO_TOKENS, "Cost": ("$0.2500", "")},
            id="a cost with all prices is whole",
        ),
        pytest.param([], NO_END, id="steps that were not made have no totals"),
    ],
)
def test_a_run_has_the_totals_of_its_steps(
    lines: list[Line], totals: dict[str, tuple[str, str]]
) -> None:
    of_run = run_page.totals(run_of(*lines))
    assert {name: tuple(total) for name, total in of_run.items()} == totals


def test_the_parts_of_a_budget_fill_its_bar() -> None:
    assert [tuple(share) for share in shares(packing(), 1_000)] == [
        ("file", 200, 0, 200),
        ("marks", 100, 200, 100),
        ("free", 700, 300, 700),
    ]
    page = render_html(run_of(packing()))
    for name, tokens in (("Files", 200), ("Headings and fences", 100), ("Free", 700)):
        assert f"{name}</span> {tokens}</li>" in page
    shown, _, left_out = page.partition('<h2 id="steps">')[2].partition("1 left out</summary>")
    assert (shown.count('data-name="Item"'), left_out.count('data-name="Item"')) == (1, 1)


def test_rounded_parts_of_a_budget_fill_its_bar_without_a_gap() -> None:
    line = packing(budget=700)  # three parts, of which none is a whole number of cells
    parts = shares(line, 60)
    assert [(part.start, part.width) for part in parts] == [(0, 17), (17, 9), (26, 34)]


def test_messages_share_the_tokens_of_a_prompt_by_their_bytes() -> None:
    messages = [SentMessage(role="system", bytes=30)]
    messages.append(SentMessage(role="user", bytes=10))
    line = call(LLMUsage(prompt_tokens=100, completion_tokens=1), messages=messages)
    assert run_page.sent_messages(line) == [(1, messages[0], 75), (2, messages[1], 25)]
    unknown = run_page.sent_messages(call(messages=messages))
    assert [tokens for *_, tokens in unknown] == [None, None]


def test_messages_with_more_than_a_text_are_json() -> None:
    prompt = '{"role":"user","content":"hi"}\n{"role":"tool","content":"x","id":1}\n["a"]\n{"cut'
    user, tool, listed, cut = run_page.messages(prompt)
    assert user == ("user", "hi")
    assert (tool.role, tool.content.count("\n")) == ("tool", 4)
    assert (listed, cut) == (("", '["a"]'), ("", '{"cut'))


def test_the_answer_of_a_run_is_its_last() -> None:
    answers = [AnswerLine(status="ok", text=text) for text in ("one", "two")]
    assert run_of(*answers).answer_text == "two"
    assert run_of().answer_text is None


BEGIN, END = RunBegin(query_id="q"), RunEnd(status="ok", seconds=1.0)


def test_runs_are_listed_newest_first_and_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "trace"
    write(folder / "a" / "20260101T1.jsonl", BEGIN, END)
    write(folder / "b" / "20260103T1.jsonl", BEGIN)
    write(folder / "20260102T1.jsonl", BEGIN, END)
    write(folder / "a" / "notes.txt", BEGIN)
    (folder / "a" / "20260104T1.jsonl").symlink_to(folder / "b" / "20260103T1.jsonl")
    (folder / "a" / "20260105T1.jsonl").mkdir()
    runs = RecordedRuns(folder)
    rows, total = runs.rows(limit=2)
    assert ([row.run_id for row in rows], total) == (["20260103T1", "20260102T1"], 3)
    assert (rows[0].begin is None, rows[0].end, rows[1].end) == (
        False,
        None,
        END.model_copy(update={"seq": 2}),
    )
    assert runs.rows(limit=1, offset=2)[0][0].run_id == "20260101T1"
    assert RecordedRuns(None).rows(limit=9) == ([], 0)


def test_only_steps_and_runs_that_exist_are_shown(tmp_path: Path) -> None:
    write(tmp_path / "q" / "20260101T1.jsonl", BEGIN, ToolCallLine(tool="find"), END)
    runs = RecordedRuns(tmp_path)
    assert runs.step("q", "20260101T1", 2)[1].seq == 2
    for seq in (1, 3, 9):  # the begin, the end, and no line
        with pytest.raises(PointerNotFoundError, match=f"The run has no step {seq}"):
            runs.step("q", "20260101T1", seq)


def test_a_run_that_is_too_long_for_a_page_is_not_read(tmp_path: Path) -> None:
    path = write(tmp_path / "q" / "20260101T1.jsonl", BEGIN, END)
    with path.open("ab") as opened:
        opened.truncate(32_000_001)  # sparse: it takes no space on the disk
    with pytest.raises(StoreError, match="over 32,000,000 bytes, too many for a page"):
        RecordedRuns(tmp_path).run("q", "20260101T1")


def test_an_error_tells_what_is_wrong_and_quotes_no_path(
    client: TestClient, tmp_path: Path
) -> None:
    write(tmp_path / "trace" / "q" / "20260101T1.jsonl", BEGIN, END)
    answer = client.get("/runs/q/absent")
    assert (answer.status_code, "There is no run" in answer.text) == (404, True)
    path = tmp_path / "trace" / "q" / "20260102T1.jsonl"
    path.write_text("damaged\n")
    answer = client.get("/runs/q/20260102T1")
    assert answer.status_code == 500
    assert "contains no line of a trace" in answer.text
