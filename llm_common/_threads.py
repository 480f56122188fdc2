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
from functools import cache
from threading import Event, Lock, Thread
from typing import Any, Final, ParamSpec, TypeVar

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


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the work returns or raises; for work of the library, which ends.

    Runs in a copy of the caller's context. If the caller gives up, work that waits is dropped; work
    that runs goes on, and what it returns is lost. The end of the process waits for it.

    Raises:
        NoThreadError: No thread can be started; the work does not run.
    """
    context = copy_context()
    refused = Event()

    def call() -> T:
        if refused.is_set():  # the executor kept what it could not start
            raise NoThreadError(_NO_THREAD)
        return context.run(work, *args, **kwargs)

    try:
        done = _work_threads(os.getpid()).submit(call)
    except RuntimeError as exc:
        refused.set()
        raise NoThreadError(_NO_THREAD) from exc
    return await asyncio.wrap_future(done)


async def in_tool_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As `in_thread`, for a tool, which may never return: the end of the process does not wait for it."""
    context = copy_context()
    return await _TOOLS.run(lambda: context.run(work, *args, **kwargs))


@cache
def _work_threads(process: int) -> ThreadPoolExecutor:  # noqa: ARG001 - a forked child has none of its parent's threads
    return ThreadPoolExecutor(MAX_WORK_THREADS, thread_name_prefix="llm-common-work")


_Job = tuple[Future[Any], Callable[[], Any]]


class _ToolThreads:
    """Daemon threads, which start when there is work and end when there is none."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):  # POSIX
            os.register_at_fork(after_in_child=self._forget)

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

    def _forget(self) -> None:
        self._lock = Lock()
        self._waiting: deque[_Job] = deque()
        self._running = 0

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


_TOOLS = _ToolThreads()
