"""Lists the values of folded messages that the next call may need: ids, names, dates, paths.

A value counts by its form, since ids and dates are needed more than words, and by its use: in the
arguments of calls, in texts of the user or the assistant, and in the newest outputs.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from llm_common.history.message_shapes import HistoryMessage
from llm_common.text.display import one_line

_READ_CHARS: Final = 100_000  # of an output
_MAX_OF_OUTPUT: Final = 400
_MAX_DEPTH: Final = 100  # levels of nesting: real data have some ten
_MAX_OUTPUTS: Final = 100  # the newest: what an older one alone has is rarely needed
_MIN_CHARS: Final = 3
_MAX_CHARS: Final = 80
_MAX_WORDS: Final = 5
_KEY_CHARS: Final = 40
# Weights of uses, set once by the order in the docstring. On the airline's runs none is sharp.
_OF_CALL: Final = 3
_OF_TEXT: Final = 1
_OF_OUTPUT: Final = 2
# An address, a path, a date, an id with digits or an underscore, or a number. It is searched in
# single words that have another sign than letters. A form that is not found from the beginning of
# a run of its characters is not searched within it, so that a word of any length takes linear time.
_VALUE = re.compile(
    r"https?://[^\"'<>)\]]+"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+\.[\w.-]*\w"
    r"|(?<![\w.~/-])(?:[\w.~-]*/)+[\w.-]*\w"
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


@dataclass(slots=True)
class _Use:
    """Where a value was used."""

    key: str = ""
    in_call: bool = False
    in_text: bool = False
    in_output: bool = False


def values_of(messages: Sequence[HistoryMessage]) -> list[Entry]:
    """Return the values of messages, those that are needed most likely first."""
    uses: defaultdict[str, _Use] = defaultdict(_Use)
    age = sum(len(message.outputs) for message in messages)
    for message in messages:
        for output in message.outputs:
            age -= 1
            if age >= _MAX_OUTPUTS:
                continue
            for key, value in entries_of_output(output.text):
                uses[value].key = uses[value].key or key
                uses[value].in_output = True
        for call in message.calls:
            for key, value in dict.fromkeys(_fields(call.arguments, "", [_MAX_OF_OUTPUT])):
                uses[value].key = key
                uses[value].in_call = True
        # A text of the user or the assistant.
        for value in values_in_text(message.text[:_READ_CHARS]):
            uses[value].in_text = True
    scores = {value: _score(value, use) for value, use in uses.items()}
    best_first = sorted(scores, key=lambda value: -scores[value])
    return [Entry(uses[value].key, value) for value in best_first if scores[value] > 0]


def _score(value: str, use: _Use) -> float:
    score = _form_points(value) + _OF_CALL * use.in_call
    return score + _OF_TEXT * use.in_text + _OF_OUTPUT * use.in_output


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
        if _MIN_CHARS <= len(text) <= _MAX_CHARS and text.count(" ") < _MAX_WORDS:
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
