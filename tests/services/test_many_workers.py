"""Campaigns: four workers over one object store and one memory, with kills, expiry and erasure."""

import asyncio
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import obstore
import psycopg
import pytest
from obstore.store import from_url

from llm_common.agents import ToolContextManager
from llm_common.memory import UserMemory
from tests.s3_server import make_bucket, s3_options
from tests.services.postgres_server import PostgresServer
from tests.services.workers import (
    CALLS,
    ERASED_USERS,
    JOBS,
    QUERIES,
    SCHEMA,
    USERS,
    Queue,
    marker_of,
    open_memory,
    open_store,
    output_of,
    session_id_of,
    session_ids_of,
)

pytestmark = pytest.mark.services

WORKERS = 4
PATIENCE_S = 900
LIVING_USERS = [user for user in range(USERS) if user not in ERASED_USERS]
ALL_CALLS = [(user, query, number) for user, query in JOBS for number in range(CALLS)]


@pytest.mark.parametrize(
    "kills", [pytest.param(0, id="short"), pytest.param(12, id="full", marks=pytest.mark.torture)]
)
async def test_four_workers_lose_nothing_and_erased_users_stay_erased_f_205(
    tmp_path: Path, postgres: PostgresServer, s3_endpoint: str, kills: int
) -> None:
    bucket = f"b{uuid.uuid4().hex}"
    make_bucket(s3_endpoint, bucket)
    place = f"{s3_endpoint}#{bucket}"
    await _drop_memory(postgres.conninfo)

    killed = await asyncio.to_thread(_work, place, postgres.conninfo, tmp_path, kills=kills)

    # The last jobs may be done before every kill was due.
    assert kills // 2 <= killed <= kills
    queue = Queue(tmp_path)
    assert queue.lines("faults") == []
    assert queue.lines("refused"), "no run was refused while another one was going on"
    made = Counter(queue.lines("calls"))
    # A killed run may have made a call whose output was not stored yet.
    assert max(made.values()) <= 1 + kills
    assert made.total() <= len(ALL_CALLS) + kills * CALLS
    await _check_living_users(place, postgres.conninfo)
    await _check_erased_users(place, postgres.conninfo)


def _work(place: str, conninfo: str, folder: Path, *, kills: int) -> int:
    """Run the workers to their end, kill and replace some, and return the number of kills."""
    deadline = time.monotonic() + PATIENCE_S
    with ExitStack() as stack:

        def start(number: int) -> "subprocess.Popen[bytes]":
            command = [sys.executable, "-m", "tests.services.workers", place, conninfo]
            process = subprocess.Popen([*command, str(folder), str(number)])
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        workers = [start(number) for number in range(WORKERS)]
        killed = 0
        calls_seen = 0
        while any(worker.poll() is None for worker in workers):
            assert time.monotonic() < deadline, "the workers wait for each other"
            calls_made = len(Queue(folder).lines("calls"))
            # Each kill waits for a call, so that it meets a run and not a start.
            index = killed % WORKERS
            if killed < kills and calls_made > calls_seen and workers[index].poll() is None:
                calls_seen = calls_made
                workers[index].kill()
                workers[index].wait()
                workers[index] = start(WORKERS + killed)
                killed += 1
            time.sleep(0.05)
        assert [worker.returncode for worker in workers] == [0] * WORKERS
        return killed


async def _check_living_users(place: str, conninfo: str) -> None:
    """Check that each call of a finished job is stored once, and remembered."""
    store = open_store(place)
    async with open_memory(conninfo) as memory:
        for user in LIVING_USERS:
            session = ToolContextManager(pointer_store=store, session_id=session_id_of(user))
            outputs = []
            for pointer in await session.resume():
                outputs.append(await session.aload_result(pointer=pointer))
            expected = [
                output_of(user, query, number)
                for query in range(QUERIES)
                for number in range(CALLS)
            ]
            assert sorted(outputs, key=_order) == sorted(expected, key=_order)
            events = await UserMemory(memory, session_id_of(user)).recent("jobs", limit=100)
            texts = {event.text for event in events}
            assert texts == {f"{marker_of(user)}{query} is done" for query in range(QUERIES)}


def _order(output: dict[str, Any]) -> tuple[int, int]:
    return output["query"], output["number"]


def _all_bytes(place: str) -> bytes:
    """Return the bytes of all objects, also of those that the store would not show."""
    endpoint, _, bucket = place.partition("#")
    raw = from_url(f"s3://{bucket}", **s3_options(endpoint))
    payloads = []
    for batch in obstore.list(raw):
        for entry in batch:
            payloads.append(obstore.get(raw, entry["path"]).bytes().to_bytes())
    return b"\n".join(payloads)


async def _drop_memory(conninfo: str) -> None:
    """Remove the tables of an earlier campaign, since all tests share the server."""
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
        await connection.execute(f'DROP SCHEMA IF EXISTS "{SCHEMA}" CASCADE')


async def _check_erased_users(place: str, conninfo: str) -> None:
    """Check that no list, search, object or row has anything of an erased user."""
    store = open_store(place)
    async with open_memory(conninfo) as memory:
        for user in ERASED_USERS:
            for session_id in session_ids_of(user):
                session = ToolContextManager(pointer_store=store, session_id=session_id)
                assert await session.resume() == []
            assert await UserMemory(memory, session_id_of(user)).recent("jobs") == []
    stored = await asyncio.to_thread(_all_bytes, place)
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        rows = await connection.execute(f'SELECT text FROM "{SCHEMA}".events')
        texts = "".join([text for (text,) in await rows.fetchall()])
    for user in ERASED_USERS:
        assert marker_of(user).encode() not in stored
        assert marker_of(user) not in texts
    assert all(marker_of(user).encode() in stored for user in LIVING_USERS)
