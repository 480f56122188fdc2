"""Tests `PostgresMemory` with a real server."""

import asyncio
import hashlib
import itertools
from collections.abc import AsyncIterator
from functools import partial

import psycopg
import pytest
from blockbuster import BlockBuster

from llm_common.errors import LockTimeoutError, StoreError
from llm_common.memory import Event, Memory, MemoryFilters, PostgresMemory
from llm_common.memory.postgres import _MIGRATIONS, qualified
from tests.contracts.memory_contract import FactMemoryContract
from tests.memory.stories import wrong_stories
from tests.memory.writers import faults, write_together
from tests.services.postgres_server import PostgresServer

pytestmark = pytest.mark.services

NUMBERS = itertools.count()
FILTERS = MemoryFilters(session_id="s")


@pytest.fixture
def schema() -> str:
    """Return a new schema for each test, since all tests share the server."""
    return f'memory "{next(NUMBERS)}"'


@pytest.fixture
async def memory(postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresMemory]:
    async with PostgresMemory(postgres.conninfo, schema=schema) as memory:
        yield memory


class TestPostgresMemory(FactMemoryContract):
    pass


async def test_events_outlive_the_memory_s3_05(postgres: PostgresServer, schema: str) -> None:
    for number in range(2):
        async with PostgresMemory(postgres.conninfo, schema=schema) as memory:
            await memory.append_event("s", Event(text=f"zebra {number}"))
    async with PostgresMemory(postgres.conninfo, schema=schema) as memory:
        assert [event.text for event in await memory.recent("s")] == ["zebra 0", "zebra 1"]


async def test_the_newest_fact_wins_in_every_story_s3_04(memory: PostgresMemory) -> None:
    assert await wrong_stories(memory) == []


def traces(postgres: PostgresServer, *secrets: str) -> list[str]:
    """List the files of tables and indexes that contain a secret."""
    files = [file for file in (postgres.folder / "data/base").rglob("*") if file.is_file()]
    return [
        file.name
        for file in files
        if any(secret.encode() in file.read_bytes() for secret in secrets)
    ]


async def test_an_erasure_leaves_no_byte_in_tables_and_indexes_s3_05(
    postgres: PostgresServer, memory: PostgresMemory, schema: str
) -> None:
    await memory.append_event("s", Event(text="plain"))
    for number in range(60):
        text = f"the jabberwock likes {number} marzipans"
        await memory.append_event(
            "marzipan", Event(text=text, metadata={"jabberwock": number}), user="jabberwock"
        )
    async with await psycopg.AsyncConnection.connect(postgres.conninfo, autocommit=True) as other:
        await other.execute("CHECKPOINT")
        assert await asyncio.to_thread(traces, postgres, "jabberwock", "marzipan")
        assert await memory.forget(user="jabberwock") == 60
        await other.execute("CHECKPOINT")  # until then the server keeps the old files
    assert await asyncio.to_thread(traces, postgres, "jabberwock", "marzipan") == []
    assert [event.text for event in await memory.recent("s")] == ["plain"]
    assert await memory.append_event("marzipan", Event(text="back"), user="jabberwock")


async def test_an_erasure_that_waits_too_long_raises_s3_05(
    postgres: PostgresServer, schema: str
) -> None:
    async with PostgresMemory(
        postgres.conninfo, schema=schema, timeout_s=0.5, max_connections=1
    ) as memory:
        await memory.append_event("s", Event(text="zebra"))
        async with await psycopg.AsyncConnection.connect(postgres.conninfo) as other:
            await other.execute(
                qualified("LOCK TABLE {schema}.events IN ACCESS SHARE MODE", schema)
            )
            with pytest.raises(LockTimeoutError):
                await memory.forget(session_id="s")
            assert await memory.recent("s") == []
        assert await memory.forget(session_id="s") == 0


