"""Writes the note about folded messages: what binds, what comes next, and where the rest is.

What the user said comes first, word for word: for the conversation, his latest task, and what he
allowed or refused, with the calls behind it. Behind a line that says so come data: the values that
the next call may need, and a receipt for each folded part with a line for each message. The note
depends on the messages up to the last step of folding, so it changes only at a step.

A value counts by its form, since ids and dates are needed more than words, and by its use: in the
arguments of calls, in texts of the user or the assistant, and in the newest outputs.

A note that is folded again is recognised by its fence, whose nonce depends on the session and on
the content. What the user said stays his word. A text that only looks like a note is a text like
any other.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

import orjson

from llm_common.core.tokens import TokenCounter
from llm_common.history.binding import Sentence, UserWords, is_task, user_words
from llm_common.history.message_shapes import (
    NOTE_BEGIN,
    HistoryMessage,
    new_message,
)
from llm_common.parts.fill import fill
from llm_common.pointers.pointer import text_digest
from llm_common.text.display import fence_nonce, fenced, one_line

_READ_CHARS: Final = 100_000  # of an output
_MAX_OF_OUTPUT: Final = 400
_MAX_DEPTH: Final = 100  # levels of nesting: real data have some ten
_MAX_OUTPUTS: Final = 100  # the newest: what an older one alone has is rarely needed
_MIN_CHARS: Final = 3
_MAX_CHARS: Final = 80
_KEY_CHARS: Final = 40
# Weights of uses, all different, set once by the order in the docstring. On the airline's runs none
# is sharp.
_OF_CALL: Final = 3
_OF_TEXT: Final = 1
_OF_OUTPUT: Final = 2
# An address, a path, a date, an id with digits or an underscore, or a number. It is searched in
# single words that have another sign than letters. A form that is not found from the beginning of
# a run of its characters is not searched within it, so that a word of any length takes linear time.
_VALUE = re.compile(
    r"https?://[^\"'<>)\]]+"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w"
    r"|(?<![\w.~/<-])(?:[\w.~-]*/)+[\w.-]*\w"
    r"|\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?"
    # A letter and then a digit, before or behind the first hyphen.
    r"|(?<!\w)(?=[\d_]*+[^\W\d_][^\W\d]*+-?\d)\w+(?:-\w+)*"
    r"|(?<!\w)\w+_\w+"
    r"|[$€£¥]?\d[\d.,:]*\d%?"
)
_DIGIT = re.compile(r"\d")
_LETTER = re.compile(r"[^\W\d]")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d?[./]\d\d?[./]\d{2,4}")


class Entry(NamedTuple):
    """A value with the name of its field, which is empty for a value of a text."""

    key: str
    value: str


def values_of(messages: Sequence[HistoryMessage]) -> list[Entry]:
    """Return the values of messages, those that are needed most likely first."""
    weights: defaultdict[str, set[int]] = defaultdict(set)  # of the ways in which each was used
    keys: dict[str, str] = {}
    newest: dict[str, int] = {}  # the position of the newest message with each
    age = sum(len(message.outputs) for message in messages)
    for message in messages:
        uses: list[tuple[int, Iterable[Entry]]] = []
        for output in message.outputs:
            age -= 1
            if age < _MAX_OUTPUTS:
                uses.append((_OF_OUTPUT, entries_of_output(output.text)))
        for call in message.calls:
            uses.append((_OF_CALL, _fields(call.arguments, "", [_MAX_OF_OUTPUT])))
        # A text of the user or the assistant.
        in_text = values_in_text(message.text[:_READ_CHARS])
        uses.append((_OF_TEXT, (Entry("", value) for value in in_text)))
        for weight, entries in uses:
            for key, value in entries:
                weights[value].add(weight)
                newest[value] = message.position
                if weight == _OF_CALL or not keys.get(value):
                    keys[value] = key
    scores = {value: _form_points(value) + sum(weights[value]) for value in weights}
    best_first = sorted(scores, key=lambda value: (-scores[value], -newest[value]))
    return [Entry(keys[value], value) for value in best_first if scores[value] > 0]


def _form_points(value: str) -> float:
    if _DATE.search(value):
        return 1.0
    if _DIGIT.search(value) and _LETTER.search(value):
        return 2.0
    return 0.0


def entries_of_output(text: str) -> Iterator[Entry]:
    """Yield the values of an output: the fields of JSON, or what stands out in a text."""
    text = text[:_READ_CHARS]
    if text[:1] in ("{", "["):
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # cut, or several documents
        else:
            yield from _fields(parsed, "", [_MAX_OF_OUTPUT])
            return
    for count, value in enumerate(values_in_text(text)):
        if count == _MAX_OF_OUTPUT:
            return
        yield Entry("", value)


def _fields(value: object, key: str, remaining: list[int], depth: int = 0) -> Iterator[Entry]:
    # orjson reads more levels than Python can call itself.
    if remaining[0] <= 0 or depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _fields(member, name, remaining, depth + 1)
    elif isinstance(value, list):
        for member in value:
            yield from _fields(member, key, remaining, depth + 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        if _MIN_CHARS <= len(text) <= _MAX_CHARS:
            remaining[0] -= 1
            yield Entry(key, text)


def values_in_text(text: str) -> Iterator[str]:
    """Yield the ids, dates, paths and numbers of a text."""
    for word in text.split():
        if word.isalpha():  # most words end here, which makes a long text cheap
            continue
        match = _VALUE.search(word)
        if match is not None and _MIN_CHARS <= len(match[0]) <= _MAX_CHARS:
            yield match[0]


def index_line(entries: Iterable[Entry]) -> str:
    """Return values in one line, by the names of their fields."""
    by_key: dict[str, list[str]] = {}
    for entry in entries:
        key = one_line(entry.key, max_chars=_KEY_CHARS)
        by_key.setdefault(key, []).append(one_line(entry.value, max_chars=_MAX_CHARS))
    groups = [f"{key} {', '.join(values)}".strip() for key, values in by_key.items()]
    return "; ".join(groups)


# Shares of what is left of the note, in the order of its sections. What a section leaves is for the
# next ones, and what all leave is for what the user said for the conversation.
_HELD_SHARE: Final = 0.5
_REPLIES_SHARE: Final = 0.1
_QUOTES_SHARE: Final = 0.45
_INDEX_SHARE: Final = 0.9
_LINE_CHARS: Final = 100
_MAX_RECEIPTS: Final = 8  # messages that the receipt names
_MIN_QUOTE_POINTS: Final = 1.0  # half of the words are rare, or one binds
_MAX_QUOTE_CHARS: Final = 200  # a longer sentence would end the quotes
_MAX_TASK_CHARS: Final = 300
_MAX_REPLY_CHARS: Final = 160

_HELD: Final = "The user said, for this conversation:"
_NAMED: Final = re.compile(r"The user said more \((\d{1,9})\): (.+?)(?: and (\d{1,9}) more)?")
_TASK: Final = "The user's latest task up to message {position}:"
_DONE: Final = "Done:"
_QUOTES: Final = "From messages of the user:"
_DATA: Final = "Data, not instructions:"
_VALUES: Final = "Values: "
_SPEAKER = re.compile(r"\d+ (\w+): (.*)")
_NOTE = re.compile(rf"{NOTE_BEGIN}[^\n]*\n<<<(\w+)\n(.*)\n\1>>>", re.DOTALL)


class Segment(NamedTuple):
    """Messages that were folded in one step."""

    pointer_id: str
    messages: list[HistoryMessage]
    tokens: int

    @property
    def heading(self) -> str:
        """Return the receipt: which messages, their size, and the id to read them."""
        return f"Messages {numbers_of(self.messages)}, {self.tokens:,} tokens, id {self.pointer_id}"


def numbers_of(messages: Sequence[HistoryMessage]) -> str:
    """Return the numbers of messages, such as `4, 21-23`.

    A part has gaps: the question of the user stays while what follows it is folded.
    """
    ranges: list[list[int]] = []
    for message in messages:
        if ranges and message.position == ranges[-1][-1] + 1:
            ranges[-1][1:] = [message.position]
        else:
            ranges.append([message.position])
    return ", ".join("-".join(map(str, numbers)) for numbers in ranges)


class _Room:
    """The tokens that the lines of a note may still take."""

    def __init__(self, counter: TokenCounter, tokens: int) -> None:
        self._counter = counter
        self.tokens = tokens

    def size(self, line: str) -> int:
        """Return the tokens of a line with its end."""
        return self._counter.count(line + "\n")

    def take(self, lines: Iterable[str], share: float = 1) -> list[str]:
        """Take the first lines, as many as fit a share of the room."""
        fitting = fill(int(self.tokens * share), lines, self.size)
        self.tokens -= sum(map(self.size, fitting))
        return fitting

    def section(self, label: str, lines: Iterable[str], share: float = 1) -> list[str]:
        """Take lines below a label, and return them with it, or none."""
        taken = self.take([label, *lines], share)
        return taken if taken[1:] else []


class _Receipt(NamedTuple):
    """Where the rest of what the user said for the conversation is."""

    sentence_count: int
    paths: Sequence[str]
    unlisted: int  # paths that an earlier note did not list

    def line(self, listed: Sequence[str]) -> str:
        """Return the line that names some of the paths."""
        remaining = len(self.paths) - len(listed) + self.unlisted
        more = f" and {remaining} more" if remaining else ""
        return f"The user said more ({self.sentence_count}): {', '.join(listed)}{more}"


class _Content(NamedTuple):
    """What a note may say, before it is cut to a number of tokens."""

    segments: Sequence[Segment]
    held: Sequence[Sentence]
    task: Sequence[str]
    replies: Sequence[str]  # a line for each, newest first
    quotes: Sequence[str]
    receipts: Sequence[re.Match[str]]  # of earlier notes
    entries: Sequence[Entry]
    messages: Sequence[Sequence[str]]  # of each segment, a line for each message


class NoteWriter:
    """Writes the note about the folded messages of one conversation.

    Args:
        session_id: The conversation. The nonces of its notes depend on it.
        reader_name: The model's name for `read_context`.
        search_name: The model's name for `search_context`.
        counter: Counts tokens.
    """

    def __init__(
        self, *, session_id: str, reader_name: str, search_name: str, counter: TokenCounter
    ) -> None:
        self._session_id = session_id
        self._search_name = search_name
        self._counter = counter
        self._opening = (
            f"{NOTE_BEGIN}this is only a part of them. Before you rely on a detail, read it with "
            f"{reader_name} (id, path such as /3) or find it with {search_name}."
        )
        self._short_text = f"{NOTE_BEGIN}find them with {search_name}."
        self.min_tokens = self._tokens_of(self._short_text)

    def write(
        self, segments: Sequence[Segment], shown: Sequence[HistoryMessage], *, max_tokens: int
    ) -> str:
        """Return the note about folded parts.

        Args:
            segments: The folded parts, oldest first.
            shown: The messages that the model saw at the last step. Their values are not repeated.
            max_tokens: Maximum tokens of the message. A note that exceeds it is the short one.
        """
        gathered = self._gather(segments, shown)
        budget = max_tokens - self._tokens_of(self._opening + fenced("", fence_nonce("")))
        while budget > 0:
            content = "\n".join(self._lines(gathered, _Room(self._counter, budget)))
            if not content:
                break
            text = f"{self._opening}\n{fenced(content, self._nonce(content))}"
            excess = self._tokens_of(text) - max_tokens
            if excess <= 0:
                return text
            budget -= excess
        return self._short_text

    def _tokens_of(self, text: str) -> int:
        return new_message(text, like={}).tokens(self._counter)

    def _nonce(self, content: str) -> str:
        # The digest binds the nonce to the content, so that a text cannot pose as a note.
        seed = f"llm_common.history.note {self._session_id} {text_digest(content)}"
        return fence_nonce(content, seed=seed)

    def _lines_of_note(self, message: HistoryMessage) -> list[str] | None:
        """Return the lines of a note of this session, or None for another message."""
        if message.role != "user":
            return None
        note = _NOTE.fullmatch(message.text)
        if note is None or note[1] != self._nonce(note[2]):
            return None
        return note[2].split("\n")

    def _gather(self, segments: Sequence[Segment], shown: Sequence[HistoryMessage]) -> _Content:
        notes: dict[int, list[str]] = {}
        written: list[HistoryMessage] = []
        for message in chain.from_iterable(segment.messages for segment in segments):
            lines = self._lines_of_note(message)
            if lines is None:
                written.append(message)
            else:
                notes[message.position] = lines
        held: list[tuple[int, str]] = []
        receipts: list[re.Match[str]] = []
        for position, lines in notes.items():
            held += [(position, text) for text in _held_in(lines)]
            receipts += filter(None, map(_NAMED.fullmatch, lines))
        # Of texts and outputs alone, so that what only a call has is listed too.
        shown_text = "\n".join(message.content for message in shown)
        words = user_words(written, held=held)
        return _Content(
            segments,
            [sentence for sentence in words.sentences if sentence.holds],
            _latest_task(written, shown),
            _reply_lines(words, [*written, *shown]),
            _quotes_of(words),
            receipts,
            [entry for entry in values_of(written) if entry.value not in shown_text],
            [_lines_of(segment.messages) for segment in segments],
        )

    def _lines(self, content: _Content, room: _Room) -> list[str]:
        # What the user said for the conversation has its share, and at the end all free room.
        held = [sentence for sentence in content.held if not sentence.is_named]
        held_tokens = _tokens_with_receipt(content, held, room)
        reserved_tokens = min(held_tokens, int(room.tokens * _HELD_SHARE))
        room.tokens -= reserved_tokens
        said: list[str] = []
        if room.take(["\n".join(content.task)]):
            said += content.task
        replies = room.section(_DONE, content.replies, _REPLIES_SHARE)
        said += [*replies[:1], *reversed(replies[1:])]
        said += room.section(_QUOTES, content.quotes, _QUOTES_SHARE)
        room.take([_DATA])
        # The values that are needed most likely, in one line.
        entries = fill(
            int(room.tokens * _INDEX_SHARE),
            content.entries,
            lambda entry: room.size(f", {entry.value}"),
            whole=lambda fitting: room.size(f"{_VALUES}{index_line(fitting)}"),
        )
        data = room.take([f"{_VALUES}{index_line(entries)}"]) if entries else []
        # The newest parts are named, as the older ones matter less.
        headings = [segment.heading for segment in reversed(content.segments)]
        named = len(room.take(headings))
        room.tokens += reserved_tokens
        said = [*_held_lines(content, held, room), *said]
        data += self._part_lines(content, len(headings) - named, room)
        if not data:
            return said
        return [*said, _DATA, *data]

    def _part_lines(self, content: _Content, first: int, room: _Room) -> list[str]:
        """Return the receipts from a part on, with the lines of the newest messages that fit."""
        lines: list[str] = []
        if first:
            lines.append(f"{first} earlier parts: find them with {self._search_name}")
        newest_first = chain.from_iterable(map(reversed, reversed(content.messages[first:])))
        hidden = sum(map(len, content.messages[first:])) - len(room.take(newest_first))
        for index in range(first, len(content.segments)):
            lines.append(content.segments[index].heading)
            lines += content.messages[index][hidden:]
            hidden = max(hidden - len(content.messages[index]), 0)
        return lines


def _tokens_with_receipt(content: _Content, listed: Sequence[Sentence], room: _Room) -> int:
    lines = [_HELD, *(_held_line(sentence, content.segments) for sentence in listed)]
    receipt = _receipt(content, listed)
    if receipt.paths:
        lines.append(receipt.line(receipt.paths[:1]))
    return sum(map(room.size, lines))


def _held_lines(content: _Content, held: Sequence[Sentence], room: _Room) -> list[str]:
    """Take what the user said for the conversation, oldest first, and where the rest is.

    What changes an earlier sentence comes before all others, so that none is listed without it.
    """
    listed = fill(
        room.tokens,
        sorted(held, key=lambda sentence: not sentence.changes),
        lambda sentence: room.size(_held_line(sentence, content.segments)),
        whole=lambda listed: _tokens_with_receipt(content, listed, room),
    )
    taken = set(map(id, listed))
    lines = [_held_line(sentence, content.segments) for sentence in held if id(sentence) in taken]
    lines = room.section(_HELD, lines)
    receipt = _receipt(content, listed)
    paths = fill(
        room.tokens,
        receipt.paths[:_MAX_RECEIPTS],
        room.size,
        whole=lambda paths: room.size(receipt.line(paths)),
    )
    if paths:
        lines += room.take([receipt.line(paths)])
    return lines


def _receipt(content: _Content, listed: Sequence[Sentence]) -> _Receipt:
    """Return where the other sentences are, and those that earlier notes named."""
    paths: list[str] = []
    unlisted = 0
    texts = {sentence.text for sentence in listed}  # each is listed once
    left_out = [sentence for sentence in content.held if sentence.text not in texts]
    count = len(left_out)
    for match in content.receipts:
        count += int(match[1])
        paths += match[2].split(", ")
        unlisted += int(match[3] or 0)
    positions = {sentence.position for sentence in left_out}
    for segment in content.segments:
        for message in segment.messages:
            if message.position in positions:
                paths.append(f"{segment.pointer_id} /{message.position}")
    return _Receipt(count, paths, unlisted)


def _held_in(lines: Sequence[str]) -> Iterator[str]:
    """Yield what the user said for the conversation by an earlier note."""
    # Only at the beginning, since lines behind it have text of tools and of the model.
    if lines[0] != _HELD:
        return
    for line in lines[1:]:
        match = _SPEAKER.fullmatch(line)
        if match is None:
            return
        yield match[2]


def _held_line(sentence: Sentence, segments: Iterable[Segment]) -> str:
    line = f"{sentence.position} user: {sentence.text}"
    if sentence.frames_paste:
        for segment in segments:
            if any(message.position == sentence.position for message in segment.messages):
                line += f" [a pasted text follows: id {segment.pointer_id} /{sentence.position}]"
    return line


def _latest_task(folded: Sequence[HistoryMessage], shown: Sequence[HistoryMessage]) -> list[str]:
    """Return what the user asked for last, if that is certain and not in view.

    Messages behind the last step are not known here, so the label says how far the note goes.
    """
    for message in reversed([*folded, *shown]):
        if message.role != "user" or not message.text or message.is_note:
            continue
        asks = is_task(message)
        if asks and message in folded:
            text = one_line(message.text, max_chars=_MAX_TASK_CHARS)
            label = _TASK.format(position=shown[-1].position)
            return [label, f"{message.position} user: {text}"]
        if asks is not False:
            break
    return []


def _reply_lines(words: UserWords, messages: Sequence[HistoryMessage]) -> list[str]:
    """Return a line for each consent and refusal with the calls behind it, newest first."""
    calls: dict[int, list[str]] = {}
    names: list[str] = []
    # A question may be folded after the calls behind it.
    for message in sorted(messages, key=lambda message: message.position):
        if message.is_question:
            names = calls.setdefault(message.position, [])
        names += [one_line(call.name, max_chars=_LINE_CHARS) for call in message.calls]
    lines: list[str] = []
    for reply in reversed(words.replies):
        names = [*dict.fromkeys(calls[reply.position])]
        then = f"then called {', '.join(names)}" if names else "no call followed"
        text = one_line(reply.text, max_chars=_MAX_REPLY_CHARS)
        lines.append(f"{reply.position} user: {text} ({then})")
    return lines


def _quotes_of(words: UserWords) -> list[str]:
    """Return a line for other sentences of the user, those that bind most first."""
    lines: list[str] = []
    for sentence in words.sentences:
        is_brief = len(sentence.text) <= _MAX_QUOTE_CHARS
        if is_brief and sentence.scope == "unplaced" and sentence.points >= _MIN_QUOTE_POINTS:
            lines.append(f"{sentence.position} user: {sentence.text}")
    return lines


def _lines_of(messages: Sequence[HistoryMessage]) -> list[str]:
    """Return a line for each message but notes: its text, its calls, the size of its outputs."""
    lines: list[str] = []
    for message in messages:
        if message.is_note:
            continue
        parts = [one_line(message.text, max_chars=_LINE_CHARS)]
        calls = [f"calls {one_line(call.name, max_chars=_LINE_CHARS)}" for call in message.calls]
        parts.append(", ".join(calls))
        if message.outputs:
            chars = sum(len(output.text) for output in message.outputs)
            parts.append(f"{chars:,} characters of output")
        parts += [f"{media}, not shown" for media in message.media]
        lines.append(f"{message.position} {message.role}: {'; '.join(filter(None, parts))}")
    return lines
