"""Worker processes that share an object store and a memory, as a queue's workers do.

    python -m tests.services.workers PLACE CONNINFO FOLDER NUMBER

works until every job is done or its user erased. PLACE is `ENDPOINT#BUCKET`. The folder stands for
the queue: it has the marks of finished jobs, of closed and of erased users, and a lock for each
user, since the runs of a user have to end before the user is erased.
"""

import asyncio
import fcntl
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    ObjectContextPointerStore,
    Session,
    SessionConfig,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.core import LLMMessage
from llm_common.errors import PointerNotFoundError, RunBusyError
from llm_common.memory import Event, MemoryFilters, PostgresMemory, UserMemory
from llm_common.testing import ScriptedClient
from tests.s3_server import s3_options

USERS: Final = 6
ERASED_USERS: Final = (0, 1)
QUERIES: Final = 3
CALLS: Final = 4
SCHEMA: Final = "workers"
# Renewed by a read after half of it, so that gc, reads and expiry meet.
CACHE_S: Final = 4.0
JOBS: Final = [(user, query) for user in range(USERS) for query in range(QUERIES)]
PATIENCE_S: Final = 60.0


def open_store(place: str) -> ObjectContextPointerStore:
    endpoint, _, bucket = place.partition("#")
    return ObjectContextPointerStore.from_url(f"s3://{bucket}/runs", **s3_options(endpoint))


def session_id_of(user: int) -> str:
    return f"user:{user}"


def session_ids_of(user: int) -> tuple[str, str]:
    """Return the session of a user's runs, and the one of its results that expire."""
    return session_id_of(user), f"{session_id_of(user)}/cache"


def marker_of(user: int) -> str:
    """Return a text that everything of a user contains."""
    return f"secret-of-user-{user}-"


def open_memory(conninfo: str) -> PostgresMemory:
    return PostgresMemory(conninfo, schema=SCHEMA, max_connections=2, timeout_s=60)


def output_of(user: int, query: int, number: int) -> dict[str, Any]:
    text = f"{marker_of(user)}{query}-{number} " * 200
    return {"user": user, "query": query, "number": number, "text": text}


@dataclass(frozen=True, slots=True)
class Seen:
    """A pointer that a worker has listed."""

    user: int
    pointer: ContextPointer
    expires: bool


class Queue:
    """The folder that the workers share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def mark(self, name: str) -> None:
        (self._folder / name).touch()

    def has(self, name: str) -> bool:
        return (self._folder / name).exists()

    def wait_for(self, name: str) -> None:
        """Wait for a mark, but not for ever."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.has(name) and time.monotonic() < deadline:
            time.sleep(0.02)

    def note(self, file: str, line: str) -> None:
        with (self._folder / file).open("a") as lines:
            lines.write(f"{line}\n")

    def lines(self, file: str) -> list[str]:
        path = self._folder / file
        return path.read_text().splitlines() if path.exists() else []

    @contextmanager
    def locked(self, user: int, *, alone: bool) -> Iterator[bool]:
        """Yield whether the lock of a user was free. A killed process gives it back."""
        with (self._folder / f"lock-{user}").open("a") as file:
            try:
                kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def is_over(self) -> bool:
        """Return whether all jobs are done, and the users to erase are erased."""
        jobs_left = [job for job in JOBS if not self._is_finished(*job)]
        return not jobs_left and all(self.has(f"erased-{user}") for user in ERASED_USERS)

    def _is_finished(self, user: int, query: int) -> bool:
        return self.has(f"done-{user}-{query}") or self.has(f"closed-{user}")


