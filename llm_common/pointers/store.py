"""`FileContextPointerStore`: results on disk, each behind a small pointer.

`ContextPointerStore` is the same store over any kind of records.
"""

import asyncio
import builtins
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar, Unpack

from llm_common._env import POINTER_STORE_DIR, read_path
from llm_common._telemetry import span
from llm_common._threads import Threads, computing
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
    QueryPage,
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
    renewed,
)
from llm_common.pointers.save import (
    Call,
    Retention,
    Saver,
    copied_args,
    describe,
    error_text,
    redacted_result,
)
from llm_common.pointers.tombstones import Tombstones, not_found
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.storage import Durability, FileBlobStore, MemoryBlobStore
from llm_common.storage.blob import folder_of, query_id_of
from llm_common.text.canonical import decode_json, encode_json

DEFAULT_MAX_RESULT_BYTES = 100_000_000
"""More than a model could ever use, and small enough to hash and load within a second."""

# Four keep a disk busy. Each further thread could hold another encoded result in memory.
_THREADS: Final = 4

T = TypeVar("T")

_log = logging.getLogger(__name__)


class StoreOptions(TypedDict, total=False):
    """The options of every `ContextPointerStore`, documented there."""

    max_result_bytes: int
    redactor: Redactor
    redact_results: bool
    ttl_s: float | None
    max_bytes_per_query: int | None
    clock: Callable[[], datetime] | None


