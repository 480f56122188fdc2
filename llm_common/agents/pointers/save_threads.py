"""`SaveThreads`: where saves run, so that the event loop keeps turning."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Final, TypeVar

__all__ = ["SaveThreads"]

_THREADS: Final = 4
"""So many saves keep a disk busy; each more would hold one more encoded result in memory."""
_TURN_S: Final = 0.003

Made = TypeVar("Made")


class SaveThreads:
    """Runs the work of saves, little of it in the event loop's thread and the rest beside it.

    The threads are the store's own, so that a disk that hangs takes none from the rest of the program. They are at most
    four, start with the first save, and end with the store.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._process = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._spent_s = 0.0

    async def here(self, work: Callable[[], Made]) -> Made:
        """What the function returns, called at once in this thread.

        When many saves begin in the same turn of the loop and have taken 3 ms of it, the rest come in the next one.
        """
        loop = asyncio.get_running_loop()
        while self._loop is loop and self._spent_s > _TURN_S:  # noqa: ASYNC110 - the next turn is what is waited for
            await asyncio.sleep(0)
        if self._loop is not loop:
            self._loop, self._spent_s = loop, 0.0
            loop.call_soon(self._next_turn)
        began_s = time.perf_counter()
        try:
            return work()
        finally:
            self._spent_s += time.perf_counter() - began_s

    async def beside(self, work: Callable[[], Made]) -> Made:
        """What the function returns, called in a thread; when cancelled before it has begun, it never is."""
        if self._threads is None or self._process != os.getpid():  # a forked child has none of its parent's threads
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="llm-common-save")
            self._process = os.getpid()
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        made = self._threads.submit(_begin, work, copy_context(), ended)
        made.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(_wake, ended))
        await ended
        return made.result()

    def _next_turn(self) -> None:
        self._loop = None


def _begin(work: Callable[[], Made], context: Context, ended: "asyncio.Future[None]") -> Made:
    if ended.cancelled():
        raise asyncio.CancelledError
    return context.run(work)


def _wake(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)
