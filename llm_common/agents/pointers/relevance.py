"""Which pointers answer a query, judged without a model."""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llm_common._env import CONTEXT_SELECTION_MAX_POINTERS, read_int
from llm_common.agents.pointers.pointer import ContextPointer
from llm_common.ranking import LexicalIndex, max_normalised, query_terms, weighted_sum

__all__ = ["RankedPointer", "rank_pointers", "selection_cap"]

# Measured by benchmarks/quality_pointers.py; the result is flat around all of them.
_FIELD_WEIGHTS = {"summary": 2.0, "digest": 1.0}
_RECENCY_WEIGHT = 0.6
_RECENCY_DECAY = 5.0  # in pointers, not in time: sessions run at any speed
_NAMED_WEIGHT = 0.3
_NAMING = 2  # best pointers whose digests may name the arguments of others

_MOST_INDEXED = 250
_SHORTEST_NAME = 3
_LONGEST_NAME = 120
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RankedPointer:
    """A pointer with its score; `matches` tells whether it shares a word with the query."""

    pointer: ContextPointer
    score: float
    matches: bool


def rank_pointers(query: str, pointers: Sequence[ContextPointer]) -> list[RankedPointer]:
    """The pointers by what they have to do with the query, the best first and the newest first among equals.

    The score is BM25 over summary and digest relative to the best match, plus `.6 * exp(-age / 5)` for recency, where
    the newest pointer's age is 0 and the next one's 1, plus `.3` when an argument of the pointer is named in the digest
    of one of the two best so far: the second step of a question in two steps. Age goes by `created_at`, then by
    position. Of more than 250 pointers only the 250 that share the most words with the query are ranked.
    """
    newest_first = sorted(pointers, key=lambda pointer: pointer.created_at)[::-1]
    pool = {f"{age:09}": pointer for age, pointer in enumerate(newest_first)}
    if len(pool) > _MOST_INDEXED:
        pool = _sharing_most_words(query, pool)
    with LexicalIndex(_FIELD_WEIGHTS) as index:
        index.add_many((key, {"summary": item.summary, "digest": item.digest}) for key, item in pool.items())
        matches = max_normalised({hit.key: hit.score for hit in index.search(query, limit=len(pool))})
    recency = {key: math.exp(-int(key) / _RECENCY_DECAY) for key in pool}
    parts: list[tuple[float, Mapping[str, float]]] = [(1.0, matches), (_RECENCY_WEIGHT, recency)]
    best = [hit.key for hit in weighted_sum(parts)[:_NAMING]]
    parts.append((_NAMED_WEIGHT, _named_by(best, pool)))
    return [RankedPointer(pool[hit.key], hit.score, hit.key in matches) for hit in weighted_sum(parts)]


def selection_cap(max_selected: int | None) -> int:
    """The most pointers that a selection keeps: the argument, else the environment's, else 6; 0 is 0.

    Raises:
        ValueError: The argument is negative.
        ConfigError: The variable holds something else than a number.
    """
    if max_selected is None:
        return read_int(CONTEXT_SELECTION_MAX_POINTERS, minimum=0, maximum=10_000) or 0
    if max_selected < 0:
        raise ValueError(f"max_selected is {max_selected}; it must be 0 or more")
    return max_selected


def _sharing_most_words(query: str, pool: Mapping[str, ContextPointer]) -> dict[str, ContextPointer]:
    """The pointers that hold the most words of the query, by their first letters; indexing all would take a second."""
    texts = [f"{pointer.summary} {pointer.digest}".lower() for pointer in pool.values()]
    shared = [0] * len(texts)
    for stem in {term[:5] for term in query_terms(query)}:
        shared = [count + (stem in text) for count, text in zip(shared, texts, strict=True)]
    counted = sorted(zip(pool.items(), shared, strict=True), key=lambda pair: pair[1], reverse=True)
    return dict(entry for entry, _ in counted[:_MOST_INDEXED])


def _named_by(best: Collection[str], pool: Mapping[str, ContextPointer]) -> dict[str, float]:
    """1 for each pointer, other than the best, one of whose arguments is named in their digests."""
    text = _spaced(" ".join(pool[key].digest for key in best))
    return {
        key: 1.0
        for key, pointer in pool.items()
        if key not in best and any(_spaced(name) in text for name in _names(pointer.args))
    }


def _names(value: object) -> Iterable[str]:
    """The strings among the arguments that are long enough to tell something, short enough to be a name."""
    if isinstance(value, str):
        if _SHORTEST_NAME <= len(value.strip()) <= _LONGEST_NAME:
            yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from _names(member)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


def _spaced(text: str) -> str:
    """The words of a text in lower case with one space around each, so that `in` compares whole words."""
    return " ".join(["", *_WORD.findall(text.lower()), ""])
