"""What a memory holds, for the person who keeps it: sessions and events of all users, page by page.

A program of one user never needs this, and a `UserMemory` does not have it.
"""

# ruff: noqa: S608 - statements are made of our own names, values are bound
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, LiteralString, Protocol

from pydantic import BaseModel, ConfigDict

from llm_common.errors import StoreError
from llm_common.memory.entry import Target, check_user, checked_target, scope_of, user_of
from llm_common.memory.protocol import Event

# Read by SQLite and PostgreSQL alike; `:name` is a value, `{schema}.` is left out where there are
# no schemas.
_CURRENT: Final = "NOT (superseded OR coalesce(valid_until <= :now, false))"
_WANTED: Final = """(CAST(:scope AS text) IS NULL OR scope = :scope)
    AND (CAST(:session_id AS text) IS NULL OR session_id = :session_id)
    AND (CAST(:number AS bigint) IS NULL OR id = :number)"""
_COUNT_SESSIONS: Final = f"""SELECT count(*)
    FROM (SELECT DISTINCT scope, session_id FROM {{schema}}.events WHERE {_WANTED}) AS found"""
_SESSIONS: Final = f"""SELECT scope, session_id, count(*),
        sum(CASE WHEN {_CURRENT} THEN 1 ELSE 0 END), max(timestamp)
    FROM {{schema}}.events WHERE {_WANTED} GROUP BY scope, session_id
    ORDER BY max(timestamp) DESC, scope, session_id LIMIT :limit OFFSET :offset"""
_COUNT_EVENTS: Final = f"SELECT count(*) FROM {{schema}}.events WHERE {_WANTED}"
_EVENTS: Final = f"""SELECT id, scope, session_id, key, {_CURRENT}, role, text, timestamp, metadata
    FROM {{schema}}.events WHERE {_WANTED} ORDER BY id DESC LIMIT :limit OFFSET :offset"""


class SessionSummary(BaseModel):
    """A session as its events show it.

    Attributes:
        user: Whose session it is; None for a session without a user.
        session_id: The session.
        events: Events in it.
        current: Those that are neither superseded nor expired.
        newest_at: The latest time of an event.
    """

    model_config = ConfigDict(frozen=True)

    user: str | None
    session_id: str
    events: int
    current: int
    newest_at: datetime


class KeptEvent(BaseModel):
    """An event with what `forget` needs to name it.

    Attributes:
        id: Its id.
        user: Whose it is; None for a session without a user.
        session_id: The session.
        event: The event.
        key: The key of a fact; None for any other event.
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
        """The rows of a SELECT; `:name` in it is a value, `{schema}` where the tables are."""


async def list_sessions(
    memory: ReadsRows, *, user: str | None = None, limit: int, offset: int = 0
) -> tuple[list[SessionSummary], int]:
    """List sessions, the one with the newest event first, and count them.

    Args:
        memory: The memory.
        user: Only sessions of this user; None lists those of all users and of none.
        limit: Most sessions.
        offset: How many to leave out before them.

    Raises:
        InvalidIdError: The user is blank, over 200 characters or not printable.
        StoreError: The memory cannot be read.
    """
    if user is not None:
        check_user(user)
    scope = None if user is None else scope_of("", user)
    values = _values(Target(scope, None, None), limit, offset)
    rows = await memory.read_rows(_SESSIONS, values)
    [[total]] = await memory.read_rows(_COUNT_SESSIONS, values)
    return [_summary(*row) for row in rows], int(total)


async def list_events(
    memory: ReadsRows,
    *,
    session_id: str | None = None,
    user: str | None = None,
    id: str | None = None,  # noqa: A002 - as `forget`
    limit: int,
    offset: int = 0,
) -> tuple[list[KeptEvent], int]:
    """List the events that `forget` would erase with these arguments, newest first, and count them.

    Args:
        memory: The memory.
        session_id: As for `forget`.
        user: As for `forget`.
        id: As for `forget`.
        limit: Most events.
        offset: How many to leave out before them.

    Raises:
        InvalidIdError: A session id or a user is blank, over 200 characters or not printable.
        TypeError: There is none of the three.
        StoreError: The memory cannot be read.
    """
    values = _values(checked_target(session_id, user, id), limit, offset)
    rows = await memory.read_rows(_EVENTS, values)
    [[total]] = await memory.read_rows(_COUNT_EVENTS, values)
    return [_kept(row) for row in rows], int(total)


def _values(target: Target, limit: int, offset: int) -> dict[str, Any]:
    wanted = {"scope": target.scope, "session_id": target.session_id, "number": target.number}
    return {**wanted, "now": datetime.now(UTC), "limit": limit, "offset": offset}


@contextmanager
def _damage_as_store_error() -> Iterator[None]:
    try:
        yield
    except ValueError as exc:
        raise StoreError(
            "a stored event is damaged; put a backup in the place of the memory"
        ) from exc


@_damage_as_store_error()
def _summary(
    scope: str, session_id: str, events: int, current: int, newest_at: Any
) -> SessionSummary:
    return SessionSummary(
        user=user_of(scope),
        session_id=session_id,
        events=events,
        current=current,
        newest_at=newest_at,
    )


@_damage_as_store_error()
def _kept(row: Sequence[Any]) -> KeptEvent:
    number, scope, session_id, key, current, role, text, timestamp, metadata = row
    facts = json.loads(metadata) if isinstance(metadata, str) else metadata
    event = Event.model_validate(
        {"role": role, "text": text, "timestamp": timestamp, "metadata": facts}
    )
    return KeptEvent(
        id=str(number),
        user=user_of(scope),
        session_id=session_id,
        event=event,
        key=key,
        current=bool(current),
    )
