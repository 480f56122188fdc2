"""`ToolContextManager`: a session under the names of its specification (S4)."""

from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, overload

from llm_common._threads import in_thread
from llm_common.agents.context_pointers import (
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    format_selected_contexts,
)
from llm_common.agents.session.saved import (
    SavedResults,
    StoredContext,
    copies_of,
    copy_of,
    hash_query,
)
from llm_common.agents.session.session import Session
from llm_common.core.structured import SupportsChat
from llm_common.errors import StoreError
from llm_common.pointers.store import ContextPointerStore
from llm_common.selection.relevance_ranking import OnNoMatch, select_by_keywords

__all__ = ["StoredContext", "ToolContextManager"]

DEFAULT_PERSIST_THRESHOLD: Final = 32_768
"""Bytes up to which a result also stays in memory: most answers of an API, hardly any file."""

_MAX_CHARS: Final = 20_000


class ToolContextManager:
    """Keeps every output of a session in a store, with its pointers in save order.

    The manager starts empty. It lists the outputs that it saved, and `resume` adds those of an
    earlier process. A session with a `session_id` outlives its process: the store records its
    queries, so `resume()` finds all of them in another process, also while both are saving.
    Getters return copies. Calls may be saved concurrently from one event loop. `clear` removes the
    session's files, and so does the end of an `async with` block with `clear_on_exit`.

    Results in memory are returned only while the store has them too. A pointer takes about 5 KB of
    memory until `clear_pointers` or `clear`.

    Args:
        base_dir: Folder of a `FileContextPointerStore`. None takes that store's default.
        pointer_store: A store in place of a folder: files with settings, an object store, or
            memory.
        persist_threshold: Maximum bytes of a stored result that also stays in memory, 8 MB in all
            (LRU). 0 keeps none.
        clear_on_exit: Whether the end of an `async with` block clears the session.
        session_id: The id of a session that other processes share or resume, by the rules of a
            query id. Its runs have their own query ids (`query_id_of`), so equal questions of two
            sessions stay apart. None creates a random id.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
        ConfigError: If the default folder cannot be found, because its variable names an unknown
            home.
        StoreError: If a folder is used on a system that is not POSIX. The text names stores that
            work there.
        TypeError: If `pointer_store` is not a `ContextPointerStore`.
        ValueError: If both a folder and a store are passed.
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
                "base_dir and pointer_store are both set, and only one can keep the results; "
                "pass one of them"
            )
        results = SavedResults(store, session_id, persist_threshold=persist_threshold)
        self._session = Session.over(results)
        self._clear_on_exit = clear_on_exit

    @classmethod
    def over(cls, session: Session) -> Self:
        """Return a manager of a session, which lists what the session saved or resumed."""
        # The constructor's parameters are specified (S4), and they describe a new session.
        manager = cls.__new__(cls)
        manager._session = session  # noqa: SLF001 - one of this class
        manager._clear_on_exit = False  # noqa: SLF001
        return manager

    @property
    def session(self) -> Session:
        """Return the session behind these names.

        Its methods list the resumed outputs, and everything that is stored under the session's id.
        """
        return self._session

    @property
    def pointer_store(self) -> ContextPointerStore:
        """Return the store of the results."""
        return self._session.store

    @property
    def context_dir(self) -> Path:
        """Return the folder of a file store.

        Raises:
            StoreError: If the store is not a `FileContextPointerStore`.
        """
        store = self.pointer_store
        if isinstance(store, FileContextPointerStore):
            return store.base_dir
        raise StoreError(f"{type(store).__name__} has no folder; use a FileContextPointerStore")

    @property
    def session_id(self) -> str:
        """Return the session's id, which is also the query id of results saved without one."""
        return self._session.results.session_id

    @property
    def pointers(self) -> Sequence[ContextPointer]:
        """Return every pointer of the session, in save order. They are shared, so only read them.

        `get_all_pointers` returns copies, which take longer.
        """
        return tuple(self._session.results.pointers.values())

    @property
    def size(self) -> int:
        """Return the number of pointers of this session."""
        return len(self._session.results.pointers)

    hash_query = staticmethod(hash_query)

    def query_id_of(self, query: str) -> str:
        """Return the query id of a question: its `hash_query`, after the id of a named session.

        A query id of the session is returned unchanged.
        """
        return self._session.results.query_id_of(query)

    async def save_context(
        self,
        tool_name: str,
        args: dict[str, Any],
        result: Any,
        task_id: str | int | None = None,
        query_id: str | None = None,
    ) -> ContextPointer:
        """Store a result, and return a copy of its pointer.

        The same call with another result gets a new pointer. The same call with the same result
        keeps its pointer, which becomes the newest. A failed save changes nothing. Cancelling the
        caller does not stop a save that has begun. Clearing waits for it, and removes its files.

        Args:
            tool_name: Name of the tool.
            args: Arguments of the call.
            result: Result of the call. The URLs of a dict under `url`, `source_urls` or `sources`
                become part of the pointer, and so do those of a `ToolResult`.
            task_id: Task of the plan. A number counts as its text.
            query_id: Query of the call. None takes `session_id`.

        Raises:
            StoreError: If nothing was saved. Its subclasses name the reason.
        """
        pointer = await self._session.results.save(
            result, tool=tool_name, args=args, task_id=task_id, query_id=query_id
        )
        return copy_of(pointer)

    def get_all_pointers(self) -> list[ContextPointer]:
        """Return every pointer of the session, in save order."""
        return copies_of(self._session.results.pointers.values())

    def get_pointers_for_query(self, query_id: str) -> list[ContextPointer]:
        """Return the session's pointers of one query, in save order."""
        pointers = self._session.results.pointers.values()
        return copies_of(pointer for pointer in pointers if pointer.query_id == query_id)

    def get_pointers_for_task(self, task_id: str | int) -> list[ContextPointer]:
        """Return the session's pointers of one task, in save order. A number counts as its text."""
        pointers = self._session.results.pointers.values()
        return copies_of(pointer for pointer in pointers if pointer.task_id == str(task_id))

    def list_pointers(self, query_id: str) -> list[ContextPointer]:
        """Return every stored pointer of a query, also from other sessions, oldest first.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        return self._session.results.list_query(query_id)

    async def resume(self, query_id: str | None = None) -> list[ContextPointer]:
        """Add the stored pointers of a query to this session, and return them, oldest first.

        Call it again to get what another process has saved since.

        Args:
            query_id: The query. None takes all queries that any process of this session stored.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        return copies_of(await self._session.results.resume(query_id))

    def load_result(self, *, pointer: ContextPointer | str) -> Any:
        """Return the result of a pointer, from memory or by the store's `load_result`.

        Args:
            pointer: A pointer, or the id or `result_path` of a pointer of this session.

        Raises:
            PointerNotFoundError: If there is no such pointer, or its result is gone.
            StoreError: If the result cannot be read.
            TypeError: If `pointer` is something else.
        """
        return self._session.results.load_result(pointer=pointer)

    async def aload_result(self, *, pointer: ContextPointer | str) -> Any:
        """Return the result of a pointer without blocking the event loop. See `load_result`."""
        return await in_thread(self.load_result, pointer=pointer)

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a pointer of this session with the bytes of its result, for `ReadBackTool`.

        Raises:
            PointerNotFoundError: If the session has no such pointer. `.reason` is `erased` if the
                session has cleared it.
            StoreError: If the result cannot be read.
        """
        return self._session.results.load_payload(pointer_id)

    async def load_contexts(
        self, pointers: Iterable[ContextPointer | str | Path] | ContextPointer | str | Path
    ) -> list[StoredContext]:
        """Return the results of the pointers in order, without missing and damaged ones.

        Args:
            pointers: Pointers, or ids or paths (`result_path`) of this session's pointers, as a
                list or alone. An unknown id or path counts as missing. `resume` adds the pointers
                of an earlier process.

        Raises:
            StoreError: If the store cannot be read at all.
            TypeError: If an entry is something else.
        """
        entries = [pointers] if isinstance(pointers, ContextPointer | str | Path) else pointers
        return await in_thread(self._session.results.load_present, entries)

    def load_relevant_contexts(self, query_id: str, *, max_chars: int = _MAX_CHARS) -> str:
        """Return every stored output of a query as text. Raises as `list_pointers`.

        See `format_selected_contexts`.
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
        """Select the pointers that share words with a query, or let a model select.

        Without a client: see `select_by_keywords`.

        Args:
            query: The question of the next model call.
            pointers: The candidates for a selection by words. None takes all of the session.
            on_no_match: Whether a selection without a match returns "all" candidates or "none".
            query_id: The query whose stored pointers are the model's candidates. None takes
                `session_id`.
            client: Asked once, by `ContextRelevanceSelector`, when the result is awaited.
            model: The model's name. See the selector.
            max_selected: Maximum number of outputs. See the selector.
            max_chars: Maximum characters of the text.

        Returns:
            Pointers. With a client, an awaitable of text for a prompt, which is empty if nothing is
            relevant or the selection failed.

        Raises:
            TypeError: If an argument does not belong to this kind of selection.
        """
        if client is None and (query_id, model, max_selected) != (None, None, None):
            raise TypeError(
                "query_id, model and max_selected are for a selection by a model; pass client= too"
            )
        if client is not None and pointers is not None:
            raise TypeError(
                "a model selects from the outputs of query_id; pass either pointers or client="
            )
        if client is not None:
            selector = ContextRelevanceSelector(client, model, max_selected)
            # The method is not `async`, since without a client it returns a list at once.
            return self._selected_text(query, query_id or self.session_id, selector, max_chars)
        if pointers is None:
            pointers = self.get_all_pointers()
        return select_by_keywords(query, pointers, on_no_match=on_no_match)

    async def _selected_text(
        self, query: str, query_id: str, selector: ContextRelevanceSelector, max_chars: int
    ) -> str:
        candidates = await in_thread(self.list_pointers, query_id)
        chosen = await selector.select(query=query, pointers=candidates)
        return await in_thread(
            lambda: format_selected_contexts(
                pointers=chosen, store=self, max_chars=max_chars, query=query
            )
        )

    def clear_pointers(self) -> None:
        """Remove pointers and cached results from memory. Files can still be cleared."""
        self._session.results.forget()

    async def clear_context_dir(self) -> None:
        """Remove the files that this session saved or resumed, and empty folders. Idempotent.

        The pointers stay, but their results cannot be loaded. Files of other sessions stay. Only
        sessions without a `session_id` can share a file, if the same call returned the same result
        for the same query id.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        await self._session.results.clear_files()

    async def clear(self) -> None:
        """Remove the session's files, then its pointers. Idempotent.

        Raises:
            StoreError: If some files could not be removed. The pointers stay.
        """
        # Files first: if that fails, the pointers still name them.
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
        f"pointer_store must be a ContextPointerStore, got {type(store).__name__}; pass a folder "
        "as base_dir=, or a store from llm_common.agents, such as FileContextPointerStore(folder)"
    )
