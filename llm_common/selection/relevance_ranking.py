"""Ranks pointers for a query without a model."""

import heapq
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Literal

from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import Embedder
from llm_common.ranking.embeddings import prominence
from llm_common.ranking.lexical import folded, scan_columns
from llm_common.redaction.patterns import REDACTED

OnNoMatch = Literal["all", "none"]

_MIN_WORD_CHARS = 3
_WORD = re.compile(r"[^\W_]+")


def select_by_keywords(
    query: str, pointers: Sequence[ContextPointer], *, on_no_match: OnNoMatch
) -> list[ContextPointer]:
    """The pointers by how many words their summaries share with the query.

    Ties keep the given order. Words have three letters or more; case does not count.

    Args:
        query: Any text.
        pointers: The candidates.
        on_no_match: The result without a match: all candidates in their order, or none.
    """
    words = _words(query)
    scores = [len(words & _words(pointer.summary)) for pointer in pointers]
    order = sorted(range(len(pointers)), key=lambda number: -scores[number])
    related = [pointers[number] for number in order if scores[number]]
    if not related and on_no_match == "all":
        return list(pointers)
    return related


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if len(word) >= _MIN_WORD_CHARS}


# Measured by benchmarks/quality_context.py. Small changes hardly move the mean over the sets, but
# may push a single set below its promise: measure all sets before changing one.
_FIELD_WEIGHTS = (2.0, 1.0)  # summary, digest
_VECTOR_WEIGHT = 0.4
_RECENCY_WEIGHT = 0.7
_RECENCY_DECAY = 6.0  # in pointers, not in time: sessions run at any speed
_LINK_WEIGHT = 0.6
_MAX_LINKING = 3  # best pointers that lift the pointers linked with them

_MIN_NAME_CHARS = 3
_MAX_NAME_CHARS = 120
_CACHED_NAMES = 32_768
_TOKEN = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RankedPointer:
    """A pointer with its score, the sum of its parts.

    Parts are `words`, `vectors`, `recency`, `named` and `names`; one that is 0 is left out.
    """

    pointer: ContextPointer
    score: float
    parts: Mapping[str, float]

    @property
    def matches(self) -> bool:
        """Whether it shares a word with the query."""
        return self.parts.get("words", 0.0) > 0


def rank_pointers(
    query: str,
    pointers: Sequence[ContextPointer],
    *,
    embedder: Embedder | None = None,
    limit: int | None = None,
) -> list[RankedPointer]:
    """The pointers by relevance to the query, best first, ties newest first.

    The score is BM25 over summary and digest relative to the best match (see `scan`), plus, with an
    embedder, `.4` for the summary closest to the query in meaning (see `prominence`), plus `.7 *
    exp(-age / 6)` for recency, where the newest pointer's age is 0 and the next one's 1. Then the
    pointers that one of the three best leads to are lifted, for questions in two steps: by `.6 / n`
    if its digest names one of their arguments, an argument of n pointers; and by `.6 / n` if their
    digest is one of the n that name one of its arguments. Age is by `created_at`, then by position.
    Linear in the pool.

    Args:
        query: Any text.
        pointers: The pool.
        embedder: Compares texts by meaning; None ranks without.
        limit: Most pointers to return; None returns all.
    """
    pool = sorted(pointers, key=attrgetter("created_at"))[::-1]
    lowered: list[str] = []
    digests: list[str] = []
    for pointer in pool:
        lowered.append(pointer.digest.lower())
        if pointer.digest.isascii():
            digests.append(lowered[-1])  # what `folded` would return, quicker
        else:
            digests.append(folded(pointer.digest))
    parts: dict[str, Sequence[float]] = {
        "words": scan_columns(
            query, [[folded(pointer.summary) for pointer in pool], digests], weights=_FIELD_WEIGHTS
        ),
        "recency": [_RECENCY_WEIGHT * math.exp(-age / _RECENCY_DECAY) for age in range(len(pool))],
    }
    if embedder:
        likeness = prominence(embedder.similarities(query, [pointer.summary for pointer in pool]))
        parts["vectors"] = [_VECTOR_WEIGHT * value for value in likeness]
    scores = [*map(math.fsum, zip(*parts.values(), strict=True))]
    best = heapq.nlargest(_MAX_LINKING, range(len(pool)), key=scores.__getitem__)
    lifts = {"named": _named_by(best, pool), "names": _naming(best, pool, lowered)}
    for lifted in lifts.values():
        for place, lift in lifted.items():
            scores[place] += lift
    if limit is None:
        limit = len(pool)
    ranked = []
    for place in heapq.nlargest(limit, range(len(pool)), key=scores.__getitem__):
        found = {name: values[place] for name, values in parts.items() if values[place]}
        found |= {name: lifted[place] for name, lifted in lifts.items() if place in lifted}
        ranked.append(RankedPointer(pool[place], scores[place], found))
    return ranked


