"""Rank texts by their words, with BM25 and without an index.

Texts are scanned in memory, which suits texts that are searched once or change often. A pass over
2 MB takes one to two milliseconds a word, while filling a full-text index takes four hundred. Both
rank alike on the evaluation sets.

BM25 follows Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
Each use has its own `BM25` parameters, with a comment on what they achieved. Memories and the index
of a folder are not scanned here. SQLite keeps those texts, and its FTS5 computes BM25 itself.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from operator import add, methodcaller
from typing import Final


@dataclass(frozen=True, slots=True)
class Hit:
    """A key and its score. Scores compare only within one ranking, and higher is better."""

    key: str
    score: float


STOP_WORDS = frozenset(  # one paragraph, since a list would take a page
    """
    a an the this that these those some any such i me my mine we us our ours you your yours he him
    his she her hers it its they them their theirs am is are was were be been being do does did
    doing done have has had having can could shall should will would may might must and or but nor
    not no if then than so because as while until though of at by for with about into onto to from
    in on off out over under up down between through during who whom whose which what when where why
    how many much there here all both each either neither more most other own same too very just
    also only again further once please want need help let give tell know like s t d ll m re ve don
    isn aren wasn doesn didn won couldn wouldn
    """.split()  # noqa: SIM905
)


MAX_QUERY_TERMS = 64
"""Maximum number of distinct words of a query that are looked up. Time grows with them."""

_MAX_QUERY_CHARS = 20_000  # some 2,000 words
_MAX_IDENTIFIER_CHARS = 64  # a longer word is encoded data, whose parts would be noise
# Scripts without spaces: Chinese, Japanese, Korean, Thai, Lao, Myanmar, Khmer.
_UNSPACED = (
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003fffd"
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
)
# The points of Hebrew and Arabic, which most texts omit, and the Arabic bar that fills a line.
POINTS = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4"
    "\u06e7\u06e8\u06ea-\u06ed"
)
_POINTS = re.compile(f"[{POINTS}]+")
_VOWEL_SIGNS = range(0x300, 0x1D00)  # vowel signs and other marks, which `\w` does not match
_SEAM = re.compile(
    r"_+"
    r"|(?<=[^\W\dA-Z_])(?=[A-Z])"  # user|Name
    r"|(?<=[A-Z])(?=[A-Z][a-z])"  # HTTP|Server
    r"|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"  # Server|2
)


def split_identifiers(text: str) -> str:
    """Return the words of a text, separated by spaces, each identifier followed by its parts.

    `getUserName`, `get_user_name` and `HTTPServer2` are split at a change of case, at underscores
    and between letters and digits. The whole word without underscores comes before its parts, so
    one spelling finds another. Text of scripts without spaces, such as Chinese and Thai, becomes
    single characters and overlapping pairs. Punctuation and the points of Hebrew and Arabic are
    dropped. Vowel signs, as in Hindi, belong to their word.
    """
    return " ".join(identifier_words(text))


def query_terms(query: str) -> list[str]:
    """Return the first 64 distinct words of a query, in lower case, without stop words.

    Reads its first 20,000 characters, so that a question of megabytes takes milliseconds.
    """
    terms: dict[str, None] = {}
    for word in identifier_words(query[:_MAX_QUERY_CHARS]):
        if word.lower() not in STOP_WORDS:
            terms[word.lower()] = None
    return [*terms][:MAX_QUERY_TERMS]


@cache
def _words_and_unspaced() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns of a word and of scripts without spaces, in some milliseconds."""
    unspaced = re.compile(rf"[{_UNSPACED}]")
    marks = "".join(
        mark for mark in map(chr, _VOWEL_SIGNS) if unicodedata.category(mark).startswith("M")
    )
    letters = rf"[^\W{_UNSPACED}]"
    return re.compile(rf"[{_UNSPACED}]+|{letters}+(?:[{marks}]+{letters}*)*"), unspaced


def identifier_words(text: str) -> list[str]:
    """Return the words of a text, each identifier followed by its parts, as a list."""
    words: list[str] = []
    word_pattern, unspaced = _words_and_unspaced()
    for word in word_pattern.findall(_POINTS.sub("", unicodedata.normalize("NFKC", text))):
        is_plain = word.isalpha() and (word[1:].islower() or word.isupper())
        if is_plain or len(word) > _MAX_IDENTIFIER_CHARS:
            words.append(word)
        elif unspaced.match(word):
            words += [*word, *map("".join, pairwise(word))]
        else:
            parts = list(filter(None, _SEAM.split(word)))
            words += parts if len(parts) == 1 else ["".join(parts), *parts]
    return words


