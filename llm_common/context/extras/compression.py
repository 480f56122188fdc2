"""`compress_turns`: replaces groups of old turns by summary turns."""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

from llm_common.context.request import TurnEntry
from llm_common.core.tokens import DefaultCounter, TokenCounter, count_tokens
from llm_common.errors import ToolFailedError
from llm_common.tools.tool import third_party_code

_log = logging.getLogger(__name__)

SUMMARY_ROLE: Final = "summary"
"""Role of a turn that summarises others."""

COMPRESSED_IDS: Final = "compressed_ids"
"""Metadata key of a summary turn: ids of the turns that it replaces, oldest first."""

Summarise = Callable[[Sequence[TurnEntry]], Awaitable[str | None]]
"""Summarises the turns, which come oldest first; called for one group at a time."""


async def compress_turns(
    turns: Iterable[TurnEntry],
    summarise: Summarise,
    *,
    keep_newest: int = 10,
    group_tokens: int = 2_000,
    target_tokens: int = 400,
    counter: TokenCounter | None = None,
) -> tuple[TurnEntry, ...]:
    """Summaries of groups of old turns, then the other turns, both oldest first.

    The oldest turns form a group as soon as they hold `group_tokens`; the rest, and the newest
    turns, stay word for word. A summary is made once, and nothing before the last group changes
    while turns arrive: a prompt that begins with the summaries stays in the provider's cache until
    the next group is full.

    Pass the result and the later turns to the next call, or all turns and the summaries. A turn
    that has a summary is left out, a summary is never compressed again, and without a new group the
    summariser is not called.

    Args:
        turns: The conversation, in any order.
        summarise: Summarises a group. Its errors and its results are not trusted; it must have its
            own timeout.
        keep_newest: How many of the newest turns stay; an answer usually refers to the last ten.
        group_tokens: Tokens at which a group is full; the default is five times `target_tokens`.
        target_tokens: Most tokens that a summary may take.
        counter: Counts the contents; None takes `DefaultCounter`.

    Returns:
        The turns. If the summariser raises, or returns no text or more than `target_tokens`, this
        is logged; the turns of that group and the later ones stay, and the next call tries again.

    Raises:
        ValueError: `keep_newest` is negative, or not `0 < target_tokens < group_tokens`.
        TypeError: The counter returned no whole number.
    """
    if keep_newest < 0 or not 0 < target_tokens < group_tokens:
        raise ValueError(
            "keep_newest must be 0 or more, and target_tokens between 0 and group_tokens"
        )
    counter = counter or DefaultCounter()
    ordered = sorted(turns, key=_moment)
    summaries = [turn for turn in ordered if _summarised_ids(turn)]
    replaced = {turn_id for summary in summaries for turn_id in _summarised_ids(summary)}
    plain = [turn for turn in ordered if not _summarised_ids(turn) and turn.id not in replaced]
    done = 0
    for group in _full_groups(plain[: max(0, len(plain) - keep_newest)], counter, group_tokens):
        text = await _summary(group, summarise)
        tokens = count_tokens(counter, text)
        if not 0 < tokens <= target_tokens:
            _log.warning(
                "turns stay uncompressed: their summary has %d tokens, 1 to %d fit",
                tokens,
                target_tokens,
            )
            break
        summaries.append(_summary_turn(group, text, tokens))
        done += len(group)
    return (*summaries, *plain[done:])


def _full_groups(
    turns: Iterable[TurnEntry], counter: TokenCounter, group_tokens: int
) -> Iterator[list[TurnEntry]]:
    """The full groups, from the oldest turn on."""
    group: list[TurnEntry] = []
    tokens = 0
    for turn in turns:
        group.append(turn)
        tokens += count_tokens(counter, turn.content)
        if tokens >= group_tokens:
            yield group
            group, tokens = [], 0


async def _summary(group: Sequence[TurnEntry], summarise: Summarise) -> str:
    """The summary; empty when the summariser fails or returns no text."""
    try:
        with third_party_code("the summariser"):
            answer: object = await summarise(tuple(group))
    except ToolFailedError as exc:
        _log.warning("a summariser failed: %s", type(exc.__cause__).__name__)
        return ""
    return answer.strip() if isinstance(answer, str) else ""


def _summary_turn(group: Sequence[TurnEntry], text: str, tokens: int) -> TurnEntry:
    ids = [turn.id for turn in group]
    digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
    return TurnEntry(
        id=f"summary-{digest[:16]}",
        timestamp=group[-1].timestamp,
        role=SUMMARY_ROLE,
        content=text,
        tokens=tokens,
        metadata={COMPRESSED_IDS: ids},
    )


def _summarised_ids(turn: TurnEntry) -> Sequence[str]:
    """The ids of the turns that this one summarises; none for other turns."""
    ids = turn.metadata.get(COMPRESSED_IDS) if turn.role == SUMMARY_ROLE else None
    return ids if isinstance(ids, list | tuple) else ()


def _moment(turn: TurnEntry) -> tuple[object, str]:
    return turn.timestamp, turn.id
