"""What stays of folded messages without a model, as sentences of their own words.

A sentence of the user counts more than one of the model, one that decides or asks more than one
that tells, and one with a number, a path or a name in code more than one without. The weights were
not tuned: they order these kinds.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from llm_common.history.message_shapes import HistoryMessage
from llm_common.text.display import one_line

_MAX_SENTENCE_CHARS: Final = 200
_READ_CHARS: Final = 4_000  # of a message, from its beginning: a paste is read back, not summed up
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_DECISION = re.compile(
    r"\b(?:decid|agree|chose|choose|must|never|always|prefer|instead|want|need|please|remember"
    r"|don't|do not|will use"
    r"|switch|rename|call (?:me|it)|my name|i am|i'm|we use|deadline|budget|because)",
    re.IGNORECASE,
)
# A path, a file, an address, snake_case, code, camelCase or an ABBREVIATION; two characters of one
# tell as much as all.
_NAME = re.compile(
    r"https?://|[\w-]/[\w.-]|\w\.\w{1,5}\b|\w_\w|`[^`]+`|[a-z][A-Z]\w|\b[A-Z][A-Z0-9-]{2,}"
)
_NUMBER = re.compile(r"\d")
NOTE_BEGIN: Final = "Earlier messages are folded away: "
"""How the message begins that tells what was folded."""
_NOTE = re.compile(rf"{NOTE_BEGIN}[^\n]*\n<<<(\w+)\n(.*)\n\1>>>", re.DOTALL)
_PLACE = re.compile(r"\d+ (\w+): ")
_OF_USER: Final = 2
_WEIGHTS: Final = ((_DECISION, 3), (_NAME, 2), (_NUMBER, 2))


class Sentence(NamedTuple):
    """A sentence of a message, and how much it counts."""

    number: int
    speaker: str
    text: str
    weight: int

    @property
    def line(self) -> str:
        """The sentence with its place."""
        return f"{self.number} {self.speaker}: {self.text}"


def sentences_of(messages: Iterable[HistoryMessage]) -> list[Sentence]:
    """Return the sentences that tell more than that something was said, best first, each once."""
    newest: dict[str, Sentence] = {}
    for message in messages:
        for sentence in _sentences(message):
            newest[sentence.text.casefold()] = sentence
    return sorted(
        newest.values(), key=lambda sentence: (-sentence.weight, sentence.number, sentence.text)
    )


def _sentences(message: HistoryMessage) -> Iterator[Sentence]:
    note = _NOTE.fullmatch(message.text)  # of a history that was folded before
    text = note[2] if note else message.text
    for line in text[:_READ_CHARS].split("\n"):
        speaker, content = message.role, line
        place = _PLACE.match(line) if note else None
        if place:
            speaker, content = place[1], line[place.end() :]
        for part in _SENTENCE_END.split(content):
            weight = _OF_USER if speaker == "user" else 0
            for pattern, of_pattern in _WEIGHTS:
                if pattern.search(part):
                    weight += of_pattern
            if part.strip() and weight:
                sentence = one_line(part, max_chars=_MAX_SENTENCE_CHARS)
                yield Sentence(message.number, speaker, sentence, weight)
