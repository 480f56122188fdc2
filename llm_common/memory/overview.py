"""Lists the sessions and events of all users, page by page, for the operator of the memory.

A program for one user never needs this, and a `UserMemory` does not offer it.
"""

# ruff: noqa: S608 - statements are made of our own names, values are bound
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, LiteralString, Protocol

from pydantic import BaseModel, ConfigDict

from llm_common.errors import StoreError
from llm_common.memory.entry import (
    Target,
    check_id,
    checked_target,
    row_count,
    scope_of,
    user_of,
)
from llm_common.memory.protocol import Event

# SQLite and PostgreSQL both understand these. `:name` is a bound value. SQLite has no schemas, so
# `SqliteMemory` removes `{schema}.`.
_CURRENT: Final = "NOT (superseded OR coalesce(valid_until <= :now, false))"
# The casts are for PostgreSQL, which cannot infer the type of a value that may be NULL.
_MATCHES_TARGET: Final = """(CAST(:scope AS text) IS NULL OR scope = :scope)
    AND (CAST(:session_id AS text) IS NULL OR session_id = :session_id)
    AND (CAST(:number AS bigint) IS NULL OR id = :number)"""
_COUNT_SESSIONS: Final = f"""SELECT count(*)
    FROM (
        SELECT DISTINCT scope, session_id FROM {{schema}}.events WHERE {_MATCHES_TARGET}
    ) AS matching"""
_SESSIONS: Final = f"""SELECT scope, session_id, count(*),
        sum(CASE WHEN {_CURRENT} THEN 1 ELSE 0 END), max(timestamp)
    FROM {{schema}}.events WHERE {_MATCHES_TARGET} GROUP BY scope, session_id
    ORDER BY max(timestamp) DESC, scope, session_id LIMIT :limit OFFSET :offset"""
_COUNT_EVENTS: Final = f"SELECT count(*) FROM {{schema}}.events WHERE {_MATCHES_TARGET}"
_EVENTS: Final = f"""SELECT id, scope, session_id, key, {_CURRENT}, role, text, timestamp, metadata
    FROM {{schema}}.events WHERE {_MATCHES_TARGET} ORDER BY id DESC LIMIT :limit OFFSET :offset"""


class SessionSummary(BaseModel):
    """A session and its counts of events.

    Attributes:
        user: The user of the session. None for a session without a user.
        session_id: The id of the session.
        events: How many events it has.
        current: How many of them are neither superseded nor expired.
        newest_at: The latest timestamp of its events.
    """

    model_config = ConfigDict(frozen=True)

    user: str | None
    session_id: str
    events: int
    current: int
    newest_at: datetime


class KeptEvent(BaseModel):
    """A stored event with the arguments by which `forget` erases it.

    Attributes:
        id: The id of the event.
        user: The user of its session. None for a session without a user.
        session_id: The id of its session.
        event: The event.
        key: The key of a fact. None for any other event.
        current: Whether it is neither superseded nor expired.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    user: str | None
    session_id: str
    event: Event
    key: str | None
    current: bool


class ReadsRows(Protocol):
    """A memory in a database: `SqliteMemory` or `PostgresMemory`."""

    async def read_rows(
        self, statement: LiteralString, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT. `:name` in it is a value, `{schema}` the tables' schema."""


async def list_sessions(
    memory: ReadsRows, *, user: str | None = None, limit: int, offset: int = 0
) -> tuple[list[SessionSummary], int]:
    """List sessions, the one with the newest event first, and count them.

    Args:
        memory: The memory.
        user: Lists the sessions of this user only. None lists all, also those without a user.
        limit: Maximum number of sessions.
        offset: How many sessions to skip.

    Returns:
        One page of sessions, and the number of all sessions.

    Raises:
        InvalidIdError: If the user is blank, over 200 characters or not printable.
        StoreError: If the memory cannot be read.
    """
    if user is not None:
        check_id("user", user)
    user_scope = None if user is None else scope_of("", user)
    values = _values(Target(user_scope, None, None), limit, offset)
    # Two statements without a transaction: events that arrive in between count in the total alone.
    rows = await memory.read_rows(_SESSIONS, values)
    [[total]] = await memory.read_rows(_COUNT_SESSIONS, values)
    sessions: list[SessionSummary] = []
    with _damage_as_store_error():
        for scope, session_id, events, current, newest_at in rows:
            sessions.append(
                SessionSummary(
                    user=user_of(scope),
                    session_id=session_id,
                    events=events,
                    current=current,
                    newest_at=newest_at,  # a text from SQLite, which the model parses
                )
            )
    return sessions, int(total)


async def list_events(
    memory: ReadsRows,
    *,
    session_id: str | None = None,
    user: str | None = None,
    id: str | None = None,  # noqa: A002 - the name in `forget`
    limit: int,
    offset: int = 0,
) -> tuple[list[KeptEvent], int]:
    """List the events that `forget` would erase with these arguments, newest first, and count them.

    Args:
        memory: The memory.
        session_id: As for `forget`.
        user: As for `forget`.
        id: As for `forget`.
        limit: Maximum number of events.
        offset: How many events to skip.

    Returns:
        One page of events, and the number of all matching events.

    Raises:
        InvalidIdError: If a session id or user is blank, over 200 characters or not printable.
        TypeError: If `session_id`, `user` and `id` are all None.
        StoreError: If the memory cannot be read.
    """
    values = _values(checked_target(session_id, user, id), limit, offset)
    rows = await memory.read_rows(_EVENTS, values)
    [[total]] = await memory.read_rows(_COUNT_EVENTS, values)
    return [_stored_event(row) for row in rows], int(total)


def _values(target: Target, limit: int, offset: int) -> dict[str, Any]:
    return {
        "scope": target.scope,
        "session_id": target.session_id,
        "number": target.event_number,
        "now": datetime.now(UTC),
        "limit": row_count(limit),
        "offset": row_count(offset),
    }


@contextmanager
def _damage_as_store_error() -> Iterator[None]:
    try:
        yield
    except ValueError as exc:
        raise StoreError("a stored event is damaged; restore the memory from a backup") from exc


@_damage_as_store_error()
def _stored_event(row: Sequence[Any]) -> KeptEvent:
    event_number, scope, session_id, key, current, role, text, timestamp, metadata = row
    if isinstance(metadata, str):  # SQLite has no JSON column
        metadata = json.loads(metadata)
    event = Event.model_validate(
        {"role": role, "text": text, "timestamp": timestamp, "metadata": metadata}
    )
    return KeptEvent(
        id=str(event_number),
        user=user_of(scope),
        session_id=session_id,
        event=event,
        key=key,
        current=bool(current),  # SQLite has no booleans
    )
