"""`SessionResults`: the results that one session stored, and a pointer to each."""

import asyncio
import hashlib
import os
import re
import secrets
import threading
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from cachetools import LRUCache

from llm_common._threads import in_thread
from llm_common.errors import PointerNotFoundError
from llm_common.pointers.pointer import ContextPointer, checked_query_id
from llm_common.pointers.store import ContextPointerStore
from llm_common.redaction.redactor import Redactor
from llm_common.text.canonical import decode_json, encode_json

_MAX_CACHED_BYTES: Final = 8_000_000
_ID: Final = re.compile(r"[0-9a-f]{12,16}")
# The tool name of the records that list a session's queries. No tool may have it.
_QUERY_OF_SESSION: Final = "(session query)"


class SessionResults:
    """The pointers of one session over a store, in save order.

    A session with a given id outlives its process. The store records which queries belong to
    it, so that `resume` finds all of them in another process. Before a result is taken from
    memory the store is asked, so that nothing erased or expired is shown.

    Args:
        store: Keeps the results.
        session_id: Query id of what is saved without one. None makes a new id, which no other
            process knows.
        persist_threshold: Bytes up to which a stored result also stays in memory, 8 MB in all
            (LRU). 0 keeps none.

    Attributes:
        is_named: Whether the id was given, so that other processes can resume the session.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
    """

    def __init__(
        self,
        store: ContextPointerStore,
        session_id: str | None = None,
        *,
        persist_threshold: int = 0,
    ) -> None:
        self.store: Final = store
        self.is_named: Final = session_id is not None
        if session_id is None:
            session_id = f"session_{secrets.token_hex(16)}"
        self.session_id: Final = checked_session_id(session_id, store.redactor)
        self.pointers: Final[dict[str, ContextPointer]] = {}
        """What the session saved or resumed, by id, in save order."""
        self._recorded = {self.session_id}
        self._stored: dict[str, set[str]] = {}  # ids by query: what clearing removes
        self._erased: set[str] = set()
        self._saving: set[asyncio.Task[ContextPointer]] = set()
        self._cache = ResultCache(max_item_bytes=persist_threshold, max_bytes=_MAX_CACHED_BYTES)

    async def save(
        self,
        result: Any,
        *,
        tool: str,
        args: dict[str, Any],
        task_id: str | int | None = None,
        query_id: str | None = None,
    ) -> ContextPointer:
        """Store a result and return its pointer.

        If the caller is cancelled, a save that has begun goes on. Clearing waits for it, and
        removes what it wrote.

        Raises:
            StoreError: If nothing was saved. Its subclasses say why.
        """
        query_id = self.session_id if query_id is None else query_id
        saving = asyncio.create_task(self._save(result, tool, args, task_id, query_id))
        # A cancelled caller forgets its save: without this set nobody would know what it wrote.
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        return await asyncio.shield(saving)

    async def _save(
        self,
        result: Any,
        tool: str,
        args: dict[str, Any],
        task_id: str | int | None,
        query_id: str,
    ) -> ContextPointer:
        if self.is_named and query_id not in self._recorded:
            # Before the result: a kill in between must not lose it.
            await self._record_query(query_id)
        pointer = await self.store.save(
            query_id=query_id,
            task_id=None if task_id is None else str(task_id),
            tool_name=tool,
            args=args,
            result=result,
            source_urls=_urls_named_by(result),
            keep_repeats=True,
        )
        self._keep(pointer)
        if pointer.expires_at is None and self._cache.takes(pointer.result_bytes):
            payload = encode_json(result).data
            # The result may have changed during the save.
            if hashlib.sha256(payload).hexdigest() == pointer.result_sha256:
                self._cache.put(_key(pointer), payload)
        return pointer

    async def _record_query(self, query_id: str) -> None:
        record = await self.store.save(
            query_id=self.session_id,
            task_id=None,
            tool_name=_QUERY_OF_SESSION,
            args={"query_id": list(query_id.encode())},  # as text it might be taken for a secret
            result=query_id,
        )
        self._keep_record(record)

    def _keep_record(self, record: ContextPointer) -> str:
        """Remember the query that a record names, and the record itself for clearing."""
        query_id = bytes(record.args["query_id"]).decode()
        self._recorded.add(query_id)
        self._stored.setdefault(self.session_id, set()).add(record.pointer_id)
        return query_id

    def _keep(self, pointer: ContextPointer) -> None:
        """Make a pointer the session's newest."""
        self.pointers.pop(pointer.pointer_id, None)
        self.pointers[pointer.pointer_id] = pointer
        self._stored.setdefault(pointer.query_id, set()).add(pointer.pointer_id)
        self._erased.discard(pointer.pointer_id)

    def list_query(self, query_id: str) -> list[ContextPointer]:
        """Return every stored pointer of a query, also of other sessions, oldest first.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        pointers = self.store.list(query_id=query_id)
        return [pointer for pointer in pointers if pointer.tool_name != _QUERY_OF_SESSION]

    def list_stored(self) -> list[ContextPointer]:
        """Return everything that is stored under the session's id, in any process, oldest first.

        Raises:
            StoreError: If a folder cannot be read.
        """
        stored = self.list_query(self.session_id)
        for record in self.store.list(query_id=self.session_id):
            if record.tool_name == _QUERY_OF_SESSION:
                stored += self.list_query(self._keep_record(record))
        return sorted(stored, key=attrgetter("created_at"))

    def list_all(self) -> list[ContextPointer]:
        """Return what is stored under the session's id or was saved elsewhere, oldest first."""
        stored = self.list_stored()
        elsewhere = [
            pointer for pointer in self.pointers.values() if pointer.query_id not in self._recorded
        ]
        return sorted([*stored, *elsewhere], key=attrgetter("created_at"))

    async def resume(self, query_id: str | None = None) -> list[ContextPointer]:
        """Take in the stored pointers of a query, or all of the session's, and return them.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        if query_id is None:
            pointers = await in_thread(self.list_stored)
        else:
            pointers = await in_thread(self.list_query, query_id)
        for pointer in pointers:
            self._keep(pointer)
        in_order = sorted(self.pointers.values(), key=attrgetter("created_at"))
        self.pointers.clear()
        self.pointers.update({pointer.pointer_id: pointer for pointer in in_order})
        return pointers

    def find(self, entry: object) -> ContextPointer | None:
        """Return the pointer itself, or the session's one with this id or path.

        Raises:
            TypeError: If `entry` is none of these.
        """
        if isinstance(entry, ContextPointer):
            return entry
        if not isinstance(entry, str | Path):
            kind = type(entry).__name__
            raise TypeError(
                "pass a ContextPointer, as save_context returns it, its id or its result_path, "
                f"not a {kind}"
            )
        path = os.fspath(entry)
        if path in self.pointers:
            return self.pointers[path]
        for pointer in self.pointers.values():
            if pointer.result_path == path:
                return pointer
        return None

    def load_result(self, *, pointer: ContextPointer | str) -> Any:
        """Return the result behind a pointer, or behind the id or path of one of this session's.

        Raises:
            PointerNotFoundError: If there is no such pointer, or its result is gone.
            StoreError: If the result cannot be read.
            TypeError: If `pointer` is something else.
        """
        known = self.find(pointer)
        if known is None:
            raise self._missing(pointer)
        cached = self._cached(known)
        return self.store.load_result(pointer=known) if cached is None else decode_json(cached)

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a pointer of this session with its result as stored bytes.

        Raises:
            PointerNotFoundError: If the session has no such pointer, or its result is gone.
            StoreError: If the result cannot be read.
        """
        pointer = self.pointers.get(pointer_id)
        if pointer is None:
            return self._load_unlisted(pointer_id)
        cached = self._cached(pointer)
        if cached is None:
            return self.store.load_payload(pointer_id, query_id=pointer.query_id)
        return pointer, cached

    def _load_unlisted(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Load what was folded, or what the session stored in another process or before."""
        if pointer_id in self._erased or not _ID.fullmatch(pointer_id):
            raise self._missing(pointer_id)
        try:
            return self.store.load_payload(pointer_id, query_id=self.session_id)
        except PointerNotFoundError as exc:
            for pointer in self.list_stored():
                if pointer.pointer_id == pointer_id:
                    return self.store.load_payload(pointer_id, query_id=pointer.query_id)
            if exc.reason == "unknown":
                raise self._missing(pointer_id) from exc
            raise

    def _cached(self, pointer: ContextPointer) -> bytes | None:
        """Return the result in memory while the store has it too."""
        cached = self._cache.get(_key(pointer))
        # Another process may have erased, evicted or expired it.
        if cached is None or self.store.is_stored(
            query_id=pointer.query_id, pointer_id=pointer.pointer_id
        ):
            return cached
        self._cache.remove(_key(pointer))
        return None

    def _missing(self, entry: object) -> PointerNotFoundError:
        is_id = isinstance(entry, str) and _ID.fullmatch(entry)
        named = f"pointer {entry}" if is_id else "such pointer"
        return PointerNotFoundError(
            f"This session has no {named}; use an id that it gave",
            reason="erased" if entry in self._erased else "unknown",
        )

    def forget(self) -> None:
        """Remove pointers and results from memory. Files can still be cleared."""
        self.pointers.clear()
        self._cache.clear()

    async def clear_files(self) -> None:
        """Remove what this session saved or resumed from the store; idempotent.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        if self._saving:
            await asyncio.wait(self._saving)
        self._cache.clear()
        # Also if the rest fails: a later save records its query again.
        self._recorded = {self.session_id}
        for query_id in list(self._stored):
            removed = frozenset(self._stored[query_id])
            # No tombstones: the session itself records what it erased.
            await in_thread(
                self.store.delete, query_id=query_id, pointer_ids=removed, remember=False
            )
            self._erased |= removed
            self._stored[query_id] -= removed


def checked_session_id(session_id: str, redactor: Redactor) -> str:
    """Return a session's id if the store takes it.

    Raises:
        InvalidIdError: If it does not.
    """
    # The ids of the session's queries are longer than its own, and must be allowed too.
    checked_query_id(f"{session_id}/q_{'0' * 16}", redactor)
    return session_id


class ResultCache:
    """Results as bytes by query and pointer id. LRU, safe among threads.

    Args:
        max_item_bytes: Longer results are not kept.
        max_bytes: Limit of all together.
    """

    def __init__(self, *, max_item_bytes: int, max_bytes: int) -> None:
        self._max_item_bytes = min(max_item_bytes, max_bytes)
        self._results: LRUCache[tuple[str, str], bytes] = LRUCache(max_bytes, getsizeof=len)
        self._lock = threading.Lock()

    def takes(self, size: int | None) -> bool:
        """Return whether a result of that many bytes would be kept."""
        return size is not None and size <= self._max_item_bytes

    def put(self, key: tuple[str, str], payload: bytes) -> None:
        """Replace the result of a key. One that is too long is only removed."""
        with self._lock:
            self._results.pop(key, None)
            if self.takes(len(payload)):
                self._results[key] = payload

    def get(self, key: tuple[str, str]) -> bytes | None:
        """Return the result of a key, or None."""
        with self._lock:
            return self._results.get(key)

    def remove(self, key: tuple[str, str]) -> None:
        """Remove the result of a key, if there is one."""
        with self._lock:
            self._results.pop(key, None)

    def clear(self) -> None:
        """Remove every result."""
        with self._lock:
            self._results.clear()

    def __len__(self) -> int:
        return len(self._results)


def _key(pointer: ContextPointer) -> tuple[str, str]:
    return pointer.query_id, pointer.pointer_id


def _urls_named_by(result: Any) -> Sequence[str]:
    """Return the URLs that a dict lists under `url` and `sources`.

    The store itself reads `source_urls`.
    """
    if not isinstance(result, dict):
        return []
    entries: list[Any] = [result]
    if isinstance(result.get("sources"), list):
        entries += result["sources"]
    urls = [entry.get("url") for entry in entries if isinstance(entry, dict)]
    return [url for url in urls if isinstance(url, str)]
