"""`CommitBatch`: first versions of several pointers, committed together in less time than one after another."""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import chain
from typing import TypeVar

from llm_common.agents.pointers.pointer import ContextPointer
from llm_common.agents.pointers.records import NewVersion, RecordWriter
from llm_common.errors import StoreError
from llm_common.storage import LockingBlobStore

__all__ = ["CommitBatch"]

Made = TypeVar("Made")


class CommitBatch:
    """A `RecordWriter` for several changes of one query under its lock, which keeps first versions until the end.

    They are flushed together and share the flush of their folder. Whatever would see that they are not there yet,
    such as a second save of the same call, lets them be committed first.

    Args:
        query_id: The query.
        writer: What else is written by, and each version alone when all together are refused.
        blobs: Where the writer's bytes are.
    """

    def __init__(self, query_id: str, writer: RecordWriter, blobs: LockingBlobStore) -> None:
        self._query_id = query_id
        self._writer = writer
        self._blobs = blobs
        self._number = 0
        self._waiting: list[tuple[int, NewVersion]] = []
        self._refused: dict[int, StoreError] = {}

    def make(self, changes: Sequence[Callable[[RecordWriter], Made]]) -> list[Made | StoreError]:
        """What each change returns, or the error with which it, or the commit of its version, ended."""
        outcomes: list[Made | StoreError] = []
        for self._number, change in enumerate(changes):
            try:
                outcomes.append(change(self))
            except StoreError as exc:
                outcomes.append(exc)
        self._settle()
        return [self._refused.get(number, outcome) for number, outcome in enumerate(outcomes)]

    def recover(self, query_id: str, pointer_id: str) -> ContextPointer | None:
        """The committed pointer, if any; one that waits is committed first."""
        if any(version.pointer_id == pointer_id for _, version in self._waiting):
            self._settle()
        return self._writer.recover(query_id, pointer_id)

    def commit(self, version: NewVersion, *, replaces: bool) -> None:
        """Makes the version the visible one, a first one at the end of the batch."""
        if replaces:
            self._writer.commit(version, replaces=True)
        else:
            self._waiting.append((self._number, version))

    def update(self, pointer: ContextPointer) -> None:
        """As the writer does it."""
        self._settle()
        self._writer.update(pointer)

    def finish(self, query_id: str, pointer_id: str, *, before: datetime) -> None:
        """As the writer does it."""
        self._settle()
        self._writer.finish(query_id, pointer_id, before=before)

    def remove(self, query_id: str, pointer_id: str, *, settle: bool) -> None:
        """As the writer does it."""
        self._settle()
        self._writer.remove(query_id, pointer_id, settle=settle)

    def _settle(self) -> None:
        """Commits what waits: all together, or, where one of them is refused, each alone."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) > 1:
            try:
                self._blobs.put_all(self._query_id, chain.from_iterable(version.blobs() for _, version in waiting))
            except StoreError:
                pass
            else:
                return
        for number, version in waiting:
            try:
                self._writer.commit(version, replaces=False)
            except StoreError as exc:
                self._refused[number] = exc
