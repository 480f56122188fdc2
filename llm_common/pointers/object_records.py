"""`ConditionalPointerRecords`: the pairs of `PointerRecords` on a store that has no lock but conditional puts.

A pair is a result and its meta, under the keys that they have on disk. Every save, the first one and each later one,
is the same three puts and a deletion; put-if means that it depends on what the writer has seen under the key before:

    1. intent   put-if  `{id}.{attempt}.next`, the new meta under a name that no other attempt has
    2. result   put-if
    3. meta     put-if  with fresh random text in it, so that no version of a meta ever comes back
    4. intent   drop

The invariant: **what is under the result's key is described, by its digest, by the meta or by an intent.** So a reader
that finds the two apart looks for the intent, and has the old pair or the new one.

* Step 2 keeps it, since the writer's own intent is there, and no other writer removes it.
* Step 3 puts the record of a result that the writer has seen, or put, after it had read the meta that it replaces.
  Should the result be another writer's by now, that one has put no meta since, or this put would fail; and a writer
  whose result may be there puts a meta before it drops its intent. So the other's intent is there.
* Step 4 keeps it, since the meta that was put after the result made every writer look again that had read an older
  one. The same bytes can come back only from another attempt, which has an intent of its own.

Which call owns an id is decided by step 2 of its first save, and a writer that loses finds the owner by the same
search. A writer whose put-if fails at step 2 or 3 puts the meta of whatever result is there (`_settle`), also when it
is there already: its own put may have happened although the store said no. That completes what another has begun, so
nobody waits for a writer that was stopped or killed, and each failure means that another writer got on.

Nothing relies on time, and nothing on the versions of results, which S3 gives to bytes and not to puts. A killed
writer, and one that cannot know what became of its put, leaves its intent, at most 8 KB, until the pointer is removed.
A save at the same time as a removal of its pointer may be removed with it.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from llm_common.errors import CorruptPointerError, LockTimeoutError, PointerNotFoundError, StoreError
from llm_common.pointers.clock import moment_of
from llm_common.pointers.pointer import ContextPointer, digest_of
from llm_common.pointers.records import (
    NewVersion,
    RecordWriter,
    describes,
    meta_bytes,
    meta_key,
    parse_meta,
    result_key,
)
from llm_common.storage import BlobVersion, ConditionalBlobStore
from llm_common.text.encoding import encode_json

__all__ = ["ConditionalPointerRecords"]

_PATIENCE_S = 30.0
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5

Changed = TypeVar("Changed")


class ConditionalPointerRecords:
    """Reads and writes pairs beside any number of other writers, on this machine or another.

    Args:
        blobs: Where the bytes are.
    """

    def __init__(self, blobs: ConditionalBlobStore) -> None:
        self._blobs = blobs

    def write(self, query_id: str, change: Callable[[RecordWriter], Changed]) -> Changed:  # noqa: ARG002 - no lock
        """What the change returns, made again from the start whenever another writer was faster.

        Raises:
            LockTimeoutError: Others were faster for half a minute.
        """
        tries = _tries()
        while True:
            next(tries)
            with suppress(_OvertakenError):
                return change(_Attempt(self._blobs))

    def load(self, query_id: str, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """The pointer and its verified result, both of one version, while others write.

        Raises:
            PointerNotFoundError: There is no such pointer, or its result is gone.
            CorruptPointerError: The result is not what was saved.
            LockTimeoutError: Others replaced it again and again for half a minute.
        """
        for look in _looks(self._blobs, query_id, pointer_id):
            if look.meta_version is None or look.payload is None:
                raise PointerNotFoundError("Nothing is stored under this pointer; use one that the store lists")
            if look.record is not None:
                return look.record, look.payload
        raise CorruptPointerError("A stored result is not what was saved; restore its object from a copy")

    load_still = load

    def still(self, query_id: str) -> AbstractContextManager[None]:  # noqa: ARG002 - pairs are whole at any instant
        """A block in which pairs can be looked at as if nobody wrote."""
        return nullcontext()

    def abandoned(self, keys: Iterable[str], *, before: datetime) -> list[str]:
        """Which of these intents are from before that moment, or are none; no writer is on its way for so long."""
        return [key for key in keys if _is_from(self._blobs, key, before)]


class _OvertakenError(Exception):
    """Another writer was faster: nothing of the attempt is visible, and it can be made again."""


class _Attempt:
    """One attempt at changing pairs of a query; a `RecordWriter`."""

    def __init__(self, blobs: ConditionalBlobStore) -> None:
        self._blobs = blobs
        self._metas: dict[str, BlobVersion | None] = {}
        self._keys: dict[str, int] | None = None

    def recover(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        """The committed pointer, if any; `commit` replaces this very version."""
        committed, self._metas[pointer_id] = _read_meta(self._blobs, query_id, pointer_id)
        return committed

    def commit(self, version: NewVersion, *, replaces: bool) -> None:
        """Makes the version the visible one, by the steps at the top of this file.

        Raises:
            _OvertakenError: Others have saved or removed the pointer since `recover`.
            StoreError: Not committed, or, once the new result has replaced the old one, committed.
        """
        pointer = version.pointer
        intent = f"{pointer.query_id}/{pointer.pointer_id}.{secrets.token_hex(8)}.next"
        self._blobs.put_if(intent, meta_bytes(pointer), replaces=None)
        committed = self._put_result(pointer, version.payload, replaces=replaces) and self._put_meta(pointer)
        with suppress(StoreError):  # one that stays does no harm
            self._blobs.delete(intent)
        if not committed:
            raise _OvertakenError

    def update(self, pointer: ContextPointer) -> None:
        """Puts the record that `recover` gave with other facts about how long it stays; it describes the same result.

        Raises:
            _OvertakenError: Others have put a record since `recover`.
        """
        if self._put_known(pointer) is None:
            raise _OvertakenError

    def finish(self, query_id: str, pointer_id: str, *, before: datetime) -> None:
        """Puts the record of whatever result is there, then drops the intents from before that moment.

        That is what their writers would have done next, had they lived.
        """
        intents = _intents(self._blobs.list(query_id), query_id, pointer_id)
        dead = [key for key in intents if _is_from(self._blobs, key, before)]
        if dead:
            self._settle(query_id, pointer_id)
        for key in dead:
            self._blobs.delete(key)

    def remove(self, query_id: str, pointer_id: str, *, settle: bool) -> None:
        """Removes a pair and what killed writers left of it."""
        if self._keys is None:
            self._keys = self._blobs.list(query_id)
        intents = _intents(self._keys, query_id, pointer_id)
        for key in (meta_key(query_id, pointer_id), result_key(query_id, pointer_id), *intents):
            self._blobs.delete(key, settle=settle)

    def _put_result(self, pointer: ContextPointer, payload: bytes, *, replaces: bool) -> bool:
        """Whether the result is, or was, under its key; False when the id has another result than `recover` knew."""
        key = result_key(pointer.query_id, pointer.pointer_id)
        known = self._blobs.version(key) if replaces else None
        tries = _tries()
        while self._blobs.put_if(key, payload, replaces=known) is None:
            record = self._settle(pointer.query_id, pointer.pointer_id)
            if record is not None:
                return _pinned_as(pointer, record) == pointer
            next(tries)
            known = self._blobs.version(key)  # nobody stands for these bytes
        return True

    def _put_meta(self, pointer: ContextPointer) -> bool:
        """Whether the pointer was committed, if only for a moment; False when the id belongs to another call."""
        if self._put_known(pointer):
            return True
        record = self._settle(pointer.query_id, pointer.pointer_id)
        return record is not None and _call(record) == _call(pointer)

    def _put_known(self, pointer: ContextPointer) -> BlobVersion | None:
        """Puts a record in place of the one that `recover` read; None when there is another by now."""
        known = self._metas[pointer.pointer_id]
        meta = meta_key(pointer.query_id, pointer.pointer_id)
        return self._blobs.put_if(meta, _fresh_meta(pointer), replaces=known)

    def _settle(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        """The record of the result that is there, put anew as its meta; None for no result, or for one of no save."""
        meta = meta_key(query_id, pointer_id)
        for look in _looks(self._blobs, query_id, pointer_id):
            if look.record and self._blobs.put_if(meta, _fresh_meta(look.record), replaces=look.meta_version):
                return look.record
        return None


@dataclass(frozen=True, slots=True)
class _Look:
    """What is under the keys of a pair, the meta read before the result; `record` describes the payload."""

    meta_version: BlobVersion | None
    result_version: BlobVersion | None
    payload: bytes | None
    record: ContextPointer | None


def _looks(blobs: ConditionalBlobStore, query_id: str, pointer_id: str) -> Iterator[_Look]:
    """Looks at a pair, until one finds no record of the result and nothing changed since the one before.

    Between two such looks no writer was on its way, or its intent, or the meta that it put, would have been found.
    """
    last = None
    for _ in _tries():
        look = _look(blobs, query_id, pointer_id)
        yield look
        versions = (look.meta_version, look.result_version)
        if look.record is None and versions == last:
            return
        last = versions


def _look(blobs: ConditionalBlobStore, query_id: str, pointer_id: str) -> _Look:
    committed, meta_version = _read_meta(blobs, query_id, pointer_id)
    try:
        payload, result_version = blobs.get_version(result_key(query_id, pointer_id))
    except PointerNotFoundError:
        return _Look(meta_version, None, None, None)
    described = committed is not None and describes(committed, payload)
    record = committed if described else None
    if record is None or record.result_sha256 is None:  # one of an older version describes whatever is there
        record = _pinned_as(committed, _intended(blobs, query_id, pointer_id, payload)) or record
    return _Look(meta_version, result_version, payload, record)


def _intended(blobs: ConditionalBlobStore, query_id: str, pointer_id: str, payload: bytes) -> ContextPointer | None:
    """The record of a writer that has, or may have, put this result."""
    for key in _intents(blobs.list(query_id), query_id, pointer_id):
        with suppress(PointerNotFoundError, CorruptPointerError):
            pointer = parse_meta(blobs.get(key), query_id=query_id, pointer_id=pointer_id)
            if describes(pointer, payload):
                return pointer
    return None


def _read_meta(
    blobs: ConditionalBlobStore, query_id: str, pointer_id: str
) -> tuple[ContextPointer | None, BlobVersion | None]:
    """The committed pointer, None when it is damaged; its version, None when there is none."""
    version = None
    with suppress(PointerNotFoundError, CorruptPointerError):
        data, version = blobs.get_version(meta_key(query_id, pointer_id))
        return parse_meta(data, query_id=query_id, pointer_id=pointer_id), version
    return None, version


def _intents(keys: Iterable[str], query_id: str, pointer_id: str) -> list[str]:
    start = f"{query_id}/{pointer_id}."
    return [key for key in keys if key.startswith(start) and key.endswith(".next")]


def _pinned_as(committed: ContextPointer | None, record: ContextPointer | None) -> ContextPointer | None:
    """The record with the pin of the one that it replaces: a pin is of the id, whoever saves under it."""
    if committed is None or record is None or committed.pinned == record.pinned:
        return record
    return record.model_copy(update={"pinned": committed.pinned})


def _is_from(blobs: ConditionalBlobStore, key: str, before: datetime) -> bool:
    """Whether an intent was put before that moment; one that is damaged can be no one's."""
    query_id, name = key.split("/")
    try:
        pointer = parse_meta(blobs.get(key), query_id=query_id, pointer_id=name.partition(".")[0])
    except PointerNotFoundError:
        return False
    except CorruptPointerError:
        return True
    created_at = moment_of(pointer.created_at)
    return created_at is None or created_at < before


def _fresh_meta(pointer: ContextPointer) -> bytes:
    """The meta with text that it never had before, so that its version says which put it is from."""
    return encode_json(pointer.model_dump() | {"put": secrets.token_hex(8)}).data


def _call(pointer: ContextPointer) -> tuple[str, str | None, str]:
    return pointer.tool_name, pointer.task_id, pointer.args_sha256 or digest_of(pointer.args)


def _tries() -> Iterator[None]:
    """Comes back at once, then at random and ever longer intervals, so that those who collided do not again."""
    deadline = time.monotonic() + _PATIENCE_S
    pause = _FIRST_PAUSE_S
    while True:
        yield
        if time.monotonic() >= deadline:
            raise LockTimeoutError(
                f"Other writers changed this pointer all the time for {_PATIENCE_S:g} s; save less often under one id"
            )
        time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads the writers, guards nothing
        pause = min(pause * 2, _LONGEST_PAUSE_S)
