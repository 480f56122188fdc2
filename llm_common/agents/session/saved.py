"""`SavedResults`: the pointers of one session, in its process and in its store.

It checks the ids of sessions, and makes the query ids of their runs. No id is both: the run of a
question has the query id `q_` and 16 digits of a hash, after the id of a named session and a slash.
So a session of such an id would be the run of another session.
"""

import asyncio
import hashlib
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from llm_common._threads import SharedCache, in_thread
from llm_common.errors import (
    CorruptPointerError,
    InvalidIdError,
    MissReason,
    PointerNotFoundError,
    StoreError,
    UnsafePathError,
)
from llm_common.pointers.pointer import MIN_ID_CHARS, ContextPointer, checked_query_id
from llm_common.pointers.store import ContextPointerStore, FileContextPointerStore
from llm_common.pointers.tombstones import not_found
from llm_common.redaction.redactor import Redactor
from llm_common.text.canonical import decode_json, encode_json

_HASH: Final = r"q_[0-9a-f]{16}"
# In any case, because a file system may ignore it.
_RUN_ID: Final = re.compile(rf"(?:.*/)?{_HASH}", re.IGNORECASE)


def hash_query(query: str) -> str:
    """Return the query id of a question, from the SHA-256 of its trimmed, lower-cased text.

    Raises:
        TypeError: If `query` is not a str.
    """
    if not isinstance(query, str):
        raise TypeError(f"query must be a str, got {type(query).__name__}")
    # A lone surrogate, as of a broken emoji, cannot be encoded otherwise.
    trimmed = query.strip().lower().encode("utf-8", "surrogatepass")
    return f"q_{hashlib.sha256(trimmed).hexdigest()[:16]}"


def run_id_of(query: str, *, session_id: str) -> str:
    """Return the query id of a question in a named session. One of its query ids stays as it is."""
    prefix = f"{session_id}/"
    if query.startswith(prefix) and re.fullmatch(_HASH, query.removeprefix(prefix)):
        return query
    return prefix + hash_query(query)


def is_run_id(query_id: str) -> bool:
    """Return whether a query id has the form of a run's, with or without a session."""
    return _RUN_ID.fullmatch(query_id) is not None


def checked_session_id(session_id: str, redactor: Redactor) -> str:
    """Return a session's id if the store accepts it, and no run can have it.

    Raises:
        InvalidIdError: If it is not allowed.
    """
    # Offloaded results have it as their query id.
    checked_id = checked_query_id(session_id, redactor, "session_id")
    if is_run_id(checked_id):
        name = redactor.beginning(checked_id, max_chars=80)
        raise InvalidIdError(
            f"The session_id {name!r} is not allowed, because it is the query id of a run. Use an "
            "id that does not end in q_ and 16 hex digits"
        )
    # The query ids of its runs must be allowed too.
    checked_query_id(f"{checked_id}/q_{'0' * 16}", redactor)
    return checked_id


_MAX_CACHED_BYTES: Final = 8_000_000
# Checked before the store is asked, so that a model's invention never becomes a path.
_ID: Final = re.compile(r"[0-9a-f]{12,16}")
# The tool name of the records that list a session's queries. No tool may have it.
_QUERY_OF_SESSION: Final = "(session query)"


# Expired results are never shown, so they only take space until then.
_COLLECTION_PAUSE_S: Final = 3_600.0
_next_collection_s: WeakKeyDictionary[ContextPointerStore, float] = WeakKeyDictionary()
_collections: set[asyncio.Task[None]] = set()

View: TypeAlias = Callable[[Sequence[ContextPointer]], Mapping[str, bool]]
"""Returns which of some results are in view, and whether the user wrote anything after them."""

_log = logging.getLogger(__name__)


def output_label(pointer: ContextPointer) -> str:
    """Return the line about a pointer that a list shows: its call, or the query that it records."""
    if pointer.tool_name == _QUERY_OF_SESSION:
        with suppress(KeyError, TypeError, ValueError):  # changed by somebody else
            return f"a query of this session: {_recorded_query(pointer)}"
    return pointer.summary or pointer.tool_name


