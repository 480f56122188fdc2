"""`ToolContextManager`: a session under the names of its specification (S4)."""

import hashlib
import logging
import re
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from llm_common._threads import in_thread
from llm_common.agents.context_pointers import (
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    format_selected_contexts,
)
from llm_common.agents.session import Session
from llm_common.core.structured import SupportsChat
from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    PointerNotFoundError,
    StoreError,
    UnsafePathError,
)
from llm_common.pointers.store import ContextPointerStore
from llm_common.redaction.redactor import Redactor
from llm_common.selection.relevance_ranking import OnNoMatch, select_by_keywords

__all__ = ["StoredContext", "ToolContextManager"]

DEFAULT_PERSIST_THRESHOLD = 32_768
"""Bytes up to which a result also stays in memory: most answers of an API, hardly any file."""

_MAX_CHARS = 20_000
_HASH = re.compile(r"q_[0-9a-f]{16}")  # as `hash_query` makes them

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A pointer with a copy of its result as plain data."""

    pointer: ContextPointer
    result: Any


class ToolContextManager:
    """Every output of a session in a store, and a pointer to each, in save order.

    The manager starts empty: it lists what it saved itself, and `resume` adds what an earlier
    session saved. A session with a `session_id` outlives its process: the store records its
    queries, so that `resume()` brings all of it to another process, also while both are saving.
    Getters return copies. Calls may be saved concurrently from one event loop. `clear`, or the
    end of an `async with` block with `clear_on_exit`, removes this session's files.

    Before a result is taken from memory the store is asked: what it no longer has is not loaded.

    Attributes:
        session: The session behind these names. Its methods list what the manager resumed, and
            everything that is stored under the session's id.

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
        store = _store_in(base_dir) if pointer_store is None else _checked_store(pointer_store)
        if base_dir is not None and pointer_store is not None:
            raise ValueError(
                "base_dir and pointer_store are both given, and one keeps the results; "
                "pass one of them"
            )
        self.session = Session(store, session_id=session_id, persist_threshold=persist_threshold)
        self._results = self.session.results
        self._clear_on_exit = clear_on_exit

    @classmethod
    async def of(cls, session: Session) -> Self:
        """Return a session under these names, with everything that is stored under its id.

        Raises:
            StoreError: If what is stored cannot be listed.
        """
        manager = cls(pointer_store=session.store, session_id=session.session_id)
        manager.session = session
        manager._results = session.results
        await manager.resume()
        return manager

    @property
    def pointer_store(self) -> ContextPointerStore:
        """The store underneath."""
        return self._results.store

    @property
    def redactor(self) -> Redactor:
        """What takes secrets out of what the store is given."""
        return self._results.store.redactor

    @property
    def context_dir(self) -> Path:
        """Folder of the store.

        Raises:
            StoreError: The store is not one of files.
        """
        store = self.pointer_store
        if isinstance(store, FileContextPointerStore):
            return store.base_dir
        raise StoreError(
            f"{type(store).__name__} has no folder; use a FileContextPointerStore for one"
        )

    @property
    def session_id(self) -> str:
        """Query id of the calls that were saved without one.

        New for every manager unless it was given.
        """
        return self._results.session_id

    @property
    def is_named(self) -> bool:
        """Whether the session was given its id, so that other processes can resume it."""
        return self._results.is_named

    @property
    def size(self) -> int:
        """Number of pointers of this session."""
        return len(self._results.pointers)

    @staticmethod
    def hash_query(query: str) -> str:
        """Return a query id: `q_` and 16 hex digits of the trimmed, lower-cased text's SHA-256.

        Raises:
            TypeError: `query` is no text.
        """
        if not isinstance(query, str):
            raise TypeError(
                f"query is of type {type(query).__name__}; pass the user's question as a text"
            )
        trimmed = query.strip().lower().encode("utf-8", "surrogatepass")
        return f"q_{hashlib.sha256(trimmed).hexdigest()[:16]}"

    def query_id_of(self, query: str) -> str:
        """Return the query id of a question: `hash_query`, in a named session below its id.

        The session's own query ids are returned unchanged.
        """
        hashed = self.hash_query(query)
        if not self.is_named:
            return hashed
        own = f"{self.session_id}/"
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
        """Store a result, and return a copy of its pointer.

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
        pointer = await self._results.save(
            result, tool=tool_name, args=args, task_id=task_id, query_id=query_id
        )
        return pointer.model_copy(deep=True)

    async def as_stored(self, result: Any) -> Any:
        """Return the result with the store's redactions; raises as `save_context`."""
        return await self.pointer_store.as_stored(result)

    def get_all_pointers(self) -> list[ContextPointer]:
        """Return every pointer of the session, in save order."""
        return _copies(self._results.pointers.values())

    def get_pointers_for_query(self, query_id: str) -> list[ContextPointer]:
        """Return the session's pointers of one query, in save order."""
        pointers = self._results.pointers.values()
        return _copies(pointer for pointer in pointers if pointer.query_id == query_id)

    def get_pointers_for_task(self, task_id: str | int) -> list[ContextPointer]:
        """Return the session's pointers of one task, in save order; a number counts as its text."""
        pointers = self._results.pointers.values()
        return _copies(pointer for pointer in pointers if pointer.task_id == str(task_id))

    def list_pointers(self, query_id: str) -> list[ContextPointer]:
        """Return every stored pointer of a query, also of other sessions, oldest first.

        Raises:
            StoreError: The query id is not allowed, or its folder cannot be read.
        """
        return self._results.list_query(query_id)

    async def resume(self, query_id: str | None = None) -> list[ContextPointer]:
        """Make the stored pointers of a query this session's too, and return them, oldest first.

        Call it again to see what another process has saved since.

        Args:
            query_id: The query; None takes all that the session with this `session_id` has stored,
                in any process.

        Raises:
            StoreError: The query id is not allowed, or its folder cannot be read.
        """
        return _copies(await self._results.resume(query_id))

    def load_result(self, *, pointer: ContextPointer | str) -> Any:
        """Return the result behind a pointer, from memory or as the store's `load_result`.

        Args:
            pointer: A pointer, or the id or `result_path` of one of this session's.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            StoreError: The result cannot be read.
            TypeError: `pointer` is something else.
        """
        return self._results.load_result(pointer=pointer)

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a pointer of this session with its result as stored bytes, for `ReadBackTool`.

        Raises:
            PointerNotFoundError: The session has no such pointer; `.reason` is `erased` when it has
                cleared it.
            StoreError: The result cannot be read.
        """
        return self._results.load_payload(pointer_id)

    async def load_contexts(
        self, pointers: Iterable[ContextPointer | str | Path] | ContextPointer | str | Path
    ) -> list[StoredContext]:
        """Return the results of the pointers in order, without missing and damaged ones.

        Args:
            pointers: Pointers, or ids or paths (`result_path`) of this session's pointers; also a
                single one. An id or path that the session does not know counts as missing: `resume`
                adds those of an earlier session.

        Raises:
            StoreError: The store cannot be read at all.
            TypeError: An entry is something else.
        """
        entries = [pointers] if isinstance(pointers, ContextPointer | str | Path) else pointers
        wanted = [self._results.find(entry) for entry in entries]
        loaded = await in_thread(self._load_all, wanted)
        if len(loaded) < len(wanted):
            _log.warning(
                "left out %d stored results that are missing or damaged; %d of them are no "
                "pointers of this session, which resume(query_id) may add",
                len(wanted) - len(loaded),
                wanted.count(None),
            )
        return loaded

    def _load_all(self, pointers: Sequence[ContextPointer | None]) -> list[StoredContext]:
        loaded = []
        for pointer in pointers:
            if pointer is None:
                continue
            with suppress(
                PointerNotFoundError, CorruptPointerError, InvalidIdError, UnsafePathError
            ):
                loaded.append(StoredContext(pointer, self._results.load_result(pointer=pointer)))
        return loaded

    def load_relevant_contexts(self, query_id: str, *, max_chars: int = _MAX_CHARS) -> str:
        """Return every stored output of a query as text.

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
        """Return the pointers that share words with the query, or that a model finds relevant.

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
            return self._selected_text(query, query_id or self.session_id, selector, max_chars)
        candidates = self.get_all_pointers() if pointers is None else pointers
        return select_by_keywords(query, candidates, on_no_match=on_no_match)

    async def _selected_text(
        self, query: str, query_id: str, selector: ContextRelevanceSelector, max_chars: int
    ) -> str:
        candidates = await in_thread(self.list_pointers, query_id)
        chosen = await selector.select(query=query, pointers=candidates)
        return await in_thread(
            lambda: format_selected_contexts(pointers=chosen, store=self, max_chars=max_chars)
        )

    def get_all_sources(self, query_id: str) -> list[dict[str, str]]:
        """Return the source URLs of the session's results of one query, each once, in save order.

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
        """Remove pointers and cached results from memory; files can still be cleared."""
        self._results.forget()

    async def clear_context_dir(self) -> None:
        """Remove the files that this session saved or resumed, and empty folders.

        Files of other sessions stay, also in the same folder, but for the same result of the same
        call under the same query id, which they share; a session with a `session_id` has query ids
        of its own. Idempotent. The pointers stay, but cannot be loaded.

        Raises:
            StoreError: Some files could not be removed; call again to retry.
        """
        await self._results.clear_files()

    async def clear(self) -> None:
        """Remove the session's files, then its pointers; idempotent.

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


def _store_in(base_dir: Path | str | None) -> FileContextPointerStore:
    try:
        return FileContextPointerStore(base_dir)
    except StoreError as exc:  # the system is not POSIX
        raise StoreError(
            f"{exc.message}: pass ToolContextManager(pointer_store=...) an "
            "InMemoryContextPointerStore() or an ObjectContextPointerStore, both of "
            "llm_common.agents"
        ) from exc


def _checked_store(store: object) -> ContextPointerStore:
    if isinstance(store, ContextPointerStore):
        return store
    raise TypeError(
        f"pointer_store takes a ContextPointerStore, not a {type(store).__name__}; pass a folder "
        "as base_dir=, or a store from llm_common.agents, such as FileContextPointerStore(folder)"
    )


def _copies(pointers: Iterable[ContextPointer]) -> list[ContextPointer]:
    return [pointer.model_copy(deep=True) for pointer in pointers]
