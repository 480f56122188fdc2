"""BM25 without an index: counts the words of a request in texts in memory.

For texts that are searched once or change often. A pass over 2 MB takes one to two milliseconds a
word; filling a full-text index takes four hundred. On the evaluation sets both rank alike.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import add
from typing import Final

from llm_common.ranking.lexical import POINTS, Hit, best_first, query_terms, split_request

# The parameters of BM25 as Robertson and Zaragoza give them, "The Probabilistic Relevance
# Framework", 2009.
_SATURATION: Final = 1.2
_LENGTH_SHARE: Final = 0.75

MAX_WORD_CHARS: Final = 32
"""A longer word is encoded data: it has no stem, and would fill the caches."""

_MAX_CACHED_PLACES: Final = 250_000  # of words in documents; at most some 40 MB

_BEYOND_ASCII: Final = re.compile("[^\0-\x7f]+")
_MARKS: Final = re.compile(f"[\u0300-\u036f{POINTS}]+")
_MIN_STEM_CHARS: Final = 4  # a shorter word counts only as a whole word
_RARE_STEM_CHARS: Final = 6  # stems this long are hardly within other words by chance
# Longest first. A stem finds all words that begin with it, so a short stem finds all forms of a
# word.
_ENDINGS: Final = tuple("ations ation ingly ings edly ing ies ied ers er ed es ly s e y".split())  # noqa: SIM905
_OFTEN_DOUBLE: Final = "aeiouls"  # `call`, `pass`; but `stopped` is of `stop`

Totals = dict[int, float]
"""The weighted count of a word by the place of each document that holds it."""

Weights = tuple[float, ...]
"""The weight of a word in each field."""

Gains = dict[int, float]
"""What a word adds to the score, by the place of each document that holds it."""


def folded(text: str) -> str:
    """The text to compare: lower case, no accents, no points of Hebrew and Arabic, compatibility form."""
    if not text.isascii():
        # no mark but those that are dropped joins an ASCII character
        text = _BEYOND_ASCII.sub(_without_marks, text)
    return text.lower()


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """The word without its English ending: `pars` for parser, parsing and parsed.

    A stem is the beginning of its word, at least four letters long, so a search for the stem finds
    all forms. Other than ASCII letters, and words of over 32 characters, come back unchanged.
    """
    if not (word.isascii() and word.isalpha()) or len(word) > MAX_WORD_CHARS or word.endswith("ss"):
        return word
    for ending in _ENDINGS:
        start = word.removesuffix(ending)
        if start != word and len(start) >= _MIN_STEM_CHARS:
            doubled = (
                len(start) > _MIN_STEM_CHARS
                and start[-1] == start[-2]
                and start[-1] not in _OFTEN_DOUBLE
            )
            return start[:-1] if doubled else start
    return word


def search_stems(text: str) -> tuple[str, ...]:
    """The stems of the words to look for, folded, once each; see `query_terms`."""
    return tuple(dict.fromkeys(stem(folded(term)) for term in query_terms(text)))


def places_of(stem: str, texts: Sequence[str]) -> list[int]:
    """The places of the `folded` texts that hold a word of the stem, as `scan` finds words."""
    return [*_counter(stem)(texts)]


class TermScanner:
    """Scores documents by the words of a request, and caches where each word is.

    BM25 over the fields of the documents, counted together as in BM25F. A word is found by its stem
    (`deliver` in `delivery`), a long one within other words too (`connection` in `getConnection`),
    one of fewer than four letters only whole. A request of several parts (see `split_request`)
    counts half as a whole, half by the part that matches the document best. Deterministic; the
    order of the documents does not matter; linear in their length.

    A word of an earlier request is searched for only in new documents, which never changes a score.
    Threads may share a scanner.

    Args:
        weights: The weight of a word in each field, in the order of the fields.
        length_share: How far the length of a document lowers its score, from 0 to 1.
        max_chars: Documents with more characters together are not cached; 0 caches none.
    """

    def __init__(
        self,
        *,
        weights: Sequence[float],
        length_share: float = _LENGTH_SHARE,
        max_chars: int = 50_000_000,
    ) -> None:
        self._max_chars = max_chars
        self._searched = _Searched([], {}, weights=tuple(weights), length_share=length_share)

    def scan(self, request: str, documents: Sequence[Sequence[str]]) -> list[float]:
        """How well each document matches, from 0 (no shared word) to 1 (the best).

        Args:
            request: Any text; its first 64 words count.
            documents: The `folded` fields of each.
        """
        if not documents:
            return []
        columns = [*zip(*documents, strict=True)]
        searched = self._searched
        if searched.columns != columns:
            searched = searched.followed_by(columns)
            if searched.chars <= self._max_chars:
                self._searched = searched
        return searched.scores(request)


def scan(
    request: str, documents: Sequence[Sequence[str]], *, weights: Sequence[float]
) -> list[float]:
    """As `TermScanner.scan`, for documents that are searched once."""
    return (
        scan_columns(request, [*zip(*documents, strict=True)], weights=weights) if documents else []
    )


def scan_columns(
    request: str, columns: Sequence[Sequence[str]], *, weights: Sequence[float]
) -> list[float]:
    """As `scan`, given all first fields, all second fields …; faster for thousands."""
    return _Searched(columns, {}, weights=tuple(weights), length_share=_LENGTH_SHARE).scores(
        request
    )


class StreamedScan:
    """Score documents that come one by one and are not kept: BM25 as in `TermScanner`, without the parts of a request.

    Takes some 300 bytes for each document that has a word of the request, nothing for the others.
    The length of a document counts beside those of the others that have one. A number is found
    whole, not within another number. Not safe to share between threads.

    Args:
        request: Any text. Its first 64 words count.

    Attributes:
        stems: The stems of the request.
    """

    def __init__(self, request: str) -> None:
        self.stems = search_stems(request)
        self._counters = [
            _number_counter(stem) if stem.isdecimal() else _counter(stem) for stem in self.stems
        ]
        self._documents = 0
        self._matching: dict[str, tuple[int, list[float]]] = {}

    def add(self, key: str, fields: Iterable[tuple[str, float]]) -> None:
        """Count the words of a document.

        Args:
            key: A new one.
            fields: `folded` texts, each with the weight of a word in it. Read once and not kept.
        """
        self._documents += 1
        chars, totals = 0, [0.0] * len(self.stems)
        for text, weight in fields:
            chars += len(text)
            for number, count in enumerate(self._counters):
                totals[number] += weight * count((text,)).get(0, 0)
        if any(totals):
            self._matching[key] = chars, totals

    def best(self, limit: int) -> tuple[list[Hit], int]:
        """Return the best documents, and how many have a word of the request.

        The first scores 1. Equal scores are in the order of their keys.
        """
        if not self._matching:
            return [], 0
        average = sum(chars for chars, _ in self._matching.values()) / len(self._matching)
        gains = dict.fromkeys(self._matching, 0.0)
        for number in range(len(self.stems)):
            holders = sum(totals[number] > 0 for _, totals in self._matching.values())
            rarity = math.log1p((self._documents - holders + 0.5) / (holders + 0.5))
            for key, (chars, totals) in self._matching.items():
                burden = _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * chars / average)
                gains[key] += rarity * totals[number] / (totals[number] + burden)
        top = max(gains.values())
        hits = best_first(Hit(key, gain / top) for key, gain in gains.items())
        return hits[:limit], len(hits)


class _Searched:
    """Documents, and the places of the words that were searched for in them.

    Threads may share one: its dictionaries are replaced, never changed.
    """

    def __init__(
        self,
        columns: Sequence[Sequence[str]],
        totals: dict[str, Totals],
        *,
        weights: Weights,
        length_share: float,
    ) -> None:
        self.columns = columns
        self._totals = totals
        self._gains: dict[str, Gains] = {}
        self._weights = weights
        self._length_share = length_share
        lengths = [0] * len(columns[0]) if columns else []
        for texts in columns:
            lengths = [*map(add, lengths, map(len, texts))]
        self.chars = sum(lengths)
        average = self.chars / len(lengths) if self.chars else 1.0
        self._burdens = [
            _SATURATION * (1 - length_share + length_share * length / average) for length in lengths
        ]

    def followed_by(self, columns: Sequence[Sequence[str]]) -> "_Searched":
        """The same for the next documents.

        Words are carried over if half of the documents kept their places.
        """
        size, known, totals = len(columns[0]), [*zip(*self.columns, strict=True)], self._totals
        documents = enumerate(zip(*columns, strict=True))
        new = [
            place for place, fields in documents if place >= len(known) or known[place] != fields
        ]
        if size < len(known) or 2 * len(new) > size:
            totals = {}
        fresh = [[texts[place] for place in new] for texts in columns] if totals else []
        carried: dict[str, Totals] = {}
        for stem, before in totals.items():
            carried[stem] = {place: before[place] for place in before.keys() - new}
            carried[stem] |= {
                new[place]: total for place, total in _count(stem, fresh, self._weights).items()
            }
        return _Searched(columns, carried, weights=self._weights, length_share=self._length_share)

    def scores(self, request: str) -> list[float]:
        """How well each document matches the request."""
        stems, size = search_stems(request), len(self._burdens)
        gains = self._gains_of(stems)
        whole = _relative(stems, gains, size)
        parts = [_relative(search_stems(part), gains, size) for part in split_request(request)]
        if not parts:
            return whole
        both = [value + max(of_parts) for value, *of_parts in zip(whole, *parts, strict=True)]
        top = max(both, default=0.0)
        return [value / top for value in both] if top else both

    def _gains_of(self, stems: Sequence[str]) -> dict[str, Gains]:
        """The gains of each stem."""
        known, totals = self._gains, self._totals
        used = {
            stem: totals[stem] if stem in totals else _count(stem, self.columns, self._weights)
            for stem in stems
        }
        gains = {
            stem: known[stem] if stem in known else _gains(used[stem], self._burdens)
            for stem in stems
        }
        self._totals, self._gains = _latest(used, totals), _latest(gains, known)
        return gains


def _latest(now: Mapping[str, Gains], before: Mapping[str, Gains]) -> dict[str, Gains]:
    """The entries of now, then those of before, newest first, within `_MAX_CACHED_PLACES`."""
    kept = dict(now)
    room = _MAX_CACHED_PLACES - sum(map(len, now.values()))
    for stem, places in before.items():
        if stem not in kept:
            room -= len(places) + 1
            if room < 0:
                break
            kept[stem] = places
    return kept


def _count(stem: str, columns: Sequence[Sequence[str]], weights: Weights) -> Totals:
    counts = _counter(stem)
    totals: Totals = {}
    for texts, weight in zip(columns, weights, strict=True) if columns else ():
        for place, times in counts(texts).items():
            totals[place] = totals.get(place, 0.0) + weight * times
    return totals


def _gains(totals: Totals, burdens: Sequence[float]) -> Gains:
    rarity = math.log1p((len(burdens) - len(totals) + 0.5) / (len(totals) + 0.5))
    return {place: rarity * total / (total + burdens[place]) for place, total in totals.items()}


def _relative(stems: Iterable[str], gains: dict[str, Gains], size: int) -> list[float]:
    """The summed gains of the stems over the largest such sum."""
    totals = [0.0] * size
    for stem in stems:
        for place, gain in gains.get(stem, {}).items():
            totals[place] += gain
    top = max(totals, default=0.0)
    return [total / top for total in totals] if top else totals


def _without_marks(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", found[0])))


def _number_counter(number: str) -> Callable[[Iterable[str]], dict[int, int]]:
    """As `_counter`, for a number."""
    find = re.compile(rf"{number}(?<![0-9]{number})(?![0-9])").findall
    return lambda texts: {
        place: times for place, text in enumerate(texts) if (times := len(find(text)))
    }


@lru_cache(maxsize=1_024)
def _counter(stem: str) -> Callable[[Iterable[str]], dict[int, int]]:
    """A function that counts the stem in each of many texts, by place.

    Without a Python call for each text.
    """
    if len(stem) >= _RARE_STEM_CHARS or not stem.isascii():
        return lambda texts: {
            place: times for place, text in enumerate(texts) if (times := text.count(stem))
        }
    # The stem comes first, since the engine searches quickly for literals; then the look-behind.
    word = re.escape(stem)
    find = re.compile(
        rf"{word}(?<![a-z]{word})"
        if len(stem) >= _MIN_STEM_CHARS
        else rf"{word}(?<![a-z0-9]{word})(?:e?s)?(?![a-z0-9])"
    ).findall
    return lambda texts: {
        place: times
        for place, text in enumerate(texts)
        if stem in text and (times := len(find(text)))
    }
