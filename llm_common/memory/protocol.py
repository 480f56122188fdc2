"""The protocols of a memory, which keeps events in sessions and finds them again.

`MemoryWriter`, `MemoryReader` and `Memory` are the least that a memory does. `FactMemory` adds
facts that change, users and erasure; every memory of this package is one.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Annotated, Protocol, Self, runtime_checkable

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from llm_common.core.models import MessageRole
from llm_common.text.display import one_line, printable


def _storable(text: str) -> str:
    """The text without NUL and lone surrogates, which not every store can hold."""
    return printable(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def in_utc(moment: datetime) -> datetime:
    """The moment in UTC; one without a zone is taken for UTC.

    Raises:
        ValueError: UTC cannot express it.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError(
            "a time that UTC cannot express; use one between the years 1 and 9999"
        ) from exc


Text = Annotated[str, AfterValidator(_storable)]
Scalar = Text | bool | int | FiniteFloat | None


class Event(BaseModel):
    r"""One thing that was said or done in a session.

    Texts are made storable at once: NUL becomes U+FFFD, a lone surrogate its `\udXXX` escape.

    Attributes:
        role: Who spoke or acted.
        text: What was said, of any length; `retrieve` searches the first 16,000 characters.
        timestamp: When; a time without a zone is UTC. It does not order a session: events are in
            the order in which they were appended.
        metadata: Facts to filter by, flat.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: MessageRole = MessageRole.USER
    text: Text
    timestamp: Annotated[datetime, AfterValidator(in_utc)] = Field(
        default_factory=lambda: datetime.now(UTC)
    )
    metadata: dict[Text, Scalar] = Field(default_factory=dict)


class MemoryFilters(BaseModel):
    """Which events may be found: those of one session that agree with every other field.

    Attributes:
        session_id: The session.
        role: Only what this role said; None for all.
        metadata: An event must have each of these keys with an equal value; `1`, `1.0`, `True` and
            `"1"` all differ.
        user: Whose session it is; None for a session without a user. Sessions of two users never
            meet, whatever their ids.
        all_sessions: Whether the user's other sessions are searched too; needs a user.
        key: Only facts under this key; None for all.
        history: Whether superseded and expired events are found too. They come after the others.
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
    """An event that was found.

    Attributes:
        session_id: The session that it was said in.
        event: The event.
        score: How well it matches; higher is better within one answer.
        id: What `forget` and `supersedes` take; "" from a memory without ids.
        key: The key of a fact; None for any other event.
        current: False for a superseded or expired event, which only a search of the history finds.
    """

    model_config = ConfigDict(frozen=True)

    session_id: str
    event: Event
    score: float
    id: str = ""
    key: str | None = None
    current: bool = True


Summariser = Callable[[Sequence[Event]], Awaitable[str | None]]
"""Summarises a session's newest events, oldest first; blank or None is none."""


@runtime_checkable
class MemoryWriter(Protocol):
    """Something that keeps events; `ContextBuilder` asks it for summaries."""

    async def append_event(self, session_id: str, event: Event) -> str | None:
        """Keeps the event as the newest of its session; after the return every reader can find it.

        Returns:
            The id of the event; None from a memory without ids.

        Raises:
            InvalidIdError: The session id is blank, over 200 characters or not printable.
            TypeError: The event is no `Event`.
            StoreError: It could not be kept.
        """

    async def summarize_episode(self, session_id: str) -> str | None:
        """A summary of the newest events; None for a session without events.

        Raises:
            InvalidIdError: As for `append_event`.
            StoreError: The events could not be read.
        """


@runtime_checkable
class MemoryReader(Protocol):
    """Something that finds events again."""

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """At most `k` events of the filters' session that match the query, best first.

        Args:
            query: Any text; there is no query syntax. A blank one finds nothing.
            k: Most hits; 0 or less finds nothing.
            filters: Which events may be found.

        Raises:
            InvalidIdError: As for `MemoryWriter.append_event`.
            TypeError: The query is no text, `k` no int, or the filters no `MemoryFilters`.
            StoreError: The events could not be read.
        """