@dataclass(frozen=True, slots=True)
class BM25:
    """The parameters of one ranking. The defaults are the paper's.

    Attributes:
        k1: Saturation. A higher value counts the repetitions of a word for more.
        b: Length normalization, from 0 (none) to 1. A higher value makes a long document need more
            repetitions of a word.
    """

    k1: float = 1.2
    b: float = 0.75

    def length_norms(self, lengths: Sequence[int]) -> list[float]:
        """Return the length norm of each document: the word count that earns half the weight."""
        if not lengths:
            return []
        average = sum(lengths) / len(lengths) or 1.0  # all documents may be empty
        return [self.k1 * (1 - self.b + self.b * length / average) for length in lengths]


def idf(matches: int, documents: int) -> float:
    """Return the weight of a word that occurs in `matches` of the documents."""
    # Never negative, unlike the paper's formula, which lowers the score for a common word.
    return math.log1p((documents - matches + 0.5) / (matches + 0.5))


def word_scores(
    counts: Mapping[int, float], norms: Sequence[float], documents: int
) -> dict[int, float]:
    """Return what a word adds to the score of each document that contains it.

    Args:
        counts: How often the word occurs, by the index of the document.
        norms: The length norm of each document.
        documents: Number of documents, which may be more than there are norms.
    """
    weight = idf(len(counts), documents)
    return {index: weight * count / (count + norms[index]) for index, count in counts.items()}


