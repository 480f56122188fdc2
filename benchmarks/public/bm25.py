"""Okapi BM25 in a few lines, as a baseline that owes nothing to the measured package."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

__all__ = ["BM25", "code_words", "words"]

# Lucene's and bm25s's defaults. They are never changed.
K1: Final = 1.5
B: Final = 0.75

_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def code_words(text: str) -> list[str]:
    """Return identifiers, and the parts of `snake_case` and `camelCase` ones, in lower case."""
    found = []
    for word in re.findall(r"\w+", text):
        parts = _PART.findall(word)
        found.append(word.lower())
        if len(parts) > 1:
            found += map(str.lower, parts)
    return found


class BM25:
    """Ranks documents, each given as the counts of its words."""

    def __init__(self, documents: Sequence[Counter[str]]) -> None:
        self._documents = documents
        self._lengths = [document.total() for document in documents]
        self._mean_length = sum(self._lengths) / max(len(documents), 1) or 1.0

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> "BM25":
        """Return an index of texts by their words."""
        return cls([Counter(words(text)) for text in texts])

    def scores(self, query: Iterable[str]) -> list[float]:
        """Return the score of each document."""
        scores = [0.0] * len(self._documents)
        for word in dict.fromkeys(query):
            matches = [index for index, counts in enumerate(self._documents) if word in counts]
            idf = math.log1p((len(self._documents) - len(matches) + 0.5) / (len(matches) + 0.5))
            for index in matches:
                count = self._documents[index][word]
                norm = K1 * (1 - B + B * self._lengths[index] / self._mean_length)
                scores[index] += idf * count / (count + norm)
        return scores

    def ranked(self, query: Iterable[str]) -> list[int]:
        """Return the documents that share a word with the query, best first."""
        scores = self.scores(query)
        matches = [index for index, score in enumerate(scores) if score > 0]
        return sorted(matches, key=lambda index: -scores[index])
