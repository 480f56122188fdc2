"""`FileContextPointerStore`: results on disk, each behind a small pointer.

`ContextPointerStore`: the same anywhere.
"""

import asyncio
import builtins
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, Unpack

from llm_common._env import POINTER_STORE_DIR, read_path
from llm_common._telemetry import span
from llm_common._threads import Threads
from llm_common.errors import (
    NoThreadError,
    PointerNotFoundError,
    StoreError,
    UnserialisableError,
)
from llm_common.pointers.listing import (
    PointerIndex,
    PointerListing,
    PointerPage,
    QuerySummary,
    newest_pointers,
    query_summaries,
)
from llm_common.pointers.maintenance import GcReport, Maintenance, StoreReport
from llm_common.pointers.pointer import (
    ContextPointer,
    SteadyClock,
    check_pointer_id,
    checked_query_id,
    has_expired,
)
from llm_common.pointers.records import (
    LockedRecords,
    PointerRecords,
    Transaction,
    read_records,
)
from llm_common.pointers.save import Call, Retention, Saver, describe, redacted_result
from llm_common.pointers.search import (
    PointerSearch,
    SplitResult,
    search_pointers,
    whole_result,
)
from llm_common.pointers.tombstones import Tombstones, not_found
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.storage import Durability, FileBlobStore, MemoryBlobStore
from llm_common.storage.blob import folder_of, query_id_of
from llm_common.text.canonical import decode_json, encode_json

DEFAULT_MAX_RESULT_BYTES = 100_000_000
"""Far over any output that a model could use, and small enough to hash and load without a pause."""

_THREADS: Final = 4  # keep a disk busy; each more would hold one more encoded result in memory

T = TypeVar("T")

_log = logging.getLogger(__name__)


class StoreOptions(TypedDict, total=False):
    """What every `ContextPointerStore` takes beside the place of its bytes; see there."""

    max_result_bytes: int
    redactor: Redactor
    redact_results: bool
    ttl_s: float | None
    max_bytes_per_query: int | None
    clock: Callable[[], datetime] | None


