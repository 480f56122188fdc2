"""Threads for the library's own work, and separate ones for tools.

A tool that never returns occupies a tool thread until the process ends. Selections, loads, previews
and maintenance continue in the other threads.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from threading import Event, Lock, Thread
from typing import Any, Final, Generic, ParamSpec, TypeVar

from llm_common.errors import NoThreadError

P = ParamSpec("P")
T = TypeVar("T")

MAX_WORK_THREADS: Final = 8
"""For reads and rankings. More threads would wait for the disk or the GIL."""

MAX_TOOL_THREADS: Final = 32
"""For tools, which wait for networks. A further call waits until a thread is free."""

_NO_THREAD = "No thread could be started and nothing ran. End some of the process and try again"


class PerProcess(Generic[T]):
    """A value that each process creates at its first use.

    A forked child has none of its parent's threads. Work that it submits to them would never end.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._process = 0

    def get(self) -> T:
        """Return this process's value."""
        process = os.getpid()
        if self._process != process:
            # Set before the process id, by which other threads decide whether to take it.
            self._value = self._make()
            self._process = process
        return self._value


class Threads:
    """Threads for work that is certain to end. The process waits for them at its exit.

    Args:
        limit: Maximum number of threads.
        name: Name of the threads after `llm-common-`.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._pool = PerProcess(
            partial(ThreadPoolExecutor, limit, thread_name_prefix=f"llm-common-{name}")
        )

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run some work in a thread, in a copy of the caller's context.

        Raises:
            NoThreadError: If no thread can be started. The work does not run.
        """
        context = copy_context()  # the current span and the traced run are context variables
        refused = Event()

        def call() -> T:
            # The executor queues the work before it fails to start a thread, and another thread may
            # take it later.
            if refused.is_set():
                raise NoThreadError(_NO_THREAD)
            return context.run(work)

        try:
            return self._pool.get().submit(call)
        except RuntimeError as exc:
            refused.set()
            raise NoThreadError(_NO_THREAD) from exc


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run some work of the library in a thread, and return its result.

    The work runs in a copy of the caller's context. If the caller is cancelled, waiting work is
    dropped. Running work continues, and its result is lost.

    Raises:
        NoThreadError: If no thread can be started. The work does not run.
    """
    return await asyncio.wrap_future(_WORK.submit(partial(work, *args, **kwargs)))


async def in_tool_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a tool, which may never return, in a daemon thread."""
    context = copy_context()
    return await _TOOLS.get().run(lambda: context.run(work, *args, **kwargs))


_Job = tuple[Future[Any], Callable[[], Any]]


class _ToolThreads:
    """Daemon threads, which start for work and end without it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[_Job] = deque()
        self._running = 0

    async def run(self, call: Callable[[], T]) -> T:
        future: Future[T] = Future()
        job = future, call
        self._submit(job)
        try:
            return await asyncio.wrap_future(future)
        finally:
            # A cancelled job without a thread is removed. Otherwise it would keep its arguments in
            # memory for as long as other tools hang.
            if future.cancel():
                with self._lock:
                    if job in self._waiting:
                        self._waiting.remove(job)

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._waiting.append(job)
            if self._running == MAX_TOOL_THREADS:
                return
            try:
                # A daemon, so that a hung tool cannot keep the process alive.
                Thread(target=self._work, name="llm-common-tool", daemon=True).start()
            except RuntimeError as exc:
                # The last job is this one, since the lock is held.
                self._waiting.pop()
                raise NoThreadError(_NO_THREAD) from exc
            # The new thread needs the lock to end, so it is counted before that.
            self._running += 1

    def _work(self) -> None:
        while (job := self._next()) is not None:
            future, call = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as exc:  # noqa: BLE001 - reaches the caller
                    future.set_exception(exc)

    def _next(self) -> _Job | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            # Within the lock, so that `_submit` either sees this thread or starts another.
            self._running -= 1
            return None


_WORK: Final = Threads(MAX_WORK_THREADS, "work")
_TOOLS: Final = PerProcess(_ToolThreads)
