"""Recording: the files of runs, and that failures never affect a run."""

import asyncio
import logging
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from llm_common._telemetry import is_recording, record, span
from llm_common.agents import FileContextPointerStore
from llm_common.trace import RecordedRun, Run, Trace, begin_run, read_trace
from llm_common.trace.lines import ToolCallLine
from tests.forking import run_in_child
from tests.loaded_modules import loaded_by
from tests.trace.runs import end_of, ended, memory, outputs, pack

CALL = {"tool": "track", "args": {"city": "Oslo"}}


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return Trace(tmp_path)


def tools_of(run: RecordedRun) -> list[str]:
    return [line.tool for line in run.of(ToolCallLine)]


async def test_concurrent_runs_have_separate_files(trace: Trace) -> None:
    async def record_calls(name: str) -> Run:
        with trace.run("q:1/a") as run:
            for _ in range(5):
                record("tool_call", tool=name, args={})
                await asyncio.sleep(0)
        return run

    runs = await asyncio.gather(record_calls("a"), record_calls("b"))
    read = [ended(trace, run) for run in runs]
    assert [tools_of(run) for run in read] == [["a"] * 5, ["b"] * 5]
    assert {run.path.parent.name for run in read} == {"q;1~a"}


def test_files_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "deep" / "trace")
    with trace.run("q") as run:
        pass
    path = ended(trace, run).path
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_nothing_is_recorded_before_and_after_a_run(trace: Trace) -> None:
    record("tool_call", **CALL)
    with trace.run("q") as run:
        assert is_recording()
    record("tool_call", **CALL)
    run.record("tool_call", CALL, step=0, parent=0)
    assert not is_recording()
    assert tools_of(ended(trace, run)) == []


def test_the_environment_names_the_folder_when_a_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = begin_run("q")
    monkeypatch.setenv("LLM_COMMON_TRACE_DIR", str(tmp_path))
    run = begin_run("q", query="Where?")
    with run.active():
        inner = begin_run("other")
        with inner.active():
            record("tool_call", **CALL)
        inner.end()
    run.end()
    trace = Trace.from_env()
    assert trace is not None
    assert (without.path, inner.path) == (None, None)
    assert tools_of(ended(trace, run)) == ["track"]
    assert not read_trace(tmp_path).begin.texts  # type: ignore[union-attr]


IMPORTS_OF_A_PACK = """
from llm_common.agents import AgenticExecutor
from llm_common.folders import pack_folder
"""


def test_the_trace_is_imported_only_if_the_environment_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("cookie\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = f"import os; os.environ['LLM_COMMON_TRACE_DIR'] = {str(tmp_path / 'traces')!r}\n"
    pack = f"pack_folder('cookie', {str(tmp_path)!r})"
    without, traced = loaded_by(pack, folder + pack, begin=IMPORTS_OF_A_PACK)
    assert "trace.sink" not in without
    assert "trace.sink" in traced
    assert [*tmp_path.glob("traces/*/*.jsonl")] != []


def test_an_invalid_query_id_gets_a_folder(tmp_path: Path, trace: Trace) -> None:
    with trace.run("../../etc\0") as run:
        pass
    assert ended(trace, run).path.parent.parent == tmp_path


@pytest.mark.parametrize("folder", ["file/trace", "/proc/no/trace", "/dev/full/trace", "nul\0l"])
async def test_an_unwritable_folder_loses_the_trace_with_one_warning(
    folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    trace = Trace(tmp_path / folder)
    for _ in range(2):
        with trace.run("q"):
            record("tool_call", **CALL)
            await pack(None, 2_000, memory_hits=(memory(1),))
    assert trace.flush()
    assert [
        entry.levelno for entry in caplog.records if entry.name.startswith("llm_common.trace")
    ] == [logging.WARNING]


def test_fields_that_make_no_line_are_counted(trace: Trace) -> None:
    with trace.run("q") as run:
        record("tool_call", tool=3, args=object())
        record("unknown")
        record("tool_call", **CALL)
    assert tools_of(ended(trace, run)) == ["track"]
    assert end_of(trace, run).lost == 2


def test_a_long_run_keeps_its_first_lines_and_its_last(tmp_path: Path) -> None:
    trace = Trace(tmp_path, max_run_bytes=3_000)
    with trace.run("q") as run:
        for number in range(50):
            record("tool_call", tool=f"tool {number}", args={})
    read = ended(trace, run)
    assert read.path.stat().st_size <= 3_000
    assert end_of(trace, run).lost == 50 - len(tools_of(read)) > 0
    assert tools_of(read)[0] == "tool 0"


def test_the_oldest_runs_are_deleted(tmp_path: Path) -> None:
    trace = Trace(tmp_path, max_runs=20)
    notes = tmp_path / "q0" / "0 notes.jsonl"
    for number in range(40):
        trace.begin(f"q{number}").end()
        if number == 0:
            trace.flush()
            notes.write_text("mine")
    trace.flush()
    folders = sorted(path.parent.name for path in tmp_path.glob("*/*Z-*.jsonl"))
    assert len(folders) <= 20
    assert "q39" in folders
    assert notes.read_text() == "mine"
    assert not (tmp_path / "q1").exists()


def test_runs_from_the_future_are_deleted_first(tmp_path: Path) -> None:
    trace = Trace(tmp_path, max_runs=40)
    (tmp_path / "wrong").mkdir()
    for number in range(20):
        (tmp_path / "wrong" / f"29990101T000000{number:06}Z-00000000.jsonl").touch()
    for number in range(20):
        trace.begin(f"q{number}").end()
    trace.flush()
    assert len([*tmp_path.glob("q*/*.jsonl")]) == 20


def test_the_files_of_a_query_can_be_removed(trace: Trace) -> None:
    for query_id in ("a", "a", "b"):
        trace.begin(query_id).end()
    assert (trace.delete("a"), trace.delete("a"), trace.delete("b")) == (2, 0, 1)


async def test_recording_never_blocks_the_event_loop(
    tmp_path: Path, blockbuster: BlockBuster
) -> None:
    trace = Trace(tmp_path / "trace")
    with trace.run("parcel"):
        await outputs(FileContextPointerStore(tmp_path / "store"), "parcel")
        await pack(None, 2_000, memory_hits=(memory(1),))
    assert await asyncio.to_thread(trace.flush)
    assert (await asyncio.to_thread(read_trace, tmp_path / "trace")).end is not None


async def test_a_failed_block_ends_its_run_as_an_error(trace: Trace) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        trace.run("q") as run,
        span("llm_common.tool"),
    ):
        raise ZeroDivisionError
    assert end_of(trace, run).status == "error"


FULL_DISK = """
import resource, sys, asyncio, logging
from pathlib import Path
from llm_common._telemetry import record
from llm_common.trace import Trace, read_trace
logging.basicConfig(format="%(message)s")
trace = Trace(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
paths = []
for _ in range(2):
    with trace.run("q") as run:
        for number in range(20):
            record("tool_call", tool=f"tool {number}", args={})
    assert trace.flush()
    paths.append(run.path)
for path in paths:
    read = read_trace(path)
    print(path.stat().st_size, len(read.lines), [line.seq for line in read.lines], read.end)
"""


def test_a_full_disk_loses_the_trace_and_leaves_whole_lines(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path], capture_output=True, text=True, check=True
    )
    rows = completed.stdout.splitlines()
    assert len(rows) == 2
    for row in rows:
        assert row.startswith("700 ")
        assert row.endswith("[1, 2, 3, 4, 5, 6] None")
    assert completed.stderr.count("a run is not traced") == 1


