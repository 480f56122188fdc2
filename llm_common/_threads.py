"""Threads for the library's own work, separate ones for tools and queries, and fork-safe locks.

A tool that never returns occupies a tool thread until the process ends. Selections, loads, previews
and maintenance continue in the other threads. An async tool that ignores its cancellation is left.
"""

import asyncio
import logging
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from threading import Event, Lock, Semaphore, Thread
from types import TracebackType
from typing import Any, Final, Generic, ParamSpec, TypeVar
from weakref import WeakMethod, WeakSet

from cachetools import LRUCache

from llm_common.errors import NoThreadError

P = ParamSpec("P")
T = TypeVar("T")
KeyT = TypeVar("KeyT")

MAX_WORK_THREADS: Final = 8
"""For reads and rankings. More threads would wait for the disk or the GIL."""

MAX_TOOL_THREADS: Final = 32
"""For tools, which wait for networks. A further call waits until a thread is free."""

_MAX_LOOP_CHARS: Final = 65_536
"""Of a text that is read on the event loop, in about a millisecond."""

_MAX_COMPUTING: Final = 2
"""Threads that read results at the same time. Each further one delays an event loop by 5 ms."""

_MAX_TURN_WAIT_S: Final = 5.0
"""So that two hostile results of seconds do not hold up the small ones of others."""

_GRACE_S: Final = 1.0
"""For a cancelled tool to close its files and connections."""

_log = logging.getLogger(__name__)

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


class ForkSafeLock:
    """A lock that is free in a forked child, also if another thread held it at the fork.

    That thread does not exist in the child, where an ordinary lock would never be released.

    Args:
        repair: A method that makes the guarded values sound. A child calls it before it enters its
            first block, if the fork happened within a block and so perhaps within a change.
    """

    def __init__(self, repair: Callable[[], None] | None = None) -> None:
        self._lock = Lock()
        # Weak, since a cycle would keep large caches in memory until a garbage collection.
        self._repair = None if repair is None else WeakMethod(repair)
        self._needs_repair = False
        _FORK_SAFE.add(self)

    def acquire(self, *, timeout_s: float = -1) -> bool:
        """Wait for the lock, and return whether it was acquired. -1 waits without a limit."""
        acquired = self._lock.acquire(timeout=timeout_s)
        if acquired and self._needs_repair:
            self._needs_repair = False
            repair = self._repair() if self._repair is not None else None
            if repair is not None:
                repair()
        return acquired

    def release(self) -> None:
        """Release the lock."""
        # It is free after a fork by the thread that held it, whose block still ends in the child.
        if self._lock.locked():
            self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def renew(self) -> None:
        """Replace the lock by a free one. Only a forked child may call this."""
        self._needs_repair = self._needs_repair or self._lock.locked()
        self._lock = Lock()


_FORK_SAFE: Final[WeakSet[ForkSafeLock]] = WeakSet()


def _renew_locks() -> None:
    for lock in _FORK_SAFE:
        lock.renew()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_renew_locks)


class SharedCache(Generic[KeyT, T]):
    """An LRU cache that threads share. Empty in a child that was forked during a change.

    Args:
        max_size: Maximum number of values, or maximum sum of their sizes.
        size_of: Returns the size of a value. None counts each value as 1.
    """

    def __init__(self, max_size: int, size_of: Callable[[T], int] | None = None) -> None:
        self._max_size = max_size
        self._size_of = size_of
        # Readers need the lock too: `get` of an LRU cache changes the order of its entries.
        self._lock = ForkSafeLock(self._reset)
        self._reset()

    def _reset(self) -> None:
        self._values: LRUCache[KeyT, T] = LRUCache(self._max_size, getsizeof=self._size_of)

    def get(self, key: KeyT) -> T | None:
        """Return the value of a key, or None."""
        with self._lock:
            return self._values.get(key)

    def get_or_make(self, key: KeyT, make: Callable[[], T]) -> T:
        """Return the value of a key, which one thread makes while the others wait."""
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def put(self, key: KeyT, value: T) -> None:
        """Set the value of a key. It must not be larger than the cache."""
        with self._lock:
            self._values[key] = value

    def remove(self, key: KeyT) -> None:
        """Remove the value of a key, if the cache has it."""
        with self._lock:
            self._values.pop(key, None)

    def keys(self) -> list[KeyT]:
        """Return the keys of all values."""
        with self._lock:
            return list(self._values)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()


