"""The tables of a memory in PostgreSQL, and how they come to be."""

from typing import LiteralString

from psycopg import AsyncConnection
from psycopg.sql import SQL, Composed, Identifier, Literal

from llm_common.errors import StoreError

__all__ = ["migrate", "prepare_vectors", "qualified"]

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


async def migrate(connection: AsyncConnection, schema: str) -> None:
    """Brings the tables up to date; one process does it while the others wait, and nothing happens when they are.

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


async def prepare_vectors(connection: AsyncConnection, schema: str) -> bool:
    """Whether the server has pgvector; if so, its table is there afterwards.

    Raises:
        psycopg.Error: The server refused, such as for want of the right to install the extension.
    """
    async with connection.transaction():
        await connection.execute(SQL("SELECT pg_advisory_xact_lock({})").format(Literal(_LOCK)))
        found = await connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
        if await found.fetchone() is None:
            return False
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        await connection.execute(qualified(_VECTORS, schema))
        return True
