"""Processes that are ended while they save."""

import signal
from pathlib import Path

import pytest

from tests.pointers.campaigns.traffic import NAIVE, OURS, kill_while_saving

EXPERIMENTS = ((False, "L1"), (True, "L2"))
KILLS = [
    pytest.param(
        1_000,
        same,
        signal.SIGKILL,
        at_once,
        id=f"full-{row}-F-066-{at_once}-at-once",
        marks=pytest.mark.torture,
    )
    for same, row in EXPERIMENTS
    for at_once in (1, 8)
]
INTERRUPTS = [
    pytest.param(200, same, by, 1, id=f"full-{row}-F-067-{by.name}", marks=pytest.mark.torture)
    for same, row in EXPERIMENTS
    for by in (signal.SIGTERM, signal.SIGINT)
]


@pytest.mark.parametrize(
    ("kills", "same", "by", "at_once"),
    [
        pytest.param(3, False, signal.SIGKILL, 8, id="short-L1-F-066-8-at-once"),
        pytest.param(3, True, signal.SIGKILL, 1, id="short-L2-F-066-1-at-once"),
        pytest.param(1, False, signal.SIGTERM, 1, id="short-L1-F-067-SIGTERM"),
        pytest.param(1, True, signal.SIGINT, 1, id="short-L2-F-067-SIGINT"),
        *KILLS,
        *INTERRUPTS,
    ],
)
def test_interrupted_saves_leave_nothing_torn_s0_18(
    tmp_path: Path, kills: int, same: bool, by: signal.Signals, at_once: int
) -> None:
    assert not kill_while_saving(OURS, tmp_path, kills=kills, same=same, by=by, at_once=at_once)


@pytest.mark.parametrize("same", [False, True], ids=["L1", "L2"])
def test_the_harness_catches_a_store_that_writes_in_place(tmp_path: Path, same: bool) -> None:
    assert any(
        kill_while_saving(NAIVE, tmp_path / str(number), kills=1, same=same)
        for number in range(500)
    )
