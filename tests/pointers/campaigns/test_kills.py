"""Processes that are ended while they save."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from llm_common.pointers.store import FileContextPointerStore
from tests.pointers.campaigns.children import heard_until_the_end
from tests.pointers.campaigns.conftest import ShowFigures
from tests.pointers.campaigns.traffic import NAIVE, OURS, MakeStore, faults, writer

SAME = pytest.mark.parametrize("same", [False, True], ids=["L1", "L2"])
LONGEST_LIFE_S = 0.01


def kill_while_saving(
    make: MakeStore, base: Path, *, kills: int, same: bool, by: signal.Signals = signal.SIGKILL, at_once: int = 1
) -> Counter[str]:
    """What was wrong after each of that many writers was ended at a random instant, and which saves went missing."""
    chance, wrong, saved = random.Random(7), Counter[str](), set()
    for number in range(kills):
        with writer(make, base, f"w{number}", same=same, at_once=at_once) as (process, heard):
            told = [heard.recv()]
            time.sleep(chance.uniform(0, LONGEST_LIFE_S))
            assert process.pid is not None
            os.kill(process.pid, by)
            told += heard_until_the_end(heard)
        saved |= {f"w{number}-{one}" for one in told}
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


@SAME
@pytest.mark.parametrize("at_once", [1, 8])
@pytest.mark.parametrize(
    "kills", [pytest.param(6, id="short"), pytest.param(1_000, id="full", marks=pytest.mark.torture)]
)
def test_killed_saves_leave_old_or_new_and_nothing_torn_s0_05_s0_18_f_066(
    tmp_path: Path, same: bool, kills: int, at_once: int, show_figures: ShowFigures
) -> None:
    wrong = kill_while_saving(OURS, tmp_path, kills=kills, same=same, at_once=at_once)
    show_figures(kills=kills, **wrong)
    assert not wrong


@SAME
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT], ids=["F-067-SIGTERM", "F-067-SIGINT"])
@pytest.mark.parametrize(
    "signals", [pytest.param(2, id="short"), pytest.param(200, id="full", marks=pytest.mark.torture)]
)
def test_interrupted_saves_leave_nothing_torn_s0_18(
    tmp_path: Path, same: bool, by: signal.Signals, signals: int
) -> None:
    assert not kill_while_saving(OURS, tmp_path, kills=signals, same=same, by=by)


@SAME
def test_the_harness_catches_a_store_that_writes_in_place(tmp_path: Path, same: bool) -> None:
    assert any(kill_while_saving(NAIVE, tmp_path / str(number), kills=1, same=same) for number in range(50))


@SAME
@pytest.mark.torture
def test_a_store_that_writes_in_place_is_torn_by_a_thousand_kills(
    tmp_path: Path, same: bool, show_figures: ShowFigures
) -> None:
    wrong = kill_while_saving(NAIVE, tmp_path, kills=1_000, same=same)
    show_figures(**wrong)
    assert sum(wrong.values()) > 50