class ContextPointerStore:
    """Keeps results as pairs of blobs: a result, and the pointer that commits it.

    Every pointer that `list` returns can be loaded, even while other threads or processes save,
    replace results, or are killed. Loading returns plain data and never creates other objects.

    Attributes:
        records: The records of the store.
        redactor: The redactor of the store.

    Args:
        records: Stores the pairs and coordinates writers.
        max_result_bytes: Maximum size of an encoded result. A larger one is refused.
        redactor: Redacts secrets in arguments, summary, description, addresses and a failed tool's
            error before they are written. Pass your own for more patterns and names.
        redact_results: True also redacts the results. Only the redacted result can be loaded then.
        ttl_s: Seconds from the last save of a result to its expiry. None keeps it until it is
            deleted.
        max_bytes_per_query: Maximum total size of a query's results. A save above it evicts expired
            results, then the oldest. None sets no limit.
        clock: Returns the current time. None uses the system's clock. After a backward step of up
            to 5 seconds, expired results stay expired.

    Raises:
        ValueError: If `ttl_s` or `max_bytes_per_query` is zero or negative.
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
        self.redactor: Final = redactor
        self._redact_results = redact_results
        self._threads = Threads(_THREADS, "store")

    @property
    def now(self) -> datetime:
        """Return the time by which pointers expire."""
        return self._clock.now()

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
        renew_on_read: bool = False,
        saver: str | None = None,
    ) -> ContextPointer:
        """Save a result, and return its pointer.

        Saving the same call again in the same query replaces its result and `created_at`
        atomically. Different calls never replace each other: if the id is used, the new call gets a
        longer one. No error leaves a partial save visible.

        Redaction, encoding, hashing, waiting and writing run in one of the store's four threads.
        Only the arguments are copied before. Encoding holds the GIL for about 1.2 ms per megabyte.
        The result must not change before the save returns. A cancelled save stores everything
        or nothing.

        Args:
            query_id: Id of the query, such as `user:42:session`, which names the folder (see
                `folder_of`). 1 to 200 of `A-Za-z0-9_-.` and, inside, `:/@+=,` and single spaces.
                Stored without redaction.
            task_id: Task of the plan, if any. An int is stored as its text.
            tool_name: Name of the tool.
            args: Arguments of the call: plain data, or values that `to_plain` converts.
            result: The tool's result, in the same form.
            source_urls: Web addresses of the result, stored before those in its `source_urls`. At
                most 50 distinct http(s) addresses of up to 2,000 characters are stored, with
                secrets redacted.
            keep_repeats: True stores a result that differs from the call's last one under a new id.
                False replaces the last one.
            ttl_s: Seconds to the expiry of this result, infinity for never. None uses the store's.
                The same result saved again never expires earlier than its earlier save said.
            renew_on_read: True lets the result expire `ttl_s` after it was last saved or read,
                where a read counts at most once an hour. Such a save sets no expiry for a result
                that an application saved without one.
            saver: Mark of a session that shares the query with others. `delete` leaves what others
                have saved too.

        Raises:
            InvalidIdError: If `query_id`, `task_id` or `tool_name` is not allowed.
            UnserialisableError: If the arguments or the result cannot be represented in JSON, or
                `source_urls` is not a list of str.
            ResultTooLargeError: If the result exceeds `max_result_bytes` or `max_bytes_per_query`.
            ValueError: If `ttl_s` is zero or negative.
            LockTimeoutError: If another writer held the query's folder for too long.
            StoreFullError: If the device is full, or the pinned results leave too little room.
            StoreError: If the result cannot be written for another reason.
        """
        retention = replace(self._retention, renew_on_read=renew_on_read, saver=saver)
        if ttl_s is not None:
            retention = replace(retention, ttl_s=ttl_s)
        copied = copied_args(args)
        if isinstance(source_urls, str) or not isinstance(source_urls, Iterable | None):
            raise UnserialisableError(
                f"source_urls must be a list, got {type(source_urls).__name__}. Pass web addresses"
            )
        urls = tuple(source_urls or ())

        def save(given_up: Callable[[], bool]) -> ContextPointer:
            call = Call.checked(
                query_id=query_id,
                task_id=task_id,
                tool_name=tool_name,
                args=copied,
                redactor=self.redactor,
            )
            return self._save(
                call, result, urls, retention, keep_repeats=keep_repeats, given_up=given_up
            )

        with span("llm_common.pointers.save") as current:
            pointer = await self._in_thread(save)
            current.set_attributes({"llm_common.result_bytes": pointer.result_bytes or 0})
        return pointer

    async def as_stored(self, result: Any) -> Any:
        """Redact a result as `save` does, for code that shows it without loading it.

        Raises:
            UnserialisableError: If the result cannot be represented in JSON.
        """
        if not self._redact_results and error_text(result) is None:
            return result
        return await self._in_thread(
            lambda _: redacted_result(result, self.redactor, redact_results=self._redact_results)
        )

    def list(self, *, query_id: str) -> list[ContextPointer]:
        """List the pointers of a query that can be loaded, oldest first.

        Pointers of the same time are sorted by id. Unrecognized and damaged files are skipped, and
        their number is logged. `list_detailed` returns it.

        Args:
            query_id: The query. An unknown one has no pointers.

        Raises:
            InvalidIdError: If `query_id` is not allowed.
            UnsafePathError: If the query's folder is a link or belongs to another user.
            StoreError: If the folder cannot be read.
        """
        return [*self.list_detailed(query_id=query_id).pointers]

    def list_detailed(self, *, query_id: str) -> PointerListing:
        """List the pointers of a query as `list` does, and count the skipped files."""
        with span("llm_common.pointers.list") as current:
            listing = self._index.read(checked_query_id(query_id, self.redactor))
            now = self._clock.now()
            # Filtered on each list, since a pointer expires without any change on disk.
            alive = [pointer for pointer in listing.pointers if not has_expired(pointer, now)]
            listing = listing.model_copy(update={"pointers": tuple(alive)})
            current.set_attributes({"llm_common.pointers": len(listing.pointers)})
        return listing

    def queries(self) -> builtins.list[QuerySummary]:
        """List every query with the number and size of its pointers, last changed first.

        Takes about a second for 100,000 pointers.

        Raises:
            StoreError: If the queries cannot be listed.
        """
        return query_summaries(self.records.blobs, self.records.blobs.folders())

    def newest_queries(self, *, limit: int, offset: int = 0, part: str = "") -> QueryPage:
        """Return one page of the queries, last changed first.

        A store of files orders the queries by the times of their folders, and reads only the
        folders of the page. There, a deletion counts as a change too. Other stores read all.

        Args:
            limit: Maximum number of queries.
            offset: Number of queries to skip.
            part: Text that the id contains, in any case. The empty text selects all.

        Raises:
            StoreError: If the queries cannot be listed.
        """
        queries = [query for query in self.queries() if _has_part(query.query_id, part)]
        return QueryPage(queries=tuple(queries[offset : offset + limit]), total=len(queries))

    def newest(self, *, query_id: str, limit: int, offset: int = 0) -> PointerPage:
        """Return one page of a query's pointers, newest first, and read only their records.

        Unlike `list`, it does not check that the results exist, and caches nothing.

        Args:
            query_id: The query. An unknown one has an empty page.
            limit: Maximum number of pointers.
            offset: Number of newer pointers to skip.

        Raises:
            InvalidIdError: If `query_id` is not allowed.
            StoreError: If the folder cannot be read.
        """
        checked = checked_query_id(query_id, self.redactor)
        return newest_pointers(
            self.records.blobs, checked, limit=limit, offset=offset, now=self._clock.now()
        )

    def is_stored(self, *, query_id: str, pointer_id: str) -> bool:
        """Return whether the store still has a pointer, from its record alone.

        Cheap enough for a cache of results to call before each use. A damaged record counts as
        missing. The result is not checked.

        Raises:
            InvalidIdError: If `query_id` is not allowed.
            PointerNotFoundError: If `pointer_id` has the wrong number of hexadecimal digits.
            UnsafePathError: If `pointer_id` is not an id, or the query's folder is a link or
                belongs to another user.
            StoreError: If the folder cannot be read.
        """
        checked = checked_query_id(query_id, self.redactor)
        [stored] = read_records(self.records.blobs, checked, [check_pointer_id(pointer_id)])
        return stored is not None and not has_expired(stored, self._clock.now())

    def query_with(self, pointer_id: str, *, prefix: str) -> str | None:
        """Return a query that has a pointer and whose id begins with `prefix`, or None.

        Looks at every such query, by its record alone.

        Raises:
            StoreError: If the queries cannot be listed.
        """
        for query_id in map(query_id_of, self.records.blobs.folders()):
            if query_id.startswith(prefix):
                with suppress(StoreError):  # another query may still be readable
                    if self.is_stored(query_id=query_id, pointer_id=pointer_id):
                        return query_id
        return None

    def load_result(self, *, pointer: ContextPointer) -> Any:
        """Load the newest result of a pointer as plain data, as `json.loads` returns it.

        Uses only the ids of the pointer, so a store can be moved.

        Raises:
            TypeError: If `pointer` is not a ContextPointer.
            PointerNotFoundError: If the pointer or its result is missing or has expired.
            CorruptPointerError: If the result differs from the saved one.
            InvalidIdError: If the pointer's `query_id` is not allowed.
            UnsafePathError: If the pointer's id is not an id, or its files are links or belong to
                another user.
            StoreError: If the files cannot be read.
        """
        _check_pointer(pointer)
        return decode_json(self.load_payload(pointer.pointer_id, query_id=pointer.query_id)[1])

    def load_payload(self, pointer_id: str, *, query_id: str) -> tuple[ContextPointer, bytes]:
        """Load a pointer by its id, with its result as the bytes of JSON.

        Both are of the newest version.

        Raises:
            PointerNotFoundError: If the pointer or its result is missing or has expired.
            CorruptPointerError: If the result differs from the saved one.
            InvalidIdError: If `query_id` is not allowed.
            UnsafePathError: If `pointer_id` is not an id, or its files are links or belong to
                another user.
            StoreError: If the files cannot be read.
        """
        query_id = checked_query_id(query_id, self.redactor)
        check_pointer_id(pointer_id)
        try:
            stored, payload = self.records.load(query_id, pointer_id)
        except PointerNotFoundError as exc:
            raise self._miss(query_id, pointer_id) from exc
        now = self._clock.now()
        if has_expired(stored, now):
            raise not_found("expired", query_id, pointer_id)
        if renewed(stored, now) is not None:
            stored = self._renew(stored, now)
        if stored.result_sha256 is None:
            _log.warning("loaded a result of an older version, which has no SHA-256 to verify")
        return stored, payload

    def delete(
        self,
        *,
        query_id: str,
        pointer_ids: Collection[str] | None = None,
        remember: bool = True,
        saver: str | None = None,
    ) -> int:
        """Delete a query's pointers and results, pinned ones too. Unrecognized files stay.

        Deleting a whole query also removes its damaged and unfinished files, its lock and its
        folder. Salted hashes record for a month that its pointers were erased (see `Tombstones`).
        Idempotent, and safe while others read and write. If it is interrupted, the remaining
        pointers are intact.

        Args:
            query_id: The query.
            pointer_ids: The pointers to delete. None deletes all.
            remember: False records no hashes. Later lookups then report `unknown`, not `erased`.
            saver: Leaves what others than the saver with this mark have saved too. None deletes it.

        Returns:
            The number of pointers removed.

        Raises:
            InvalidIdError: If `query_id` is not allowed.
            LockTimeoutError: If another writer held the query's folder for too long.
            StoreError: If the files cannot be removed.
            TypeError: If `pointer_ids` is a str.
        """
        if isinstance(pointer_ids, str):  # which is a collection of its characters
            raise TypeError("pointer_ids must be a list of ids, got str. Pass [pointer_id]")
        now = self._clock.now()
        return self._maintenance.delete(
            checked_query_id(query_id, self.redactor),
            pointer_ids,
            remember=remember,
            saver=saver,
            now=now,
        )

    # The twins for coroutines, which wait in a thread for the disk or the network.

    async def alist(self, *, query_id: str) -> builtins.list[ContextPointer]:
        """Return the pointers of a query without blocking the event loop. See `list`."""
        return await self._in_thread(lambda _: self.list(query_id=query_id))

    async def aload_result(self, *, pointer: ContextPointer) -> Any:
        """Return the result of a pointer without blocking the event loop. See `load_result`."""
        return await self._in_thread(lambda _: self.load_result(pointer=pointer))

    async def adelete(
        self, *, query_id: str, pointer_ids: Collection[str] | None = None, remember: bool = True
    ) -> int:
        """Delete a query's pointers and results without blocking the event loop. See `delete`.

        A cancelled call still deletes, once it has begun.
        """
        return await self._in_thread(
            lambda _: self.delete(query_id=query_id, pointer_ids=pointer_ids, remember=remember)
        )

    def pin(self, pointer: ContextPointer) -> ContextPointer:
        """Protect a result from expiry and eviction, and return its current pointer.

        The store keeps the pin for all processes and across saves of the same call. A pinned result
        can still be deleted. Idempotent.

        Raises:
            PointerNotFoundError: If the pointer is missing or has expired.
            InvalidIdError: If the pointer's `query_id` is not allowed.
            LockTimeoutError: If another writer held the query for too long.
            StoreError: If the store cannot be written. The pin is unchanged then.
        """
        return self._set_pinned(pointer, pinned=True)

    def unpin(self, pointer: ContextPointer) -> ContextPointer:
        """Remove the pin of a result, and return its current pointer.

        The result expires by the time of its last save or, with `renew_on_read`, its last read.
        Raises as `pin`.
        """
        return self._set_pinned(pointer, pinned=False)

    async def gc(self, *, now: datetime | None = None, dry_run: bool = False) -> GcReport:
        """Remove the expired pointers of all queries, and the remains of killed writers.

        Readers never see expired pointers, so once an hour is often enough. Safe while any number
        of machines save. Locks one query at a time, and only if it has garbage. A query that cannot
        be locked or read is skipped and counted. On a store without locks, a result that is saved
        again while its expired version is removed may be removed too.

        Args:
            now: Time by which pointers have expired. None uses the current time.
            dry_run: True changes nothing, and reports what would be removed.

        Raises:
            StoreError: If the queries cannot be listed.
        """
        # Not `now()`: after the clock was once far ahead, that could collect live results.
        moment = self._clock.read() if now is None else now.astimezone(UTC)
        return await self._in_thread(
            lambda stopped: self._maintenance.gc(now=moment, dry_run=dry_run, stopped=stopped)
        )

    async def verify(self, *, repair: bool = False) -> StoreReport:
        """Compare every result with its SHA-256, and report missing, damaged and unknown files.

        Args:
            repair: True finishes the saves of killed writers, and removes pairs that can never be
                loaded. Read a report first if you could restore them from a copy. Unrecognized
                files and links are only reported. Idempotent: the next report is clean.

        Raises:
            StoreError: If the queries cannot be listed.
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
        """Encode, describe and commit a result, in a worker thread."""
        with computing():
            plain = redacted_result(result, self.redactor, redact_results=self._redact_results)
            encoded = encode_json(plain, max_bytes=self._max_result_bytes)
            now = self._clock.now()
            pointer = describe(
                call,
                encoded,
                source_urls=source_urls,
                redactor=self.redactor,
                created_at=now,
                retention=retention,
            )

        def commit(transaction: Transaction) -> ContextPointer:
            # Cancelled while it waited for the lock. It must not replace a later save.
            if given_up():
                raise StoreError("The save was cancelled. Save again if you still need the result")
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

    def _renew(self, pointer: ContextPointer, now: datetime) -> ContextPointer:
        """Extend the life of a result that is read now, and return its pointer."""

        def renew(transaction: Transaction) -> ContextPointer:
            # Another process may have saved, deleted or renewed it meanwhile.
            stored = transaction.current(pointer.pointer_id)
            if stored is None or (longer := renewed(stored, now)) is None:
                return pointer
            transaction.update(longer)
            return longer

        try:
            # Without waiting: a reader never waits for a writer, and the next read tries again.
            return self.records.change(pointer.query_id, renew, timeout_s=0.0)
        except StoreError as exc:  # such as a folder that can only be read
            _log.info("could not extend the life of a result: %s", type(exc).__name__)
            return pointer

    def _set_pinned(self, pointer: ContextPointer, *, pinned: bool) -> ContextPointer:
        _check_pointer(pointer)
        query_id = checked_query_id(pointer.query_id, self.redactor)
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

        # Checked first, because locking would create the folder of an unknown query.
        if self.records.blobs.scan(folder_of(query_id)).blobs:
            return self.records.change(query_id, change)
        raise self._miss(query_id, pointer_id)

    def _miss(self, query_id: str, pointer_id: str) -> PointerNotFoundError:
        return not_found(self._tombstones.reason(query_id, pointer_id), query_id, pointer_id)

    async def _in_thread(self, work: Callable[[Callable[[], bool]], T]) -> T:
        """Run some work in a thread, and let it check whether its caller has given up.

        Raises:
            StoreError: If no thread can be started.
        """
        # Own threads, so that a disk that hangs cannot block the program's default executor.
        given_up = threading.Event()
        try:
            return await asyncio.wrap_future(self._threads.submit(partial(work, given_up.is_set)))
        except NoThreadError as exc:
            raise StoreError(
                "No thread could be started, and nothing was changed. End some threads and try "
                "again"
            ) from exc
        finally:
            given_up.set()


