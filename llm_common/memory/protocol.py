"""The protocols of a memory, which keeps events in sessions and finds them again."""

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Annotated, Protocol, Self, runtime_checkable

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat

from llm_common.core.models import MessageRole
from llm_common.errors import InvalidIdError
from llm_common.text.display import one_line, printable

_MAX_SESSION_ID_CHARS = 200


def _storable(text: str) -> str:
    """The text without NUL and lone surrogates, which not every store can hold."""
    return printable(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError("a time that UTC cannot express; use one between the years 1 and 9999") from exc


Text = Annotated[str, AfterValidator(_storable)]
Scalar = Text | bool | int | FiniteFloat | None


class Event(BaseModel):
    r"""One thing that was said or done in a session.

    Texts are made storable at once: NUL becomes U+FFFD, a lone surrogate its `\udXXX` escape.

    Attributes:
        role: Who spoke or acted.
        text: What was said, of any length; `retrieve` searches the first 16,000 characters.
        timestamp: When; a time without a zone is UTC. It does not order a session: events are in the order in which
            they were appended.
        metadata: Facts to filter by, flat.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: MessageRole = MessageRole.USER
    text: Text
    timestamp: Annotated[datetime, AfterValidator(_in_utc)] = Field(default_factory=lambda: datetime.now(UTC))
    metadata: dict[Text, Scalar] = Field(default_factory=dict)


class MemoryFilters(BaseModel):
    """Which events may be found: those of one session that agree with every other field.

    Attributes:
        session_id: The session; there is no way to search several.
        role: Only what this role said; None for all.
        metadata: An event must have each of these keys with an equal value; `1`, `1.0`, `True` and `"1"` all differ.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    role: MessageRole | None = None
    metadata: dict[Text, Scalar] = Field(default_factory=dict)


class MemoryHit(BaseModel):
    """An event that was found, and its score; higher is better within one answer."""

    model_config = ConfigDict(frozen=True)

    session_id: str
    event: Event
    score: float


Summariser = Callable[[Sequence[Event]], Awaitable[str | None]]
"""Summarises a session's newest events, oldest first; blank or None is none."""


@runtime_checkable
class MemoryWriter(Protocol):
    """Something that keeps events; `ContextBuilder` asks it for summaries."""

    async def append_event(self, session_id: str, event: Event) -> None:
        """Keeps the event as the newest of its session; after the return every reader can find it.

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
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def check_session_id(session_id: object) -> str:
    """The id, if a store may use it.

    Raises:
        InvalidIdError: It is no text, blank, over 200 characters, or holds characters that cannot be printed.
    """
    if (
        isinstance(session_id, str)
        and session_id.strip()
        and len(session_id) <= _MAX_SESSION_ID_CHARS
        and session_id.isprintable()
    ):
        return session_id
    raise InvalidIdError(
        f"the session id {one_line(repr(session_id), max_chars=60)} is not allowed; "
        f"use 1 to {_MAX_SESSION_ID_CHARS} printable characters, not all blank"
    )


def check_event(session_id: object, event: object) -> None:
    """Refuses what `append_event` cannot keep.

    Raises:
        InvalidIdError: As from `check_session_id`.
        TypeError: The event is no `Event`.
    """
    check_session_id(session_id)
    if not isinstance(event, Event):
        raise TypeError(f"event is a {type(event).__name__}; pass an Event, such as Event(role='user', text='…')")


def check_limit(session_id: object, limit: object) -> None:
    """Refuses what `recent` cannot look up.

    Raises:
        InvalidIdError: As from `check_session_id`.
        TypeError: The limit is no int.
    """
    check_session_id(session_id)
    _check_int("limit", limit)


def check_search(query: object, k: object, filters: object) -> str:
    """The session of a search by `retrieve`.

    Raises:
        InvalidIdError: As from `check_session_id`.
        TypeError: The query is no text, `k` no int, or the filters no `MemoryFilters`.
    """
    if not isinstance(query, str):
        raise TypeError(f"query is a {type(query).__name__}; pass a text")
    _check_int("k", k)
    if not isinstance(filters, MemoryFilters):
        raise TypeError(
            f"filters is a {type(filters).__name__}; pass MemoryFilters(session_id='…'), which names the session"
        )
    return check_session_id(filters.session_id)


def _check_int(name: str, value: object) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} is a {type(value).__name__}; pass an int")


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