class Worker:
    """One worker, which picks what it does at random."""

    def __init__(self, place: str, memory: PostgresMemory, queue: Queue, number: int) -> None:
        self._store = open_store(place)
        self._memory = memory
        self._queue = queue
        self._number = number
        self._chance = random.Random(number)
        self._seen: list[Seen] = []

    async def work(self) -> None:
        """Do the first job, which all workers begin with, and then others until none is left."""
        await self._run(*JOBS[-1])
        others = [self._read, self._search, self._cache, self._collect, self._erase]
        while not self._queue.is_over():
            job = self._chance.choice(JOBS)
            if self._chance.random() < 0.5:
                await self._run(*job)
            else:
                await self._chance.choice(others)(job[0])

    async def _run(self, user: int, query: int) -> None:
        """Resume a run of a user, unless it is done or the user leaves."""
        with self._queue.locked(user, alone=False) as is_free:
            if not is_free or self._queue.has(f"closed-{user}"):
                return
            executor = self._executor(user, query)
            try:
                results = await executor.execute_plan(
                    ["Do the work"], f"query {query}", session=session_id_of(user), resume=True
                )
            except RunBusyError:
                self._queue.mark("busy")
                self._queue.note("refused", f"{user}-{query}")
                await asyncio.sleep(0.05)
                return
            assert all(result.success for result in results), results
            text = f"{marker_of(user)}{query} is done"
            await UserMemory(self._memory, session_id_of(user)).append_event(
                "jobs", Event(text=text), key=f"job {query}"
            )
            self._queue.mark(f"done-{user}-{query}")

    def _executor(self, user: int, query: int) -> AgenticExecutor:
        tools = ToolRegistry()

        @tools.tool
        async def work(number: int) -> dict[str, Any]:
            """Does a part of the work."""
            self._queue.note("calls", f"{user}-{query}-{number}")
            # Of the first job, whose run lasts until another worker was refused.
            await asyncio.to_thread(self._queue.wait_for, "busy")
            return output_of(user, query, number)

        def choose(messages: Sequence[LLMMessage]) -> str:
            calls = [{"tool": "work", "args": {"number": number}} for number in range(CALLS)]
            return json.dumps({"calls": calls})

        return AgenticExecutor(
            ScriptedClient([], default=choose), tools, ToolContextManager(pointer_store=self._store)
        )

    async def _read(self, user: int) -> None:
        """List what a user has, and load it and what was listed before."""
        await self._list(user)
        for seen in self._chance.sample(self._seen, min(10, len(self._seen))):
            was_erased = self._queue.has(f"erased-{seen.user}")
            try:
                output = await self._store.aload_result(pointer=seen.pointer)
            except PointerNotFoundError:
                # Closed before it is erased, so also if that happened meanwhile.
                if not seen.expires and not self._queue.has(f"closed-{seen.user}"):
                    self._queue.note("faults", f"lost: {seen}")
                continue
            if was_erased:
                self._queue.note("faults", f"resurrected: {seen}")
            if marker_of(seen.user) not in json.dumps(output):
                self._queue.note("faults", f"mixed: {seen}")

    async def _list(self, user: int) -> None:
        for session_id in session_ids_of(user):
            was_erased = self._queue.has(f"erased-{user}")
            session = ToolContextManager(pointer_store=self._store, session_id=session_id)
            for pointer in await session.resume():
                seen = Seen(user, pointer, expires=pointer.expires_at is not None)
                self._seen.append(seen)
                if was_erased:
                    self._queue.note("faults", f"listed: {seen}")

    async def _search(self, user: int) -> None:
        """Search the memory of a user, which may be erased meanwhile."""
        was_erased = self._queue.has(f"erased-{user}")
        memory = UserMemory(self._memory, session_id_of(user))
        hits = await memory.retrieve("done", 10, MemoryFilters(session_id="jobs"))
        for hit in hits:
            if marker_of(user) not in hit.event.text:
                self._queue.note("faults", f"another user's memory for {user}")
        if hits and was_erased:
            self._queue.note("faults", f"resurrected memory of {user}")

    async def _cache(self, user: int) -> None:
        """Store a result that expires, under one of a few calls."""
        with self._queue.locked(user, alone=False) as is_free:
            if not is_free or self._queue.has(f"closed-{user}"):
                return
            config = SessionConfig(ttl_s=CACHE_S)
            session = Session(self._store, session_id=session_ids_of(user)[1], config=config)
            number = self._chance.randrange(3)
            result = output_of(user, 0, number)["text"] * 10
            await session.offload(result, tool="page", args={"number": number})

    async def _collect(self, user: int) -> None:
        """Remove what has expired."""
        await self._store.gc()

    async def _erase(self, user: int) -> None:
        """Erase a user whose jobs have begun: no new run, then the store, then the memory."""
        if user not in ERASED_USERS or self._queue.has(f"erased-{user}"):
            return
        has_begun = any(self._queue.has(f"done-{user}-{query}") for query in range(QUERIES))
        if not has_begun:
            return
        self._queue.mark(f"closed-{user}")
        with self._queue.locked(user, alone=True) as is_free:
            if not is_free:
                return
            for session_id in session_ids_of(user):
                session = ToolContextManager(pointer_store=self._store, session_id=session_id)
                await session.resume()
                await session.clear()
            await self._memory.forget(user=session_id_of(user))
            self._queue.mark(f"erased-{user}")


@asynccontextmanager
async def worker_of(place: str, conninfo: str, folder: Path, number: int) -> AsyncIterator[Worker]:
    async with open_memory(conninfo) as memory:
        yield Worker(place, memory, Queue(folder), number)


async def main(place: str, conninfo: str, folder: Path, number: int) -> None:
    async with worker_of(place, conninfo, folder, number) as worker:
        await worker.work()


if __name__ == "__main__":
    place, conninfo, folder_name, number_text = sys.argv[1:]
    with suppress(KeyboardInterrupt):
        asyncio.run(main(place, conninfo, Path(folder_name), int(number_text)))
