"""`Sessions`: the conversations of a door, each with a `Session` over one store."""

import hashlib
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from cachetools import LRUCache

from llm_common.agents.session import Session, SessionConfig
from llm_common.agents.session_results import checked_session_id
from llm_common.errors import InvalidIdError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.store import ContextPointerStore, InMemoryContextPointerStore

DEFAULT_TTL_S: Final = 86_400.0
"""A day: how long a `ShortLivedStore` keeps a result, so that a server does not grow for ever."""

_MAX_SESSION_BYTES: Final = 64_000_000
_GC_PAUSE_S: Final = 3_600.0
_MAX_LIVE: Final = 1_024  # a session that is no longer live is made again from its store
_HASHED: Final = "hashed:"


class ShortLivedStore(InMemoryContextPointerStore):
    """Keeps results in memory for a day, up to 64 MB a session, and frees expired ones hourly."""

    def __init__(self) -> None:
        super().__init__(ttl_s=DEFAULT_TTL_S, max_bytes_per_query=_MAX_SESSION_BYTES)
        self._next_gc_s = time.monotonic() + _GC_PAUSE_S

    async def save(self, **call: Any) -> ContextPointer:
        """Store a result, as `ContextPointerStore.save` does."""
        pointer = await super().save(**call)
        if time.monotonic() > self._next_gc_s:
            self._next_gc_s = time.monotonic() + _GC_PAUSE_S
            await self.gc()
        return pointer


class Sessions:
    """One `Session` for each conversation of a framework, over one store with one config.

    A deep copy, as frameworks make of an agent, is the same object: copies share the store.

    Args:
        store: A store, or the folder of one. None keeps results in memory, for a day and up to
            64 MB a session.
        config: Limits and policies of all sessions.

    Attributes:
        config: As given.
        store: Where the results are.

    Raises:
        StoreError: If a folder is given on a system that is not POSIX.
        TypeError: If `store` is something else.
    """

    def __init__(
        self,
        store: ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        self.config: Final = config or SessionConfig()
        # Without a name of the framework's, all conversations of this object are one session.
        unnamed = Session(
            ShortLivedStore() if store is None else store,
            session_id=f"session_{secrets.token_hex(16)}",
            config=self.config,
        )
        self.store: Final = unnamed.store
        self._unnamed = unnamed
        self._live: LRUCache[str, Session] = LRUCache(_MAX_LIVE)
        self._lock = threading.Lock()

    @classmethod
    def over(
        cls,
        store: "Sessions | ContextPointerStore | Path | str | None" = None,
        config: SessionConfig | None = None,
    ) -> "Sessions":
        """Return the sessions that are given, or new ones over a store."""
        return store if isinstance(store, Sessions) else cls(store, config)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def get(self, conversation_id: object = None) -> Session:
        """Return the session of a conversation.

        Args:
            conversation_id: How the framework names the conversation, such as a text, or a tuple
                of application, user and id. None or "" is one session for all that have no name.
        """
        if conversation_id is None or conversation_id == "":
            return self._unnamed
        session_id = self.session_id_of(conversation_id)
        with self._lock:
            if session_id not in self._live:
                self._live[session_id] = Session(
                    self.store, session_id=session_id, config=self.config
                )
            return self._live[session_id]

    def session_id_of(self, conversation_id: object) -> str:
        """Return the framework's own id where the store allows it, else a hash of it.

        Names of sessions never collide: a hash is not accepted as a name.
        """
        if conversation_id is None or conversation_id == "":
            return self._unnamed.session_id
        if isinstance(conversation_id, str) and not conversation_id.startswith(_HASHED):
            with suppress(InvalidIdError):
                return checked_session_id(conversation_id, self.store.redactor)
        return _HASHED + hashlib.sha256(repr(conversation_id).encode()).hexdigest()[:32]
