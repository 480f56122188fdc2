"""`SessionHistory`: what a session pins, folds and has in its prompt."""

import logging
import sys
from collections.abc import Sequence
from functools import partial

from llm_common._threads import in_thread
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.saved import View
from llm_common.agents.session.trace import SessionTrace
from llm_common.history.fold import Folded, fold, refers_to_results, results_in_view
from llm_common.history.folding import FoldPolicy
from llm_common.history.message_shapes import Message, last_question
from llm_common.history.pins import pinned_text
from llm_common.pointers.store import ContextPointerStore

_log = logging.getLogger(__name__)


class SessionHistory:
    """The pins and the folded messages of one session.

    Args:
        store: Keeps the folded messages.
        session_id: The session.
        config: The limits and policies.
        trace: Records what is folded.

    Attributes:
        newest: The newest folded prompt. None before the first.
    """

    def __init__(
        self,
        store: ContextPointerStore,
        session_id: str,
        config: SessionConfig,
        trace: SessionTrace,
    ) -> None:
        self.newest: Folded | None = None
        self._store = store
        self._session_id = session_id
        self._config = config
        self._trace = trace
        self._pins: dict[str, None] = {}  # ordered

    def pin(self, content: str | Message) -> None:
        """Keep a text in every folded prompt. See `Session.pin`."""
        self._pins[pinned_text(content)] = None

    def view(self, messages: Sequence[Message]) -> View:
        """Return a function that tells which results the folded messages show."""
        return partial(
            results_in_view,
            messages,
            session_id=self._session_id,
            policy=self._config.named_fold,
            counter=self._config.counter,
            pinned=(*self._config.pinned, *self._pins),
        )

    async def fold(
        self, messages: Sequence[Message], pinned: Sequence[str | Message]
    ) -> list[Message]:
        """Return the messages to send. See `Session.fold`."""
        pins = (*self._config.pinned, *self._pins, *pinned)
        policy = self._config.named_fold
        if policy is None:
            # The caller may have dropped a result to which a later output refers.
            if not pins and not await in_thread(refers_to_results, messages):
                return list(messages)
            policy = FoldPolicy(max_tokens=sys.maxsize)  # nothing is folded, pins come first
        with self._trace.recorded(lambda: last_question(messages)):
            folded = await fold(
                messages,
                store=self._store,
                session_id=self._session_id,
                policy=policy,
                counter=self._config.counter,
                ttl_s=self._config.ttl_s,
                pinned=pins,
            )
        self.newest = folded
        if folded.parts:
            _log.debug(
                "%d of %d messages are sent, %d tokens; %d parts are stored",
                len(folded.messages),
                len(messages),
                folded.tokens,
                len(folded.parts),
            )
        return list(folded.messages)
