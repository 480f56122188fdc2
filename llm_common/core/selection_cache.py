"""`SelectionCache`: replies of models that chose, kept for a while."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from cachetools import TTLCache


class SelectionCache:
    """Model replies, reused for a limited time instead of paid for again.

    Pass one to a selector, or to several. A reply is found again only for the same client, model,
    temperature, schema and prompt, byte for byte, and the same settings and registry. The cache
    holds the reply and not the selection: each use checks it against the current registry or
    candidates. Only replies that led to a selection are kept, never failures. In memory, LRU, safe
    among threads.

    Args:
        ttl_s: Seconds for which a reply is used.
        max_entries: Most replies; the least recently used ones are evicted first.
        clock: Monotonic seconds; for tests.

    Raises:
        ValueError: A limit is not positive.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 300.0,
        max_entries: int = 1_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl_s > 0 or max_entries < 1:
            raise ValueError(
                f"ttl_s is {ttl_s} and max_entries {max_entries}; both must be more than 0"
            )
        # The client is kept with its reply, since the id in the key could otherwise become another
        # client's.
        self._entries: TTLCache[str, tuple[object, str]] = TTLCache(max_entries, ttl_s, timer=clock)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Removes every reply."""
        with self._lock:
            self._entries.clear()

    def get(self, key: str, *, client: object) -> Any:
        """A copy of this client's reply as plain data; None if missing or expired."""
        with self._lock:
            owner, reply = self._entries.get(key, (None, ""))
        return json.loads(reply) if reply and owner is client else None

    def put(self, key: str, reply: object, *, client: object) -> None:
        """Stores a reply; ignores one that is not JSON."""
        try:
            text = json.dumps(reply)
        except (TypeError, ValueError, RecursionError):
            return
        with self._lock:
            self._entries[key] = client, text
