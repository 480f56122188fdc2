"""Runs whose tasks build on each other: what choosing sees, rounds, limits, resuming."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    AgenticExecutor,
    RunLimits,
    StreamEvent,
    ToolContextManager,
    ToolRegistry,
    ToolResult,
)
from llm_common.core import LLMResponse, LLMUsage, OpenAICompatibleClient
from llm_common.testing import ScriptedClient
from tests.agents.five_steps import ANSWER, QUESTION, STEPS, StepClient, message, registry
from tests.core.loopback import Wire, loopback, ok, response


def chat(*, native: bool) -> Callable[[Wire], Awaitable[None]]:
    """Serve the model of the five steps as a chat completions endpoint."""

    async def script(wire: Wire) -> None:
        while request := await wire.request():
            reply = message(
                "\n".join(str(one["content"]) for one in request.body["messages"]), native=native
            )
            finish = "tool_calls" if reply.get("tool_calls") else "stop"
            choice = {"index": 0, "message": reply, "finish_reason": finish}
            await wire.send(response(200, ok(choices=[choice])))

    return script


def calls(*proposed: tuple[str, dict[str, Any]], again: bool = False) -> str:
    return json.dumps(
        {"calls": [{"tool": tool, "args": args} for tool, args in proposed], "again": again}
    )


def executor_of(
    folder: Path, *replies: str, **options: Any
) -> tuple[AgenticExecutor, ScriptedClient]:
    client = ScriptedClient(replies)
    tools = options.pop("tools", None) or registry()
    return AgenticExecutor(client, tools, ToolContextManager(folder), **options), client


def prompt_of(client: ScriptedClient, number: int) -> str:
    return "\n".join(str(message.content) for message in client.calls[number].messages)


async def events_of(executor: AgenticExecutor, plan: list[str]) -> list[StreamEvent]:
    async with aclosing(executor.run_stream(plan, "q1")) as stream:
        return [event async for event in stream]


@pytest.mark.parametrize("native", [False, True], ids=["json", "native"])
@pytest.mark.parametrize("plan", [STEPS, None], ids=["five-tasks", "one-task"])
async def test_five_dependent_steps_end_in_the_right_answer(
    tmp_path: Path, native: bool, plan: list[str] | None
) -> None:
    made: list[str] = []
    async with loopback(chat(native=native)) as server:
        client = OpenAICompatibleClient(server.config())
        executor = AgenticExecutor(
            client,
            registry(made.append),
            ToolContextManager(tmp_path),
            limits=RunLimits(max_rounds=6),
        )
        async with aclosing(executor.answer_stream(QUESTION, plan=plan)) as stream:
            events: list[StreamEvent] = [event async for event in stream]
    answered = events[-1].data
    assert (answered.status, answered.text) == ("ok", ANSWER)
    assert made == ["find_account", "list_orders", "order_items", "price", "shipment"]
    told = [event.data for event in events if event.type == "error"]
    assert [error["tool"] for error in told] == ["price", "shipment"]
    assert "invalid args" in told[0]["error"]
    assert "the carrier does not answer" in told[1]["error"]
    assert sum(event.type == "tool_result" for event in events) == 4


async def test_a_killed_run_is_resumed_without_repeating_calls(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.agents.five_steps", str(tmp_path)]
    killed = await asyncio.to_thread(subprocess.run, command, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    made: list[str] = []
    executor = AgenticExecutor(
        StepClient(),
        registry(made.append),
        ToolContextManager(tmp_path),
        limits=RunLimits(max_rounds=1),
    )
    answered = await executor.run(QUESTION, plan=STEPS, session="ann", resume=True)
    assert (answered.status, answered.text) == ("ok", ANSWER)
    assert made == ["price", "shipment"]


async def test_a_resumed_call_yields_its_stored_output(tmp_path: Path) -> None:
    reply = calls(("order_items", {"order_id": "O-1931"}))
    first, _ = executor_of(tmp_path, reply)
    await first.execute_plan(["Get the items"], "q1", session="ann")
    made: list[str] = []
    second, _ = executor_of(tmp_path, reply, reply, tools=registry(made.append))
    resumed = second.run_stream(["Get the items"], "q1", session="ann", resume=True)
    async with aclosing(resumed) as stream:
        [result] = [event.data async for event in stream if event.type == "tool_result"]
    assert made == []
    assert result["output"] == {"order_id": "O-1931", "sku": "S-5", "quantity": 3}
    assert result["resumed"]
    await second.execute_plan(["Get the items"], "q1", session="ann")
    assert made == ["order_items"], "a run that is not resumed makes its calls again"


async def test_a_later_task_sees_earlier_outputs(tmp_path: Path) -> None:
    executor, client = executor_of(tmp_path, calls(("find_account", {"name": "Ann Lee"})), calls())
    await executor.execute_plan(["Find the account", "List its orders"], "q1")
    assert "stored_outputs" not in prompt_of(client, 0)
    assert '"result":{"account_id":"A-17","name":"Ann Lee"}' in prompt_of(client, 1)
    assert "find_account name=" in prompt_of(client, 1)


async def test_large_outputs_are_seen_in_the_parts_that_fit_the_task(tmp_path: Path) -> None:
    executor, client = executor_of(
        tmp_path, calls(("list_orders", {"account_id": "A-17"})), calls(), read_back="read_more"
    )
    await executor.execute_plan(["List the orders", "Get the items of the open order"], "q1")
    prompt = prompt_of(client, 1)
    assert "O-1931" in prompt
    assert "O-1000" not in prompt
    assert "read_more reads it" in prompt
    assert len(prompt) < 12_000


async def test_the_next_choice_sees_earlier_failures(tmp_path: Path) -> None:
    plan = ["Look both up", "Go on"]
    both = calls(("shipment", {"order_id": "O-1"}), ("price", {"sku": "S-5"}))
    executor, client = executor_of(tmp_path, both, calls())
    await executor.execute_plan(plan, "q1")
    assert "shipment raised ConnectionError: the carrier does not answer" in prompt_of(client, 1)


async def test_outputs_that_choosing_sees_stay_within_their_tokens(tmp_path: Path) -> None:
    def prompts(outputs_tokens: int) -> list[str]:
        executor, client = executor_of(
            tmp_path / str(outputs_tokens),
            calls(),
            limits=RunLimits(max_outputs_tokens=outputs_tokens),
        )
        manager = executor.context_manager

        async def run() -> None:
            for number in range(60):
                await manager.save_context(
                    "price", {"sku": f"S-{number}"}, {"price_usd": number, "note": "x" * 200}
                )
            await executor.execute_plan(["What is the price of S-7?"], "q1")

        asyncio.run(run())
        return [
            pointer.pointer_id
            for pointer in manager.get_all_pointers()
            if pointer.pointer_id in prompt_of(client, 0)
        ]

    none, few, more = await asyncio.to_thread(
        lambda: [prompts(tokens) for tokens in (0, 500, 2_000)]
    )
    assert none == []
    assert 0 < len(few) < len(more) < 60


async def test_a_task_chooses_again_only_when_the_model_asks(tmp_path: Path) -> None:
    account = calls(("find_account", {"name": "Ann Lee"}), again=True)
    orders = calls(("list_orders", {"account_id": "A-17"}))
    executor, client = executor_of(tmp_path, account, orders)
    result = await executor.execute_task("List the orders of Ann Lee", "q1")
    assert [entry["tool"] for entry in result.result] == ["find_account", "list_orders"]
    assert len(client.calls) == 2
    assert "up to 2 times" in prompt_of(client, 0)
    assert "up to 1 times" in prompt_of(client, 1)


async def test_a_call_is_made_once_in_a_task_however_often_it_is_chosen(tmp_path: Path) -> None:
    made: list[str] = []
    again = calls(("price", {"sku": "S-5"}), again=True)
    executor, client = executor_of(tmp_path, again, again, tools=registry(made.append))
    result = await executor.execute_task("Look it up", "q1")
    assert made == ["price"]
    assert len(result.result) == 1
    assert len(client.calls) == 2


async def test_the_last_round_does_not_offer_another(tmp_path: Path) -> None:
    replies = [calls(("price", {"sku": f"S-{n}"}), again=True) for n in range(2)]
    executor, client = executor_of(tmp_path, *replies, limits=RunLimits(max_rounds=2))
    result = await executor.execute_task("Look them up", "q1")
    assert len(result.result) == 2
    assert "again" not in prompt_of(client, 1).partition("Context from")[2]


async def test_a_failed_round_keeps_earlier_outputs(tmp_path: Path) -> None:
    executor, _ = executor_of(
        tmp_path, calls(("price", {"sku": "S-5"}), again=True), "no JSON at all"
    )
    result = await executor.execute_task("Look it up", "q1")
    assert result.success
    assert [entry["tool"] for entry in result.result] == ["price"]
    assert "no tools could be chosen for task 1 (status invalid)" in (result.error or "")


async def test_an_overridden_choice_of_calls_runs_once_a_task(tmp_path: Path) -> None:
    class Plain(AgenticExecutor):
        async def _resolve_tools(self, task: Any, *, query: str | None = None) -> Any:
            asked.append(task.id)
            return [{"tool": "price", "args": {"sku": "S-5"}}]

    asked: list[int] = []
    executor = Plain(ScriptedClient([]), registry(), ToolContextManager(tmp_path))
    await executor.execute_plan(["one", "two"], "q1")
    assert asked == [1, 2]


LIMITS = {
    "calls": (RunLimits(max_calls=2), "max_calls", 2),
    "tokens": (RunLimits(max_tokens=1), "max_tokens", 1),
    "dollars": (RunLimits(max_cost_usd=0.001), "max_cost_usd", 1),
}


def priced_reply(number: int) -> LLMResponse:
    return LLMResponse(
        id="r",
        model="priced",
        content=calls(("price", {"sku": f"S-{number}"}), again=True),
        finish_reason="stop",
        provider="local",
        usage=LLMUsage(prompt_tokens=10, completion_tokens=1, total_tokens=11),
        cost_usd=0.01,
    )


@pytest.mark.parametrize("name", LIMITS)
async def test_a_limit_ends_the_run_with_an_event(tmp_path: Path, name: str) -> None:
    limits, said, most = LIMITS[name]
    made: list[str] = []
    priced = ScriptedClient([priced_reply(number) for number in range(9)])
    executor = AgenticExecutor(
        priced, registry(made.append), ToolContextManager(tmp_path), limits=limits
    )
    results = await executor.execute_plan(["one", "two", "three"], "q1")
    assert len(made) == most
    assert said in (results[-1].error or "")
    assert results[0].success


@pytest.mark.parametrize(
    ("name", "limits"), [("tokens", RunLimits(max_tokens=9)), ("cost", RunLimits(max_cost_usd=9))]
)
async def test_a_limit_that_cannot_be_held_ends_the_run(
    tmp_path: Path, name: str, limits: RunLimits
) -> None:
    # usage is not reported
    executor, _ = executor_of(tmp_path, *[calls(("price", {"sku": "S-1"}))] * 2, limits=limits)
    results = await executor.execute_plan(["one", "two"], "q1")
    assert [result.success for result in results] == [True, False]
    assert f"max_{name}" in (results[1].error or "")


async def test_calls_over_the_limit_are_not_made(tmp_path: Path) -> None:
    reply = calls(*(("price", {"sku": f"S-{n}"}) for n in range(5)))
    executor, _ = executor_of(tmp_path, reply, limits=RunLimits(max_calls=3))
    events = await events_of(executor, ["Look them up"])
    assert sum(event.type == "tool_result" for event in events) == 3
    [told] = [event.data for event in events if event.type == "error"]
    assert told["limit"]
    assert "max_calls" in told["error"]


async def test_a_resumed_run_gets_beyond_the_calls_that_its_limit_allowed(tmp_path: Path) -> None:
    made: list[str] = []
    skus = ["S-1", "S-2", "S-3", "S-4", "S-5"]
    replies = [calls(("price", {"sku": sku})) for sku in skus]
    for resume, successes in (
        (False, [True, True, False]),
        (True, [True] * 4 + [False]),
        (True, [True] * 5),
    ):
        executor, _ = executor_of(
            tmp_path,
            *replies,
            tools=registry(made.append),
            limits=RunLimits(max_calls=2, max_rounds=1),
        )
        results = await executor.execute_plan(skus, "q1", session="ann", resume=resume)
        assert [result.success for result in results] == successes
    assert len(made) == 5


async def test_a_failure_that_a_resumed_run_tries_again_counts(tmp_path: Path) -> None:
    made: list[str] = []

    async def ask(name: str) -> ToolResult:
        """Returns a failure."""
        made.append(name)
        return ToolResult(success=name != "a", error="it is busy")

    replies = [calls(("ask", {"name": "a"}), ("ask", {"name": "b"})), calls(("ask", {"name": "c"}))]
    for resume in (False, True):
        executor, _ = executor_of(
            tmp_path, *replies, tools=ToolRegistry([ask]), limits=RunLimits(max_calls=2)
        )
        await executor.execute_plan(["one", "two"], "q1", session="ann", resume=resume)
    assert made == ["a", "b", "a", "c"]
    replies[0] = calls(("ask", {"name": "a"}), ("ask", {"name": "d"}))
    executor, _ = executor_of(
        tmp_path, *replies, tools=ToolRegistry([ask]), limits=RunLimits(max_calls=1)
    )
    results = await executor.execute_plan(["one"], "q1", session="ann", resume=True)
    assert made[4:] == ["d"]
    assert "tool 'ask' was not called again: the run has made the 1 tool calls" in (
        results[0].error or ""
    )


async def test_no_call_begins_after_the_runs_time(tmp_path: Path) -> None:
    made: list[int] = []

    def act(number: int) -> int:
        """Acts."""
        made.append(number)
        return number

    executor, _ = executor_of(
        tmp_path,
        calls(("act", {"number": 1}), ("act", {"number": 2})),
        tools=ToolRegistry([act]),
        limits=RunLimits(timeout_s=1.0, max_parallel=1),
    )
    told = []
    async with aclosing(executor.run_stream(["Act"], "q1")) as stream:
        async for event in stream:
            if event.type == "tool_result":
                await asyncio.sleep(1.0)  # a slow reader of the events
            elif event.type == "error":
                told.append(event.data["error"])
    assert made == [1]
    assert told == ["tool 'act' was not called: the 1.0 seconds that timeout_s allows are over"]


async def test_a_tool_that_was_ended_does_not_go_on_while_that_is_read(tmp_path: Path) -> None:
    made: list[str] = []

    async def slow() -> None:
        """Takes long."""
        await asyncio.sleep(0.15)
        made.append("slow")

    executor, _ = executor_of(
        tmp_path,
        calls(("slow", {})),
        tools=ToolRegistry([slow]),
        limits=RunLimits(timeout_s=0.1, max_calls=1),
    )
    async with aclosing(executor.run_stream(["Wait"], "q1")) as stream:
        async for event in stream:
            if event.type == "error":
                assert (
                    event.data["error"]
                    == "tool 'slow' was ended: the 0.1 seconds that timeout_s allows are over"
                )
                await asyncio.sleep(0.1)
    assert made == []


async def test_a_run_out_of_time_ends_its_tools_and_says_so(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        """Takes long."""
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    executor, _ = executor_of(
        tmp_path, calls(("slow", {})), tools=ToolRegistry([slow]), limits=RunLimits(timeout_s=0.1)
    )
    results = await executor.execute_plan(["Wait", "Go on"], "q1")
    assert ended.is_set()
    assert "tool 'slow' was ended: the 0.1 seconds that timeout_s allows are over" in (
        results[0].error or ""
    )


async def test_a_choice_that_takes_too_long_ends_with_the_run(tmp_path: Path) -> None:
    class Slow(StepClient):
        async def chat_completion(self, **options: Any) -> Any:
            await asyncio.sleep(60)

    executor = AgenticExecutor(
        Slow(), registry(), ToolContextManager(tmp_path), limits=RunLimits(timeout_s=0.1)
    )
    [told] = [
        event.data for event in await events_of(executor, ["one", "two"]) if event.type == "error"
    ]
    assert told["limit"]
    assert "timeout_s" in told["error"]
    [result] = await executor.execute_plan(["one", "two"], "q1")
    assert not result.success
    assert "timeout_s" in (result.error or "")


def test_a_limit_of_zero_is_refused() -> None:
    for name in ("max_calls", "max_tokens", "max_cost_usd", "timeout_s"):
        with pytest.raises(ValueError, match=f"{name} is 0; pass a number above 0"):
            RunLimits(**{name: 0})
    for wrong in (2.5, "2", True):
        with pytest.raises(TypeError, match="pass a whole number, or None for no limit"):
            RunLimits(max_calls=wrong)  # type: ignore[arg-type]
    for name in ("max_rounds", "max_parallel"):
        with pytest.raises(ValueError, match=f"{name} is 0; pass a number above 0$"):
            RunLimits(**{name: 0})
        with pytest.raises(TypeError, match=f"{name} is a NoneType; pass a whole number$"):
            RunLimits(**{name: None})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_outputs_tokens is -1"):
        RunLimits(max_outputs_tokens=-1)
