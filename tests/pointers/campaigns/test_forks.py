"""Forks while other threads save, list and choose, and kills of the parent."""

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from llm_common._env import TRACE_DIR
from llm_common.agents import (
    FileContextPointerStore,
    InMemoryContextPointerStore,
    LexicalRelevanceSelector,
    SessionConfig,
    Sessions,
    ToolContextManager,
)
from llm_common.errors import LockTimeoutError
from llm_common.memory import Event, MemoryFilters, SqliteMemory
from llm_common.ranking.embeddings import StaticVectors
from llm_common.tools import ToolDefinition, ToolIndex
from tests.pointers.campaigns.children import answer, child
from tests.pointers.campaigns.naive_store import NaiveLockingStore
from tests.pointers.campaigns.programs import (
    end_of_child,
    fork_while_saving,
    open_store,
    saving_thread,
    stop_measuring,
)
from tests.pointers.campaigns.traffic import save

COUNTS = pytest.mark.parametrize(
    "count", [pytest.param(3, id="short"), pytest.param(200, id="full", marks=pytest.mark.torture)]
)
SIZES = pytest.mark.parametrize(
    "size", [400, 2_500_000], ids=["small-results", "results-of-2.5-mb"]
)


@COUNTS
@SIZES
@pytest.mark.parametrize("how", ["os", pytest.param("multiprocessing", marks=pytest.mark.torture)])
def test_a_child_forked_during_a_save_saves_and_ends_f_158_f_069_s0_20(
    tmp_path: Path, how: str, count: int, size: int
) -> None:
    ends = answer(
        fork_while_saving, open_store, tmp_path, how=how, count=count, size=size, timeout_s=1_200
    )
    assert ends == {"ended": count}


def save_list_and_choose(store: FileContextPointerStore, name: str) -> None:
    async def work() -> None:
        await save(store, name, {"rows": [name] * 20})
        pointers = store.list(query_id="q")
        chosen = await LexicalRelevanceSelector().select(query=f"rows of {name}", pointers=pointers)
        for pointer in chosen:
            store.load_result(pointer=pointer)

    asyncio.run(work())


def fork_at_first_use(base: Path, seed: int) -> str:
    """Return how a child ends that is forked while a thread uses the library for the first time.

    Parent and child do the same.
    """
    stop_measuring()
    store = FileContextPointerStore(base, durability="rename")
    thread = threading.Thread(target=save_list_and_choose, args=(store, f"parent-{seed}"))
    thread.start()
    time.sleep(random.Random(seed).uniform(0, 0.02))
    end = end_of_child(partial(save_list_and_choose, store, f"child-{seed}"))
    thread.join()
    return end


