"""Finds what the user said that binds: prohibitions, permissions, limits, wishes and facts.

A sentence gets points for words that bind in some language (`binding_words.py`), for numbers, and
if it addresses the reader. A sentence with enough points is a rule. The others are ordered by
points, and by how rare their words are among the user's sentences: what was said once says more
than a request in the form of twenty others.

Only what the user wrote counts. Fenced and quoted text and lines of data are left out, and a pasted
text has a few rules at most. Behind a label, as in `[IMPORTANT]` or `<rule>`, a rule still counts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from llm_common.history.binding_words import ADVERSATIVES, JOINERS, SIGNS, SUBJECTS, WORDS, Cue
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
# What a subject before them makes a habit: "I never", "they only".
_COMMANDS: Final[frozenset[Cue]] = frozenset(
    {"forbids", "negates", "excludes", "always", "only", "keeps", "asks", "corrects"}
)
_AT_CLAUSE_START: Final[frozenset[Cue]] = frozenset({"negates", "excludes", "keeps"})

# People who talk with each other say words that bind in 1 to 6 % of their sentences, as meetings
# show (docs/benchmarks.md). Only messages that no model answers can be such a talk.
_MIN_TALK_SENTENCES: Final = 100
_MAX_TALK_RULES: Final = 1
_MAX_TALK_SHARE: Final = 0.002

_READ_CHARS: Final = 20_000  # of a message: the model can read a longer paste back
_MAX_OF_MESSAGE: Final = 12  # a pasted text has rules for somebody else
_MAX_SENTENCE_CHARS: Final = 500
_MIN_QUOTE_CHARS: Final = 200  # a shorter quote may be a name, or what to write
_MIN_WORDS: Final = 3
_MIN_SIGNS: Final = 5
_MAX_COMMAND_WORDS: Final = 30
_MIN_RARE_CHARS: Final = 4
_OF_RARITY: Final = 2
_CHARS_OF_POINT: Final = 80  # who commands is brief, and who tells a story uses more words of all
_FEW_SENTENCES: Final = 50  # a word is rare if one sentence in fifty has it

# A mark ends a sentence before a space and no small letter, or anywhere in Chinese and Japanese.
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"'»”)]*\s+(?=[^a-zà-öø-ÿа-я\s])|(?<=[。！？؟।])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(.])(?:[^\W\d_]|[A-Z][^\W\d_]{1,2}|\d{1,2})\.$"
)  # Mr. or z. B.
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*['’]?")
_CLAUSE_MARK = re.compile(r"[,;:—–(，；：、]")
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
_NUMBER = re.compile(r"\d")


class Binding(NamedTuple):
    """A sentence of the user that may bind.

    Attributes:
        position: Number of its message.
        text: The sentence, word for word.
        points: How much it binds, with its rarity and brevity.
        is_rule: Whether its points make it a rule.
        is_correction: Whether it corrects what was said before.
        is_named: Whether a rule is only to be named, because it is too long, or its message has too
            many rules.
    """

    position: int
    text: str
    points: float
    is_rule: bool
    is_correction: bool
    is_named: bool = False


class _Sentence(NamedTuple):
    position: int
    text: str
    words: list[str]
    points: int
    is_correction: bool
    is_named: bool = False


def bindings_of(
    messages: Iterable[HistoryMessage], *, rules: Iterable[tuple[int, str]] = ()
) -> list[Binding]:
    """Return the user's sentences, those that bind most first, each once where it is newest.

    Rules come first, and among them corrections, the newest first. Many messages without an answer
    of a model have no rules if words that bind are frequent: their people talk with each other.

    Args:
        messages: The messages, oldest first.
        rules: Sentences that are rules already, with the numbers of their messages.
    """
    sentences: list[_Sentence] = []
    is_answered = False
    for message in messages:
        is_answered = is_answered or message.role == "assistant"
        # A text that only looks like a note or a pin binds nothing.
        if message.role == "user" and not message.text.startswith((NOTE_BEGIN, PINS_BEGIN)):
            sentences += _sentences_of(message)
    spread = Counter(word for sentence in sentences for word in {*sentence.words})
    few = 1 + len(sentences) // _FEW_SENTENCES
    count = sum(sentence.points >= MIN_RULE_POINTS for sentence in sentences)
    is_talk = (
        not is_answered
        and len(sentences) >= _MIN_TALK_SENTENCES
        and count > _MAX_TALK_RULES + _MAX_TALK_SHARE * len(sentences)
    )

    newest: dict[str, Binding] = {}
    for position, text in rules:
        points, is_correction = _points(text, _words(text))
        newest[text.casefold()] = Binding(position, text, points, True, is_correction)
    for sentence in sentences:
        key = sentence.text.casefold()
        is_rule = not is_talk and (sentence.is_named or sentence.points >= MIN_RULE_POINTS)
        earlier = newest.get(key)
        if sentence.is_named and earlier is not None and earlier.is_rule:
            continue  # its words are in view already
        rarity = 0.0
        if sentence.words:
            rarity = sum(spread[word] <= few for word in sentence.words) / len(sentence.words)
        newest[key] = Binding(
            sentence.position,
            sentence.text,
            points=sentence.points + _OF_RARITY * rarity - len(sentence.text) / _CHARS_OF_POINT,
            is_rule=is_rule,
            is_correction=sentence.is_correction,
            is_named=sentence.is_named,
        )
    return sorted(newest.values(), key=_order)


def _order(binding: Binding) -> tuple[bool, bool, float, int]:
    if binding.is_rule and binding.is_correction:
        return False, False, -binding.position, 0  # the newest replaces the ones before
    return not binding.is_rule, True, -binding.points, binding.position


def _sentences_of(message: HistoryMessage) -> list[_Sentence]:
    sentences: list[_Sentence] = []
    read_text = message.text[:_READ_CHARS].rstrip()
    has_more = len(message.text) > _READ_CHARS
    for text in own_sentences(read_text):
        head = text[:_MAX_SENTENCE_CHARS]
        words = _words(head)
        points, is_correction = _points(head, words)
        if _CJK.search(head):
            rare_words = [head[index : index + 2] for index in range(len(head) - 1)]
        else:
            rare_words = [word for word in words if len(word) >= _MIN_RARE_CHARS]
        # A rule without its end, such as its condition, may be another rule.
        is_cut = len(text) > _MAX_SENTENCE_CHARS or (has_more and read_text.endswith(text))
        is_named = is_cut and points >= MIN_RULE_POINTS
        sentences.append(
            _Sentence(message.position, text, rare_words, points, is_correction, is_named)
        )
    best_first = sorted(range(len(sentences)), key=lambda index: -sentences[index].points)
    for index in best_first[_MAX_OF_MESSAGE:]:
        if sentences[index].points >= MIN_RULE_POINTS:
            # Without the points of a rule, so that a paste does not make a chat a talk.
            sentences[index] = sentences[index]._replace(points=MIN_RULE_POINTS - 1, is_named=True)
    return sentences


def own_sentences(text: str) -> Iterator[str]:
    """Yield the sentences that a user wrote, without what was pasted or quoted."""
    if "```" in text or "~~~" in text or "<<<" in text:
        text = "\n".join(_lines_outside_fences(text))
    if len(text) > _MIN_QUOTE_CHARS:
        text = _LONG_QUOTE.sub("\n", text)
    for line in text.split("\n"):
        if not _DATA_LINE.match(line):
            yield from _sentences_in(line)
        elif label := _LABEL.match(line):
            written = line[label.end() :].rstrip().removesuffix(f"</{label['tag']}>")
            if _DATA_LINE.match(written):
                continue
            for sentence in _sentences_in(written):
                # Records, pages and chats have labels too, so such a line is only read for rules.
                if binding_points(sentence[:_MAX_SENTENCE_CHARS]) >= MIN_RULE_POINTS:
                    yield sentence


def _sentences_in(line: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(line):
        sentence = line[start : end.start()].strip()
        if sentence and not _ABBREVIATION.search(sentence[-6:]):
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


def binding_points(sentence: str) -> int:
    """Return the points of a sentence for the words that bind. A question has none."""
    return _points(sentence, _words(sentence))[0]


def _words(sentence: str) -> list[str]:
    return [word.casefold().replace("’", "'") for word in _WORD.findall(sentence)]


def _points(sentence: str, words: Sequence[str]) -> tuple[int, bool]:
    """Return the points of a sentence, and whether it corrects an earlier one."""
    if _QUESTION.search(sentence):
        return 0, False
    is_signed = not sentence.isascii() and _SIGNED.search(sentence) is not None
    if len(words) < _MIN_WORDS and not (is_signed and len(sentence) >= _MIN_SIGNS):
        return 0, False
    cues = {cue for cue, signs in _SIGNS.items() if signs.search(sentence)} if is_signed else set()
    subject = next((index for index, word in enumerate(words) if word in SUBJECTS), len(words))
    first_cue = len(words)
    for index, cue in _cues_of(sentence, words):
        if cue in _COMMANDS and index > subject:
            continue
        cues.add(cue)
        first_cue = min(first_cue, index)
    points = sum(_POINTS[cue] for cue in cues)
    if _NUMBER.search(sentence):
        points += 1
    # A command that has a subject only later: "Leave the header as it is".
    if len(words) <= _MAX_COMMAND_WORDS and (subject == len(words) or first_cue < subject):
        points += 1
    return points, "corrects" in cues


def _cues_of(sentence: str, words: Sequence[str]) -> Iterator[tuple[int, Cue]]:
    """Yield the cues of the words of a sentence, each with the number of its word."""
    starts: list[int] | None = None  # of the clauses, which few sentences need
    for index, word in enumerate(words):
        for phrase, cue in _cues_at(word):
            if phrase and tuple(words[index : index + len(phrase)]) != phrase:
                continue
            if cue == "corrects" and index:
                continue
            if cue in _AT_CLAUSE_START:
                starts = starts or _clause_starts(sentence)
                if index not in starts:
                    continue
            yield index, cue


def _clause_starts(sentence: str) -> list[int]:
    """Return the numbers of the words that begin a clause."""
    starts: list[int] = []
    end = 0
    before = ""
    for index, match in enumerate(_WORD.finditer(sentence)):
        is_start = not index or before in ADVERSATIVES
        is_start = is_start or _CLAUSE_MARK.search(sentence, end, match.start()) is not None
        # "Please don't": the clause also begins behind such words.
        if is_start or (before in JOINERS and index - 1 in starts):
            starts.append(index)
        before, end = match[0].casefold(), match.end()
    return starts


@lru_cache(maxsize=8_192)
def _cues_at(word: str) -> tuple[tuple[tuple[str, ...], Cue], ...]:
    """Return the cues that a word begins, each with its phrase, which is empty for one word."""
    cues: list[tuple[tuple[str, ...], Cue]] = [*_PHRASES.get(word, ())]
    forms = [word, word.partition("'")[2]] if "'" in word else [word]  # "l'accord"
    for form in forms:
        cues += [((), cue) for cue in _EXACT.get(form, ())]
        for size in range(1, len(form) + 1):
            cues += [((), cue) for cue in _STEMS.get(form[:size], ())]
            cues += [((), cue) for cue in _ENDINGS.get(form[-size:], ())]
    return tuple(cues)


_EXACT: Final[dict[str, list[Cue]]] = {}
_STEMS: Final[dict[str, list[Cue]]] = {}
_ENDINGS: Final[dict[str, list[Cue]]] = {}
_PHRASES: Final[dict[str, list[tuple[tuple[str, ...], Cue]]]] = {}
for _cue, _text in WORDS.items():
    for _entry in _text.split():
        _phrase = tuple(_entry.split("_"))
        if len(_phrase) > 1:
            _PHRASES.setdefault(_phrase[0], []).append((_phrase, _cue))
        elif _entry.endswith("*"):
            _STEMS.setdefault(_entry[:-1], []).append(_cue)
        elif _entry.startswith("*"):
            _ENDINGS.setdefault(_entry[1:], []).append(_cue)
        else:
            _EXACT.setdefault(_entry, []).append(_cue)
_SIGNS: Final[dict[Cue, re.Pattern[str]]] = {}
for _cue, _text in SIGNS.items():
    _signs = [re.escape(_sign.replace("_", " ")) for _sign in _text.split()]
    _SIGNS[_cue] = re.compile("|".join(_signs))
