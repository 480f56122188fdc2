"""Defines `PostgresMemory`, which stores events in PostgreSQL. Needs the extra `postgres`."""

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any, LiteralString, Self

from llm_common.core.models import MessageRole
from llm_common.errors import (
    ConfigError,
    LockTimeoutError,
    StoreError,
    StoreFullError,
    missing_extra,
)
from llm_common.memory.entry import (
    ECHO_EVENTS,
    Entry,
    check_search,
    checked_entry,
    checked_limit,
    checked_target,
    no_such_event,
    scope_of,
)
from llm_common.memory.protocol import (
    Event,
    FactMemory,
    MemoryFilters,
    MemoryHit,
    Scalar,
)
from llm_common.memory.recall import (
    MAX_MATCHES,
    best_lines,
    event_tags,
    filter_tags,
    follows_facts,
    forgets_memory,
    scoped_terms,
    scoped_words,
    searches_memory,
    shortlist,
    writes_memory,
)

try:
    import psycopg
    from psycopg import AsyncConnection, AsyncCursor, errors
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.sql import SQL, Composed, Identifier, Literal
    from psycopg.types.json import Jsonb
    from psycopg_pool import AsyncConnectionPool
except ImportError as exc:
    raise missing_extra("PostgresMemory needs an extra", "postgres") from exc

# What each version adds. A database of an older version is migrated step by step, so a version that
# was released is never edited.
_MIGRATIONS: tuple[tuple[LiteralString, ...], ...] = (
    (
        "CREATE TABLE {schema}.sessions (session_id text PRIMARY KEY, lines bigint NOT NULL)",
        """CREATE TABLE {schema}.events (
            session_id text NOT NULL,
            position bigint NOT NULL,
            role text NOT NULL,
            text text NOT NULL,
            timestamp timestamptz NOT NULL,
            metadata jsonb NOT NULL,
            word_count integer NOT NULL,
            words tsvector NOT NULL,
            tags text[] NOT NULL,
            PRIMARY KEY (session_id, position)
        )""",
        "CREATE INDEX events_words ON {schema}.events USING gin (words)",
    ),
    (
        "ALTER TABLE {schema}.sessions RENAME COLUMN session_id TO scope",
        "ALTER TABLE {schema}.events RENAME COLUMN session_id TO scope",
        "ALTER TABLE IF EXISTS {schema}.vectors RENAME COLUMN session_id TO scope",
        """ALTER TABLE {schema}.events
            ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY,
            ADD COLUMN session_id text,
            ADD COLUMN key text,
            ADD COLUMN valid_until timestamptz,
            ADD COLUMN superseded boolean NOT NULL DEFAULT false,
            ADD COLUMN fact bigint""",
        "UPDATE {schema}.events SET session_id = scope",
        "ALTER TABLE {schema}.events ALTER COLUMN session_id SET NOT NULL",
        "CREATE UNIQUE INDEX events_id ON {schema}.events (id)",
        "CREATE INDEX events_session ON {schema}.events (scope, session_id, position)",
        "CREATE INDEX events_key ON {schema}.events (scope, key) WHERE NOT superseded",
        "CREATE INDEX events_fact ON {schema}.events (fact) WHERE NOT superseded",
    ),
    # Earlier versions could search by vectors.
    ("DROP TABLE IF EXISTS {schema}.vectors",),
)
_LOCK = 0x6C6C6D63  # "llmc": the advisory lock for creating and migrating tables
# `:name` in statements that SQLite shares, but not a cast such as `::text`.
_VALUE = re.compile(r"(?<!:):([a-z_]+)")
_CURRENT = "(NOT events.superseded AND (events.valid_until IS NULL OR events.valid_until > now()))"
_PARTS = {
    "event": SQL("role, text, timestamp, metadata"),
    "current": SQL(_CURRENT),
    # Words and tags contain hashes of scope and session. These are short, so ids are compared too.
    "matches_filters": SQL(
        "events.scope = %(scope)s "
        "AND (%(session_id)s::text IS NULL OR events.session_id = %(session_id)s) "
        f"AND events.tags @> %(tags)s AND (%(history)s OR {_CURRENT})"
    ),
    "matches_target": SQL(
        "(%(scope)s::text IS NULL OR scope = %(scope)s) "
        "AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s) "
        "AND (%(number)s::bigint IS NULL OR id = %(number)s)"
    ),
}


