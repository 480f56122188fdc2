"""Weigh the best items of a pool by one call of a decision model."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from llm_common._threads import in_thread
from llm_common.context.bundle import JudgeAccount
from llm_common.context.packing.candidate import REFUSED
from llm_common.context.request import (
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    Score,
    Scores,
)
from llm_common.core.structured import usage_of
from llm_common.core.two_attempts import CallOptions, Verdict, ask_with_fallback
from llm_common.decisions.questions import DecisionClient
from llm_common.decisions.weighing import DEFAULT_CANDIDATES, Questions, weighing_questions
from llm_common.errors import NoThreadError
from llm_common.selection.results import Weight
from llm_common.text.display import excerpt_text, in_fence, one_line, printable, to_json

_MAX_ITEM_CHARS: Final = 600
_MAX_QUERY_CHARS: Final = 8_000
# Share of the model in a score. Chosen on bfcl_memory and 60 queries of qmsum with a scripted model
# that is right nine times in ten. With .3 it made no set worse, and with .5 it did.
_JUDGE_SHARE: Final = 0.3
_BY_WORDS: Final = "ranked by words alone: "

_Key = tuple[Kind, str]
_Questions = Questions[Mapping[str, Weight]]


async def judge_items(
    client: DecisionClient,
    pool: DataPoolSnapshot,
    request: ContextSelectionRequest,
    scores: Scores,
    *,
    timeout_s: float,
) -> tuple[Scores, JudgeAccount]:
    """Add a decision model's probabilities to the scores as the part `judge`.

    The model weighs the 40 best items that may be packed, of all kinds but the project. Its
    probability that an item helps becomes three tenths of the item's score, and the former score
    seven tenths. Every other score is scaled down too, so that no item overtakes a weighed one
    without being weighed.

    Args:
        client: Called once, if there is an item to weigh.
        pool: The items.
        request: The request that the items should help with.
        scores: From `score_pool`.
        timeout_s: Seconds for the whole call.

    Returns:
        The new scores with an account of the call, or the old scores after any failure.
    """
    # One deadline for the wait for a thread and for the call.
    ends_at = asyncio.get_running_loop().time() + timeout_s
    try:
        async with asyncio.timeout_at(ends_at):
            questions, keys = await in_thread(_questions, pool, request, scores)
    except (TimeoutError, NoThreadError):  # words still rank the items
        return scores, JudgeAccount(
            status="error", items=0, note=f"{_BY_WORDS}no thread was free in time"
        )
    if questions is None:
        return scores, JudgeAccount(status="no_candidates", items=0)
    options = CallOptions(timeout_s=timeout_s)
    outcome = await ask_with_fallback(client, questions, options, ends_at=ends_at)
    failed = outcome.status != "ok"
    account = JudgeAccount(
        status=outcome.status,
        items=len(keys),
        note=f"{_BY_WORDS}{outcome.failure}" if failed else "",
        tokens=usage_of(outcome.attempts).total_tokens,
        latency_ms=sum(attempt.latency_ms for attempt in outcome.attempts),
    )
    if outcome.attempts:
        first = outcome.attempts[0]
        account = replace(account, model=first.model, cost_usd=first.cost_usd)
    if failed or outcome.verdict is None:
        return scores, account
    probabilities: dict[_Key, float] = {}
    for name, weight in outcome.verdict.choice.items():
        probabilities[keys[name]] = weight.probability
    mixed = {key: _mixed(score, probabilities.get(key)) for key, score in scores.items()}
    return mixed, account


def _questions(
    pool: DataPoolSnapshot, request: ContextSelectionRequest, scores: Scores
) -> tuple[_Questions | None, dict[str, _Key]]:
    """Return the questions about the best items, or None, and the keys of the items by name."""
    candidates: list[_Key] = []
    for key, score in scores.items():
        if key[0] != "project" and score.rule not in REFUSED:
            candidates.append(key)
    # Scores of `measured` compare across kinds, since each is between 0 and 1. The key breaks ties,
    # so that the order of the pool does not change the call.
    candidates.sort(key=lambda key: (-scores[key].value, key))
    texts = dict(_texts(pool))
    keys: dict[str, _Key] = {}
    lines: dict[str, str] = {}
    for kind, item_id in candidates[:DEFAULT_CANDIDATES]:
        name = f"{kind} {item_id}"  # an id is unique within its kind only
        excerpt = excerpt_text(texts[kind, item_id], _MAX_ITEM_CHARS).text
        keys[name] = (kind, item_id)
        lines[name] = to_json({"kind": kind, "text": one_line(excerpt, max_chars=_MAX_ITEM_CHARS)})
    if not lines:
        return None, keys
    query = "\n".join([request.intent.text, *request.priority_hints])
    shown_query = printable(excerpt_text(query, _MAX_QUERY_CHARS).text)
    questions = weighing_questions(
        lines,
        noun="item",
        purpose="helps to answer the query",
        seed=query,
        sections=[f"Query:\n{in_fence(shown_query)}"],
        judge=lambda weights: Verdict(weights, len(weights)),
    )
    return questions, keys


def _texts(pool: DataPoolSnapshot) -> Iterator[tuple[_Key, str]]:
    for turn in pool.session_log:
        yield ("turn", turn.id), f"{turn.role}: {turn.content}"
    for file in pool.context_files:
        yield ("file", file.id), f"{file.path}: {file.content}"
    for snippet in pool.memory_hits:
        yield ("memory", snippet.id), snippet.text
    for output in pool.tool_outputs:
        yield ("output", output.pointer_id), f"{output.summary} {output.digest}"


def _mixed(score: Score, probability: float | None) -> Score:
    parts = {name: part * (1 - _JUDGE_SHARE) for name, part in score.parts.items()}
    helping = _JUDGE_SHARE * (probability or 0.0)
    if probability is not None:
        parts["judge"] = helping
    return score._replace(value=score.value * (1 - _JUDGE_SHARE) + helping, parts=parts)
