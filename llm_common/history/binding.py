"""Finds what the user said that binds: prohibitions, permissions, limits, wishes and facts.

A sentence gets points for words that bind in some language (`binding_words.py`). A sentence with
enough points is a rule. The others are ordered by points, by their brevity, and by how rare their
words are among the user's sentences: what was said once says more than a request in the form of
twenty others.

Only what the user wrote counts. Fenced and quoted text and lines of data are left out. Behind a
label, as in `[IMPORTANT]` or `<rule>`, a rule still counts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, NamedTuple

from llm_common.history.binding_words import ADVERSATIVES, JOINERS, SIGNS, WORDS, Cue
from llm_common.history.message_shapes import NOTE_BEGIN, PINS_BEGIN, HistoryMessage

MIN_RULE_POINTS: Final = 3
# Ranks, not fitted: words that forbid or last bind alone, other words need a second hint.
_POINTS: Final[dict[Cue, int]] = {
    "forbids": 3,
    "bans": 3,
    "lasts": 3,
    "fact": 3,
    "negates": 2,
    "always": 2,
    "only": 2,
    "must": 2,
    "agreed": 2,
    "keeps": 2,
    "excludes": 1,
    "may": 1,
    "asks": 1,
    "limits": 1,
    "corrects": 1,
    "instead": 1,
}
_AT_CLAUSE_START: Final[frozenset[Cue]] = frozenset({"negates", "excludes", "keeps"})

# People who talk with each other say words that bind in 1 to 6 % of their sentences, as meetings
# show (docs/benchmarks.md). Only messages that no model answers can be such a talk.
_MIN_TALK_SENTENCES: Final = 100
_MAX_TALK_RULES: Final = 1
_MAX_TALK_SHARE: Final = 0.002

_READ_CHARS: Final = 20_000  # of a message: the model can read a longer paste back
_MAX_SENTENCE_CHARS: Final = 500
_MIN_QUOTE_CHARS: Final = 200  # a shorter quote may be a name, or what to write
_MIN_WORDS: Final = 3
_MIN_SIGNS: Final = 5
_MIN_RARE_CHARS: Final = 4
_OF_RARITY: Final = 2
_CHARS_OF_POINT: Final = 80  # who commands is brief, and who tells a story uses more words of all
_FEW_SENTENCES: Final = 50  # a word is rare if one sentence in fifty has it

# A mark ends a sentence before a space and no small letter, or anywhere in Chinese and Japanese.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'»”)]*\s+(?=[^a-zà-öø-ÿа-я\s])|(?<=[。！？؟।])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(.])(?:[^\W\d_]|[A-Z][^\W\d_]{1,2}|(?:a[bm]|bis|de[mnr]|vom|zum) \d{1,2})\.$"
)  # Mr., z. B. or am 3. Mai, but not: week 3.
_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
# Scripts without spaces between words, and Thai, whose words `_WORD` does not tell apart.
_CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]")
_SIGNED = re.compile(
    r"[\u0600-\u06ff\u0900-\u097f\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
# A fence of backquotes has none behind them: "```make test``` is fine." is code in a sentence.
_CODE_FENCE = re.compile(r"(`{3,})[^`]*$|(~{3,})")
_FENCE_OPENING = re.compile(r"<<<(\w+)$")
_FENCE_CLOSING = re.compile(r"(\w+)>>>")
_LONG_QUOTE = re.compile(r"[\"“„«][^\"“”„«»]{200,}[\"”“»]")
_DATA_LINE = re.compile(r"\s*(?:>|[{}\[\]<|]|\d{4}-\d\d-\d\dT|(?:INFO|WARN|ERROR|DEBUG)\b)")
# Before a rule: "[IMPORTANT] Never push" and "<rule>Never push</rule>". Logs have levels instead.
_LABEL = re.compile(
    r"\s*(?:\[(?!(?i:INFO|WARN|ERROR|DEBUG|Errno)\b)[^\W\d_][\w -]{0,30}\]:?\s+"
    r"|<(?P<tag>[^\W\d_][\w-]{0,30})>)"
)
_QUESTION = re.compile(r"[?？؟][\"'»”)]*$")


def _words_pattern(words: str, *, before: str = "") -> re.Pattern[str]:
    """Return a pattern of a list of words.

    Args:
        words: The words. `*` is the rest of a word, and `_` joins the words of a phrase.
        before: A pattern of what is before the word.
    """
    # The longest first, since a phrase may begin with another word of the list.
    escaped = [re.escape(word) for word in sorted(words.split(), key=len, reverse=True)]
    choice = "|".join(escaped).replace(r"\*", r"[\w'-]*").replace("_", r"\s+")
    return re.compile(rf"{before}(?<![\w-])(?:{choice})(?!\w|-\w)")


# "Please don't" and "but don't" begin a clause too. Digits and marks may be before its first word.
_CLAUSE_START: Final = (
    rf"(?:^|[,;:—–(，；：、]|(?<!\w)(?:{'|'.join(ADVERSATIVES)})(?!\w))[\W\d_]*"
    rf"(?:(?<!\w)(?:{'|'.join(JOINERS)})(?!\w)[\W\d_]*)*"
)
_SENTENCE_START: Final = r"^[\W\d_]*"


class _Patterns(NamedTuple):
    """The patterns of the words that bind. Compiling them takes some 25 ms, so only a fold does."""

    cues: dict[Cue, re.Pattern[str]]
    signs: dict[Cue, re.Pattern[str]]


@cache
def _patterns() -> _Patterns:
    cues: dict[Cue, re.Pattern[str]] = {}
    for cue, words in WORDS.items():
        before = ""
        if cue in _AT_CLAUSE_START:
            before = _CLAUSE_START
        elif cue == "corrects":
            before = _SENTENCE_START
        cues[cue] = _words_pattern(words, before=before)
    signs: dict[Cue, re.Pattern[str]] = {}
    for cue, words in SIGNS.items():
        signs[cue] = re.compile("|".join(map(re.escape, words.split())).replace("_", " "))
    return _Patterns(cues, signs)


@dataclass(slots=True)
class Binding:
    """A sentence of the user that may bind.

    Attributes:
        position: Number of its message.
        text: The sentence, word for word.
        points: How much it binds, with its rarity and brevity.
        is_rule: Whether its points make it a rule.
        is_named: Whether a rule is only to be named, because it is too long.
        words: The words by which its rarity is measured.
    """

    position: int
    text: str
    points: float
    is_rule: bool
    is_named: bool = False
    words: frozenset[str] = frozenset()


def bindings_of(
    messages: Iterable[HistoryMessage], *, rules: Iterable[tuple[int, str]] = ()
) -> list[Binding]:
    """Return the user's sentences, those that bind most first, each once where it is newest.

    Rules come first. Many messages without an answer of a model have no rules if words that bind
    are frequent: their people talk with each other.

    Args:
        messages: The messages, oldest first.
        rules: Sentences that are rules already, with the numbers of their messages.
    """
    sentences: list[Binding] = []
    is_answered = False
    for message in messages:
        is_answered = is_answered or message.role == "assistant"
        # A text that only looks like a note or a pin binds nothing.
        if message.role == "user" and not message.text.startswith((NOTE_BEGIN, PINS_BEGIN)):
            sentences += _bindings_in(message)
    is_talk = not is_answered and _is_talk(sentences)
    spread = Counter(word for sentence in sentences for word in sentence.words)
    few = 1 + len(sentences) // _FEW_SENTENCES

    newest: dict[str, Binding] = {}
    for position, text in rules:
        newest[text.casefold()] = Binding(position, text, binding_points(text), True)
    for sentence in sentences:
        key = sentence.text.casefold()
        if sentence.is_named and key in newest and newest[key].is_rule:
            continue  # its words are in view already
        sentence.is_rule = sentence.is_rule and not is_talk
        sentence.points -= len(sentence.text) / _CHARS_OF_POINT
        if sentence.words:
            rare = sum(spread[word] <= few for word in sentence.words)
            sentence.points += _OF_RARITY * rare / len(sentence.words)
        newest[key] = sentence
    return sorted(newest.values(), key=_order)


def _is_talk(sentences: list[Binding]) -> bool:
    # A paste, of which rules are only named, does not make a chat a talk.
    rules = sum(sentence.is_rule and not sentence.is_named for sentence in sentences)
    max_rules = _MAX_TALK_RULES + _MAX_TALK_SHARE * len(sentences)
    return len(sentences) >= _MIN_TALK_SENTENCES and rules > max_rules


def _order(binding: Binding) -> tuple[bool, float, int]:
    return not binding.is_rule, -binding.points, binding.position


def _bindings_in(message: HistoryMessage) -> list[Binding]:
    """Return the sentences of a message with their points."""
    bindings: list[Binding] = []
    read_text = message.text[:_READ_CHARS].rstrip()
    has_more = len(message.text) > _READ_CHARS
    for text in own_sentences(read_text):
        head = text[:_MAX_SENTENCE_CHARS]
        points = binding_points(head)
        is_rule = points >= MIN_RULE_POINTS
        # A rule without its end, such as its condition, may be another rule.
        is_cut = len(text) > _MAX_SENTENCE_CHARS or (has_more and read_text.endswith(text))
        bindings.append(
            Binding(
                message.position,
                text,
                points,
                is_rule=is_rule,
                is_named=is_rule and is_cut,
                words=_rare_candidates(head),
            )
        )
    return bindings


def _rare_candidates(sentence: str) -> frozenset[str]:
    if _CJK.search(sentence):
        return frozenset(sentence[index : index + 2] for index in range(len(sentence) - 1))
    return frozenset(
        word for word in _WORD.findall(_plain(sentence)) if len(word) >= _MIN_RARE_CHARS
    )


def own_sentences(text: str) -> Iterator[str]:
    """Yield the sentences that a user wrote, without what was pasted or quoted."""
    if "```" in text or "~~~" in text or "<<<" in text:
        text = "\n".join(_lines_outside_fences(text))
    if len(text) > _MIN_QUOTE_CHARS:
        text = _LONG_QUOTE.sub("\n", text)
    for line in text.split("\n"):
        if not _DATA_LINE.match(line):
            yield from sentences_in(line)
        elif label := _LABEL.match(line):
            written = line[label.end() :].rstrip().removesuffix(f"</{label['tag']}>")
            if _DATA_LINE.match(written):
                continue
            for sentence in sentences_in(written):
                # Records, pages and chats have labels too, so such a line is only read for rules.
                if binding_points(sentence[:_MAX_SENTENCE_CHARS]) >= MIN_RULE_POINTS:
                    yield sentence


def sentences_in(line: str) -> Iterator[str]:
    """Yield the sentences of a line."""
    start = 0
    for end in _SENTENCE_END.finditer(line):
        sentence = line[start : end.start()].strip()
        if sentence and not _ABBREVIATION.search(sentence[-8:]):
            yield sentence
            start = end.end()
    if sentence := line[start:].strip():
        yield sentence


def _lines_outside_fences(text: str) -> Iterator[str]:
    """Yield the lines outside fences in one pass, since a paste may have thousands of openings.

    A code fence without its end contains the remaining text, as in Markdown.
    """
    lines = text.split("\n")
    last_closings: dict[str, int] = {}
    for number, line in enumerate(lines):
        if closing := _FENCE_CLOSING.match(line):
            last_closings[closing[1]] = number
    code_fence = closing_mark = ""  # of the open fence
    for number, line in enumerate(lines):
        if code_fence:
            if line.startswith(code_fence) and not line.strip(code_fence[0]).strip():
                code_fence = ""
            continue
        if not line.startswith(closing_mark):
            continue
        written = line.removeprefix(closing_mark)
        if not closing_mark and (fence := _CODE_FENCE.match(line)):
            code_fence = fence[1] or fence[2]
            continue
        closing_mark = ""
        opening = _FENCE_OPENING.search(written)
        if opening and last_closings.get(opening[1], 0) > number:
            written, closing_mark = written[: opening.start()], f"{opening[1]}>>>"
        yield written


def _plain(sentence: str) -> str:
    # A capital İ would become two characters, of which the first is a word of English.
    return sentence.casefold().replace("’", "'").replace("\u0307", "")


@lru_cache(maxsize=8_192)  # each fold reads the whole history again
def binding_points(sentence: str) -> int:
    """Return the points of a sentence for the words that bind. A question has none."""
    text = _plain(sentence)
    words = len(_WORD.findall(text))
    is_signed = not text.isascii() and _SIGNED.search(text) is not None
    is_short = words < _MIN_WORDS and not (is_signed and len(text) >= _MIN_SIGNS)
    if is_short or _QUESTION.search(text):
        return 0
    patterns = _patterns()
    cues = {cue for cue, pattern in patterns.cues.items() if pattern.search(text)}
    if is_signed:
        cues.update(cue for cue, signs in patterns.signs.items() if signs.search(sentence))
    return sum(_POINTS[cue] for cue in cues)
