"""Tests facts that change, and erasures from the files of `SqliteMemory`."""

import base64
import gzip
import shutil
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from llm_common.core import MessageRole
from llm_common.errors import InvalidIdError, LockTimeoutError, StoreError
from llm_common.memory import Event, InMemoryMemory, MemoryFilters, SqliteMemory, UserMemory
from llm_common.memory.recall import MAX_MATCHES
from tests.memory.stored import run_sql
from tests.memory.stories import STORIES, wrong_stories

HERE = MemoryFilters(session_id="s")
SECRETS = ("swordfish", "marzipan", "quixotic", "Jabberwock", "jabberwock", "umbrella")


async def test_the_newest_fact_wins_in_every_story_s3_04(tmp_path: Path) -> None:
    assert len(STORIES) == 20
    assert await wrong_stories(InMemoryMemory()) == []
    async with SqliteMemory(tmp_path / "m.db") as memory:
        assert await wrong_stories(memory) == []


def traces(path: Path) -> list[str]:
    """List the secrets in the database's files. FTS5 stores a word without its stem's ending."""
    secrets = []
    for file in sorted(path.parent.iterdir()):
        content = file.read_bytes()
        secrets += [
            f"{secret} in {file.name}" for secret in SECRETS if secret[:-1].encode() in content
        ]
    return secrets


async def store_secrets(memory: SqliteMemory) -> str:
    """Fill the memory, and return the id of the event with the secrets."""
    for number in range(150):
        await memory.append_event("s", Event(text=f"plain line {number} of the session"))
        await memory.append_event("s", Event(text=f"line {number} of a user"), user="someone")
    text = "the swordfish likes marzipan " + "and quixotic Jabberwocks " * 400
    secret = await memory.append_event(
        "umbrella", Event(text=text, metadata={"marzipan": "swordfish"}), key="umbrella"
    )
    for number in range(150, 300):
        await memory.append_event("s", Event(text=f"plain line {number} of the session"))
    return secret


