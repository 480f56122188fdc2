"""`ToolContextManager`: one session's tool results on disk, with their pointers."""

import hashlib
import logging
import secrets
import threading
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, overload

from cachetools import LRUCache

from llm_common._threads import in_thread
from llm_common.agents.context_pointers import (
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    format_selected_contexts,
)
from llm_common.core.structured import SupportsChat
from llm_common.errors import CorruptPointerError, InvalidIdError, PointerNotFoundError, UnsafePathError
from llm_common.selection.relevance_ranking import OnNoMatch, select_by_keywords
from llm_common.text.canonical import decode_json, encode_json

DEFAULT_PERSIST_THRESHOLD = 32_768
"""Bytes up to which a result also stays in memory: nearly every answer of an API, hardly any file."""

_MAX_CACHED_BYTES = 8_000_000
_MAX_CHARS = 20_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A pointer with a copy of its result as plain data."""

    pointer: ContextPointer
    result: Any


class ToolContextManager:
    """Every output of a session on disk, and a pointer to each, in save order.

    The manager records which pointers of the store belong to this session: a new manager on an old folder starts
    empty, and `resume` adds what an earlier session saved. Getters return copies. Calls may be saved concurrently from
    one event loop. `clear`, or the end of an `async with` block with `clear_on_exit`, removes this session's files.

    Args:
        base_dir: Folder of the store; None takes the store's own default.
        pointer_store: A ready store instead of a folder.
        persist_threshold: Bytes up to which a stored result also stays in memory, 8 MB in all (LRU); 0 keeps none.
        clear_on_exit: Whether the end of an `async with` block clears.
    """

    def __init__(
        self,
        base_dir: Path | str | None = None,
        pointer_store: FileContextPointerStore | None = None,
        *,
        persist_threshold: int = DEFAULT_PERSIST_THRESHOLD,
        clear_on_exit: bool = False,
    ) -> None:
        self._store = pointer_store or FileContextPointerStore(base_dir)
        self._session_id = f"session_{secrets.token_hex(8)}"
        self._clear_on_exit = clear_on_exit
        self._pointers: dict[str, ContextPointer] = {}
        self._stored: dict[str, set[str]] = {}  # ids by query: what clearing removes
        self._erased: set[str] = set()
        self._cache = ResultCache(max_item_bytes=persist_threshold, max_bytes=_MAX_CACHED_BYTES)

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
        """A query id: `q_` and 16 hex digits of the trimmed, lower-cased text's SHA-256."""
        return "q_" + hashlib.sha256(query.strip().lower().encode("utf-8", "surrogatepass")).hexdigest()[:16]

    async def save_context(
        self,
        tool_name: str,
        args: dict[str, Any],
        result: Any,
        task_id: str | int | None = None,
        query_id: str | None = None,
    ) -> ContextPointer:
        """A copy of the pointer to a result that is now on disk.

        The same call with another result gets a new pointer; with the same result it keeps its pointer, which becomes
        the newest. A failed save changes nothing.

        Args:
            tool_name: Name of the tool that ran.
            args: What it was called with.
            result: What it returned. URLs that a dict names under `url`, `source_urls` or `sources` reach the
                pointer, as those of a `ToolResult` do.
            task_id: Task of the plan; a number counts as its text.
            query_id: Query that the call serves; None files it under `session_id`.

        Raises:
            StoreError: Nothing was saved; its subclasses say why.
        """
        pointer = await self._store.save(
            query_id=self._session_id if query_id is None else query_id,
            task_id=None if task_id is None else str(task_id),
            tool_name=tool_name,
            args=args,
            result=result,
            source_urls=_urls_named_by(result),
            keep_repeats=True,
        )
        self._keep(pointer)
        if pointer.expires_at is None and self._cache.takes(pointer.result_bytes):
            payload = encode_json(result).data
            if hashlib.sha256(payload).hexdigest() == pointer.result_sha256:  # else it changed during the save
                self._cache.put(_key(pointer), payload)
        return pointer.model_copy(deep=True)

    async def as_stored(self, result: Any) -> Any:
        """The result with the store's redactions; raises as `save_context`."""
        return await self._store.as_stored(result)

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
        """Every stored pointer of a query, also of other sessions, oldest first.

        Raises:
            StoreError: The query id is not allowed, or its folder cannot be read.
        """
        return self._store.list(query_id=query_id)

    async def resume(self, query_id: str) -> list[ContextPointer]:
        """The stored pointers of a query, now this session's too; oldest first.

        Raises:
            StoreError: The query id is not allowed, or its folder cannot be read.
        """
        pointers = await in_thread(self.list_pointers, query_id)
        for pointer in pointers:
            self._keep(pointer)
        return _copies(pointers)

    def load_result(self, *, pointer: ContextPointer) -> Any:
        """The result behind a pointer, from memory or as the store's `load_result`."""
        cached = self._cache.get(_key(pointer))
        return self._store.load_result(pointer=pointer) if cached is None else decode_json(cached)

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """A pointer of this session with its result as stored bytes, for `ReadBackTool`.

        Raises:
            PointerNotFoundError: The session has no such pointer; `.reason` is `erased` when it has cleared it.
            StoreError: The result cannot be read.
        """
        pointer = self._pointers.get(pointer_id)
        if pointer is None:
            reason: Literal["erased", "unknown"] = "erased" if pointer_id in self._erased else "unknown"
            raise PointerNotFoundError("This session has no such pointer; use an id that it gave", reason=reason)
        cached = self._cache.get(_key(pointer))
        if cached is None:
            return self._store.load_payload(pointer_id, query_id=pointer.query_id)
        return pointer, cached

    async def load_contexts(self, pointers: Iterable[ContextPointer | str]) -> list[StoredContext]:
        """The results of the pointers in order, without missing and damaged ones.

        Args:
            pointers: Pointers, or ids of this session's pointers; an unknown id counts as missing.

        Raises:
            StoreError: The store cannot be read at all.
        """
        wanted = [self._pointers.get(entry) if isinstance(entry, str) else entry for entry in pointers]
        found = await in_thread(lambda: [self._load(pointer) for pointer in wanted])
        loaded = [context for context in found if context is not None]
        if len(loaded) < len(wanted):
            _log.warning("left out %d stored results that are missing or damaged", len(wanted) - len(loaded))
        return loaded

    def load_relevant_contexts(self, query_id: str, *, max_chars: int = _MAX_CHARS) -> str:
        """Every stored output of a query as text; see `format_selected_contexts`."""
        return format_selected_contexts(pointers=self.list_pointers(query_id), store=self, max_chars=max_chars)

    @overload
    def select_relevant_contexts(
        self,
        query: str,
        pointers: Sequence[ContextPointer] | None = None,
        *,
        on_no_match: OnNoMatch = "all",
    ) -> list[ContextPointer]: ...
    @overload
    def select_relevant_contexts(
        self,
        query: str,
        *,
        query_id: str,
        client: SupportsChat,
        model: str | None = None,
        max_selected: int | None = None,
        max_chars: int = _MAX_CHARS,
    ) -> Awaitable[str]: ...
    def select_relevant_contexts(
        self,
        query: str,
        pointers: Sequence[ContextPointer] | None = None,
        *,
        on_no_match: OnNoMatch = "all",
        query_id: str | None = None,
        client: SupportsChat | None = None,
        model: str | None = None,
        max_selected: int | None = None,
        max_chars: int = _MAX_CHARS,
    ) -> list[ContextPointer] | Awaitable[str]:
        """The pointers that share words with the query, or that a model finds relevant.

        Without a client: see `select_by_keywords`.

        Args:
            query: What the next model call is to answer.
            pointers: The candidates; None takes all of the session.
            on_no_match: What no match gives: all candidates in their order, or none.
            query_id: With a client: the candidates are what the store holds of this query.
            client: Asked once, by `ContextRelevanceSelector`, when the result is awaited.
            model: Its name; see the selector.
            max_selected: Most outputs; see the selector.
            max_chars: Most characters of the text.

        Returns:
            Pointers; with a client, an awaitable of text for a prompt, empty when nothing is relevant or the choice
            failed.
        """
        if client is not None:
            selector = ContextRelevanceSelector(client, model, max_selected)
            return self._selected_text(query, query_id or self._session_id, selector, max_chars)
        candidates = self.get_all_pointers() if pointers is None else pointers
        return select_by_keywords(query, candidates, on_no_match=on_no_match)

    def get_all_sources(self, query_id: str) -> list[dict[str, str]]:
        """The source URLs of the session's results of one query: each once, in save order.

        Returns:
            Dicts with `tool`, `url`, `title` (the tool's name) and `pointer_id`.
        """
        sources: dict[str, dict[str, str]] = {}
        for pointer in self.get_pointers_for_query(query_id):
            for url in pointer.source_urls:
                facts = {"tool": pointer.tool_name, "url": url, "title": pointer.tool_name}
                sources.setdefault(url, facts | {"pointer_id": pointer.pointer_id})
        return list(sources.values())

    def clear_pointers(self) -> None:
        """Removes pointers and cached results from memory; files can still be cleared."""
        self._pointers.clear()
        self._cache.clear()

    async def clear_context_dir(self) -> None:
        """Removes the files that this session saved or resumed, and empty folders.

        Files of other sessions stay, also in the same folder. Idempotent. The pointers stay, but cannot be loaded.

        Raises:
            StoreError: Some files could not be removed; call again to retry.
        """
        self._cache.clear()
        for query_id in list(self._stored):
            removed = frozenset(self._stored[query_id])
            # No tombstones: the session itself records what it erased.
            await in_thread(self._store.delete, query_id=query_id, pointer_ids=removed, remember=False)
            self._erased |= removed
            self._stored[query_id] -= removed

    async def clear(self) -> None:
        """Removes the session's files, then its pointers; idempotent.

        Raises:
            StoreError: Some files could not be removed; the pointers stay.
        """
        await self.clear_context_dir()
        self.clear_pointers()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._clear_on_exit:
            await self.clear()

    def _keep(self, pointer: ContextPointer) -> None:
        """Makes a pointer the session's newest."""
        self._pointers.pop(pointer.pointer_id, None)
        self._pointers[pointer.pointer_id] = pointer
        self._stored.setdefault(pointer.query_id, set()).add(pointer.pointer_id)
        self._erased.discard(pointer.pointer_id)

    def _load(self, pointer: ContextPointer | None) -> StoredContext | None:
        with suppress(PointerNotFoundError, CorruptPointerError, InvalidIdError, UnsafePathError):
            if pointer is not None:
                return StoredContext(pointer, self.load_result(pointer=pointer))
        return None

    async def _selected_text(
        self, query: str, query_id: str, selector: ContextRelevanceSelector, max_chars: int
    ) -> str:
        candidates = await in_thread(self.list_pointers, query_id)
        chosen = await selector.select(query=query, pointers=candidates)
        return await in_thread(lambda: format_selected_contexts(pointers=chosen, store=self, max_chars=max_chars))


