"""`SaveThreads`: where saves run, so that the event loop keeps turning."""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Final, TypeVar, cast

from llm_common.errors import LockTimeoutError

__all__ = ["SaveThreads"]

_THREADS: Final = 4
"""So many saves keep a disk busy; each more would hold one more encoded result in memory."""
_TURN_S: Final = 0.003
_LOOK_S: Final = 0.002
_PATIENCE_S: Final = 0.05  # of a thread for its next save; the end of the program may have to wait for it

Made = TypeVar("Made")


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

        When saves have taken 3 ms of a turn of the loop, or of several, the rest come in the next one.
        """
        side = self._side_of(asyncio.get_running_loop())
        while side.spent_s > _TURN_S:  # noqa: ASYNC110 - the next turn is what is waited for
            await asyncio.sleep(0)
        began_s = time.perf_counter()
        try:
            return work()
        finally:
            side.spend(time.perf_counter() - began_s)

    async def beside(self, work: Callable[[], Made], *, after: str | None = None) -> Made:
        """What the function returns, called in a thread; when cancelled before it has begun, it never is.

        Args:
            work: What to do.
            after: Works of one name are done one after another, for those that would only wait for each other.
        """
        if self._workers is None or self._workers.process != os.getpid():  # a forked child has none of its parent's
            self._workers = _Workers()
        side = self._side_of(asyncio.get_running_loop())
        job = _Job(work, side, after)
        await side.wait(job.ended, follows=self._workers.do(job))
        error, job.error = job.error, None  # which refers to the job by its traceback
        if error is not None:
            raise error
        return cast("Made", job.made)

    def _side_of(self, loop: asyncio.AbstractEventLoop) -> "_LoopSide":
        if self._side is None or self._side.loop is not loop:
            self._side = _LoopSide(loop)
        return self._side


class _LoopSide:
    """What one event loop knows: how much of its turn saves have taken, and which of them have ended.

    A thread that wakes the loop then waits for it at its next step, since one of them holds the interpreter's lock, and
    a save takes twice as long. So while others follow, the loop is not woken: it looks by itself, now and then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.spent_s = 0.0
        self._ended: deque[asyncio.Future[None]] = deque()
        self._woken = False
        self._awaited = 0
        self._looking = False

    def spend(self, seconds: float) -> None:
        """Counts what work has taken."""
        self.spent_s += seconds
        if self.spent_s > _TURN_S:
            self.loop.call_soon(self._turn)

    async def wait(self, ended: "asyncio.Future[None]", *, follows: bool) -> None:
        """Waits for something, which follows something else or not."""
        self._awaited += 1
        if follows and not self._looking:
            self._looking = True
            self.loop.call_later(_LOOK_S, self._look)
        try:
            await ended
        finally:
            self._awaited -= 1

    def end(self, ended: "asyncio.Future[None]", *, wake: bool) -> None:
        """Notes from another thread that something has ended; the loop is woken once for all before it looks."""
        self._ended.append(ended)
        if wake and not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # it is closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._tell)

    def _turn(self) -> None:
        self.spent_s = 0.0

    def _look(self) -> None:
        self._tell()
        self._looking = self._awaited > 0
        if self._looking:
            self.loop.call_later(_LOOK_S, self._look)

    def _tell(self) -> None:
        self._woken = False
        while self._ended:
            ended = self._ended.popleft()
            if not ended.done():
                ended.set_result(None)


class _Job:
    """Work for a thread."""

    def __init__(self, work: Callable[[], object], side: _LoopSide, after: str | None) -> None:
        self.side = side
        self.after = after
        self.ended = side.loop.create_future()
        self.made: object = None
        self.error: BaseException | None = None
        self._work = work
        self._context = copy_context()

    def run(self) -> None:
        """Does the work, unless it was cancelled."""
        if not self.ended.cancelled():
            try:
                self.made = self._context.run(self._work)
            except BaseException as error:  # noqa: BLE001 - for the one who waits
                self.error = error


class _Workers:
    """Threads that do jobs, one after another for as long as they come quickly; the executor ends them."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="llm-common-save")
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._following: dict[str | None, deque[_Job]] = {}
        self._unfinished = 0  # but for those that follow another
        self._working = 0

    def do(self, job: _Job) -> bool:
        """Does the job in a thread, at once unless all are busy; True when it is to be done after another."""
        with self._lock:
            follows = job.after in self._following
            if follows:
                self._following[job.after].append(job)
            else:
                self._begin(job)
        return follows

    def _begin(self, job: _Job) -> None:
        if self._working <= min(self._unfinished, _THREADS - 1):
            self._threads.submit(self._work)
            self._working += 1
        if job.after is not None:
            self._following[job.after] = deque()
        self._unfinished += 1
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            try:
                job: _Job | None = self._jobs.get(timeout=_PATIENCE_S)
            except Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._working -= 1
                        return
                continue
            while job is not None:
                job.run()
                following = self._next_after(job)
                job.side.end(job.ended, wake=following is None or following.side is not job.side)
                job = following

    def _next_after(self, job: _Job) -> _Job | None:
        """The job that follows one that is finished; after a lock that could not be had, each waits for it alone."""
        with self._lock:
            others = self._following.get(job.after) or deque[_Job]()
            if others and not isinstance(job.error, LockTimeoutError):
                return others.popleft()
            self._unfinished -= 1
            self._following.pop(job.after, None)
            for other in others:
                other.after = None
                self._begin(other)
            return None
