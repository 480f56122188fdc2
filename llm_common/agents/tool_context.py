"""`ToolContextManager`: what one session's tools returned, on disk, with a pointer to each in memory."""

import hashlib
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llm_common.agents.context_pointers import ContextPointer, FileContextPointerStore

__all__ = ["ToolContextManager"]


class ToolContextManager:
    """Every output of a session on disk, and a pointer to each in the order in which they were saved.

    There is one store underneath; the manager only remembers which of its pointers are this session's, so a new
    manager on an old folder starts empty. Getters return copies: nothing a caller does to them reaches the manager.
    Calls may be saved concurrently from one event loop.

    Args:
        base_dir: Folder of the store; None takes the store's own default.
        pointer_store: A ready store instead of a folder.
    """

    def __init__(
        self, base_dir: Path | str | None = None, pointer_store: FileContextPointerStore | None = None
    ) -> None:
        self._store = pointer_store or FileContextPointerStore(base_dir)
        self._session_id = f"session_{secrets.token_hex(8)}"
        self._pointers: dict[tuple[str, str], ContextPointer] = {}

    @property
    def pointer_store(self) -> FileContextPointerStore:
        """The store underneath."""
        return self._store

    @property
    def context_dir(self) -> Path:
        """Folder of the store."""
        return self._store.base_dir

    @property
    def session_id(self) -> str:
        """Query id of the calls that were saved without one; new for every manager."""
        return self._session_id

    @property
    def size(self) -> int:
        """Number of pointers of this session."""
        return len(self._pointers)

    @staticmethod
    def hash_query(query: str) -> str:
        """A query id for a text: `q_` and 16 hex digits of the SHA-256 of the trimmed, lower-cased text."""
        return "q_" + hashlib.sha256(query.strip().lower().encode("utf-8", "surrogatepass")).hexdigest()[:16]

    async def save_context(
        self,
        tool_name: str,
        args: dict[str, Any],
        result: Any,
        task_id: str | int | None = None,
        query_id: str | None = None,
    ) -> ContextPointer:
        """The pointer to a result that is now on disk.

        Every call is kept: the same call with another result gets a pointer of its own; with the same result it keeps
        its one pointer, which becomes the newest. When saving fails there is no pointer and `size` is what it was.

        Args:
            tool_name: Name of the tool that ran.
            args: What it was called with.
            result: What it returned. URLs that a dict names under `url`, `source_urls` or `sources` reach the
                pointer, as those of a `ToolResult` do.
            task_id: Task of the plan; a number counts as its text.
            query_id: Query that the call serves; None files it under `session_id`.

        Returns:
            A copy of the pointer.

        Raises:
            StoreError: Nothing was saved; its subclasses say why.
        """
        pointer = await self._store.save(
            query_id=self._session_id if query_id is None else query_id,
            task_id=None if task_id is None else str(task_id),
            tool_name=tool_name,
            args=args,
            result=result,
            source_urls=_source_urls(result),
            keep_repeats=True,
        )
        key = (pointer.query_id, pointer.pointer_id)
        self._pointers.pop(key, None)
        self._pointers[key] = pointer
        return pointer.model_copy(deep=True)

    def get_all_pointers(self) -> list[ContextPointer]:
        """Every pointer of the session, in save order."""
        return _copies(self._pointers.values())

    def get_pointers_for_query(self, query_id: str) -> list[ContextPointer]:
        """The session's pointers of one query, in save order."""
        return _copies(pointer for pointer in self._pointers.values() if pointer.query_id == query_id)

    def get_pointers_for_task(self, task_id: str | int) -> list[ContextPointer]:
        """The session's pointers of one task, in save order; a number counts as its text."""
        return _copies(pointer for pointer in self._pointers.values() if pointer.task_id == str(task_id))

    def list_pointers(self, query_id: str) -> list[ContextPointer]:
        """Every pointer of a query that the store holds, other sessions' included, oldest first.

        Raises:
            StoreError: The query id is not allowed, or its folder cannot be read.
        """
        return self._store.list(query_id=query_id)

    def get_all_sources(self, query_id: str) -> list[dict[str, str]]:
        """What the session's results of one query came from: each URL once, in save order.

        Returns:
            Dicts with `tool`, `url`, `title` (the tool's name) and `pointer_id`.
        """
        sources: dict[str, dict[str, str]] = {}
        for pointer in self._pointers.values():
            if pointer.query_id == query_id:
                for url in pointer.source_urls:
                    facts = {"tool": pointer.tool_name, "url": url, "title": pointer.tool_name}
                    sources.setdefault(url, facts | {"pointer_id": pointer.pointer_id})
        return list(sources.values())


def _copies(pointers: Iterable[ContextPointer]) -> list[ContextPointer]:
    return [pointer.model_copy(deep=True) for pointer in pointers]


def _source_urls(result: Any) -> list[str]:
    """URLs that a plain dict names under `url` and `sources`; the store itself reads `source_urls`."""
    if not isinstance(result, dict):
        return []
    sources = result.get("sources")
    entries = [result, *(sources if isinstance(sources, list) else [])]
    urls = (entry.get("url") for entry in entries if isinstance(entry, dict))
    return [url for url in urls if isinstance(url, str)]
