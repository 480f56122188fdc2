"""Locks on files that end with their process: flock(2) with a deadline, and turns among the threads of one process."""

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

from llm_common.errors import LockTimeoutError

if sys.platform != "win32":
    import fcntl

__all__ = ["in_turn", "lock_file", "unlock_file"]

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.008


class _Turn:
    """The right of one thread of this process to ask for a lock; the others wait without asking."""

    def __init__(self) -> None:
        self.lock = threading.Lock()


_turns: "WeakValueDictionary[tuple[int, str], _Turn]" = WeakValueDictionary()


@contextmanager
def in_turn(path: str, *, timeout_s: float) -> Iterator[None]:
    """A block that one thread of this process at a time is in.

    It spares them the intervals at which `lock_file` asks, and replaces no lock: a forked child has turns of its own.

    Raises:
        LockTimeoutError: Others were in it all the time.
    """
    turn = _turns.setdefault((os.getpid(), path), _Turn())
    if not turn.lock.acquire(timeout=timeout_s):
        raise _timeout(timeout_s)
    try:
        yield
    finally:
        turn.lock.release()


def lock_file(descriptor: int, *, shared: bool, deadline: float, timeout_s: float) -> None:
    """Locks an open file; `unlock_file` ends it, and so does the end of the process.

    The kernel's own waiting cannot be timed, so this asks again, at random and ever longer intervals up to 8 ms: short
    enough that nobody starves behind busy writers.

    Args:
        descriptor: The file.
        shared: True admits other shared holders.
        deadline: When to give up, by `time.monotonic`.
        timeout_s: How long the caller waits in all, for the error.

    Raises:
        LockTimeoutError: Others held it all the time.
        OSError: The file system has no locks (ENOLCK, EOPNOTSUPP).
    """
    wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    pause = _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, wanted)
        except BlockingIOError as exc:
            if time.monotonic() >= deadline:
                raise _timeout(timeout_s) from exc
        else:
            return
        time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads the waiters, guards nothing
        pause = min(pause * 2, _LONGEST_PAUSE_S)


def unlock_file(descriptor: int) -> None:
    """Ends the lock, also for a child that was forked while it was held and shares the open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _timeout(timeout_s: float) -> LockTimeoutError:
    return LockTimeoutError(
        f"Another writer held this part of the store for {timeout_s:g} s; raise lock_timeout_s, "
        "or end the process that hangs"
    )
