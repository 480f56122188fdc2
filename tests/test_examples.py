"""The examples run without a key and with an endpoint, and print what they promise."""

import asyncio
import json
import os
import re
import runpy
import subprocess
import sys
import uuid
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from llm_common._env import VARIABLES
from llm_common.agents import compute_pointer_id
from tests.core.loopback import Received, answer, loopback
from tests.endpoint import replying
from tests.s3_server import make_bucket

FOLDER = Path(__file__).parent.parent / "examples"
MAX_LINES = 120
S3_SETTINGS = {
    "AWS_ALLOW_HTTP": "true",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
}


def run(name: str, *arguments: str, cwd: Path, settings: dict[str, str] | None = None) -> str:
    """Return what an example prints when it runs as `__main__` in this process."""
    output, errors = StringIO(), StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        chdir(cwd),
        redirect_stdout(output),
        redirect_stderr(errors),
    ):
        patch.setattr(sys, "argv", [name, *arguments])
        for variable, value in (settings or {}).items():
            patch.setenv(variable, value)
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert errors.getvalue() == ""
    return output.getvalue()


def run_process(
    name: str, *arguments: str, cwd: Path, settings: dict[str, str] | None = None
) -> str:
    """Return what an example prints as a process that ends with 0 and without a warning."""
    settings_names = {variable.name for variable in VARIABLES}
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in settings_names and not key.startswith("AWS_")
    }
    completed = subprocess.run(
        [sys.executable, "-W", "error", FOLDER / name, *arguments],
        cwd=cwd,
        env=environment | (settings or {}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    return completed.stdout


async def run_with_model(
    name: str, *arguments: str, replies: Sequence[str], cwd: Path
) -> tuple[str, list[Received]]:
    """Return what an example prints with an endpoint that replies in turn, and its requests."""
    async with replying(*replies) as (settings, requests):
        output = await asyncio.to_thread(run, name, *arguments, cwd=cwd, settings=settings)
    assert {request.body["model"] for request in requests} == {"test-model"}
    return output, requests


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_is_run_by_a_test(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    assert f"    python examples/{path.name}" in text
    runners = (Path(__file__), Path(__file__).parent / "test_research_service.py")
    assert any(f'"{path.name}"' in runner.read_text(encoding="utf-8") for runner in runners)


def test_minimal_shows_only_the_output_that_answers(tmp_path: Path) -> None:
    output = run_process("minimal.py", cwd=tmp_path)
    assert output.startswith("1 of 3 outputs chosen (ok)")
    assert "Snow all day" in output
    assert "Fog" not in output
    assert len(list(tmp_path.glob(".llm-common/context/weather/*.meta.json"))) == 3


def test_financial_research_offloads_queries_and_answers_from_stored_values_s4_08(
    tmp_path: Path,
) -> None:
    output = run("financial_research.py", cwd=tmp_path)
    previews, queries = output.split("Query of", maxsplit=1)
    assert previews.count("of which parts are shown") == 2
    assert '"revenue":718' not in previews
    found = re.findall(r"ticker=(\w+):\n1 row\b.*\n<<<\w+\nrevenue\n(\d+)\n", queries)
    assert found == [("ACME", "1059"), ("GLOBEX", "943")]
    answer = queries.partition("Answer (ok")[2]
    assert "1059" in answer
    assert "943" in answer
    assert not list(tmp_path.rglob("*.json")), "the session cleared its files"


def test_code_question_packs_files_within_its_budget_and_says_why_s1_05_s1_11(
    tmp_path: Path,
) -> None:
    output = run("code_question.py", cwd=tmp_path)
    tokens, budget = re.findall(r"[0-9,]+", output.splitlines()[0])[:2]
    assert 0 < int(tokens.replace(",", "")) <= int(budget.replace(",", ""))
    rows = {words[1]: words[2] for line in output.splitlines()[2:] if (words := line.split())}
    assert rows["http/openai_compatible.py"] == "passages"
    assert rows["tokens.py"] == "left_out"


def test_code_question_accepts_a_folder_and_a_question(tmp_path: Path) -> None:
    (tmp_path / "moon.py").write_text("def phase_of_the_moon() -> str:\n    return 'full'\n")
    (tmp_path / "tide.py").write_text("def height() -> float:\n    return 1.5\n")
    output = run("code_question.py", str(tmp_path), "Which phase has the moon?", cwd=tmp_path)
    assert re.search(r"moon\.py +whole", output)
    assert re.search(r"tide\.py +left_out", output)


def assert_many_workers_saved(output: str) -> None:
    lines = output.splitlines()
    assert [line for line in lines if "saved 4 results" in line] == [
        f"worker {n} saved 4 results" for n in range(4)
    ]
    assert len({line.split()[0] for line in lines if " -> " in line}) == 13
    assert sum("status -> {'newest'" in line for line in lines) == 1
    assert lines[-1].startswith("13 results")


def test_many_workers_share_an_object_store_in_memory(tmp_path: Path) -> None:
    assert_many_workers_saved(run("many_workers.py", cwd=tmp_path))


@pytest.mark.torture
def test_many_workers_are_processes_on_a_bucket(tmp_path: Path, s3_endpoint: str) -> None:
    bucket = f"b{uuid.uuid4().hex}"
    make_bucket(s3_endpoint, bucket)
    settings = S3_SETTINGS | {"AWS_ENDPOINT": s3_endpoint}
    assert_many_workers_saved(
        run_process(
            "many_workers.py", f"s3://{bucket}/some/prefix", cwd=tmp_path, settings=settings
        )
    )


def test_long_conversation_keeps_over_90_percent_of_each_prompt_s3_06(
    tmp_path: Path,
) -> None:
    output = run("long_conversation.py", cwd=tmp_path)
    assert output.startswith("60 turns")
    [share] = re.findall(r"([0-9.]+)% of the prompt bytes", output)
    assert 90 <= float(share) < 100


def test_folding_chat_finds_a_folded_turn_and_repeats_its_prompts(tmp_path: Path) -> None:
    output = run("folding_chat.py", cwd=tmp_path)
    assert "user: By the way, the door code of the shed is 7421." in output
    [share] = re.findall(r"(\d+)% of each prompt begins the next one", output)
    assert int(share) >= 90


def test_chaining_agent_uses_the_results_of_earlier_steps(tmp_path: Path) -> None:
    output = run("chaining_agent.py", cwd=tmp_path)
    assert "{'tool': 'order_total', 'args': {'order': 'A-17-1931'}" in output
    assert output.endswith("The open order costs 37.5 dollars.\n")


async def test_minimal_with_a_model(tmp_path: Path) -> None:
    lima = compute_pointer_id(
        tool_name="weather", args={"city": "Lima"}, query_id="weather", task_id=None
    )
    output, _ = await run_with_model(
        "minimal.py", replies=[json.dumps({"pointer_ids": [lima]})], cwd=tmp_path
    )
    assert output.startswith("1 of 3 outputs chosen (ok)")
    assert "Fog" in output


async def test_financial_research_with_a_model(tmp_path: Path) -> None:
    calls = [
        json.dumps({"calls": [{"tool": "income_statement", "args": {"ticker": ticker}}]})
        for ticker in ("ACME", "GLOBEX")
    ]
    output, requests = await run_with_model(
        "financial_research.py", replies=[*calls, "ACME had."], cwd=tmp_path
    )
    assert output.count("of which parts are shown") == 2
    assert output.endswith("ACME had.\n")
    prompt = str(requests[-1].body["messages"])
    assert "1059" in prompt
    assert "943" in prompt


async def test_code_question_with_a_model(tmp_path: Path) -> None:
    output, [request] = await run_with_model(
        "code_question.py", replies=["By a deadline."], cwd=tmp_path
    )
    assert output.endswith("By a deadline.\n")
    assert "### http/openai_compatible.py" in str(request.body["messages"])


async def test_long_conversation_with_a_model(tmp_path: Path) -> None:
    replies = ["In May.", "Weekly.", "Seldom."]
    output, requests = await run_with_model(
        "long_conversation.py", "3", replies=replies, cwd=tmp_path
    )
    assert output.startswith("3 turns")
    assert [message["role"] for message in requests[-1].body["messages"]] == [
        "system",
        *["user", "assistant"] * 2,
        "user",
    ]
    assert "Weekly." in str(requests[-1].body["messages"])


async def run_with_decisions(
    cwd: Path, status: int, *answers: tuple[str, object]
) -> tuple[str, list[Received]]:
    """Return what the example of a decision model prints, and the requests to its endpoint."""
    named = [{"name": name, "type": "predicate", "probability": value} for name, value in answers]
    body = json.dumps({"answers": named}).encode()
    async with loopback(answer(status, body)) as server:
        url = f"http://127.0.0.1:{server.port}/v1/decisions"
        output = await asyncio.to_thread(run, "decision_model.py", url, cwd=cwd)
    return output, server.requests


async def test_decision_model_shows_the_outputs_that_probably_help(tmp_path: Path) -> None:
    output, [request] = await run_with_decisions(tmp_path, 200, ("1", 0.6), ("2", 0.5), ("0", 0.9))
    assert output == "weather city=Oslo\nweather city=Lima\nok Yes, all day.\n"
    state = json.loads(request.body["input"])
    assert state["outputs"] == {
        "0": "weather city=Oslo",
        "1": "weather city=Lima",
        "2": "weather city=Cairo",
    }
    assert "weather" not in str(request.body["questions"]), "what a tool wrote is only data"


@pytest.mark.parametrize(
    ("status", "answers"),
    [
        pytest.param(500, [("0", 0.9)], id="status"),
        pytest.param(200, [("0", 0.9), ("7", 0.9)], id="another question"),
        pytest.param(200, [("0", None)], id="no number"),
        pytest.param(200, [("0", 93)], id="percent"),
    ],
)
async def test_decision_model_that_fails_shows_nothing(
    status: int, answers: list[tuple[str, object]], tmp_path: Path
) -> None:
    output, _ = await run_with_decisions(tmp_path, status, *answers)
    assert output.startswith("error the outputs to show could not be chosen: the decision model")


def test_use_a_decision_model_shows_the_selector_of_the_example() -> None:
    page = (FOLDER.parent / "docs" / "how-to" / "use_a_decision_model.md").read_text("utf-8")
    [selector] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert selector in (FOLDER / "decision_model.py").read_text(encoding="utf-8")
