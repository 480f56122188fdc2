"""What `PostgresMemory` sends, and how it reads answers, without a database.

A loopback server answers psycopg from a script. What the statements do is for `tests/services`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from llm_common.core import MessageRole
from llm_common.errors import LockTimeoutError, StoreError, StoreFullError
from llm_common.memory import Event, MemoryFilters, PostgresMemory
from tests.memory.scripted_postgres import (
    BOOL,
    INT8,
    JSON,
    TEXT,
    TIMESTAMP,
    Answer,
    Failure,
    Rows,
    ScriptedPostgres,
    scripted_postgres,
)

VERSION = "coalesce(max(version)"
UP_TO_DATE: dict[str, Answer] = {VERSION: Rows((INT8,), [("3",)])}
APPENDED = Rows((INT8,), [("7",)])
NO_NEWEST = Rows((INT8, TEXT, BOOL))
EVENT_TYPES = (TEXT, TEXT, TIMESTAMP, JSON)
NOON = "2026-01-01 12:00:00+00"


@asynccontextmanager
async def memory_with(
    answers: Mapping[str, Answer], **options: Any
) -> AsyncIterator[tuple[PostgresMemory, ScriptedPostgres]]:
    """Yield a memory whose tables are up to date, and the server behind it."""
    async with scripted_postgres({**answers, **UP_TO_DATE}) as server:
        options = {"max_connections": 1, "timeout_s": 30.0} | options
        async with PostgresMemory(server.conninfo, **options) as memory:
            server.sent.clear()
            yield memory, server


def event_row(text: str) -> tuple[str, ...]:
    return ("user", text, NOON, '{"n": 1}')


def stored(*rows: tuple[int, str, bool]) -> Rows:
    """Return the events of a search by position, text and whether they are current."""
    types = (INT8, INT8, TEXT, TEXT, BOOL, *EVENT_TYPES)
    return Rows(
        types,
        [
            (
                str(position),
                str(100 + position),
                "s",
                None,
                "t" if current else "f",
                *event_row(text),
            )
            for position, text, current in rows
        ],
    )


async def test_a_memory_sets_its_limits_and_migrates_an_empty_database() -> None:
    async with (
        scripted_postgres({VERSION: Rows((INT8,), [("0",)])}) as server,
        PostgresMemory(server.conninfo, schema="mine", timeout_s=2.5),
    ):
        pass
    [statement, values] = server.sent[0]
    assert "default_transaction_read_only" in statement
    assert values == ["2500", "off"]
    steps = ["BEGIN", "pg_advisory_xact_lock", "CREATE SCHEMA", "events_words", "events_fact"]
    steps += ["DROP TABLE", "migrations VALUES", "COMMIT"]
    assert server.statements(*steps) == [
        "BEGIN",
        "pg_advisory_xact_lock",
        "CREATE SCHEMA",
        "events_words",
        "migrations VALUES",
        "events_fact",
        "migrations VALUES",
        "DROP TABLE",
        "migrations VALUES",
        "COMMIT",
    ]
    assert all('"mine".' in text for text, _ in server.sent if "CREATE TABLE" in text)


async def test_tables_of_a_newer_version_are_not_used() -> None:
    async with scripted_postgres({VERSION: Rows((INT8,), [("4",)])}) as server:
        memory = PostgresMemory(server.conninfo, timeout_s=30.0)
        with pytest.raises(StoreError, match="version 4, newer than this llm-common; upgrade it"):
            await memory.recent("s")
        await memory.aclose()
    assert server.statements("COMMIT", "ROLLBACK") == ["ROLLBACK"]


async def test_a_memory_that_only_reads_creates_nothing() -> None:
    async with (
        scripted_postgres(UP_TO_DATE) as server,
        PostgresMemory(server.conninfo, read_only=True, timeout_s=30.0) as memory,
    ):
        assert await memory.recent("s") == []
    assert server.statements("CREATE", "LOCK", "INSERT", "pg_advisory") == []


@pytest.mark.parametrize(
    ("sqlstate", "error", "problem"),
    [
        ("57014", LockTimeoutError, "the server took over 30 s"),
        ("55P03", LockTimeoutError, "check the server's locks"),
        ("53100", StoreFullError, "disk of the database server is full"),
        ("57P01", StoreError, "cannot be reached"),
        ("42P01", StoreError, r"reported an error \(42P01\)"),
        (None, StoreError, "cannot be reached"),
    ],
)
async def test_errors_of_the_server_have_our_classes(
    sqlstate: str | None, error: type[StoreError], problem: str
) -> None:
    async with memory_with({"ORDER BY position": Failure(sqlstate)}) as (memory, server):
        with pytest.raises(error, match=problem) as caught:
            await memory.recent("s")
        assert type(caught.value) is error
        assert "secret" not in str(caught.value)
        del server.answers["ORDER BY position"]
        assert await memory.recent("s") == []  # with another connection, if need be


async def test_a_closed_memory_raises_and_closes_again() -> None:
    async with memory_with({}) as (memory, _):
        await memory.aclose()
        await memory.aclose()
        with pytest.raises(StoreError, match="this memory is closed"):
            await memory.recent("s")


APPENDING = ("BEGIN", 'INSERT INTO "llm_common".sessions', "tags <@", "WITH counted", "COMMIT")


async def test_an_event_is_appended_in_one_transaction_under_its_lock() -> None:
    async with memory_with({"tags <@": NO_NEWEST, "FROM counted": APPENDED}) as (
        memory,
        server,
    ):
        event = Event(text="the port is 8443", metadata={"n": 1})
        assert await memory.append_event("s", event, user="alice", key="port") == "7"
        assert server.statements(*APPENDING) == [*APPENDING]
        assert server.statements("UNION", "superseded = true") == ["UNION", "superseded = true"]
        [statement] = [text for text, _ in server.sent if "WITH counted" in text]
        values = server.values_of("WITH counted")
        assert "8443" in " ".join(map(str, values))
        assert {"s", "user", "the port is 8443", '{"n": 1}', "port"} <= {*values}
        assert "to_tsvector('english', " in statement


async def test_an_event_that_was_just_stored_is_not_stored_again() -> None:
    newest = Rows((INT8, TEXT, BOOL), [("5", "user", "t")])
    async with memory_with({"tags <@": newest}) as (memory, server):
        assert await memory.append_event("s", Event(text="hello")) == "5"
        assert server.statements("WITH counted", "COMMIT") == ["COMMIT"]


async def test_a_fact_that_does_not_exist_cannot_be_superseded() -> None:
    async with memory_with({"tags <@": NO_NEWEST}) as (memory, server):
        with pytest.raises(StoreError, match="12"):
            await memory.append_event("s", Event(text="hello"), supersedes="12")
        assert server.statements("WITH counted", "ROLLBACK") == ["ROLLBACK"]


async def test_a_new_fact_has_the_number_of_the_one_that_it_supersedes() -> None:
    answers: dict[str, Answer] = {
        "tags <@": NO_NEWEST,
        'coalesce(fact, id) FROM "llm_common".events WHERE id': Rows((INT8,), [("3",)]),
        "UNION": Rows((INT8, INT8), [("9", "4"), ("3", "4")]),
        "FROM counted": APPENDED,
    }
    async with memory_with(answers) as (memory, server):
        await memory.append_event("s", Event(text="hello"), supersedes="3")
        assert server.values_of("superseded = true") == ["4", "{9,3}"]
        assert server.values_of("WITH counted")[-1] == "4"


async def test_recent_events_are_returned_oldest_first() -> None:
    rows = Rows(EVENT_TYPES, [event_row("second"), event_row("first")])
    async with memory_with({"ORDER BY position": rows}) as (memory, server):
        events = await memory.recent("s", limit=2, user="alice", history=True)
        assert [event.text for event in events] == ["first", "second"]
        assert events[0] == Event(
            role=MessageRole.USER,
            text="first",
            timestamp=datetime(2026, 1, 1, 12, tzinfo=UTC),
            metadata={"n": 1},
        )
        [_, session_id, history, limit] = server.values_of("ORDER BY position")
        assert (session_id, history, limit) == ("s", "1", "2")


def matching(*positions: int) -> dict[str, Answer]:
    """Return the answers of a search, whose only term is in lines of four words."""
    numbers = [(str(position),) for position in positions]
    return {
        "SELECT lines FROM": Rows((INT8,), [("50",)]),
        "WITH ORDINALITY": Rows((INT8, INT8), [("1", *number) for number in numbers]),
        "word_count": Rows((INT8, INT8, BOOL), [(*number, "4", "t") for number in numbers]),
    }


@pytest.mark.parametrize(("history", "texts"), [(False, ["new"]), (True, ["new", "old"])])
async def test_hits_that_changed_meanwhile_are_left_out(
    history: bool, texts: Sequence[str]
) -> None:
    # Line 3 was erased between two statements, and line 2 superseded.
    answers = matching(3, 2, 1) | {
        "SELECT position, id": stored((1, "new", True), (2, "old", False))
    }
    async with memory_with(answers) as (memory, _):
        filters = MemoryFilters(session_id="s", history=history)
        hits = await memory.retrieve("port", 5, filters)
        assert [hit.event.text for hit in hits] == texts
        assert hits[0].id == "101"
        assert (hits[0].session_id, hits[0].key, hits[0].current) == ("s", None, True)


async def test_a_search_returns_at_most_k_hits_and_asks_for_no_more() -> None:
    answers = matching(3, 2, 1) | {
        "SELECT position, id": stored((1, "a", True), (2, "b", True), (3, "c", True))
    }
    async with memory_with(answers) as (memory, server):
        filters = MemoryFilters(session_id="s")
        assert len(await memory.retrieve("port", 2, filters)) == 2
        server.sent.clear()
        assert await memory.retrieve("port", 0, filters) == []
        assert await memory.retrieve("  ", 5, filters) == []
        assert server.sent == []


FORGETTING = ("FOR UPDATE", "RETURNING id", "NOT EXISTS", "COMMIT")
REWRITING = (
    "set_config('lock_timeout'",
    "SET statement_timeout = 0",
    "VACUUM",
    "RESET lock_timeout",
)


async def test_an_erasure_locks_deletes_and_rewrites() -> None:
    answers: dict[str, Answer] = {
        "FOR UPDATE": Rows((TEXT,), [("a",), ("b",)]),
        "RETURNING id": Rows((INT8,), [("1",), ("2",), ("3",)]),
    }
    async with memory_with(answers) as (memory, server):
        assert await memory.forget(session_id="s") == 3
        assert server.statements(*FORGETTING) == [*FORGETTING]
        assert server.values_of("NOT EXISTS") == ["{a,b}"]
        rewritten = [text for text, _ in server.sent if "VACUUM" in text]
        assert rewritten == [
            'VACUUM (FULL, ANALYZE) "llm_common"."events"',
            'VACUUM (FULL, ANALYZE) "llm_common"."sessions"',
        ]
        before, after = REWRITING[:2], REWRITING[3:]
        assert server.statements(*REWRITING) == [*before, "VACUUM", "VACUUM", *after]


async def test_the_limits_return_after_a_rewrite_that_failed() -> None:
    answers: dict[str, Answer] = {"VACUUM": Failure("55P03")}
    async with memory_with(answers) as (memory, server):
        with pytest.raises(LockTimeoutError):
            await memory.forget(user="alice")
        assert server.statements("VACUUM", "RESET lock_timeout", "set_config('statement") == [
            "VACUUM",
            "RESET lock_timeout",
            "set_config('statement",
        ]
