"""Equal inputs give equal bytes in every process, as engines that replay a run need."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import Session
from tests.agents.repeatable_runs import CALLS_OF_A_TURN, TURNS

ROOT = Path(__file__).parents[2]


def given_by(kind: str, folder: Path, *, seed: int, days: int, slowest: int) -> list[Any]:
    """Return what a run in a new process hands to its model."""
    command = [sys.executable, "-m", "tests.agents.repeatable_runs", kind, str(folder)]
    finished = subprocess.run(
        [*command, str(days), str(slowest)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    given: list[Any] = json.loads(finished.stdout)
    return given


@pytest.mark.parametrize("kind", ["one_by_one", "at_once", "executor"])
def test_two_processes_with_other_clocks_and_hash_seeds_write_the_same_prompts_t_13(
    tmp_path: Path, kind: str
) -> None:
    first = given_by(kind, tmp_path / "1", seed=1, days=0, slowest=0)
    second = given_by(kind, tmp_path / "2", seed=2, days=400, slowest=CALLS_OF_A_TURN - 1)
    assert len(first) > TURNS - 1
    assert first == second


def test_a_run_that_begins_again_over_its_store_writes_the_same_prompts_t_13(
    tmp_path: Path,
) -> None:
    first = given_by("at_once", tmp_path, seed=1, days=0, slowest=0)
    assert given_by("at_once", tmp_path, seed=2, days=1, slowest=1) == first


async def test_a_step_that_runs_again_refers_to_no_result_that_its_first_try_stored_t_13(
    tmp_path: Path,
) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "What is new?"},
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "news", "arguments": "{}"}}
            ],
        },
    ]
    shown = []
    for version in range(3):  # each in a process that ends before the step is recorded
        session = Session(tmp_path, session_id="s")
        rows = [{"id": number, "version": 0} for number in range(5_000)]
        rows[7]["version"] = version // 2
        shown.append(await session.offload(rows, tool="news", args={}, messages=messages))
    assert [preview.form for preview in shown] == ["preview"] * 3
    assert str(shown[0]) == str(shown[1])
    assert shown[0].pointer_id != shown[2].pointer_id
    for preview in shown:
        assert (await Session(tmp_path, session_id="s").read(preview.pointer_id or "")).text
