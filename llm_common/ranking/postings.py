"""`Postings`: BM25 over documents in memory that change one by one."""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

from llm_common.ranking.lexical import (
    BM25,
    MAX_WORD_CHARS,
    folded,
    identifier_words,
    idf,
    stem,
    word_scores,
)

_MIN_RELATIVE: Final = 0.2  # of the best score; spares a third of the time, and finds .001 more
_LETTERS: Final = 4


class Postings:
    """Documents by key, scored against terms by BM25.

    Takes about 50 ns for each document that has a term of a request, three times that for a term
    that no earlier request had. The order of insertion never changes a score. Not safe to share
    between threads.

    Args:
        bm25: The parameters of the formula.
    """

    def __init__(self, bm25: BM25) -> None:
        self._bm25 = bm25
        self._documents: dict[str, Counter[str]] = {}
        self._holders: dict[str, dict[str, int]] = {}
        self._is_stale = True  # what follows is computed when it is asked for first
        self._keys: tuple[str, ...] = ()
        self._places: dict[str, int] = {}
        self._norms: list[float] = []
        self._scores: dict[str, dict[int, float]] = {}
        self._weights: list[float] = []

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, sorted. The scores are in their order."""
        self._refresh()
        return self._keys

    def _refresh(self) -> None:
        if not self._is_stale:
            return
        self._keys = tuple(sorted(self._documents))
        self._places = {key: place for place, key in enumerate(self._keys)}
        lengths = [self._documents[key].total() for key in self._keys]
        self._norms = self._bm25.length_norms(lengths)
        self._scores, self._weights = {}, []
        self._is_stale = False

    def put(self, key: str, terms: Iterable[str]) -> None:
        """Add a document, or replace the one of that key."""
        self.discard(key)
        counts = self._documents[key] = Counter(terms)
        for term, count in counts.items():
            self._holders.setdefault(term, {})[key] = count

    def discard(self, key: str) -> None:
        """Remove a document, if it is there."""
        for term in self._documents.pop(key, ()):
            holders = self._holders[term]
            del holders[key]
            if not holders:
                del self._holders[term]
        self._is_stale = True

    def scores(
        self,
        terms: Iterable[str],
        *,
        among: Collection[int] | None = None,
        max_holders: float = math.inf,
    ) -> dict[int, float]:
        """Return the score of each document relative to the best, by its place in `keys`.

        Leaves out documents that score up to a fifth of the best.

        Args:
            terms: What to look for, each distinct term once.
            among: Places of the documents that count. None for all.
            max_holders: Terms that more documents have are passed over.
        """
        self._refresh()
        totals: dict[int, float] = {}
        for term in terms:
            scores = self._term_scores(term)
            if len(scores) <= max_holders:
                for place in scores if among is None else scores.keys() & among:
                    totals[place] = totals.get(place, 0.0) + scores[place]
        top = max(totals.values(), default=0.0)
        floor = _MIN_RELATIVE * top
        return {place: score / top for place, score in totals.items() if score > floor}

    def shares(
        self, terms: Iterable[str], *, among: Collection[int] | None = None
    ) -> dict[int, float]:
        """Return how much of each document the terms are, from 0 to 1, by its place in `keys`.

        Rare terms weigh more.
        """
        self._refresh()
        if not self._weights:
            idfs = {term: self._idf(term) for term in self._holders}
            for key in self._keys:
                self._weights.append(math.fsum(map(idfs.__getitem__, self._documents[key])))
        totals: dict[int, float] = {}
        for term in terms:
            weight = self._idf(term)
            for key in self._holders.get(term, ()):
                place = self._places[key]
                if among is None or place in among:
                    totals[place] = totals.get(place, 0.0) + weight / self._weights[place]
        return totals

    def holds(self, key: str, term: str) -> bool:
        """Return whether the document has the term."""
        return term in self._documents[key]

    def score_of(self, key: str, terms: Iterable[str], *, among: int) -> float:
        """Return the score of one document, in nats, as if there were at least so many documents.

        Such scores compare between pools.
        """
        self._refresh()
        norm = self._norms[self._places[key]]
        total = 0.0
        for term in terms:
            count = self._documents[key][term]
            if count:
                total += self._idf(term, among=among) * count / (count + norm)
        return total

    def _idf(self, term: str, *, among: int = 0) -> float:
        return idf(len(self._holders.get(term, ())), max(len(self._documents), among))

    def _term_scores(self, term: str) -> dict[int, float]:
        """Return what a term adds to the score of each document that has it."""
        scores = self._scores.get(term)
        if scores is None:
            holders = self._holders.get(term, {})
            counts = {self._places[key]: count for key, count in holders.items()}
            scores = word_scores(counts, self._norms, len(self._norms))
            if holders:
                self._scores[term] = scores
        return scores


def stems_and_letters(text: str) -> tuple[list[str], list[str]]:
    """Return the stem of every word of a text, and every four letters in a row within a word.

    Identifiers count in parts too. Four letters find `database` in `databases` and `mydatabase`.
    """
    stems: list[str] = []
    letters: list[str] = []
    for word in identifier_words(text):
        word_stem, word_letters = _stem_and_letters(word)
        stems.append(word_stem)
        letters += word_letters
    return stems, letters


@lru_cache(maxsize=65_536)
def _stem_and_letters(word: str) -> tuple[str, list[str]]:
    word = folded(word)
    if len(word) > MAX_WORD_CHARS:
        return stem(word), []
    if len(word) == _LETTERS - 1:
        return stem(word), [word]
    starts = range(len(word) - _LETTERS + 1)
    return stem(word), [word[start : start + _LETTERS] for start in starts]