KILLED = """
import sys
from llm_common._telemetry import record
from llm_common.trace import Trace
trace = Trace(sys.argv[1])
with trace.run("q"):
    for number in range(1_000_000):
        record("tool_call", tool="tool " * 20, args={})
        if number == 200:
            trace.flush()
            print("ready", flush=True)
"""


@contextmanager
def ready(program: str, folder: Path) -> Iterator[None]:
    """Run a program that has printed a line, and kill it at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", program, folder], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.kill()


def test_a_killed_process_leaves_whole_lines(tmp_path: Path) -> None:
    with ready(KILLED, tmp_path):
        pass
    read = read_trace(tmp_path)
    assert len(read.lines) == read.path.read_bytes().count(b"\n") > 200
    assert read.end is None
    assert read.notes in {
        (),
        ("the last line is cut: the process was killed, or the disk was full",),
    }


class Stalled:
    """An output that blocks the writer until the gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate

    @property
    def pointer_id(self) -> str:
        self._gate.wait(60)
        return "0123456789ab"


def stalled_run(trace: Trace, gate: threading.Event) -> Run:
    """Return a run of more lines than may wait for a disk, which waits for the gate."""
    with trace.run("parent") as run:
        record("tool_call", **CALL, pointer=Stalled(gate))
        for _ in range(1_200):
            record("tool_call", **CALL)
    return run


def test_a_run_on_a_slow_disk_has_its_last_line(trace: Trace) -> None:
    gate = threading.Event()
    run = stalled_run(trace, gate)
    gate.set()
    assert end_of(trace, run).lost > 200


def test_a_child_records_while_its_parent_waits_for_the_disk_f_201(trace: Trace) -> None:
    gate = threading.Event()

    def record_in_child() -> None:
        with trace.run("child") as run:
            record("tool_call", **CALL)
        assert tools_of(ended(trace, run)) == ["track"]

    stalled_run(trace, gate)
    try:
        assert run_in_child(record_in_child) == 0
    finally:
        gate.set()


REMOVING = """
import os, sys, time
print("ready", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    for entry in os.scandir(sys.argv[1]):
        try:
            os.rmdir(entry)
        except OSError:
            pass
"""


def test_no_run_is_lost_while_another_process_removes_empty_folders(tmp_path: Path) -> None:
    trace = Trace(tmp_path, max_runs=1_000)
    with ready(REMOVING, tmp_path):
        for number in range(80):
            trace.begin(f"q{number}").end()
        trace.flush()
    assert len([*tmp_path.glob("*/*.jsonl")]) == 80