def _recorded_query(record: ContextPointer) -> str:
    return bytes(record.args["query_id"]).decode()


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A pointer with its result as plain data."""

    pointer: ContextPointer
    result: Any


class SavedResults:
    """The pointers of one session over a store, in save order.

    A session with a `session_id` outlives its process. The store records its queries, so that
    `resume` finds all of them in another process. Results in memory are returned only while the
    store has them too, so nothing erased or expired is returned.

    Args:
        store: Keeps the results.
        session_id: The query id of results that are saved without one. None creates a random id.
        persist_threshold: Maximum bytes of a stored result that also stays in memory, 8 MB in all
            (LRU). 0 keeps none.
        ttl_s: Seconds from the last save or read of a result to its expiry. Expired results of the
            store are then removed once an hour. None leaves both to the store's owner.
        lists_own: Whether the id is shared by conversations that must not find each other's
            results. Every result under the id can be read. Lists and searches hold only what this
            object saved or read.
        siblings: The beginning of the ids of the same user's other sessions. A pointer that one of
            them has is missed as `elsewhere`. An empty one looks nowhere.

    Attributes:
        is_named: Whether the caller chose the id, so that other processes can resume the session.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
    """

    def __init__(
        self,
        store: ContextPointerStore,
        session_id: str | None = None,
        *,
        persist_threshold: int = 0,
        ttl_s: float | None = None,
        lists_own: bool = False,
        siblings: str = "",
    ) -> None:
        self.store: Final = store
        self.lists_own: Final = lists_own
        # The other conversations save and clear under the same id.
        self._saver = secrets.token_hex(4) if lists_own else None
        self._ttl_s = ttl_s
        self._siblings = siblings
        self.is_named: Final = session_id is not None
        if session_id is None:
            session_id = f"session_{secrets.token_hex(16)}"
        self.session_id: Final = checked_session_id(session_id, store.redactor)
        self.pointers: Final[dict[str, ContextPointer]] = {}
        """The saved and resumed pointers by id, in save order."""
        self._recorded = {self.session_id}
        self._stored: dict[str, set[str]] = {}  # the ids that `clear_files` removes, by query
        self._erased: set[str] = set()
        self._saving: set[asyncio.Task[ContextPointer]] = set()
        self._cache: SharedCache[tuple[str, str], bytes] = SharedCache(_MAX_CACHED_BYTES, len)
        self._max_cached_bytes = min(persist_threshold, _MAX_CACHED_BYTES)

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

        Cancelling the caller does not stop a save that has begun. `clear_files` waits for the save,
        and removes its files.

        Raises:
            StoreError: If nothing was saved. Its subclasses name the reason.
        """
        if query_id is None:
            query_id = self.session_id
        # Before the record of the session's queries, which would name it.
        self.check_query(query_id)
        if task_id is not None:
            task_id = str(task_id)
        saving = asyncio.create_task(self._save(result, tool, args, task_id, query_id))
        # The event loop has only weak references to tasks, and `clear_files` has to wait for them.
        self._saving.add(saving)
        saving.add_done_callback(self._saving.discard)
        # A thread cannot be cancelled, and `_keep` has to list the files that it still writes.
        return await asyncio.shield(saving)

    def query_id_of(self, query: str) -> str:
        """Return the query id of a question: its `hash_query`, after the id of a named session.

        A query id of the session is returned unchanged.
        """
        return run_id_of(query, session_id=self.session_id) if self.is_named else hash_query(query)

    def check_query(self, query_id: str) -> None:
        """Raise InvalidIdError if the session cannot save under a query id.

        The store has to allow it, and it must not be the run of another named session.
        """
        checked_query_id(query_id, self.store.redactor)
        owner, _, run = query_id.rpartition("/")
        if owner and is_run_id(run) and owner != self.session_id:
            raise InvalidIdError(
                "The query_id is not allowed, because it is the run of another session. Use the "
                "query_id_of of this one"
            )

    async def _save(
        self,
        result: Any,
        tool: str,
        args: dict[str, Any],
        task_id: str | None,
        query_id: str,
    ) -> ContextPointer:
        if self.is_named and query_id not in self._recorded:
            # Before the result, which a kill in between would leave without a record.
            record = await self.store.save(
                query_id=self.session_id,
                task_id=None,
                tool_name=_QUERY_OF_SESSION,
                args={"query_id": list(query_id.encode())},  # a text might be taken for a secret
                result=query_id,
            )
            self._keep_record(record)
        pointer = await self.store.save(
            query_id=query_id,
            task_id=task_id,
            tool_name=tool,
            args=args,
            result=result,
            source_urls=_urls_named_by(result),
            keep_repeats=True,
            ttl_s=self._ttl_s,
            renew_on_read=self._ttl_s is not None,
            saver=self._saver,
        )
        self._keep(pointer)
        if self._ttl_s is not None:
            _collect_hourly(self.store)
        is_small = (pointer.result_bytes or math.inf) <= self._max_cached_bytes
        if pointer.expires_at is None and is_small:
            # As bytes, since the caller may change the result later.
            payload = encode_json(result).data
            # The result may have changed during the save, or the store has redacted it.
            if hashlib.sha256(payload).hexdigest() == pointer.result_sha256:
                self._cache.put(_key(pointer), payload)
        return pointer

    def _keep_record(self, record: ContextPointer) -> str:
        """Add the query of a record to the session's queries, and return its id."""
        query_id = _recorded_query(record)
        self._recorded.add(query_id)
        self._stored.setdefault(self.session_id, set()).add(record.pointer_id)
        return query_id

    def _keep(self, pointer: ContextPointer) -> None:
        """Make a pointer the session's newest."""
        # A dict leaves an existing key in its old place.
        self.pointers.pop(pointer.pointer_id, None)
        self.pointers[pointer.pointer_id] = pointer
        self._stored.setdefault(pointer.query_id, set()).add(pointer.pointer_id)
        # A repeated call has the id of its erased result again.
        self._erased.discard(pointer.pointer_id)

    def adopt(self, pointer: ContextPointer) -> None:
        """Let this session read a result of another one. `clear_files` leaves its file."""
        self.pointers.setdefault(pointer.pointer_id, pointer)

    def list_query(self, query_id: str) -> list[ContextPointer]:
        """Return every stored pointer of a query, also from other sessions, oldest first.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        pointers = self.store.list(query_id=query_id)
        return [pointer for pointer in pointers if pointer.tool_name != _QUERY_OF_SESSION]

    def list_stored(self) -> list[ContextPointer]:
        """Return every pointer that any process stored under the session's id, oldest first.

        Raises:
            StoreError: If a folder cannot be read.
        """
        stored: list[ContextPointer] = []
        for pointer in self.store.list(query_id=self.session_id):
            if pointer.tool_name == _QUERY_OF_SESSION:
                stored += self.list_query(self._keep_record(pointer))
            else:
                stored.append(pointer)
        return sorted(stored, key=attrgetter("created_at"))

    def list_all(self) -> list[ContextPointer]:
        """Return the pointers under the session's id and those of its other queries, oldest first.

        With `lists_own`, only those that this object saved or read.

        Raises:
            StoreError: If a folder cannot be read.
        """
        return [pointer for pointer in self.list_readable() if self.lists(pointer)]

    def lists(self, pointer: ContextPointer) -> bool:
        """Return whether lists and searches hold a result that can be read."""
        return not self.lists_own or pointer.pointer_id in self.pointers

    def list_readable(self) -> list[ContextPointer]:
        """Return the pointers of `list_all`, and with `lists_own` those of others under the id.

        Raises:
            StoreError: If a folder cannot be read.
        """
        if self.lists_own:
            return self.list_query(self.session_id)
        pointers = self.list_stored()
        for pointer in self.pointers.values():
            # An unnamed session records no queries, so memory alone knows these pointers.
            if pointer.query_id not in self._recorded:
                pointers.append(pointer)
        return sorted(pointers, key=attrgetter("created_at"))

    def results_of_call(self, pointer: ContextPointer) -> list[ContextPointer]:
        """Return the pointers of all stored results of a pointer's call, oldest first.

        With `lists_own`, only those that this object saved or read.

        Raises:
            StoreError: If the folder cannot be read.
        """
        pointers: list[ContextPointer] = []
        for stored in self.store.list(query_id=pointer.query_id):
            if stored.pointer_id[:MIN_ID_CHARS] != pointer.pointer_id[:MIN_ID_CHARS]:
                continue
            # Another call may have the same first digits.
            if stored.args_sha256 == pointer.args_sha256 and self.lists(stored):
                pointers.append(stored)
        return pointers

    async def resume(self, query_id: str | None = None) -> list[ContextPointer]:
        """Add the stored pointers of a query, or all of the session's, and return them.

        An unnamed session has none without a query id, since only its own process stores under
        its random id.

        Raises:
            StoreError: If the query id is not allowed, or its folder cannot be read.
        """
        if query_id is None and not self.is_named:
            return []
        if query_id is None:
            pointers = await in_thread(self.list_stored)
        else:
            pointers = await in_thread(self.list_query, query_id)
        for pointer in pointers:
            self._keep(pointer)
        # Another process may have saved between two saves of this one.
        in_order = sorted(self.pointers.values(), key=attrgetter("created_at"))
        self.pointers.clear()
        self.pointers.update({pointer.pointer_id: pointer for pointer in in_order})
        return pointers

    def find(self, entry: object) -> ContextPointer | None:
        """Return the pointer itself, or the session's pointer with this id or path, or None.

        Raises:
            TypeError: If `entry` is neither a pointer nor a text or path.
        """
        if isinstance(entry, ContextPointer):
            return entry
        if not isinstance(entry, str | Path):
            raise TypeError(
                "pass a ContextPointer, as save_context returns it, its id or its result_path, "
                f"not a {type(entry).__name__}"
            )
        path = os.fspath(entry)
        if path in self.pointers:
            return self.pointers[path]
        for pointer in self.pointers.values():
            if pointer.result_path == path:
                return pointer
        return None

    def load_result(self, *, pointer: ContextPointer | str) -> Any:
        """Return the result of a pointer, or of the session's pointer with this id or path.

        Raises:
            PointerNotFoundError: If there is no such pointer, or its result is gone.
            StoreError: If the result cannot be read.
            TypeError: If `pointer` is something else.
        """
        match = self.find(pointer)
        if match is None:
            raise self._missing(pointer)
        cached = self._cached(match)
        return self.store.load_result(pointer=match) if cached is None else decode_json(cached)

    def load_present(self, entries: Iterable[ContextPointer | str | Path]) -> list[StoredContext]:
        """Return the results of pointers, ids or paths in order, without missing and damaged ones.

        Raises:
            StoreError: If the store cannot be read at all.
            TypeError: If an entry is something else.
        """
        pointers = [self.find(entry) for entry in entries]
        loaded = []
        for pointer in pointers:
            if pointer is None:
                continue
            with suppress(
                PointerNotFoundError, CorruptPointerError, InvalidIdError, UnsafePathError
            ):
                loaded.append(StoredContext(pointer, self.load_result(pointer=pointer)))
        if len(loaded) < len(pointers):
            _log.warning(
                "left out %d stored results that are missing or damaged; %d of them are not "
                "pointers of this session, which resume(query_id) may add",
                len(pointers) - len(loaded),
                pointers.count(None),
            )
        return loaded

    def sources(self, query_id: str) -> list[dict[str, str]]:
        """Return the source URLs of the results of a query, in save order, once each."""
        sources: dict[str, dict[str, str]] = {}
        for pointer in self.pointers.values():
            if pointer.query_id != query_id:
                continue
            for url in pointer.source_urls:
                source = {
                    "tool": pointer.tool_name,
                    "url": url,
                    "title": pointer.tool_name,
                    "pointer_id": pointer.pointer_id,
                }
                sources.setdefault(url, source)
        return list(sources.values())

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a pointer of this session with the bytes of its result.

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
        """Load a folded part, or a result that another process of the session stored."""
        if pointer_id in self._erased or not _ID.fullmatch(pointer_id):
            raise self._missing(pointer_id)
        try:
            pointer, payload = self.store.load_payload(pointer_id, query_id=self.session_id)
        except PointerNotFoundError as exc:
            if self.lists_own:  # saves no other queries
                raise self._missing(pointer_id, exc.reason) from exc
            # Not under the session's id itself, but maybe under one of its queries.
            for pointer in self.list_stored():
                if pointer.pointer_id == pointer_id:
                    return self.store.load_payload(pointer_id, query_id=pointer.query_id)
            raise self._missing(pointer_id, exc.reason) from exc
        if self.lists_own:
            # Not in `_stored`, so `clear_files` leaves what another conversation saved.
            self.pointers[pointer_id] = pointer
        return pointer, payload

    def _cached(self, pointer: ContextPointer) -> bytes | None:
        """Return the result from memory, if the store has it too."""
        cached = self._cache.get(_key(pointer))
        # Another process may have erased or evicted it, and it may have expired.
        if cached is None or self.store.is_stored(
            query_id=pointer.query_id, pointer_id=pointer.pointer_id
        ):
            return cached
        self._cache.remove(_key(pointer))
        return None

    def _missing(self, entry: object, reason: MissReason = "unknown") -> PointerNotFoundError:
        if entry in self._erased:
            reason = "erased"
        # Only an id is repeated: any other text may be a secret, or an attack on a log.
        if not isinstance(entry, str) or not _ID.fullmatch(entry):
            text = "The id of a pointer has 12 to 16 lower-case hex digits; use one from a preview"
            return PointerNotFoundError(text, reason=reason)
        if reason != "unknown":
            return not_found(reason, self.session_id, entry)
        if self._siblings and self.store.query_with(entry, prefix=self._siblings):
            return not_found("elsewhere", self.session_id, entry)
        return PointerNotFoundError(f"This session has no pointer {entry}; use an id that it gave")

    def forget(self) -> None:
        """Remove pointers and results from memory. Files can still be cleared."""
        self.pointers.clear()
        self._cache.clear()

    async def clear_files(self) -> None:
        """Remove the session's saved and resumed results from the store. Idempotent.

        With `lists_own`, what another object saved too stays.

        Raises:
            StoreError: If some files could not be removed. Call again to retry.
        """
        # A save that ends after the deletion would leave its files behind.
        # `wait` does not raise the error of a save, which its own caller gets.
        if self._saving:
            await asyncio.wait(self._saving)
        self._cache.clear()
        # First, in case a deletion fails: a later save then records its query again.
        self._recorded = {self.session_id}
        # A save during an await may add a query, and a dict must not grow in a loop.
        for query_id in list(self._stored):
            # A copy, since a save during the deletion adds an id that stays.
            removed = frozenset(self._stored[query_id])
            # Of a session without a name, no other process can ask, and `_erased` has the ids.
            await in_thread(
                self.store.delete,
                query_id=query_id,
                pointer_ids=removed,
                remember=self.is_named,
                saver=self._saver,
            )
            self._erased |= removed
            self._stored[query_id] -= removed


def _collect_hourly(store: ContextPointerStore) -> None:
    """Remove a store's expired results in the background, if the last time is an hour ago."""
    now_s = time.monotonic()
    if now_s < _next_collection_s.get(store, now_s):
        return
    # Set before the collection begins, so that a concurrent save does not start another one.
    _next_collection_s[store] = now_s + _COLLECTION_PAUSE_S
    collecting = asyncio.create_task(_collect(store))
    # The event loop has only weak references to tasks.
    _collections.add(collecting)
    collecting.add_done_callback(_collections.discard)