def max_normalised(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the scores divided by the largest, so that the best score is 1.

    All scores are 0 if none is positive. BM25 has no upper bound, and its scores depend on the
    texts of the index. Two BM25 rankings can be added only after this.
    """
    top = max(scores.values(), default=0.0)
    if top <= 0:
        return dict.fromkeys(scores, 0.0)
    return {key: score / top for key, score in scores.items()}


# The paper's values, not tuned. Turns, memories, outputs and passages rank well with them.
_BM25: Final = BM25(k1=1.2, b=0.75)

MAX_WORD_CHARS: Final = 32
"""A longer word is encoded data. It has no stem, and would fill the cache of stems."""

_BEYOND_ASCII: Final = re.compile("[^\0-\x7f]+")
_MARKS: Final = re.compile(f"[\u0300-\u036f{POINTS}]+")
_MIN_STEM_CHARS: Final = 4  # a shorter word counts only as a whole word
_RARE_STEM_CHARS: Final = 6  # a stem of this length seldom occurs within another word by chance
# Longest first. A stem finds every word that begins with it, so a short stem finds all forms.
_ENDINGS: Final = tuple("ations ation ingly ings edly ing ies ied ers er ed es ly s e y".split())  # noqa: SIM905
_OFTEN_DOUBLE: Final = "aeiouls"  # `calling` is from `call`, but `stopped` is from `stop`


def folded(text: str) -> str:
    """Return a text in lower case and compatibility form, without accents or points."""
    if not text.isascii():
        # ASCII runs stay as they are: a mark that would join an ASCII character is dropped anyway.
        text = _BEYOND_ASCII.sub(_without_marks, text)
    return text.lower()


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return a word without its English ending: `pars` for parser, parsing and parsed.

    A stem is the beginning of its word, at least four letters long, so a search for the stem finds
    all forms. Words with anything but ASCII letters, and words of over 32 characters, come back
    unchanged.
    """
    if not (word.isascii() and word.isalpha()) or len(word) > MAX_WORD_CHARS or word.endswith("ss"):
        return word
    for ending in _ENDINGS:
        start = word.removesuffix(ending)
        if start != word and len(start) >= _MIN_STEM_CHARS:
            is_doubled = start[-1] == start[-2] and start[-1] not in _OFTEN_DOUBLE
            return start[:-1] if is_doubled and len(start) > _MIN_STEM_CHARS else start
    return word


def search_stems(text: str) -> tuple[str, ...]:
    """Return the distinct stems of the `query_terms` of a text, folded."""
    return tuple(dict.fromkeys(stem(folded(term)) for term in query_terms(text)))


def find_stem(stem: str, texts: Sequence[str]) -> list[int]:
    """Return the indexes of the `folded` texts that contain a word of the stem, or that number."""
    count = _counter(stem, whole_numbers=True)
    return [index for index, text in enumerate(texts) if count(text)]


def scan_columns(
    request: str,
    columns: Sequence[Sequence[str]],
    *,
    weights: Sequence[float],
    bm25: BM25 = _BM25,
) -> list[float]:
    """Return how well each document matches a request, from 0 (no shared word) to 1 (the best).

    The score is BM25 over the fields of a document, counted together as in BM25F. A word is found
    by its stem (`deliver` in `delivery`). A long stem is also found within other words
    (`connection` in `getConnection`), and a word of fewer than four letters only as a whole word.
    Deterministic, and the order of the documents does not matter. Time is linear in their length.

    Args:
        request: Any text. Its first 64 words count.
        columns: The `folded` first fields of all documents, their second fields and so on.
        weights: The weight of a word in each field, in the order of the fields.
        bm25: The parameters of the formula.
    """
    return scan_stems(search_stems(request), columns, weights=weights, bm25=bm25)


def scan_stems(
    stems: Sequence[str],
    columns: Sequence[Sequence[str]],
    *,
    weights: Sequence[float],
    bm25: BM25 = _BM25,
) -> list[float]:
    """Score documents as `scan_columns` does, for the `search_stems` of a request."""
    if not columns:
        return []
    lengths = [0] * len(columns[0])
    for texts in columns:
        # In characters, since the formula uses a length relative to the average only.
        lengths = [*map(add, lengths, map(len, texts))]
    norms = bm25.length_norms(lengths)
    by_word: list[dict[int, float]] = []
    for stem in stems:
        count = _counter(stem)
        counts: dict[int, float] = {}
        for texts, weight in zip(columns, weights, strict=True):
            for index, text in enumerate(texts):
                times = count(text)
                if times:
                    counts[index] = counts.get(index, 0.0) + weight * times
        by_word.append(word_scores(counts, norms, len(norms)))
    return _relative_sums(by_word, len(norms))


class StreamedScan:
    """Score a stream of documents, none of which is kept.

    Scores as `scan_columns` does. Keeps some 300 bytes for each document that matches, and nothing
    for other documents. The average length is that of the matching documents. A number matches only
    as a whole number. Not safe to share between threads.

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
            key: The key of the document, which must be new.
            fields: `folded` texts, each with the weight of a word in it. Read once and not kept.
        """
        self._documents += 1
        index = len(self._keys)
        chars, matches = 0, False
        for text, weight in fields:
            chars += len(text)
            for counter, counts in zip(self._counters, self._counts, strict=True):
                times = counter(text)
                if times:
                    counts[index] = counts.get(index, 0.0) + weight * times
                    matches = True
        if matches:
            self._keys.append(key)
            self._lengths.append(chars)

    def best(self, limit: int) -> tuple[list[Hit], int]:
        """Return the best documents, and how many documents match.

        The first scores 1. Ties are in the order of their keys.
        """
        norms = _BM25.length_norms(self._lengths)
        by_word = [word_scores(counts, norms, self._documents) for counts in self._counts]
        scores = _relative_sums(by_word, len(self._keys))
        hits = sorted(map(Hit, self._keys, scores), key=lambda hit: (-hit.score, hit.key))
        return hits[:limit], len(scores)


def _relative_sums(by_word: Iterable[Mapping[int, float]], documents: int) -> list[float]:
    """Return the sum of each document's scores, divided by the largest sum."""
    totals = [0.0] * documents
    for scores in by_word:
        for index, score in scores.items():
            totals[index] += score
    top = max(totals, default=0.0)
    return [total / top for total in totals] if top else totals


def _without_marks(beyond_ascii: re.Match[str]) -> str:
    decomposed = unicodedata.normalize("NFKD", beyond_ascii[0])
    return unicodedata.normalize("NFC", _MARKS.sub("", decomposed))


@lru_cache(maxsize=1_024)
def _counter(stem: str, *, whole_numbers: bool = False) -> Callable[[str], int]:
    """Return a function that counts the words of a stem in a folded text.

    Args:
        stem: A stem of `search_stems`.
        whole_numbers: Whether a number must be a whole number of the text.
    """
    word = re.escape(stem)
    # The literal comes before the look-behind, because the engine searches for literals quickly.
    if whole_numbers and stem.isdecimal():
        find = re.compile(rf"{word}(?<![0-9]{word})(?![0-9])").findall
    elif len(stem) >= _RARE_STEM_CHARS or not stem.isascii():
        return methodcaller("count", stem)
    elif len(stem) >= _MIN_STEM_CHARS:
        find = re.compile(rf"{word}(?<![a-z]{word})").findall
    else:
        # A short word has no stem, so its plural is matched here.
        find = re.compile(rf"{word}(?<![a-z0-9]{word})(?:e?s)?(?![a-z0-9])").findall
    # `in` rules out most texts faster than the pattern does.
    return lambda text: len(find(text)) if stem in text else 0