@pytest.mark.parametrize(
    "seconds", [pytest.param(3, id="short"), pytest.param(60, id="full", marks=pytest.mark.torture)]
)
def test_a_child_forked_at_first_thread_use_ends_s0_41_f_201(
    tmp_path: Path, seconds: float
) -> None:
    ends = Counter[str]()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        number = ends.total()
        # Few outputs a folder: the campaign is about the first use, not about long lists.
        ends[answer(fork_at_first_use, tmp_path / str(number // 20), number)] += 1
    assert set(ends) == {"ended"}


def test_the_harness_catches_a_lock_that_a_forked_child_cannot_get_f_158(tmp_path: Path) -> None:
    forking = partial(fork_while_saving, how="os", count=60, size=400, patience_s=1)
    assert answer(forking, NaiveLockingStore, tmp_path)["never ended"]


def fork_and_die(sender: Connection, make: Callable[[Path], Any], base: Path, number: int) -> None:
    """Fork a sleeping child during a save, send its process id, and be killed."""
    stop_measuring()
    with saving_thread(make(base), size=2_500_000):
        time.sleep(random.Random(number).uniform(0, 0.05))
        pid = os.fork()
        if pid == 0:
            time.sleep(20)
            os._exit(0)
        sender.send(pid)
        os.kill(os.getpid(), signal.SIGKILL)


def outcome_after_kill(make: Callable[[Path], Any], base: Path, store: Any, number: int) -> str:
    """Save after the kill of a parent whose child still runs: "saved" or "locked"."""
    with child(fork_and_die, make, base, number) as (process, receiver):
        pid = receiver.recv()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    try:
        asyncio.run(save(store, f"after {number}", number))
    except LockTimeoutError:
        return "locked"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return "saved"


@pytest.mark.parametrize(
    "kills", [pytest.param(1, id="short"), pytest.param(100, id="full", marks=pytest.mark.torture)]
)
def test_no_lock_outlives_its_owner_in_a_forked_child_f_158_f_069(
    tmp_path: Path, kills: int
) -> None:
    make, store = partial(open_store, flush=True), FileContextPointerStore(tmp_path)
    outcomes = {outcome_after_kill(make, tmp_path, store, number) for number in range(kills)}
    assert outcomes == {"saved"}


def test_the_harness_catches_a_lock_that_a_forked_child_keeps_f_158(tmp_path: Path) -> None:
    make = partial(NaiveLockingStore, thread_lock=False)
    store = NaiveLockingStore(tmp_path, lock_timeout_s=0.2)
    # On a busy machine many parents die before they hold the lock.
    assert "locked" in (outcome_after_kill(make, tmp_path, store, number) for number in range(60))


THREADS = 4
TOPICS = ("invoices", "weather", "flights", "recipes", "contracts", "planets")


class SharedObjects:
    """What the threads of a service share: stores, sessions, indexes, caches and memory."""

    def __init__(self, base: Path) -> None:
        self.files = FileContextPointerStore(base / "files", durability="rename", lock_timeout_s=60)
        self.in_memory = InMemoryContextPointerStore(lock_timeout_s=60)
        self.manager = ToolContextManager(pointer_store=self.in_memory, persist_threshold=0)
        self.embedder = StaticVectors()
        config = SessionConfig(max_tool_tokens=60, embedder=self.embedder)
        self.sessions = Sessions(InMemoryContextPointerStore(lock_timeout_s=60), config)
        self.tools = [definition(topic) for topic in TOPICS]
        self.index = ToolIndex(self.tools, self.embedder)
        self.selector = LexicalRelevanceSelector()
        self.memory = SqliteMemory(base / "memory.sqlite3", lock_timeout_s=60)

    def use(self, number: int) -> None:
        """Use each object once. Raises if an answer is wrong."""
        asyncio.run(self._use(number))

    async def _use(self, number: int) -> None:
        topic = TOPICS[number % len(TOPICS)]
        query_id = f"q{number % 5}"
        rows = {"rows": [f"{topic} {number}"] * 20}
        for store in (self.files, self.in_memory):
            pointer = await store.save(
                query_id=query_id, task_id=None, tool_name="t", args={"n": number % 40}, result=rows
            )
            pointers = store.list(query_id=query_id)
            assert pointer.pointer_id in [stored.pointer_id for stored in pointers]
            await self.selector.select(query=f"rows of {topic}", pointers=pointers)

        session = self.sessions.get(f"conversation {number % 7}")
        offloaded = await session.offload(rows, tool="t", args={"n": number}, turn=f"turn {number}")
        assert offloaded is not None
        question = [{"role": "user", "content": f"find {topic}"}]
        chosen = await session.choose_tools(self.tools, messages=question)
        assert chosen
        await self.manager.save_context("t", {"n": number % 40}, rows, None, query_id)

        assert self.index.rank(f"find {topic}", 1)[0].name == f"find_{topic}"
        self.embedder.similarities(topic, [f"{topic} {number + row}" for row in range(20)])

        await self.memory.append_event("s", Event(text=f"{topic} of {number}"))
        hits = await self.memory.retrieve(topic, 3, MemoryFilters(session_id="s"))
        assert hits


def definition(topic: str) -> ToolDefinition:
    return ToolDefinition(
        name=f"find_{topic}", description=f"Finds {topic} of a customer.", parameters={}
    )


def fork_children(base: Path, *, seconds: float, trace_dir: str) -> Counter[str]:
    """Fork children while threads use the shared objects, and count how they end."""
    stop_measuring()
    os.environ[TRACE_DIR.name] = trace_dir
    shared, stopped, ends = SharedObjects(base), threading.Event(), Counter[str]()
    numbers = count()
    # Before the threads, since a thread that imports at the fork holds Python's own lock.
    shared.use(next(numbers))

    def work() -> None:
        while not stopped.is_set():
            shared.use(next(numbers))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    chance = random.Random(5)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and ends["never ended"] < 3:
        time.sleep(chance.uniform(0, 0.02))
        ends[end_of_child(partial(shared.use, 1_000_000 + next(numbers)))] += 1
    ends["parent's threads"] = sum(thread.is_alive() for thread in threads)
    stopped.set()
    for thread in threads:
        thread.join()
    return ends


@pytest.mark.parametrize(
    "seconds", [pytest.param(2, id="short"), pytest.param(60, id="full", marks=pytest.mark.torture)]
)
def test_children_forked_while_threads_save_list_and_choose_end_f_201(
    tmp_path: Path, seconds: float
) -> None:
    ends = answer(
        fork_children, tmp_path, seconds=seconds, trace_dir=str(tmp_path / "traces"), timeout_s=600
    )
    assert ends.pop("parent's threads") == THREADS
    assert ends.pop("ended") >= 1
    assert not +ends
