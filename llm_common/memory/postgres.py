"""`PostgresMemory`: events on a PostgreSQL server; needs the extra `postgres`."""

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any, LiteralString, Self

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Composed, Identifier, Literal
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool

from llm_common.core.models import MessageRole
from llm_common.errors import ConfigError, LockTimeoutError, StoreError, StoreFullError
from llm_common.memory.protocol import (
    SUMMARISED_EVENTS,
    Event,
    MemoryFilters,
    MemoryHit,
    Scalar,
    Summariser,
    check_event,
    check_limit,
    check_search,
    summarised,
)
from llm_common.memory.recall import (
    MAX_MATCHES,
    best_lines,
    event_tags,
    filter_tags,
    scoped_terms,
    scoped_words,
    shortlist,
)
from llm_common.ranking import reciprocal_rank_fusion

# What each version adds; a database of an older version gets the rest. Never edit one that was released.
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
)
_LOCK = 0x6C6C6D63  # "llmc": the advisory lock under which tables are made
_VECTORS = """CREATE TABLE IF NOT EXISTS {schema}.vectors (
    session_id text NOT NULL,
    position bigint NOT NULL,
    embedding vector NOT NULL,
    PRIMARY KEY (session_id, position)
)"""


def qualified(statement: LiteralString, schema: str) -> Composed:
    """The statement with `{schema}` replaced by the quoted name."""
    return SQL(statement).format(schema=Identifier(schema))


async def _migrate(connection: AsyncConnection, schema: str) -> None:
    """Migrates the tables to the newest version; other processes wait meanwhile.

    Raises:
        StoreError: The tables are of a newer version.
        psycopg.Error: The server refused.
    """
    async with connection.transaction():
        await connection.execute(SQL("SELECT pg_advisory_xact_lock({})").format(Literal(_LOCK)))
        await connection.execute(qualified("CREATE SCHEMA IF NOT EXISTS {schema}", schema))
        await connection.execute(
            qualified("CREATE TABLE IF NOT EXISTS {schema}.migrations (version integer PRIMARY KEY)", schema)
        )
        found = await connection.execute(qualified("SELECT coalesce(max(version), 0) FROM {schema}.migrations", schema))
        [version] = await found.fetchone() or [0]
        if version > len(_MIGRATIONS):
            raise StoreError(f"the tables are of version {version}, newer than this llm-common; upgrade it")
        for number, statements in enumerate(_MIGRATIONS[version:], start=version + 1):
            for statement in statements:
                await connection.execute(qualified(statement, schema))
            await connection.execute(qualified("INSERT INTO {schema}.migrations VALUES (%s)", schema), [number])


async def _prepare_vectors(connection: AsyncConnection, schema: str) -> bool:
    """Whether the server has pgvector; if so, its table is there afterwards.

    Raises:
        psycopg.Error: The server refused, for example because the role may not install the extension.
    """
    async with connection.transaction():
        await connection.execute(SQL("SELECT pg_advisory_xact_lock({})").format(Literal(_LOCK)))
        found = await connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
        if await found.fetchone() is None:
            return False
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await connection.execute(qualified(_VECTORS, schema))
        return True


Embedder = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Makes one vector for each text, all of the same length."""

_log = logging.getLogger(__name__)

_NEAREST = 64
_EVENT = "role, text, timestamp, metadata"
_APPEND = """
    WITH counted AS (
        INSERT INTO {schema}.sessions AS known (session_id, lines) VALUES (%(session_id)s, 1)
        ON CONFLICT (session_id) DO UPDATE SET lines = known.lines + 1 RETURNING lines
    )
    INSERT INTO {schema}.events (session_id, position, role, text, timestamp, metadata, word_count, words, tags)
    SELECT %(session_id)s, lines, %(role)s, %(text)s, %(timestamp)s, %(metadata)s, %(word_count)s,
        to_tsvector('english', %(words)s), %(tags)s
    FROM counted RETURNING position
"""
_RECENT = f"SELECT {_EVENT} FROM {{schema}}.events WHERE session_id = %s ORDER BY position DESC LIMIT %s"  # noqa: S608 - our column names
_LINES = "SELECT lines FROM {schema}.sessions WHERE session_id = %s"
_MATCHES = """
    SELECT terms.number, found.position
    FROM unnest(%(terms)s::text[]) WITH ORDINALITY AS terms (term, number) CROSS JOIN LATERAL (
        SELECT position FROM {schema}.events
        WHERE session_id = %(session_id)s AND words @@ plainto_tsquery('english', terms.term) AND tags @> %(tags)s
        ORDER BY position DESC LIMIT %(limit)s
    ) AS found
    ORDER BY terms.number, found.position DESC
