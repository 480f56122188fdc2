"""Score items by the formulas of the specification, section "Phase 2: Relevance Scoring"."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import mul
from typing import Final

from llm_common.context.mentions import (
    extract_keywords,
    files_named_in,
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
    weighted,
    with_zone,
)

# All numbers of this module are from the specification.
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
    """Return `recency_weight * exp(-age in hours) + .2 * similarity + .1 * entity overlap`.

    The similarity is the cosine of the word counts. The overlap is the share of the intent's
    entities that the turn names. A turn of the future has the age 0. The score is always finite.

    Args:
        turn: The turn.
        intent: The classified request.
        recency_weight: The weight of recency, which a turn of this moment has in full.
        now: The time from which ages are measured. None uses the current time, and a time without a
            zone is in UTC.

    Raises:
        TypeError: If `intent` is a str.
    """
    query = _Query.of(intent)
    parts = _turn_parts(turn.content, turn.timestamp, query, _now(now), recency_weight)
    return weighted(parts, {}).value


def score_context_file(
    file: ContextFile, intent: UserIntent, *, now: datetime | None = None
) -> float:
    """Return the sum of six parts, at most 2.0 and always finite.

    - 1.0 if the query names the file (see `files_named_in`)
    - .8 times the cosine of the embeddings, if both have comparable ones
    - .3 for code, if the intent requires code
    - .5 for a pinned file
    - .2 for a change within a day
    - .4 times the share of the query's keywords that the content contains

    Args:
        file: The file.
        intent: The classified request.
        now: The time from which ages are measured. None uses the current time, and a time without a
            zone is in UTC.

    Raises:
        TypeError: If `intent` is a str.
    """
    query = _Query.of(intent)
    mentioned = bool(files_named_in(intent.text, [file]))
    parts = _file_parts(file, query, _now(now), mentioned=mentioned)
    return weighted(parts, {}, maximum=_MAX_FILE_SCORE).value


def score_memory_snippet(
    snippet: MemorySnippet, intent: UserIntent, *, now: datetime | None = None
) -> float:
    """Return the store's relevance, plus parts for recency and for the same project.

    Recency adds `.2 * exp(-age in days)`, and the current project adds .3. A relevance that is not
    finite counts as 0.

    Args:
        snippet: The memory.
        intent: The classified request.
        now: The time from which ages are measured. None uses the current time, and a time without a
            zone is in UTC.

    Raises:
        TypeError: If `intent` is a str.
    """
    parts = _memory_parts(snippet, _Query.of(intent), _now(now))
    return weighted(parts, {}).value


class SpecStrategy:
    """Scores by the formulas of the specification, unchanged.

    The specification leaves some things open. An output is scored as a turn, by its summary, its
    description and its time. A project scores 1. Priority hints are part of the query. The
    request's weights are factors of the parts.
    """

    cut_offs: Mapping[Kind, float] = {"file": _FILE_CUT_OFF}

    def score(
        self, pool: DataPoolSnapshot, request: ContextSelectionRequest, *, now: datetime
    ) -> Scores:
        """Return the value and the parts of every item. Takes time linear in the pool."""
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
            moment = _moment(pointer.created_at)
            parts["output", pointer.pointer_id] = _turn_parts(text, moment, query, now)
        if pool.project_state:
            parts["project", pool.project_state.name] = {"project": 1.0}
        scores: dict[tuple[Kind, str], Score] = {}
        for key, item_parts in parts.items():
            maximum = _MAX_FILE_SCORE if key[0] == "file" else math.inf
            scores[key] = weighted(item_parts, request.weights, maximum=maximum)
        return scores


@dataclass(frozen=True, slots=True)
class _Query:
    """An intent with the words of its text, which are extracted once for all items."""

    intent: UserIntent
    keywords: tuple[str, ...]
    stems: Mapping[str, int]
    entities: Mapping[str, re.Pattern[str]]

    @classmethod
    def of(cls, intent: UserIntent, hints: Sequence[str] = ()) -> "_Query":
        require_intent(intent)
        text = "\n".join([intent.text, *hints])
        entities: dict[str, re.Pattern[str]] = {}
        for entity in intent.entities:
            name = entity.text.lower()
            if name:
                entities[name] = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        return cls(intent, extract_keywords(text), stem_counts(text), entities)


def _turn_parts(
    text: str,
    moment: datetime | None,
    query: _Query,
    now: datetime,
    recency_weight: float = _RECENCY_WEIGHT,
) -> dict[str, float]:
    lower = text.lower()
    shared = 0
    for name, whole_name in query.entities.items():
        # The search for a plain str is fast, and rules out most names.
        if name in lower and whole_name.search(lower):
            shared += 1
    return {
        "recency": recency_weight * decay(moment, now, _HOUR),
        "similarity": 0.2 * similarity(query.stems, stem_counts(text)),
        "entities": 0.1 * shared / max(len(query.entities), 1),
    }


def _file_parts(
    file: ContextFile, query: _Query, now: datetime, *, mentioned: bool
) -> dict[str, float]:
    content = file.content.lower()
    changed = file.metadata.last_modified
    shared = sum(keyword in content for keyword in query.keywords)
    is_required_code = query.intent.metadata.requires_code and is_code(file.path, file.language)
    is_recent = changed is not None and now - changed < _DAY
    return {
        "mention": 1.0 * mentioned,
        "embeddings": 0.8 * _cosine(file.embeddings or (), query.intent.embeddings or ()),
        "code": 0.3 * is_required_code,
        "pin": 0.5 * file.metadata.is_pinned,
        "change": 0.2 * is_recent,
        "keywords": 0.4 * shared / max(len(query.keywords), 1),
    }


def _memory_parts(snippet: MemorySnippet, query: _Query, now: datetime) -> dict[str, float]:
    project = snippet.metadata.project
    is_of_project = bool(project) and project == query.intent.metadata.current_project
    return {
        "relevance": snippet.relevance_score if math.isfinite(snippet.relevance_score) else 0.0,
        "recency": 0.2 * decay(snippet.timestamp, now, _DAY),
        "project": 0.3 * is_of_project,
    }


def decay(moment: datetime | None, now: datetime, unit: timedelta) -> float:
    """Return `exp(-age)` in that unit: 1 for a time in the future, 0 without a time."""
    return math.exp(-max(0.0, (now - moment) / unit)) if moment else 0.0


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors, or 0 if they are not comparable or not finite."""
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
    """Parse an ISO 8601 time. Return None for any other text."""
    try:
        return with_zone(datetime.fromisoformat(text))
    except ValueError:  # a pointer admits any text as its time
        return None


def _now(now: datetime | None) -> datetime:
    return datetime.now(UTC) if now is None else with_zone(now)
