"""Reading traces: whole lines are read, damaged ones are noted."""

from pathlib import Path

import pytest

from llm_common.errors import StoreError
from llm_common.trace import read_trace

BEGIN = '{"seq": 1, "kind": "run_begin", "query_id": "q", "later": true}\n'
END = '{"seq": 2, "kind": "run_end", "status": "ok", "seconds": 1.5}\n'


@pytest.mark.parametrize(
    ("text", "lines", "note"),
    [
        (BEGIN + END, 2, None),
        (BEGIN + END[:-20], 1, "the last line is cut"),
        (BEGIN + '{"kind": "later"}\n' + END, 2, "line 2 is of an unknown kind"),
        (BEGIN + "\0\0\n[]\n7\n" + END, 2, "line 2 is of an unknown kind"),
        (BEGIN + '{"kind": "run_end", "seconds": "x"}\n', 1, "line 2 is of an unknown kind"),
    ],
)
def test_whole_lines_of_known_kinds_are_read(
    text: str, lines: int, note: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "20261123T000000000000Z-00000000.jsonl"
    path.write_text(text, encoding="utf-8")
    run = read_trace(path)
    assert len(run.lines) == lines
    assert (run.notes == ()) is (note is None)
    assert note is None or note in run.notes[0]
    assert run.run_id == "20261123T000000000000Z-00000000"


@pytest.mark.parametrize("text", ["", "\n", "{}", "{}\n", "\x00" * 100, "[" * 100_000 + "\n"])
def test_a_file_that_is_not_a_trace_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StoreError, match=r"Give a [.]jsonl file that a Trace wrote"):
        read_trace(path)


def test_the_newest_run_of_a_folder_is_read(tmp_path: Path) -> None:
    for folder, name in (("b", "20260101T000000000000Z-1"), ("a", "20260201T000000000000Z-2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.jsonl").write_text(BEGIN)
    assert read_trace(tmp_path).run_id == "20260201T000000000000Z-2"
    assert read_trace(tmp_path / "b").run_id == "20260101T000000000000Z-1"


def test_a_file_that_is_too_long_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with path.open("wb") as opened:
        opened.truncate(256_000_001)  # sparse: it takes no space on the disk
    with pytest.raises(StoreError, match="256,000,001 bytes, more than the 256,000,000"):
        read_trace(path)


@pytest.mark.parametrize("name", ["absent", "absent.jsonl", "."])
def test_a_path_without_a_trace_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"Give a [.]jsonl file that a Trace wrote"):
        read_trace(tmp_path / name)
