"""Processes that are ended while they save."""

import signal
from pathlib import Path

import pytest

from tests.pointers.campaigns.traffic import NAIVE, OURS, kill_while_saving

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


@pytest.mark.parametrize(
    ("kills", "same", "at_once"),
    [
        pytest.param(3, False, 8, id="short-L1-8-at-once"),
        pytest.param(3, True, 1, id="short-L2-1-at-once"),
        *FULL,
    ],
)
def test_killed_saves_leave_old_or_new_and_nothing_torn_s0_05_s0_18_f_066(
    tmp_path: Path, kills: int, same: bool, at_once: int
) -> None:
    wrong = kill_while_saving(OURS, tmp_path, kills=kills, same=same, at_once=at_once)
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
