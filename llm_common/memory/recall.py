"""Ranks the lines of a scope for a query, in the same way for every store.

A scope is a user's sessions, or one session without a user. A line is an event, and has a position
in its scope, beginning with 1. A store looks up each word of the query by itself, and returns the
newest lines that contain it, at most `MAX_MATCHES`. How far back these lines reach shows how common
the word is. So a word that occurs in every line costs little, and a rare word is found in any old
line.

The score is BM25 (Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework") with each
word counted once a line, and the names of a question twice. The lines of a conversation belong
together, so a match also raises the matching lines around it, by half its score a line of distance.
Of equal lines, the newer comes first.

Every indexed word has a prefix, a hash of the scope. The index then has a list of lines for each
scope and word, and a search never reads the lines of another scope. Within a user's scope, a tag
identifies the session. The prefix is made of consonants because the Porter stemmer (1980) counts
from the first vowel on.
"""

import hashlib
import math
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from llm_common._telemetry import Attribute, operation, retrieval_attributes
from llm_common.core.models import MessageRole
from llm_common.memory.entry import Entry, scope_of
from llm_common.memory.protocol import MemoryFilters, MemoryHit, Scalar
from llm_common.ranking.lexical import MAX_QUERY_TERMS, query_terms, split_identifiers
from llm_common.text.canonical import stable_json

INDEXED_CHARS = 16_000
"""Indexed characters of a text. PostgreSQL limits the `tsvector` of a text to 1 MB."""

# A prefix only keeps lists of lines apart: every query compares the scope itself too. Role and
# metadata are compared by their tag alone, so a tag has 128 bits.
_PREFIX_DIGITS = 12
_TAG_DIGITS = 32
# A word with a capital within a sentence. If names count once, the first session that is found has
# evidence .012 less often (LoCoMo, the half that was tuned on).
_NAME = re.compile(r"(?<=[^\W.!?] )[A-Z][a-z]+\b")
_CONSONANTS = str.maketrans("0123456789abcdef", "bcdfghjklmnpqrst")


def scoped_words(scope: str, text: str) -> list[str]:
    """Return the words of a line to index, in lower case."""
    # Lowered here, since not every database does so beyond ASCII.
    prefix = _consonants(scope, _PREFIX_DIGITS)
    return [prefix + word for word in split_identifiers(text[:INDEXED_CHARS]).lower().split()]


def scoped_terms(scope: str, query: str) -> list[str]:
    """Return the `counted_terms` of a query as they are indexed."""
    prefix = _consonants(scope, _PREFIX_DIGITS)
    return [prefix + term for term in counted_terms(query)]


def counted_terms(query: str) -> list[str]:
    """Return the words of a query to look up: at most 64, without stop words, names twice."""
    query = query[:INDEXED_CHARS]
    terms = query_terms(query)
    names = set(query_terms(" ".join(_NAME.findall(query))))
    return [*terms, *filter(names.__contains__, terms)][:MAX_QUERY_TERMS]


def event_tags(entry: Entry) -> list[str]:
    """Return the tags to filter an event by: one word for each field."""
    # Without a user, the scope is the session, and a tag of it would be on every line.
    session_id = None if entry.scope == entry.session_id else entry.session_id
    return _tags(entry.scope, session_id, entry.key, entry.event.role, entry.event.metadata)


def filter_tags(filters: MemoryFilters) -> list[str]:
    """Return the tags that an event must have."""
    session_id = None if filters.user is None or filters.all_sessions else filters.session_id
    scope = scope_of(filters.session_id, filters.user)
    return _tags(scope, session_id, filters.key, filters.role, filters.metadata)


def follows_facts(filters: MemoryFilters) -> bool:
    """Return whether a match of a superseded line returns the newest line of its fact.

    The newest line may lack the words: after "I live in Oslo" comes "It is Rome now". But role and
    metadata are tags of the line that matched, and the newest line may have others.
    """
    return filters.role is None and not filters.metadata


def _tags(
    scope: str,
    session_id: str | None,
    key: str | None,
    role: MessageRole | None,
    metadata: Mapping[str, Scalar],
) -> list[str]:
    # The number of elements tells the kinds of tags apart: one for a role, two for metadata, three
    # for a session or a key.
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


MAX_MATCHES = 600
"""Maximum number of lines to read for one word of the query, newest first, and to score.

With 200, the first ten hits have .017 fewer of LoCoMo's turns with evidence, and names that half of
a long talk contains would prefer its end. A search for seven such words takes 8 in place of 4 ms.
"""

_K1, _B = 1.2, 0.25  # of BM25. On LoCoMo, b of 0 or .5 finds .002 to .005 fewer sessions
# A match raises the lines next to it by half its score, by a quarter two lines away, and so on.
# Without neighbours, LoCoMo's evidence in several sessions is complete .05 less often.
_NEIGHBOUR_SHARE = 0.5
_REACH = 3  # lines


