"""Tests `Planner`."""

import json
from collections.abc import Sequence

import pytest

from llm_common.agents import Planner, ToolRegistry
from llm_common.core import Attempt
from llm_common.errors import LLMError, LLMTimeoutError, MalformedReplyError, ToolFailedError
from llm_common.testing import ScriptedClient
from llm_common.tools import Tool
from tests.selection.doubles import search_web

QUESTION = "What does the open order of Ann Lee cost?"


def tools(count: int = 2) -> ToolRegistry:
    described = {f"look_up_{number}": f"Looks up thing {number}." for number in range(count)}
    return ToolRegistry(
        [Tool(search_web, name=name, description=text) for name, text in described.items()]
    )


def reply(*tasks: object) -> str:
    return json.dumps({"tasks": tasks})


@pytest.mark.parametrize("sub_task", ["the name", {"id": 1, "description": "the name"}])
async def test_a_question_becomes_numbered_tasks_with_sub_tasks(sub_task: object) -> None:
    tasks = [{"description": "Find the account", "sub_tasks": [sub_task, "id"]}, "List orders"]
    plan = await Planner(ScriptedClient([reply(*tasks)])).plan(QUESTION, tools())
    assert plan.model_dump()["tasks"] == [
        {
            "id": 1,
            "description": "Find the account",
            "sub_tasks": [{"id": 1, "description": "the name"}, {"id": 2, "description": "id"}],
        },
        {"id": 2, "description": "List orders", "sub_tasks": []},
    ]


async def test_the_prompt_shows_the_tools_and_fences_the_question() -> None:
    client = ScriptedClient([reply()])
    await Planner(client, max_tasks=3).plan(QUESTION, tools())
    system, user = (str(message.content) for message in client.calls[0].messages)
    assert "look_up_1" in system
    assert "At most 3 tasks" in system
    assert QUESTION not in system
    assert QUESTION in user
    assert "<<<" in user


async def test_a_large_registry_is_shortlisted_for_the_question() -> None:
    client = ScriptedClient([reply()])
    await Planner(client, max_catalogue_tokens=500).plan("Looks up thing 277.", tools(300))
    system, user = (str(message.content) for message in client.calls[0].messages)
    assert "look_up_277" in user
    assert "look_up_" not in system


async def test_no_tools_give_an_empty_plan_without_a_model_call() -> None:
    client = ScriptedClient([])
    assert (await Planner(client).plan(QUESTION, ToolRegistry())).tasks == []
    assert client.calls == []


@pytest.mark.parametrize(
    ("replies", "error"),
    [
        (["no plan"], MalformedReplyError),
        ([reply("one", "two", "three")], MalformedReplyError),
        ([reply({"description": "  "})], MalformedReplyError),
        ([reply({"sub_tasks": ["lost"]})], MalformedReplyError),
        ([LLMTimeoutError("late", timeout_s=1)], LLMTimeoutError),
    ],
    ids=["no-json", "too-many", "blank", "no-description", "timeout"],
)
async def test_an_unusable_reply_raises(
    replies: Sequence[str | LLMError], error: type[LLMError]
) -> None:
    attempts: list[Attempt] = []
    with pytest.raises(error):
        await Planner(ScriptedClient(replies), max_tasks=2).plan(
            QUESTION, tools(), attempts=attempts
        )
    assert len(attempts) == 1


async def test_invalid_arguments_raise() -> None:
    with pytest.raises(ValueError, match="query is blank; pass the user's question"):
        await Planner(ScriptedClient([])).plan("  ", tools())
    with pytest.raises(ToolFailedError, match="pass a ToolRegistry"):
        await Planner(ScriptedClient([])).plan(QUESTION, object())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout_s must be above 0, got 0"):
        Planner(ScriptedClient([]), timeout_s=0)
    with pytest.raises(TypeError):
        Planner(object())  # type: ignore[arg-type]


async def test_a_plan_has_at_most_eight_tasks_by_default() -> None:
    steps = [f"Step {number}" for number in range(9)]
    client = ScriptedClient([reply(*steps[:8]), reply(*steps)])
    plan = await Planner(client).plan(QUESTION, tools())
    assert [task.description for task in plan.tasks] == steps[:8]
    with pytest.raises(MalformedReplyError, match="9 tasks and max_tasks is 8; raise max_tasks"):
        await Planner(client).plan(QUESTION, tools())


@pytest.mark.parametrize(("allowed", "refused"), [(1, 0), (50, 51)])
def test_a_plan_may_have_one_to_fifty_tasks(allowed: int, refused: int) -> None:
    Planner(ScriptedClient([]), max_tasks=allowed)
    with pytest.raises(ValueError, match=f"max_tasks must be 1 to 50, got {refused}"):
        Planner(ScriptedClient([]), max_tasks=refused)
