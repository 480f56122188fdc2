"""`NaiveStore`: how such a store is often written, and what every campaign here must catch."""

import asyncio
import fcntl
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from llm_common.agents import ContextPointer, compute_pointer_id
from llm_common.errors import LockTimeoutError


class PointerStore(Protocol):
    """The methods of a store that the campaigns use."""

    async def save(
        self,
        *,
        query_id: str,
        task_id: str | None,
        tool_name: str,
        args: Mapping[str, Any],
        result: Any,
    ) -> ContextPointer: ...

    def list(self, *, query_id: str) -> list[ContextPointer]: ...

    def load_result(self, *, pointer: ContextPointer) -> Any: ...


class NaiveStore:
    """A store that writes in place, pointer first, without lock, flush or digest.

    It blocks the event loop, uses ids as paths, and caches its lists forever.
    """

    def __init__(self, base_dir: Path) -> None:
        self.base_dir = base_dir
        self._listed: dict[str, list[ContextPointer]] = {}

    def folder(self, query_id: str) -> Path:
        return self.base_dir / query_id

    async def save(
        self,
        *,
        query_id: str,
        task_id: str | None,
        tool_name: str,
        args: Mapping[str, Any],
        result: Any,
    ) -> ContextPointer:
        pointer_id = compute_pointer_id(
            tool_name=tool_name, args=args, query_id=query_id, task_id=task_id
        )
        folder = self.folder(query_id)
        folder.mkdir(parents=True, exist_ok=True)
        pointer = ContextPointer(
            pointer_id=pointer_id,
            query_id=query_id,
            task_id=task_id,
            tool_name=tool_name,
            args=dict(args),
            created_at="now",
            summary="",
            result_path="",
        )
        _write(folder / f"{pointer_id}.meta.json", pointer.model_dump_json())
        _write(folder / f"{pointer_id}.result.json", json.dumps(result))
        return pointer

    def list(self, *, query_id: str) -> list[ContextPointer]:
        if query_id not in self._listed:
            self._listed[query_id] = [
                ContextPointer.model_validate_json(path.read_bytes())
                for path in self.base_dir.rglob("*.meta.json")
                if path.parent.name == query_id
            ]
        return self._listed[query_id]

    def load_result(self, *, pointer: ContextPointer) -> Any:
        path = self.folder(pointer.query_id) / f"{pointer.pointer_id}.result.json"
        return json.loads(path.read_text(encoding="utf-8", errors="replace"))

    def delete(self, *, query_id: str) -> None:
        for path in sorted((self.base_dir / query_id).iterdir(), reverse=True):
            path.unlink()


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        rest = text.encode()
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


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
