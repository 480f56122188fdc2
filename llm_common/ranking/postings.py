"""Rank documents in memory with BM25."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
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

_LETTERS: Final = 4


class Postings:
    """Scores documents against terms by BM25.

    A request takes about 50 ns for each document that contains one of its terms. A term that no
    earlier request had takes three times as long. The order of the documents never changes a score.
    Threads may share one.

    Args:
        bm25: The parameters of the formula.
        documents: The terms of each document, by its key.

    Attributes:
        keys: The sorted keys. An index into them identifies a document in the scores.
    """

    def __init__(self, bm25: BM25, documents: Mapping[str, Iterable[str]]) -> None:
        self.keys = tuple(sorted(documents))
        self._documents = [Counter(documents[key]) for key in self.keys]
        self._postings: dict[str, dict[int, int]] = {}
        for index, counts in enumerate(self._documents):
            for term, count in counts.items():
                self._postings.setdefault(term, {})[index] = count
        self._norms = bm25.length_norms(list(map(Counter.total, self._documents)))
        # Computed on demand. Two threads may compute the same entry, which is then set twice.
        self._scores: dict[str, dict[int, float]] = {}
        self._weights: list[float] = []

    def scores(self, terms: Iterable[str], *, max_matches: float = math.inf) -> dict[int, float]:
        """Return the score of each document relative to the best, by its index in `keys`.

        Args:
            terms: The terms to look for, each distinct term once.
            max_matches: Terms in more documents than this are ignored.
        """
        totals: dict[int, float] = {}
        for term in terms:
            scores = self._term_scores(term)
            if len(scores) <= max_matches:
                for index, score in scores.items():
                    totals[index] = totals.get(index, 0.0) + score
        top = max(totals.values(), default=0.0)
        return {index: score / top for index, score in totals.items()}

    def shares(self, terms: Iterable[str]) -> dict[int, float]:
        """Return how much of each document the terms cover, from 0 to 1, by its index in `keys`.

        Rare terms weigh more.

        Args:
            terms: The terms to look for, each distinct term once.
        """
        if not self._weights:
            idfs = {term: self._idf(term) for term in self._postings}
            weights: list[float] = []
            for counts in self._documents:
                # fsum is exact, so the order of the terms does not change a share.
                weights.append(math.fsum(map(idfs.__getitem__, counts)))
            self._weights = weights
        totals: dict[int, float] = {}
        for term in terms:
            weight = self._idf(term)
            for index in self._postings.get(term, ()):
                totals[index] = totals.get(index, 0.0) + weight
        return {index: total / self._weights[index] for index, total in totals.items()}

    def contains(self, index: int, term: str) -> bool:
        """Return whether the document contains the term."""
        return term in self._documents[index]

    def score_of(self, index: int, terms: Iterable[str], *, min_documents: int) -> float:
        """Return the score of one document in nats, as if there were `min_documents` or more.

        A small pool then counts as a larger one, so that scores compare between pools.
        """
        norm = self._norms[index]
        total = 0.0
        for term in terms:
            count = self._documents[index][term]
            if count:
                total += self._idf(term, min_documents=min_documents) * count / (count + norm)
        return total

    def _idf(self, term: str, *, min_documents: int = 0) -> float:
        return idf(len(self._postings.get(term, ())), max(len(self._documents), min_documents))

    def _term_scores(self, term: str) -> dict[int, float]:
        """Return what a term adds to the score of each document that contains it."""
        scores = self._scores.get(term)
        if scores is None:
            posting = self._postings.get(term, {})
            scores = word_scores(posting, self._norms, len(self._norms))
            if posting:  # requests may contain any number of terms that occur in no document
                self._scores[term] = scores
        return scores


def stems_and_letters(text: str) -> tuple[list[str], list[str]]:
    """Return the stem of every word of a text, and every run of four letters within a word.

    The parts of an identifier count too. Runs of letters find `database` in `mydatabase`.
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
