"""BM25, the one formula of every ranking by words.

From Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009. Each
use names its own `BM25`, and what that gave. Memories and the index of a folder are searched by
SQLite, whose FTS5 computes BM25 itself: the texts stay in the database.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BM25:
    """The parameters of one ranking. The defaults are those of the paper.

    Attributes:
        k1: Saturation. The higher, the more the repetitions of a word count.
        b: Share of the length, from 0 to 1: how far a long document needs more repetitions.
    """

    k1: float = 1.2
    b: float = 0.75

    def length_norms(self, lengths: Sequence[int]) -> list[float]:
        """Return the count of a word at which each document gets half of the word's weight."""
        if not lengths:
            return []
        average = sum(lengths) / len(lengths) or 1.0
        return [self.k1 * (1 - self.b + self.b * length / average) for length in lengths]


def idf(holders: int, documents: int) -> float:
    """Return the weight of a word that `holders` of the documents have."""
    return math.log1p((documents - holders + 0.5) / (holders + 0.5))


def word_scores(
    counts: Mapping[int, float], norms: Sequence[float], documents: int
) -> dict[int, float]:
    """Return what a word adds to the score of each document that has it.

    Args:
        counts: How often each document has the word, by its number.
        norms: The length norm of each document.
        documents: Number of documents, which may be more than there are norms.
    """
    weight = idf(len(counts), documents)
    return {number: weight * count / (count + norms[number]) for number, count in counts.items()}
