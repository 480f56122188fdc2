"""Programs that save and end, several at a time on a busy machine, and lose nothing.

And programs that save while the system starts no thread, and afterwards.
"""

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import FileContextPointerStore
from tests.pointers.campaigns.programs import value_of
from tests.pointers.campaigns.running import NEVER_ENDED, busy_loops, run

AT_A_TIME = 3
MAX_HANGING = 3


def run_programs(
    program: str, base: Path, *, count: int, busy: int, patience_s: float = 60
) -> tuple[Counter[str], list[str]]:
    """Run some programs, and return how many ended and what was wrong.

    The problems include the error output of the first failed program.
    """
    figures, errors = Counter[str](), list[str]()

    def run_one(seed: int) -> None:
        if figures[NEVER_ENDED] >= MAX_HANGING:
            return
        ending = run(program, base, seed, patience_s=patience_s)
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


@pytest.mark.parametrize(("program", "busy"), [("saves", 4), ("cancelled", 1)])
@pytest.mark.parametrize(
    "count", [pytest.param(1, id="short"), pytest.param(300, id="full", marks=pytest.mark.torture)]
)
def test_a_program_that_saved_ends_f_154_s0_20(
    tmp_path: Path, program: str, busy: int, count: int
) -> None:
    figures, errors = run_programs(program, tmp_path, count=count, busy=busy if count > 1 else 0)
    assert figures == {"ended": count}, errors


def test_the_harness_catches_a_program_that_never_ends_f_154(tmp_path: Path) -> None:
    for patience_s in (1, 10, 50):  # a busy machine needs longer to start the program
        figures, errors = run_programs("stuck", tmp_path, count=1, busy=0, patience_s=patience_s)
        assert figures == {NEVER_ENDED: 1}
        if errors[0]:
            break
    assert "in wait" in errors[0]


@pytest.fixture
def base_of_another_user() -> Iterator[tuple[Path, int]]:
    """Create a directory of a user without processes. The limit of processes ignores root."""
    uid = 100_000 + os.getpid()
    base = Path(tempfile.mkdtemp(prefix="llm-common-test-"))
    if os.geteuid() == 0:
        os.chown(base, uid, uid)
    yield base, uid
    shutil.rmtree(base)


@pytest.mark.parametrize(
    "rounds", [pytest.param(1, id="short"), pytest.param(20, id="full", marks=pytest.mark.torture)]
)
def test_without_threads_saves_fail_typed_then_work_again_f_157_s0_20(
    base_of_another_user: tuple[Path, int], rounds: int
) -> None:
    base, uid = base_of_another_user
    for number in range(rounds):
        (base / str(number)).mkdir()
        if os.geteuid() == 0:
            os.chown(base / str(number), uid, uid)
        ending = run("no-threads", base / str(number), uid)
        assert ending.status == "ended", ending.errors
        check(json.loads(ending.output))


def check(report: dict[str, Any]) -> None:
    """Check that a save without threads raises a typed error, and never stores anything."""
    assert (report.pop("threads"), report.pop("threads again")) == (False, True)
    listed = report.pop("listed")
    for query_id, first in (("one", 0), ("eight", 0), ("warm", 1)):
        refused, later = report[query_id], report[f"{query_id} again"]
        assert set(refused) <= {"StoreError", "saved"}, report
        assert set(later) == {"saved"}, report
        saved = [first + number for number, outcome in enumerate(refused) if outcome == "saved"]
        before = [0] if query_id == "warm" else []
        assert listed[query_id] == [*before, *saved, *range(100, 100 + len(later))]
