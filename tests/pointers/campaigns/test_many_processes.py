"""Processes that save at the same time, or were forked."""

from collections import Counter
from pathlib import Path

import pytest

from tests.pointers.campaigns.traffic import NAIVE, OURS, save_together

SIZES = pytest.mark.parametrize(
    ("processes", "saves"),
    [pytest.param(3, 16, id="short"), pytest.param(8, 500, id="full", marks=pytest.mark.torture)],
)
FULL = [
    pytest.param(
        8, 500, same, at_once, id=f"full-{row}-{at_once}-at-once", marks=pytest.mark.torture
    )
    for same, row in ((False, "L4"), (True, "L5"))
    for at_once in (1, 8)
]


@pytest.mark.parametrize(
    ("processes", "saves", "same", "at_once"),
    [
        pytest.param(3, 16, False, 8, id="short-L4-8-at-once"),
        pytest.param(3, 16, True, 1, id="short-L5-1-at-once"),
        *FULL,
    ],
)
def test_processes_lose_no_call_and_never_hide_or_mix_one_that_all_save_l4_l5_s0_05_f_072(
    tmp_path: Path, processes: int, saves: int, same: bool, at_once: int
) -> None:
    figures = save_together(
        OURS, tmp_path, processes=processes, saves=saves, same=same, at_once=at_once
    )
    assert figures.pop("lists") >= 1
    assert figures == Counter({"listed": 1 if same else processes * saves})


@SIZES
def test_the_harness_catches_a_store_without_lock_l5(
    tmp_path: Path, processes: int, saves: int
) -> None:
    figures = save_together(NAIVE, tmp_path, processes=processes, saves=saves, same=True)
    assert figures.keys() - {"lists", "listed"}
