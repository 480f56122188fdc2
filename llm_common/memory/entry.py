"""What every store does with an event before it keeps it: checks, scopes, echoes.

A scope is what a key, a ranking and a full-text index know: all that is one user's, or one session
without a user.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from llm_common.core.models import MessageRole
from llm_common.errors import InvalidIdError
from llm_common.memory.protocol import Event, MemoryFilters, in_utc
from llm_common.text.display import one_line

_MAX_ID_CHARS = 200
_MAX_DIGITS = 18  # of a number that every store can hold
_USERS = "\x1f"  # begins a user's scope; not printable, so no session id begins with it

ECHO_EVENTS = 8
"""How many of the newest events may be repeated by an echo."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as it is kept; from `checked_entry`."""

    scope: str
    session_id: str
    event: Event
    key: str | None = None
    supersedes: int | None = None
    valid_until: datetime | None = None

    def echoed(self, newest: Iterable[tuple[int, str, bool]]) -> int | None:
        """The number of the event that this one repeats, if it is an echo.

        See `FactMemory.append_event`.

        Args:
            newest: Of the newest events of the session, newest first: number, role, and whether the
                event is current and like this one.
        """
        if self.supersedes is not None:
            return None
        for number, role, alike in newest:
            if alike:
                return number
            if role != self.event.role and role in (MessageRole.USER, MessageRole.ASSISTANT):
                return None
        return None


@dataclass(frozen=True, slots=True)
class Target:
    """What `forget` erases: the events that agree with each field that is not None.

    From `checked_target`.
    """

    scope: str | None
    session_id: str | None
    number: int | None


def scope_of(session_id: str, user: str | None) -> str:
    """The scope of a session."""
    return session_id if user is None else _USERS + user


def user_of(scope: str) -> str | None:
    """The user of a scope; None for a session without one."""
    return scope.removeprefix(_USERS) if scope.startswith(_USERS) else None


def check_session(session_id: object, user: object = None) -> None:
    """Refuses what names no session.

    Raises:
        InvalidIdError: The session id or the user is no text, blank, over 200 characters, or not
            printable.
    """
    _check_id("session id", session_id)
    if user is not None:
        check_user(user)


def check_user(user: object) -> None:
    """Refuses what names no user.

    Raises:
        InvalidIdError: As from `check_session`.
    """
    _check_id("user", user)


def checked_entry(
    session_id: str,
    event: Event,
    *,
    user: str | None = None,
    key: str | None = None,
    supersedes: str | None = None,
    valid_until: datetime | None = None,
) -> Entry:
    """The arguments of `FactMemory.append_event` as they are kept.

    Raises:
        InvalidIdError, TypeError, ValueError: As there, but for an id of no event.
    """
    check_session(session_id, user)
    if not isinstance(event, Event):
        raise TypeError(
            f"event is a {type(event).__name__}; "
            "pass an Event, such as Event(role='user', text='…')"
        )
    if key is not None:
        _check_id("key", key)
    if valid_until is not None and not isinstance(valid_until, datetime):
        raise TypeError(f"valid_until is a {type(valid_until).__name__}; pass a datetime")
    return Entry(
        scope_of(session_id, user),
        session_id,
        event,
        key,
        None if supersedes is None else _number("supersedes", supersedes),
        None if valid_until is None else in_utc(valid_until),
    )


def checked_target(session_id: str | None, user: str | None, event_id: str | None) -> Target:
    """The arguments of `FactMemory.forget`.

    Raises:
        InvalidIdError, TypeError: As there.
    """
    if session_id is None and user is None and event_id is None:
        raise TypeError("forget needs session_id, user or id; nothing was erased")
    number = None if event_id is None else _number("id", event_id)
    if session_id is not None:
        check_session(session_id, user)
        return Target(scope_of(session_id, user), session_id, number)
    if user is not None:
        check_user(user)
        return Target(scope_of("", user), None, number)
    return Target(None, None, number)


def check_limit(session_id: object, user: object, limit: object) -> None:
    """Refuses what `recent` cannot look up.

    Raises:
        InvalidIdError: As from `check_session`.
        TypeError: The limit is no int.
    """
    check_session(session_id, user)
    _check_int("limit", limit)


def check_search(query: object, k: object, filters: object) -> str:
    """The scope of a search by `retrieve`.

    Raises:
        InvalidIdError: As from `check_session`; or other sessions are asked for without a user.
        TypeError: The query is no text, `k` no int, or the filters no `MemoryFilters`.
    """
    if not isinstance(query, str):
        raise TypeError(f"query is a {type(query).__name__}; pass a text")
    _check_int("k", k)
    if not isinstance(filters, MemoryFilters):
        raise TypeError(
            f"filters is a {type(filters).__name__}; "
            "pass MemoryFilters(session_id='…'), which names the session"
        )
    check_session(filters.session_id, filters.user)
    if filters.all_sessions and filters.user is None:
        raise InvalidIdError(
            "all_sessions needs a user, whose sessions are meant; pass user='…' or leave it out"
        )
    return scope_of(filters.session_id, filters.user)


def no_such_event(number: int) -> InvalidIdError:
    """The error for an event that is not there, or is another user's."""
    return InvalidIdError(
        f"supersedes names no event of this user or session (id {number}); "
        "pass what append_event returned. Nothing was kept"
    )


def _check_id(name: str, value: object) -> None:
    if not (
        isinstance(value, str)
        and value.strip()
        and len(value) <= _MAX_ID_CHARS
        and value.isprintable()
    ):
        raise InvalidIdError(
            f"the {name} {one_line(repr(value), max_chars=60)} is not allowed; "
            f"use 1 to {_MAX_ID_CHARS} printable characters, not all blank"
        )


def _check_int(name: str, value: object) -> None:
    if not isinstance(value, int):
        raise TypeError(f"{name} is a {type(value).__name__}; pass an int")


def _number(name: str, event_id: object) -> int:
    """The number behind an id; 0, which no event has, for any other text."""
    if not isinstance(event_id, str):
        raise TypeError(
            f"{name} is a {type(event_id).__name__}; pass an id, a text that append_event returned"
        )
    digits = event_id.isascii() and event_id.isdecimal() and not event_id.startswith("0")
    return int(event_id) if digits and len(event_id) <= _MAX_DIGITS else 0
