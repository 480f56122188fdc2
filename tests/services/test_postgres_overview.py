"""Tests `llm-common memory` with a memory on PostgreSQL."""

import asyncio

import psycopg
import pytest

from llm_common.errors import StoreError
from llm_common.memory import Event
from llm_common.memory.overview import list_events, list_sessions
from llm_common.memory.postgres import PostgresMemory
from tests.apps.cli.running import run_json
from tests.services.postgres_server import PostgresServer

pytestmark = pytest.mark.services


async def test_sessions_and_events_are_listed_and_forgotten(postgres: PostgresServer) -> None:
    schema = "overview_listed"
    async with PostgresMemory(postgres.conninfo, schema=schema) as memory:
        await memory.append_event("s1", Event(text="I live in Oslo"), user="ann", key="address")
        await memory.append_event(
            "s1", Event(text="It is Rome now", metadata={"n": 1}), user="ann", key="address"
        )
        await memory.append_event("s1", Event(text="tea"))
        sessions, total = await list_sessions(memory, user="ann", limit=5)
        assert [(row.user, row.session_id, row.events, row.current) for row in sessions] == [
            ("ann", "s1", 2, 1)
        ]
        assert total == 1
        events, total = await list_events(memory, user="ann", session_id="s1", limit=1)
        assert ([row.event.text for row in events], events[0].event.metadata, total) == (
            ["It is Rome now"],
            {"n": 1},
            2,
        )

    async def output_of(command: str, *options: str) -> dict[str, object]:
        return await asyncio.to_thread(
            run_json, command, postgres.conninfo, "--schema", schema, *options
        )

    assert (await output_of("memory list"))["total"] == 2
    assert (await output_of("memory search", "Oslo", "--user", "ann"))["hits"]
    assert (await output_of("memory forget", "--user", "ann", "--yes"))["events"] == 2
    assert (await output_of("memory list"))["total"] == 1


async def test_reading_creates_no_tables_and_writes_nothing(postgres: PostgresServer) -> None:
    async with PostgresMemory(
        postgres.conninfo, schema="overview_absent", read_only=True
    ) as memory:
        with pytest.raises(StoreError):
            await list_sessions(memory, limit=5)
        with pytest.raises(StoreError):
            await memory.append_event("s1", Event(text="never"))
    async with await psycopg.AsyncConnection.connect(postgres.conninfo) as connection:
        cursor = await connection.execute(
            "SELECT 1 FROM pg_namespace WHERE nspname = 'overview_absent'"
        )
        assert await cursor.fetchall() == []
