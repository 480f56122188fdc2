"""A planner works inside the run: in its events, its trace and its limits."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    Answer,
    Planner,
    RunLimits,
)
from llm_common.core import LLMResponse, LLMUsage
from llm_common.testing import ScriptedClient
from llm_common.trace import Trace, read_trace
from tests.agents.runs import WEATHER, events_of, forecaster, prompt_of

QUESTION = "Is it snowing in Oslo?"
PLAN = json.dumps({"tasks": WEATHER})
USAGE = LLMUsage(prompt_tokens=90, completion_tokens=10, total_tokens=100)


def priced(text: str) -> LLMResponse:
    return LLMResponse(
        id="1", model="m", content=text, finish_reason="stop", usage=USAGE, cost_usd=0.5
    )


async def test_the_planned_tasks_are_run(tmp_path: Path) -> None:
    client = ScriptedClient([PLAN, "It snows."])
    runner = forecaster(client, tmp_path)
    events = await events_of(runner.answer_stream(QUESTION, plan=Planner(client)))
    assert events[0].data == f"Planned: {WEATHER[0]}; {WEATHER[1]}"
    called = [event.data["args"]["city"] for event in events if event.type == "tool_call"]
    assert called == ["Oslo", "Lima"]
    assert events[-1].data.text == "It snows."


async def test_the_planners_call_is_in_the_trace_of_the_run(tmp_path: Path) -> None:
    client = ScriptedClient([PLAN, "It snows."])
    trace = Trace(tmp_path / "traces")
    with trace.run("q"):
        await forecaster(client, tmp_path / "outputs").run(QUESTION, plan=Planner(client))
    trace.flush()
    [path] = (tmp_path / "traces").rglob("*.jsonl")
    kinds = [line.kind for line in read_trace(path).lines]
    assert kinds.index("model_call") < kinds.index("tool_call")
    assert kinds.count("model_call") == 2


@pytest.mark.parametrize(
    ("limits", "reply", "text"),
    [
        (
            RunLimits(max_tokens=100),
            priced(PLAN),
            "max_tokens allows 100; 2 of 2 tasks were not run",
        ),
        (
            RunLimits(max_cost_usd=0.4),
            priced(PLAN),
            "max_cost_usd allows 0.4; 2 of 2 tasks were not run",
        ),
        (
            RunLimits(timeout_s=0.05),
            lambda _: asyncio.sleep(30, PLAN),
            "the 0.05 seconds that timeout_s allows are over",
        ),
    ],
    ids=["tokens", "dollars", "seconds"],
)
async def test_planning_counts_towards_the_limits_of_the_run(
    tmp_path: Path, limits: RunLimits, reply: Any, text: str
) -> None:
    client = ScriptedClient([reply])
    answer = await forecaster(client, tmp_path, limits=limits).run(QUESTION, plan=Planner(client))
    assert answer.status == "no_data"
    assert text in answer.problem


async def test_without_a_usable_plan_nothing_runs(tmp_path: Path) -> None:
    client = ScriptedClient(["First I would look at the weather."])
    runner = forecaster(client, tmp_path)
    events = await events_of(runner.answer_stream(QUESTION, plan=Planner(client)))
    assert [event.type for event in events] == ["error", "answer"]
    assert sorted(events[0].data) == ["error", "task"]
    assert events[0].data["task"] == 0
    assert "no plan could be made" in events[0].data["error"]
    answer: Answer = events[1].data
    assert answer.status == "no_data"
    [result] = answer.results
    assert (result.task_id, result.sub_task_id, result.success) == (0, 0, False)


async def test_an_empty_plan_answers_without_a_tool(tmp_path: Path) -> None:
    client = ScriptedClient(['{"tasks": []}', "Hello!"])
    answer = await forecaster(client, tmp_path).run("Hi", plan=Planner(client))
    assert (answer.status, answer.text, answer.results) == ("ok", "Hello!", ())


async def test_a_planner_needs_the_question(tmp_path: Path) -> None:
    client = ScriptedClient([])
    with pytest.raises(ValueError, match="a Planner needs the question; pass query="):
        await forecaster(client, tmp_path).execute_plan(Planner(client), "q")


async def test_a_planner_does_not_see_the_reader(tmp_path: Path) -> None:
    client = ScriptedClient([PLAN, "It snows."])
    runner = forecaster(client, tmp_path, read_back=True)
    await runner.run(QUESTION, plan=Planner(client))
    assert "read_context" in runner.registry.get_tools_schema()
    prompt = prompt_of(client)
    assert "weather" in prompt
    assert "read_context" not in prompt