def shortlist(matches: Sequence[Sequence[int]], *, lines: int, k: int) -> dict[int, float]:
    """Sum the weights of the query's words by position, for the lines that may be the best `k`.

    Args:
        matches: For each word, the positions of the lines that contain it, newest first, at most
            `MAX_MATCHES`.
        lines: The number of lines of the scope.
        k: The number of hits requested.
    """
    weights: dict[int, float] = {}
    for positions in matches:
        frequency = len(positions)
        if frequency >= MAX_MATCHES:  # extrapolate from the newest lines to the whole scope
            frequency = round(lines * frequency / (lines - positions[-1] + 1))
        weight = math.log(1 + (lines - frequency + 0.5) / (frequency + 0.5))
        for position in positions:
            weights[position] = weights.get(position, 0.0) + weight
    # More lines than requested: lengths and neighbours change the order of the best ones.
    return dict(_ordered(weights)[: max(k, MAX_MATCHES)])


def best_lines(
    weights: Mapping[int, float], lines: Iterable[tuple[int, int, bool]], *, k: int
) -> list[tuple[int, float]]:
    """Score the lines of a shortlist.

    Args:
        weights: The result of `shortlist`.
        lines: Position and number of words of each line, and whether it is current. Other lines
            have been erased since, and are left out. Lines that are not current rank last.
        k: Maximum number of lines to return.

    Returns:
        Position and score of the best lines, best first.
    """
    word_counts: dict[int, int] = {}
    old: set[int] = set()
    for position, words, is_current in lines:
        word_counts[position] = words
        if not is_current:
            old.add(position)
    mean = sum(word_counts.values()) / max(len(word_counts), 1)
    matched: dict[int, float] = {}
    for position, count in word_counts.items():
        length_norm = 1 + _K1 * (1 - _B + _B * count / mean)
        matched[position] = weights[position] * (_K1 + 1) / length_norm
    scores: dict[int, float] = {}
    for position, score in matched.items():
        shares = [score]
        for distance in range(1, _REACH + 1):
            # The better of two, since the newest line has no line after it.
            before, after = position - distance, position + distance
            neighbour = max(matched.get(before, 0.0), matched.get(after, 0.0))
            shares.append(_NEIGHBOUR_SHARE**distance * neighbour)
        scores[position] = math.fsum(shares)
    top = max(scores.values(), default=1.0)
    scores = {position: score / top for position, score in scores.items()}
    # A stable sort: current and old lines each stay in the order of their scores.
    return sorted(_ordered(scores), key=lambda line: line[0] in old)[:k]


def _ordered(scores: Mapping[int, float]) -> list[tuple[int, float]]:
    # Of equal scores, the newer line comes first.
    return sorted(scores.items(), key=lambda item: (-item[1], -item[0]))


P = ParamSpec("P")
T = TypeVar("T")
MemoryT = TypeVar("MemoryT")
_Method = Callable[Concatenate[MemoryT, P], Coroutine[Any, Any, T]]
_RECORDS: Final = "gen_ai.memory.record.count"


def _observed(
    name: str, describe: Callable[[T], dict[str, Attribute]]
) -> Callable[[_Method[MemoryT, P, T]], _Method[MemoryT, P, T]]:
    """Return a decorator that records the calls of a memory's method as operations.

    Args:
        name: The operation. A call that may replace an event is an `upsert_memory`.
        describe: Returns the attributes of what the method returned.
    """

    def decorate(method: _Method[MemoryT, P, T]) -> _Method[MemoryT, P, T]:
        @wraps(method)
        async def observed(memory: MemoryT, /, *args: P.args, **kwargs: P.kwargs) -> T:
            # Arguments are named here: `key` and `supersedes` are keyword-only in every memory.
            may_replace = kwargs.get("key") or kwargs.get("supersedes")
            operation_name = "upsert_memory" if may_replace else name
            kind = {"llm_common.memory": type(memory).__name__}
            with operation(operation_name, attributes=kind) as span:
                returned = await method(memory, *args, **kwargs)
                span.set_attributes(describe(returned))
            return returned

        return observed

    return decorate


def _describe_hits(hits: list[MemoryHit]) -> dict[str, Attribute]:
    return {_RECORDS: len(hits)} | retrieval_attributes({hit.id: hit.score for hit in hits})


def _describe_event(event_id: str) -> dict[str, Attribute]:
    return {_RECORDS: 1, "gen_ai.memory.record.id": event_id}


def _describe_erasure(erased: int) -> dict[str, Attribute]:
    return {_RECORDS: erased}


writes_memory = _observed("create_memory", _describe_event)
searches_memory = _observed("search_memory", _describe_hits)
forgets_memory = _observed("delete_memory", _describe_erasure)
