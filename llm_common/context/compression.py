"""Replace groups of old turns by summaries."""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final

from llm_common._threads import in_thread
from llm_common.context.request import TurnEntry
from llm_common.core.tokens import DefaultCounter, TokenCounter, count_tokens
from llm_common.errors import ToolFailedError
from llm_common.tools.tool import third_party_code

_log = logging.getLogger(__name__)

SUMMARY_ROLE: Final = "summary"
"""Role of a turn that is a summary."""

COMPRESSED_IDS: Final = "compressed_ids"
"""Metadata key of a summary: the ids of the turns that it replaces, oldest first."""

Summarise = Callable[[Sequence[TurnEntry]], Awaitable[str | None]]
"""Summarises a group of turns, oldest first. Called for one group at a time."""


async def compress_turns(
    turns: Iterable[TurnEntry],
    summarise: Summarise,
    *,
    keep_newest: int = 10,
    group_tokens: int = 2_000,
    target_tokens: int = 400,
    counter: TokenCounter | None = None,
) -> tuple[TurnEntry, ...]:
    """Replace groups of old turns by summaries.

    The oldest turns form a group as soon as they have `group_tokens` tokens. All later turns stay
    word for word. Each summary is written once, and does not change when turns are added. So a
    prompt that begins with the summaries stays in the provider's cache until the next group is
    full.

    Pass the result and the later turns to the next call, or all turns and the summaries. A turn
    with a summary is omitted, and a summary is never compressed again. Without a new group the
    summariser is not called.

    Args:
        turns: The conversation, in any order.
        summarise: Summarises a group. Its errors are caught and its results checked, but it must
            have its own timeout.
        keep_newest: Number of newest turns to keep. An answer usually refers to the last ten.
        group_tokens: Tokens of a full group. The default is five times `target_tokens`.
        target_tokens: Maximum number of tokens of a summary.
        counter: Counts the contents. None uses `DefaultCounter`.

    Returns:
        The summaries, then the other turns, both oldest first. If the summariser raises, returns no
        text or exceeds `target_tokens`, a warning is logged. The turns of that group and all later
        ones then stay, and the next call tries again.

    Raises:
        ValueError: If `keep_newest` is negative, or unless `0 < target_tokens < group_tokens`.
        TypeError: If the counter returns no whole number.
    """
    if keep_newest < 0 or not 0 < target_tokens < group_tokens:
        raise ValueError(
            "keep_newest must be 0 or more, and target_tokens between 0 and group_tokens"
        )
    counter = counter or DefaultCounter()
    summaries: list[TurnEntry] = []
    plain: list[TurnEntry] = []
    replaced: set[str] = set()
    for turn in sorted(turns, key=attrgetter("timestamp", "id")):
        ids = turn.metadata.get(COMPRESSED_IDS)
        # The metadata is the application's, so it may contain anything under this key.
        if turn.role == SUMMARY_ROLE and isinstance(ids, list | tuple) and ids:
            summaries.append(turn)
            replaced.update(ids)
        else:
            plain.append(turn)
    plain = [turn for turn in plain if turn.id not in replaced]
    compressed = 0
    # Counted from the start, since `[:-keep_newest]` would be empty for 0.
    older = plain[: max(0, len(plain) - keep_newest)]
    # In threads, because counting megabytes takes a second.
    for group in await in_thread(_full_groups, older, counter, group_tokens):
        text = await _summary(group, summarise)
        tokens = await in_thread(count_tokens, counter, text)
        if not 0 < tokens <= target_tokens:
            _log.warning(
                "turns stay uncompressed: their summary has %d tokens, 1 to %d fit",
                tokens,
                target_tokens,
            )
            break  # a later summary would come before the turns of this group
        summaries.append(_summary_turn(group, text, tokens))
        compressed += len(group)
    return (*summaries, *plain[compressed:])


def _full_groups(
    turns: Iterable[TurnEntry], counter: TokenCounter, group_tokens: int
) -> list[list[TurnEntry]]:
    """Return the full groups, starting with the oldest turn."""
    groups: list[list[TurnEntry]] = []
    group: list[TurnEntry] = []
    tokens = 0
    for turn in turns:
        group.append(turn)
        tokens += count_tokens(counter, turn.content)
        if tokens >= group_tokens:
            groups.append(group)
            group, tokens = [], 0
    return groups


async def _summary(group: Sequence[TurnEntry], summarise: Summarise) -> str:
    """Summarise a group. Return "" if the summariser fails or returns no text."""
    try:
        with third_party_code("the summariser"):
            summary: object = await summarise(tuple(group))  # a copy, which it cannot change
    except ToolFailedError as exc:
        _log.warning("a summariser failed: %s", type(exc.__cause__).__name__)
        return ""
    return summary.strip() if isinstance(summary, str) else ""


def _summary_turn(group: Sequence[TurnEntry], text: str, tokens: int) -> TurnEntry:
    ids = [turn.id for turn in group]
    digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
    return TurnEntry(
        # The same turns give the same id.
        id=f"summary-{digest[:16]}",
        # Sorted by time, the summary then comes before all later turns.
        timestamp=group[-1].timestamp,
        role=SUMMARY_ROLE,
        content=text,
        tokens=tokens,
        metadata={COMPRESSED_IDS: ids},
    )
