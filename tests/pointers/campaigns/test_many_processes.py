"""Processes that save at the same time, or were forked."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.pointers.campaigns.conftest import ShowFigures
from tests.pointers.campaigns.traffic import NAIVE, OURS, MakeStore, faults, writer

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


def save_together(
    make: MakeStore, base: Path, *, processes: int, saves: int, same: bool, at_once: int = 1
) -> Counter[str]:
    """Save in several processes. Returns the numbers of pointers and lists, and the problems."""
    wrong = Counter[str]()
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                writer(make, base, f"w{number}", same=same, numbers=range(saves), at_once=at_once)
            )
            for number in range(processes)
        ]
        writers[0][1].recv()
        while any(process.is_alive() for process, _ in writers):
            try:
                pointers, found = faults(base, newest=20)
            except Exception as exc:  # noqa: BLE001 - the control's reader meets all kinds
                wrong[type(exc).__name__] += 1
                continue
            wrong += found
            wrong["empty lists"] += not pointers
            wrong["lists"] += 1
        wrong["failed writers"] = sum(process.exitcode != 0 for process, _ in writers)
    pointers, found = faults(base)
    wrong["listed"] = len(pointers)
    return +(wrong + found)


@pytest.mark.parametrize(("processes", "saves", "at_once"), [AT_ONCE, *FULL])
def test_processes_that_save_different_calls_lose_none_l4_f_072(
    tmp_path: Path, processes: int, saves: int, at_once: int, show_figures: ShowFigures
) -> None:
    figures = save_together(
        OURS, tmp_path, processes=processes, saves=saves, same=False, at_once=at_once
    )
    show_figures(**figures)
    assert figures.pop("lists") >= 1
    assert figures == Counter({"listed": processes * saves})


@pytest.mark.parametrize(("processes", "saves", "at_once"), [ONE_BY_ONE, *FULL])
def test_processes_that_save_one_call_never_hide_or_mix_it_l5_s0_05_f_072(
    tmp_path: Path, processes: int, saves: int, at_once: int, show_figures: ShowFigures
) -> None:
    figures = save_together(
        OURS, tmp_path, processes=processes, saves=saves, same=True, at_once=at_once
    )
    show_figures(**figures)
    assert figures.pop("lists") >= 1
    assert figures == Counter({"listed": 1})


@SIZES
def test_the_harness_catches_a_store_without_lock_l5(
    tmp_path: Path, processes: int, saves: int, show_figures: ShowFigures
) -> None:
    figures = save_together(NAIVE, tmp_path, processes=processes, saves=saves, same=True)
    show_figures(**figures)
    assert figures.keys() - {"lists", "listed"}
