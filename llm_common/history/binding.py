"""Finds what the user said for the conversation, for his task, and for one answer.

A sentence gets points for words that bind in some language (`binding_words.py`), and a scope by
its words and its position. What lasts by its own words holds for the conversation: "never", "from
now on", a fact about the user. Weaker words hold only alone in a message, in a line before the
request, or as commands before a question. What was for one answer, and a consent, holds no longer.
A sentence that names only how long another one holds belongs to that one, and so do an exception
and the list behind a colon. What changes or lifts an earlier sentence holds as that one does.

Only what the user typed can hold. Fenced and quoted text, lines of data, comments, what follows a
heading or "Summarise this:", lists and code in a long message, and its long lines are pasted.
Behind a label, as in `[IMPORTANT]` or `<rule>`, a sentence still holds.

Other sentences are ordered by points, by their brevity, and by how rare their words are among the
user's sentences: what was said once says more than a request in the form of twenty others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple

from llm_common.history.binding_words import (
    ADVERSATIVES,
    COMMANDS,
    DEEDS,
    FRAME,
    JOINERS,
    MANNERS,
    NO_WAYS,
    OBJECTS,
    POLITE,
    PRESENTERS,
    SIGNS,
    TASKS,
    WAYS,
    WORDS,
    Cue,
)
from llm_common.history.message_shapes import HistoryMessage
from llm_common.ranking.lexical import search_stems
from llm_common.text.sentences import sentences_in

MIN_RULE_POINTS: Final = 3
_MIN_POINTS_APART: Final = 2  # one word that binds, in a sentence before the request
_MAX_APART: Final = 3  # sentences: a longer line tells something
# Ranks, not fitted: words that forbid or last bind alone, other words need a second hint.
_POINTS: Final[dict[Cue, int]] = {
    "forbids": 3,
    "bans": 3,
    "lasts": 3,
    "fact": 3,
    "wishes": 3,
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
    "states": 2,
    "spends": 0,
    "points": 0,
    "tells": 0,
    "muses": 0,
    "lifts": 0,
    "grants": 0,
    "conditions": 0,
    "heads": 0,
    "continues": 0,
    "bars": 0,
}
_LASTING: Final[frozenset[Cue]] = frozenset(
    {"forbids", "bans", "lasts", "fact", "wishes", "agreed"}
)
_AT_CLAUSE_START: Final[frozenset[Cue]] = frozenset({"bars", "negates", "excludes", "keeps"})
_AT_SENTENCE_START: Final[frozenset[Cue]] = frozenset(
    {"corrects", "agrees", "refuses", "states", "muses", "continues"}
)

# A change holds if something that it changes was said before.
Scope = Literal["conversation", "change", "answer", "unplaced"]

# Only messages that no model answers can be a talk of people, who bind nobody with it.
_MIN_TALK_SENTENCES: Final = 100

_READ_CHARS: Final = 20_000  # of a message: the model can read a longer paste back
_MAX_SENTENCE_CHARS: Final = 500
_MAX_TYPED_CHARS: Final = 800  # of a message without a paste
_MAX_TYPED_LINE: Final = 600
_MIN_QUOTE_CHARS: Final = 200  # a shorter quote may be a name, or what to write
_MIN_SIGNS: Final = 5
_MIN_TASK_WORDS: Final = 3
_MIN_RARE_CHARS: Final = 4
_OF_RARITY: Final = 2
_OF_PLACE: Final = 2  # of a line before the request
_CHARS_OF_POINT: Final = 80  # who commands is brief, and who tells a story uses more words of all
_FEW_SENTENCES: Final = 50  # a word is rare if one sentence in fifty has it

_WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
_SIGNED = re.compile(
    r"[\u0600-\u06ff\u0900-\u097f\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]"
)
# A fence of backquotes has none behind them: "```make test``` is fine." is code in a sentence. One
# without an end contains the remaining text, as in Markdown.
_FENCED = re.compile(
    r"^((?P<mark>[`~])(?P=mark){2,})[^`\n]*$.*?(?:^\1(?P=mark)*[ \t]*$|\Z)"
    r"|<<<(?P<nonce>\w+)$.*?^(?P=nonce)>>>",
    re.MULTILINE | re.DOTALL,
)
_CUT: Final = "\n|\n"  # a line of data in place of a pasted text
_LONG_QUOTE = re.compile(r"[\"“„«][^\"“”„«»]{200,}[\"”“»]")
# Its words are not the user's. It may end with the sentence, whose last mark is left out. An
# apostrophe within a word ends no quotation.
_QUOTED = re.compile(
    r"(?<!\w)[\"“„«][^\"“”„«»]*(?:[\"”“»]|$)|`[^`]*`"
    r"|(?<![\w'])['‘](?=[^\W\d])(?:[^'’]|['’](?=\w)){1,400}(?:['’](?!\w)|$)"
)
_INNER_END = re.compile(r"(?<=[.!?…]) ")
_DATA_LINE = re.compile(r"\s*(?:>|[{}\[\]<|]|\d{4}-\d\d-\d\d[T ]\d|(?:INFO|WARN|ERROR|DEBUG)\b)")
# Before a rule: "[IMPORTANT] Never push" and "<rule>Never push</rule>". Logs have levels instead.
_LABEL = re.compile(
    r"\s*(?:\[(?!(?i:INFO|WARN|ERROR|DEBUG|Errno)\b)[^\W\d_][\w -]{0,30}\]:?\s+"
    r"|<(?P<tag>[^\W\d_][\w-]{0,30})>)"
)
# Lists and code, which people paste more often than they type them.
_LIST_LINE = re.compile(r"\s*(?:[-*+•&]|\(?\w{1,2}[.):])\s")
_CODE_LINE = re.compile(r"\s*(?:#|//)|.*[;{}\\]\s*$|\s{4}")
# What presents a text of others: its heading, and the head of a mail.
_HEADING = re.compile(
    r"\s*(?:#{1,6} \S|(?i:from|to|subject|date|von|an|betreff|de|à|objet|para|asunto): \S)"
)
# Somebody else's sentence.
_OTHERS = re.compile(
    r"(?:they|he|she|it|there|this|that|but|and|so|because|title|your"
    r"|you(?! must| should| may| need| can|'re not)|(?:please )?don't \w+ (?:it|that|this|them)"
    r"|(?:the|my|our) (?:[\w-]+ ){1,3}?(?:never|always) \w+s)\b"
)
# Only says that what follows corrects something.
_LEAD = re.compile(
    r"(?:no|again|like i said|as i said|i told you(?: already)?)(?=[,.!…:])[\W_]+(?=\w)"
)
_ADVERB = re.compile(r"(?<![\w'])(i|i'm|we) (?:(?!only|exclus|sole)\w+ly|really|also|just) ")
_PROCEEDS = re.compile(r"\b(?:go ahead|proceed)\b")
_AFTER_REPLY = re.compile(r"\s*(?:$|[,.!;:，。！—–-]|please\b|thank|go\b|proceed\b)")
_QUESTION = re.compile(r"[?？؟][\"'»”)]*$")


def _words_pattern(words: str, *, before: str, signs: str) -> re.Pattern[str]:
    """Return a pattern of two lists of words.

    Args:
        words: The words. `*` is the rest of a word, and `_` joins the words of a phrase.
        before: A pattern of what is before the word.
        signs: Words of scripts without spaces between them, which may be anywhere.
    """
    # The longest first, since a phrase may begin with another word of the list.
    escaped = [re.escape(word) for word in sorted(words.split(), key=len, reverse=True)]
    choice = "|".join(escaped).replace(r"\*", r"[\w'-]*").replace("_", r"\s+")
    pattern = rf"{before}(?<![\w-])(?:{choice})(?!\w|-\w)"
    return re.compile("|".join([pattern, *map(re.escape, signs.split())]))


# "Please don't" and "but don't" begin a clause too. Digits and marks may be before its first word.
_CLAUSE_START: Final = (
    rf"(?:^|[,;:—–(，；：、]|(?<!\w)(?:{'|'.join(ADVERSATIVES)})(?!\w))[\W\d_]*"
    rf"(?:(?<!\w)(?:{'|'.join(JOINERS)})(?!\w)[\W\d_]*)*"
)
_SENTENCE_START: Final = r"^[\W\d_]*"


@cache
def _patterns(*, with_signs: bool) -> dict[Cue, re.Pattern[str]]:
    """Return the patterns of the words that bind. Compiling takes some 25 ms, so only folds do.

    Without signs, a search of a text that has none takes a fifth less.
    """
    patterns: dict[Cue, re.Pattern[str]] = {}
    for cue, words in WORDS.items():
        before = ""
        if cue in _AT_CLAUSE_START:
            before = _CLAUSE_START
        elif cue in _AT_SENTENCE_START:
            before = _SENTENCE_START
        signs = SIGNS.get(cue, "") if with_signs else ""
        patterns[cue] = _words_pattern(words, before=before, signs=signs)
    return patterns


@dataclass(slots=True)
class Sentence:
    """A sentence of the user.

    Attributes:
        position: Number of its message.
        text: The sentence, word for word.
        scope: For what it was said.
        points: How much it binds, with its place, its rarity and its brevity.
        is_named: Whether it is only to be named, because it is too long.
        frames_paste: Whether it says how long a pasted text holds, which is behind it.
        words: The words by which its rarity is measured.
    """

    position: int
    text: str
    scope: Scope
    points: float
    is_named: bool = False
    frames_paste: bool = False
    words: frozenset[str] = frozenset()

    @property
    def holds(self) -> bool:
        """Return whether it was said for the conversation."""
        return self.scope == "conversation"

    @property
    def changes(self) -> bool:
        """Return whether its words change or lift something."""
        return bool(_cues(self.text) & {"lifts", "grants"})


@dataclass(slots=True)
class UserWords:
    """What the user said.

    Attributes:
        sentences: Those for the conversation first, oldest first. Then the others, those that bind
            most first. Each is listed once where it is newest.
        replies: His replies that allow or refuse, oldest first.
    """

    sentences: list[Sentence] = field(default_factory=list)
    replies: list[Sentence] = field(default_factory=list)


def user_words(
    messages: Iterable[HistoryMessage], *, held: Iterable[tuple[int, str]] = ()
) -> UserWords:
    """Return what the user said in messages.

    Args:
        messages: The messages, oldest first.
        held: Sentences that hold for the conversation already, with the numbers of their messages.
    """
    sentences: list[Sentence] = []
    replies: list[Sentence] = []
    is_answered = False
    for message in messages:
        is_answered = is_answered or message.role == "assistant"
        # A text that only looks like a note or a pin binds nothing.
        if message.role != "user" or message.is_note:
            continue
        if reply := reply_in(message):
            replies.append(reply)
        sentences += _sentences_of(message, is_reply=reply is not None)
    earlier = [Sentence(position, text, "conversation", 0) for position, text in held]
    _place_changes([*earlier, *sentences])
    is_talk = not is_answered and len(sentences) >= _MIN_TALK_SENTENCES
    spread = Counter(word for sentence in sentences for word in sentence.words)
    few = 1 + len(sentences) // _FEW_SENTENCES

    newest = {sentence.text.casefold(): sentence for sentence in earlier}
    for sentence in sentences:
        key = sentence.text.casefold()
        if key in newest and newest[key].holds and (sentence.is_named or not sentence.holds):
            continue  # its words are in view already
        if is_talk:
            sentence.scope = "unplaced"
        sentence.points -= len(sentence.text) / _CHARS_OF_POINT
        if sentence.words:
            rare = sum(spread[word] <= few for word in sentence.words)
            sentence.points += _OF_RARITY * rare / len(sentence.words)
        newest[key] = sentence
    return UserWords(sorted(newest.values(), key=_order), replies)


def _place_changes(sentences: Iterable[Sentence]) -> None:
    """Let what changes or lifts an earlier sentence hold as that one does.

    A permission does so unless it may be the consent that the earlier sentence asks for.
    """
    topics: set[str] = set()
    free_topics: set[str] = set()  # of sentences that ask for no consent
    for sentence in sentences:
        cues = _cues(sentence.text)
        stems = search_stems(sentence.text) if sentence.scope in ("change", "conversation") else ()
        if sentence.scope == "change":
            lifted = topics if "lifts" in cues else free_topics
            is_about = ("heads" in cues and topics) or not lifted.isdisjoint(stems)
            sentence.scope = "conversation" if is_about else "unplaced"
        if sentence.holds:
            topics.update(stems)
            free_topics.update(() if "conditions" in cues else stems)


def _order(sentence: Sentence) -> tuple[bool, float, int]:
    # What holds has the order of the conversation.
    points = 0.0 if sentence.holds else sentence.points
    return not sentence.holds, -points, sentence.position


def reply_in(message: HistoryMessage) -> Sentence | None:
    """Return the first consent or refusal of a short message of the user."""
    if len(message.text) > _MAX_TYPED_CHARS:
        return None
    for line in typed_lines(message.text):
        for text in line.sentences:
            if _is_reply(text):
                return _sentence(message.position, text, "answer")
    return None


@lru_cache(maxsize=8_192)
def _is_reply(sentence: str) -> bool:
    text = sentence.casefold().replace("’", "'")  # with its first word
    cues = _cues(sentence)
    if _QUESTION.search(text) or cues & {"lasts", "forbids", "bans", "always"}:
        return False
    for cue in ("agrees", "refuses"):
        match = _patterns(with_signs=False)[cue].match(text)
        if match is not None and _AFTER_REPLY.match(text, match.end()):
            return ":" not in text  # "No, better so: …" says what comes instead
    return _PROCEEDS.search(text) is not None and "negates" not in cues


def is_task(message: HistoryMessage) -> bool | None:
    """Return whether a message of the user asks for work. None if that is not certain."""
    if reply_in(message) is not None or len(message.text.split()) < _MIN_TASK_WORDS:
        return False
    sentences = _sentences_of(message, is_reply=False)
    if all(sentence.holds for sentence in sentences):
        return False
    for line in typed_lines(message.text[:_READ_CHARS]):
        for text in line.sentences:
            if "asks" in _cues(text) or _first_words(text)[0] in TASKS:
                return True
    return None


def _sentences_of(message: HistoryMessage, *, is_reply: bool) -> list[Sentence]:
    """Return the sentences of a message with their points and scopes.

    Sentences of one line that hold are listed as one, as is a sentence with the one that it frames.
    """
    read_text = message.text[:_READ_CHARS].rstrip()
    lines = typed_lines(read_text)
    sentences: list[Sentence] = []
    belongs = False  # to what holds before: behind a frame, or as an item of its list
    for index, line in enumerate(lines):
        texts = line.sentences
        is_brief = len(texts) <= _MAX_APART
        is_apart = index == 0 and is_brief and _are_apart(texts)
        is_item = belongs and line.is_listed
        is_joined = belongs
        for text in texts:
            # An exception, or to what else it applies.
            continues = is_brief and line.is_typed and "continues" in _cues(text)
            continues = continues and bool(sentences) and sentences[-1].holds
            scope: Scope = "conversation"
            if not belongs and not continues:
                scope = _scope(text, line, is_apart=is_apart, is_reply=is_reply)
            if scope == "change" and not is_brief:
                scope = "unplaced"  # a story has "again" and "you can" as well
            sentence = _sentence(message.position, text, scope)
            # Records, pages and chats have labels too, so such a line is only read for what holds.
            if line.is_labelled and not sentence.holds:
                continue
            if line.is_typed:
                # A request behind it says that the first line is not the whole of it.
                is_leading = index == 0 and len(lines) > 1
                sentence.points += _OF_PLACE * (is_apart or is_leading)
            if (is_joined or continues) and sentence.holds and sentences[-1].holds:
                sentence = _sentence(message.position, f"{sentences.pop().text} {text}", scope)
            # A rule without its end, such as its condition, may be another rule.
            is_cut = len(message.text) > _READ_CHARS and read_text.endswith(text)
            sentence.is_named = sentence.holds and (is_cut or len(text) > _MAX_SENTENCE_CHARS)
            sentences.append(sentence)
            is_joined = True
            belongs = belongs or (sentence.holds and is_frame(text))
        next_line = lines[index + 1] if index + 1 < len(lines) else None
        is_listed = next_line is not None and next_line.is_typed and next_line.is_listed
        belongs = is_item and is_listed
        is_open = texts[-1].endswith(":")
        if is_joined and sentences[-1].holds and (is_open or is_frame(texts[-1])):
            rest = read_text.partition(texts[-1])[2].lstrip()
            belongs = (
                next_line is not None
                and next_line.is_typed
                and rest.startswith(next_line.sentences[0])
                and (is_listed or is_frame(texts[-1]))
            )
            sentences[-1].frames_paste = bool(rest) and not belongs
    return sentences


def _sentence(position: int, text: str, scope: Scope) -> Sentence:
    words = _rare_candidates(text[:_MAX_SENTENCE_CHARS])
    return Sentence(position, text, scope, binding_points(text), words=words)


def _are_apart(texts: Sequence[str]) -> bool:
    """Return whether the sentences of a line ask for no work, and ask nothing before its end."""
    if _QUESTION.search(texts[-1]):
        # Else a text that tells something comes before a question about it.
        commands = [text for text in texts[:-1] if _first_words(text)[0] in COMMANDS]
        return 0 < len(commands) == len(texts) - 1
    return not any(_QUESTION.search(text) or _names_work(text) for text in texts)


def _names_work(text: str) -> bool:
    """Return whether a sentence begins as one that asks for work, or tells something."""
    first, second = _first_words(text)
    # "When you cite something, use the source" tells how, where "when did" would ask.
    is_way = f"{first} {second}" in ("when you", "when you're") or "states" in _cues(text)
    return first in NO_WAYS and not is_way and not (first in TASKS and second in MANNERS)


def _scope(text: str, line: "Line", *, is_apart: bool, is_reply: bool) -> Scope:
    """Return for what a sentence was said, by its words and its position."""
    cues = _cues(text)
    if line.is_typed and ("lasts" in cues or _heads_rules(text)):
        return "conversation"
    if "spends" in cues or _is_reply(text):
        return "answer"
    is_of_reply = is_reply and not cues & {"forbids", "bans"}
    if is_of_reply or not line.is_typed or cues & {"points", "tells", "muses"}:
        return "unplaced"
    if not _OTHERS.match(_plain(text)) and _binds(text, is_apart=is_apart):
        return "conversation"
    return "change" if cues & {"lifts", "grants"} and not _is_work(text) else "unplaced"


def _binds(text: str, *, is_apart: bool) -> bool:
    """Return whether a sentence binds by its words, or as a command apart from a request."""
    cues = _cues(text)
    points = binding_points(text)
    # "Write a story in which he never sleeps" is about the story.
    is_lasting = cues & _LASTING and (not _is_work(text) or cues & {"bars", "negates"})
    is_command = is_apart and (points >= _MIN_POINTS_APART or _is_way(text))
    return is_command or (points >= MIN_RULE_POINTS and bool(is_lasting))


def _is_work(text: str) -> bool:
    """Return whether a sentence begins as one that asks for work."""
    first, second = _first_words(text)
    return first in TASKS and second not in MANNERS


def _is_way(text: str) -> bool:
    """Return whether a sentence says how to work, and names no work."""
    first, second = _first_words(text)
    is_work = (
        second in OBJECTS or (first in DEEDS and second in ("the", "a", "an")) or _is_work(text)
    )
    return first in WAYS | TASKS and not is_work and not text.endswith((":", "?"))


@lru_cache(maxsize=8_192)
def _first_words(text: str) -> tuple[str, str]:
    """Return the first two words of a sentence that are not of politeness."""
    words = [word for word in _WORD.findall(_plain(text)) if word not in POLITE]
    return (*words[:2], "", "")[:2]


def _heads_rules(text: str) -> bool:
    """Return whether a text is the heading of rules."""
    heads = _patterns(with_signs=False)["heads"]
    return text.rstrip().endswith(":") and heads.search(_plain(text)) is not None


def is_frame(text: str) -> bool:
    """Return whether a sentence says only how long another one holds."""
    if "lasts" not in _cues(text):
        return False
    remaining = _patterns(with_signs=False)["lasts"].sub("", _plain(text))
    return {*_WORD.findall(remaining)} <= FRAME


@lru_cache(maxsize=8_192)
def _rare_candidates(sentence: str) -> frozenset[str]:
    return frozenset(
        word for word in _WORD.findall(_plain(sentence)) if len(word) >= _MIN_RARE_CHARS
    )


class Line(NamedTuple):
    """A line of a user's message.

    Attributes:
        sentences: The sentences of the line without its label.
        is_typed: Whether the user typed it. Others may be pasted.
        is_listed: Whether it is an item of a list.
        is_labelled: Whether a label was before it.
    """

    sentences: tuple[str, ...]
    is_typed: bool
    is_listed: bool
    is_labelled: bool


@lru_cache(maxsize=1_024)
def typed_lines(text: str) -> Sequence[Line]:
    """Return the lines that a user may have typed, without fenced and quoted text and data."""
    # Not without any closing: a paste may have thousands of openings, and each would look for one.
    if "```" in text or "~~~" in text or ">>>" in text:
        text = _FENCED.sub(_CUT, text)
    if len(text) > _MIN_QUOTE_CHARS:
        text = _LONG_QUOTE.sub(_CUT, text)
    paragraphs = re.split(r"\n\s*\n", text.strip())
    lines = [line for line in text.split("\n") if line.strip()]
    outer = [number for number, line in enumerate(lines) if line != _CUT.strip()]
    is_short = len(text) <= _MAX_TYPED_CHARS
    last_start = len(lines) - len([line for line in paragraphs[-1].split("\n") if line.strip()])
    pasted_from = len(lines)  # the first line of a presented text
    typed: list[Line] = []
    for number, line in enumerate(lines):
        if number == last_start and pasted_from < number:
            pasted_from = len(lines)
        written = line
        label = _LABEL.match(line)
        if label is not None:
            written = line[label.end() :].rstrip().removesuffix(f"</{label['tag']}>")
        if _DATA_LINE.match(written):
            continue
        # Before and behind a paste, people type one line.
        is_listed = _LIST_LINE.match(line) is not None
        is_outer = number in (outer[0], outer[-1]) and not is_listed
        is_typed = len(line) <= _MAX_TYPED_LINE and (is_short or is_outer)
        is_typed = is_typed and number < pasted_from and not _CODE_LINE.match(line)
        # A quotation of several sentences stays whole.
        masked = _QUOTED.sub(lambda quote: _INNER_END.sub("\0", quote[0]), written)
        sentences = tuple(text.replace("\0", " ") for text in sentences_in(masked))
        if _presents(line):
            pasted_from = min(pasted_from, number + 1)
            is_typed = is_typed and line.endswith(":")
        if sentences:
            typed.append(Line(sentences, is_typed, is_listed, label is not None))
    return typed


def _presents(line: str) -> bool:
    """Return whether a text of others follows: behind a heading, or what is to be done with it."""
    lead, colon, _ = line.partition(":")
    is_open = line.rstrip().endswith(":") and _first_words(lead)[0] in PRESENTERS
    is_of_user = _heads_rules(line) or "lasts" in _cues(line)
    is_lead = colon and (is_open or _is_work(lead)) and not is_of_user
    return bool(is_lead) or _HEADING.match(line) is not None


def _plain(sentence: str) -> str:
    # A capital İ would become two characters, of which the first is a word of English.
    plain = sentence.casefold().replace("’", "'").replace("\u0307", "")
    return _LEAD.sub("", plain).replace("do not ", "don't ")


@lru_cache(maxsize=8_192)  # each fold reads the whole history again
def _cues(sentence: str) -> frozenset[Cue]:
    """Return the kinds of words that bind in a sentence. A question has none."""
    own_words = sentence[:_MAX_SENTENCE_CHARS]
    if not _QUOTED.fullmatch(own_words):  # who puts all of it in quotes says it himself
        own_words = _QUOTED.sub(" … ", own_words)
    text = _ADVERB.sub(r"\1 ", _plain(own_words))
    is_signed = not text.isascii() and _SIGNED.search(text) is not None
    is_short = len(text) < _MIN_SIGNS if is_signed else len(_WORD.findall(text)) == 1
    if is_short or _QUESTION.search(sentence):
        return frozenset()
    patterns = _patterns(with_signs=is_signed)
    return frozenset(cue for cue in _POINTS if patterns[cue].search(text))


def binding_points(sentence: str) -> int:
    """Return the points of a sentence for the words that bind."""
    return sum(_POINTS[cue] for cue in _cues(sentence))
