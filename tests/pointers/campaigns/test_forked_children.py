"""Children that are forked while other threads save, list and choose."""

import asyncio
import os
import random
import threading
import time
from collections import Counter
from functools import partial
from itertools import count
from pathlib import Path

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
from llm_common.memory import Event, MemoryFilters, SqliteMemory
from llm_common.ranking.embeddings import StaticVectors
from llm_common.tools import ToolDefinition, ToolIndex
from tests.pointers.campaigns.children import answer
from tests.pointers.campaigns.programs import end_of_child, stop_measuring

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
