"""`losses`: what the user said, and what later calls needed, that a compaction left out.

What the user said for the conversation is read as `fold` reads it. It is kept if it is in the
prompt word for word, or if one paragraph has most of its words, as a summary in other words does.
A value counts if a later call has it as an argument.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from llm_common.history.binding import is_frame, user_words
from llm_common.history.fold_note import entries_of_output, values_in_text
from llm_common.history.message_shapes import HistoryMessage, text_of
from llm_common.ranking.lexical import search_stems
from llm_common.text.canonical import stable_json
from llm_common.text.sentences import sentences_in

# A short value is elsewhere by chance, a word such as "in_progress" is one of a tool's choices, a
# time limit is a round number, and every shell has a null.
_COMMON = re.compile(r".{1,3}|[^\W\d]+|.* .*|\d+000|/dev/null", re.DOTALL)
_READ_LINES: Final = 3  # of an argument: the rest of a longer one is written, as a file is
_KEPT_SHARE: Final = 0.7  # of the words of a sentence, in one paragraph
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*•#]|\d+[.)])\s)")


@dataclass(frozen=True, slots=True)
class Losses:
    """What a compaction left out.

    Attributes:
        said: What the user said for the conversation, word for word, oldest first.
        said_before: How many such sentences the prompt had before.
        values: The values that later calls have as arguments and the compacted prompt has not, in
            the order of the calls.
        needed: How many values of the earlier prompt later calls have.
    """

    said: Sequence[str]
    said_before: int
    values: Sequence[str]
    needed: int


def losses(
    before: Sequence[HistoryMessage],
    after: Sequence[HistoryMessage],
    later: Sequence[HistoryMessage],
) -> Losses:
    """Return what a compaction left out of a prompt.

    Args:
        before: The prompt before the compaction.
        after: The first prompt after it.
        later: The messages that followed. Their calls tell which values were needed.
    """
    kept_text = text_of(after)
    kept_words = _plain(kept_text)
    paragraphs = [set(search_stems(text)) for text in _PARAGRAPH_END.split(kept_text)]
    held: list[str] = []
    for sentence in user_words(before).sentences:
        if sentence.holds:  # those of one line are one sentence there, and may be kept in part
            held += [text for text in sentences_in(sentence.text) if not is_frame(text)]
    said = []
    for text in held:
        if _plain(text) not in kept_words and not _is_reworded(text, paragraphs):
            said.append(text)
    needed = values_needed(later, text_of(before))
    values = [value for value in needed if not contains_value(kept_text, value)]
    return Losses(said, len(held), values, len(needed))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _is_reworded(sentence: str, paragraphs: Sequence[set[str]]) -> bool:
    """Return whether one paragraph has most of the words of a sentence."""
    stems = set(search_stems(sentence))
    return any(len(stems & words) >= _KEPT_SHARE * len(stems) for words in paragraphs if stems)


def values_needed(messages: Sequence[HistoryMessage], text: str) -> list[str]:
    """Return the values of a text that calls have in their arguments: ids, paths, numbers.

    Plain words and round numbers do not count, since most are choices of the model or are in code.
    """
    values: dict[str, None] = {}
    for message in messages:
        for call in message.calls:
            args = call.arguments or {"input": call.args}
            values |= dict.fromkeys(entry.value for entry in entries_of_output(stable_json(args)))
            for argument in args.values():
                for part in argument if isinstance(argument, list) else [argument]:
                    if isinstance(part, str):  # a command or a query is one longer text
                        begin = "\n".join(part.splitlines()[:_READ_LINES])
                        values |= dict.fromkeys(values_in_text(begin))
    needed = []
    for value in values:
        if not _COMMON.fullmatch(value) and contains_value(text, value):
            needed.append(value)
    return needed


def contains_value(text: str, value: str) -> bool:
    """Return whether a text has a value, and not only as a part of a longer one."""
    # A pattern that begins with a look back is searched a hundred times slower than a text.
    hits = re.finditer(re.escape(value), text) if value in text else ()
    pattern = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
    return any(pattern.match(text, hit.start()) for hit in hits)