def qualified(statement: LiteralString, schema: str) -> Composed:
    """Fill in a statement's `{schema}` and the shared parts, such as `{current}`."""
    return SQL(statement).format(schema=Identifier(schema), **_PARTS)


async def _migrate(connection: AsyncConnection, schema: str) -> None:
    """Migrate the tables to the newest version, while other processes wait."""
    async with connection.transaction():
        await connection.execute(SQL("SELECT pg_advisory_xact_lock({})").format(Literal(_LOCK)))
        await connection.execute(qualified("CREATE SCHEMA IF NOT EXISTS {schema}", schema))
        await connection.execute(
            qualified(
                "CREATE TABLE IF NOT EXISTS {schema}.migrations (version integer PRIMARY KEY)",
                schema,
            )
        )
        cursor = await connection.execute(
            qualified("SELECT coalesce(max(version), 0) FROM {schema}.migrations", schema)
        )
        [version] = await cursor.fetchone() or [0]
        if version > len(_MIGRATIONS):
            raise StoreError(
                f"the tables have version {version}, newer than this llm-common; upgrade it"
            )
        for next_version, statements in enumerate(_MIGRATIONS[version:], start=version + 1):
            for statement in statements:
                await connection.execute(qualified(statement, schema))
            await connection.execute(
                qualified("INSERT INTO {schema}.migrations VALUES (%s)", schema), [next_version]
            )


