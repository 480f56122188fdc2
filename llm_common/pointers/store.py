"""`FileContextPointerStore`: results on disk, each behind a small pointer; `ContextPointerStore`: the same anywhere."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack

from llm_common._env import POINTER_STORE_DIR, read_path
from llm_common._telemetry import span
from llm_common.errors import PointerNotFoundError
from llm_common.pointers.clock import SteadyClock
from llm_common.pointers.draft import Draft, told_of
from llm_common.pointers.listing import PointerIndex, PointerListing
from llm_common.pointers.pointer import ContextPointer, check_pointer_id
from llm_common.pointers.retention import Retention, has_expired, not_found
from llm_common.pointers.save import Saver
from llm_common.pointers.save_threads import SaveThreads
from llm_common.pointers.upkeep import StoreUpkeep
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.storage import ConditionalBlobStore, Durability, FileBlobStore, LockingBlobStore, check_query_id
from llm_common.text.encoding import decode_json, is_small

__all__ = [
    "DEFAULT_MAX_RESULT_BYTES",
    "ContextPointerStore",
    "FileContextPointerStore",
    "PointerListing",
    "StoreOptions",
]

DEFAULT_MAX_RESULT_BYTES = 100_000_000
"""Far over any output that a model could use, and small enough to hash and load without a pause."""

_log = logging.getLogger(__name__)


class StoreOptions(TypedDict, total=False):
    """What every `ContextPointerStore` takes beside the place of its bytes; see there."""

    max_result_bytes: int
    redactor: Redactor
    redact_results: bool
    ttl_s: float | None
    max_bytes_per_query: int | None
    clock: Callable[[], datetime] | None


class ContextPointerStore(StoreUpkeep):
    """Keeps results as pairs of blobs, a result and the pointer that commits it.

    Every pointer that `list` returns can be loaded, whoever saves, is killed or is saving again at the same time, in
    this process or another. Nothing that is stored is ever revived into an object.

    Args:
        blobs: Where the bytes are kept; what it offers, a lock or conditional puts, keeps writers apart.
        max_result_bytes: A larger result is refused.
        redactor: Takes secrets out of arguments, summary, digest, addresses and a failed tool's error before anything
            is written; made of further patterns and names, it knows yours too.
        redact_results: True takes them out of results as well, for good: what loads then is the redacted result.
        ttl_s: Seconds after its last save at which a result is gone; None keeps it until it is deleted.
        max_bytes_per_query: Most bytes of a query's results together: for a save beyond it the query's oldest go,
            expired ones first. Looked up anew at each save, since other processes save too. None sets no limit.
        clock: Tells the time; None takes the system's. Should it go back, what has expired stays so.

    Raises:
        ValueError: `ttl_s` or `max_bytes_per_query` is not above zero.
    """

    def __init__(
        self,
        blobs: LockingBlobStore | ConditionalBlobStore,
        *,
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        redactor: Redactor = DEFAULT_REDACTOR,
        redact_results: bool = False,
        ttl_s: float | None = None,
        max_bytes_per_query: int | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        super().__init__(blobs, SteadyClock(clock))
        self._retention = Retention(ttl_s, max_bytes_per_query)
        self._saver = Saver(blobs, self._records, self._gravestones, self._clock)
        self._index = PointerIndex(blobs, self._records.load)
        self._threads = SaveThreads()
        self._saves_together = isinstance(blobs, LockingBlobStore) and max_bytes_per_query is None
        self._max_result_bytes = max_result_bytes
        self._redactor = redactor
        self._redact_results = redact_results

    async def save(
        self,
        *,
        query_id: str,
        task_id: str | None,
        tool_name: str,
        args: Mapping[str, Any],
        result: Any,
        source_urls: Iterable[str] | None = None,
        keep_repeats: bool = False,
        ttl_s: float | None = None,
    ) -> ContextPointer:
        """The pointer to a result that is now stored.

        The same call saved again in the same query replaces its result and `created_at` as one: readers see the old
        pair or the new one. A different call is never replaced: should its id be taken, it gets a longer one.

        The event loop stays free: files, waiting and the encoding of large results happen in a thread. A small result
        (see `is_small`) is encoded at once, so later changes do not reach it. Of a larger one that is changed meanwhile
        the stored result is the value at one instant, or the save fails and says so. A cancelled save leaves nothing
        or everything: once its thread has begun it may be committed after the cancellation was reported.

        Args:
            query_id: What the user asked, as an id of 1 to 128 of `A-Za-z0-9_-.`; names the folder.
            task_id: Task of the plan, None without one.
            tool_name: Tool that gave the result.
            args: What the tool was called with; plain data, or what `to_plain` makes so.
            result: What the tool returned, likewise.
            source_urls: Web addresses of the result, added before those under its own `source_urls`; kept are http(s)
                ones of up to 2,000 characters without their secrets, each once, at most 50.
            keep_repeats: True gives a call whose result differs from its last one a further pointer: id and a count.
            ttl_s: Seconds after which this result is gone, infinity for never; None takes those of the store.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            UnserialisableError: JSON cannot stand for the arguments or the result.
            ResultTooLargeError: The result takes more than `max_result_bytes` or `max_bytes_per_query`.
            LockTimeoutError: Another writer held the query's folder for too long.
            StoreFullError: No room left on the device, or beside what is pinned in the query.
            StoreError: It could not be written for another reason. After none of these is anything half visible.
        """
        check_query_id(query_id)
        make_draft = partial(
            Draft.of,
            query_id=query_id,
            task_id=task_id,
            tool_name=tool_name,
            args=args,
            result=result,
            source_urls=source_urls,
            max_result_bytes=self._max_result_bytes,
            redactor=self._redactor,
            redact_results=self._redact_results,
        )
        ready = await self._threads.here(lambda: make_draft(small=True) if is_small((args, result)) else None)
        with span("pointers.save") as current:
            pointer = await self._stored(ready, make_draft, query_id, keep_repeats=keep_repeats, ttl_s=ttl_s)
            current.set_attribute("result_bytes", pointer.result_bytes or 0)
        return pointer

    async def as_stored(self, result: Any) -> Any:
        """A result with the secrets out that a save of it takes out: what may be shown of it beside what is stored.

        Raises:
            UnserialisableError: JSON cannot stand for the result.
            ResultTooLargeError: It takes more than `max_result_bytes`.
        """
        told = partial(
            told_of,
            result,
            self._redactor,
            redact_results=self._redact_results,
            max_bytes=self._max_result_bytes,
        )
        return await asyncio.to_thread(told) if self._redact_results else told()

    def list(self, *, query_id: str) -> list[ContextPointer]:
        """The pointers of a query that can be loaded, by `created_at`, then id; none for an unknown query.

        Foreign and damaged files are passed over and counted in the log; `list_detailed` returns the count.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            UnsafePathError: The query's folder is a link or belongs to another user.
            StoreError: The folder cannot be read.
        """
        return [*self.list_detailed(query_id=query_id).pointers]

    def list_detailed(self, *, query_id: str) -> PointerListing:
        """The pointers of a query and how many files were passed over; otherwise as `list`."""
        with span("pointers.list") as current:
            listing = self._index.read(check_query_id(query_id))
            mortal = [pointer for pointer in listing.pointers if pointer.expires_at is not None]
            now = self._clock.now()
            if any(has_expired(pointer, now) for pointer in mortal):
                there = tuple(pointer for pointer in listing.pointers if not has_expired(pointer, now))
                listing = listing.model_copy(update={"pointers": there})
            current.set_attribute("pointers", len(listing.pointers))
        return listing

    def load_result(self, *, pointer: ContextPointer) -> Any:
        """The result as plain data: what `json.loads(json.dumps(result))` gives for a result that was plain JSON.

        Only the pointer's ids are read, so it loads from wherever the store is now, and always the newest version.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            CorruptPointerError: What is stored is not what was saved.
            InvalidIdError: The pointer's `query_id` is not allowed.
            UnsafePathError: The pointer's id is none, or its files are links or otherwise not the store's own.
            StoreError: The files cannot be read.
        """
        stored, payload = self.load_payload(pointer.pointer_id, query_id=pointer.query_id)
        return decode_json(payload, fits_64_bits=stored.result_fits_64_bits)

    def load_payload(self, pointer_id: str, *, query_id: str) -> tuple[ContextPointer, bytes]:
        """The pointer and its result as the bytes of a JSON file, both of the newest version; otherwise `load_result`.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            CorruptPointerError: What is stored is not what was saved.
            InvalidIdError: `query_id` is not allowed.
            UnsafePathError: `pointer_id` is none, or its files are links or otherwise not the store's own.
            StoreError: The files cannot be read.
        """
        with span("pointers.load") as current:
            check_query_id(query_id)
            check_pointer_id(pointer_id)
            try:
                stored, payload = self._records.load(query_id, pointer_id)
            except PointerNotFoundError as exc:
                raise self._miss(query_id, pointer_id) from exc
            if stored.expires_at is not None and has_expired(stored, self._clock.now()):
                raise not_found("expired")
            current.set_attribute("result_bytes", len(payload))
        if stored.result_sha256 is None:
            _log.warning("loaded a result of an older version, which has no digest to verify it by")
        return stored, payload

    async def _stored(
        self,
        ready: Draft | None,
        make_draft: Callable[[], Draft],
        query_id: str,
        *,
        keep_repeats: bool,
        ttl_s: float | None,
    ) -> ContextPointer:
        """The pointer of a draft that is ready, or of one that is yet to be made, which is stored in a thread now."""
        retention = self._retention if ttl_s is None else replace(self._retention, ttl_s=ttl_s)
        if ready is not None and self._saves_together:
            saving = self._saver.saving(ready, keep_repeats=keep_repeats, retention=retention)
            return await self._threads.together(saving, group=query_id, make=partial(self._saver.make_all, query_id))
        return await self._threads.beside(
            lambda: self._saver.save(ready or make_draft(), keep_repeats=keep_repeats, retention=retention)
        )


class FileContextPointerStore(ContextPointerStore):
    """A `ContextPointerStore` of files: `base_dir/query_id/{pointer_id}.meta.json` and `….result.json`.

    Survives kill -9 at any instant and, with full durability, power failure. Needs POSIX; several processes may share
    a directory, on network file systems only where flock(2) works.

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
        super().__init__(files, **options)
        self._files = files

    @property
    def base_dir(self) -> Path:
        """The absolute directory of the store."""
        return self._files.base_dir
