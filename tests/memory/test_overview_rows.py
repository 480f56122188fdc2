"""Lists of sessions and events over any memory with rows, and what a user's memory passes on."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, LiteralString

import pytest

import llm_common.memory
from llm_common.core import MessageRole
from llm_common.errors import InvalidIdError, StoreError
from llm_common.memory import Event, InMemoryMemory, MemoryFilters, SqliteMemory, UserMemory
from llm_common.memory.overview import list_events, list_sessions


class Scripted:
    """A memory that answers each SELECT in turn."""

    def __init__(self, *answers: list[tuple[Any, ...]]) -> None:
        self._answers = [*answers]

    async def read_rows(
        self, statement: LiteralString, values: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        return self._answers.pop(0)


EVENT = (7, "s", "s", "port", 1, "user", "hello", "2026-01-01T12:00:00+00:00", '{"n": 1}')


async def test_an_event_has_its_key_and_its_metadata() -> None:
    [event], total = await list_events(Scripted([EVENT], [(9,)]), session_id="s", limit=1)
    assert (event.id, event.key, event.current, total) == ("7", "port", True, 9)
    assert event.event == Event(
        role=MessageRole.USER,
        text="hello",
        timestamp=datetime(2026, 1, 1, 12, tzinfo=UTC),
        metadata={"n": 1},
    )


@pytest.mark.parametrize("place", [5, 7, 8])
async def test_a_damaged_event_is_an_error_of_the_store(place: int) -> None:
    row = [*EVENT]
    row[place] = "{broken"
    with pytest.raises(StoreError, match="a stored event is damaged; restore the memory"):
        await list_events(Scripted([tuple(row)], [(1,)]), session_id="s", limit=1)


async def test_a_damaged_time_of_a_session_is_an_error_of_the_store() -> None:
    with pytest.raises(StoreError, match="a stored event is damaged"):
        await list_sessions(Scripted([("s", "s", 1, 1, "yesterday")], [(1,)]), limit=1)


async def test_a_page_may_be_of_any_size_and_behind_the_last(tmp_path: Path) -> None:
    async with SqliteMemory(tmp_path / "m.db") as memory:
        await memory.append_event("s", Event(text="zebra"))
        for number in (2**63 - 1, 2**63, 10**30):
            sessions, _ = await list_sessions(memory, limit=number)
            assert [session.session_id for session in sessions] == ["s"]
            assert await list_sessions(memory, limit=9, offset=number) == ([], 1)
            assert await list_events(memory, session_id="s", limit=9, offset=number) == ([], 1)


@pytest.mark.parametrize("user", ["", "a\nb"])
async def test_sessions_of_an_invalid_user_are_not_listed(user: str) -> None:
    with pytest.raises(InvalidIdError, match=r"the user .* is not allowed"):
        await list_sessions(Scripted(), user=user, limit=1)


async def test_sessions_are_listed_in_pages_for_one_user(tmp_path: Path) -> None:
    async with SqliteMemory(tmp_path / "memory.sqlite") as memory:
        for day, (user, session) in enumerate([("ann", "a"), ("ann", "b"), (None, "c")], 1):
            event = Event(text="zebra", timestamp=datetime(2026, 1, day, tzinfo=UTC))
            await memory.append_event(session, event, user=user)
        everything, total = await list_sessions(memory, limit=9)
        assert [(entry.user, entry.session_id) for entry in everything] == [
            (None, "c"),
            ("ann", "b"),
            ("ann", "a"),
        ]
        assert total == 3
        page, total = await list_sessions(memory, user="ann", limit=1, offset=1)
        assert ([entry.session_id for entry in page], total) == (["a"], 2)


async def test_a_users_memory_passes_keys_on() -> None:
    memory = InMemoryMemory()
    hers = UserMemory(memory, "ann")
    await hers.append_event("s", Event(text="the port is 1"), key="port")
    await hers.append_event("s", Event(text="the port is 2"), key="port")
    [hit] = await hers.retrieve("port", 5, MemoryFilters(session_id="s", user="bob"))
    assert (hit.event.text, hit.key) == ("the port is 2", "port")


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="RedisMemory"):
        _ = llm_common.memory.RedisMemory
