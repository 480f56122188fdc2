"""The words of a text and of a request, and what a ranking by them gives."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final


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
_MARKS = range(0x300, 0x1D00)  # where scripts have vowel signs and other marks, which are no `\w`
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
    marks = "".join(mark for mark in map(chr, _MARKS) if unicodedata.category(mark).startswith("M"))
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
