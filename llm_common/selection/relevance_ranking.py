"""Ranks pointers for a query, without a model."""

import heapq
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Literal

from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import Embedder
from llm_common.ranking.cues import points_back
from llm_common.ranking.embeddings import prominence
from llm_common.ranking.lexical import STOP_WORDS, folded, scan_columns
from llm_common.redaction.patterns import REDACTED

OnNoMatch = Literal["all", "none"]

_MIN_WORD_CHARS = 3  # of a keyword: shorter words match too many summaries
_WORD = re.compile(r"[^\W_]+")


def select_by_keywords(
    query: str, pointers: Sequence[ContextPointer], *, on_no_match: OnNoMatch
) -> list[ContextPointer]:
    """Return the pointers that share words with the query, those with the most words first.

    Ties keep their order. Words have three letters or more. Case is ignored.

    Args:
        query: Any text.
        pointers: The candidates.
        on_no_match: The result if no pointer shares a word: all candidates in their order, or none.
    """
    words = _words(query)
    scored: list[tuple[int, ContextPointer]] = []
    for pointer in pointers:
        score = len(words & _words(pointer.summary))
        if score:
            scored.append((score, pointer))
    if not scored and on_no_match == "all":
        return list(pointers)
    scored.sort(key=itemgetter(0), reverse=True)  # stable: ties keep their order
    return [pointer for _, pointer in scored]


def _words(text: str) -> set[str]:
    return {word for word in _WORD.findall(text.lower()) if len(word) >= _MIN_WORD_CHARS}


# Tuned with benchmarks/quality_context.py. A small change hardly moves the mean over the sets, but
# may push a single set below its documented figure: measure all sets before a change.
_FIELD_WEIGHTS = (2.0, 1.0)  # summary, digest. (1, 1) loses .014 on wiki_session
_VECTOR_WEIGHT = 0.4
_RECENCY_WEIGHT = 0.7  # only if the query points back. Always, it loses .08 on wiki_musique
_RECENCY_DECAY = 6.0  # in pointers, not in time: sessions run at any speed
_LINK_WEIGHT = 0.6  # without links, the mean loses .04
_MAX_LINKING = 3  # best pointers that raise the pointers linked with them

# An argument outside these limits is a flag or a text, and not a name that links two outputs.
_MIN_NAME_CHARS = 3
_MAX_NAME_CHARS = 120
_MIN_LETTERS = 4  # of a name in a query, unless it has a digit: `LAS` is not "Las Vegas"
_CACHED_NAMES = 32_768  # the same arguments are ranked for each query of a session
_TOKEN = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RankedPointer:
    """A pointer with its score, which is the sum of its parts.

    Parts are `words`, `vectors`, `recency`, `named`, `names` and `mentioned`. Parts that are 0 are
    left out.
    """

    pointer: ContextPointer
    score: float
    parts: Mapping[str, float]

    @property
    def matches(self) -> bool:
        """Return whether it shares a word with the query, or the query names its argument."""
        return self.parts.get("words", 0.0) > 0 or "mentioned" in self.parts


def rank_pointers(
    query: str,
    pointers: Sequence[ContextPointer],
    *,
    context: str = "",
    embedder: Embedder | None = None,
    limit: int | None = None,
) -> list[RankedPointer]:
    """Return the pointers by relevance to the query, best first, ties newest first.

    A pointer with an argument that the query names comes before all others. Such a name has four
    letters or more, or a digit. Below the query's first line, which may quote the assistant, it
    must belong to one pointer only.

    The score is BM25 over summary and digest, divided by the best (see `scan_columns`). If the
    query points back, as "cancel that" does, recency adds `.7 * exp(-age / 6)`. The newest pointer
    by `created_at`, then by position, has age 0, the next age 1. With an embedder, the summary
    closest to the query in meaning adds `.4`, and others less (see `prominence`).

    Then the three best pointers raise the pointers linked with them, for questions in two steps. If
    the digest of one of the three names an argument that n pointers have, each of them gains
    `.6 / n`. If n digests name an argument of one of the three, each of their pointers gains
    `.6 / n`. At last, a pointer that the query names gains the highest score and the share that its
    rarest name has in it. Takes time linear in the number of pointers.

    Args:
        query: The question.
        pointers: The pointers to rank.
        context: The assistant's last message, which a short answer of the user refers to. Only its
            words and its meaning count.
        embedder: Compares texts by meaning. None ranks by words alone.
        limit: Maximum number of pointers to return. None returns all.
    """
    # Reversed after a stable sort: of equal times, the later position counts as newer.
    pool = sorted(pointers, key=attrgetter("created_at"))[::-1]
    digests = [folded(pointer.digest) for pointer in pool]
    summaries = [pointer.summary for pointer in pool]
    text = f"{query}\n{context}"
    parts: dict[str, Sequence[float]] = {
        "words": scan_columns(text, [[*map(folded, summaries)], digests], weights=_FIELD_WEIGHTS),
    }
    if points_back(query):
        parts["recency"] = [
            _RECENCY_WEIGHT * math.exp(-age / _RECENCY_DECAY) for age in range(len(pool))
        ]
    if embedder:
        similarities = prominence(embedder.similarities(text, summaries))
        parts["vectors"] = [_VECTOR_WEIGHT * similarity for similarity in similarities]
    scores = [*map(math.fsum, zip(*parts.values(), strict=True))]
    # `nlargest` keeps the order of equal scores, which is newest first.
    best = heapq.nlargest(_MAX_LINKING, range(len(pool)), key=scores.__getitem__)
    # After the best are chosen, so that links do not change which pointers are linked.
    gains = {"named": _named_by(best, pool), "names": _naming(best, pool)}
    for part in gains.values():
        for index, gain in part.items():
            scores[index] += gain
    gains["mentioned"] = _mentioned(query, pool, top=max(scores, default=0.0))
    for index, gain in gains["mentioned"].items():
        scores[index] += gain
    if limit is None:
        limit = len(pool)
    ranked = []
    for index in heapq.nlargest(limit, range(len(pool)), key=scores.__getitem__):
        pointer_parts = {part: values[index] for part, values in parts.items() if values[index]}
        pointer_parts |= {part: values[index] for part, values in gains.items() if index in values}
        ranked.append(RankedPointer(pool[index], scores[index], pointer_parts))
    return ranked


