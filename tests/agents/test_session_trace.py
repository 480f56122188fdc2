"""Test that a session without a run of its own is traced turn by turn."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from llm_common._env import TRACE_DIR
from llm_common.agents import InMemoryContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ToolFailedError
from llm_common.history import FoldPolicy
from llm_common.integrations.translation import read_back, run_sync
from llm_common.tools import ToolDefinition
from llm_common.trace import RecordedRun, Trace, read_trace
from tests.programs import printed

QUESTION = {"role": "user", "content": "Where is part 7 of Ann?"}
TEXT = "Part 7 of Ann lies in Oslo. " * 1_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(TRACE_DIR.name, str(tmp_path / "trace"))
    return tmp_path / "trace"


def runs_in(folder: Path, session: Session) -> list[RecordedRun]:
    """Return the runs of a session, oldest first."""
    trace = Trace(folder)
    assert trace.flush()
    files = folder.glob(f"{session.session_id}*/*.jsonl")
    return [read_trace(path) for path in sorted(files, key=lambda path: path.name)]


def kinds(run: RecordedRun) -> list[str]:
    return [line.kind for line in run.lines]


def session_of(name: str, **config: Any) -> Session:
    return Session(InMemoryContextPointerStore(), session_id=name, config=SessionConfig(**config))


async def test_offloads_choices_readings_and_folds_are_lines_of_a_turn_t_09(folder: Path) -> None:
    session = session_of("lines", max_tool_tokens=100)
    tools = [ToolDefinition(f"send_{number}", "Sends a parcel.", {}) for number in range(20)]
    messages = [QUESTION]
    await session.fold(messages)
    await session.choose_tools(tools, messages=messages)
    shown = await session.offload(TEXT, tool="list_parts", args={}, messages=messages)
    await session.offload("done", tool="check", args={}, messages=messages)
    reader, searcher = session.tools()[:2]
    await session.offload(
        await reader.run({"id": shown.pointer_id, "lines": [1, 1]}),
        tool=reader.name,
        args={},
    )
    await searcher.run({"words": "Oslo"})
    with pytest.raises(ToolFailedError):
        await read_back(session, reader.name, {"id": "0" * 12})
    await session.read(str(shown.pointer_id), chars=(0, 9))
    [run] = runs_in(folder, session)
    assert kinds(run) == [
        "run_begin", "fold", "tool_list", "offload", "offload",
        "read_back", "read_back", "read_back", "read_back",
    ]  # fmt: skip
    lines: Any = run.lines
    _, fold, listed, preview, whole, read, search, missed, _ = lines
    assert fold.messages_sent == 1
    assert len(listed.shown) + len(listed.hidden) == 20
    assert listed.hidden
    assert listed.tokens <= listed.limit_tokens == 100
    assert (preview.tool, preview.outcome, preview.pointer_id, preview.total_chars) == (
        "list_parts", "preview", shown.pointer_id, len(TEXT),
    )  # fmt: skip
    assert (whole.tool, whole.outcome, whole.shown_chars) == ("check", "whole", 4)
    assert (read.pointer_id, read.parts) == (shown.pointer_id, ("lines",))
    assert read.chars > 0
    assert search.tool == searcher.name
    assert missed.failure == "PointerNotFoundError"


async def test_a_question_begins_a_run_and_ends_the_one_before_t_09(folder: Path) -> None:
    session = session_of("turns")
    for question in ("first", "second", "first"):
        await session.fold([{"role": "user", "content": question}])
        await session.offload(TEXT, tool="list_parts", args={}, query=question)
    first, second = runs_in(folder, session)
    assert kinds(first) == ["run_begin", "fold", "offload", "run_end"]
    assert kinds(second) == ["run_begin", "fold", "offload", "fold", "offload"]


async def test_a_trace_of_the_application_has_the_lines_t_09(tmp_path: Path) -> None:
    session, trace = session_of("own"), Trace(tmp_path)
    with trace.run("mine") as run:
        # As hooks of synchronous frameworks do, in another thread.
        run_sync(session.offload(TEXT, tool="list_parts", args={}, messages=[QUESTION]))
    trace.flush()
    assert run.path is not None
    assert kinds(read_trace(run.path)) == ["run_begin", "offload", "run_end"]


def test_no_message_is_read_for_a_trace_that_is_off_t_09() -> None:
    # In a process of its own, where no test has begun a trace.
    program = """
import asyncio
from llm_common.agents import InMemoryContextPointerStore, Session

class Unread(list):
    def __getitem__(self, index):
        raise AssertionError("a message was read")

async def main():
    session = Session(InMemoryContextPointerStore(), session_id="off")
    call = {"tool": "list_parts", "args": {}, "turn": "t"}
    await session.offload("word " * 9_000, **call, query="where")
    await session.offload("word " * 9_000, **call, messages=Unread([{"role": "user"}]))

asyncio.run(main())
"""
    environment = {name: value for name, value in os.environ.items() if name != TRACE_DIR.name}
    printed(program, env=environment)


async def test_many_sessions_keep_few_runs_open_t_09(folder: Path) -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    for number in range(70):
        session = sessions.get(f"many-{number}")
        await session.offload(TEXT, tool="list_parts", args={}, query="where")
    [oldest] = runs_in(folder, sessions.get("many-0"))
    [newest] = runs_in(folder, sessions.get("many-69"))
    assert oldest.end is not None
    assert newest.end is None


async def test_the_log_has_no_text_of_the_user_t_09(caplog: pytest.LogCaptureFixture) -> None:
    session = session_of("logs", fold=FoldPolicy(max_tokens=500))
    with caplog.at_level(logging.DEBUG, logger="llm_common"):
        shown = await session.offload(TEXT, tool="list_parts", args={"of": "Ann"}, query="Ann?")
        history = [{"role": "user", "content": f"Ann {n} " + "word " * 50} for n in range(40)]
        await session.fold(history)
    assert f"is stored as {shown.pointer_id}" in caplog.text
    assert "of 40 messages are sent" in caplog.text
    assert "Ann" not in caplog.text


def test_the_last_turn_of_a_process_has_an_end_that_no_forked_child_writes_t_09_f_201(
    folder: Path,
) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from llm_common.agents import InMemoryContextPointerStore, Session\n"
        "session = Session(InMemoryContextPointerStore(), session_id='fork')\n"
        "def offload(): asyncio.run(session.offload('word ' * 9_000, tool='t', args={}))\n"
        "offload()\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit()\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "offload()\n"
    )
    printed(program)
    [path] = folder.glob("fork*/*.jsonl")
    assert kinds(read_trace(path)) == ["run_begin", "offload", "offload", "run_end"]