class PostgresMemory(FactMemory):
    """A `FactMemory` on a PostgreSQL server (tested with 15 and 18), for many machines.

    The server stems English and ignores case, but not accents. Identifiers match by their parts.
    Hits are ranked as in `recall`. Once `append_event` returns, the event is committed, as durably
    as the server's `synchronous_commit` says. The tables are created on first use, and migrated by
    one process while the others wait. Broken connections are replaced. The call in progress is not
    repeated, since its event may have been stored.

    `forget` deletes the events and rewrites tables and indexes with VACUUM FULL, which blocks all
    other calls. While another program has an older transaction open, the rewritten tables still
    contain the deleted rows: call `forget` again. The server's write-ahead log, replicas and
    backups keep the bytes until the server recycles them.

    Args:
        conninfo: `postgresql://user@host/name` or a libpq connection string. Errors and logs never
            contain its password.
        schema: The schema of the tables. It is created if it is missing.
        max_connections: Maximum number of connections. Further calls wait.
        timeout_s: Seconds to wait for a connection, and again for each statement.
        read_only: Changes nothing on the server. The tables must exist, and a write raises
            `StoreError`.

    Raises:
        ConfigError: If libpq cannot read `conninfo`, or a number is out of range.
        TypeError: If `conninfo` is not a str.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "llm_common",
        max_connections: int = 8,
        timeout_s: float = 10.0,
        read_only: bool = False,
    ) -> None:
        _check_conninfo(conninfo)
        for name, value in (("max_connections", max_connections), ("timeout_s", timeout_s)):
            if not 0 < value < math.inf:
                raise ConfigError(
                    f"{name} must be above 0, got {value}", variable=name, value=str(value)
                )
        self._conninfo = conninfo
        self._schema = schema
        self._max_connections = max_connections
        self._timeout_s = timeout_s
        self._read_only = read_only
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    @writes_memory
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
        """Store the event. See `FactMemory.append_event`."""
        entry = checked_entry(
            session_id, event, user=user, key=key, supersedes=supersedes, valid_until=valid_until
        )
        words = scoped_words(entry.scope, event.text)
        row = {
            "scope": entry.scope,
            "session_id": session_id,
            "role": str(event.role),
            "text": event.text,
            "timestamp": event.timestamp,
            "metadata": Jsonb(event.metadata),
            "word_count": len(words),
            "words": " ".join(words),
            "tags": event_tags(entry),
            "key": key,
            "valid_until": entry.valid_until,
            "supersedes": entry.supersedes,
            "echo_events": ECHO_EVENTS,
        }
        async with self._connected() as connection, connection.transaction():
            # Locks the scope first, so that the reads below see every event that was stored. The
            # update changes nothing, but locks the row until the transaction ends.
            await self._execute(
                connection,
                """INSERT INTO {schema}.sessions AS stored (scope, lines) VALUES (%(scope)s, 0)
                    ON CONFLICT (scope) DO UPDATE SET lines = stored.lines""",
                row,
            )
            # Equal sets of tags mean equal role, metadata and key.
            newest = await self._rows(
                connection,
                """SELECT id, role, {current} AND text = %(text)s
                        AND tags @> %(tags)s AND tags <@ %(tags)s
                        AND valid_until IS NOT DISTINCT FROM %(valid_until)s
                    FROM {schema}.events WHERE scope = %(scope)s AND session_id = %(session_id)s
                    ORDER BY position DESC LIMIT %(echo_events)s""",
                row,
            )
            repeated = entry.find_repeated(newest)
            if repeated is not None:
                return str(repeated)
            row["fact"] = await self._supersede(connection, entry, row)
            # The position comes from the counter of the scope, which the transaction has locked.
            [[event_number]] = await self._rows(
                connection,
                """WITH counted AS (
                        UPDATE {schema}.sessions SET lines = lines + 1
                        WHERE scope = %(scope)s RETURNING lines
                    )
                    INSERT INTO {schema}.events (scope, position, session_id, role, text,
                        timestamp, metadata, word_count, words, tags, key, valid_until, fact)
                    SELECT %(scope)s, lines, %(session_id)s, %(role)s, %(text)s, %(timestamp)s,
                        %(metadata)s, %(word_count)s, to_tsvector('english', %(words)s), %(tags)s,
                        %(key)s, %(valid_until)s, %(fact)s
                    FROM counted RETURNING id""",
                row,
            )
        return str(event_number)

    async def recent(
        self, session_id: str, *, limit: int = 20, user: str | None = None, history: bool = False
    ) -> list[Event]:
        """Return the newest events, oldest first. See `FactMemory.recent`."""
        limit = checked_limit(session_id, user, limit)
        values = {
            "scope": scope_of(session_id, user),
            "session_id": session_id,
            "history": history,
            "limit": limit,
        }
        async with self._connected() as connection:
            rows = await self._rows(
                connection,
                """SELECT {event} FROM {schema}.events
                    WHERE scope = %(scope)s AND session_id = %(session_id)s
                        AND (%(history)s OR {current})
                    ORDER BY position DESC LIMIT %(limit)s""",
                values,
            )
        return [_event(*row) for row in reversed(rows)]

    @searches_memory
    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """Return the events that share a word with the query. See `MemoryReader.retrieve`."""
        scope = check_search(query, k, filters)
        if k <= 0 or not query.strip():
            return []
        values: dict[str, Any] = {
            "scope": scope,
            "session_id": None if filters.all_sessions else filters.session_id,
            "tags": filter_tags(filters),
            "history": filters.history,
            "follow": follows_facts(filters),
        }
        async with self._connected() as connection:
            best = await self._by_words(connection, query, k, values)
            rows = await self._rows(
                connection,
                """SELECT position, id, session_id, key, {current}, {event} FROM {schema}.events
                    WHERE scope = %s AND position = ANY(%s)""",
                [scope, [position for position, _ in best]],
            )
        events = {position: columns for position, *columns in rows}
        hits: list[MemoryHit] = []
        for position, score in best:
            # There is no transaction: an event may be erased or superseded between two statements.
            if position not in events:
                continue
            hit = _hit(score, *events[position])
            if hit.current or filters.history:
                hits.append(hit)
        return hits

    @forgets_memory
    async def forget(
        self,
        *,
        session_id: str | None = None,
        user: str | None = None,
        id: str | None = None,  # noqa: A002 - the name of a hit's field
    ) -> int:
        """Erase the events from tables and indexes. See `FactMemory.forget`.

        Raises:
            LockTimeoutError: If other programs used the tables for `timeout_s`. The bytes may still
                be there: call again.
        """
        target = checked_target(session_id, user, id)
        values = {
            "scope": target.scope,
            "session_id": target.session_id,
            "number": target.event_number,
        }
        async with self._connected() as connection:
            async with connection.transaction():
                # In the order of scopes, so that two erasures cannot deadlock.
                locked = await self._rows(
                    connection,
                    """SELECT scope FROM {schema}.sessions
                        WHERE scope IN (SELECT scope FROM {schema}.events WHERE {matches_target})
                        ORDER BY scope FOR UPDATE""",
                    values,
                )
                scopes = [scope for (scope,) in locked]
                erased = await self._rows(
                    connection,
                    "DELETE FROM {schema}.events WHERE {matches_target} RETURNING id",
                    values,
                )
                await self._execute(
                    connection,
                    """DELETE FROM {schema}.sessions WHERE scope = ANY(%s) AND NOT EXISTS (
                            SELECT FROM {schema}.events WHERE events.scope = sessions.scope
                        )""",
                    [scopes],
                )
            await self._rewrite(connection)
        return len(erased)

    async def read_rows(
        self, statement: LiteralString, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT over all users. See `overview.ReadsRows`."""
        async with self._connected() as connection:
            return await self._rows(connection, _VALUE.sub(r"%(\1)s", statement), dict(values))

    async def aclose(self) -> None:
        """Close the connections for good. Safe to call twice."""
        self._closed = True  # first, so that no call opens the pool again
        async with self._opening:
            pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def __aenter__(self) -> Self:
        async with self._connected():
            return self

    async def _supersede(
        self, connection: AsyncConnection, entry: Entry, row: dict[str, Any]
    ) -> int | None:
        """Mark the events that the entry supersedes, and return the number of its fact."""
        fact = None
        if entry.supersedes is not None:
            rows = await self._rows(
                connection,
                """SELECT coalesce(fact, id) FROM {schema}.events
                    WHERE id = %(supersedes)s AND scope = %(scope)s""",
                row,
            )
            if not rows:
                raise no_such_event(entry.supersedes)
            [[fact]] = rows
        elif entry.key is None:
            return None
        newest = await self._rows(
            connection,
            """SELECT id, coalesce(fact, id) FROM {schema}.events
                    WHERE scope = %(scope)s AND key = %(key)s AND NOT superseded
                UNION SELECT id, %(fact)s::bigint FROM {schema}.events
                    WHERE id = %(supersedes)s AND NOT superseded
                UNION SELECT id, %(fact)s::bigint FROM {schema}.events
                    WHERE fact = %(fact)s AND NOT superseded""",
            row | {"fact": fact},
        )
        if newest:
            fact = newest[0][1]
        event_numbers = [event_number for event_number, _ in newest]
        await self._execute(
            connection,
            "UPDATE {schema}.events SET superseded = true, fact = %s WHERE id = ANY(%s)",
            [fact, event_numbers],
        )
        return fact

    async def _by_words(
        self, connection: AsyncConnection, query: str, k: int, values: dict[str, Any]
    ) -> list[tuple[int, float]]:
        """Return position and score of the best `k` lines by words."""
        scope = values["scope"]
        counters = await self._rows(
            connection, "SELECT lines FROM {schema}.sessions WHERE scope = %s", [scope]
        )
        [(lines,)] = counters or [(0,)]
        matches: defaultdict[int, list[int]] = defaultdict(list)
        values = values | {"terms": scoped_terms(scope, query), "limit": MAX_MATCHES}
        # All terms in one statement. LATERAL applies the limit to each term.
        rows = await self._rows(
            connection,
            """SELECT terms.number, matching.position
                FROM unnest(%(terms)s::text[]) WITH ORDINALITY AS terms (term, number)
                CROSS JOIN LATERAL (
                    SELECT position FROM {schema}.events
                    WHERE words @@ plainto_tsquery('english', terms.term) AND {matches_filters}
                    UNION SELECT events.position
                    FROM {schema}.events AS older JOIN {schema}.events USING (fact)
                    WHERE older.words @@ plainto_tsquery('english', terms.term)
                        AND older.superseded AND older.scope = %(scope)s
                        AND older.tags @> %(tags)s AND NOT events.superseded
                        AND {matches_filters} AND %(follow)s
                    ORDER BY position DESC LIMIT %(limit)s
                ) AS matching
                ORDER BY terms.number, matching.position DESC""",
            values,
        )
        for term_number, position in rows:
            matches[term_number].append(position)
        weights = shortlist(list(matches.values()), lines=lines, k=k)
        shortlisted = await self._rows(
            connection,
            """SELECT position, word_count, {current} FROM {schema}.events
                WHERE scope = %s AND position = ANY(%s)""",
            [scope, list(weights)],
        )
        return best_lines(weights, shortlisted, k=k)

    async def _rewrite(self, connection: AsyncConnection) -> None:
        """Rewrite tables and indexes, which removes deleted rows and words from their pages."""
        # A rewrite takes as long as there are events, so only the wait for the lock has a limit.
        await connection.execute(
            "SELECT set_config('lock_timeout', current_setting('statement_timeout'), false)"
        )
        await connection.execute("SET statement_timeout = 0")
        try:
            for table in ("events", "sessions"):
                await connection.execute(
                    SQL("VACUUM (FULL, ANALYZE) {}").format(Identifier(self._schema, table))
                )
        finally:
            await connection.execute("RESET lock_timeout")
            await self._configure(connection)

    async def _execute(
        self,
        connection: AsyncConnection,
        statement: LiteralString,
        values: Sequence[Any] | dict[str, Any],
    ) -> AsyncCursor[tuple[Any, ...]]:
        return await connection.execute(qualified(statement, self._schema), values)

    async def _rows(
        self,
        connection: AsyncConnection,
        statement: LiteralString,
        values: Sequence[Any] | dict[str, Any],
    ) -> list[tuple[Any, ...]]:
        return await (await self._execute(connection, statement, values)).fetchall()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection of the pool. Database errors of the block become `StoreError`."""
        with _as_store_errors(self._timeout_s):
            async with (await self._opened()).connection() as connection:
                yield connection

    async def _opened(self) -> AsyncConnectionPool[AsyncConnection]:
        async with self._opening:
            if self._closed:
                raise StoreError("this memory is closed; make another one")
            if self._pool is None:
                self._pool = await self._open()
            return self._pool

    async def _open(self) -> AsyncConnectionPool[AsyncConnection]:
        pool = AsyncConnectionPool(
            self._conninfo,
            kwargs={
                "autocommit": True,  # reads take no locks that outlive them
                "client_encoding": "utf8",
                # libpq waits for 2 seconds at least.
                "connect_timeout": max(math.ceil(self._timeout_s), 2),
            },
            min_size=1,
            max_size=self._max_connections,
            timeout=self._timeout_s,
            reconnect_timeout=self._timeout_s,
            configure=self._configure,
            check=AsyncConnectionPool.check_connection,  # replaces broken connections
            open=False,
            name="llm-common-memory",
        )
        try:
            await pool.open(wait=True, timeout=self._timeout_s)
            if not self._read_only:
                async with pool.connection() as connection:
                    await _migrate(connection, self._schema)
        except BaseException:  # a cancellation too
            await pool.close()
            raise
        return pool

    async def _configure(self, connection: AsyncConnection) -> None:
        await connection.execute(
            "SELECT set_config('statement_timeout', %s, false), "
            "set_config('timezone', 'UTC', false), "
            "set_config('default_transaction_read_only', %s, false)",
            [str(math.ceil(self._timeout_s * 1000)), "on" if self._read_only else "off"],
        )


def _check_conninfo(conninfo: object) -> None:
    """Reject a wrong connection string. No error contains the text, which has a password."""
    if not isinstance(conninfo, str):
        raise TypeError(
            f"conninfo must be a str, got {type(conninfo).__name__}; "
            "pass 'postgresql://user@host/name'"
        )
    # A pool would retry for its whole timeout before it reports these.
    try:
        ports = str(conninfo_to_dict(conninfo).get("port") or "")
    except psycopg.ProgrammingError:
        raise ConfigError(
            "conninfo is not a connection string; pass 'postgresql://user@host/name' or "
            "'host=… dbname=… user=…' with libpq's parameter names",
            variable="conninfo",
        ) from None  # its message quotes the text
    if not all(port.isdecimal() for port in ports.split(",") if port):
        hint = (
            "the port in conninfo is not a number; "
            "percent-encode characters such as @ : / in the password"
        )
        raise ConfigError(hint, variable="conninfo")


@contextmanager
def _as_store_errors(timeout_s: float) -> Iterator[None]:
    try:
        yield
    except (errors.QueryCanceled, errors.LockNotAvailable) as exc:
        raise LockTimeoutError(
            f"the server took over {timeout_s:g} s; raise timeout_s, or check the server's locks"
        ) from exc
    except errors.DiskFull as exc:
        raise StoreFullError(
            "the disk of the database server is full, and nothing was written; free some space"
        ) from exc
    except psycopg.OperationalError as exc:
        raise StoreError(
            "the database server cannot be reached; check conninfo and the server"
        ) from exc
    except psycopg.Error as exc:
        raise StoreError(
            f"the database server reported an error ({exc.sqlstate}); see the cause and its log"
        ) from exc


def _hit(
    score: float,
    event_number: int,
    session_id: str,
    key: str | None,
    current: bool,
    *columns: Any,
) -> MemoryHit:
    return MemoryHit(
        session_id=session_id,
        event=_event(*columns),
        score=score,
        id=str(event_number),
        key=key,
        current=current,
    )


def _event(role: str, text: str, timestamp: datetime, metadata: dict[str, Scalar]) -> Event:
    return Event(role=MessageRole(role), text=text, timestamp=timestamp, metadata=metadata)
