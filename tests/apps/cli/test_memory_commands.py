"""`llm-common memory` over a SQLite file."""

import asyncio
from pathlib import Path

import pytest

from llm_common.core import MessageRole
from llm_common.errors import StoreError
from llm_common.memory import Event, SqliteMemory
from tests.apps.cli.running import files_of, run, run_json

HOSTILE = "cookies \x1b[2J\u202eevil"


@pytest.fixture
async def memory(tmp_path: Path) -> Path:
    """Fill two sessions of a user, with a fact that changed, and a session without a user."""
    path = tmp_path / "memory.db"
    async with SqliteMemory(path) as opened:
        await opened.append_event("s1", Event(text="I live in Oslo"), user="ann", key="address")
        await opened.append_event("s1", Event(text="It is Rome now"), user="ann", key="address")
        tea = Event(text="I like tea", metadata={"mood": "calm"})
        await opened.append_event("s2", tea, user="ann")
        await opened.append_event("s1", Event(text=HOSTILE, role=MessageRole.ASSISTANT))
    return path


def test_sessions_are_listed_for_all_users_or_for_one(memory: Path) -> None:
    document = run_json("memory list", memory)
    assert [
        (entry["user"], entry["session_id"], entry["events"], entry["current"])
        for entry in document["sessions"]
    ] == [
        (None, "s1", 1, 1),
        ("ann", "s2", 1, 1),
        ("ann", "s1", 2, 1),
    ]
    assert run_json("memory list", memory, "--user", "ann")["total"] == 2
    assert "ann\ts1\t2\t1\t" in run("memory", "list", memory).stdout
    assert (
        run("memory", "list", memory, "--limit", "1").stderr
        == "1 of 3 sessions. Use --offset 1 for more.\n"
    )


def test_events_of_a_session_are_listed_with_their_ids(memory: Path) -> None:
    document = run_json("memory list", memory, "--session", "s1", "--user", "ann")
    assert [
        (entry["event"]["text"], entry["key"], entry["current"]) for entry in document["events"]
    ] == [
        ("It is Rome now", "address", True),
        ("I live in Oslo", "address", False),
    ]
    assert [
        entry["event"]["text"]
        for entry in run_json("memory list", memory, "--session", "s1")["events"]
    ] == [HOSTILE]
    output = run("memory", "list", memory, "--session", "s1").stdout
    assert "evil" in output
    assert not set(output) & set("\x1b\u202e")


def test_search_returns_the_events_that_an_agent_gets(memory: Path) -> None:
    assert [
        hit["event"]["text"]
        for hit in run_json("memory search", memory, "Oslo", "--user", "ann")["hits"]
    ] == ["It is Rome now"]
    past = run_json(
        "memory search", memory, "Oslo", "--user", "ann", "--history", "--key", "address"
    )["hits"]
    assert {hit["current"] for hit in past} == {True, False}
    assert (
        run_json("memory search", memory, "tea", "--session", "s1", "--user", "ann", code=3)["hits"]
        == []
    )
    assert "I like tea" in run("memory", "search", memory, "tea", "--user", "ann").stdout


def test_reading_a_memory_changes_nothing(memory: Path) -> None:
    before = files_of(memory.parent)
    run("memory", "list", memory)
    run("memory", "list", memory, "--session", "s1")
    run("memory", "search", memory, "tea", "--user", "ann")
    run("memory", "forget", memory, "--user", "ann", "--dry-run")
    assert files_of(memory.parent) == before


async def test_a_memory_in_use_shows_its_newest_event(memory: Path) -> None:
    async with SqliteMemory(memory) as opened:
        await opened.append_event("s3", Event(text="said just now"))
        document = await asyncio.to_thread(run_json, "memory list", memory, "--session", "s3")
    assert [entry["event"]["text"] for entry in document["events"]] == ["said just now"]


async def test_a_read_only_memory_refuses_events(memory: Path) -> None:
    async with SqliteMemory(memory, read_only=True) as opened:
        with pytest.raises(StoreError):
            await opened.append_event("s3", Event(text="never"))


def test_forget_asks_first_and_reports_the_number(memory: Path) -> None:
    assert run_json("memory forget", memory, "--user", "ann", "--dry-run") == {
        "dry_run": True,
        "events": 3,
    }
    refused = run("memory", "forget", memory, "--user", "ann", code=1, typed="n\n")
    assert "Erase 3 events?" in refused.stderr
    assert (
        run_json("memory forget", memory, "--user", "ann", "--session", "s2", "--yes")["events"]
        == 1
    )
    assert run("memory", "forget", memory, "--user", "ann", typed="y\n").stderr.endswith(
        "Erased 2 events.\n"
    )
    assert run_json("memory list", memory)["total"] == 1
    assert b"Rome" not in memory.read_bytes()
    [event] = run_json("memory list", memory, "--session", "s1")["events"]
    assert run_json("memory forget", memory, "--id", event["id"], "--yes")["events"] == 1
    assert (
        run("memory", "forget", memory, "--id", event["id"], "--yes", code=3).stderr
        == "There are no such events.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["list", "absent.db"], 3, "There is no memory at"),
        (["list", "other.db"], 1, "is damaged, or not a SQLite file"),
        (["search", "other.db", "tea"], 2, "name a --session or a --user"),
        (["forget", "other.db"], 2, "name a --session, a --user or an --id"),
        (["list", "postgresql://ann:secret@127.0.0.1:bad/x"], 2, "is no"),
    ],
)
def test_mistakes_are_reported_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("other.db").write_text("no database " * 100)
    output = run("memory", *arguments, code=code).stderr
    assert text in " ".join(output.replace("│", " ").split())
    assert "secret" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["other.db"]
