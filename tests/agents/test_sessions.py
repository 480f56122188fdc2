"""`Sessions`: the conversations of a framework over one store."""

import asyncio
import copy
import logging
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    FileContextPointerStore,
    InMemoryContextPointerStore,
    SavedResults,
    Session,
    SessionConfig,
    Sessions,
)
from llm_common.errors import PointerNotFoundError
from llm_common.history import FoldPolicy
from llm_common.pointers.maintenance import GcReport
from tests.programs import printed


@pytest.fixture(autouse=True)
def default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the default store out of the repository, and apart by test."""
    folder = tmp_path / "default-context"
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(folder))
    return folder


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]


async def offload(session: Session) -> str:
    shown = await session.offload(ROWS, tool="list_parts", args={})
    assert shown.pointer_id is not None
    return shown.pointer_id


@pytest.mark.parametrize(
    ("conversation_id", "is_kept"),
    [
        ("user:42", True),
        ("thread 1", True),
        ("../etc", False),
        ("x" * 300, False),
        ("x" * 190, False),  # the ids of its runs would be too long
        (7, False),
        (("app", "user"), False),
    ],
)
def test_a_session_has_the_name_of_the_framework_if_the_store_takes_it_t_02(
    conversation_id: object, is_kept: bool
) -> None:
    session = Sessions().get(conversation_id)
    assert (session.session_id == conversation_id) is is_kept
    assert session.session_id == Sessions().session_id_of(conversation_id)


def test_two_names_never_share_a_session_t_02(sessions: Sessions) -> None:
    names: list[object] = [
        "a",
        "../etc",
        ("a", "b"),
        "('a', 'b')",
        '["a","b"]',
        7,
        "7",
        sessions.session_id_of("../etc"),
        "\ud800",
    ]
    assert len({sessions.get(name).session_id for name in names}) == len(names)


def test_without_a_name_each_object_is_a_session() -> None:
    sessions, other = Sessions(), Sessions()
    assert sessions.get() is sessions.get("")
    assert sessions.session_id_of(None) == sessions.get().session_id != other.get().session_id


async def test_a_deep_copy_shares_the_sessions(sessions: Sessions) -> None:
    pointer_id = await offload(copy.deepcopy({"sessions": sessions})["sessions"].get("a"))
    assert (await sessions.get("a").read(pointer_id)).total_chars


def test_one_object_serves_several_hooks(sessions: Sessions) -> None:
    assert Sessions.over(sessions) is sessions
    assert Sessions.over(sessions.store).store is sessions.store


@pytest.mark.parametrize("is_given", [False, True])
async def test_only_a_store_of_its_own_is_collected(is_given: bool) -> None:
    sessions = Sessions(InMemoryContextPointerStore() if is_given else None)
    await sessions.store.save(query_id="old", tool_name="tool", args={}, result=ROWS, ttl_s=1e-9)
    await offload(sessions.get("a"))
    if not is_given:  # in the background of the first save, then once an hour
        while sessions.store.records.blobs.scan("old").blobs:  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)
    assert ((await sessions.store.gc()).expired == 1) is is_given


OTHER_PROCESS = """
import asyncio, sys
from llm_common.agents import Sessions
async def main():
    session = Sessions(clear_on_exit="clear" in sys.argv).get("thread 1")
    shown = await session.offload([{"id": n, "name": f"part {n}"} for n in range(2_000)], tool="t", args={})
    print(shown.pointer_id, flush=True)
    if "killed" in sys.argv:
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


def id_of_another_process(*words: str) -> str:
    command = [sys.executable, "-c", OTHER_PROCESS, *words]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


@pytest.mark.parametrize("end", ["", "killed"])
async def test_the_next_process_reads_what_a_preview_named_t_02(end: str) -> None:
    pointer_id = await asyncio.to_thread(id_of_another_process, end)
    session = Sessions().get("thread 1")
    assert "part 3" in (await session.read(pointer_id, path="/3")).text
    with pytest.raises(PointerNotFoundError) as caught:
        await Sessions().get("thread 2").read(pointer_id)
    assert caught.value.reason == "unknown"  # also for an id that another conversation has


async def test_a_process_that_clears_its_conversations_leaves_none_t_02() -> None:
    beside = await offload(Sessions().get("thread 2"))
    pointer_id = await asyncio.to_thread(id_of_another_process, "clear")
    with pytest.raises(PointerNotFoundError) as caught:
        await Sessions().get("thread 1").read(pointer_id)
    assert caught.value.reason == "erased"
    assert (await Sessions().get("thread 2").read(beside)).total_chars


async def test_the_default_store_forgets_a_day_after_the_last_read_t_02(
    default_folder: Path,
) -> None:
    await offload(Sessions().get("a"))
    [pointer] = FileContextPointerStore(default_folder).list(query_id="a")
    assert (pointer.renew_s, pointer.expires_at is None) == (86_400.0, False)
    # The lifetime belongs to the hook, not to the store that it shares with an application.
    own = await Sessions().store.save(query_id="own", tool_name="t", args={}, result=1)
    assert own.expires_at is None


