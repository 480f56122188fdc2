"""Processes that are ended while they save."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore
from tests.pointers.campaigns.children import heard_until_the_end
from tests.pointers.campaigns.conftest import ShowFigures
from tests.pointers.campaigns.traffic import NAIVE, OURS, MakeStore, faults, writer

FULL = [
    pytest.param(
        1_000, same, at_once, id=f"full-{experiment}-{at_once}-at-once", marks=pytest.mark.torture
    )
    for same, experiment in ((False, "L1"), (True, "L2"))
    for at_once in (1, 8)
]
SIGNALS = [
    pytest.param(count, same, by, id=f"{size}-{experiment}-F-067-{by.name}", marks=marks)
    for count, size, marks in ((1, "short", []), (200, "full", [pytest.mark.torture]))
    for same, experiment in ((False, "L1"), (True, "L2"))
    for by in (signal.SIGTERM, signal.SIGINT)
    if count > 1 or same == (by == signal.SIGINT)
]
MAX_LIFE_S = 0.01


def kill_while_saving(
    make: MakeStore,
    base: Path,
    *,
    kills: int,
    same: bool,
    by: signal.Signals = signal.SIGKILL,
    at_once: int = 1,
) -> Counter[str]:
    """Kill writers at random moments, and return the problems and the missing saves."""
    chance, wrong, saved = random.Random(7), Counter[str](), set()
    for number in range(kills):
        with writer(make, base, f"w{number}", same=same, at_once=at_once) as (process, receiver):
            acknowledged = [receiver.recv()]
            time.sleep(chance.uniform(0, MAX_LIFE_S))
            assert process.pid is not None
            os.kill(process.pid, by)
            acknowledged += heard_until_the_end(receiver)
        saved |= {f"w{number}-{one}" for one in acknowledged}
        if same or number == kills - 1:
            pointers, found = faults(base)
            wrong += found
            wrong["nothing listed"] += not pointers
    store = FileContextPointerStore(base)
    asyncio.run(store.verify(repair=True))
    wrong["not repaired"] = len(asyncio.run(store.verify()).findings)
    if not same:
        wrong["missing"] = len(saved - {pointer.args["name"] for pointer in pointers})
    return +wrong


@pytest.mark.parametrize(
    ("kills", "same", "at_once"),
    [
        pytest.param(3, False, 8, id="short-L1-8-at-once"),
        pytest.param(3, True, 1, id="short-L2-1-at-once"),
        *FULL,
    ],
)
def test_killed_saves_leave_old_or_new_and_nothing_torn_s0_05_s0_18_f_066(
    tmp_path: Path, kills: int, same: bool, at_once: int, show_figures: ShowFigures
) -> None:
    wrong = kill_while_saving(OURS, tmp_path, kills=kills, same=same, at_once=at_once)
    show_figures(kills=kills, **wrong)
    assert not wrong


@pytest.mark.parametrize(("count", "same", "by"), SIGNALS)
def test_interrupted_saves_leave_nothing_torn_s0_18(
    tmp_path: Path, count: int, same: bool, by: signal.Signals
) -> None:
    assert not kill_while_saving(OURS, tmp_path, kills=count, same=same, by=by)


@pytest.mark.parametrize("same", [False, True], ids=["L1", "L2"])
def test_the_harness_catches_a_store_that_writes_in_place(tmp_path: Path, same: bool) -> None:
    assert any(
        kill_while_saving(NAIVE, tmp_path / str(number), kills=1, same=same)
        for number in range(500)
    )
