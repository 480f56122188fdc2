"""Forks during a save in another thread, and kills of the parent."""

import asyncio
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import FileContextPointerStore, LexicalRelevanceSelector
from llm_common.errors import LockTimeoutError
from tests.pointers.campaigns.children import answer, child
from tests.pointers.campaigns.naive_locking_store import NaiveLockingStore
from tests.pointers.campaigns.programs import (
    end_of_child,
    fork_while_saving,
    open_store,
    saving_thread,
    stop_measuring,
)
from tests.pointers.campaigns.traffic import save

COUNTS = pytest.mark.parametrize(
    "count", [pytest.param(3, id="short"), pytest.param(200, id="full", marks=pytest.mark.torture)]
)
SIZES = pytest.mark.parametrize(
    "size", [400, 2_500_000], ids=["small-results", "results-of-2.5-mb"]
)


@COUNTS
@SIZES
@pytest.mark.parametrize("how", ["os", pytest.param("multiprocessing", marks=pytest.mark.torture)])
def test_a_child_forked_during_a_save_saves_and_ends_f_158_f_069_s0_20(
    tmp_path: Path, how: str, count: int, size: int
) -> None:
    ends = answer(
        fork_while_saving, open_store, tmp_path, how=how, count=count, size=size, timeout_s=1_200
    )
    assert ends == {"ended": count}


def save_list_and_choose(store: FileContextPointerStore, name: str) -> None:
    async def work() -> None:
        await save(store, name, {"rows": [name] * 20})
        pointers = store.list(query_id="q")
        chosen = await LexicalRelevanceSelector().select(query=f"rows of {name}", pointers=pointers)
        for pointer in chosen:
            store.load_result(pointer=pointer)

    asyncio.run(work())


def fork_at_first_use(base: Path, seed: int) -> str:
    """Return how a child ends that is forked while a thread uses the library for the first time.

    Parent and child do the same.
    """
    stop_measuring()
    store = FileContextPointerStore(base, durability="rename")
    thread = threading.Thread(target=save_list_and_choose, args=(store, f"parent-{seed}"))
    thread.start()
    time.sleep(random.Random(seed).uniform(0, 0.02))
    end = end_of_child(partial(save_list_and_choose, store, f"child-{seed}"))
    thread.join()
    return end


@pytest.mark.parametrize(
    "seconds", [pytest.param(3, id="short"), pytest.param(60, id="full", marks=pytest.mark.torture)]
)
def test_a_child_forked_at_first_thread_use_ends_s0_41_f_201(
    tmp_path: Path, seconds: float
) -> None:
    ends = Counter[str]()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        number = ends.total()
        # Few outputs a folder: the campaign is about the first use, not about long lists.
        ends[answer(fork_at_first_use, tmp_path / str(number // 20), number)] += 1
    assert set(ends) == {"ended"}


def test_the_harness_catches_a_lock_that_a_forked_child_cannot_get_f_158(tmp_path: Path) -> None:
    forking = partial(fork_while_saving, how="os", count=60, size=400, patience_s=1)
    assert answer(forking, NaiveLockingStore, tmp_path)["never ended"]


def fork_and_die(sender: Connection, make: Callable[[Path], Any], base: Path, number: int) -> None:
    """Fork a sleeping child during a save, send its process id, and be killed."""
    stop_measuring()
    with saving_thread(make(base), size=2_500_000):
        time.sleep(random.Random(number).uniform(0, 0.05))
        pid = os.fork()
        if pid == 0:
            time.sleep(20)
            os._exit(0)
        sender.send(pid)
        os.kill(os.getpid(), signal.SIGKILL)


def outcome_after_kill(make: Callable[[Path], Any], base: Path, store: Any, number: int) -> str:
    """Save after the kill of a parent whose child still runs: "saved" or "locked"."""
    with child(fork_and_die, make, base, number) as (process, receiver):
        pid = receiver.recv()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    try:
        asyncio.run(save(store, f"after {number}", number))
    except LockTimeoutError:
        return "locked"
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return "saved"


@pytest.mark.parametrize(
    "kills", [pytest.param(1, id="short"), pytest.param(100, id="full", marks=pytest.mark.torture)]
)
def test_no_lock_outlives_its_owner_in_a_forked_child_f_158_f_069(
    tmp_path: Path, kills: int
) -> None:
    make, store = partial(open_store, flush=True), FileContextPointerStore(tmp_path)
    outcomes = {outcome_after_kill(make, tmp_path, store, number) for number in range(kills)}
    assert outcomes == {"saved"}


def test_the_harness_catches_a_lock_that_a_forked_child_keeps_f_158(tmp_path: Path) -> None:
    make = partial(NaiveLockingStore, thread_lock=False)
    store = NaiveLockingStore(tmp_path, lock_timeout_s=0.2)
    # On a busy machine many parents die before they hold the lock.
    assert "locked" in (outcome_after_kill(make, tmp_path, store, number) for number in range(60))
