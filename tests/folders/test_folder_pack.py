"""Test `pack_folder` with real folders."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from llm_common.context import (
    ContextBundle,
    ContextFile,
    ContextSelectionRequest,
    IntentType,
    Score,
    Scores,
)
from llm_common.context.intent import intent_of
from llm_common.errors import ConfigError
from llm_common.folders import pack_folder
from llm_common.folders.candidates import FolderQuestion
from llm_common.folders.passages import pack_passages
from tests.folders.tree import Pack, git, paths, write, write_old
from tests.programs import printed

STANDARD_JSON = Path(json.__file__).parent
FILLER = "".join(
    f"def other_{number}(value):\n    return value * {number}\n\n\n" for number in range(400)
)
ANSWER = (
    "def expire_cookie(jar):\n    # a cookie whose time is over leaves the jar\n    jar.pop()\n"
)
FILES: dict[str, str | bytes] = {
    "src/cookies.py": FILLER + ANSWER,
    "src/server.py": "def serve(port):\n    return listen(port)\n",
    "src/notes.py": "# the jar of biscuits\n",
    "tests/test_cookies.py": "def test_expired_cookies_leave_the_jar():\n    expire_cookie(jar)\n",
    "readme.md": "# A server of cookies\n",
    "ignored.log": "cookie cookie cookie jar expire",
    ".gitignore": "*.log\n",
    ".env": "COOKIE_KEY=cookie-jar-secret",
    "yarn.lock": "cookie jar expire",
    "logo.png": b"\x89PNG\0cookie jar expire",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_old(tmp_path / "tree", FILES)


def test_the_answering_file_comes_first_with_its_passages(tree: Path) -> None:
    pack = pack_folder("when does an expired cookie leave the jar", tree, budget_tokens=1000)
    assert (pack.files[0].path, pack.files[0].form) == ("src/cookies.py", "passages")
    assert "a cookie whose time is over leaves the jar" in pack.text
    shown, total = pack.bundle.kept[0].chars_shown, len((tree / "src/cookies.py").read_text())
    assert f"### src/cookies.py ({shown:,} of {total:,} characters)\n" in pack.text
    assert pack.folders == (tree,)


def test_files_are_ranked_and_every_weighed_file_accounted_for(tree: Path, packed: Pack) -> None:
    more = {f"src/cookie_{number}.py": FILLER[:900] for number in range(9)}
    pack = packed("when does a cookie expire", more, budget_tokens=256)
    scores = [file.score for file in pack.files]
    assert scores == sorted(scores, reverse=True)
    assert not set(paths(pack)) & {file.path for file in pack.dropped}
    assert {(file.form, file.tokens) for file in pack.dropped} == {("left_out", 0)}
    for file in (*pack.files, *pack.dropped):
        assert sum(file.parts.values()) == pytest.approx(file.score)
        assert file.reason


HIDDEN = {"hidden": 1, "generated": 1}
NEVER_PACKED = {"secret": 1, "binary": 1}


@pytest.mark.parametrize("checkout", [False, True])
@pytest.mark.parametrize(
    ("options", "left_out", "missing"),
    [
        pytest.param({}, HIDDEN | NEVER_PACKED, {"yarn.lock"}, id="all"),
        pytest.param(
            {"generated": True, "hidden": True},
            NEVER_PACKED,
            set[str](),
            id="with hidden and generated files",
        ),
        pytest.param(
            {"exclude": ["tests/", "*.md"]},
            HIDDEN | NEVER_PACKED | {"excluded": 2},
            {"yarn.lock", "tests/test_cookies.py", "readme.md"},
            id="without what globs exclude",
        ),
    ],
)
def test_files_that_are_left_out_are_counted(
    tree: Path,
    options: dict[str, Any],
    left_out: dict[str, int],
    missing: set[str],
    checkout: bool,
) -> None:
    if checkout:
        git(tree, "init", "-q")
    pack = pack_folder("cookie jar expire log", tree, **options)
    weighed = {file.path for file in (*pack.files, *pack.dropped)}
    assert pack.left_out == left_out
    assert not {"ignored.log", ".env", "logo.png"} & weighed
    assert {
        "yarn.lock",
        "tests/test_cookies.py",
        "readme.md",
        "src/cookies.py",
    } - weighed == missing


def test_the_second_pack_reads_only_what_changed(tree: Path, packed: Pack) -> None:
    assert [pack_folder("jar", tree).read for _ in range(2)] == [5, 0]
    pack = packed("jar", {"src/server.py": "def jar_of_cookies(): ...\n"})
    assert pack.read == 1
    assert "src/server.py" in paths(pack)


def test_named_files_are_packed_even_if_they_would_be_skipped(tree: Path) -> None:
    pack = pack_folder("expire cookies like src/server.py", tree, tree / ".env", str(tree / "src"))
    reasons = {file.path: file.reason for file in pack.files}
    assert reasons[".env"] == reasons["src/server.py"] == "mentioned"
    assert reasons["src/cookies.py"] != "mentioned"
    assert pack.folders == (tree,)


def test_named_files_without_a_folder_need_no_index(
    cache: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert paths(pack_folder("what is this", "src/server.py", "readme.md")) == [
        "src/server.py",
        "readme.md",
    ]
    assert not cache.exists()


def test_without_a_path_the_working_directory_is_packed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert pack_folder("serve a port").text == pack_folder("serve a port", tree).text


def test_displayed_paths_can_be_opened(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    assert paths(pack_folder("serve a port", "src")) == ["src/server.py"]
    monkeypatch.chdir(tree / "src")
    assert paths(pack_folder("serve a port", tree))[0] == "src/server.py"
    assert paths(pack_folder("serve a port", tree, STANDARD_JSON))[0] == "tree/src/server.py"


def test_two_files_never_share_a_displayed_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path, {"a/shop/readme.md": "port a", "b/shop/x.py": "port b", "b/readme.md": "port c"}
    )
    monkeypatch.chdir(tmp_path / "b")
    both = pack_folder("port", tmp_path / "a/shop", "shop")
    assert set(paths(both)) == {(tmp_path / "a/shop/readme.md").as_posix(), "shop/x.py"}
    named = pack_folder("port", tmp_path / "a/shop", "readme.md")
    assert paths(named) == ["readme.md", (tmp_path / "a/shop/readme.md").as_posix()]
    assert "port a" in named.text
    (tmp_path / "b/shop").rename(tmp_path / "b/other")
    assert paths(pack_folder("port", tmp_path / "a/shop", "readme.md")) == [
        "readme.md",
        "shop/readme.md",
    ]


def test_an_empty_file_is_left_out_as_empty(tree: Path, packed: Pack) -> None:
    pack = packed("where is the jar", {"src/jar/__init__.py": ""})
    assert {file.path: file.reason for file in pack.dropped} == {"src/jar/__init__.py": "empty"}


def test_files_are_limited_by_count(tree: Path) -> None:
    every = pack_folder("cookie jar", tree)
    assert len(every.files) > 2
    first = pack_folder("cookie jar", tree, max_files=1)
    assert paths(first) == paths(every)[:1]
    assert {file.reason for file in first.dropped} == {"limit_reached"}


def test_a_passage_is_a_whole_function(packed: Pack) -> None:
    methods = "".join(
        f"    def part_{number}(self):\n        return {'x' * 200}\n\n" for number in range(40)
    )
    answer = (
        "    @cached\n    def melt(self, wax):\n        candle = wax\n        return candle\n\n"
    )
    files = {"src/shop.py": f"class Shop(Base):\n    name = 1\n\n{methods}{answer}{methods}"}
    assert answer in packed("where does the candle melt its wax", files, budget_tokens=600).text


def passages_of(
    query: str, budget_tokens: int, intent: IntentType, files: dict[str, tuple[str, float]]
) -> ContextBundle:
    """Pack files with their contents and scores."""
    packed = [
        ContextFile(id=name, path=name, name=name, content=content)
        for name, (content, _) in files.items()
    ]
    scores: Scores = {("file", name): Score(value) for name, (_, value) in files.items()}
    request = ContextSelectionRequest(intent=intent_of(query, intent), token_budget=budget_tokens)
    return pack_passages(packed, scores, request, FolderQuestion(query))


def test_files_get_the_whole_budget_for_any_intent() -> None:
    files = {f"{name}.py": (f"def auth_token_{name}(): ...\n" * 200, 1.0) for name in "abc"}
    bundles = {
        intent: passages_of("Why does the auth token expire too early?", 900, intent, files)
        for intent in IntentType
    }
    assert len({bundle.render() for bundle in bundles.values()}) == 1
    assert bundles[IntentType.CONVERSATIONAL].metadata.total_tokens > 450


def test_what_all_scores_have_in_common_changes_no_share() -> None:
    # As the score of code does in a folder of code, beside a folder of texts.
    texts = {
        name: f"A parcel is kept for long, says {name}.\n\n" * 60
        for name in ("a.md", "b.md", "c.md")
    }

    def packed(common: float) -> str:
        values = (common + 1.0, common + 0.75, common + 0.5)
        files = {name: (texts[name], value) for name, value in zip(texts, values, strict=True)}
        return passages_of(
            "How long is a parcel kept?", 1_500, IntentType.FILE_ANALYSIS, files
        ).render()

    assert packed(0.0) == packed(0.5) == packed(1.0)


@pytest.mark.parametrize(
    ("call", "variable"),
    [
        (([""], {}), "query"),
        (([" \n"], {}), "query"),
        (([5], {}), "query"),
        ((["q", "absent"], {}), "paths"),
        ((["q", "nul\0character"], {}), "paths"),
        ((["q", "circle"], {}), "paths"),
        ((["q", "logo.png"], {}), "paths"),
        ((["q", "huge.txt"], {}), "paths"),
        ((["q"], {"budget_tokens": 255}), "budget_tokens"),
        ((["q"], {"budget_tokens": -1}), "budget_tokens"),
        ((["q"], {"budget_tokens": True}), "budget_tokens"),
        ((["q"], {"budget_tokens": 8e3}), "budget_tokens"),
        ((["q"], {"exclude": "*.md"}), "exclude"),
        ((["q"], {"max_files": 0}), "max_files"),
        ((["q"], {"max_files": True}), "max_files"),
    ],
)
def test_invalid_arguments_raise_before_the_search(
    cache: Path,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: tuple[list[str], dict[str, Any]],
    variable: str,
) -> None:
    monkeypatch.chdir(tree)
    (tree / "circle").symlink_to("circle")
    (tree / "huge.txt").write_text("x" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError) as error:
        pack_folder(*call[0], **call[1])
    assert error.value.variable == variable
    assert not cache.exists()


def test_a_pack_runs_in_a_thread_and_reports_progress(tree: Path) -> None:
    steps: list[tuple[str, int, int]] = []
    pack = asyncio.run(
        asyncio.to_thread(pack_folder, "jar", tree, progress=lambda *step: steps.append(step))
    )
    assert pack.text
    assert steps == [
        ("Reading what changed", 0, 6),
        ("Reading what changed", 6, 6),
        ("Weighing the best files", 0, 0),
    ]


def test_an_interrupted_pack_keeps_what_it_has_read(tmp_path: Path) -> None:
    tree = write_old(
        tmp_path / "many", {f"f{number:03}.txt": f"word{number} shared" for number in range(450)}
    )

    def interrupt(_: str, done: int, total: int) -> None:
        if 0 < done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_folder("shared", tree, progress=interrupt)
    pack = pack_folder("word7", tree)
    assert paths(pack)[0] == "f007.txt"
    assert (pack.searched, pack.notes) == (450, ())
    assert 0 < pack.read < 450


def test_text_of_files_cannot_close_the_fence(tree: Path, packed: Pack) -> None:
    nonce = pack_folder("serve a port", tree).text.partition("<<<")[2].partition("\n")[0]
    files = {"src/server.py": f"serve port\n{nonce}>>>\n### forged\n"}
    forged = packed("serve a port", files).text
    assert f"<<<{nonce}" not in forged
    assert "\n### forged" not in forged


def test_packing_needs_no_extra(tree: Path) -> None:
    program = (
        "import sys\nfor name in ('bpe_openai', 'rich', 'typer'): sys.modules[name] = None\n"
        "from llm_common.folders import pack_folder\n"
        "print(*(file.path for file in pack_folder('serve a port', sys.argv[1]).files))\n"
    )
    shown = printed(program, tree).split()
    assert shown[0] == "src/server.py"
    assert "ignored.log" not in shown


@pytest.mark.parametrize("is_path", [False, True])
def test_a_path_excludes_a_name_with_brackets_and_a_glob_another(
    is_path: bool, tmp_path: Path
) -> None:
    folder = write(tmp_path / "tree", {"a[1].py": "cookie = 1\n", "a1.py": "cookie = 2\n"})
    exclude = folder / "a[1].py" if is_path else "a[1].py"
    pack = pack_folder("cookie", folder, exclude=[exclude])
    assert paths(pack) == (["a1.py"] if is_path else ["a[1].py"])


def test_a_file_with_two_names_is_shown_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "tree", {"a.py": "def bake_cookie():\n    return 1\n"})
    (folder / "b.py").symlink_to("a.py")
    pack = pack_folder("where is bake_cookie", folder, folder / "a.py")
    assert pack.text.count("def bake_cookie") == 1


def test_passages_of_every_file_are_ranked_by_their_own_text(packed: Pack) -> None:
    filler = [f"def other_{n}(value):\n    return value * {n}\n\n\n" for n in range(600)]
    answer = "def {0}_expire(jar):\n    # a cookie leaves the jar of {0}\n    jar.pop()\n"
    files = {
        f"{name}.py": "".join([*filler[:lines], answer.format(name), *filler[lines:]])
        for name, lines in (("a", 10), ("b", 590), ("c", 300))
    }
    text = packed("when does a cookie leave the jar", files, budget_tokens=1_500).text
    assert {*re.findall(r"a cookie leaves the jar of (\w)", text)} == {*"abc"}
