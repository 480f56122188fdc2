"""Counts the tokens of the stored outputs that a run names."""

from collections.abc import Iterable
from typing import Final

from llm_common.agents import ContextPointer, ContextPointerStore
from llm_common.core import DefaultCounter
from llm_common.errors import InvalidIdError, StoreError
from llm_common.pointers import stored_text
from llm_common.storage import query_id_of
from llm_common.trace import RecordedRun, labels

_MAX_NEW_BYTES: Final = 2_000_000  # of one page, about half a second
_MAX_COUNTS: Final = 10_000


class OutputTokens:
    """Counts each stored output once.

    Args:
        store: The store of the outputs.
    """

    def __init__(self, store: ContextPointerStore) -> None:
        self._store = store
        self._counts: dict[tuple[str, str, str], int] = {}

    def of(self, runs: Iterable[RecordedRun]) -> dict[str, int]:
        """Return the tokens of the outputs of runs, by pointer id, as `DefaultCounter` counts.

        Outputs that are missing or damaged are left out, and those beyond 2 MB that were not
        counted before.
        """
        tokens: dict[str, int] = {}
        if len(self._counts) > _MAX_COUNTS:
            self._counts.clear()
        left_bytes = _MAX_NEW_BYTES
        for run in runs:
            for pointer in self._pointers(run):
                key = (pointer.query_id, pointer.pointer_id, pointer.result_sha256 or "")
                count = self._counts.get(key)
                size = pointer.result_bytes or 0
                if count is None and size <= left_bytes:
                    left_bytes -= size
                    count = self._count(pointer)
                if count is not None:
                    tokens[pointer.pointer_id] = self._counts[key] = count
        return tokens

    def _pointers(self, run: RecordedRun) -> list[ContextPointer]:
        """Return the stored outputs that a run names."""
        try:
            stored = self._store.list(query_id=query_id_of(run.folder))
        except (InvalidIdError, StoreError):  # the traces belong to another store
            return []
        named = labels(run)
        return [pointer for pointer in stored if pointer.pointer_id in named]

    def _count(self, pointer: ContextPointer) -> int | None:
        try:
            _, payload = self._store.load_payload(pointer.pointer_id, query_id=pointer.query_id)
            text = stored_text(payload).text
        except StoreError:
            return None
        return DefaultCounter().count(text)
