"""`SaveThreads`: where saves run, so that the event loop keeps turning."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias, TypeVar, cast

__all__ = ["SaveThreads"]

_THREADS: Final = 4
"""So many saves keep a disk busy; each more would hold one more encoded result in memory."""
_MOST_TOGETHER: Final = 32
"""So many small saves take some five milliseconds, and two open files each."""
_TURN_S: Final = 0.003
_LEAST_S: Final = 0.00005  # of a work, where the last one has taken no time at all
_PATIENCE_S: Final = 0.05  # of a thread for its next save; the end of the program may have to wait for it

Given = TypeVar("Given")
Item = TypeVar("Item")
Made = TypeVar("Made")
Step = TypeVar("Step")
_Work: TypeAlias = Callable[[list[object]], Sequence[object]]


class SaveThreads:
    """Runs the work of saves, little of it in the event loop's thread and the rest beside it.

    The threads are the store's own, so that a disk that hangs takes none from the rest of the program. They are at most
    four, start with the first save, and end with the store.
    """

    def __init__(self) -> None:
        self._workers: _Workers | None = None
        self._side: _LoopSide | None = None

    async def here(self, work: Callable[[], Made]) -> Made:
        """What the function returns, called at once in this thread.

        When saves have taken some 3 ms of a turn of the loop, the rest come in later ones, in their order.
        """
        side = self._side_of(asyncio.get_running_loop())
        await side.turn()
        began_s = time.perf_counter()
        try:
            return work()
        finally:
            side.spend(time.perf_counter() - began_s)

    async def beside(self, work: Callable[[], Made]) -> Made:
        """What the function returns, called in a thread; when cancelled before it has begun, it never is."""
        context = copy_context()
        return await self._done(None, lambda: context.run(work), _call_each)

    async def together(
        self,
        change: Callable[[Given], Step],
        *,
        group: str,
        make: Callable[[Sequence[Callable[[Given], Step]]], Sequence[Made | Exception]],
    ) -> Made:
        """What `make` returns for the change, or says that it raised; it is called in a thread.

        Changes of a group are made one after another, since they would only wait for each other: the first at once, and
        then those that have come meanwhile all together, up to 32.

        Args:
            change: What to do; cancelled before it has begun, it is left out.
            group: What it is done to.
            make: Makes several changes of the group, and tells for each what came of it, or what it raised.
        """
        context = copy_context()
        return await self._done(group, lambda given: context.run(change, given), make)

    async def _done(
        self, group: str | None, item: Item, work: Callable[[list[Item]], Sequence[Made | Exception]]
    ) -> Made:
        if self._workers is None or self._workers.process != os.getpid():  # a forked child has none of its parent's
            self._workers = _Workers()
        job = _Job(group, item, cast("_Work", work), self._side_of(asyncio.get_running_loop()))
        self._workers.do(job)
        await job.ended
        outcome, job.outcome = job.outcome, None  # an error refers to the job by its traceback
        if isinstance(outcome, BaseException):
            raise outcome
        return cast("Made", outcome)

    def _side_of(self, loop: asyncio.AbstractEventLoop) -> "_LoopSide":
        if self._side is None or self._side.loop is not loop:
            self._side = _LoopSide(loop)
        return self._side


class _LoopSide:
    """What one event loop knows: how much of its turn saves have taken, and which of them have ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._spent_s = 0.0
        self._usual_s = 0.0  # what one work has taken of late
        self._waiting: deque[asyncio.Future[None]] = deque()  # for a turn; there is one to come when any are
        self._turns = False
        self._ended: deque[asyncio.Future[None]] = deque()
        self._woken = False

    async def turn(self) -> None:
        """Waits for a turn of the loop in which saves have not taken too much."""
        if self._waiting or self._spent_s > _TURN_S:
            mine = self.loop.create_future()
            self._waiting.append(mine)
            await mine

    def spend(self, seconds: float) -> None:
        """Counts what work has taken."""
        self._usual_s += (seconds - self._usual_s) / (2 if seconds > self._usual_s else 8)
        self._spent_s += seconds
        if self._spent_s > _TURN_S and not self._turns:
            self._turns = True
            self.loop.call_soon(self._turn)

    def end(self, ended: "Iterable[asyncio.Future[None]]") -> None:
        """Tells the loop from another thread; it is woken once for all that end before it looks."""
        self._ended.extend(ended)
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # it is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._tell)

    def _turn(self) -> None:
        """Begins a turn: lets in as many as are likely to have done within it."""
        self._spent_s, expected_s = 0.0, 0.0
        while self._waiting and expected_s < _TURN_S:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                expected_s += max(self._usual_s, _LEAST_S)
        self._turns = bool(self._waiting)
        if self._turns:
            self.loop.call_soon(self._turn)

    def _tell(self) -> None:
        self._woken = False
        while self._ended:
            ended = self._ended.popleft()
            if not ended.done():
                ended.set_result(None)


@dataclass(eq=False, slots=True)
class _Job:
    """Something to do, and what has become of it."""

    group: str | None
    item: object
    work: _Work
    side: _LoopSide
    ended: "asyncio.Future[None]" = field(init=False)
    outcome: object = None

    def __post_init__(self) -> None:
        self.ended = self.side.loop.create_future()


class _Workers:
    """Threads that do jobs, one after another for as long as they come quickly; the executor ends them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="llm-common-save")
        self._batches: SimpleQueue[list[_Job]] = SimpleQueue()
        self._lock = threading.Lock()
        self._waiting: dict[str, list[_Job]] = {}
        self._unfinished = 0  # batches
        self._working = 0  # threads

    def do(self, job: _Job) -> None:
        """Does the job in a thread, at once unless all are busy, or others of its group are being done."""
        with self._lock:
            if job.group in self._waiting:
                self._waiting[job.group].append(job)
                return
            if job.group is not None:
                self._waiting[job.group] = []
            self._unfinished += 1
            if self._working < min(self._unfinished, _THREADS):
                self._threads.submit(self._work)
                self._working += 1
            self._batches.put([job])  # still locked, so that no thread ends without having seen it

    def _work(self) -> None:
        while True:
            try:
                batch = self._batches.get(timeout=_PATIENCE_S)
            except Empty:
                with self._lock:
                    if self._batches.empty():
                        self._working -= 1
                        return
                continue
            _do(batch)
            self._go_on_after(batch)
            _tell(batch)

    def _go_on_after(self, batch: list[_Job]) -> None:
        """Takes up the jobs of the same group that have come meanwhile."""
        group = batch[0].group
        with self._lock:
            if group is not None and (waiting := self._waiting.pop(group)):
                self._waiting[group] = waiting[_MOST_TOGETHER:]
                self._batches.put(waiting[:_MOST_TOGETHER])
            else:
                self._unfinished -= 1


def _call_each(works: Sequence[Callable[[], Made]]) -> list[Made]:
    return [work() for work in works]


def _do(batch: list[_Job]) -> None:
    """Does the jobs that were not cancelled."""
    batch = [job for job in batch if not job.ended.cancelled()]
    if not batch:
        return
    outcomes: Sequence[object]
    try:
        outcomes = batch[0].work([job.item for job in batch])
    except BaseException as error:  # noqa: BLE001 - for those who wait
        outcomes = [error] * len(batch)
    for job, outcome in zip(batch, outcomes, strict=True):
        job.outcome = outcome


def _tell(batch: list[_Job]) -> None:
    """Says that they have ended: a loop that is woken for each of them would hold up the next at its every step."""
    for side, jobs in groupby(batch, key=attrgetter("side")):
        side.end([job.ended for job in jobs])
