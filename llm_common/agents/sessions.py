"""`Sessions`: a `Session` for each conversation of a framework or server."""

import atexit
import hashlib
import logging
import secrets
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self

from llm_common._threads import SharedCache
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.saved import checked_session_id
from llm_common.agents.session.session import Session
from llm_common.errors import InvalidIdError, StoreError
from llm_common.pointers.store import (
    ContextPointerStore,
    FileContextPointerStore,
    InMemoryContextPointerStore,
)
from llm_common.tools.tool import Tool

DEFAULT_TTL_S: Final = 86_400.0
"""A day: how long results live after their last save or read, if `Sessions` has its own store."""

# In the memory of a server with many sessions, where the system has no file store.
_MAX_SESSION_BYTES: Final = 64_000_000
_MAX_LIVE: Final = 1_024  # an evicted session is created again over the same store
_HASHED: Final = "hashed:"

_log = logging.getLogger(__name__)


def _default_store() -> ContextPointerStore:
    """Return the file store in the default folder, or one in memory without POSIX."""
    try:
        return FileContextPointerStore()
    except StoreError:
        # A framework worked on this system before it had the hook, and has to go on.
        _log.warning(
            "results are kept in memory and end with this process, because the file store needs a "
            "POSIX system; pass store=ObjectContextPointerStore(...) to keep them"
        )
        return InMemoryContextPointerStore(max_bytes_per_query=_MAX_SESSION_BYTES)


class Sessions:
    """The sessions of a framework's conversations, over one store with one config.

    Frameworks copy their agents deeply. A deep copy of this object is the object itself, so the
    copies share the store.

    Args:
        store: A store, or the folder of a file store. None takes the default folder of
            `FileContextPointerStore`, `.llm-common/context`, and removes a result a day after it
            was last saved or read. On a system without POSIX it keeps results in memory, and logs a
            warning.
        config: Limits and policies of all sessions. None takes the defaults.
        clear_on_exit: True removes everything of the conversations that this object served when
            the process ends. By default nothing is removed, since a conversation that is resumed
            still names it.

    Attributes:
        config: The limits and policies.
        store: The store of the results.

    Raises:
        StoreError: If a folder is given on a system that is not POSIX.
        TypeError: If `store` is something else.
    """

    def __init__(
        self,
        store: ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
        *,
        clear_on_exit: bool = False,
    ) -> None:
        config = config or SessionConfig()
        if store is None:
            store = _default_store()
            if config.ttl_s is None:
                config = replace(config, ttl_s=DEFAULT_TTL_S)
        self.config: Final = config
        # Some frameworks do not name their conversations. These share one session.
        # Its id is random, so that two processes over one store have different ones.
        unnamed = Session(store, session_id=f"session_{secrets.token_hex(16)}", config=self.config)
        self.store: Final = unnamed.store
        self._unnamed = unnamed
        # Two threads of a framework must get the same session, with the same turns.
        self._live: SharedCache[str, Session] = SharedCache(_MAX_LIVE)
        self._warned = False
        self._served: set[str] | None = None
        if clear_on_exit:
            self._served = set()
            atexit.register(self._clear_served)

    @classmethod
    def over(
        cls,
        store: "Sessions | ContextPointerStore | Path | str | None" = None,
        config: SessionConfig | None = None,
    ) -> "Sessions":
        """Return `store` itself if it is a `Sessions`, or new sessions over a store."""
        return store if isinstance(store, Sessions) else cls(store, config)

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def get(self, conversation_id: object = None) -> Session:
        """Return the session of a conversation.

        Args:
            conversation_id: The framework's name of the conversation, such as a text, or a tuple
                of application, user and id. All conversations with None or "" share one session.
        """
        session_id = self.session_id_of(conversation_id)
        if session_id == self._unnamed.session_id and not self._warned:
            self._warned = True
            _log.warning(
                "a conversation has no id, so it shares one session with all others without one, "
                "and no other process can read its results; name it as the framework does"
            )
        return self.with_id(session_id)

    def with_id(self, session_id: str) -> Session:
        """Return the session with an id that `session_id_of`, or another `Sessions`, returned."""
        if self._served is not None:
            self._served.add(session_id)
        if session_id == self._unnamed.session_id:
            return self._unnamed
        make = partial(Session, self.store, session_id=session_id, config=self.config)
        return self._live.get_or_make(session_id, make)

    def tools(self) -> tuple[Tool, ...]:
        """Return the tools as every session has them, for their definitions.

        Raises:
            ConfigError: If a name is not allowed.
        """
        return self._unnamed.tools()

    def _clear_served(self) -> None:
        for session_id in self._served or ():
            try:
                self.store.delete(query_id=session_id)
            except StoreError as exc:
                _log.warning("a conversation was not removed: %s", type(exc).__name__)

    def session_id_of(self, conversation_id: object) -> str:
        """Return the framework's id where the store allows it, else a hash of it.

        Session ids never collide, since the prefix of a hash is not accepted in an id. The query id
        of a run is hashed too, since it would open the run.
        """
        if conversation_id is None or conversation_id == "":
            return self._unnamed.session_id
        if isinstance(conversation_id, str) and not conversation_id.startswith(_HASHED):
            with suppress(InvalidIdError):
                return checked_session_id(conversation_id, self.store.redactor)
        # `repr` tells a tuple from a text that looks like it, and escapes lone surrogates.
        return _HASHED + hashlib.sha256(repr(conversation_id).encode()).hexdigest()[:32]