class FileContextPointerStore(ContextPointerStore):
    """Keeps results as files that survive kill -9 and, by default, power failure.

    A pair is `{pointer_id}.meta.json` and `{pointer_id}.result.json` in `base_dir/query_id`. Needs
    POSIX. Several processes can share a directory. A network file system must support flock(2).

    Args:
        base_dir: Directory of the store. `~` is expanded, and a relative path is resolved when the
            store is created. None uses `LLM_COMMON_POINTER_STORE_DIR`, else `.llm-common/context`,
            which gets a `.gitignore` when the first save creates it.
        durability: `full` or `rename`. See `FileBlobStore`.
        lock_timeout_s: Seconds that a save waits for other writers of its query.
        allow_hard_links: See `FileBlobStore`.
        allow_unsafe_dir: See `FileBlobStore`.
        **options: Limits, redaction, expiry and clock. See `ContextPointerStore`.

    Attributes:
        base_dir: Absolute directory of the store.

    Raises:
        ConfigError: If the variable names an unknown user's home.
        StoreError: If the system is not POSIX.
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
        default_dir = Path(POINTER_STORE_DIR.default)
        chosen_dir = Path(base_dir or read_path(POINTER_STORE_DIR) or default_dir)
        files = FileBlobStore(
            chosen_dir,
            durability=durability,
            lock_timeout_s=lock_timeout_s,
            allow_hard_links=allow_hard_links,
            allow_unsafe_dir=allow_unsafe_dir,
            # The default lies in the working folder, which is often a repository.
            git_ignored=chosen_dir == default_dir,
        )
        super().__init__(LockedRecords(files), **options)
        self._files = files
        self.base_dir: Final = files.base_dir

    def newest_queries(self, *, limit: int, offset: int = 0, part: str = "") -> QueryPage:
        """Return one page of the queries. See `ContextPointerStore.newest_queries`."""
        changed_s = self._files.folder_times()
        if part:
            for folder in [*changed_s]:
                if not _has_part(query_id_of(folder), part):
                    del changed_s[folder]
        newest_first = sorted(changed_s, key=changed_s.__getitem__, reverse=True)
        page = query_summaries(self._files, newest_first[offset : offset + limit])
        return QueryPage(queries=tuple(page), total=len(newest_first))


class InMemoryContextPointerStore(ContextPointerStore):
    """Keeps results in memory, for tests and short sessions.

    Args:
        lock_timeout_s: Seconds that a save waits for other writers of its query.
        **options: Limits, redaction, expiry and clock. See `ContextPointerStore`.
    """

    def __init__(self, *, lock_timeout_s: float = 10.0, **options: Unpack[StoreOptions]) -> None:
        super().__init__(LockedRecords(MemoryBlobStore(lock_timeout_s=lock_timeout_s)), **options)


def _has_part(query_id: str, part: str) -> bool:
    return part.lower() in query_id.lower()


def _check_pointer(pointer: object) -> None:
    if not isinstance(pointer, ContextPointer):
        raise TypeError(
            f"pointer must be a ContextPointer, got {type(pointer).__name__}. "
            "To load by id, call load_payload"
        )
