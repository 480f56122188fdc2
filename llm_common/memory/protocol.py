"""Defines the protocols of a memory, which stores the events of sessions and searches them.

`MemoryWriter`, `MemoryReader` and `Memory` are the minimum. `FactMemory` adds facts that change,
users and erasure. Every memory of this package is a `FactMemory`. A class that inherits from them
has `async with` and summaries of its newest events.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Annotated, Protocol, Self, runtime_checkable

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from llm_common.core.models import MessageRole
from llm_common.text.display import one_line, printable


def _storable(text: str) -> str:
    """Return the text without NUL and lone surrogates."""
    # PostgreSQL rejects NUL in a text, and UTF-8 cannot express a lone surrogate.
    return printable(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def in_utc(moment: datetime) -> datetime:
    """Return a moment in UTC. A moment without a time zone is in UTC already.

    Raises:
        ValueError: If UTC cannot express it.
    """
    if moment.tzinfo is None:  # not local time, so that it means the same on every machine
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError(
            f"UTC cannot express {moment}; use a time between the years 1 and 9999"
        ) from exc


Text = Annotated[str, AfterValidator(_storable)]
Scalar = Text | bool | int | FiniteFloat | None


class Event(BaseModel):
    r"""A message or an action in a session.

    In texts NUL becomes U+FFFD, and a lone surrogate its `\udXXX` escape, so that every store
    accepts them.

    Attributes:
        role: The speaker or actor.
        text: The text, of any length. `retrieve` searches the first 16,000 characters.
        timestamp: The time, in UTC if it has no time zone. It does not order a session: events
            have the order in which they were appended.
        metadata: Values to filter by, without nesting.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: MessageRole = MessageRole.USER
    text: Text
    timestamp: Annotated[datetime, AfterValidator(in_utc)] = Field(
        default_factory=lambda: datetime.now(UTC)
    )
    metadata: dict[Text, Scalar] = Field(default_factory=dict)


class MemoryFilters(BaseModel):
    """The events that a search may return: those of one session that match every other field.

    Attributes:
        session_id: The session.
        role: Searches the events of this role only. None searches all.
        metadata: An event must have each of these keys with an equal value. `1`, `1.0`, `True` and
            `"1"` all differ.
        user: The user of the session. None for a session without a user. Two users may use the
            same session id.
        all_sessions: Searches the user's other sessions too. Needs a user.
        key: Searches the facts under this key only. None searches all events.
        history: Searches superseded and expired events too. They come last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    role: MessageRole | None = None
    metadata: dict[Text, Scalar] = Field(default_factory=dict)
    user: str | None = None
    all_sessions: bool = False
    key: str | None = None
    history: bool = False


class MemoryHit(BaseModel):
    """An event that matches a search.

    Attributes:
        session_id: The session of the event.
        event: The event.
        score: How well it matches. Only scores of one search can be compared. Higher is better.
        id: The id for `forget` and `supersedes`. "" from a memory without ids.
        key: The key of a fact. None for any other event.
        current: False for a superseded or expired event, which only a search with `history`
            returns.
    """

    model_config = ConfigDict(frozen=True)

    session_id: str
    event: Event
    score: float
    id: str = ""
    key: str | None = None
    current: bool = True


@runtime_checkable
class MemoryWriter(Protocol):
    """Stores events. `ContextBuilder` asks it for summaries."""

    async def append_event(self, session_id: str, event: Event) -> str | None:
        """Store the event as the newest of its session. Every reader sees it after the return.

        Returns:
            The id of the event. None from a memory without ids.

        Raises:
            InvalidIdError: If the session id is blank, over 200 characters or not printable.
            TypeError: If the event is not an `Event`.
            StoreError: If it could not be stored.
        """

    async def summarize_episode(self, session_id: str) -> str | None:
        """Summarize the newest events. Returns None for a session without events.

        Raises:
            InvalidIdError: As for `append_event`.
            StoreError: If the events could not be read.
        """


@runtime_checkable
class MemoryReader(Protocol):
    """Searches events."""

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """Return the events of the filters' session that match the query, best first.

        Args:
            query: Any text. There is no query syntax. A blank query matches no event.
            k: Maximum number of hits. 0 or less returns none.
            filters: The events that may be returned.

        Returns:
            At most `k` hits.

        Raises:
            InvalidIdError: As for `MemoryWriter.append_event`.
            TypeError: If the query is not a str, `k` not an int, or the filters not
                `MemoryFilters`.
            StoreError: If the events could not be read.
        """


@runtime_checkable
class Memory(MemoryWriter, MemoryReader, Protocol):
    """Writes and reads the same events. An `async with` block closes it at the end."""

    async def recent(self, session_id: str, *, limit: int = 20) -> list[Event]:
        """Return the newest events of a session, oldest first, to resume a conversation from.

        Raises:
            InvalidIdError: As for `append_event`.
            TypeError: If the limit is not an int.
            StoreError: If the events could not be read.
        """

    async def aclose(self) -> None:
        """Close files and connections. Safe to call twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


