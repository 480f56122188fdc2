"""Locks on files that end with their process: flock(2) with a deadline."""

import os
import random
import sys
import time
from collections.abc import Callable

from llm_common.errors import LockTimeoutError

if sys.platform != "win32":
    import fcntl

__all__ = ["lock_file", "unlock_file"]

_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.008


def lock_file(
    open_file: Callable[[], int], is_current: Callable[[int], bool], *, shared: bool, timeout_s: float
) -> int:
    """The descriptor of a file that is now locked; `unlock_file` ends it, and so does the end of the process.

    The kernel's own waiting cannot be timed, so this asks again, at random and ever longer intervals up to 8 ms: short
    enough that nobody starves behind busy writers.

    Args:
        open_file: Opens the file; called again when the one that was locked has been removed meanwhile.
        is_current: Whether a descriptor is still the file of that name.
        shared: True admits other shared holders.
        timeout_s: Seconds to wait.

    Raises:
        LockTimeoutError: Others held it all the time.
        OSError: The file system has no locks (ENOLCK, EOPNOTSUPP), or the file cannot be opened.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        descriptor = open_file()
        try:
            _wait(descriptor, shared=shared, deadline=deadline, timeout_s=timeout_s)
            if is_current(descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def unlock_file(descriptor: int) -> None:
    """Ends the lock, also for a child that was forked while it was held and shares the open file."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _wait(descriptor: int, *, shared: bool, deadline: float, timeout_s: float) -> None:
    wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    pause = _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, wanted)
        except BlockingIOError as exc:
            if time.monotonic() >= deadline:
                raise LockTimeoutError(
                    f"Another writer held this part of the store for {timeout_s:g} s; raise lock_timeout_s, "
                    "or end the process that hangs"
                ) from exc
        else:
            return
        time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads the waiters, guards nothing
        pause = min(pause * 2, _LONGEST_PAUSE_S)
