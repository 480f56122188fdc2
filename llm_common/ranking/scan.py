"""BM25 without an index: counts the words of a request in texts in memory.

For texts that are searched once or change often. A pass over 2 MB takes one to two milliseconds a
word, and filling a full-text index takes four hundred. On the evaluation sets both rank alike.
"""

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import add, methodcaller
from typing import Final

from cachetools import LRUCache

from llm_common.ranking.bm25 import BM25, word_scores
from llm_common.ranking.lexical import POINTS, Hit, best_first, query_terms, split_request

# The values of the paper, not tuned: turns, memories, outputs and passages rank well by them.
_BM25: Final = BM25(k1=1.2, b=0.75)

MAX_WORD_CHARS: Final = 32
"""A longer word is encoded data: it has no stem, and would fill the caches."""

_MAX_CACHED_SCORES: Final = 250_000  # of a word in a document, some 40 MB at most

_BEYOND_ASCII: Final = re.compile("[^\0-\x7f]+")
_MARKS: Final = re.compile(f"[\u0300-\u036f{POINTS}]+")
_MIN_STEM_CHARS: Final = 4  # a shorter word counts only as a whole word
_RARE_STEM_CHARS: Final = 6  # stems this long are hardly within other words by chance
# Longest first. A stem finds all words that begin with it, so a short stem finds all forms of a
# word.
_ENDINGS: Final = tuple("ations ation ingly ings edly ing ies ied ers er ed es ly s e y".split())  # noqa: SIM905
_OFTEN_DOUBLE: Final = "aeiouls"  # `call`, `pass`; but `stopped` is of `stop`


def folded(text: str) -> str:
    """Return a text as it is compared: lower case, no accents or points, compatibility form."""
    if not text.isascii():
        # No mark but those that are dropped joins an ASCII character.
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
    """Return the numbers of the `folded` texts that have a word of the stem."""
    count = _counter(stem)
    return [number for number, text in enumerate(texts) if count(text)]


class TermScanner:
    """Score documents by the words of a request, and cache what each word gave.

    BM25 over the fields of the documents, counted together as in BM25F. A word is found by its stem
    (`deliver` in `delivery`), a long one within other words too (`connection` in `getConnection`),
    one of fewer than four letters only whole. A request of several parts (see `split_request`)
    counts half as a whole, half by the part that matches the document best. Deterministic. The
    order of the documents does not matter. Linear in their length.

    A word of an earlier request over the same documents is not searched for again, which never
    changes a score. Threads may share a scanner, and one of them scans at a time.

    Args:
        weights: The weight of a word in each field, in the order of the fields.
        bm25: The parameters of the formula.
        max_chars: Documents with more characters together are not cached. 0 caches none.
    """

    def __init__(
        self, *, weights: Sequence[float], bm25: BM25 = _BM25, max_chars: int = 50_000_000
    ) -> None:
        self._weights = tuple(weights)
        self._bm25 = bm25
        self._max_chars = max_chars
        self._cached = _Documents([], self._weights, bm25)
        self._lock = threading.Lock()

    def scan(self, request: str, documents: Sequence[Sequence[str]]) -> list[float]:
        """Return how well each document matches, from 0 (no shared word) to 1 (the best).

        Args:
            request: Any text. Its first 64 words count.
            documents: The `folded` fields of each.
        """
        if not documents:
            return []
        columns = [*zip(*documents, strict=True)]
        with self._lock:
            searched = self._cached
            if searched.columns != columns:
                searched = _Documents(columns, self._weights, self._bm25)
                if searched.chars <= self._max_chars:
                    self._cached = searched
            return searched.scores(request)


def scan(
    request: str, documents: Sequence[Sequence[str]], *, weights: Sequence[float]
) -> list[float]:
    """Score documents that are searched once, as `TermScanner.scan`."""
    return scan_columns(request, [*zip(*documents, strict=True)], weights=weights)


def scan_columns(
    request: str, columns: Sequence[Sequence[str]], *, weights: Sequence[float]
) -> list[float]:
    """Score documents as `scan`, given all first fields, all second fields …, which is faster."""
    if not columns:
        return []
    return _Documents(columns, tuple(weights), _BM25).scores(request)


