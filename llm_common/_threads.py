"""Threads of the library: some for its own work, others for tools.

A tool may never return. It then holds a thread of the tools until the process ends, and none that
the library's own work needs: selections, loads, previews and maintenance go on.
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
"""Reads and rankings: more would wait for the disk or for the interpreter's lock."""

MAX_TOOL_THREADS: Final = 32
"""Tools wait for networks. A call beyond these waits for a thread, or until its caller gives up."""

_NO_THREAD = (
    "No thread could be started and nothing ran; end some threads of the process and try again"
)


class PerProcess(Generic[T]):
    """A value that each process makes at its first use.

    The one check for a fork: a child has none of its parent's threads, and what it hands to one of
    them never ends.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._process = 0

    def get(self) -> T:
        """Return this process's value."""
        process = os.getpid()
        if self._process != process:
            self._value = self._make()
            self._process = process
        return self._value


class Threads:
    """Threads for work that ends. They start with work, and a process waits for them to end.

    Args:
        limit: Maximum number of threads.
        name: What the threads are called, after `llm-common-`.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._pool = PerProcess(
            partial(ThreadPoolExecutor, limit, thread_name_prefix=f"llm-common-{name}")
        )

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Hand work to a thread, where it runs in a copy of the caller's context.

        Raises:
            NoThreadError: No thread can be started; the work does not run.
        """
        context = copy_context()
        refused = Event()

        def call() -> T:
            if refused.is_set():  # the executor keeps what it could not start
                raise NoThreadError(_NO_THREAD)
            return context.run(work)

        try:
            return self._pool.get().submit(call)
        except RuntimeError as exc:
            refused.set()
            raise NoThreadError(_NO_THREAD) from exc


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the work returns, or raise what it raises; for work of the library, which ends.

    Runs in a copy of the caller's context. If the caller gives up, work that waits is dropped; work
    that runs goes on, and what it returns is lost.

    Raises:
        NoThreadError: No thread can be started; the work does not run.
    """
    return await asyncio.wrap_future(_WORK.submit(partial(work, *args, **kwargs)))


async def in_tool_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a tool, which may never return, in a thread that no process waits for."""
    context = copy_context()
    return await _TOOLS.get().run(lambda: context.run(work, *args, **kwargs))


_Job = tuple[Future[Any], Callable[[], Any]]


class _ToolThreads:
    """Daemon threads, which start when there is work and end when there is none."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiting: deque[_Job] = deque()
        self._running = 0

    async def run(self, call: Callable[[], T]) -> T:
        done: Future[T] = Future()
        job = done, call
        self._submit(job)
        try:
            return await asyncio.wrap_future(done)
        finally:
            # it had no thread yet, and would wait with its arguments for as long as others hang
            if done.cancel():
                with self._lock:
                    if job in self._waiting:
                        self._waiting.remove(job)

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._waiting.append(job)
            if self._running == MAX_TOOL_THREADS:
                return
            try:
                Thread(target=self._work, name="llm-common-tool", daemon=True).start()
            except RuntimeError as exc:
                self._waiting.pop()
                raise NoThreadError(_NO_THREAD) from exc
            self._running += 1

    def _work(self) -> None:
        while (job := self._next()) is not None:
            done, call = job
            if done.set_running_or_notify_cancel():
                try:
                    done.set_result(call())
                except BaseException as exc:  # noqa: BLE001 - reaches the caller
                    done.set_exception(exc)

    def _next(self) -> _Job | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._running -= 1
            return None


_WORK: Final = Threads(MAX_WORK_THREADS, "work")
_TOOLS: Final = PerProcess(_ToolThreads)
