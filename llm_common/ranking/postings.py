"""`Postings`: BM25 over documents in memory that change one by one."""

import math
from collections import Counter
from collections.abc import Container, Iterable
from functools import lru_cache
from typing import Final

from llm_common.ranking.lexical import identifier_words
from llm_common.ranking.scan import MAX_WORD_CHARS, folded, stem

# Chosen on the tuning half of the tool sets (benchmarks/quality_tools.py). k1 of 1.2 to 4, or b of
# .3 to .5, changes that by .004 at most; both of `scan` lose .009 by words.
_SATURATION: Final = 2.0
_LENGTH_SHARE: Final = 0.4

_MIN_RELATIVE: Final = 0.2  # of the best score; spares a third of the time, and finds .001 more
_LETTERS: Final = 4


class Postings:
    """Documents by key, scored against terms by BM25.

    Takes about 50 ns for each document that holds a term of a request, three times that for a term
    that no earlier request had. The order of insertion never changes a score. Not safe to share
    between threads.
    """

    def __init__(self) -> None:
        self._documents: dict[str, Counter[str]] = {}
        self._holders: dict[str, dict[str, int]] = {}
        self._gains: dict[str, dict[int, float]] = {}
        self._keys: tuple[str, ...] | None = None
        self._places: dict[str, int] = {}
        self._burdens: dict[str, float] = {}
        self._weights: list[float] = []

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, sorted; the scores are in their order."""
        if self._keys is None:
            self._keys = tuple(sorted(self._documents))
            self._places = {key: place for place, key in enumerate(self._keys)}
            lengths = {key: counts.total() for key, counts in self._documents.items()}
            average = sum(lengths.values()) / max(1, len(lengths)) or 1.0
            self._burdens = {
                key: _SATURATION * (1 - _LENGTH_SHARE + _LENGTH_SHARE * length / average)
                for key, length in lengths.items()
            }
            self._gains, self._weights = {}, []
        return self._keys

    def put(self, key: str, terms: Iterable[str]) -> None:
        """Adds a document, or replaces the one of that key."""
        self.discard(key)
        counts = self._documents[key] = Counter(terms)
        for term, count in counts.items():
            self._holders.setdefault(term, {})[key] = count

    def discard(self, key: str) -> None:
        """Removes a document, if it is there."""
        for term in self._documents.pop(key, ()):
            holders = self._holders[term]
            del holders[key]
            if not holders:
                del self._holders[term]
        self._keys = None

    def scores(
        self,
        terms: Iterable[str],
        *,
        among: Iterable[int] | None = None,
        max_holders: float = math.inf,
    ) -> dict[int, float]:
        """The score of each document relative to the best, by its place in `keys`.

        Up to a fifth counts as none.

        Args:
            terms: What to look for; each distinct term once.
            among: Places of the documents that count; None for all.
            max_holders: Terms that more documents hold are passed over.
        """
        size = len(self.keys)
        gains = [
            self._gains_of(term)
            for term in terms
            if 0 < len(self._holders.get(term, ())) <= max_holders
        ]
        if among is None:
            totals = [0.0] * size
            for by_place in gains:
                for place, gain in by_place.items():
                    totals[place] += gain
            scored: Iterable[tuple[int, float]] = enumerate(totals)
        else:
            scored = [
                (place, sum([by_place.get(place, 0.0) for by_place in gains])) for place in among
            ]
            totals = [score for _, score in scored]
        top = max(totals, default=0.0)
        floor = _MIN_RELATIVE * top
        return {place: score / top for place, score in scored if score > floor} if top else {}

    def shares(
        self, terms: Iterable[str], *, among: Container[int] | None = None
    ) -> dict[int, float]:
        """How much of each document the terms are, from 0 to 1, by its place in `keys`.

        Rare terms weigh more.
        """
        keys, places = self.keys, self._places
        if not self._weights:
            rarities = {term: self._rarity(len(holders)) for term, holders in self._holders.items()}
            self._weights = [
                math.fsum(map(rarities.__getitem__, self._documents[key])) for key in keys
            ]
        totals: dict[int, float] = {}
        for term in terms:
            holders = self._holders.get(term, {})
            rarity = self._rarity(len(holders))
            for key in holders:
                place = places[key]
                if among is None or place in among:
                    totals[place] = totals.get(place, 0.0) + rarity / self._weights[place]
        return totals

    def holds(self, key: str, term: str) -> bool:
        """Whether the document holds the term."""
        return term in self._documents[key]

    def score_of(self, key: str, terms: Iterable[str], *, among: int) -> float:
        """The score of one document, in nats, as if there were at least so many documents: compares between pools."""
        self.keys  # noqa: B018 - computes the burdens
        counts, burden = self._documents[key], self._burdens[key]
        return math.fsum(
            self._rarity(len(self._holders[term]), among=among)
            * counts[term]
            / (counts[term] + burden)
            for term in terms
            if term in counts
        )

    def _rarity(self, held: int, *, among: int = 0) -> float:
        """The idf of BM25."""
        return math.log1p((max(len(self._documents), among) - held + 0.5) / (held + 0.5))

    def _gains_of(self, term: str) -> dict[int, float]:
        """What a held term adds to the scores."""
        gains = self._gains.get(term)
        if gains is None:
            holders, burdens, places = self._holders[term], self._burdens, self._places
            rarity = self._rarity(len(holders))
            gains = {
                places[key]: rarity * count / (count + burdens[key])
                for key, count in holders.items()
            }
            self._gains[term] = gains
        return gains


def stems_and_letters(text: str) -> tuple[list[str], list[str]]:
    """The stem of every word, identifiers also in parts.

    And every four letters in a row within a word.
    Four letters find `database` in `databases` and in `mydatabase`.
    """
    forms = [*map(_forms, identifier_words(text))]
    return [stem for stem, _ in forms], [letters for _, every in forms for letters in every]


@lru_cache(maxsize=65_536)
def _forms(word: str) -> tuple[str, tuple[str, ...]]:
    word = folded(word)
    last = len(word) - _LETTERS
    inside = (
        tuple(word[start : start + _LETTERS] for start in range(last + 1))
        if len(word) <= MAX_WORD_CHARS
        else ()
    )
    return stem(word), (word,) if last == -1 else inside