async def _collect(store: ContextPointerStore) -> None:
    try:
        await store.gc()
    except StoreError as exc:
        # No save depends on it, and expired results are never shown.
        _log.warning("could not remove expired results: %s", type(exc).__name__)


def store_of(store: object) -> ContextPointerStore:
    """Return the store, or a file store over a folder.

    Raises:
        TypeError: If `store` is something else, or an address.
        StoreError: If a folder is given on a system that is not POSIX.
    """
    if isinstance(store, ContextPointerStore):
        return store
    if isinstance(store, str) and "://" in store:
        raise TypeError(
            "store is an address, and a str is the path of a folder; pass "
            "ObjectContextPointerStore.from_url(address)"
        )
    if store is None or isinstance(store, str | Path):
        return FileContextPointerStore(store)
    raise TypeError(
        f"store is a {type(store).__name__}; pass a ContextPointerStore or the path of a folder"
    )


def _key(pointer: ContextPointer) -> tuple[str, str]:
    return pointer.query_id, pointer.pointer_id


def copies_of(pointers: Iterable[ContextPointer]) -> list[ContextPointer]:
    """Return copies of pointers, which a caller may change."""
    return [copy_of(pointer) for pointer in pointers]


def copy_of(pointer: ContextPointer) -> ContextPointer:
    """Return a copy of a pointer, which a caller may change."""
    # A pointer is frozen, so only its containers could change. A deep copy takes twice as long.
    containers = {"args": deepcopy(pointer.args), "source_urls": [*pointer.source_urls]}
    return pointer.model_copy(update=containers)


def _urls_named_by(result: Any) -> Sequence[str]:
    """Return the URLs of a dict under `url` and `sources`. The store itself reads `source_urls`."""
    urls: list[str] = []
    if isinstance(result, dict):
        entries: list[Any] = [result]
        if isinstance(result.get("sources"), list):
            entries += result["sources"]
        for entry in entries:
            if isinstance(entry, dict) and isinstance(entry.get("url"), str):
                urls.append(entry["url"])
    return urls
