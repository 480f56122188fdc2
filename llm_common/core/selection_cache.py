"""`SelectionCache`: an in-memory cache of the replies that led to a selection."""

import json
import time
from collections.abc import Callable
from typing import Any, Final

from cachetools import TTLCache

from llm_common._threads import ForkSafeLock

_MAX_ENTRIES: Final = 1_000


class SelectionCache:
    """An LRU cache of model replies, which saves the cost of repeated calls.

    Pass one to a selector, or to several. A reply is reused only for the same client, model,
    temperature, schema, settings, registry and prompt, byte for byte. The cache stores the reply
    and not the selection, so each use checks it against the current registry or candidates. It
    stores only replies that led to a selection, never failures, and at most 1,000. In memory and
    thread-safe.

    Args:
        ttl_s: Seconds until a reply expires.
        clock: Returns monotonic seconds. For tests.

    Raises:
        ValueError: If `ttl_s` is not positive.
    """

    def __init__(
        self,
        *,
        ttl_s: float = 300.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not ttl_s > 0:
            raise ValueError(f"ttl_s is {ttl_s}; it must be more than 0")
        self._ttl_s = ttl_s
        self._clock = clock
        self._lock = ForkSafeLock(self._reset)
        self._reset()

    def _reset(self) -> None:
        # The key contains the client's id. Storing the client keeps that id from being reused.
        self._entries: TTLCache[str, tuple[object, str]] = TTLCache(
            _MAX_ENTRIES, self._ttl_s, timer=self._clock
        )

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Remove all replies."""
        with self._lock:
            self._entries.clear()

    def get(self, key: str, *, client: object) -> Any:
        """Return a copy of this client's reply as plain data, or None if missing or expired."""
        # The lock protects reads too, since they reorder and expire entries.
        with self._lock:
            owner, reply = self._entries.get(key, (None, ""))
        return json.loads(reply) if reply and owner is client else None

    def put(self, key: str, reply: object, *, client: object) -> None:
        """Store a reply. Ignores one that is not JSON."""
        try:
            # As text, so that a change of a reply that `get` returned does not reach the cache.
            text = json.dumps(reply)
        except (TypeError, ValueError, RecursionError):
            return
        with self._lock:
            self._entries[key] = client, text