ERASURES: dict[str, Callable[[SqliteMemory, str], Awaitable[int]]] = {
    "by id": lambda memory, secret: memory.forget(id=secret),
    "by session": lambda memory, _: memory.forget(session_id="umbrella"),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.db"


@pytest.fixture
async def memory(path: Path) -> AsyncIterator[SqliteMemory]:
    async with SqliteMemory(path) as memory:
        yield memory


@pytest.mark.parametrize("erase", ERASURES.values(), ids=ERASURES)
async def test_an_erasure_leaves_no_byte_in_any_file_s3_05(
    path: Path, memory: SqliteMemory, erase: Callable[[SqliteMemory, str], Awaitable[int]]
) -> None:
    secret = await store_secrets(memory)
    async with SqliteMemory(path) as other:
        await other.recent("s")
        assert traces(path)
        assert await erase(memory, secret) == 1
        assert traces(path) == []  # while the file is open and has a write-ahead log
        assert await memory.retrieve("swordfish", 4, MemoryFilters(session_id="umbrella")) == []
        assert len(await other.retrieve("plain", 999, HERE)) == 300
        assert len(await memory.recent("s", limit=999, user="someone")) == 150
        await other.append_event("s", Event(text="plain line after it"))
    [hit] = await memory.retrieve("after", 1, HERE)
    assert hit.event.text == "plain line after it"
    await memory.aclose()
    assert traces(path) == []


async def test_an_erased_user_leaves_no_byte_in_any_file_s3_05(
    path: Path, memory: SqliteMemory
) -> None:
    mine = UserMemory(memory, "Jabberwock")
    for number in range(50):
        for session_id in ("swordfish", "marzipan"):
            await mine.append_event(session_id, Event(text=f"umbrella {number}"), key="quixotic")
    await memory.append_event("s", Event(text="plain"))
    assert await memory.forget(user="Jabberwock") == 100
    assert traces(path) == []
    assert [event.text for event in await memory.recent("s")] == ["plain"]


async def test_an_erasure_after_an_error_leaves_no_byte_s3_05(
    path: Path, memory: SqliteMemory
) -> None:
    await store_secrets(memory)
    run_sql(path, "UPDATE events SET metadata = '{' WHERE session_id = 's'")
    # The test keeps the errors, whose tracebacks keep what the failed calls had open.
    with pytest.raises(InvalidIdError, match="got 9999") as refused:
        await memory.append_event("umbrella", Event(text="x"), supersedes="9999")
    with pytest.raises(StoreError, match="damaged") as damaged:
        await memory.forget(session_id="s")
    assert await memory.forget(session_id="umbrella") == 1
    assert traces(path) == []
    assert refused.tb is not None
    assert damaged.tb is not None


BEFORE = {
    # Like another program whose SQLite does not overwrite free pages.
    "bytes that were deleted": """
        PRAGMA secure_delete = OFF;
        CREATE TABLE gone AS SELECT text FROM events WHERE session_id = 'umbrella';
        DROP TABLE gone;
    """,
    # Like the index of a version that split words by other rules.
    "words of an older tokenizer": """
        INSERT INTO lines (rowid, words)
            SELECT id, 'jabberwockish' FROM events WHERE session_id = 'umbrella';
        UPDATE events SET word_count = word_count + 1 WHERE session_id = 'umbrella';
    """,
}


@pytest.mark.parametrize("script", BEFORE.values(), ids=BEFORE)
async def test_an_erasure_removes_what_others_left_s3_05(path: Path, script: str) -> None:
    async with SqliteMemory(path) as memory:
        await store_secrets(memory)
    run_sql(path, *script.split(";"))
    async with SqliteMemory(path) as memory:
        assert await memory.forget(session_id="umbrella") == 1
        assert traces(path) == []
        assert len(await memory.retrieve("plain", 999, HERE)) == 300


@pytest.mark.parametrize("times", [30, pytest.param(2_600, marks=pytest.mark.torture)])
async def test_a_memory_may_forget_any_number_of_times_s3_05(
    memory: SqliteMemory, times: int
) -> None:
    for number in range(times):
        await memory.append_event("s", Event(text=f"zebra {number}"))
        forgotten = await memory.append_event("t", Event(text=f"lion {number}"))
        assert await memory.forget(id=forgotten) == 1
    assert len(await memory.retrieve("zebra", 9_999, HERE)) == min(times, MAX_MATCHES)
    assert await memory.recent("t") == []


async def test_an_erasure_during_a_read_raises_and_can_be_repeated_s3_05(path: Path) -> None:
    async with SqliteMemory(path, lock_timeout_s=0.2) as memory:
        await store_secrets(memory)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM events").fetchone()
            with pytest.raises(
                LockTimeoutError,
                match=r"m\.db-wal may still contain their bytes.*call forget again",
            ):
                await memory.forget(session_id="umbrella")
            assert traces(path)
            assert await memory.recent("umbrella") == []
        assert await memory.forget(session_id="umbrella") == 0
        assert traces(path) == []


@pytest.fixture
def old(path: Path) -> Path:
    """Return a file of schema version 1 with three events in `s` and one in `other`."""
    text = Path(__file__).with_name("version1.txt").read_text()
    path.write_bytes(gzip.decompress(base64.b64decode(text)))
    return path


async def test_an_older_file_is_migrated_with_all_its_events_s3_05(
    old: Path, memory: SqliteMemory
) -> None:
    texts = ["the zebra escaped", "call getUserName for swordfish", "the zebra is back"]
    assert [event.text for event in await memory.recent("s")] == texts
    assert [event.text for event in await memory.recent("other")] == ["a zebra of another session"]
    filters = MemoryFilters(session_id="s", role=MessageRole.USER, metadata={"n": 1, "flag": True})
    [hit] = await memory.retrieve("zebra", 4, filters)
    assert hit.event.text == texts[0]
    await memory.append_event("s", Event(text="the zebra sleeps"), key="zebra", supersedes=hit.id)
    await memory.append_event("s", Event(text="a zebra of hers"), user="u")
    hits = await memory.retrieve("zebra", 4, HERE)
    assert {hit.event.text for hit in hits} == {"the zebra sleeps", texts[2]}
    await memory.aclose()
    assert run_sql(old, "PRAGMA user_version") == [(2,)]
    assert run_sql(old, "PRAGMA integrity_check") == [("ok",)]


async def test_events_of_an_older_file_can_be_erased_s3_05(old: Path, memory: SqliteMemory) -> None:
    assert traces(old)
    assert await memory.forget(session_id="s") == 3
    assert traces(old) == []
    assert len(await memory.retrieve("zebra", 4, MemoryFilters(session_id="other"))) == 1


async def test_two_memories_migrate_one_file_s3_05(old: Path, tmp_path: Path) -> None:
    copy = shutil.copy(old, tmp_path / "copy.db")
    async with SqliteMemory(copy) as first, SqliteMemory(copy) as second:
        assert await first.recent("s") == await second.recent("s")
