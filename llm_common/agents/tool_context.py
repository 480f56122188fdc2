"""`ToolContextManager`: one session's stored tool results, with their pointers."""

import asyncio
import hashlib
import logging
import os
import re
import secrets
import threading
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from cachetools import LRUCache

from llm_common._threads import in_thread
from llm_common.agents.context_pointers import (
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    format_selected_contexts,
)
from llm_common.core.structured import SupportsChat
from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    PointerNotFoundError,
    StoreError,
    UnsafePathError,
)
from llm_common.pointers.save import checked_query_id
from llm_common.pointers.store import ContextPointerStore
from llm_common.redaction.redactor import Redactor
from llm_common.selection.relevance_ranking import OnNoMatch, select_by_keywords
from llm_common.text.canonical import decode_json, encode_json

__all__ = ["StoredContext", "ToolContextManager"]

DEFAULT_PERSIST_THRESHOLD = 32_768
"""Bytes up to which a result also stays in memory: nearly every answer of an API, hardly any file."""

_MAX_CACHED_BYTES = 8_000_000
_MAX_CHARS = 20_000
_ID = re.compile(r"[0-9a-f]{12,16}")
_HASH = re.compile(r"q_[0-9a-f]{16}")  # as `hash_query` makes them
# of the records that name a session's queries; no tool may be called so
_QUERY_OF_SESSION = "(session query)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A pointer with a copy of its result as plain data."""

    pointer: ContextPointer
    result: Any