class ResultCache:
    """Results as bytes by query and pointer id; LRU, safe among threads.

    Args:
        max_item_bytes: Longer results are not kept.
        max_bytes: Limit of all together.
    """

    def __init__(self, *, max_item_bytes: int, max_bytes: int) -> None:
        self._max_item_bytes = min(max_item_bytes, max_bytes)
        self._results: LRUCache[tuple[str, str], bytes] = LRUCache(max_bytes, getsizeof=len)
        self._lock = threading.Lock()

    def takes(self, size: int | None) -> bool:
        """Whether a result of that many bytes would be kept."""
        return size is not None and size <= self._max_item_bytes

    def put(self, key: tuple[str, str], payload: bytes) -> None:
        """Replaces the result of that key; one that is too long is only removed."""
        with self._lock:
            self._results.pop(key, None)
            if self.takes(len(payload)):
                self._results[key] = payload

    def get(self, key: tuple[str, str]) -> bytes | None:
        """The result; None if it is not cached."""
        with self._lock:
            return self._results.get(key)

    def clear(self) -> None:
        """Removes every result."""
        with self._lock:
            self._results.clear()

    def __len__(self) -> int:
        return len(self._results)


def _urls_named_by(result: Any) -> list[str]:
    """URLs that a plain dict names under `url` and `sources`; the store itself reads `source_urls`."""
    if not isinstance(result, dict):
        return []
    sources = result.get("sources")
    entries = [result, *(sources if isinstance(sources, list) else [])]
    urls = (entry.get("url") for entry in entries if isinstance(entry, dict))
    return [url for url in urls if isinstance(url, str)]


def _key(pointer: ContextPointer) -> tuple[str, str]:
    return pointer.query_id, pointer.pointer_id


def _copies(pointers: Iterable[ContextPointer]) -> list[ContextPointer]:
    return [pointer.model_copy(deep=True) for pointer in pointers]