@runtime_checkable
class Memory(MemoryWriter, MemoryReader, Protocol):
    """A writer and reader over the same events; an `async with` block closes it at the end."""

    async def recent(self, session_id: str, *, limit: int = 20) -> list[Event]:
        """The newest events of a session, oldest first, to resume a conversation from.

        Raises:
            InvalidIdError: As for `append_event`.
            TypeError: The limit is no int.
            StoreError: The events could not be read.
        """

    async def aclose(self) -> None:
        """Closes files and connections; safe to call twice."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@runtime_checkable
class FactMemory(Memory, Protocol):
    """A memory of facts that change, for many users, which can forget.

    A session belongs to one user, or to none: the session `s` of one user, that of another, and `s`
    without a user are three sessions. An event is current until another supersedes it or
    `valid_until` passes. `recent`, `retrieve` and summaries show what is current; the rest is
    history, which is shown when asked for.

    Words of a superseded event find the newest event of the fact: what finds "I live in Oslo" finds
    "It is Rome now" in its place. A search by role or metadata goes by an event's own words alone.
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
        """Keeps the event as the newest of its session; after the return every reader can find it.

        An echo is not kept again. It has the role, text, metadata, key and `valid_until` of one of
        the newest 8 events of the session, and since then no other role of `user` and `assistant`
        spoke. So the same question counts anew after an answer. A superseded or expired event has
        no echo; an event with `supersedes` is none.

        Args:
            session_id: The session, which begins with its first event.
            event: What to keep.
            user: Whose session it is; None for a session without a user.
            key: What the event is a fact about, such as `"address"`. The event supersedes the one
                that was current under the key, in all sessions of the user, or in the session if
                there is no user.
            supersedes: The id of an event that this one supersedes, together with what has
                superseded that one. It is of the same user, or of the same session if there is no
                user.
            valid_until: When the event stops being current; a time without a zone is UTC.

        Returns:
            The id of the event, never used again; of an echo the id of the event that was kept.

        Raises:
            InvalidIdError: A session id, user or key is blank, over 200 characters or not
                printable, or `supersedes` is no id of such an event. Nothing was kept.
            TypeError: The event is no `Event`, `supersedes` no text, or `valid_until` no datetime.
            ValueError: UTC cannot express `valid_until`.
            StoreError: It could not be kept.
        """

    async def recent(
        self, session_id: str, *, limit: int = 20, user: str | None = None, history: bool = False
    ) -> list[Event]:
        """The newest current events of a session, oldest first.

        With `history` superseded and expired ones too.

        Raises:
            InvalidIdError, TypeError, StoreError: As for `Memory.recent`.
        """

    async def summarize_episode(self, session_id: str, *, user: str | None = None) -> str | None:
        """A summary of the newest current events; None for a session without any.

        Raises:
            InvalidIdError, StoreError: As for `append_event`.
        """

    async def forget(
        self,
        *,
        session_id: str | None = None,
        user: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Erases for good the events that agree with every argument.

        After the return their bytes are gone. A user alone is all that was kept for the user. A
        session without a user names a session that has none. What an erased event superseded stays
        history.

        Returns:
            How many events were erased; 0 if nothing agrees.

        Raises:
            InvalidIdError: As for `append_event`.
            TypeError: There is no argument, or the id is no text.
            StoreError: They could not be erased, or their bytes not yet. Another call, also one
                that finds no more events, erases the bytes.
        """


SUMMARISED_EVENTS = 20
"""How many of the newest events a summary is made of."""

MAX_SUMMARY_CHARS = 1_200
"""Longest text of `episode_summary`."""

_MAX_LINE_CHARS = 160
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|(?<=[。！？])|\n")  # noqa: RUF001 - the marks of Chinese and Japanese


async def summarised(events: Sequence[Event], summariser: Summariser | None) -> str | None:
    """The caller's summary of the events, or `episode_summary`; None for a blank one."""
    if not events:
        return None
    if summariser is None:
        return episode_summary(events)
    return ((await summariser(events)) or "").strip() or None


def episode_summary(events: Sequence[Event]) -> str | None:
    """Role and first sentence of each event, one a line, oldest first; deterministic.

    A line takes at most 160 characters, the whole at most 1,200: the newest lines that fit. None
    when no event has words.
    """
    lines: list[str] = []
    room = MAX_SUMMARY_CHARS
    for event in reversed(events):
        beginning = event.text[: 4 * _MAX_LINE_CHARS].strip()
        sentence = _SENTENCE_END.split(beginning, maxsplit=1)[0]
        sentence = one_line(sentence, max_chars=_MAX_LINE_CHARS - len(event.role) - 2)
        line = f"{event.role}: {sentence}"
        if len(line) + 1 > room:
            break
        if sentence:
            lines.append(line)
            room -= len(line) + 1
    return "\n".join(reversed(lines)) or None
