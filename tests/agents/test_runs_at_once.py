"""Campaigns: a run that is resumed several times at once, or killed and resumed."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from llm_common.agents import ContextPointerStore, InMemoryContextPointerStore
from tests.agents.twenty_calls import (
    CALLS,
    calls_made,
    executor_of,
    open_store,
    resume,
    stored_calls,
)
from tests.s3_server import make_bucket

PATIENCE_S = 300
ONCE = Counter(dict.fromkeys(range(CALLS), 1))
S3 = pytest.param("s3", marks=pytest.mark.torture)


def place_of(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if kind == "files":
        return str(tmp_path / "store")
    endpoint: str = request.getfixturevalue("s3_endpoint")
    bucket = f"b{uuid.uuid4().hex}"
    make_bucket(endpoint, bucket)
    return f"{endpoint}#{bucket}"


@contextmanager
def started(place: str, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.agents.twenty_calls", place, str(folder), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ["files", "memory", S3])
async def test_four_resumes_in_one_process_make_each_call_once_f_204(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    store: ContextPointerStore = InMemoryContextPointerStore()
    if kind != "memory":
        store = await asyncio.to_thread(open_store, place_of(kind, tmp_path, request))
    (tmp_path / "go").touch()
    executors = [executor_of(store, tmp_path) for _ in range(4)]
    outcomes = await asyncio.gather(*map(resume, executors))
    assert sorted(outcomes) == ["busy", "busy", "busy", "done"]
    assert await resume(executors[0]) == "done"
    assert calls_made(tmp_path) == ONCE
    assert sorted(await stored_calls(store)) == sorted(ONCE)


@pytest.mark.parametrize("kind", ["files", S3])
def test_three_resumes_in_three_processes_make_each_call_once_f_204(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    place = place_of(kind, tmp_path, request)
    with ExitStack() as stack:
        processes = [stack.enter_context(started(place, tmp_path)) for _ in range(3)]
        deadline = time.monotonic() + PATIENCE_S
        # The tools of the only run wait until both of the others were refused.
        while sum(process.poll() is not None for process in processes) < 2:
            assert time.monotonic() < deadline, "a second run has begun"
            time.sleep(0.02)
        (tmp_path / "go").touch()
        outcomes = [process.communicate(timeout=PATIENCE_S)[0].strip() for process in processes]
    assert sorted(outcomes) == ["busy", "busy", "done"]
    assert calls_made(tmp_path) == ONCE
    assert sorted(asyncio.run(stored_calls(open_store(place)))) == sorted(ONCE)


@pytest.mark.parametrize(
    "kills", [pytest.param(1, id="short"), pytest.param(40, id="full", marks=pytest.mark.torture)]
)
def test_kills_lose_no_stored_call_and_repeat_none_f_204(tmp_path: Path, kills: int) -> None:
    chance, killed, runs = random.Random(7), 0, 0
    while killed < kills:
        folder = tmp_path / str(runs)
        folder.mkdir()
        (folder / "go").touch()
        killed += kills_until_done(folder, chance, max_kills=min(5, kills - killed))
        runs += 1


def kills_until_done(folder: Path, chance: random.Random, *, max_kills: int) -> int:
    """Kill and resume a run until it ends, check its calls, and return the number of kills."""
    store = open_store(str(folder / "store"))
    stored: set[int] = set()
    made_once_stored = Counter[int]()
    for kills in range(max_kills + 1):
        made_before = calls_made(folder)
        with started(str(folder / "store"), folder) as process:
            deadline = time.monotonic() + PATIENCE_S
            if kills < max_kills:
                while calls_made(folder) == made_before and process.poll() is None:
                    assert time.monotonic() < deadline, "the run does not begin"
                    time.sleep(0.002)
                time.sleep(chance.uniform(0, 0.15))
                process.kill()
            outcome = process.communicate(timeout=PATIENCE_S)[0].strip()
        # A dead process holds no lease.
        assert outcome in {"", "done"}
        made = calls_made(folder)
        assert {call: made[call] for call in stored} == dict(made_once_stored)
        stored_now = asyncio.run(stored_calls(store))
        assert len(stored_now) == len(set(stored_now))
        assert stored <= set(stored_now)
        stored = set(stored_now)
        made_once_stored = Counter({call: made[call] for call in stored})
        if outcome == "done":
            break
    assert stored == set(ONCE)
    return kills


def test_a_forked_child_keeps_no_lease_of_a_killed_run_f_204(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    (tmp_path / "go").touch()
    with started(place, tmp_path, "fork") as process:
        child = int(process.communicate(timeout=PATIENCE_S)[0])
    try:
        os.kill(child, 0)  # it lives
        outcome = asyncio.run(resume(executor_of(open_store(place), tmp_path)))
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    assert outcome == "done"
    assert sorted(asyncio.run(stored_calls(open_store(place)))) == sorted(ONCE)


@pytest.mark.torture
def test_a_lease_on_an_object_store_outlives_its_run_for_a_minute_f_204(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = place_of("s3", tmp_path, request)
    with started(place, tmp_path) as process:
        while not calls_made(tmp_path):
            assert process.poll() is None
            time.sleep(0.02)
    (tmp_path / "go").touch()
    store = open_store(place)
    outcomes = []
    deadline = time.monotonic() + PATIENCE_S
    while "done" not in outcomes and time.monotonic() < deadline:
        outcomes.append(asyncio.run(resume(executor_of(store, tmp_path))))
        time.sleep(1)
    assert len(outcomes) > 1
    assert {*outcomes[:-1]} == {"busy"}
    assert outcomes[-1] == "done"
    assert sorted(asyncio.run(stored_calls(store))) == sorted(ONCE)
