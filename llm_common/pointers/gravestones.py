"""`Gravestones`: which pointers are gone, and why, without a trace of what they were."""

import hashlib
import logging
import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import partial
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llm_common.errors import PointerNotFoundError, StoreError
from llm_common.storage import OWN_FOLDER, ConditionalBlobStore, LockingBlobStore

__all__ = ["Gravestones", "Reason"]

Reason = Literal["expired", "erased"]

_MOST_OF_A_STONE: Final = 1_024
_KEPT: Final = timedelta(days=30)
_TRIES: Final = 100

_log = logging.getLogger(__name__)


class _Stone(BaseModel):
    """One blob: which tags died, when and of what; the oldest first."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    salt: str = Field(default_factory=lambda: secrets.token_hex(16))
    gone: dict[str, tuple[Reason, date]] = Field(default_factory=dict)

    def tag(self, query_id: str, pointer_id: str) -> str:
        name = f"{query_id}/{pointer_id}".encode()
        return hashlib.blake2b(name, key=bytes.fromhex(self.salt), digest_size=8).hexdigest()


class Gravestones:
    """Remembers for a month that a pointer expired or was erased, so that a miss can say so in every process.

    Kept in the store's own folder, outside of the queries', so that an erased query leaves nothing of itself: neither
    names nor ids nor contents, only salted 8-byte hashes, and the day. Who guesses a query and a pointer's id can find
    the guess confirmed, as he can by asking the store; nothing can be read off.

    Bounded: 256 blobs, chosen by a hash of the query, of the newest 1,024 pointers each, 14 MB at most. What is
    forgotten is a miss of unknown reason. A stone that is damaged, or cannot be written since the disk is full, is no
    error: the reason is a courtesy, and erasing must not depend on it.

    Args:
        blobs: Where the stones are.
    """

    def __init__(self, blobs: LockingBlobStore | ConditionalBlobStore) -> None:
        self._blobs = blobs
        if isinstance(blobs, LockingBlobStore):
            self._change = partial(_change_locked, blobs)
        else:
            self._change = partial(_change_on_condition, blobs)

    def reason(self, query_id: str, pointer_id: str) -> Literal["expired", "erased", "unknown"]:
        """Why the pointer is not there."""
        with suppress(StoreError):
            stone = _parse(self._blobs.get(_key(query_id)))
            return stone.gone.get(stone.tag(query_id, pointer_id), ("unknown", None))[0]
        return "unknown"

    def mark(self, query_id: str, pointer_ids: Collection[str], reason: Reason, *, now: datetime) -> bool:
        """Notes why these pointers go; before they do, so that none is ever gone without a reason.

        Returns:
            False when it could not be noted.
        """
        if not pointer_ids:
            return True

        def add(stone: _Stone) -> _Stone:
            tags = dict.fromkeys((stone.tag(query_id, pointer_id) for pointer_id in pointer_ids), (reason, now.date()))
            gone = {tag: how for tag, how in stone.gone.items() if tag not in tags} | tags
            return stone.model_copy(update={"gone": dict(list(gone.items())[-_MOST_OF_A_STONE:])})

        try:
            self._change(_key(query_id), add)
        except StoreError as exc:
            _log.warning("why %d pointers are gone could not be noted: %s", len(pointer_ids), type(exc).__name__)
            return False
        return True

    def forget(self, *, now: datetime) -> int:
        """How many pointers are no longer remembered, since they went over a month ago."""
        oldest = (now - _KEPT).date()
        forgotten = 0
        for key in self._blobs.list(OWN_FOLDER):
            with suppress(PointerNotFoundError):
                stone = _parse(self._blobs.get(key))
                old = [tag for tag, (_, day) in stone.gone.items() if day < oldest]
                forgotten += len(old)
                if old:
                    self._change(key, partial(_without, tags=frozenset(old)))
        return forgotten


def _key(query_id: str) -> str:
    return f"{OWN_FOLDER}/gone-{hashlib.sha256(query_id.encode()).hexdigest()[:2]}"


def _change_locked(blobs: LockingBlobStore, key: str, change: Callable[[_Stone], _Stone]) -> None:
    with blobs.lock(OWN_FOLDER):
        try:
            stone = _parse(blobs.get(key))
        except PointerNotFoundError:
            stone = _Stone()
        blobs.put(key, _bytes(change(stone)))


def _change_on_condition(blobs: ConditionalBlobStore, key: str, change: Callable[[_Stone], _Stone]) -> None:
    for _ in range(_TRIES):
        try:
            data, version = blobs.get_version(key)
        except PointerNotFoundError:
            data, version = b"", None
        if blobs.put_if(key, _bytes(change(_parse(data))), replaces=version):
            return
    raise StoreError("Other writers changed the store's own notes all the time; try again later")


def _bytes(stone: _Stone) -> bytes:
    return stone.model_dump_json().encode()


def _without(stone: _Stone, tags: frozenset[str]) -> _Stone:
    return stone.model_copy(update={"gone": {tag: how for tag, how in stone.gone.items() if tag not in tags}})


def _parse(data: bytes) -> _Stone:
    """The stone, a new one for a damaged one."""
    try:
        return _Stone.model_validate_json(data)
    except ValidationError:
        return _Stone()