def _named_by(best: Collection[int], pool: Sequence[ContextPointer]) -> dict[int, float]:
    """The lifts of the pointers, except the best, with an argument that a digest of the best names.

    An argument of many pointers, such as a date, is weak evidence for each.
    """
    text = _spaced(" ".join(pool[place].digest for place in best))
    words = set(text.split())
    names: dict[str, str] = {}  # the spaced name by the argument; "" if the text does not hold it
    owners: dict[str, list[int]] = {}
    for place, pointer in enumerate(pool):
        if not pointer.args:
            continue
        for value in _strings(pointer.args):
            name = names.get(value)
            if name is None:
                name = _name(value)
                # The last word alone rules out most names, quicker than a search for the whole.
                if name and not (name.rsplit(None, 1)[-1] in words and name in text):
                    name = ""
                names[value] = name
            if name and place not in (places := owners.setdefault(name, []))[-1:]:
                places.append(place)
    lifted: dict[int, float] = {}
    for places in owners.values():
        for place in places:
            lifted[place] = max(lifted.get(place, 0.0), _LINK_WEIGHT / len(places))
    return {place: lift for place, lift in lifted.items() if place not in best}


def _naming(
    best: Collection[int], pool: Sequence[ContextPointer], lowered: Sequence[str]
) -> dict[int, float]:
    """Return the lifts of the pointers whose digest names an argument of one of the best.

    The best themselves are not lifted. The digests are in lower case.
    """
    names: set[str] = set()
    for place in best:
        names.update(map(_name, _strings(pool[place].args)))
    names.discard("")
    lifted: dict[int, float] = {}
    for name in names:
        near: Sequence[int] = range(len(pool))
        for word in sorted(name.split(), key=_rarity, reverse=True)[:2]:  # most digests lack one
            near = [place for place in near if word in lowered[place]]
        first, *rest = map(re.escape, name.split())
        # The literal comes before its lookbehind: the engine then searches for it quickly.
        whole = re.compile(
            "".join([rf"{first}(?<!\w{first})", *(rf"\W+{word}" for word in rest), r"(?!\w)"])
        )
        found = [place for place in near if whole.search(lowered[place]) and place not in best]
        lifted |= {place: max(lifted.get(place, 0.0), _LINK_WEIGHT / len(found)) for place in found}
    return lifted


def _rarity(word: str) -> tuple[bool, int]:
    """A sort key: higher for words in fewer texts, that is numbers and codes, then long words."""
    return not word.isalpha(), len(word)


def _strings(args: Mapping[str, object]) -> list[str]:
    """The strings among the arguments, those in containers last."""
    found: list[str] = []
    rest: list[Iterable[object]] = [args.values()]
    for items in rest:  # grows while it is read
        for item in items:
            if isinstance(item, str):
                found.append(item)
            elif isinstance(item, dict):
                rest.append(item.values())
            elif isinstance(item, list):
                rest.append(item)
    return found


def _name(text: str) -> str:
    """The spaced text if its length is that of a name; else ""."""
    if text == REDACTED or not _MIN_NAME_CHARS <= len(text.strip()) <= _MAX_NAME_CHARS:
        return ""
    return _spaced_name(text)


@lru_cache(maxsize=_CACHED_NAMES)
def _spaced_name(text: str) -> str:
    if not _TOKEN.search(text):
        return ""  # marks alone are no name
    return _spaced(text)


def _spaced(text: str) -> str:
    """The lower-case words of a text, each between spaces: `in` then compares whole words."""
    return " ".join(["", *_TOKEN.findall(text.lower()), ""])
