"""`ContextRelevanceSelector`: a model picks the stored outputs that a query needs, from their summaries alone."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from pydantic import BaseModel

from llm_common._env import (
    CONTEXT_SELECTION_FAIL_CLOSED,
    CONTEXT_SELECTION_MODEL,
    CONTEXT_SELECTION_TIMEOUT_S,
    TOOL_SELECTION_MODEL,
    read_flag,
    read_float,
    read_text,
)
from llm_common._telemetry import span
from llm_common.core.decision import Asking, Judged, Question, SelectionCache, decide
from llm_common.core.structured import SupportsChat, usage_of
from llm_common.errors import LLMError, LLMTimeoutError, MalformedReplyError
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import Embedder
from llm_common.selection.relevance_prompt import RelevancePrompt, build_relevance_prompt
from llm_common.selection.relevance_ranking import rank_pointers, selection_cap
from llm_common.selection.results import (
    DroppedId,
    RelevanceSelection,
    SelectionStatus,
    distinct,
    explained,
)
from llm_common.text.fence import one_line

__all__ = ["ContextRelevanceSelector", "LexicalRelevanceSelector"]


class LexicalRelevanceSelector:
    """Picks the pointers that a query needs by full-text ranking and recency (see `rank_pointers`).

    Takes the place of `ContextRelevanceSelector` where no model is at hand. Deterministic; may be shared by tasks.

    Args:
        max_selected: Most pointers to keep; None takes `LLM_COMMON_CONTEXT_SELECTION_MAX_POINTERS`, else 6.
        embedder: Knows which texts mean something alike, such as `StaticVectors` of the extra `embeddings`: worth a few
            hundredths of recall; None ranks without.

    Raises:
        ValueError: `max_selected` is negative.
        ConfigError: The variable does not hold a number.
    """

    def __init__(self, max_selected: int | None = None, *, embedder: Embedder | None = None) -> None:
        self._max_selected = selection_cap(max_selected)
        self._embedder = embedder

    async def select(self, *, query: str, pointers: Sequence[ContextPointer]) -> list[ContextPointer]:
        """The pointers of `select_detailed`, best first."""
        return (await self.select_detailed(query=query, pointers=pointers)).pointers

    async def select_detailed(self, *, query: str, pointers: Sequence[ContextPointer]) -> RelevanceSelection:
        """The best pointers with an account of the choice; runs in a thread, so the event loop stays free.

        Args:
            query: What the next model call is to answer; with the last message of the assistant it ranks better.
            pointers: The candidates.

        Returns:
            At most `max_selected` pointers, best first. None, with the status `empty`, when no candidate shares a word
            with the query: recency alone never chooses.
        """
        candidates = distinct(pointers)
        if not candidates or not self._max_selected:
            return RelevanceSelection(status="no_candidates", used="lexical", choices=explained(candidates, []))
        with span("pointers.select", used="lexical", candidates=len(candidates)) as current:
            ranked = await asyncio.to_thread(rank_pointers, query, candidates, embedder=self._embedder)
            related = ranked if any(entry.matches for entry in ranked) else []
            kept = [entry.pointer for entry in related[: self._max_selected]]
            current.set_attribute("selected", len(kept))
        return RelevanceSelection(
            pointers=kept,
            status="ok" if kept else "empty",
            used="lexical",
            choices=explained(candidates, kept, over_the_cap=[entry.pointer for entry in related[len(kept) :]]),
        )


_log = logging.getLogger(__name__)

_MOST_DROPPED: Final = 100
_LONGEST_TIMEOUT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class _Chosen:
    pointers: list[ContextPointer]
    dropped: list[DroppedId]


class _Reply(BaseModel):
    pointer_ids: list[object]


class ContextRelevanceSelector:
    """Picks the pointers that a query needs by asking a model, once where its answer can be used.

    The model sees the query and each candidate's id and summary, never a result, an argument, a path or a URL of its
    own. A failure of any kind selects nothing, unless `fail_closed` is False. May be shared by tasks.

    Args:
        client: What answers.
        model: Name at the endpoint; None takes `LLM_COMMON_CONTEXT_SELECTION_MODEL`, else
            `LLM_COMMON_TOOL_SELECTION_MODEL`, else the client's default.
        max_selected: Most pointers to keep; None takes `LLM_COMMON_CONTEXT_SELECTION_MAX_POINTERS`, else 6. 0 selects
            nothing and asks nothing.
        fail_closed: False: a failed selection is the local ranking's, at most `max_selected` pointers that share a
            word with the query. None takes `LLM_COMMON_CONTEXT_SELECTION_FAIL_CLOSED`, else True.
        timeout_s: Seconds for one model call; None takes `LLM_COMMON_CONTEXT_SELECTION_TIMEOUT_S`, else 30.
        include_digest: Shows the model each candidate's digest of its result too, at most 1,000 characters.
        fallback_model: Asked once when the first gave nothing usable, unless the key was refused or the budget spent;
            may be the same. None asks nobody else.
        deadline_s: Seconds for a whole selection, which its attempts share; None is `timeout_s` for each model that
            may be asked.
        cache: Where replies to the same question are kept for a while; None asks the model every time.

    Raises:
        ValueError: `max_selected` is negative, or `timeout_s` or `deadline_s` is not positive.
        ConfigError: A variable holds something else than it should; it is read when the selector is made.
    """

    def __init__(
        self,
        client: SupportsChat,
        model: str | None = None,
        max_selected: int | None = None,
        fail_closed: bool | None = None,
        *,
        timeout_s: float | None = None,
        include_digest: bool = False,
        fallback_model: str | None = None,
        deadline_s: float | None = None,
        cache: SelectionCache | None = None,
    ) -> None:
        self._client = client
        self._model = (
            model or read_text(CONTEXT_SELECTION_MODEL) or read_text(replace(TOOL_SELECTION_MODEL, default=""))
        )
        self._max_selected = selection_cap(max_selected)
        self._fail_closed = read_flag(CONTEXT_SELECTION_FAIL_CLOSED) if fail_closed is None else fail_closed
        if timeout_s is None:
            timeout_s = read_float(CONTEXT_SELECTION_TIMEOUT_S, minimum=0.001, maximum=_LONGEST_TIMEOUT_S) or 0.0
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}; it must be more than 0")
        if deadline_s is None:
            deadline_s = timeout_s * (1 if fallback_model is None else 2)
        if not deadline_s > 0:
            raise ValueError(f"deadline_s is {deadline_s}; it must be more than 0")
        self._timeout_s = timeout_s
        self._deadline_s = deadline_s
        self._fallback_model = fallback_model
        self._cache = cache
        self._include_digest = include_digest

    async def select(self, *, query: str, pointers: Sequence[ContextPointer]) -> list[ContextPointer]:
        """The pointers of `select_detailed`, most useful first."""
        return (await self.select_detailed(query=query, pointers=pointers)).pointers

    async def select_detailed(self, *, query: str, pointers: Sequence[ContextPointer]) -> RelevanceSelection:
        """The pointers that the model chose, with an account of it; at most one model call, two with a fallback.

        The order is the model's. Entries that are not ids of candidates it was shown, and repeats, are dropped before
        the list is cut to `max_selected`. At most 200 candidates are shown, in less than 64 KB; of more, the local
        ranking takes the most relevant ones.

        Args:
            query: What the next model call is to answer.
            pointers: The candidates.

        Returns:
            The selection. Failures of the client and of the reply are its `status`, never raised.
        """
        candidates = distinct(pointers)
        if not candidates or not self._max_selected:
            return RelevanceSelection(status="no_candidates", used="model", choices=explained(candidates, []))
        with span("pointers.select", used="model", candidates=len(candidates)) as current:
            selection = await self._choose(query, candidates)
            current.set_attribute("status", selection.status)
            current.set_attribute("selected", len(selection.pointers))
        return selection

    async def _choose(self, query: str, candidates: list[ContextPointer]) -> RelevanceSelection:
        ends_at = asyncio.get_running_loop().time() + self._deadline_s
        prompt = await asyncio.to_thread(
            build_relevance_prompt, query, candidates, most=self._max_selected, include_digest=self._include_digest
        )
        asking = Asking(
            client=self._client,
            model=self._model,
            fallback_model=self._fallback_model,
            timeout_s=self._timeout_s,
            ends_at=ends_at,
            cache=self._cache,
        )
        decision = await decide(_question(prompt), asking)
        judged = decision.judged
        chosen = judged.choice.pointers if judged else []
        status = _status_of(decision.error, judged)
        used: Literal["model", "lexical"] = "model"
        if status not in {"ok", "empty"}:
            _log.warning("the model chose no pointers: %s", status)
            if not self._fail_closed:
                used = "lexical"
                ranked = await asyncio.to_thread(rank_pointers, query, candidates)
                chosen = [entry.pointer for entry in ranked if entry.matches]
        kept, over_the_cap = chosen[: self._max_selected], chosen[self._max_selected :]
        shown_ids = {pointer.pointer_id for pointer in prompt.shown}
        not_shown = [pointer for pointer in candidates if pointer.pointer_id not in shown_ids]
        attempts = decision.attempts
        return RelevanceSelection(
            pointers=kept,
            status=status,
            used=used,
            attempts=attempts,
            model=attempts[-1].model if attempts else None,
            usage=usage_of(attempts) if any(attempt.usage for attempt in attempts) else None,
            choices=explained(candidates, kept, over_the_cap=over_the_cap, not_shown=not_shown),
            dropped=tuple(judged.choice.dropped) if judged else (),
            not_shown=len(not_shown),
            tokens_saved=prompt.tokens_saved,
            cached=decision.cached,
        )


def _question(prompt: RelevancePrompt) -> Question[_Reply, _Chosen]:
    return Question(
        messages=lambda wrong: prompt.messages(wrong=wrong),
        reply_model=_Reply,
        judge=lambda reply: _judge(reply, prompt.shown),
        json_schema=prompt.json_schema,
    )


def _judge(reply: _Reply, shown: Sequence[ContextPointer]) -> Judged[_Chosen]:
    chosen = _matched(reply.pointer_ids, shown)
    if reply.pointer_ids and not chosen.pointers:
        wrong = "It named no id of a candidate; copy ids from the candidates"
        return Judged(chosen, 0, usable=False, wrong=wrong, reason="no_valid_id")
    return Judged(chosen, len(chosen.pointers))


def _matched(entries: Sequence[object], shown: Sequence[ContextPointer]) -> _Chosen:
    """The candidates that the entries name, in the order of the entries, and what names none or one again."""
    known = {pointer.pointer_id.strip().lower(): pointer for pointer in shown}
    chosen: dict[str, ContextPointer] = {}
    dropped: list[DroppedId] = []
    for entry in entries:
        key = entry.strip().lower() if isinstance(entry, str) else ""
        if key in chosen or key not in known:
            reason: Literal["unknown", "repeat"] = "repeat" if key in chosen else "unknown"
            if len(dropped) < _MOST_DROPPED:
                dropped.append(DroppedId(id=one_line(str(entry), max_chars=80), reason=reason))
        else:
            chosen[key] = known[key]
    return _Chosen(list(chosen.values()), dropped)


def _status_of(error: LLMError | None, judged: Judged[_Chosen] | None) -> SelectionStatus:
    if judged is not None and judged.usable:
        return "ok" if judged.count else "empty"
    if isinstance(error, LLMTimeoutError):
        return "timeout"
    return "error" if error is not None and not isinstance(error, MalformedReplyError) else "invalid"