def _mentioned(query: str, pool: Sequence[ContextPointer], *, top: float) -> dict[int, float]:
    """Return the gains of pointers with an argument that the query names, more than the top."""
    first_line = _spaced(query.partition("\n")[0])
    gains: dict[int, float] = {}
    for name, indexes in _owners(_spaced(query), pool, numbers=True).items():
        is_word = len(name.strip()) < _MIN_LETTERS or STOP_WORDS.issuperset(name.split())
        if is_word and not any(map(str.isdigit, name)):
            continue
        if len(indexes) == 1 or name in first_line:
            for index in indexes:
                gains[index] = max(gains.get(index, 0.0), top + 1 / len(indexes))
    return gains


def _owners(
    text: str, pool: Sequence[ContextPointer], *, numbers: bool = False
) -> dict[str, list[int]]:
    """Return the pointers with an argument that a spaced text names, by the spaced name.

    Numbers are arguments of different things too often to link two outputs.
    """
    words = set(text.split())
    names: dict[str, str] = {}  # the spaced name by argument, "" if the text does not contain it
    owners: dict[str, list[int]] = {}
    for index, pointer in enumerate(pool):
        if not pointer.args:
            continue
        for value in _strings(pointer.args, numbers=numbers):
            name = names.get(value)
            if name is None:
                name = _name(value)
                # The last word rules out most names, faster than a search for the whole name.
                if name and not (name.rsplit(None, 1)[-1] in words and name in text):
                    name = ""
                names[value] = name
            # A pointer may have the same argument twice.
            if name and index not in (indexes := owners.setdefault(name, []))[-1:]:
                indexes.append(index)
    return owners


def _named_by(best: Collection[int], pool: Sequence[ContextPointer]) -> dict[int, float]:
    """Return the gains of pointers with an argument that a digest of the best names."""
    text = _spaced(" ".join(pool[index].digest for index in best))
    gains: dict[int, float] = {}
    for indexes in _owners(text, pool).values():
        for index in indexes:
            if index not in best:
                # An argument of many pointers, such as a date, is weak evidence for each.
                gains[index] = max(gains.get(index, 0.0), _LINK_WEIGHT / len(indexes))
    return gains


def _naming(best: Collection[int], pool: Sequence[ContextPointer]) -> dict[int, float]:
    """Return the gains of pointers whose digest names an argument of one of the best."""
    lowered = [pointer.digest.lower() for pointer in pool]
    names: set[str] = set()
    for index in best:
        names.update(map(_name, _strings(pool[index].args)))
    names.discard("")
    gains: dict[int, float] = {}
    for name in names:
        candidates: Sequence[int] = range(len(pool))
        # Numbers and codes are the rarest words, then long words. Most digests lack one of two.
        rarest = sorted(name.split(), key=lambda word: (word.isalpha(), -len(word)))[:2]
        for word in rarest:
            candidates = [index for index in candidates if word in lowered[index]]
        first, *others = map(re.escape, name.split())
        # The literal comes before its lookbehind: the engine then searches for it quickly.
        pattern = re.compile(r"\W+".join([rf"{first}(?<!\w{first})", *others]) + r"(?!\w)")
        matching: list[int] = []
        for index in candidates:
            if index not in best and pattern.search(lowered[index]):
                matching.append(index)
        for index in matching:
            gains[index] = max(gains.get(index, 0.0), _LINK_WEIGHT / len(matching))
    return gains


def _strings(args: Mapping[str, object], *, numbers: bool = False) -> list[str]:
    """Return the strings among the arguments, those in containers last."""
    strings: list[str] = []
    containers: list[Iterable[object]] = [args.values()]
    for container in containers:  # grows during the loop
        for value in container:
            if isinstance(value, str):
                strings.append(value)
            elif numbers and type(value) is int:  # not a bool
                strings.append(str(value))
            elif isinstance(value, dict):
                containers.append(value.values())
            elif isinstance(value, list):
                containers.append(value)
    return strings


def _name(text: str) -> str:
    """Return the spaced text, or "" if it is too short or too long for a name."""
    # Checked before the cache, which would keep texts of any length.
    # A redacted value would link all outputs with a secret.
    if text == REDACTED or not _MIN_NAME_CHARS <= len(text.strip()) <= _MAX_NAME_CHARS:
        return ""
    return _spaced_name(text)


@lru_cache(maxsize=_CACHED_NAMES)
def _spaced_name(text: str) -> str:
    if not _TOKEN.search(text):
        return ""  # only punctuation
    return _spaced(text)


def _spaced(text: str) -> str:
    """Return the lower-case words of a text between spaces, so that `in` compares whole words."""
    return " ".join(["", *_TOKEN.findall(text.lower()), ""])
