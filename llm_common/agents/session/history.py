"""`SessionHistory`: what a session pins, folds and has in its prompt.

An overview tells the model what that is, in at most 150 tokens, for the tail of a prompt.
"""

import logging
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from llm_common._threads import in_thread
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.saved import SavedResults, View
from llm_common.agents.session.trace import SessionTrace
from llm_common.history.folding import Folded, fold, refers_to_results, results_in_view
from llm_common.history.message_shapes import Message, last_question
from llm_common.history.pins import pinned_text
from llm_common.history.policy import HISTORY_TOOL, FoldPolicy
from llm_common.pointers.pointer import ContextPointer
from llm_common.text.display import in_fence, one_line

_MAX_TOKENS: Final = 150  # of an overview: small enough for every prompt of a conversation
_MAX_ITEMS: Final = 10  # of each kind: more do not fit
_LINE_CHARS: Final = 100

_log = logging.getLogger(__name__)


class SessionHistory:
    """The pins and the folded messages of one session.

    Args:
        saved: The results of the session, whose store keeps the folded messages.
        config: The limits and policies.
        trace: Records what is folded.

    Attributes:
        newest: The newest folded prompt. None before the first.
    """

    def __init__(self, saved: SavedResults, config: SessionConfig, trace: SessionTrace) -> None:
        self.newest: Folded | None = None
        self._saved = saved
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
            session_id=self._saved.session_id,
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
                store=self._saved.store,
                session_id=self._saved.session_id,
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

    def overview(self, pointers: Sequence[ContextPointer]) -> str:
        """Return what is in the newest prompt and behind pointers. See `Session.overview`.

        Args:
            pointers: The stored results, newest first.
        """
        if self.newest is None and not pointers:
            return "No results are stored."
        sentences = []
        if self.newest is not None:
            roles = [f"{role} {tokens:,}" for role, tokens in self.newest.role_tokens.items()]
            policy = self._config.fold
            limit = f" of {policy.max_tokens:,}" if policy is not None else ""
            sentences.append(
                f"Your context: {self.newest.tokens:,}{limit} tokens ({', '.join(roles)})."
            )
        if pointers:
            sentences.append(_stored_line(pointers, self._config.offload.reader_name))
        text = head = "\n".join(sentences)
        lines: list[str] = []
        for pointer in pointers[:_MAX_ITEMS]:
            summary = one_line(pointer.summary, max_chars=_LINE_CHARS)
            lines.append(f"{pointer.pointer_id}: {summary}")
            longer = f"{head}\n{in_fence(chr(10).join(lines))}"
            if self._config.counter.count(longer) > _MAX_TOKENS:
                break
            text = longer
        return text


def _stored_line(pointers: Sequence[ContextPointer], reader_name: str) -> str:
    """Return what is behind pointers, by kind."""
    messages = [pointer for pointer in pointers if pointer.tool_name == HISTORY_TOOL]
    parts = []
    results = len(pointers) - len(messages)
    if results:
        parts.append(f"{results} results")
    if messages:
        parts.append(f"{len(messages)} parts of the conversation")
    size_bytes = sum(pointer.result_bytes or 0 for pointer in pointers)
    line = f"{' and '.join(parts)} are stored, newest first, {size_bytes:,} bytes."
    return f"{line} {reader_name} reads them."
