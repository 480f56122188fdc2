"""The summary of an episode: a session's newest events in a few lines, without a model unless one is given."""

import re
from collections.abc import Sequence

from llm_common.memory.protocol import Event, Summariser
from llm_common.text.fence import one_line

__all__ = ["MAX_SUMMARY_CHARS", "SUMMARISED_EVENTS", "episode_summary", "summarised"]

SUMMARISED_EVENTS = 20
"""How many of the newest events a summary is made of."""

MAX_SUMMARY_CHARS = 1_200
"""Longest text of `episode_summary`."""

_MAX_LINE_CHARS = 160
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")  # noqa: RUF001 - the marks of Chinese and Japanese


async def summarised(events: Sequence[Event], summariser: Summariser | None) -> str | None:
    """The caller's summary of the events, or `episode_summary`; None without events, and for a blank summary."""
    if not events:
        return None
    if summariser is None:
        return episode_summary(events)
    return ((await summariser(events)) or "").strip() or None


def episode_summary(events: Sequence[Event]) -> str | None:
    """Role and first sentence of each event, one a line, oldest first; the same events give the same text.

    A line takes at most 160 characters, the whole at most 1,200: the newest lines that fit. None when no event has
    words.
    """
    lines: list[str] = []
    room = MAX_SUMMARY_CHARS
    for event in reversed(events):
        sentence = one_line(_first_sentence(event.text), max_chars=_MAX_LINE_CHARS - len(event.role) - 2)
        line = f"{event.role}: {sentence}"
        if len(line) + 1 > room:
            break
        if sentence:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(reversed(lines)) or None


def _first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text[: 4 * _MAX_LINE_CHARS].strip(), maxsplit=1)[0]