class computed_once(Generic[T]):  # noqa: N801 - reads as a decorator
    """A `functools.cached_property` without its lock.

    Python 3.11 holds one lock for all objects of a class, so describing one hostile catalogue
    would block every other, and a child forked meanwhile would wait forever. Two threads may
    compute the same value, of which the first is kept.
    """

    def __init__(self, func: Callable[[Any], T]) -> None:
        self.func = func
        self.__doc__ = func.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        # Python looks in the instance before a descriptor without `__set__`, so this runs once.
        value: T = vars(instance).setdefault(self.func.__name__, self.func(instance))
        return value


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


async def in_thread_if_long(
    size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Run some work on a text, on the event loop if that takes about a millisecond.

    A short text would wait for a thread for as long as all threads read long ones.

    Args:
        size: The characters or bytes of the text.
        work: The work.
        *args: Its arguments.
        **kwargs: Its keyword arguments.

    Raises:
        NoThreadError: If no thread can be started. The work does not run.
    """
    if size <= _MAX_LOOP_CHARS:
        return work(*args, **kwargs)
    return await in_thread(work, *args, **kwargs)


@contextmanager
def computing() -> Iterator[None]:
    """Take turns with other threads for work that only computes, such as a preview.

    A thread that wants the interpreter's lock gets it after 5 ms for each thread that computes.
    Sixteen of them delay each step of an event loop by a quarter of a second. The block waits for
    no disk, network or lock, and contains no other such block.
    """
    turns = _TURNS.get()
    has_turn = turns.acquire(timeout=_MAX_TURN_WAIT_S)
    try:
        yield
    finally:
        if has_turn:
            turns.release()


async def in_tool_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a tool, which may never return, in a daemon thread."""
    return await _TOOLS.get().run(work, *args, **kwargs)


async def in_tool_task(work: Awaitable[T]) -> T:
    """Await a tool, which may ignore its cancellation.

    If the caller is cancelled, the tool is cancelled too. A tool that has not ended a second later
    runs on without its caller, and its result is lost.
    """
    task = asyncio.ensure_future(work)
    try:
        # Not the task itself, which the caller could not leave before it ends.
        await asyncio.wait({task})
    finally:
        if not task.done():
            task.cancel()
            _ENDING_TASKS.add(task)
            task.add_done_callback(_forget)
            # A second cancellation of the caller ends this wait.
            await asyncio.wait({task}, timeout=_GRACE_S)
            if not task.done():
                _log.warning("a tool ignores its cancellation, and runs on without its caller")
    return task.result()


# asyncio itself refers to its tasks only weakly.
_ENDING_TASKS: Final[set[asyncio.Future[Any]]] = set()


def _forget(task: asyncio.Future[Any]) -> None:
    _ENDING_TASKS.discard(task)
    if not task.cancelled():
        task.exception()  # else asyncio logs that it was never retrieved


_Job = tuple[Future[Any], Callable[[], Any]]


class OwnThreads:
    """Threads of one owner in one process, which start for its work and end without it.

    Work above the limit waits without a thread, so it delays no other owner.

    Args:
        limit: Maximum number of threads.
        name: Name of the threads after `llm-common-`.
        daemon: Whether the process may end before the work, which may hang.
    """

    def __init__(self, limit: int, name: str, *, daemon: bool) -> None:
        self._limit = limit
        self._name = f"llm-common-{name}"
        self._is_daemon = daemon
        self._lock = Lock()
        self._waiting: deque[_Job] = deque()
        self._running = 0

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run some work in a thread, in a copy of the caller's context, and return its result.

        If the caller is cancelled, waiting work is dropped. Running work continues, and its result
        is lost.

        Raises:
            NoThreadError: If no thread can be started. The work does not run.
        """
        future: Future[T] = Future()
        job = future, partial(copy_context().run, partial(work, *args, **kwargs))
        self._submit(job)
        try:
            return await asyncio.wrap_future(future)
        finally:
            # A cancelled job without a thread is removed. Otherwise it would keep its arguments in
            # memory for as long as others hang.
            if future.cancel():
                with self._lock:
                    if job in self._waiting:
                        self._waiting.remove(job)

    def _submit(self, job: _Job) -> None:
        with self._lock:
            self._waiting.append(job)
            if self._running == self._limit:
                return
            try:
                Thread(target=self._work, name=self._name, daemon=self._is_daemon).start()
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


_TURNS: Final = PerProcess(partial(Semaphore, _MAX_COMPUTING))
_WORK: Final = Threads(MAX_WORK_THREADS, "work")
# Daemons, so that a hung tool cannot keep the process alive.
_TOOLS: Final = PerProcess(partial(OwnThreads, MAX_TOOL_THREADS, "tool", daemon=True))
