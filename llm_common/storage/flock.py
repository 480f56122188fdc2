"""Locks on files that end with their process: flock(2) with a deadline, and turns among the threads of one process."""

import os
import random
import sys
import threading
import time
from functools import lru_cache

from llm_common.errors import LockTimeoutError

if sys.platform != "win32":
    import fcntl

__all__ = ["lock_file", "take_turn", "unlock_file"]

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.008


@lru_cache(maxsize=256)
def _turn(path: str, process: int) -> threading.Lock:  # noqa: ARG001 - a forked child has turns of its own
    return threading.Lock()


def take_turn(path: str, *, timeout_s: float) -> threading.Lock:
    """The right of one thread of this process to lock that path, taken and to be released; the others wait for it.

    It spares them the intervals at which `lock_file` asks, and replaces no lock: two threads may have it at once when
    very many paths are locked at the same time.

    Raises:
        LockTimeoutError: Others had it all the time.
    """
    turn = _turn(path, os.getpid())
    if not turn.acquire(timeout=timeout_s):
        raise _timeout(timeout_s)
    return turn


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
