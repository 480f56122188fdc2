"""`FileContextPointerStore`: results on disk, each behind a small pointer; `ContextPointerStore`: the same anywhere."""

import asyncio
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from llm_common._env import POINTER_STORE_DIR, read_path
from llm_common._telemetry import span
from llm_common.agents.pointers.conditional_records import ConditionalPointerRecords
from llm_common.agents.pointers.draft import Draft
from llm_common.agents.pointers.encoding import decode_json, is_small
from llm_common.agents.pointers.pointer import ContextPointer, check_pointer_id
from llm_common.agents.pointers.records import PointerRecords, RecordWriter, meta_key, parse_meta, result_key
from llm_common.errors import CorruptPointerError, PointerNotFoundError, StoreError, UnsafePathError
from llm_common.storage import ConditionalBlobStore, Durability, FileBlobStore, LockingBlobStore, check_query_id

__all__ = ["DEFAULT_MAX_RESULT_BYTES", "ContextPointerStore", "FileContextPointerStore", "PointerListing"]

DEFAULT_MAX_RESULT_BYTES = 100_000_000
"""Far over any output that a model could use, and small enough to hash and load without a pause."""

_log = logging.getLogger(__name__)

_FILE = re.compile(r"[^/]+/([0-9a-f]{12,16})\.(?:[0-9a-f]{16}\.(?=next))?(meta\.json|result\.json|next)")
_MAX_REPEATS = 0xFFFF


class PointerListing(BaseModel):
    """The pointers of a query, oldest first, and how many foreign or damaged files of its folder were passed over."""

    model_config = ConfigDict(frozen=True)

    pointers: tuple[ContextPointer, ...]
    skipped: int