@runtime_checkable
class FactMemory(Memory, Protocol):
    """A memory of many users, with facts that change and with erasure.

    A session belongs to one user or to none. The session `s` of one user, `s` of another user and
    `s` without a user are three sessions. An event is current until another event supersedes it or
    `valid_until` passes. `recent`, `retrieve` and summaries show current events, and history only
    on request.

    A search that matches a superseded event returns the newest event of the fact: a query that
    matches "I live in Oslo" returns "It is Rome now". A search by role or metadata matches the
    words of an event alone.
    """

    async def append_event(
        self,
        session_id: str,
        event: Event,
        *,
        user: str | None = None,
        key: str | None = None,
        supersedes: str | None = None,
        valid_until: datetime | None = None,
    ) -> str:
        """Store the event as the newest of its session. Every reader sees it after the return.

        An echo is not stored again. It has the role, text, metadata, key and `valid_until` of one
        of the session's newest 8 events. Neither the user nor the assistant has spoken in between,
        so the same question is stored again after an answer. A superseded or expired event has no
        echo, and an event with `supersedes` never is one.

        Args:
            session_id: The session. Its first event creates it.
            event: The event to store.
            user: The user of the session. None for a session without a user.
            key: The subject of a fact, such as `"address"`. The event supersedes the current event
                under the key, in all sessions of the user, or in the session if there is no user.
            supersedes: The id of an event that this one supersedes, together with the events that
                have superseded it. It belongs to the same user, or to the same session if there
                is no user.
            valid_until: When the event stops being current, in UTC if it has no time zone.

        Returns:
            The id of the event, which is never used again. For an echo, the id of the stored event.

        Raises:
            InvalidIdError: If a session id, user or key is blank, over 200 characters or not
                printable, or `supersedes` is not the id of such an event. No event was stored.
            TypeError: If the event is not an `Event`, `supersedes` not a str, or `valid_until` not
                a datetime.
            ValueError: If UTC cannot express `valid_until`.
            StoreError: If it could not be stored.
        """

    async def recent(
        self, session_id: str, *, limit: int = 20, user: str | None = None, history: bool = False
    ) -> list[Event]:
        """Return the newest current events of a session, oldest first.

        With `history`, superseded and expired events too.

        Raises:
            InvalidIdError, TypeError, StoreError: As for `Memory.recent`.
        """

    async def summarize_episode(self, session_id: str, *, user: str | None = None) -> str | None:
        """Summarize the newest current events. Returns None for a session without any.

        Raises:
            InvalidIdError, StoreError: As for `append_event`.
        """
        return episode_summary(await self.recent(session_id, limit=SUMMARISED_EVENTS, user=user))

    async def forget(
        self,
        *,
        session_id: str | None = None,
        user: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Erase the events that match every argument. After the return their bytes are gone.

        With `user` alone, erases all events of the user. `session_id` without `user` is a session
        that has no user. Events that an erased event superseded stay history.

        Returns:
            The number of events erased.

        Raises:
            InvalidIdError: As for `append_event`.
            TypeError: If there is no argument, or the id is not a str.
            StoreError: If the events could not be erased, or their bytes could not. Another call
                erases the bytes, even if no event matches any more.
        """


# Lines of at most 160 characters: about seven long or twenty short ones fit into a summary.
SUMMARISED_EVENTS = 20
"""The number of newest events in a summary."""

MAX_SUMMARY_CHARS = 1_200
"""Maximum length of `episode_summary`."""

_MAX_LINE_CHARS = 160
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")  # noqa: RUF001 - the marks of Chinese and Japanese


def episode_summary(events: Sequence[Event]) -> str | None:
    """Return the role and first sentence of each event, a line each, oldest first.

    A line has at most 160 characters, and the summary at most 1,200: the newest lines that fit.
    None if no event has words. Deterministic.
    """
    lines: list[str] = []
    remaining_chars = MAX_SUMMARY_CHARS
    for event in reversed(events):  # newest first: the oldest lines are left out
        # More than a line, since `one_line` may shorten it: runs of spaces become one.
        beginning = event.text[: 4 * _MAX_LINE_CHARS].strip()
        sentence = _SENTENCE_END.split(beginning, maxsplit=1)[0]
        sentence = one_line(sentence, max_chars=_MAX_LINE_CHARS - len(event.role) - 2)
        line = f"{event.role}: {sentence}"
        if len(line) + 1 > remaining_chars:
            break
        if sentence:
            lines.append(line)
            remaining_chars -= len(line) + 1
    return "\n".join(reversed(lines)) or None
