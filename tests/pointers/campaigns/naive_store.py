"""`NaiveStore`: how such a store is often written, and what every campaign here must catch."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from llm_common.agents import ContextPointer, compute_pointer_id

__all__ = ["NaiveStore", "PointerStore"]


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
        folder = self.base_dir / query_id
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
        path = self.base_dir / pointer.query_id / f"{pointer.pointer_id}.result.json"
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
