"""How well each line of a scope matches a query: one ranking for every store.

A scope is a user's sessions, or one session without a user. A line has a position, 1 for the first
of its scope. A store looks up each word of the query separately and gives the newest lines that
hold it, at most `MAX_MATCHES`; how far back these reach shows how common the word is. That bounds
the work for a word of every line, which adds next to nothing, and finds a rare word in any old
line.

The score is BM25's (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework") with each
word counted once a line. Lines of a conversation belong together, so a line gains from its
neighbours; and between equals the newer wins.

Every word carries a prefix made of the scope. An index then holds a list of lines per scope and
word: a search never reads another scope's lines, and costs what its own scope costs. Within a
user's scope a tag tells the session. The prefix is made of consonants, which leaves the measures of
stemmers as they were (Porter 1980 counts from the first vowel on).
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence

from llm_common.core.models import MessageRole
from llm_common.memory.entry import Entry, scope_of
from llm_common.memory.protocol import MemoryFilters, Scalar
from llm_common.ranking.lexical import query_terms, split_identifiers
from llm_common.text.canonical import stable_json

INDEXED_CHARS = 16_000
"""Indexed characters of a text; PostgreSQL limits a longer text's vector (1 MB)."""

_PREFIX_DIGITS = 12
_TAG_DIGITS = 32
_CONSONANTS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")


def scoped_words(scope: str, text: str) -> list[str]:
    """The words of a line to index, in lower case: not every database lowers case beyond ASCII."""
    prefix = _consonants(scope, _PREFIX_DIGITS)
    return [prefix + word for word in split_identifiers(text[:INDEXED_CHARS]).lower().split()]


def scoped_terms(scope: str, query: str) -> list[str]:
    """The words of a query to look up: at most 64, no stop words."""
    prefix = _consonants(scope, _PREFIX_DIGITS)
    return [prefix + term for term in query_terms(query[:INDEXED_CHARS])]


def event_tags(entry: Entry) -> list[str]:
    """The tags to filter by: one word for each fact of the event."""
    session_id = None if entry.scope == entry.session_id else entry.session_id
    return _tags(entry.scope, session_id, entry.key, entry.event.role, entry.event.metadata)


def filter_tags(filters: MemoryFilters) -> list[str]:
    """The tags that an event must have."""
    session_id = None if filters.user is None or filters.all_sessions else filters.session_id
    scope = scope_of(filters.session_id, filters.user)
    return _tags(scope, session_id, filters.key, filters.role, filters.metadata)


def follows(filters: MemoryFilters) -> bool:
    """Whether an older line of a fact finds the newest one.

    The newest need not say what the fact is about: after "I live in Oslo" comes "It is Rome now".
    Tags are those of the line that matched, so role and metadata must not be asked for.
    """
    return filters.role is None and not filters.metadata


def _tags(
    scope: str,
    session_id: str | None,
    key: str | None,
    role: MessageRole | None,
    metadata: Mapping[str, Scalar],
) -> list[str]:
    fields: list[list[Scalar]] = [[name, value] for name, value in metadata.items()]
    if role:
        fields.append([str(role)])
    if session_id is not None:
        fields.append(["", "session", session_id])
    if key is not None:
        fields.append(["", "key", key])
    return [_consonants(stable_json([scope, *field]), _TAG_DIGITS) for field in fields]


def _consonants(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits].translate(_CONSONANTS)


MAX_MATCHES = 200
"""Most lines to read for one word of the query, newest first."""

_SHORTLIST_LINES = 64
_K1, _B = 1.2, 0.5
_NEIGHBOUR_SHARE = 0.3
_RECENCY_SHARE = 0.1
_RECENCY_HALF_LIFE_LINES = 20


def shortlist(matches: Sequence[Sequence[int]], *, lines: int, k: int) -> dict[int, float]:
    """Sum the weights of the query's words by position, for the lines that may be the best `k`.

    Args:
        matches: For each word the positions of lines that hold it, newest first, at most
            `MAX_MATCHES`.
        lines: How many lines the scope has.
        k: How many will be wanted.
    """
    weights: dict[int, float] = {}
    for positions in matches:
        weight = _rarity(positions, lines)
        for position in positions:
            weights[position] = weights.get(position, 0.0) + weight
    return dict(_ordered(weights)[: max(k, _SHORTLIST_LINES)])


def best_lines(
    weights: Mapping[int, float],
    word_counts: Mapping[int, int],
    *,
    lines: int,
    k: int,
    old: Collection[int] = (),
) -> list[tuple[int, float]]:
    """Score the lines of a shortlist. Returns position and score of the best `k`, best first.

    Args:
        weights: From `shortlist`.
        word_counts: The number of words of each of these lines; a line without one was removed, and
            is left out.
        lines: How many lines the scope has.
        k: Most lines.
        old: Lines that are no longer current, which come after all others.
    """
    mean = sum(word_counts.values()) / max(len(word_counts), 1)
    own: dict[int, float] = {}
    for position, count in word_counts.items():
        length_norm = 1 + _K1 * (1 - _B + _B * count / mean)
        own[position] = weights[position] * (_K1 + 1) / length_norm
    relevance: dict[int, float] = {}
    for position, score in own.items():
        neighbour = max(own.get(position - 1, 0.0), own.get(position + 1, 0.0))
        relevance[position] = score + _NEIGHBOUR_SHARE * neighbour
    top = max(relevance.values(), default=1.0)
    scores: dict[int, float] = {}
    for position, score in relevance.items():
        recency = 1 / (1 + (lines - position) / _RECENCY_HALF_LIFE_LINES)
        scores[position] = score / top + _RECENCY_SHARE * recency
    return sorted(_ordered(scores), key=lambda line: line[0] in old)[:k]


def _rarity(positions: Sequence[int], lines: int) -> float:
    found = len(positions)
    if found >= MAX_MATCHES:
        found = round(lines * found / (lines - positions[-1] + 1))
    return math.log(1 + (lines - found + 0.5) / (found + 0.5))


def _ordered(scores: Mapping[int, float]) -> list[tuple[int, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], -item[0]))
