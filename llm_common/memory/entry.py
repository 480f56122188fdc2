"""Checks the arguments of a memory's methods, and finds scopes and repeated events.

A scope is the part of a memory that keys, rankings and full-text indexes are limited to: all
sessions of one user, or one session without a user.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from llm_common.core.models import MessageRole
from llm_common.errors import InvalidIdError
from llm_common.memory.protocol import Event, MemoryFilters, in_utc
from llm_common.text.display import one_line

# At most 800 bytes of UTF-8, well below the 2,704 bytes of a key in a PostgreSQL index.
_MAX_ID_CHARS = 200
_MAX_DIGITS = 18  # fits into the 64-bit integers of every store
_MAX_ROWS = 2**63 - 1  # the largest integer of SQLite and PostgreSQL
_USERS = "\x1f"  # begins a user's scope: not printable, so no session id begins with it

ECHO_EVENTS = 8
"""The newest events of a session that a new one is compared with, to drop a repeat."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An event as a memory stores it. Made by `checked_entry`."""

    scope: str
    session_id: str
    event: Event
    key: str | None = None
    supersedes: int | None = None
    valid_until: datetime | None = None

    def find_repeated(self, newest: Iterable[tuple[int, str, bool]]) -> int | None:
        """Return the number of the event that this one repeats, if it is an echo.

        See `FactMemory.append_event`.

        Args:
            newest: The session's newest events, newest first: number, role, and whether the event
                is current and equal to this one.
        """
        if self.supersedes is not None:  # it changes a fact, even with the same text
            return None
        for event_number, role, is_equal in newest:
            if is_equal:
                return event_number
            # After an answer, the same question is asked again and not repeated by a retry.
            if role != self.event.role and role in (MessageRole.USER, MessageRole.ASSISTANT):
                return None
        return None


@dataclass(frozen=True, slots=True)
class Target:
    """The events that `forget` erases: those that match each field that is not None.

    Made by `checked_target`.
    """

    scope: str | None
    session_id: str | None
    event_number: int | None


def scope_of(session_id: str, user: str | None) -> str:
    """Return the scope of a session."""
    return session_id if user is None else _USERS + user


def user_of(scope: str) -> str | None:
    """Return the user of a scope, or None for a session without a user."""
    return scope.removeprefix(_USERS) if scope.startswith(_USERS) else None


def check_session(session_id: object, user: object = None) -> None:
    """Check a session id, and a user if there is one.

    Raises:
        InvalidIdError: If one is not a str, blank, over 200 characters or not printable.
    """
    check_id("session id", session_id)
    if user is not None:
        check_id("user", user)


def checked_entry(
    session_id: str,
    event: Event,
    *,
    user: str | None = None,
    key: str | None = None,
    supersedes: str | None = None,
    valid_until: datetime | None = None,
) -> Entry:
    """Return the arguments of `FactMemory.append_event` as an entry.

    Raises:
        InvalidIdError: If a session id, user or key is invalid.
        TypeError: If an argument has the wrong type.
        ValueError: If UTC cannot express `valid_until`.
    """
    check_session(session_id, user)
    if not isinstance(event, Event):
        raise TypeError(
            f"event must be an Event, got {type(event).__name__}; pass Event(role='user', text='…')"
        )
    if key is not None:
        check_id("key", key)
    if valid_until is not None and not isinstance(valid_until, datetime):
        raise TypeError(f"valid_until must be a datetime, got {type(valid_until).__name__}")
    return Entry(
        scope_of(session_id, user),
        session_id,
        event,
        key,
        None if supersedes is None else _event_number("supersedes", supersedes),
        None if valid_until is None else in_utc(valid_until),
    )


def checked_target(session_id: str | None, user: str | None, event_id: str | None) -> Target:
    """Return the arguments of `FactMemory.forget` as a target.

    Raises:
        InvalidIdError: If a session id or user is invalid.
        TypeError: If there is no argument, or the id is not a str.
    """
    if session_id is None and user is None and event_id is None:
        raise TypeError("forget needs session_id, user or id; no event was erased")
    event_number = None if event_id is None else _event_number("id", event_id)
    if session_id is not None:
        # Without a user, this is the session that has none, and not that session of all users.
        check_session(session_id, user)
        return Target(scope_of(session_id, user), session_id, event_number)
    if user is not None:
        check_id("user", user)
        return Target(scope_of("", user), None, event_number)
    return Target(None, None, event_number)


def checked_limit(session_id: object, user: object, limit: int) -> int:
    """Check the arguments of `recent`, and return the limit for a database.

    Raises:
        InvalidIdError: If the session id or the user is invalid.
        TypeError: If the limit is not an int.
    """
    check_session(session_id, user)
    _check_int("limit", limit)
    return row_count(limit)


def row_count(number: int) -> int:
    """Return a number of rows that a database accepts, for a LIMIT or OFFSET."""
    return min(max(number, 0), _MAX_ROWS)


def check_search(query: object, k: object, filters: object) -> str:
    """Check the arguments of `retrieve`, and return the scope to search.

    Raises:
        InvalidIdError: If the session id or the user is invalid, or `all_sessions` has no user.
        TypeError: If the query is not a str, `k` not an int, or the filters not `MemoryFilters`.
    """
    if not isinstance(query, str):
        raise TypeError(f"query must be a str, got {type(query).__name__}")
    _check_int("k", k)
    if not isinstance(filters, MemoryFilters):
        raise TypeError(
            f"filters must be MemoryFilters, got {type(filters).__name__}; "
            "pass MemoryFilters(session_id='…')"
        )
    check_session(filters.session_id, filters.user)
    if filters.all_sessions and filters.user is None:
        raise InvalidIdError("all_sessions needs a user; pass user='…' or leave all_sessions out")
    return scope_of(filters.session_id, filters.user)


def no_such_event(event_number: int) -> InvalidIdError:
    """Return the error for an event that does not exist, or is another user's."""
    return InvalidIdError(
        f"supersedes must be the id of an event of this user or session, got {event_number}; "
        "pass an id that append_event returned. No event was stored"
    )


def check_id(name: str, value: object) -> None:
    """Check a session id, a user or a key.

    Raises:
        InvalidIdError: If it is not a str, blank, over 200 characters or not printable.
    """
    # Printable, so that ids can be logged, and none begins with `_USERS`.
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
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")


def _event_number(name: str, event_id: object) -> int:
    """Return the number of an id, or 0, which no event has, for any other text."""
    if not isinstance(event_id, str):
        raise TypeError(
            f"{name} must be a str, got {type(event_id).__name__}; "
            "pass an id that append_event returned"
        )
    # Not an error here: `forget` then erases no event, and `supersedes` names the id in its error.
    digits = event_id.isascii() and event_id.isdecimal() and not event_id.startswith("0")
    return int(event_id) if digits and len(event_id) <= _MAX_DIGITS else 0