async def test_a_store_of_the_application_decides_how_long_results_live_t_02(
    tmp_path: Path,
) -> None:
    for store, config, lifetime in (
        (FileContextPointerStore(tmp_path / "1"), None, (None, True)),
        (FileContextPointerStore(tmp_path / "2", ttl_s=60), None, (None, False)),
        (FileContextPointerStore(tmp_path / "3"), SessionConfig(ttl_s=60), (60.0, False)),
    ):
        await offload(Sessions(store, config).get("a"))
        [pointer] = store.list(query_id="a")
        assert (pointer.renew_s, pointer.expires_at is None) == lifetime


async def test_folded_messages_live_as_long_as_results_t_02(tmp_path: Path) -> None:
    config = SessionConfig(fold=FoldPolicy(max_tokens=2_000), ttl_s=1_000.0)
    session = Session(FileContextPointerStore(tmp_path), session_id="a", config=config)
    history = [
        {"role": role, "content": f"{number} " + "words " * 40}
        for number in range(40)
        for role in ("user", "assistant")
    ]
    await session.fold(history)
    first = session.store.list(query_id="a")
    assert {pointer.renew_s for pointer in first} == {1_000.0}
    await session.fold(history)
    assert session.store.list(query_id="a") == first
    # Half of the life is over, so the next fold saves them again.
    late = FileContextPointerStore(
        tmp_path, clock=lambda: datetime.now(UTC) - timedelta(seconds=600)
    )
    await Session(late, session_id="b", config=config).fold(history)
    aged = late.list(query_id="b")
    await Session(tmp_path, session_id="b", config=config).fold(history)
    again = session.store.list(query_id="b")
    assert [pointer.pointer_id for pointer in again] == [pointer.pointer_id for pointer in aged]
    assert all(new.created_at > old.created_at for new, old in zip(again, aged, strict=True))


def test_conversations_without_an_id_are_warned_of_once(
    sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    sessions.tools()
    sessions.get("named")
    assert caplog.text == ""
    for _ in range(3):
        sessions.get(None)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "no other process can read its results" in caplog.text


def test_without_posix_results_stay_in_memory_with_a_warning() -> None:
    program = """
import asyncio, importlib.metadata, logging, sys  # Python's own modules must not believe in Windows
from llm_common.agents import Sessions  # and with it what others wrote
for name in [name for name in sys.modules if name.startswith("llm_common")]:
    del sys.modules[name]
sys.platform = "win32"
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
from llm_common.agents import Sessions, ToolContextManager
from llm_common.errors import StoreError
async def main():
    session = Sessions().get("a")
    shown = await session.offload(list(range(20_000)), tool="t", args={})
    print((await session.read(shown.pointer_id, path="/3")).text)
asyncio.run(main())
try:
    ToolContextManager()
except StoreError as exc:
    print(exc)
"""
    warning, text, hint = printed(program).splitlines()
    assert warning.startswith("WARNING results are kept in memory and end with this process")
    assert text == "3"
    assert "needs a POSIX system" in hint
    assert "pass ToolContextManager(pointer_store=...) an InMemoryContextPointerStore()" in hint


async def test_reading_a_result_in_memory_extends_its_life_too() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = InMemoryContextPointerStore(clock=lambda: now[0])
    session = Session.over(SavedResults(store, ttl_s=86_400, persist_threshold=1_000))
    pointer = await session.results.save("rain", tool="weather", args={})
    for _ in range(3):
        now[0] += timedelta(hours=23)
        assert session.results.load_result(pointer=pointer) == "rain"
    now[0] += timedelta(hours=25)
    with pytest.raises(PointerNotFoundError):
        session.results.load_result(pointer=pointer)


@pytest.mark.parametrize(("ttl_s", "collections"), [(60, 1), (None, 0)])
async def test_expired_results_are_collected_at_most_once_an_hour(
    ttl_s: float | None, collections: int
) -> None:
    collected = []

    class Counting(InMemoryContextPointerStore):
        async def gc(self, **options: Any) -> GcReport:
            collected.append(options)
            return await super().gc(**options)

    session = Session(Counting(), config=SessionConfig(ttl_s=ttl_s))
    for number in range(3):
        await session.results.save(number, tool="weather", args={"n": number})
        await asyncio.sleep(0)
    assert len(collected) == collections


async def test_a_result_that_is_saved_while_others_are_cleared_is_cleared_next() -> None:
    deleted, goes_on = threading.Event(), threading.Event()

    class Slow(InMemoryContextPointerStore):
        def delete(self, **options: Any) -> int:
            count = super().delete(**options)
            deleted.set()
            assert goes_on.wait(timeout=60)
            return count

    store = Slow()
    session = Session(store, session_id="ann")
    await session.results.save("first", tool="weather", args={"n": 1})
    clearing = asyncio.create_task(session.results.clear_files())
    assert await asyncio.to_thread(deleted.wait, 60)
    late = await session.results.save("second", tool="weather", args={"n": 2})
    goes_on.set()
    await clearing
    assert store.list(query_id="ann") == [late]
    await session.results.clear_files()
    assert store.list(query_id="ann") == []
