"""`ResultCache`: small stored results that also stay in memory, within a bound."""

import threading
from collections import OrderedDict

__all__ = ["ResultCache"]

Key = tuple[str, str]


class ResultCache:
    """Bytes by query and pointer id; what was used longest ago goes first. Safe among threads.

    Args:
        max_item_bytes: Longer results are not kept.
        max_bytes: Most bytes of all together.
    """

    def __init__(self, *, max_item_bytes: int, max_bytes: int) -> None:
        self._max_item_bytes = max_item_bytes
        self._max_bytes = max_bytes
        self._bytes = 0
        self._results: OrderedDict[Key, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def takes(self, size: int | None) -> bool:
        """Whether a result of that many bytes would be kept."""
        return size is not None and size <= self._max_item_bytes

    def put(self, key: Key, payload: bytes) -> None:
        """Keeps a result in place of what was there."""
        with self._lock:
            self._drop(key)
            if not self.takes(len(payload)):
                return
            self._results[key] = payload
            self._bytes += len(payload)
            while self._bytes > self._max_bytes:
                self._drop(next(iter(self._results)))

    def get(self, key: Key) -> bytes | None:
        """The result, None when it is not kept."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
            return self._results.get(key)

    def clear(self) -> None:
        """Keeps nothing."""
        with self._lock:
            self._results.clear()
            self._bytes = 0

    def __len__(self) -> int:
        return len(self._results)

    def _drop(self, key: Key) -> None:
        self._bytes -= len(self._results.pop(key, b""))
