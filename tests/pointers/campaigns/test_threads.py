"""Saves while the system starts no thread, and afterwards."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pointers.campaigns.running import INTERPRETERS, run


@pytest.fixture
def base_of_another_user() -> Iterator[tuple[Path, int]]:
    """Create a directory of a user without processes. The limit of processes ignores root."""
    uid = 100_000 + os.getpid()
    base = Path(tempfile.mkdtemp(prefix="llm-common-test-"))
    if os.geteuid() == 0:
        os.chown(base, uid, uid)
    yield base, uid
    shutil.rmtree(base)


@INTERPRETERS
@pytest.mark.parametrize(
    "rounds", [pytest.param(1, id="short"), pytest.param(20, id="full", marks=pytest.mark.torture)]
)
def test_without_threads_saves_fail_typed_then_work_again_f_157_s0_20(
    base_of_another_user: tuple[Path, int], python: str, rounds: int
) -> None:
    base, uid = base_of_another_user
    for number in range(rounds):
        (base / str(number)).mkdir()
        if os.geteuid() == 0:
            os.chown(base / str(number), uid, uid)
        ending = run(python, "no-threads", base / str(number), uid)
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