class ToolContextManager:
    """Every output of a session in a store, and a pointer to each, in save order.

    The manager records which pointers of the store belong to this session: a new manager on an old
    folder starts empty, and `resume` adds what an earlier session saved. A session with a
    `session_id` outlives its process: the store remembers its queries, so that `resume()` brings
    all of it to another process, also while both are saving. Getters return copies. Calls may be
    saved concurrently from one event loop. `clear`, or the end of an `async with` block with
    `clear_on_exit`, removes this session's files.

    Before a result is taken from memory the store is asked: what it no longer has is not loaded.

    Args:
        base_dir: Folder of a `FileContextPointerStore`; None takes that store's own default.
        pointer_store: Any ready store instead: files with settings, an object store, or memory.
        persist_threshold: Bytes up to which a stored result also stays in memory, 8 MB in all
            (LRU); 0 keeps none.
        clear_on_exit: Whether the end of an `async with` block clears.
        session_id: Names a session that other processes share or resume, by the rules of a query
            id. Its runs store under ids of their own (`query_id_of`), so that equal questions of
            two sessions never meet. None makes an id for this manager alone.

    Raises:
        InvalidIdError: `session_id` is not allowed.
        ConfigError: The variable for the default names a home that is not known.
        StoreError: The system is not POSIX, which a folder needs; the text names stores that work
            there.
        TypeError: `pointer_store` is not a `ContextPointerStore`.
        ValueError: Both a folder and a store are given.
    """

    def __init__(
        self,
        base_dir: Path | str | None = None,
        pointer_store: ContextPointerStore | None = None,
        *,
        persist_threshold: int = DEFAULT_PERSIST_THRESHOLD,
        clear_on_exit: bool = False,
        session_id: str | None = None,
    ) -> None:
        self._store = (
            _store_in(base_dir) if pointer_store is None else _checked_store(pointer_store)
        )
        if base_dir is not None and pointer_store is not None:
            raise ValueError(
                "base_dir and pointer_store are both given, and one keeps the results; pass one of them"
            )
        self._named = session_id is not None
        self._session_id = f"session_{secrets.token_hex(8)}" if session_id is None else session_id
        if self._named:
            checked_query_id(self.query_id_of(""), self.redactor)
        # queries that the store knows as this session's
        self._recorded: set[str] = {self._session_id}
        self._clear_on_exit = clear_on_exit
        self._pointers: dict[str, ContextPointer] = {}
        self._stored: dict[str, set[str]] = {}  # ids by query: what clearing removes
        self._erased: set[str] = set()
        self._saving: set[asyncio.Task[ContextPointer]] = set()
        self._cache = ResultCache(max_item_bytes=persist_threshold, max_bytes=_MAX_CACHED_BYTES)

    @property
    def pointer_store(self) -> ContextPointerStore:
        """The store underneath."""
        return self._store

    @property
    def redactor(self) -> Redactor:
        """What takes secrets out of what the store is given."""
        return self._store.redactor

    @property
    def context_dir(self) -> Path:
        """Folder of the store.

        Raises:
            StoreError: The store is not one of files.
        """
        if isinstance(self._store, FileContextPointerStore):
            return self._store.base_dir
        raise StoreError(
            f"{type(self._store).__name__} has no folder; use a FileContextPointerStore for one"
        )

    @property
    def session_id(self) -> str:
        """Query id of the calls that were saved without one.

        New for every manager unless it was given.
        """
        return self._session_id

    @property
    def is_named(self) -> bool:
        """Whether the session was given its id, so that other processes can resume it."""
        return self._named

    @property
    def size(self) -> int:
        """Number of pointers of this session."""
        return len(self._pointers)

    @staticmethod
    def hash_query(query: str) -> str:
        """A query id: `q_` and 16 hex digits of the trimmed, lower-cased text's SHA-256.

        Raises:
            TypeError: `query` is no text.
        """
        if not isinstance(query, str):
            raise TypeError(
                f"query is of type {type(query).__name__}; pass the user's question as a text"
            )
        return (
            "q_"
            + hashlib.sha256(query.strip().lower().encode("utf-8", "surrogatepass")).hexdigest()[
                :16
            ]
        )

    def query_id_of(self, query: str) -> str:
        """Return the query id of a question: `hash_query`, in a named session below its id.

        The session's own query ids are returned unchanged.
        """
        hashed = self.hash_query(query)
        if not self._named:
            return hashed
        own = f"{self._session_id}/"
        if query.startswith(own) and _HASH.fullmatch(query, len(own)):
            return query
        return own + hashed

    async def save_context(
        self,
        tool_name: str,
        args: dict[str, Any],
        result: Any,
        task_id: str | int | None = None,
        query_id: str | None = None,
    ) -> ContextPointer:
        """A copy of the pointer to a result that is now on disk.

        The same call with another result gets a new pointer; with the same result it keeps its
        pointer, which becomes the newest. A failed save changes nothing. If the caller is
        cancelled, a save that has begun goes on: clearing waits for it, and removes what it wrote.

        Args:
            tool_name: Name of the tool that ran.
            args: What it was called with.
            result: What it returned. URLs that a dict names under `url`, `source_urls` or `sources`
                reach the pointer, as those of a `ToolResult` do.
            task_id: Task of the plan; a number counts as its text.
            query_id: Query that the call serves; None files it under `session_id`.

        Raises:
            StoreError: Nothing was saved; its subclasses say why.
        """
        query_id = self._session_id if query_id is None else query_id
        saving = asyncio.create_task(self._save(tool_name, args, result, task_id, query_id))
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        # else nobody would know what a cancelled save has written
        pointer = await asyncio.shield(saving)
        return pointer.model_copy(deep=True)

    async def _save(
        self,
        tool_name: str,
        args: dict[str, Any],
        result: Any,
        task_id: str | int | None,
        query_id: str,
    ) -> ContextPointer:
        # before the result: a kill in between must not lose it
        if self._named and query_id not in self._recorded:
            record = await self._store.save(
                query_id=self._session_id,
                task_id=None,
                tool_name=_QUERY_OF_SESSION,
                # as text it might be taken for a secret
                args={"query_id": list(query_id.encode())},
                result=query_id,
            )
            self._keep_query(record)
        pointer = await self._store.save(
            query_id=query_id,
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
            # else it changed during the save
            if hashlib.sha256(payload).hexdigest() == pointer.result_sha256:
                self._cache.put(_key(pointer), payload)
        return pointer

    async def as_stored(self, result: Any) -> Any:
        """The result with the store's redactions; raises as `save_context`."""
        return await self._store.as_stored(result)

    def get_all_pointers(self) -> list[ContextPointer]:
        """Every pointer of the session, in save order."""
        return _copies(self._pointers.values())

    def get_pointers_for_query(self, query_id: str) -> list[ContextPointer]:
        """The session's pointers of one query, in save order."""
        return _copies(
            pointer for pointer in self._pointers.values() if pointer.query_id == query_id
        )

    def get_pointers_for_task(self, task_id: str | int) -> list[ContextPointer]:
        """The session's pointers of one task, in save order; a number counts as its text."""
        return _copies(
            pointer for pointer in self._pointers.values() if pointer.task_id == str(task_id)
        )

    def list_pointers(self, query_id: str) -> list[ContextPointer]:
        """Every stored pointer of a query, also of other sessions, oldest first.

        Raises:
            StoreError: The query id is not allowed, or its folder cannot be read.
        """
        return [
            each
            for each in self._store.list(query_id=query_id)
            if each.tool_name != _QUERY_OF_SESSION
        ]

    async def resume(self, query_id: str | None = None) -> list[ContextPointer]:
        """The stored pointers of a query, now this session's too; oldest first.

        Call it again to see what another process has saved since.

        Args:
            query_id: The query; None takes all that the session with this `session_id` has stored,
                in any process.

        Raises:
            StoreError: The query id is not allowed, or its folder cannot be read.
        """
        pointers = await in_thread(
            lambda: self._session_pointers() if query_id is None else self.list_pointers(query_id)
        )
        for pointer in pointers:
            self._keep(pointer)
        self._pointers = dict(sorted(self._pointers.items(), key=lambda item: item[1].created_at))
        return _copies(pointers)

    def load_result(self, *, pointer: ContextPointer | str) -> Any:
        """The result behind a pointer, from memory or as the store's `load_result`.

        Args:
            pointer: A pointer, or the id or `result_path` of one of this session's.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            StoreError: The result cannot be read.
            TypeError: `pointer` is something else.
        """
        found = self._find(pointer)
        if found is None:
            raise self._missing(pointer)
        cached = self._cached(found)
        return self._store.load_result(pointer=found) if cached is None else decode_json(cached)

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """A pointer of this session with its result as stored bytes, for `ReadBackTool`.

        Raises:
            PointerNotFoundError: The session has no such pointer; `.reason` is `erased` when it has
                cleared it.
            StoreError: The result cannot be read.
        """
        pointer = self._pointers.get(pointer_id)
        if pointer is None:
            raise self._missing(pointer_id)
        cached = self._cached(pointer)
        if cached is None:
            return self._store.load_payload(pointer_id, query_id=pointer.query_id)
        return pointer, cached

    async def load_contexts(
        self, pointers: Iterable[ContextPointer | str | Path] | ContextPointer | str | Path
    ) -> list[StoredContext]:
        """The results of the pointers in order, without missing and damaged ones.

        Args:
            pointers: Pointers, or ids or paths (`result_path`) of this session's pointers; also a
                single one. An id or path that the session does not know counts as missing: `resume`
                adds those of an earlier session.

        Raises:
            StoreError: The store cannot be read at all.
            TypeError: An entry is something else.
        """
        entries = [pointers] if isinstance(pointers, ContextPointer | str | Path) else pointers
        wanted = [self._find(entry) for entry in entries]
        found = await in_thread(lambda: [self._load(pointer) for pointer in wanted])
        loaded = [context for context in found if context is not None]
        if len(loaded) < len(wanted):
            _log.warning(
                "left out %d stored results that are missing or damaged; %d of them are no pointers of this session, "
                "which resume(query_id) may add",
                len(wanted) - len(loaded),
                wanted.count(None),
            )
        return loaded

    def load_relevant_contexts(self, query_id: str, *, max_chars: int = _MAX_CHARS) -> str:
        """Every stored output of a query as text.

        See `format_selected_contexts`. Raises as `list_pointers`.
        """
        return format_selected_contexts(
            pointers=self.list_pointers(query_id), store=self, max_chars=max_chars
        )

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
            Pointers; with a client, an awaitable of text for a prompt, empty when nothing is
            relevant or the choice failed.

        Raises:
            TypeError: An argument is given that only the other way of choosing takes.
        """
        if client is None and (query_id, model, max_selected) != (None, None, None):
            raise TypeError(
                "query_id, model and max_selected are for a choice by a model; pass client= as well"
            )
        if client is not None and pointers is not None:
            raise TypeError(
                "a model chooses among the outputs of query_id; pass either pointers or client="
            )
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

        Files of other sessions stay, also in the same folder, but for the same result of the same
        call under the same query id, which they share; a session with a `session_id` has query ids
        of its own. Idempotent. The pointers stay, but cannot be loaded.

        Raises:
            StoreError: Some files could not be removed; call again to retry.
        """
        if self._saving:
            await asyncio.wait(self._saving)
        self._cache.clear()
        # also if the rest fails: a later save names its query again
        self._recorded = {self._session_id}
        for query_id in list(self._stored):
            removed = frozenset(self._stored[query_id])
            # No tombstones: the session itself records what it erased.
            await in_thread(
                self._store.delete, query_id=query_id, pointer_ids=removed, remember=False
            )
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._clear_on_exit:
            await self.clear()

    def _session_pointers(self) -> list[ContextPointer]:
        found = self.list_pointers(self._session_id)
        for record in self._store.list(query_id=self._session_id):
            if record.tool_name == _QUERY_OF_SESSION:
                found += self.list_pointers(self._keep_query(record))
        return sorted(found, key=attrgetter("created_at"))

    def _keep_query(self, record: ContextPointer) -> str:
        """The query that a record names; clearing the session removes the record too."""
        query_id = bytes(record.args["query_id"]).decode()
        self._recorded.add(query_id)
        self._stored.setdefault(self._session_id, set()).add(record.pointer_id)
        return query_id

    def _keep(self, pointer: ContextPointer) -> None:
        """Makes a pointer the session's newest."""
        self._pointers.pop(pointer.pointer_id, None)
        self._pointers[pointer.pointer_id] = pointer
        self._stored.setdefault(pointer.query_id, set()).add(pointer.pointer_id)
        self._erased.discard(pointer.pointer_id)

    def _find(self, entry: object) -> ContextPointer | None:
        """The pointer itself, or the session's one with this id or path.

        None for one that the session lacks.
        """
        if isinstance(entry, ContextPointer):
            return entry
        if not isinstance(entry, str | Path):
            kind = type(entry).__name__
            raise TypeError(
                f"pass a ContextPointer, as save_context returns it, its id or its result_path, not a {kind}"
            )
        path = os.fspath(entry)
        by_path = (pointer for pointer in self._pointers.values() if pointer.result_path == path)
        return self._pointers.get(path) or next(by_path, None)

    def _missing(self, entry: object) -> PointerNotFoundError:
        named = (
            f"pointer {entry}"
            if isinstance(entry, str) and _ID.fullmatch(entry)
            else "such pointer"
        )
        return PointerNotFoundError(
            f"This session has no {named}; use an id that it gave",
            reason="erased" if entry in self._erased else "unknown",
        )

    def _cached(self, pointer: ContextPointer) -> bytes | None:
        """The result in memory while the store has it too: others may have erased, evicted or expired it."""
        cached = self._cache.get(_key(pointer))
        if cached is None or self._store.is_stored(
            query_id=pointer.query_id, pointer_id=pointer.pointer_id
        ):
            return cached
        self._cache.remove(_key(pointer))
        return None

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
        return await in_thread(
            lambda: format_selected_contexts(pointers=chosen, store=self, max_chars=max_chars)
        )


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

    def remove(self, key: tuple[str, str]) -> None:
        """Removes the result of that key, if there is one."""
        with self._lock:
            self._results.pop(key, None)

    def clear(self) -> None:
        """Removes every result."""
        with self._lock:
            self._results.clear()

    def __len__(self) -> int:
        return len(self._results)


def _store_in(base_dir: Path | str | None) -> FileContextPointerStore:
    try:
        return FileContextPointerStore(base_dir)
    except StoreError as exc:  # the system is not POSIX
        raise StoreError(
            f"{exc.message}: pass ToolContextManager(pointer_store=...) an InMemoryContextPointerStore() or an "
            "ObjectContextPointerStore, both of llm_common.agents"
        ) from exc


def _checked_store(store: object) -> ContextPointerStore:
    if isinstance(store, ContextPointerStore):
        return store
    raise TypeError(
        f"pointer_store takes a ContextPointerStore, not a {type(store).__name__}; pass a folder as base_dir=, or a "
        "store from llm_common.agents, such as FileContextPointerStore(folder)"
    )


def _urls_named_by(result: Any) -> list[str]:
    """URLs that a plain dict names under `url` and `sources`.

    The store itself reads `source_urls`.
    """
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
