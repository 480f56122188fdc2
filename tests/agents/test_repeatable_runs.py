"""Equal inputs give equal bytes in every process, as engines that replay a run need."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from llm_common.agents import Session
from tests.agents.repeatable_runs import CALLS_OF_A_TURN, TURNS

ROOT = Path(__file__).parents[2]


def given_by(*kinds: str, folder: Path, seed: int, days: int, slowest: int) -> dict[str, list[Any]]:
    """Return what runs in a new process hand to their model, by the kind of the run."""
    command = [sys.executable, "-m", "tests.agents.repeatable_runs", str(folder)]
    finished = subprocess.run(
        [*command, str(days), str(slowest), *kinds],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        stdout=subprocess.PIPE,
        check=True,
    )
    given: dict[str, list[Any]] = json.loads(finished.stdout)
    return given


def test_processes_with_other_clocks_and_hash_seeds_write_the_same_prompts_t_13(
    tmp_path: Path,
) -> None:
    kinds = ("one_by_one", "at_once", "executor")
    first = given_by(*kinds, folder=tmp_path / "1", seed=1, days=0, slowest=0)
    second = given_by(*kinds, folder=tmp_path / "2", seed=2, days=400, slowest=CALLS_OF_A_TURN - 1)
    # a run that begins again over the store of the first
    again = given_by("at_once", folder=tmp_path / "1", seed=2, days=1, slowest=1)
    assert [*first] == [*kinds]
    for kind, given in first.items():
        assert len(given) > TURNS - 1, kind
        assert second[kind] == given, kind
    assert again["at_once"] == first["at_once"]


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
