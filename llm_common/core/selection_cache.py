"""`SelectionCache`: answers that were given to the same question before."""

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llm_common.core.models import LLMMessage

__all__ = ["SelectionCache", "cache_key"]


@dataclass(frozen=True, slots=True)
class _Entry:
    client: object  # held, so that another client can never have its id
    reply: str
    expires_at: float


class SelectionCache:
    """Replies of models, to be read again instead of paid for again, for a while and up to a number.

    Pass one to a selector, or to several. A reply is found again only for the same client, model, temperature, schema
    and prompt, byte for byte, and the same settings and registry. What is kept is the reply and not the selection: it
    is held against the registry or the candidates of the day each time. Only what led to a selection is kept; failures
    never are. In memory; for the tasks of one event loop.

    Args:
        ttl_s: Seconds for which a reply is used; what it names may be out of date then.
        max_entries: Most replies; the ones used longest ago go first.
        clock: Seconds that never run backwards; for tests.

    Raises:
        ValueError: A limit is not positive.
    """

    def __init__(
        self, *, ttl_s: float = 300.0, max_entries: int = 1_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not ttl_s > 0 or max_entries < 1:
            raise ValueError(f"ttl_s is {ttl_s} and max_entries {max_entries}; both must be more than 0")
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forgets every reply."""
        self._entries.clear()

    def get(self, key: str, *, client: object) -> Any:
        """The reply as data of its own, or None when there is none of this client, or none that is young enough."""
        entry = self._entries.get(key)
        if entry is None or entry.client is not client:
            return None
        if self._clock() >= entry.expires_at:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return json.loads(entry.reply)

    def put(self, key: str, reply: object, *, client: object) -> None:
        """Keeps a reply; one that JSON cannot hold is not kept."""
        try:
            text = json.dumps(reply)
        except (TypeError, ValueError, RecursionError):
            return
        self._entries[key] = _Entry(client, text, self._clock() + self._ttl_s)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


def cache_key(
    client: object,
    messages: Sequence[LLMMessage],
    *,
    model: str | None,
    temperature: float,
    json_schema: Mapping[str, Any] | None,
    scope: str,
) -> str:
    """One digest of everything that a reply depends on; `scope` is what the caller adds."""
    prompt = [message.model_dump(exclude_none=True) for message in messages]
    asked = [id(client), model, temperature, json_schema and dict(json_schema), scope, prompt]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
