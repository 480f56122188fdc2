"""The strategy `spec`: the formulas of "Phase 2: Relevance Scoring"."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import mul
from typing import Final

from llm_common.context.mentions import (
    MentionFinder,
    extract_keywords,
    is_code,
    mentioned_files,
    similarity,
    stem_counts,
)
from llm_common.context.request import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    MemorySnippet,
    Score,
    Scores,
    TurnEntry,
    UserIntent,
    require_intent,
)

_MAX_FILE_SCORE: Final = 2.0

_HOUR: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)
_RECENCY_WEIGHT: Final = 0.7
_FILE_CUT_OFF: Final = 0.3


def score_conversation_turn(
    turn: TurnEntry,
    intent: UserIntent,
    recency_weight: float = _RECENCY_WEIGHT,
    *,
    now: datetime | None = None,
) -> float:
    """`recency_weight * exp(-age in hours) + .2 * similarity + .1 * entity overlap`; finite.

    The similarity is `entities.similarity`; the overlap is the share of the intent's entities that
    the turn holds. A turn of the future has the age 0.

    Args:
        turn: The turn.
        intent: What it is scored for.
        recency_weight: The recency of a turn of this moment.
        now: The moment that ages are measured from; None takes the present one. UTC when it has no
            zone.
    """
    return _total(
        _turn_parts(
            turn.content, turn.timestamp, _Query.of(intent), _moment_of(now), recency_weight
        )
    )


def score_context_file(
    file: ContextFile, intent: UserIntent, *, now: datetime | None = None
) -> float:
    """The sum of six parts, at most 2.0; finite.

    1.0 where the query names the file (see `MentionFinder`); .8 times the cosine of the embeddings
    where both have usable ones; .3 for code where the intent requires code; .5 for a pin; .2 for a
    change within a day; .4 times the share of the query's keywords that the content holds, 0 when
    the query has none.

    Args:
        file: The file.
        intent: What it is scored for.
        now: The moment that ages are measured from; None takes the present one. UTC when it has no
            zone.
    """
    query = _Query.of(intent)
    mentioned = bool(MentionFinder([file]).find(intent.text))
    return min(
        _total(_file_parts(file, query, _moment_of(now), mentioned=mentioned)), _MAX_FILE_SCORE
    )


def score_memory_snippet(
    snippet: MemorySnippet, intent: UserIntent, *, now: datetime | None = None
) -> float:
    """The store's relevance `+ .2 * exp(-age in days)`, `+ .3` for the same project.

    A relevance that is no finite number counts as 0.

    Args:
        snippet: The memory.
        intent: What it is scored for.
        now: The moment that ages are measured from; None takes the present one. UTC when it has no
            zone.
    """
    return _total(_memory_parts(snippet, _Query.of(intent), _moment_of(now)))


class SpecStrategy:
    """The formulas of the specification, unchanged.

    Beyond the specification: an output is scored as a turn, by its summary, its digest and its
    time; a project scores 1; priority hints are part of the query; a request's weights are factors
    of the parts.
    """

    cut_offs: Mapping[Kind, float] = {"file": _FILE_CUT_OFF}

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        """Return value and parts of every item of the pool. Linear in the pool."""
        query = _Query.of(request.intent, request.priority_hints)
        mentioned = mentioned_files(pool.context_files, request)
        parts: dict[tuple[Kind, str], dict[str, float]] = {}
        for turn in pool.session_log:
            parts["turn", turn.id] = _turn_parts(turn.content, turn.timestamp, query, now)
        for file in pool.context_files:
            parts["file", file.id] = _file_parts(file, query, now, mentioned=file.id in mentioned)
        for snippet in pool.memory_hits:
            parts["memory", snippet.id] = _memory_parts(snippet, query, now)
        for pointer in pool.tool_outputs:
            text = f"{pointer.summary} {pointer.digest}"
            parts["output", pointer.pointer_id] = _turn_parts(
                text, _moment(pointer.created_at), query, now
            )
        if pool.project_state:
            parts["project", pool.project_state.name] = {"project": 1.0}
        return {key: _score(key[0], item, request.weights) for key, item in parts.items()}


@dataclass(frozen=True, slots=True)
class _Query:
    """An intent with the words of its text, computed once for all items."""

    intent: UserIntent
    keywords: tuple[str, ...]
    stems: Mapping[str, int]
    entities: Mapping[str, re.Pattern[str]]

    @classmethod
    def of(cls, intent: UserIntent, hints: Sequence[str] = ()) -> "_Query":
        require_intent(intent)
        text = "\n".join([intent.text, *hints])
        names = sorted({entity.text.lower() for entity in intent.entities} - {""})
        entities = {name: re.compile(rf"(?<!\w){re.escape(name)}(?!\w)") for name in names}
        return cls(intent, extract_keywords(text), stem_counts(text), entities)


def _turn_parts(
    text: str,
    moment: datetime | None,
    query: _Query,
    now: datetime,
    recency_weight: float = _RECENCY_WEIGHT,
) -> dict[str, float]:
    lower = text.lower()
    named = 0
    for name, whole_name in query.entities.items():
        if name in lower and whole_name.search(lower):
            named += 1
    return {
        "recency": recency_weight * _decay(moment, now, _HOUR),
        "similarity": 0.2 * similarity(query.stems, stem_counts(text)),
        "entities": 0.1 * named / max(len(query.entities), 1),
    }


def _file_parts(
    file: ContextFile, query: _Query, now: datetime, *, mentioned: bool
) -> dict[str, float]:
    content = file.content.lower()
    changed = file.metadata.last_modified
    shared = sum(keyword in content for keyword in query.keywords)
    is_wanted_code = query.intent.metadata.requires_code and is_code(file.path, file.language)
    is_recent = changed is not None and now - changed < _DAY
    return {
        "mention": 1.0 * mentioned,
        "embeddings": 0.8 * _cosine(file.embeddings or (), query.intent.embeddings or ()),
        "code": 0.3 * is_wanted_code,
        "pin": 0.5 * file.metadata.is_pinned,
        "change": 0.2 * is_recent,
        "keywords": 0.4 * shared / max(len(query.keywords), 1),
    }


def _memory_parts(snippet: MemorySnippet, query: _Query, now: datetime) -> dict[str, float]:
    project = snippet.metadata.project
    is_of_project = bool(project) and project == query.intent.metadata.current_project
    return {
        "relevance": snippet.relevance_score if math.isfinite(snippet.relevance_score) else 0.0,
        "recency": 0.2 * _decay(snippet.timestamp, now, _DAY),
        "project": 0.3 * is_of_project,
    }


def _score(kind: Kind, parts: Mapping[str, float], weights: Mapping[str, float]) -> Score:
    weighted = {name: value * weights.get(name, 1.0) for name, value in parts.items()}
    value = _total(weighted)
    return Score(min(value, _MAX_FILE_SCORE) if kind == "file" else value, weighted)


def _total(parts: Mapping[str, float]) -> float:
    total = sum(parts.values())
    return total if math.isfinite(total) else 0.0


def _decay(moment: datetime | None, now: datetime, unit: timedelta) -> float:
    """Return `exp(-age)` in that unit: 1 for a time in the future, 0 without a time."""
    return math.exp(-max(0.0, (now - moment) / unit)) if moment else 0.0


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors.

    0 without a common length or a direction, or with a value that is not finite.
    """
    if len(left) != len(right) or not all(map(math.isfinite, (*left, *right))):
        return 0.0
    if not any(left) or not any(right):
        return 0.0
    # Scaled by the largest value first, since squares of very large ones overflow.
    left_unit, right_unit = _scaled(left), _scaled(right)
    product = math.fsum(map(mul, left_unit, right_unit))
    return product / (math.hypot(*left_unit) * math.hypot(*right_unit))


def _scaled(vector: Sequence[float]) -> list[float]:
    largest = max(map(abs, vector))
    return [value / largest for value in vector]


def _moment(text: str) -> datetime | None:
    """Return the time of an ISO 8601 text, or None."""
    try:
        return _aware(datetime.fromisoformat(text))
    except ValueError:
        return None


def _moment_of(now: datetime | None) -> datetime:
    return datetime.now(UTC) if now is None else _aware(now)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
