"""`affixes_in`: the letters with which texts begin or end, or that they contain."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from llm_common.ranking.question_words import QuestionWords

_PATTERNS: Final = {"begins with": "{}%", "ends with": "%{}", "contains": "%{}%"}
# Without quotes, `start with a discount` has no letter, and nothing may follow `start with M`.
# "Whose tags contain 'red'" asks for a value, which other parts of a question read.
_AFFIX: Final = re.compile(
    r"\b(?:(?P<begins>begin(?:s|ning)?\s+with|start(?:s|ing)?\s+with)"
    r"|(?P<ends>end(?:s|ing)?\s+(?:with|in))"
    r"|(?P<contains>contain(?:s|ing)?(?=\s+(?:the\s+|an?\s+)?(?:letters?|text)\b)))\s+"
    r"(?:(?:the\s+|an?\s+)?(?:letters?|word|text|prefix|suffix)\s+)?"
    r"(?:(?P<mark>[\"'`])(?P<quoted>[^\"'`%_]{1,40})(?P=mark)|“(?P<curly>[^”%_]{1,40})”"
    r"|an?\s+vowel\b|(?P<letter>[a-z])(?=\s*(?:$|[?.!,;)]|\s(?:and|or|but)\b)))",
    re.IGNORECASE,
)


class Affix(NamedTuple):
    """What the question says about the letters of a text.

    Attributes:
        sign: How a reader is told of it, such as `begins with`.
        letters: The letters, of which a text has one.
        patterns: The patterns of SQL's LIKE that such a text has.
        words: Indexes of its words.
    """

    sign: str
    letters: tuple[str, ...]
    patterns: tuple[str, ...]
    words: range


def affixes_in(question: QuestionWords) -> Iterator[Affix]:
    """Yield what a question says about the letters of texts, in its order."""
    for match in _AFFIX.finditer(question.text):
        text = match["quoted"] or match["curly"] or match["letter"]
        letters = (text.lower(),) if text else tuple("aeiou")
        sign = next(sign for sign in _PATTERNS if match[sign.split()[0]])
        patterns = tuple(map(_PATTERNS[sign].format, letters))
        yield Affix(sign, letters, patterns, question.words_within(*match.span()))