"""
_WORD_COUNTS = "SELECT position, word_count FROM {schema}.events WHERE session_id = %s AND position = ANY(%s)"
_EVENTS = f"SELECT position, {_EVENT} FROM {{schema}}.events WHERE session_id = %s AND position = ANY(%s)"  # noqa: S608 - our column names
_ADD_VECTOR = "INSERT INTO {schema}.vectors VALUES (%s, %s, %s::vector)"
_NEAREST_LINES = """
    SELECT position FROM {schema}.vectors JOIN {schema}.events USING (session_id, position)
    WHERE session_id = %(session_id)s AND tags @> %(tags)s AND vector_dims(embedding) = %(size)s
    ORDER BY embedding <=> %(vector)s::vector, position DESC LIMIT %(limit)s
"""


class PostgresMemory:
    """A `Memory` on a PostgreSQL server (tested: 15 and 18), for many machines.

    English is stemmed by the server, case does not count, accents do, identifiers are found by their parts; the
    ranking is that of `recall`. An event is kept when `append_event` returns, as far as the server's own
    `synchronous_commit` goes. The tables are made at the first use, and migrated by one process while the
    others wait. Connections that broke are replaced; a call that was under way is not repeated, since its event may
    have been kept.

    Args:
        conninfo: `postgresql://user@host/name` or a libpq connection string. Its password is in no error and no log.
        schema: Where the tables are; made if it is missing.
        max_connections: How many the pool may open; a call beyond them waits.
        timeout_s: Seconds for getting a connection, and again for each statement.
        summariser: Makes the summaries; None takes first sentences, see `episode_summary`.
        embedder: Makes vectors. Where the server has pgvector, the nearest lines by cosine then join the ranking (see
            `reciprocal_rank_fusion`), so that a line is also found without a common word; elsewhere it is not called.

    Raises:
        ConfigError: libpq cannot read `conninfo`, or a number is out of its range.
        TypeError: `conninfo` is no text.
    """

    def __init__(
        self,
        conninfo: str,
        *,
        schema: str = "llm_common",
        max_connections: int = 8,
        timeout_s: float = 10.0,
        summariser: Summariser | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        _check_conninfo(conninfo)
        for name, value in (("max_connections", max_connections), ("timeout_s", timeout_s)):
            if not 0 < value < math.inf:
                raise ConfigError(f"{name} is {value}; give a number above 0", variable=name, value=str(value))
        self._conninfo = conninfo
        self._schema = schema
        self._max_connections = max_connections
        self._timeout_s = timeout_s
        self._summariser = summariser
        self._embedder = embedder
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._has_vectors = False
        self._opening = asyncio.Lock()
        self._closed = False

    async def append_event(self, session_id: str, event: Event) -> None:
        """Keeps the event; see `MemoryWriter.append_event`."""
        check_event(session_id, event)
        words = scoped_words(session_id, event.text)
        row = {
            "session_id": session_id,
            "role": str(event.role),
            "text": event.text,
            "timestamp": event.timestamp,
            "metadata": Jsonb(event.metadata),
            "word_count": len(words),
            "words": " ".join(words),
            "tags": event_tags(session_id, event),
        }
        vector = await self._vector(event.text)
        async with self._connected() as connection, connection.transaction():
            [[position]] = await self._rows(connection, _APPEND, row)
            if vector is not None:
                await connection.execute(qualified(_ADD_VECTOR, self._schema), [session_id, position, str(vector)])

    async def recent(self, session_id: str, *, limit: int = 20) -> list[Event]:
        """The newest events, oldest first; see `Memory.recent`."""
        check_limit(session_id, limit)
        async with self._connected() as connection:
            rows = await self._rows(connection, _RECENT, [session_id, max(limit, 0)])
        return [_event(*row) for row in reversed(rows)]

    async def summarize_episode(self, session_id: str) -> str | None:
        """The summary of the newest events; see `MemoryWriter.summarize_episode`."""
        return await summarised(await self.recent(session_id, limit=SUMMARISED_EVENTS), self._summariser)

    async def retrieve(self, query: str, k: int, filters: MemoryFilters) -> list[MemoryHit]:
        """The events that share a word with the query, best first; see `MemoryReader.retrieve`."""
        session_id = check_search(query, k, filters)
        if k <= 0 or not query.strip():
            return []
        vector = await self._vector(query)
        async with self._connected() as connection:
            best = await self._by_words(connection, query, k, filters)
            if vector is not None:
                best = _fused(best, await self._by_vector(connection, vector, filters))[:k]
            rows = await self._rows(connection, _EVENTS, [session_id, [position for position, _ in best]])
        events = {position: _event(*columns) for position, *columns in rows}
        return [MemoryHit(session_id=session_id, event=events[position], score=score) for position, score in best]

    async def aclose(self) -> None:
        """Closes the connections; the memory cannot be used afterwards. Safe to call twice."""
        self._closed = True
        async with self._opening:
            pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def __aenter__(self) -> Self:
        async with self._connected():
            return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _by_words(
        self, connection: AsyncConnection, query: str, k: int, filters: MemoryFilters
    ) -> list[tuple[int, float]]:
        session_id, terms = filters.session_id, scoped_terms(filters.session_id, query)
        [(lines,)] = await self._rows(connection, _LINES, [session_id]) or [(0,)]
        wanted = {"terms": terms, "session_id": session_id, "tags": filter_tags(filters), "limit": MAX_MATCHES}
        matches: defaultdict[int, list[int]] = defaultdict(list)
        for number, position in await self._rows(connection, _MATCHES, wanted):
            matches[number].append(position)
        weights = shortlist(list(matches.values()), lines=lines, k=k)
        word_counts = dict(await self._rows(connection, _WORD_COUNTS, [session_id, list(weights)]))
        return best_lines(weights, word_counts, lines=lines, k=k)

    async def _by_vector(self, connection: AsyncConnection, vector: list[float], filters: MemoryFilters) -> list[int]:
        wanted = {"session_id": filters.session_id, "tags": filter_tags(filters), "limit": _NEAREST}
        rows = await self._rows(connection, _NEAREST_LINES, wanted | {"vector": str(vector), "size": len(vector)})
        return [position for (position,) in rows]

    async def _vector(self, text: str) -> list[float] | None:
        if self._embedder is None:
            return None
        with _as_store_errors(self._timeout_s):
            await self._opened()  # only the server knows whether it has pgvector
        if not self._has_vectors:
            return None
        [vector] = await self._embedder([text])
        return [float(number) for number in vector]

    async def _rows(
        self, connection: AsyncConnection, statement: LiteralString, values: Sequence[Any] | dict[str, Any]
    ) -> list[tuple[Any, ...]]:
        return await (await connection.execute(qualified(statement, self._schema), values)).fetchall()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        """A connection of the pool for a block, whose database errors are raised as `StoreError`."""
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
                "autocommit": True,
                "client_encoding": "utf8",
                "connect_timeout": max(math.ceil(self._timeout_s), 2),
            },
            min_size=1,
            max_size=self._max_connections,
            timeout=self._timeout_s,
            reconnect_timeout=self._timeout_s,
            configure=self._configure,
            check=AsyncConnectionPool.check_connection,
            open=False,
            name="llm-common-memory",
        )
        try:
            await pool.open(wait=True, timeout=self._timeout_s)
            async with pool.connection() as connection:
                await _migrate(connection, self._schema)
                self._has_vectors = self._embedder is not None and await _prepare_vectors(connection, self._schema)
        except BaseException:
            await pool.close()
            raise
        if self._embedder is not None and not self._has_vectors:
            _log.info("the server has no pgvector; memories are found by their words alone")
        return pool

    async def _configure(self, connection: AsyncConnection) -> None:
        await connection.execute(
            "SELECT set_config('statement_timeout', %s, false), set_config('timezone', 'UTC', false)",
            [str(math.ceil(self._timeout_s * 1000))],
        )


def _check_conninfo(conninfo: object) -> None:
    """Refuses at once what a pool would try for its whole timeout; no error shows the text, which holds a password."""
    if not isinstance(conninfo, str):
        raise TypeError(f"conninfo is a {type(conninfo).__name__}; pass a text such as 'postgresql://user@host/name'")
    try:
        ports = str(conninfo_to_dict(conninfo).get("port") or "")
    except psycopg.ProgrammingError:
        raise ConfigError(
            "conninfo is no connection string; pass 'postgresql://user@host/name' or 'host=… dbname=… user=…' "
            "with libpq's parameter names",
            variable="conninfo",
        ) from None  # its words quote the text
    if not all(port.isdecimal() for port in ports.split(",") if port):
        hint = "the port in conninfo is no number; characters such as @ : / in a password must be percent-encoded"
        raise ConfigError(hint, variable="conninfo")


@contextmanager
def _as_store_errors(timeout_s: float) -> Iterator[None]:
    try:
        yield
    except (errors.QueryCanceled, errors.LockNotAvailable) as exc:
        raise LockTimeoutError(f"the server took over {timeout_s:g} s; raise timeout_s, or see what holds it") from exc
    except errors.DiskFull as exc:
        raise StoreFullError("no room left on the database server; free some, nothing was written") from exc
    except psycopg.OperationalError as exc:
        raise StoreError("the database server cannot be reached; check conninfo and the server") from exc
    except psycopg.Error as exc:
        raise StoreError(f"the database server refused ({exc.sqlstate}); see its log and the cause") from exc


def _fused(by_words: list[tuple[int, float]], by_vector: list[int]) -> list[tuple[int, float]]:
    rankings = [[str(position) for position, _ in by_words], [str(position) for position in by_vector]]
    return [(int(hit.key), hit.score) for hit in reciprocal_rank_fusion(rankings)]


def _event(role: str, text: str, timestamp: datetime, metadata: dict[str, Scalar]) -> Event:
    return Event(role=MessageRole(role), text=text, timestamp=timestamp, metadata=metadata)