class StreamedScan:
    """Score documents that come one by one and are not kept.

    BM25 as in `TermScanner`, without the parts of a request.

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
        self._counters = [_counter(stem, whole_numbers=True) for stem in self.stems]
        self._counts: list[dict[int, float]] = [{} for _ in self.stems]
        self._documents = 0
        self._keys: list[str] = []
        self._lengths: list[int] = []

    def add(self, key: str, fields: Iterable[tuple[str, float]]) -> None:
        """Count the words of a document.

        Args:
            key: A new one.
            fields: `folded` texts, each with the weight of a word in it. Read once and not kept.
        """
        self._documents += 1
        number = len(self._keys)
        chars, matches = 0, False
        for text, weight in fields:
            chars += len(text)
            for counter, counts in zip(self._counters, self._counts, strict=True):
                times = counter(text)
                if times:
                    counts[number] = counts.get(number, 0.0) + weight * times
                    matches = True
        if matches:
            self._keys.append(key)
            self._lengths.append(chars)

    def best(self, limit: int) -> tuple[list[Hit], int]:
        """Return the best documents, and how many have a word of the request.

        The first scores 1. Equal scores are in the order of their keys.
        """
        norms = _BM25.length_norms(self._lengths)
        by_word = [word_scores(counts, norms, self._documents) for counts in self._counts]
        scores = _relative_sums(by_word, len(self._keys))
        return best_first(map(Hit, self._keys, scores))[:limit], len(scores)


class _Documents:
    """Documents by their columns, and what the words that were searched for add to their scores."""

    def __init__(
        self, columns: Sequence[Sequence[str]], weights: tuple[float, ...], bm25: BM25
    ) -> None:
        self.columns = columns
        self._weights = weights
        lengths = [0] * len(columns[0]) if columns else []
        for texts in columns:
            lengths = [*map(add, lengths, map(len, texts))]
        self.chars = sum(lengths)
        self._norms = bm25.length_norms(lengths)
        self._by_stem: LRUCache[str, dict[int, float]] = LRUCache(
            _MAX_CACHED_SCORES, getsizeof=_size
        )

    def scores(self, request: str) -> list[float]:
        """Return how well each document matches the request."""
        whole = self._relative(request)
        parts = [self._relative(part) for part in split_request(request)]
        if not parts:
            return whole
        best_parts = map(max, zip(*parts, strict=True))
        return _relative([*map(add, whole, best_parts)])

    def _relative(self, request: str) -> list[float]:
        by_word = [self._stem_scores(stem) for stem in search_stems(request)]
        return _relative_sums(by_word, len(self._norms))

    def _stem_scores(self, stem: str) -> dict[int, float]:
        """Return what the stem adds to the score of each document that has it."""
        scores = self._by_stem.get(stem)
        if scores is None:
            scores = word_scores(self._count(stem), self._norms, len(self._norms))
            if _size(scores) <= _MAX_CACHED_SCORES:
                self._by_stem[stem] = scores
        return scores

    def _count(self, stem: str) -> dict[int, float]:
        count = _counter(stem)
        totals: dict[int, float] = {}
        for texts, weight in zip(self.columns, self._weights, strict=True):
            for number, text in enumerate(texts):
                times = count(text)
                if times:
                    totals[number] = totals.get(number, 0.0) + weight * times
        return totals


def _size(scores: Mapping[int, float]) -> int:
    return len(scores) + 1  # 1, so that words that no document has are bounded too


def _relative_sums(by_word: Iterable[Mapping[int, float]], documents: int) -> list[float]:
    """Return the sum of each document's scores over the largest such sum."""
    totals = [0.0] * documents
    for scores in by_word:
        for number, score in scores.items():
            totals[number] += score
    return _relative(totals)


def _relative(scores: list[float]) -> list[float]:
    top = max(scores, default=0.0)
    return [score / top for score in scores] if top else scores


def _without_marks(beyond_ascii: re.Match[str]) -> str:
    decomposed = unicodedata.normalize("NFKD", beyond_ascii[0])
    return unicodedata.normalize("NFC", _MARKS.sub("", decomposed))


@lru_cache(maxsize=1_024)
def _counter(stem: str, *, whole_numbers: bool = False) -> Callable[[str], int]:
    """Return a function that counts the words of a stem in a folded text.

    Args:
        stem: A stem of `search_stems`.
        whole_numbers: Whether a number is not found within another number.
    """
    word = re.escape(stem)
    # The stem comes first, since the engine searches quickly for literals. Then the look-behind.
    if whole_numbers and stem.isdecimal():
        find = re.compile(rf"{word}(?<![0-9]{word})(?![0-9])").findall
    elif len(stem) >= _RARE_STEM_CHARS or not stem.isascii():
        return methodcaller("count", stem)
    elif len(stem) >= _MIN_STEM_CHARS:
        find = re.compile(rf"{word}(?<![a-z]{word})").findall
    else:
        find = re.compile(rf"{word}(?<![a-z0-9]{word})(?:e?s)?(?![a-z0-9])").findall
    return lambda text: len(find(text)) if stem in text else 0
