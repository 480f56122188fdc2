"""Ranks texts by their words, with BM25 and without an index.

Scans the texts in memory, which suits texts that are searched once or change often. A pass over
2 MB takes one to two milliseconds a word, and filling a full-text index takes four hundred. On the
evaluation sets both rank alike.

BM25 is as in Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond",
2009. Each use names its own `BM25`, and what that gave. Memories and the index of a folder are
searched by SQLite, whose FTS5 computes BM25 itself: the texts stay in the database.
"""

import math
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from operator import add, methodcaller
from typing import Final

from cachetools import LRUCache


@dataclass(frozen=True, slots=True)
class Hit:
    """A key and its score; higher is better, and compares within one ranking only."""

    key: str
    score: float


def best_first(hits: Iterable[Hit]) -> list[Hit]:
    """Return the hits by falling score, equal scores in the order of their keys."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))


STOP_WORDS = frozenset(  # one paragraph, since a list would take a page
    """
    a an the this that these those some any such i me my mine we us our ours you your yours he him
    his she her hers it its they them their theirs am is are was were be been being do does did
    doing done have has had having can could shall should will would may might must and or but nor
    not no if then than so because as while until though of at by for with about into onto to from
    in on off out over under up down between through during who whom whose which what when where why
    how there here all both each either neither more most other own same too very just also only
    again further once please want need help let give tell know like s t d ll m re ve don isn aren
    wasn doesn didn won couldn wouldn
    """.split()  # noqa: SIM905
)


MAX_QUERY_TERMS = 64
"""Most distinct words of a query that are looked up; time grows with them."""

_MAX_IDENTIFIER_CHARS = 64  # a longer word is encoded data, whose parts would be noise
# Chinese, Japanese, Korean; Thai, Lao, Myanmar, Khmer.
_UNSPACED = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003fffd"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
# The points of Hebrew and Arabic, which most texts leave out, and the Arabic bar that fills a line.
POINTS = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4"
    "\u06e7\u06e8\u06ea-\u06ed"
)
_POINTS = re.compile(f"[{POINTS}]+")
_VOWEL_SIGNS = range(
    0x300, 0x1D00
)  # where scripts have vowel signs and other marks, which are no `\w`
_SEAM = re.compile(
    r"_+"
    r"|(?<=[^\W\dA-Z_])(?=[A-Z])"  # user|Name
    r"|(?<=[A-Z])(?=[A-Z][a-z])"  # HTTP|Server
    r"|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"  # Server|2
)


def split_identifiers(text: str) -> str:
    """Return the words of the text, spaced, each identifier followed by its parts.

    `getUserName`, `get_user_name` and `HTTPServer2` are split at a change of case, at underscores
    and between letters and digits. The whole word without underscores comes before its parts, so
    one spelling finds another. Text of scripts without spaces, such as Chinese and Thai, becomes
    single characters and overlapping pairs. Punctuation is dropped, and the points of Hebrew and
    Arabic; vowel signs, as of Hindi, belong to their word.
    """
    return " ".join(identifier_words(text))


def query_terms(query: str) -> list[str]:
    """Return the first 64 distinct words of a query, in lower case, without stop words."""
    terms = dict.fromkeys(word.lower() for word in identifier_words(query))
    return [term for term in terms if term not in STOP_WORDS][:MAX_QUERY_TERMS]


@cache
def _words_and_unspaced() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The pattern of a word, and that of scripts without spaces.

    Cached, since they take milliseconds to compile.
    """
    unspaced = re.compile(rf"[{_UNSPACED}]")
    marks = "".join(
        mark for mark in map(chr, _VOWEL_SIGNS) if unicodedata.category(mark).startswith("M")
    )
    letters = rf"[^\W{_UNSPACED}]"
    return re.compile(rf"[{_UNSPACED}]+|{letters}+(?:[{marks}]+{letters}*)*"), unspaced


def identifier_words(text: str) -> list[str]:
    """Return the words of `split_identifiers` as a list."""
    words: list[str] = []
    word_pattern, unspaced = _words_and_unspaced()
    for word in word_pattern.findall(_POINTS.sub("", unicodedata.normalize("NFKC", text))):
        is_plain = word.isalpha() and (word[1:].islower() or word.isupper())
        if is_plain or len(word) > _MAX_IDENTIFIER_CHARS:
            words.append(word)
        elif unspaced.match(word):
            words += [*word, *map("".join, pairwise(word))]
        else:
            parts = [part for part in _SEAM.split(word) if part]
            words += parts if len(parts) == 1 else ["".join(parts), *parts]
    return words


_MAX_PARTS: Final = 4
"""Most parts of a request; a text with more parts is prose."""

_MIN_TERMS: Final = 2
_PART_SEAM: Final = re.compile(
    r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+"  # noqa: RUF001 - the sentence ends of Chinese and Japanese
    r"|,?(?<![^\S\n])[^\S\n]++(?:and\s+then|then|and\s+also|as\s+well\s+as)\s+",
    re.IGNORECASE,
)


def split_request(text: str) -> tuple[str, ...]:
    """Return the two to four sentences, lines or "and then" parts of a request, if any.

    Each part is searched for separately, since the words of one wish drown those of another. A
    piece with fewer than two words to look up, such as "Thanks!", is no part.
    """
    parts = [part.strip() for part in _PART_SEAM.split(text)]
    wishes = tuple(part for part in parts if len(query_terms(part)) >= _MIN_TERMS)
    return wishes if len(wishes) in range(2, _MAX_PARTS + 1) else ()


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


def max_normalised(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores divided by the largest, so that the best of each ranking counts 1.

    All 0 when none is positive. BM25 has no upper bound, and its scores depend on the texts of the
    index: two rankings by it can be added only after this.
    """
    top = max(scores.values(), default=0.0)
    return {key: score / top if top > 0 else 0.0 for key, score in scores.items()}


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
