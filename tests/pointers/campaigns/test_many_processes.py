"""Processes that save at the same time, or were forked."""

from collections import Counter
from pathlib import Path

import pytest

from tests.pointers.campaigns.traffic import NAIVE, OURS, save_together

SIZES = pytest.mark.parametrize(
    ("processes", "saves"),
    [pytest.param(3, 16, id="short"), pytest.param(8, 500, id="full", marks=pytest.mark.torture)],
)
ONE_BY_ONE = pytest.param(3, 16, 1, id="short-1-at-once")
AT_ONCE = pytest.param(3, 16, 8, id="short-8-at-once")
FULL = [
    pytest.param(8, 500, at_once, id=f"full-{at_once}-at-once", marks=pytest.mark.torture)
    for at_once in (1, 8)
]


@pytest.mark.parametrize(("processes", "saves", "at_once"), [AT_ONCE, *FULL])
def test_processes_that_save_different_calls_lose_none_l4_f_072(
    tmp_path: Path, processes: int, saves: int, at_once: int
) -> None:
    figures = save_together(
        OURS, tmp_path, processes=processes, saves=saves, same=False, at_once=at_once
    )
    assert figures.pop("lists") >= 1
    assert figures == Counter({"listed": processes * saves})


@pytest.mark.parametrize(("processes", "saves", "at_once"), [ONE_BY_ONE, *FULL])
def test_processes_that_save_one_call_never_hide_or_mix_it_l5_s0_05_f_072(
    tmp_path: Path, processes: int, saves: int, at_once: int
) -> None:
    figures = save_together(
        OURS, tmp_path, processes=processes, saves=saves, same=True, at_once=at_once
    )
    assert figures.pop("lists") >= 1
    assert figures == Counter({"listed": 1})


@SIZES
def test_the_harness_catches_a_store_without_lock_l5(
    tmp_path: Path, processes: int, saves: int
) -> None:
    figures = save_together(NAIVE, tmp_path, processes=processes, saves=saves, same=True)
    assert figures.keys() - {"lists", "listed"}
