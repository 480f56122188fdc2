"""Test the trace of packed folders."""

import asyncio
import re
from pathlib import Path

import pytest

from llm_common.folders import pack_folder
from llm_common.trace import RecordedRun, Trace, read_trace
from llm_common.trace.account import unseen, verdicts
from llm_common.trace.lines import PackingLine
from tests.folders.tree import write
from tests.trace.runs import ended

QUERY = "when does the cookie expire"
SENTENCE = "the cookie goes stale at noon"
LONG = "".join(
    f"def other_{number}(value):\n    return value * {number}\n\n\n" for number in range(200)
)


@pytest.fixture(autouse=True)
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLM_COMMON_TRACE_DIR", str(tmp_path / "traces"))
    return tmp_path / "traces"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    # The passage that matches is too long for a small budget.
    shop = "def expire(cookie):\n" + "    pass\n" * 100
    files: dict[str, str | bytes] = {f"shop_{number}.py": f"{shop}{LONG}" for number in range(3)}
    files |= {
        "small.py": f"cookie = expire\n# {SENTENCE}\n",
        "long.py": f"{LONG}def expire_cookie(): ...\n",
    }
    return write(
        tmp_path / "my shop",
        {**files, "port.md": "port = 1\n", ".env": "COOKIE=1", "logo.png": b"\0"},
    )


def run_of(traces: Path) -> RecordedRun:
    assert Trace(traces).flush()
    [path] = traces.glob("*/*.jsonl")
    return read_trace(path)


def packing(run: RecordedRun) -> PackingLine:
    [line] = run.of(PackingLine)
    return line


def test_the_trace_line_explains_each_weighed_file(tree: Path, traces: Path) -> None:
    pack = pack_folder(QUERY, tree, budget_tokens=400)
    run = run_of(traces)
    line = packing(run)
    assert [(item.id, item.form, item.tokens, item.reason) for item in line.items] == [
        (file.path, file.form, file.tokens, file.reason) for file in (*pack.files, *pack.dropped)
    ]
    assert {item.form for item in line.items} == {"whole", "passages", "left_out"}
    for item in line.items:
        assert item.chars == len((tree / item.id).read_text())
        assert (item.chars_shown == item.chars) == (item.form == "whole")
        assert (item.chars_shown == 0) == (item.form == "left_out")
    assert (line.tokens, line.budget, line.allocation["files"]) == (pack.tokens, 400, 400)
    assert line.not_weighed == {"secret": 1, "binary": 1, "lower ranked": 1}
    assert "Step 2 skipped 1 binary, 1 lower ranked, 1 secret files." in verdicts(run)
    reasons = {one.id: one.why for one in unseen(run)}
    assert reasons["long.py"].startswith("A part is shown")
    shops = [reasons[f"shop_{number}.py"] for number in range(3)]
    no_room = re.compile(r"No passage of it fits: [\d,]+ of 400 tokens are free")
    assert any(map(no_room.match, shops))
    assert "Passages of other files match the request far better." in shops


def test_a_pack_outside_a_run_is_named_after_its_folder(tree: Path, traces: Path) -> None:
    pack_folder(QUERY, tree)
    run = run_of(traces)
    assert run.begin is not None
    assert re.fullmatch(r"pack-my-shop-[0-9a-f]{8}", run.begin.query_id)
    assert run.end is not None
    assert run.end.status == "ok"
    pack_folder("another question", tree)
    pack_folder(QUERY, tree / "small.py")
    trace = Trace(traces)
    assert trace.flush()
    assert trace.delete(run.begin.query_id) == 2
    assert re.fullmatch(r"pack-small.py-[0-9a-f]{8}", run_of(traces).path.parent.name)


def test_a_pack_inside_a_run_is_a_line_of_its_trace(
    tree: Path, traces: Path, tmp_path: Path
) -> None:
    trace = Trace(tmp_path / "other", texts=True)
    with trace.run("shop") as run:
        pack = asyncio.run(asyncio.to_thread(pack_folder, QUERY, tree, tree=True, question=True))
    line = packing(ended(trace, run))
    assert (line.text, line.tokens) == (pack.text, pack.tokens)
    assert SENTENCE in pack.text
    assert not traces.exists()


def test_the_trace_contains_texts_only_if_enabled(tree: Path, traces: Path) -> None:
    pack_folder(QUERY, tree)
    text = run_of(traces).path.read_text()
    assert SENTENCE not in text
    assert QUERY not in text


def test_an_unwritable_trace_does_not_affect_the_pack(tree: Path, traces: Path) -> None:
    expected = pack_folder(QUERY, tree).text
    assert Trace(traces).flush()
    traces.rename(traces.with_name("moved"))
    traces.write_text("no folder")
    assert pack_folder(QUERY, tree).text == expected


def test_an_interrupted_pack_ends_its_run(tree: Path, traces: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack_folder(QUERY, tree, progress=interrupt)
    assert "The run ended with the status error." in verdicts(run_of(traces))
