"""flock(2) on lock files: waiting with a deadline, and no lock that a forked child keeps."""

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

if sys.platform != "win32":
    import fcntl

_FIRST_PAUSE_S: Final = 0.0005
_MAX_PAUSE_S: Final = 0.008


def wait_for_lock(descriptor: int, *, shared: bool, deadline: float) -> bool:
    """Whether an open file is locked; False when others held it until the deadline.

    The kernel's own waiting cannot be timed: this asks again, at random and ever longer intervals up to 8 ms, short
    enough that no waiter starves behind busy writers.

    Args:
        descriptor: Of the lock file.
        shared: True admits other shared holders.
        deadline: When to give up, by `time.monotonic`.

    Raises:
        OSError: The file system has no locks (ENOLCK, EOPNOTSUPP).
    """
    wanted = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, wanted)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        else:
            return True
        time.sleep(pause_s * (0.5 + random.random()))  # noqa: S311 - spreads the waiters, guards nothing
        pause_s = min(pause_s * 2, _MAX_PAUSE_S)


class LockDescriptors:
    """The descriptors of lock files that this process has open.

    flock(2) belongs to the open file, which a forked child shares: a child that outlives its parent would keep the
    parent's locks. A child therefore closes them at once.
    """

    def __init__(self) -> None:
        self._open: set[int] = set()
        self._guard = threading.Lock()  # no fork comes between the opening of a descriptor and its entry here
        if sys.platform != "win32":
            os.register_at_fork(
                before=self._guard.acquire, after_in_parent=self._guard.release, after_in_child=self._close_all
            )

    def open(self, make: Callable[[], int]) -> int:
        """The descriptor that `make` opens, known to this process from then on."""
        with self._guard:
            descriptor = make()
            self._open.add(descriptor)
            return descriptor

    def release(self, descriptor: int) -> None:
        """Ends the lock, also for a child that was forked without Python's knowledge, and closes the descriptor."""
        if descriptor not in self._open:  # this process was forked within the block
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            with self._guard:
                self._open.discard(descriptor)
                os.close(descriptor)

    def _close_all(self) -> None:
        for descriptor in self._open:
            with suppress(OSError):
                os.close(descriptor)
        self._open.clear()
        self._guard.release()


lock_descriptors = LockDescriptors()
"""Of this process."""
