"""The words that say what a text is about, and how alike two texts are by them."""

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from llm_common.ranking.stop_words import STOP_WORDS

__all__ = ["MAX_KEYWORDS", "extract_keywords", "similarity", "stem_counts"]

MAX_KEYWORDS: Final = 64
"""Most keywords of a text: each is looked for in every file, and what matters comes early."""

_WORD: Final = re.compile(r"\w+")
_LONGEST_STEMMED: Final = 32
_SHORTEST_STEM: Final = 3
_OFTEN_DOUBLE: Final = "aeiouls"  # `pass`, `call`; but `running` is of `run`
# Longest first; `ss`, `us` and `is` stand for no plural. What replaces an ending keeps families together:
# query, queries; parse, parser, parsing, parsed.
_ENDINGS: Final = (
    ("ss", "ss"),
    ("us", "us"),
    ("is", "is"),
    ("ies", "i"),
    ("ied", "i"),
    ("ings", ""),
    ("ers", ""),
    ("ing", ""),
    ("es", ""),
    ("ed", ""),
    ("er", ""),
    ("s", ""),
    ("e", ""),
    ("y", "i"),
)


def extract_keywords(text: str) -> tuple[str, ...]:
    """The words of a text in lower case, once each, in their order, without English stop words; at most 64.

    An identifier such as `get_user` is one word. Single ASCII characters are left out, since every text holds them.
    """
    words: dict[str, None] = {}
    for found in _WORD.finditer(text):
        word = found.group().lower()
        if word not in STOP_WORDS and (len(word) > 1 or not word.isascii()):
            words[word] = None
            if len(words) == MAX_KEYWORDS:
                break
    return tuple(words)


def stem_counts(text: str) -> dict[str, int]:
    """How often each word stands in the text, by its stem, without English stop words; linear in the text.

    Stems lack the commonest endings of English inflection, so that `parsers` and `parsed` are one.
    """
    counts: dict[str, int] = {}
    for word in _WORD.findall(text.lower()):
        stem = _stem(word) if len(word) <= _LONGEST_STEMMED else word  # what is longer is data, and not to be cached
        counts[stem] = counts.get(stem, 0) + 1
    counts.pop("", None)
    return counts


def similarity(left: Mapping[str, int], right: Mapping[str, int]) -> float:
    """The cosine of two `stem_counts`, within [0, 1] and symmetric; 0 when either is empty.

    A cheap stand-in where no embeddings are at hand (Salton's vector space model, without weights of rarity).
    """
    if len(left) > len(right):
        left, right = right, left
    shared = sum(times * right.get(stem, 0) for stem, times in left.items())
    if not shared:
        return 0.0
    lengths = sum(times * times for times in left.values()) * sum(times * times for times in right.values())
    return min(1.0, shared / math.sqrt(lengths))


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    if word in STOP_WORDS:
        return ""
    for ending, replacement in _ENDINGS:
        stem = word[: -len(ending)] + replacement
        if len(stem) >= _SHORTEST_STEM and word.endswith(ending):
            doubled = len(stem) > _SHORTEST_STEM and stem[-1] == stem[-2] and stem[-1] not in _OFTEN_DOUBLE
            return stem[:-1] if doubled else stem
    return word
