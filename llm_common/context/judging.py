"""Weighs the best items of a pool by one request to a decision model."""

import asyncio
from collections.abc import Iterable, Mapping
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
# Of a weighed item's score; the rest is that of the words. Chosen on bfcl_memory and 60 queries of
# qmsum with a scripted model: one that is right nine times in ten never made a set worse with .3,
# and did with .5.
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
    """Add a decision model's probabilities to the scores as the part `judge`, with an account.

    The model weighs the 40 best items that may be packed, of all kinds but the project. Three
    tenths of such an item's score are its probability of helping, the rest is its former score.
    Every other score is scaled alike, so that no item overtakes a weighed one without being
    weighed. After any failure all scores are as they were.

    Args:
        client: Called once, if there is an item to weigh.
        pool: Where the items are.
        request: What they are for.
        scores: From `score_pool`.
        timeout_s: Seconds for the whole.
    """
    ends_at = asyncio.get_running_loop().time() + timeout_s
    try:
        async with asyncio.timeout_at(ends_at):
            questions, keys = await in_thread(_questions, pool, request, scores)
    except (TimeoutError, NoThreadError):
        return scores, JudgeAccount(
            status="error", items=0, note=f"{_BY_WORDS}no thread was free in time"
        )
    if questions is None:
        return scores, JudgeAccount(status="no_candidates", items=0)
    outcome = await ask_with_fallback(
        client, questions, CallOptions(timeout_s=timeout_s), ends_at=ends_at
    )
    failed = outcome.status != "ok"
    usage = usage_of(outcome.attempts)
    account = JudgeAccount(
        status=outcome.status,
        items=len(keys),
        note=f"{_BY_WORDS}{outcome.failure}" if failed else "",
        model=next((attempt.model for attempt in outcome.attempts), None),
        tokens=usage.total_tokens,
        cost_usd=next((attempt.cost_usd for attempt in outcome.attempts), None),
        latency_ms=sum(attempt.latency_ms for attempt in outcome.attempts),
    )
    if failed or outcome.verdict is None:
        return scores, account
    found = {keys[name]: weight.probability for name, weight in outcome.verdict.choice.items()}
    return {key: _mixed(score, found.get(key)) for key, score in scores.items()}, account


def _questions(
    pool: DataPoolSnapshot, request: ContextSelectionRequest, scores: Scores
) -> tuple[_Questions | None, dict[str, _Key]]:
    """The questions about the best items, and the keys of these by name.

    None if there is none to weigh.
    """
    able = [
        key for key, score in scores.items() if key[0] != "project" and score.rule not in REFUSED
    ]
    best = sorted(able, key=lambda key: (-scores[key].value, key))[:DEFAULT_CANDIDATES]
    keys = {f"{kind} {item_id}": (kind, item_id) for kind, item_id in best}
    texts = {key: text for key, text in _texts(pool) if key in scores}
    lines = {
        name: to_json({"kind": key[0], "text": _shown(texts[key])}) for name, key in keys.items()
    }
    if not lines:
        return None, keys
    query = "\n".join([request.intent.text, *request.priority_hints])
    asked = printable(excerpt_text(query, _MAX_QUERY_CHARS).text)
    questions = weighing_questions(
        lines,
        noun="item",
        purpose="helps to answer the query",
        seed=query,
        sections=[f"Query:\n{in_fence(asked)}"],
        judge=lambda weights: Verdict(weights, len(weights)),
    )
    return questions, keys


def _texts(pool: DataPoolSnapshot) -> Iterable[tuple[_Key, str]]:
    yield from ((("turn", turn.id), f"{turn.role}: {turn.content}") for turn in pool.session_log)
    yield from ((("file", file.id), f"{file.path}: {file.content}") for file in pool.context_files)
    yield from ((("memory", snippet.id), snippet.text) for snippet in pool.memory_hits)
    yield from (
        (("output", each.pointer_id), f"{each.summary} {each.digest}") for each in pool.tool_outputs
    )


def _shown(text: str) -> str:
    return one_line(excerpt_text(text, _MAX_ITEM_CHARS).text, max_chars=_MAX_ITEM_CHARS)


def _mixed(score: Score, probability: float | None) -> Score:
    parts = {name: part * (1 - _JUDGE_SHARE) for name, part in score.parts.items()}
    helping = _JUDGE_SHARE * (probability or 0.0)
    if probability is not None:
        parts["judge"] = helping
    return score._replace(value=score.value * (1 - _JUDGE_SHARE) + helping, parts=parts)
