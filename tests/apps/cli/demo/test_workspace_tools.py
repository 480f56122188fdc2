"""The demo's tools: bounded, contained, and to the question."""

import json
from pathlib import Path

import pytest

from llm_common.apps.cli.demo.workspace import Workspace, WorkspaceTools, word_beginnings
from llm_common.errors import ToolFailedError

STANDARD_JSON = Path(json.__file__).parent


@pytest.fixture(scope="module")
def tools() -> WorkspaceTools:
    return WorkspaceTools(Workspace(STANDARD_JSON), "how are strings escaped")


def test_the_registry_offers_four_described_tools(tools: WorkspaceTools) -> None:
    registry = tools.registry()
    assert registry.names == ("file_stats", "grep", "list_files", "read_file")
    assert all(tool.description for tool in registry)
    assert "description" in registry.get_tools_schema()


def test_every_file_is_listed_with_its_size(tools: WorkspaceTools) -> None:
    lines = tools.list_files().splitlines()
    assert lines[0] == "5 text files, 5 shown:"
    assert lines[3].startswith("encoder.py  ")


def test_files_and_lines_are_counted_by_kind(tools: WorkspaceTools) -> None:
    stats = tools.file_stats()
    assert stats["files"] == 5
    assert stats["by_kind"] == {".py": {"files": 5, "lines": stats["lines"]}}
    assert next(iter(stats["largest"])) in {"encoder.py", "decoder.py", "__init__.py"}  # type: ignore[call-overload]


def test_lines_with_most_of_the_words_come_first(tools: WorkspaceTools) -> None:
    head, first, *rest = tools.grep("strings escaped").splitlines()
    assert head.startswith("5 files have string or escap")
    assert "string" in first.lower()
    assert "escap" in first.lower()
    assert len(rest) < 40
    assert any(line.startswith("encoder.py:") for line in [first, *rest])


def test_words_are_plain_text_and_no_pattern(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("aaaa(b)\naaaa\n")
    found = WorkspaceTools(Workspace(tmp_path), "").grep("(aaaa+)+$ (b)")
    assert "a.txt:1: aaaa(b)" in found


async def test_a_search_without_words_fails_and_says_so(tools: WorkspaceTools) -> None:
    with pytest.raises(ToolFailedError) as caught:
        await tools.registry().execute("grep", {"words": "?!"})
    assert "give one or more words" in str(caught.value.__cause__)


def test_a_long_file_is_read_where_the_question_is(tools: WorkspaceTools) -> None:
    shown = tools.read_file("encoder.py")
    assert "def py_encode_basestring(" in shown
    assert "[lines " in shown
    assert len(shown) < 2_000


def test_a_file_of_endless_lines_is_cut(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" + "1, " * 100_000 + "]")
    tools = WorkspaceTools(Workspace(tmp_path), "zebra")
    assert len(tools.read_file("a.json")) < 2_000
    assert tools.grep("1").startswith("0 files")


def test_a_short_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert (
        WorkspaceTools(Workspace(tmp_path), "zebra").read_file("a.txt")
        == "a.txt, whole:\none\ntwo\n"
    )


@pytest.mark.parametrize("path", ["../re/__init__.py", "/etc/passwd", "absent.py"])
async def test_nothing_outside_the_folder_is_read(tools: WorkspaceTools, path: str) -> None:
    with pytest.raises(ToolFailedError):
        await tools.registry().execute("read_file", {"name": path})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("how are strings escaped", ["string", "escap"]),
        ("escape escapes escaping", ["escap"]),
        ("bus", ["bus"]),
        ("used", ["used"]),
        ("", []),
    ],
)
def test_words_lose_their_endings(words: str, expected: list[str]) -> None:
    assert word_beginnings(words) == expected