class ContextPointerStore:
    """Keeps results as pairs of blobs: a result, and the pointer that commits it.

    Every pointer that `list` returns can be loaded while others save, save again or are killed, in
    this process or another. Nothing that is stored is ever revived into an object.

    Attributes:
        records: As given.

    Args:
        records: The pairs: where the bytes are, and what keeps writers apart.
        max_result_bytes: A larger result is refused.
        redactor: Takes secrets out of arguments, summary, digest, addresses and a failed tool's
            error before anything is written; made of further patterns and names, it knows yours
            too.
        redact_results: True takes them out of results as well, for good: what loads then is the
            redacted result.
        ttl_s: Seconds after its last save at which a result is gone; None keeps it until it is
            deleted.
        max_bytes_per_query: Most bytes of a query's results together: for a save beyond it the
            query's oldest go, expired ones first. Read anew at each save, since other processes
            save too. None sets no limit.
        clock: Tells the time; None takes the system's. Should it go back by up to 5 seconds, what
            has expired stays expired.

    Raises:
        ValueError: `ttl_s` or `max_bytes_per_query` is not above zero.
    """

    def __init__(
        self,
        records: PointerRecords,
        *,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        redactor: Redactor = DEFAULT_REDACTOR,
        redact_results: bool = False,
        ttl_s: float | None = None,
        max_bytes_per_query: int | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.records: Final = records
        self._retention = Retention(ttl_s, max_bytes_per_query)
        self._clock = SteadyClock(clock)
        self._tombstones = Tombstones(records.blobs)
        self._saver = Saver(records, self._tombstones)
        self._maintenance = Maintenance(records, self._tombstones)
        self._index = PointerIndex(records)
        self._max_result_bytes = max_result_bytes
        self._redactor = redactor
        self._redact_results = redact_results
        self._threads = Threads(_THREADS, "store")

    @property
    def redactor(self) -> Redactor:
        """What takes the secrets out."""
        return self._redactor

    async def save(
        self,
        *,
        query_id: str,
        task_id: str | int | None = None,
        tool_name: str,
        args: Mapping[str, Any],
        result: Any,
        source_urls: Iterable[str] | None = None,
        keep_repeats: bool = False,
        ttl_s: float | None = None,
    ) -> ContextPointer:
        """The pointer to a result that is now stored.

        The same call saved again in the same query replaces its result and `created_at` as one:
        readers see the old pair or the new one. A different call is never replaced: if its id is
        taken, it gets a longer one.

        Encoding, hashing, waiting and writing happen in one of four threads of the store. Encoding
        holds the interpreter for about 1.2 ms a megabyte, and takes the result as it is at that
        instant. A cancelled save stores nothing, or everything if it was being written already.

        Args:
            query_id: What the user asked, as an id of 1 to 200 of `A-Za-z0-9_-.` and, inside,
                `:/@+=,` and single spaces, such as `user:42:session`; names the folder, see
                `folder_of`. Stored as it is.
            task_id: Task of the plan, if there is one; a number counts as its text.
            tool_name: Tool that gave the result.
            args: What the tool was called with; plain data, or what `to_plain` makes so.
            result: What the tool returned, likewise.
            source_urls: Web addresses of the result, added before those under its own
                `source_urls`; kept are http(s) ones of up to 2,000 characters without their
                secrets, each once, at most 50.
            keep_repeats: True gives a call whose result differs from its last one a further
                pointer: id and a count.
            ttl_s: Seconds after which this result is gone, infinity for never; None takes those of
                the store.

        Raises:
            InvalidIdError: `query_id`, `task_id` or `tool_name` is not allowed.
            UnserialisableError: JSON cannot stand for the arguments or the result, or `source_urls`
                is no list of text.
            ResultTooLargeError: The result takes more than `max_result_bytes` or
                `max_bytes_per_query`.
            ValueError: `ttl_s` is not above zero.
            LockTimeoutError: Another writer held the query's folder for too long.
            StoreFullError: No room left on the device, or beside what is pinned in the query.
            StoreError: It could not be written for another reason. After none of these is anything
                half visible.
        """
        retention = self._retention
        if ttl_s is not None:
            retention = replace(retention, ttl_s=ttl_s)
        call = Call.checked(
            query_id=query_id,
            task_id=task_id,
            tool_name=tool_name,
            args=args,
            redactor=self._redactor,
        )
        urls = _checked_urls(source_urls)

        def save(given_up: Callable[[], bool]) -> ContextPointer:
            return self._save(
                call, result, urls, retention, keep_repeats=keep_repeats, given_up=given_up
            )

        with span("llm_common.pointers.save") as current:
            pointer = await self._in_thread(save)
            current.set_attribute("llm_common.result_bytes", pointer.result_bytes or 0)
        return pointer

    async def as_stored(self, result: Any) -> Any:
        """Redact a result as a save of it does, for what shows it beside the stored one.

        Raises:
            UnserialisableError: JSON cannot stand for the result.
        """
        if not self._redact_results:
            return redacted_result(result, self._redactor, redact_results=False)
        return await self._in_thread(
            lambda _: redacted_result(result, self._redactor, redact_results=True)
        )

    def list(self, *, query_id: str) -> list[ContextPointer]:
        """The pointers of a query that can be loaded, by `created_at`, then id.

        None for an unknown query. Unrecognized and damaged files are skipped and counted in the
        log; `list_detailed` returns the count.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            UnsafePathError: The query's folder is a link or belongs to another user.
            StoreError: The folder cannot be read.
        """
        return [*self.list_detailed(query_id=query_id).pointers]

    def list_detailed(self, *, query_id: str) -> PointerListing:
        """The pointers of a query and how many files were skipped; otherwise as `list`."""
        with span("llm_common.pointers.list") as current:
            listing = self._index.read(checked_query_id(query_id, self._redactor))
            now = self._clock.now()
            alive = [pointer for pointer in listing.pointers if not has_expired(pointer, now)]
            listing = listing.model_copy(update={"pointers": tuple(alive)})
            current.set_attribute("llm_common.pointers", len(listing.pointers))
        return listing

    def queries(self) -> builtins.list[QuerySummary]:
        """Every query with its pointers and bytes, the one that changed last first.

        Changes nothing. Takes about a second for 100,000 pointers.

        Raises:
            StoreError: The queries cannot be listed.
        """
        summaries = list(query_summaries(self.records.blobs))
        summaries.sort(key=lambda query: (query.changed_at or "", query.query_id), reverse=True)
        return summaries

    def newest(self, *, query_id: str, limit: int, offset: int = 0) -> PointerPage:
        """Return one page of a query's pointers, newest first. Reads no other record.

        Unlike `list` it does not check that the results are there, and keeps nothing in memory.

        Args:
            query_id: The query. An unknown one has an empty page.
            limit: Maximum number of pointers.
            offset: Number of newer pointers to skip.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            StoreError: The folder cannot be read.
        """
        checked = checked_query_id(query_id, self._redactor)
        return newest_pointers(
            self.records.blobs, checked, limit=limit, offset=offset, now=self._clock.now()
        )

    def find(
        self,
        words: str,
        *,
        query_id: str | Collection[str] | None = None,
        pointer_ids: Collection[str] | None = None,
        limit: int = 20,
        in_results: bool = False,
        split: SplitResult = whole_result,
        max_passage_chars: int = 300,
        progress: Callable[[int], object] = lambda _: None,
    ) -> PointerSearch:
        """Find the outputs that share a word with a text, best first.

        Reads every record, or every result, of the queries and changes nothing. Over a whole store
        that takes seconds at 100,000 pointers. The same words over the same outputs give the same
        matches in the same order. A damaged output is skipped and counted.

        Args:
            words: What to look for, in any form and case. A blank text matches nothing.
            query_id: The query to search, or several. None searches all.
            pointer_ids: Looks at these pointers alone. None looks at all.
            limit: Maximum number of matches.
            in_results: True searches each stored result too. False searches the calls and the
                descriptions, which hold the first 500 characters of a result.
            split: Splits a result into the documents that are ranked, by their JSON pointers. By
                default a result is one document.
            max_passage_chars: Maximum size of the passage that a match shows.
            progress: Called with the number of pointers searched so far, after each few. What it
                raises ends the search.

        Raises:
            InvalidIdError: If `query_id` is not allowed.
            StoreError: If the queries cannot be listed.
        """
        query_ids: Iterable[str]
        if query_id is None:
            query_ids = map(query_id_of, self.records.blobs.folders())
        else:
            named_ids = [query_id] if isinstance(query_id, str) else query_id
            query_ids = [checked_query_id(named_id, self._redactor) for named_id in named_ids]
        return search_pointers(
            self.records,
            words,
            query_ids,
            limit=limit,
            now=self._clock.now(),
            in_results=in_results,
            pointer_ids=pointer_ids,
            split=split,
            max_passage_chars=max_passage_chars,
            progress=progress,
        )

    def is_stored(self, *, query_id: str, pointer_id: str) -> bool:
        """Return whether the store still has a pointer, whichever process removed it.

        Reads the pointer's record alone, so that a cache of results can ask before each answer. A
        damaged record counts as gone. The result is not checked.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            PointerNotFoundError: `pointer_id` has the form of no id, though of hexadecimal digits.
            UnsafePathError: `pointer_id` is none, or the query's folder is a link or belongs to
                another user.
            StoreError: The folder cannot be read.
        """
        checked = checked_query_id(query_id, self._redactor)
        [stored] = read_records(self.records.blobs, checked, [check_pointer_id(pointer_id)])
        return stored is not None and not has_expired(stored, self._clock.now())

    def load_result(self, *, pointer: ContextPointer) -> Any:
        """Load a result as plain data: what `json.loads(json.dumps(result))` returns for JSON.

        Reads the pointer's ids only, so it loads the newest version from wherever the store is now.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            CorruptPointerError: What is stored is not what was saved.
            InvalidIdError: The pointer's `query_id` is not allowed.
            UnsafePathError: The pointer's id is none, or its files are links or otherwise not the
                store's own.
            StoreError: The files cannot be read.
        """
        _check_pointer(pointer)
        return decode_json(self.load_payload(pointer.pointer_id, query_id=pointer.query_id)[1])

    def load_payload(self, pointer_id: str, *, query_id: str) -> tuple[ContextPointer, bytes]:
        """The pointer and its result as the bytes of a JSON file, both of the newest version.

        Otherwise `load_result`.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            CorruptPointerError: What is stored is not what was saved.
            InvalidIdError: `query_id` is not allowed.
            UnsafePathError: `pointer_id` is none, or its files are links or otherwise not the
                store's own.
            StoreError: The files cannot be read.
        """
        query_id = checked_query_id(query_id, self._redactor)
        check_pointer_id(pointer_id)
        try:
            stored, payload = self.records.load(query_id, pointer_id)
        except PointerNotFoundError as exc:
            raise self._miss(query_id, pointer_id) from exc
        if has_expired(stored, self._clock.now()):
            raise not_found("expired", query_id, pointer_id)
        if stored.result_sha256 is None:
            _log.warning("loaded a result of an older version, which has no digest to verify it by")
        return stored, payload

    def delete(
        self, *, query_id: str, pointer_ids: Collection[str] | None = None, remember: bool = True
    ) -> int:
        """Delete a query's pointers and results, pinned ones too. Unrecognized files stay.

        A query that is deleted whole leaves no byte: no damaged or unfinished file, no lock, no
        folder. For a month salted hashes remember that its pointers were erased, see `Tombstones`.
        Safe beside readers and writers, and idempotent. If it is interrupted, the pointers it did
        not reach are whole.

        Args:
            query_id: The query.
            pointer_ids: Which pointers. None removes all.
            remember: False leaves no hash either: a later miss says `unknown`, not `erased`.

        Returns:
            The number of pointers removed.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            LockTimeoutError: Another writer held the query's folder for too long.
            StoreError: The files cannot be removed.
            TypeError: `pointer_ids` is a text.
        """
        if isinstance(pointer_ids, str):
            raise TypeError("pointer_ids must be a list of ids, not a text; pass [pointer_id]")
        now = self._clock.now()
        return self._maintenance.delete(
            checked_query_id(query_id, self._redactor), pointer_ids, remember=remember, now=now
        )

    def pin(self, pointer: ContextPointer) -> ContextPointer:
        """The pointer as it is stored now: it neither expires nor is evicted until it is unpinned.

        Kept by the store, for every process and across saves of the same call; idempotent. It can
        still be deleted.

        Raises:
            PointerNotFoundError: There is no such pointer, or it has expired.
            InvalidIdError: The pointer's `query_id` is not allowed.
            LockTimeoutError: Another writer held the query for too long.
            StoreError: The store could not be written; the pin is what it was.
        """
        return self._set_pinned(pointer, pinned=True)

    def unpin(self, pointer: ContextPointer) -> ContextPointer:
        """The pointer as it is stored now, without a pin.

        Its time counts from its last save. Otherwise as `pin`.
        """
        return self._set_pinned(pointer, pinned=False)

    async def gc(self, *, now: datetime | None = None, dry_run: bool = False) -> GcReport:
        """Remove expired pointers, and what killed writers left behind, in every query.

        No reader sees what has expired, collected or not, so once an hour is often enough. Safe
        beside savers on any number of machines. Locks one query at a time, and only if it has
        garbage. A query that cannot be locked or read is counted and skipped. On a store without
        locks, a result that is saved again at the moment its expired version is removed may be
        removed with it.

        Args:
            now: Removes what has expired by then. None uses the current time.
            dry_run: True changes nothing, and reports what would be removed.

        Raises:
            StoreError: The queries cannot be listed.
        """
        moment = self._clock.read() if now is None else now.astimezone(UTC)
        collect = self._maintenance.garbage if dry_run else self._maintenance.gc
        return await self._in_thread(lambda stopped: collect(now=moment, stopped=stopped))

    async def verify(self, *, repair: bool = False) -> StoreReport:
        """Compare every result with its digest, and report whatever is not as a save leaves it.

        Args:
            repair: True completes the saves that killed writers began, and removes what can never
                be loaded. Look at the report first if a copy could still restore it. Unrecognized
                files and links are reported and never touched. Idempotent: the next report is
                clean.

        Raises:
            StoreError: The queries cannot be listed.
        """
        now = self._clock.now()
        return await self._in_thread(
            lambda stopped: self._maintenance.verify(repair=repair, now=now, stopped=stopped)
        )

    def _save(
        self,
        call: Call,
        result: object,
        source_urls: tuple[str, ...],
        retention: Retention,
        *,
        keep_repeats: bool,
        given_up: Callable[[], bool],
    ) -> ContextPointer:
        """The whole of a save beside the event loop: encode, describe, then lock and commit."""
        plain = redacted_result(result, self._redactor, redact_results=self._redact_results)
        encoded = encode_json(plain, max_bytes=self._max_result_bytes)
        now = self._clock.now()
        expires_at = retention.expires_at(now)
        pointer = describe(
            call,
            encoded,
            source_urls=source_urls,
            redactor=self._redactor,
            created_at=now,
            expires_at=expires_at,
        )

        def commit(transaction: Transaction) -> ContextPointer:
            # while it waited for the lock; a later save must not be replaced by this one
            if given_up():
                raise StoreError("The save was cancelled; save again if the result is still wanted")
            return self._saver.commit(
                transaction,
                call,
                pointer,
                encoded.data,
                keep_repeats=keep_repeats,
                retention=retention,
                now=now,
            )

        return self.records.change(call.query_id, commit)

    def _set_pinned(self, pointer: ContextPointer, *, pinned: bool) -> ContextPointer:
        _check_pointer(pointer)
        query_id = checked_query_id(pointer.query_id, self._redactor)
        pointer_id = check_pointer_id(pointer.pointer_id)

        def change(transaction: Transaction) -> ContextPointer:
            stored = transaction.current(pointer_id)
            if stored is None:
                raise self._miss(query_id, pointer_id)
            if has_expired(stored, self._clock.now()):
                raise not_found("expired", query_id, pointer_id)
            if stored.pinned != pinned:
                stored = stored.model_copy(update={"pinned": pinned})
                transaction.update(stored)
            return stored

        # a lock would make the folder of an unknown query
        if self.records.blobs.scan(folder_of(query_id)).blobs:
            return self.records.change(query_id, change)
        raise self._miss(query_id, pointer_id)

    def _miss(self, query_id: str, pointer_id: str) -> PointerNotFoundError:
        return not_found(self._tombstones.reason(query_id, pointer_id), query_id, pointer_id)

    async def _in_thread(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """Run some work in a thread, and tell it when its caller has given up.

        The store has threads of its own, so that a disk that hangs takes none from the program.

        Raises:
            StoreError: No thread can be started.
        """
        given_up = threading.Event()
        try:
            return await asyncio.wrap_future(self._threads.submit(partial(work, given_up.is_set)))
        except NoThreadError as exc:
            raise StoreError(
                "No thread could be started; nothing was changed: end some threads and try again"
            ) from exc
        finally:
            given_up.set()


class FileContextPointerStore(ContextPointerStore):
    """Keeps results as files: `{pointer_id}.meta.json` and `….result.json` in `base_dir/query_id`.

    Survives kill -9 at any instant and, with full durability, power failure. Needs POSIX; several
    processes may share a directory, on network file systems only where flock(2) works.

    Args:
        base_dir: Directory of the store, `~` expanded, made absolute at once; None takes
            `LLM_COMMON_POINTER_STORE_DIR`, else `.llm-common/context`.
        durability: `full` or `rename`; see `FileBlobStore`.
        lock_timeout_s: Seconds that a save waits for other writers of its query.
        allow_hard_links: See `FileBlobStore`.
        allow_unsafe_dir: See `FileBlobStore`.
        **options: Limits, redaction, lifetime and clock; see `ContextPointerStore`.

    Raises:
        ConfigError: The variable names a home that is not known.
        StoreError: The system is not POSIX.
    """

    def __init__(
        self,
        base_dir: Path | str | None = None,
        *,
        durability: Durability = "full",
        lock_timeout_s: float = 10.0,
        allow_hard_links: bool = False,
        allow_unsafe_dir: bool = False,
        **options: Unpack[StoreOptions],
    ) -> None:
        files = FileBlobStore(
            base_dir or read_path(POINTER_STORE_DIR) or Path(POINTER_STORE_DIR.default),
            durability=durability,
            lock_timeout_s=lock_timeout_s,
            allow_hard_links=allow_hard_links,
            allow_unsafe_dir=allow_unsafe_dir,
        )
        super().__init__(LockedRecords(files), **options)
        self._files = files

    @property
    def base_dir(self) -> Path:
        """The absolute directory of the store."""
        return self._files.base_dir


class InMemoryContextPointerStore(ContextPointerStore):
    """Keeps results in memory, for tests and short sessions.

    Args:
        lock_timeout_s: Seconds that a save waits for other writers of its query.
        **options: Limits, redaction, lifetime and clock; see `ContextPointerStore`.
    """

    def __init__(self, *, lock_timeout_s: float = 10.0, **options: Unpack[StoreOptions]) -> None:
        super().__init__(LockedRecords(MemoryBlobStore(lock_timeout_s=lock_timeout_s)), **options)


def _check_pointer(pointer: object) -> None:
    if not isinstance(pointer, ContextPointer):
        raise TypeError(
            f"pointer must be a ContextPointer, not {type(pointer).__name__}; "
            "load_payload takes the id of one"
        )


def _checked_urls(source_urls: Iterable[str] | None) -> tuple[str, ...]:
    """The addresses as a tuple.

    Raises:
        UnserialisableError: They are no list of texts.
    """
    if isinstance(source_urls, str) or not isinstance(source_urls, Iterable | None):
        raise UnserialisableError(
            f"source_urls must be a list of addresses, not {type(source_urls).__name__}"
        )
    return tuple(source_urls or ())
