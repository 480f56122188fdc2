"""`NaiveLockingStore`, whose locks survive a fork, which the campaigns must catch."""

import asyncio
import fcntl
import os
import threading
import time
from pathlib import Path
from typing import Any

from llm_common.agents import ContextPointer
from llm_common.errors import LockTimeoutError
from tests.pointers.campaigns.naive_store import NaiveStore

__all__ = ["NaiveLockingStore"]

_SAVE_S = 0.01


class NaiveLockingStore(NaiveStore):
    """A store with one `threading.Lock` per process, and a lock file that a fork keeps open.

    Args:
        base_dir: Directory of the store.
        lock_timeout_s: Seconds that a save waits for the lock file.
        thread_lock: False leaves only the lock file.
    """

    def __init__(
        self, base_dir: Path, *, lock_timeout_s: float = 2.0, thread_lock: bool = True
    ) -> None:
        super().__init__(base_dir)
        self._lock = threading.Lock() if thread_lock else None
        self._lock_timeout_s = lock_timeout_s

    async def save(self, **call: Any) -> ContextPointer:
        return await asyncio.to_thread(self._save, call)

    def _save(self, call: dict[str, Any]) -> ContextPointer:
        if self._lock is None:
            return self._save_locked(call)
        with self._lock:
            return self._save_locked(call)

    def _save_locked(self, call: dict[str, Any]) -> ContextPointer:
        self.base_dir.mkdir(exist_ok=True)
        descriptor = os.open(self.base_dir / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._wait_for(descriptor)
            time.sleep(_SAVE_S)
            return asyncio.run(super().save(**call))
        finally:
            os.close(descriptor)

    def _wait_for(self, descriptor: int) -> None:
        deadline = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                if time.monotonic() > deadline:
                    raise LockTimeoutError("Another process holds the lock") from exc
            time.sleep(0.002)
