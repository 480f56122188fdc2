"""Programs that save and end, several at a time on a busy machine, and lose nothing."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore
from tests.pointers.campaigns.programs import value_of
from tests.pointers.campaigns.running import INTERPRETERS, NEVER_ENDED, busy_loops, run

AT_A_TIME = 3
MAX_HANGING = 3


def run_programs(
    python: str, program: str, base: Path, *, count: int, busy: int, patience_s: float = 60
) -> tuple[Counter[str], list[str]]:
    """Run some programs, and return how many ended and what was wrong.

    The problems include the error output of the first failed program.
    """
    figures, errors = Counter[str](), list[str]()

    def run_one(seed: int) -> None:
        if figures[NEVER_ENDED] >= MAX_HANGING:
            return
        ending = run(python, program, base, seed, patience_s=patience_s)
        figures[ending.status] += 1
        if ending.status == "ended":
            figures.update(wrong_with(base, seed, json.loads(ending.output)))
        else:
            errors.append(ending.errors)

    with busy_loops(busy), ThreadPoolExecutor(AT_A_TIME) as threads:
        list(threads.map(run_one, range(count)))
    return +figures, errors[:1]


def wrong_with(base: Path, seed: int, acknowledged: list[int]) -> Counter[str]:
    """Return the problems with the saves of a program."""
    store = FileContextPointerStore(base)
    queries = [f"q{seed}-{number}" for number in range(4)]
    pointers = {
        pointer.args["number"]: pointer for one in queries for pointer in store.list(query_id=one)
    }
    wrong = Counter({"lost": len(set(acknowledged) - pointers.keys())})
    for number, pointer in pointers.items():
        expected = value_of(pointer.query_id, number, pointer.args["size"])
        wrong["mixed"] += store.load_result(pointer=pointer) != expected
    return wrong


@INTERPRETERS
@pytest.mark.parametrize(("program", "busy"), [("saves", 4), ("cancelled", 1)])
@pytest.mark.parametrize(
    "count", [pytest.param(1, id="short"), pytest.param(300, id="full", marks=pytest.mark.torture)]
)
def test_a_program_that_saved_ends_f_154_s0_20(
    tmp_path: Path, python: str, program: str, busy: int, count: int
) -> None:
    figures, errors = run_programs(
        python, program, tmp_path, count=count, busy=busy if count > 1 else 0
    )
    assert figures == {"ended": count}, errors


@INTERPRETERS
def test_the_harness_catches_a_program_that_never_ends_f_154(tmp_path: Path, python: str) -> None:
    for patience_s in (1, 10, 50):  # a busy machine needs longer to start the program
        figures, errors = run_programs(
            python, "stuck", tmp_path, count=1, busy=0, patience_s=patience_s
        )
        assert figures == {NEVER_ENDED: 1}
        if errors[0]:
            break
    assert "in wait" in errors[0]