async def test_older_tables_are_migrated_s3_05(postgres: PostgresServer, schema: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres.conninfo) as other:
        await other.execute(qualified("CREATE SCHEMA {schema}", schema))
        await other.execute(
            qualified("CREATE TABLE {schema}.migrations (version integer PRIMARY KEY)", schema)
        )
        await other.execute(qualified("INSERT INTO {schema}.migrations VALUES (1)", schema))
        for statement in _MIGRATIONS[0]:
            await other.execute(qualified(statement, schema))
        await other.execute(qualified("INSERT INTO {schema}.sessions VALUES ('s', 1)", schema))
        prefix = "".join(
            "bcdfghjklmnpqrst"[int(digit, 16)] for digit in hashlib.sha256(b"s").hexdigest()[:12]
        )
        await other.execute(
            qualified(
                "INSERT INTO {schema}.events VALUES ('s', 1, 'user', 'zebra', now(), '{{}}', 1, "
                "%s, '{{}}')",
                schema,
            ),
            [prefix + "zebra"],
        )
    async with PostgresMemory(postgres.conninfo, schema=schema) as memory:
        [hit] = await memory.retrieve("zebra", 4, FILTERS)
        await memory.append_event("s", Event(text="zebra again"), supersedes=hit.id)
        assert [event.text for event in await memory.recent("s")] == ["zebra again"]
        assert await memory.forget(session_id="s") == 2


async def test_english_is_stemmed_s3_05(memory: Memory) -> None:
    await memory.append_event("s", Event(text="several uploads were failing"))
    for query in ("fail", "upload", "FAILED"):
        assert len(await memory.retrieve(query, 4, FILTERS)) == 1


async def test_eight_processes_lose_and_mix_no_events_s3_05_f_145(
    postgres: PostgresServer, schema: str
) -> None:
    make = partial(
        PostgresMemory, postgres.conninfo, schema=schema, max_connections=2, timeout_s=30
    )
    await asyncio.to_thread(write_together, make)
    async with make() as memory:
        assert not await faults(memory)


async def test_the_longest_indexed_text_fits_s3_05(memory: Memory) -> None:
    texts = {
        "words": "".join(
            chr(97 + (number * number) % 26) + " " * (number % 7 == 0) for number in range(20_000)
        ),
        "scripts": "".join(chr(0x4E00 + number) for number in range(20_000)),
        "parts": "aB1" * 10_000,
    }
    for session_id, text in texts.items():
        await memory.append_event(session_id, Event(text=text))
        assert (await memory.recent(session_id))[0].text == text


async def test_an_unreachable_server_raises_without_the_password_s3_05() -> None:
    memory = PostgresMemory("postgresql://user:hunter2@127.0.0.1:9/none", timeout_s=1)
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            await memory.recent("s")
        assert "hunter2" not in f"{caught.value} {caught.value.__cause__} {memory!r}"
    await memory.aclose()
    with pytest.raises(StoreError, match="closed"):
        await memory.recent("s")


async def test_broken_connections_are_replaced_s3_05(postgres: PostgresServer, schema: str) -> None:
    async with PostgresMemory(postgres.conninfo, schema=schema, timeout_s=2) as memory:
        await memory.append_event("s", Event(text="zebra"))
        await asyncio.to_thread(postgres.stop)
        with pytest.raises(StoreError):
            await memory.recent("s")
        await asyncio.to_thread(postgres.start)
        assert [event.text for event in await memory.recent("s")] == ["zebra"]


async def test_a_slow_server_raises_s3_05(postgres: PostgresServer, schema: str) -> None:
    async with PostgresMemory(postgres.conninfo, schema=schema, timeout_s=0.5) as memory:
        await memory.append_event("s", Event(text="zebra"))
        async with await psycopg.AsyncConnection.connect(postgres.conninfo) as other:
            await other.execute(
                qualified("LOCK TABLE {schema}.events IN ACCESS EXCLUSIVE MODE", schema)
            )
            with pytest.raises(LockTimeoutError):
                await memory.recent("s")
        assert len(await memory.recent("s")) == 1


async def test_a_cancelled_call_leaves_the_memory_usable_s3_05(memory: Memory) -> None:
    appending = [
        asyncio.create_task(memory.append_event("s", Event(text="zebra"))) for _ in range(20)
    ]
    await asyncio.sleep(0.005)
    for task in appending:
        task.cancel()
    await asyncio.gather(*appending, return_exceptions=True)
    await memory.append_event("s", Event(text="zebra at last"))
    events = await memory.recent("s", limit=100)
    assert events[-1].text == "zebra at last"
    assert len(await memory.retrieve("zebra", 100, FILTERS)) == len(events)


async def test_the_event_loop_never_waits_for_the_server_s3_05(
    memory: Memory, blockbuster: BlockBuster
) -> None:
    await memory.append_event("s", Event(text="zebra"))
    assert len(await memory.retrieve("zebra", 4, FILTERS)) == 1
