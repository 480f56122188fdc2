"""`CommitBatch`: first versions of several pointers, committed together in less time than one after another."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from llm_common.errors import StoreError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import NewVersion, PointerRecords, RecordWriter

__all__ = ["CommitBatch"]

Made = TypeVar("Made")


class CommitBatch:
    """A `RecordWriter` for several changes of one query under its lock, which keeps first versions until the end.

    They are flushed together and share the flush of their folder. Whatever would see that they are not there yet,
    such as a second save of the same call, lets them be committed first.

    Args:
        query_id: The query.
        records: What writes them, and each version alone when all together are refused.
    """

    def __init__(self, query_id: str, records: PointerRecords) -> None:
        self._query_id = query_id
        self._records = records
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
        return self._records.recover(query_id, pointer_id)

    def commit(self, version: NewVersion, *, replaces: bool) -> None:
        """Makes the version the visible one, a first one at the end of the batch."""
        if replaces:
            self._records.commit(version, replaces=True)
        else:
            self._waiting.append((self._number, version))

    def update(self, pointer: ContextPointer) -> None:
        """As the records do it."""
        self._settle()
        self._records.update(pointer)

    def finish(self, query_id: str, pointer_id: str, *, before: datetime) -> None:
        """As the records do it."""
        self._settle()
        self._records.finish(query_id, pointer_id, before=before)

    def remove(self, query_id: str, pointer_id: str, *, settle: bool) -> None:
        """As the records do it."""
        self._settle()
        self._records.remove(query_id, pointer_id, settle=settle)

    def _settle(self) -> None:
        """Commits what waits: all together, or, where one of them is refused, each alone."""
        waiting, self._waiting = self._waiting, []
        if len(waiting) > 1:
            try:
                self._records.commit_first(self._query_id, [version for _, version in waiting])
            except StoreError:
                pass
            else:
                return
        for number, version in waiting:
            try:
                self._records.commit(version, replaces=False)
            except StoreError as exc:
                self._refused[number] = exc
