"""Which pointers answer a query, judged without a model."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from llm_common._env import CONTEXT_SELECTION_MAX_POINTERS, read_int
from llm_common.agents.pointers.pointer import ContextPointer
from llm_common.ranking import Embedder, folded, scan, standing_out, weighted_sum

__all__ = ["RankedPointer", "rank_pointers", "selection_cap"]

# Measured by benchmarks/quality_context.py. Around all of them the mean over the sets hardly moves, but single sets do
# by more than they stand above what is promised of them: measure all sets before changing one.
_FIELD_WEIGHTS = (2.0, 1.0)  # summary, digest
_VECTOR_WEIGHT = 0.4
_RECENCY_WEIGHT = 0.7
_RECENCY_DECAY = 6.0  # in pointers, not in time: sessions run at any speed
_LINK_WEIGHT = 0.6
_LINKING = 3  # best pointers that lift those which they are linked with

_SHORTEST_NAME = 3
_LONGEST_NAME = 120
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RankedPointer:
    """A pointer with its score, the sum of its parts: `words`, `vectors`, `recency`, `named` and `names`."""

    pointer: ContextPointer
    score: float
    parts: Mapping[str, float]

    @property
    def matches(self) -> bool:
        """Whether it shares a word with the query."""
        return self.parts.get("words", 0.0) > 0


def rank_pointers(
    query: str, pointers: Sequence[ContextPointer], *, embedder: Embedder | None = None
) -> list[RankedPointer]:
    """The pointers by what they have to do with the query, the best first and the newest first among equals.

    The score is BM25 over summary and digest relative to the best match (see `scan`), plus, with an embedder, `.4` for
    the summary that is most like the query in meaning (see `standing_out`), plus `.7 * exp(-age / 6)` for recency,
    where the newest pointer's age is 0 and the next one's 1. Then those that one of the three best leads to are lifted,
    which is the second step of a question in two steps: by `.6 / n` when one of their arguments is named in its digest
    and is an argument of n pointers, and by `.6 / n` when their digest is one of the n that name one of its arguments.
    Age goes by `created_at`, then by position. Linear in the pool.
    """
    newest_first = sorted(pointers, key=lambda pointer: pointer.created_at)[::-1]
    pool = {f"{age:09}": pointer for age, pointer in enumerate(newest_first)}
    summaries = [pointer.summary for pointer in newest_first]
    documents = [(folded(pointer.summary), folded(pointer.digest)) for pointer in newest_first]
    parts: dict[str, dict[str, float]] = {
        "words": _held(pool, scan(query, documents, weights=_FIELD_WEIGHTS)),
        "recency": {key: _RECENCY_WEIGHT * math.exp(-int(key) / _RECENCY_DECAY) for key in pool},
    }
    if embedder:
        likeness = standing_out(embedder.similarities(query, summaries))
        parts["vectors"] = _held(pool, [_VECTOR_WEIGHT * value for value in likeness])
    best = [hit.key for hit in weighted_sum([(1.0, part) for part in parts.values()])[:_LINKING]]
    parts["named"] = _named_by(best, pool)
    parts["names"] = _naming(best, pool)
    hits = weighted_sum([(1.0, part) for part in parts.values()])
    return [RankedPointer(pool[hit.key], hit.score, _parts_of(hit.key, parts)) for hit in hits]


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


def _parts_of(key: str, parts: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: part[key] for name, part in parts.items() if key in part}


def _held(pool: Iterable[str], values: Iterable[float]) -> dict[str, float]:
    return {key: value for key, value in zip(pool, values, strict=True) if value}


def _named_by(best: Collection[str], pool: Mapping[str, ContextPointer]) -> dict[str, float]:
    """The pointers, other than the best, with an argument that is named in the best ones' digests.

    An argument of many pointers, such as a date, leads to none of them in particular.
    """
    text = _spaced(" ".join(pool[key].digest for key in best))
    names = {key: {_spaced(name) for name in _names(pointer.args)} for key, pointer in pool.items()}
    owners = Counter(name for of_one in names.values() for name in of_one)
    lifted: dict[str, float] = {}
    for key in names.keys() - set(best):
        if found := [owners[name] for name in names[key] if name.strip() and name in text]:
            lifted[key] = _LINK_WEIGHT / min(found)
    return lifted


def _naming(best: Collection[str], pool: Mapping[str, ContextPointer]) -> dict[str, float]:
    """The pointers, other than the best, whose digests name an argument of one of the best."""
    texts = {key: _spaced(pointer.digest) for key, pointer in pool.items() if key not in best}
    lifted: dict[str, float] = {}
    for name in {_spaced(name) for key in best for name in _names(pool[key].args)}:
        found = [key for key, text in texts.items() if name in text] if name.strip() else []
        lifted |= {key: max(lifted.get(key, 0.0), _LINK_WEIGHT / len(found)) for key in found}
    return lifted


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