class ContextPointerStore:
    """Keeps results as pairs of blobs, a result and the pointer that commits it.

    Every pointer that `list` returns can be loaded, whoever saves, is killed or is saving again at the same time, in
    this process or another. Nothing that is stored is ever revived into an object.

    Args:
        blobs: Where the bytes are kept; what it offers, a lock or conditional puts, keeps writers apart.
        max_result_bytes: A larger result is refused.
    """

    def __init__(
        self, blobs: LockingBlobStore | ConditionalBlobStore, *, max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES
    ) -> None:
        self._blobs = blobs
        self._records = (
            PointerRecords(blobs) if isinstance(blobs, LockingBlobStore) else ConditionalPointerRecords(blobs)
        )
        self._max_result_bytes = max_result_bytes

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
    ) -> ContextPointer:
        """The pointer to a result that is now stored.

        The same call saved again in the same query replaces its result and `created_at` as one: readers see the old
        pair or the new one. A different call is never replaced: should its id be taken, it gets a longer one.

        The event loop stays free: files, waiting and the encoding of large results happen in a thread. A small result
        (see `is_small`) is encoded before the first await, so later changes do not reach it; a larger one that is
        plain data is encoded at one instant, a larger foreign object must not be changed until `save` returns. A
        cancelled save leaves nothing or everything: once its thread has begun it may be committed after the
        cancellation was reported, and it is never half done.

        Args:
            query_id: What the user asked, as an id of 1 to 128 of `A-Za-z0-9_-.`; names the folder.
            task_id: Task of the plan, None without one.
            tool_name: Tool that gave the result.
            args: What the tool was called with; plain data, or what `to_plain` makes so.
            result: What the tool returned, likewise.
            source_urls: Web addresses of the result, added before those under its own `source_urls`; kept are http(s)
                ones of up to 2,000 characters without their secrets, each once, at most 50.
            keep_repeats: True gives the same call a further pointer when its result differs from the last one; the id
                is then the 12 digits and a count of four.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            UnserialisableError: JSON cannot stand for the arguments or the result.
            ResultTooLargeError: The result takes more than `max_result_bytes`.
            LockTimeoutError: Another writer held the query's folder for too long.
            StoreFullError: No room left.
            StoreError: The store could not be written for another reason. After none of these is anything half
                visible.
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
        )
        ready = make_draft() if is_small((args, result)) else None
        with span("pointers.save") as current:
            pointer = await asyncio.to_thread(lambda: self._save(ready or make_draft(), keep_repeats=keep_repeats))
            current.set_attribute("result_bytes", pointer.result_bytes or 0)
        return pointer

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
            sizes = self._blobs.list(check_query_id(query_id))
            matches = [_FILE.fullmatch(key) for key in sizes]
            skipped = matches.count(None)
            found: dict[str, set[str]] = {}
            for match in filter(None, matches):
                found.setdefault(match[1], set()).add(match[2])
            metas = self._blobs.get_many(meta_key(query_id, pointer_id) for pointer_id in found)
            pointers = []
            for (pointer_id, kinds), meta in zip(found.items(), metas, strict=True):
                size = sizes.get(result_key(query_id, pointer_id))
                pointer = None if "next" in kinds else _settled(meta, size, query_id=query_id, pointer_id=pointer_id)
                pointer = pointer or self._examine(query_id, pointer_id)
                if pointer is not None:
                    pointers.append(pointer)
                else:
                    skipped += "meta.json" in kinds
            if skipped:
                _log.warning("passed over %d foreign or damaged files of a query", skipped)
            current.set_attribute("pointers", len(pointers))
        return PointerListing(pointers=tuple(sorted(pointers, key=_age)), skipped=skipped)

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
        return decode_json(self.load_payload(pointer.pointer_id, query_id=pointer.query_id)[1])

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
            stored, payload = self._records.load(check_query_id(query_id), check_pointer_id(pointer_id))
            current.set_attribute("result_bytes", len(payload))
        if stored.result_sha256 is None:
            _log.warning("loaded a result of an older version, which has no digest to verify it by")
        return stored, payload

    def delete(self, *, query_id: str, pointer_ids: Collection[str] | None = None) -> int:
        """How many pointers of a query were removed, with their results; foreign files stay.

        Safe beside readers and writers, and idempotent: what is not there is no error. When it is interrupted, what it
        has removed is gone and the rest is whole.

        Args:
            query_id: The query.
            pointer_ids: Which pointers; None removes all that are there.

        Raises:
            InvalidIdError: `query_id` is not allowed.
            LockTimeoutError: Another writer held the query's folder for too long.
            StoreError: The files cannot be removed.
        """
        if not self._blobs.list(check_query_id(query_id)):
            return 0

        def remove(records: RecordWriter) -> int:
            stored = {match[1] for match in map(_FILE.fullmatch, self._blobs.list(query_id)) if match}
            removed = sorted(stored if pointer_ids is None else stored.intersection(pointer_ids))
            for pointer_id in removed:
                records.remove(query_id, pointer_id, settle=pointer_id == removed[-1])
            return len(removed)

        return self._records.write(query_id, remove)

    def _save(self, draft: Draft, *, keep_repeats: bool) -> ContextPointer:
        def commit(records: RecordWriter) -> ContextPointer:
            pointer_id, replaces = self._choose_id(records, draft, keep_repeats=keep_repeats)
            pointer = draft.pointer(
                pointer_id=pointer_id,
                created_at=datetime.now(UTC).isoformat(timespec="microseconds"),
                result_path=self._blobs.location(result_key(draft.query_id, pointer_id)),
            )
            records.commit(pointer, draft.payload, replaces=replaces)
            return pointer

        return self._records.write(draft.query_id, commit)

    def _choose_id(self, records: RecordWriter, draft: Draft, *, keep_repeats: bool) -> tuple[str, bool]:
        """The id to save under, and whether it replaces a pointer."""
        for pointer_id in (draft.short_id, draft.long_id):
            owner = records.recover(draft.query_id, pointer_id)
            if owner is None or draft.is_of(owner):
                break
        else:
            raise StoreError("Two other calls own both ids of this call; save it under another query_id")
        if not keep_repeats or owner is None or pointer_id == draft.long_id:
            return pointer_id, owner is not None
        return self._choose_repeat(records, draft, owner)

    def _choose_repeat(self, records: RecordWriter, draft: Draft, first: ContextPointer) -> tuple[str, bool]:
        def repeat(ordinal: int) -> ContextPointer | None:
            return records.recover(draft.query_id, _repeat_id(draft, ordinal))

        last, beyond = 0, 1
        while repeat(beyond) is not None:
            last, beyond = beyond, beyond * 2
        while beyond - last > 1:
            middle = (last + beyond) // 2
            last, beyond = (last, middle) if repeat(middle) is None else (middle, beyond)
        newest = repeat(last) if last else first
        if newest is not None and draft.is_of(newest) and newest.result_sha256 == draft.payload_sha256:
            return newest.pointer_id, True
        if beyond > _MAX_REPEATS:
            raise StoreError(f"One call has been saved {_MAX_REPEATS:,} times; use another query_id")
        return _repeat_id(draft, beyond), False

    def _examine(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        """The pointer when it loads; for those that a glance could not settle."""
        with suppress(PointerNotFoundError, CorruptPointerError, UnsafePathError):
            return self._records.load(query_id, pointer_id)[0]
        return None


class FileContextPointerStore(ContextPointerStore):
    """A `ContextPointerStore` of files: `base_dir/query_id/{pointer_id}.meta.json` and `….result.json`.

    Survives kill -9 at any instant and, with full durability, power failure. Needs POSIX; several processes may share
    a directory, on network file systems only where flock(2) works.

    Args:
        base_dir: Directory of the store, `~` expanded, made absolute at once; None takes
            `LLM_COMMON_POINTER_STORE_DIR`, else `.llm-common/context`.
        durability: `full` or `rename`; see `FileBlobStore`.
        lock_timeout_s: Seconds that a save waits for other writers of its query.
        max_result_bytes: A larger result is refused.
        allow_hard_links: See `FileBlobStore`.
        allow_unsafe_dir: See `FileBlobStore`.

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
        max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES,
        allow_hard_links: bool = False,
        allow_unsafe_dir: bool = False,
    ) -> None:
        files = FileBlobStore(
            base_dir or read_path(POINTER_STORE_DIR) or Path(POINTER_STORE_DIR.default),
            durability=durability,
            lock_timeout_s=lock_timeout_s,
            allow_hard_links=allow_hard_links,
            allow_unsafe_dir=allow_unsafe_dir,
        )
        super().__init__(files, max_result_bytes=max_result_bytes)
        self._files = files

    @property
    def base_dir(self) -> Path:
        """The absolute directory of the store."""
        return self._files.base_dir

    def delete(self, *, query_id: str, pointer_ids: Collection[str] | None = None) -> int:
        """As `ContextPointerStore.delete`; the query's folder goes with its last file."""
        removed = super().delete(query_id=query_id, pointer_ids=pointer_ids)
        self._files.remove_folder(query_id)
        return removed


def _repeat_id(draft: Draft, ordinal: int) -> str:
    return f"{draft.short_id}{ordinal:04x}"


def _settled(meta: bytes | None, size: int | None, *, query_id: str, pointer_id: str) -> ContextPointer | None:
    """The pointer when its record is whole and its result has the size that it tells."""
    if meta is None or not size:
        return None
    with suppress(CorruptPointerError):
        pointer = parse_meta(meta, query_id=query_id, pointer_id=pointer_id)
        if pointer.result_bytes in (None, size):
            return pointer
    return None


def _age(pointer: ContextPointer) -> tuple[str, str]:
    """Sorts by time, whichever way an older version wrote it, then by id."""
    moment = pointer.created_at
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="microseconds")
    return moment, pointer.pointer_id
