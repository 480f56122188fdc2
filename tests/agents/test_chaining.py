"""Runs whose tasks build on each other: what choosing sees, rounds, limits, resuming."""

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    FileContextPointerStore,
    RunLimits,
    ToolContextManager,
    ToolRegistry,
    ToolResult,
    ToolSelection,
)
from llm_common.core import LLMResponse, LLMUsage
from llm_common.core.structured import Attempt
from llm_common.errors import PointerNotFoundError
from llm_common.testing import ScriptedClient
from tests.agents import runs
from tests.agents.runs import Chosen, asking, call, events_of, prompt_of, proposed

ORDERS = [
    {"id": f"O-{n}", "status": "open" if n == 1931 else "closed", "note": "n" * 40}
    for n in range(1_000, 2_000)
]


def registry(made: Callable[[str], None] = lambda tool: None) -> ToolRegistry:
    """Return three tools of a shop, which call `made` with their names."""

    def find_account(name: str) -> dict[str, str]:
        """The account of a customer."""
        made("find_account")
        return {"account_id": "A-17", "name": name}

    def list_orders(account_id: str) -> list[dict[str, Any]]:
        """All orders of an account."""
        made("list_orders")
        return ORDERS if account_id == "A-17" else []

    def price(sku: str) -> dict[str, Any]:
        """The price of an item."""
        made("price")
        return {"sku": sku, "price_usd": 12.5}

    return ToolRegistry([find_account, list_orders, price])


def executor_of(
    folder: Path, *replies: str | LLMResponse, **options: Any
) -> tuple[AgenticExecutor, ScriptedClient]:
    return asking(folder, *replies, **({"registry": registry()} | options))


@pytest.fixture
def made() -> list[Any]:
    """The calls that tools add here."""
    return []


async def test_a_later_choice_sees_the_parts_of_earlier_outputs_that_fit_its_task(
    tmp_path: Path,
) -> None:
    account = proposed(("find_account", {"name": "Ann Lee"}))
    orders = proposed(("list_orders", {"account_id": "A-17"}))
    executor, client = executor_of(tmp_path, account, orders, proposed(), read_back="read_more")
    plan = ["Find the account", "List its orders", "Get the items of the open order"]
    await executor.execute_plan(plan, "q1")
    assert '"result":{"account_id":"A-17","name":"Ann Lee"}' in prompt_of(client, 1)
    prompt = prompt_of(client, 2)
    assert "O-1931" in prompt
    assert "O-1000" not in prompt
    assert "read_more reads it" in prompt
    assert len(prompt) < 12_000


async def test_a_task_chooses_again_only_when_the_model_asks(tmp_path: Path) -> None:
    account = proposed(("find_account", {"name": "Ann Lee"}), again=True)
    orders = proposed(("list_orders", {"account_id": "A-17"}))
    executor, client = executor_of(tmp_path, account, orders)
    result = await executor.execute_task("List the orders of Ann Lee", "q1")
    assert [entry["tool"] for entry in result.result] == ["find_account", "list_orders"]
    assert len(client.calls) == 2
    assert "up to 2 times" in prompt_of(client, 0)
    assert "up to 1 times" in prompt_of(client, 1)


async def test_a_call_is_made_once_in_a_task_however_often_it_is_chosen(
    made: list[str], tmp_path: Path
) -> None:
    again = proposed(("price", {"sku": "S-5"}), again=True)
    executor, client = executor_of(tmp_path, again, again, registry=registry(made.append))
    result = await executor.execute_task("Look it up", "q1")
    assert made == ["price"]
    assert len(result.result) == 1
    assert len(client.calls) == 2


async def test_the_last_round_does_not_offer_another(tmp_path: Path) -> None:
    replies = [proposed(("price", {"sku": f"S-{n}"}), again=True) for n in range(2)]
    executor, client = executor_of(tmp_path, *replies, limits=RunLimits(max_rounds=2))
    result = await executor.execute_task("Look them up", "q1")
    assert len(result.result) == 2
    assert "again" not in prompt_of(client, 1).partition("Context from")[2]


async def test_a_failed_round_keeps_earlier_outputs(tmp_path: Path) -> None:
    executor, _ = executor_of(
        tmp_path, proposed(("price", {"sku": "S-5"}), again=True), "no JSON at all"
    )
    result = await executor.execute_task("Look it up", "q1")
    assert result.success
    assert [entry["tool"] for entry in result.result] == ["price"]
    assert "no tools could be chosen for task 1 (status invalid)" in (result.error or "")


def priced_reply(number: int) -> LLMResponse:
    return LLMResponse(
        id="r",
        model="priced",
        content=proposed(("price", {"sku": f"S-{number}"}), again=True),
        finish_reason="stop",
        provider="local",
        usage=LLMUsage(prompt_tokens=10, completion_tokens=1, total_tokens=11),
        cost_usd=0.01,
    )


@pytest.mark.parametrize(
    ("limits", "calls_made", "text"),
    [
        (RunLimits(max_tokens=22), 2, "choosing took 22 tokens, and max_tokens allows 22"),
        (RunLimits(max_tokens=23), 3, "choosing took 33 tokens, and max_tokens allows 23"),
        (
            RunLimits(max_cost_usd=0.02),
            2,
            "choosing cost 0.0200 dollars, and max_cost_usd allows 0.02",
        ),
        (
            RunLimits(max_cost_usd=0.021),
            3,
            "choosing cost 0.0300 dollars, and max_cost_usd allows 0.021",
        ),
    ],
    ids=["tokens-reached", "tokens-below", "dollars-reached", "dollars-below"],
)
async def test_the_call_that_reaches_a_limit_is_the_last_one(
    tmp_path: Path, limits: RunLimits, calls_made: int, text: str
) -> None:
    replies = [priced_reply(number) for number in range(9)]
    executor, client = executor_of(tmp_path, *replies, limits=replace(limits, max_rounds=1))
    results = await executor.execute_plan(["one", "two", "three", "four", "five"], "q1")
    assert len(client.calls) == calls_made
    assert [result.success for result in results] == [True] * calls_made + [False]
    assert results[-1].error == f"{text}; {5 - calls_made} of 5 tasks were not run"
    assert (results[-1].task_id, results[-1].sub_task_id) == (calls_made + 1, 0)


async def test_a_failed_attempt_without_usage_does_not_end_the_run(tmp_path: Path) -> None:
    usage = LLMUsage(prompt_tokens=10, completion_tokens=1, total_tokens=11)
    failed = Attempt("m", 5, cost_usd=0.0, error="timeout")
    answered = Attempt("m", 5, usage=usage, cost_usd=0.0)
    selector = Chosen(attempts=(failed, answered))
    executor = runs.executor_of(tmp_path, selector=selector, limits=RunLimits(max_tokens=30))
    results = await executor.execute_plan(["one", "two", "three", "four"], "q1")
    assert [result.success for result in results] == [True, True, True, False]
    assert results[-1].error == (
        "choosing took 33 tokens, and max_tokens allows 30; 1 of 4 tasks were not run"
    )


async def test_the_next_choice_sees_the_ten_newest_failures(tmp_path: Path) -> None:
    async def check(number: int) -> str:
        """Checks a number."""
        raise ConnectionError(f"no line to service {number:02}")

    calls = [call("check", number=number) for number in range(12)]
    tools = registry()
    tools.tool(check)
    selector = Chosen([*calls, call("price", sku="S-5")])
    executor = runs.executor_of(tmp_path, registry=tools, selector=selector)
    await executor.execute_plan(["one", "two"], "q1")
    [first, second] = [asked["context"] for asked in selector.asked]
    assert first is None
    assert second["failed"] == [
        f"check raised ConnectionError: no line to service {number:02}" for number in range(2, 12)
    ]


BELOW_ZERO = LLMUsage(prompt_tokens=-1_000, completion_tokens=-1_000, total_tokens=-2_000)


@pytest.mark.parametrize(
    ("reported", "limit"),
    [
        ({"usage": None}, "max_tokens"),
        ({"usage": BELOW_ZERO}, "max_tokens"),
        ({"cost_usd": None}, "max_cost_usd"),
        ({"cost_usd": -1.0}, "max_cost_usd"),
        ({"cost_usd": math.nan}, "max_cost_usd"),
    ],
)
async def test_a_limit_that_cannot_be_held_ends_the_run(
    tmp_path: Path, reported: dict[str, Any], limit: str
) -> None:
    replies = [priced_reply(number).model_copy(update=reported) for number in range(2)]
    executor, client = executor_of(tmp_path, *replies, limits=RunLimits(**{limit: 90}))
    results = await executor.execute_plan(["one", "two"], "q1")
    assert [result.success for result in results] == [True, False]
    assert limit in (results[1].error or "")
    assert len(client.calls) == 1


async def test_calls_over_the_limit_are_not_made(tmp_path: Path) -> None:
    reply = proposed(*(("price", {"sku": f"S-{n}"}) for n in range(5)))
    executor, _ = executor_of(tmp_path, reply, limits=RunLimits(max_calls=3))
    events = await events_of(executor.run_stream(["Look them up"], "q1"))
    assert sum(event.type == "tool_result" for event in events) == 3
    [told] = [event.data for event in events if event.type == "error"]
    assert told["limit"]
    assert "max_calls" in told["error"]


async def test_a_resumed_run_gets_beyond_the_calls_that_its_limit_allowed(
    made: list[str], tmp_path: Path
) -> None:
    skus = ["S-1", "S-2", "S-3", "S-4", "S-5"]
    replies = [proposed(("price", {"sku": sku})) for sku in skus]
    for resume, successes in (
        (False, [True, True, False]),
        (True, [True] * 4 + [False]),
        (True, [True] * 5),
    ):
        executor, _ = executor_of(
            tmp_path,
            *replies,
            registry=registry(made.append),
            limits=RunLimits(max_calls=2, max_rounds=1),
        )
        results = await executor.execute_plan(skus, "q1", session="ann", resume=resume)
        assert [result.success for result in results] == successes
    assert len(made) == 5


def acting(made: list[int], outcome: Callable[[int], object]) -> ToolRegistry:
    """Return a tool that keeps its calls, and returns an outcome of their number so far."""

    def act(number: int) -> object:
        """Acts."""
        made.append(number)
        return outcome(len(made))

    return ToolRegistry([act])


async def test_a_refusal_that_a_tool_returns_as_data_is_not_tried_again(
    made: list[int], tmp_path: Path
) -> None:
    declined = acting(made, lambda _: {"success": False, "reason": "declined by the bank"})
    for resume in (False, True):
        executor, _ = executor_of(tmp_path, proposed(("act", {"number": 7})), registry=declined)
        [result] = await executor.execute_plan(["pay"], "q1", session="ann", resume=resume)
        assert result.success
    assert made == [7]


async def test_no_call_begins_after_the_runs_time(
    made: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    clock = loop.time

    executor, _ = executor_of(
        tmp_path,
        proposed(("act", {"number": 1}), ("act", {"number": 2})),
        registry=acting(made, lambda count: count),
        limits=RunLimits(timeout_s=60.0, max_parallel=1),
    )
    told = []
    async with aclosing(executor.run_stream(["Act"], "q1")) as stream:
        async for event in stream:
            if event.type == "tool_result":
                # Time for a slow reader of the events, who takes a minute.
                monkeypatch.setattr(loop, "time", lambda: clock() + 60.0)
            elif event.type == "error":
                told.append(event.data["error"])
    assert made == [1]
    assert told == ["tool 'act' was not called: the 60.0 seconds that timeout_s allows are over"]


async def test_a_tool_that_was_ended_does_not_go_on_while_that_is_read(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = asyncio.Event()
    loop = asyncio.get_running_loop()
    clock = loop.time

    async def slow() -> None:
        """Takes a minute, and goes on when it may."""
        monkeypatch.setattr(loop, "time", lambda: clock() + 60.0)
        await may_go_on.wait()
        made.append("slow")

    executor, _ = executor_of(
        tmp_path,
        proposed(("slow", {})),
        registry=ToolRegistry([slow]),
        limits=RunLimits(timeout_s=60.0, max_calls=1),
    )
    told = []
    async with aclosing(executor.run_stream(["Wait"], "q1")) as stream:
        async for event in stream:
            if event.type == "error":
                told.append(event.data["error"])
                may_go_on.set()
                await asyncio.sleep(0.05)
    assert told == ["tool 'slow' was ended: the 60.0 seconds that timeout_s allows are over"]
    assert made == []


async def test_a_choice_that_takes_too_long_ends_with_the_run(tmp_path: Path) -> None:
    client = ScriptedClient([], default=lambda _: asyncio.sleep(60, "late"))
    executor = AgenticExecutor(
        client, registry(), ToolContextManager(tmp_path), limits=RunLimits(timeout_s=1.0)
    )
    events = await events_of(executor.run_stream(["one", "two"], "q1"))
    [told] = [event.data for event in events if event.type == "error"]
    assert told["limit"]
    assert "timeout_s" in told["error"]


@pytest.mark.parametrize(
    ("limit", "error", "text"),
    [
        *(
            ({name: 0}, ValueError, f"{name} is 0; pass a number above 0")
            for name in ("max_calls", "max_tokens", "max_cost_usd", "timeout_s")
        ),
        *(
            ({"max_calls": wrong}, TypeError, "pass a whole number, or None for no limit")
            for wrong in (2.5, "2", True)
        ),
        ({"max_rounds": 0}, ValueError, "max_rounds is 0; pass a number above 0$"),
        ({"max_parallel": 0}, ValueError, "max_parallel is 0; pass a number above 0$"),
        ({"max_rounds": None}, TypeError, "max_rounds is a NoneType; pass a whole number$"),
        ({"max_parallel": None}, TypeError, "max_parallel is a NoneType; pass a whole number$"),
        ({"max_outputs_tokens": -1}, ValueError, "max_outputs_tokens is -1"),
    ],
    ids=str,
)
def test_a_limit_that_is_none_is_refused(
    limit: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        RunLimits(**limit)


async def test_calls_that_are_repeated_count_towards_max_calls(
    made: list[int], tmp_path: Path
) -> None:
    busy = acting(made, lambda _: ToolResult(success=False, error="it is busy"))
    reply = proposed(*(("act", {"number": number}) for number in range(3)))
    for resume, limits in ((False, RunLimits()), (True, RunLimits(max_calls=2, max_parallel=1))):
        executor, _ = executor_of(tmp_path, reply, registry=busy, limits=limits)
        [result] = await executor.execute_plan(["one"], "q1", session="ann", resume=resume)
    assert made[3:] == [0, 1]
    assert [entry.get("limit", False) for entry in result.result] == [False, False, True]
    assert result.result[2]["error"] == (
        "tool 'act' was not called again: the run has made the 2 tool calls that max_calls allows"
    )


@pytest.mark.parametrize(
    ("max_outputs_tokens", "parts"), [(2_000, ["long", "short"]), (60, ["short"])]
)
async def test_a_choice_sees_what_its_task_read_newest_first(
    manager: ToolContextManager, tmp_path: Path, max_outputs_tokens: int, parts: list[str]
) -> None:
    values = {"short": "rain", "long": "snow and ice " * 100}
    pointer = await manager.save_context("report", {}, values)

    short, long = (call("read_context", id=pointer.pointer_id, path=f"/{key}") for key in values)
    selector = Chosen([short], [long], [], [], again=True)
    limits = RunLimits(max_outputs_tokens=max_outputs_tokens)
    executor = runs.executor_of(
        tmp_path, manager=manager, selector=selector, read_back=True, limits=limits
    )
    await executor.execute_plan(["Look", "Look again"], "q1")
    outputs_seen = [asked["context"]["stored_outputs"] for asked in selector.asked]
    readings = []
    for outputs in outputs_seen:
        readings.append([entry["read_back"] for entry in outputs if "read_back" in entry])
    assert readings == [[], ["rain"], [values[part] for part in parts], []]
    assert outputs_seen[1][0] == {"pointer_id": pointer.pointer_id, "read_back": "rain"}


async def context_with(manager: ToolContextManager, *, max_outputs_tokens: int) -> dict[str, Any]:
    """Return the context that a choice of calls is shown."""
    selector = Chosen()
    limits = RunLimits(max_outputs_tokens=max_outputs_tokens)
    executor = runs.executor_of(Path(), manager=manager, selector=selector, limits=limits)
    await executor.execute_plan(["What is the price of S-7?"], "q1")
    context: dict[str, Any] = selector.asked[0]["context"] or {}
    return context


async def test_an_output_over_the_tokens_is_only_named(manager: ToolContextManager) -> None:
    pointer = await manager.save_context("price", {"sku": "S-7"}, {"note": "snow and ice " * 80})
    call = {"pointer_id": pointer.pointer_id, "call": pointer.summary}
    context = await context_with(manager, max_outputs_tokens=2_000)
    assert context == {"stored_outputs": [call | {"result": {"note": "snow and ice " * 80}}]}
    line = call | {"holds": pointer.digest.partition("; ")[0], "unread": "all of it"}
    context = await context_with(manager, max_outputs_tokens=200)
    assert context == {"stored_outputs": [line]}
    context = await context_with(manager, max_outputs_tokens=5)
    assert context == {"stored_outputs": [], "not_listed": 1}


async def test_a_long_output_is_listed_in_part_with_its_size(manager: ToolContextManager) -> None:
    note = "snow and ice " * 900
    await manager.save_context("price", {"sku": "S-7"}, note)
    [entry] = (await context_with(manager, max_outputs_tokens=2_000))["stored_outputs"]
    assert entry["unread"] == f"the rest of its {len(note):,} characters"
    assert 0 < len(entry["parts"]) < len(note)


async def test_outputs_that_are_not_listed_are_counted(manager: ToolContextManager) -> None:
    for number in range(12):
        await manager.save_context("price", {"sku": f"S-{number}"}, {"price_usd": number})
    listed = []
    for tokens in (100, 200):
        context = await context_with(manager, max_outputs_tokens=tokens)
        listed.append(len(context["stored_outputs"]))
        assert context["not_listed"] == 12 - listed[-1]
    assert 0 < listed[0] < listed[1] < 12
    assert await context_with(manager, max_outputs_tokens=0) == {}


@pytest.mark.parametrize("result_bytes", [None, 1_000_001])
async def test_an_output_of_large_or_unknown_size_is_not_loaded(
    manager: ToolContextManager, result_bytes: int | None
) -> None:
    pointer = await manager.save_context("price", {"sku": "S-7"}, {"price_usd": 7})
    resized = pointer.model_copy(update={"result_bytes": result_bytes})
    manager.session.results.pointers[pointer.pointer_id] = resized
    [entry] = (await context_with(manager, max_outputs_tokens=2_000))["stored_outputs"]
    assert entry["unread"] == "all of it"
    assert "result" not in entry


async def test_an_output_that_is_gone_is_named_as_gone(manager: ToolContextManager) -> None:
    pointer = await manager.save_context("price", {"sku": "S-7"}, {"price_usd": 7})
    manager.pointer_store.delete(query_id=pointer.query_id)
    [entry] = (await context_with(manager, max_outputs_tokens=2_000))["stored_outputs"]
    assert entry == {
        "pointer_id": pointer.pointer_id,
        "call": pointer.summary,
        "unread": "it is no longer stored",
    }


async def test_the_newest_output_of_a_repeated_call_is_resumed(
    made: list[int], tmp_path: Path
) -> None:
    counting = acting(made, lambda count: count)
    for resume in (False, False, True):
        executor, _ = executor_of(tmp_path, proposed(("act", {"number": 1})), registry=counting)
        [result] = await executor.execute_plan(["one"], "q1", session="ann", resume=resume)
    assert len(made) == 2
    assert [(entry["output"], entry["resumed"]) for entry in result.result] == [(2, True)]


async def test_a_resumed_output_that_is_gone_is_requested_again(
    made: list[str], tmp_path: Path
) -> None:
    class Forgetful(FileContextPointerStore):
        def load_result(self, *, pointer: ContextPointer) -> Any:
            raise PointerNotFoundError("gone")

    reply = proposed(("price", {"sku": "S-5"}))
    for store in (FileContextPointerStore(tmp_path), Forgetful(tmp_path)):
        executor, _ = executor_of(
            tmp_path,
            reply,
            registry=registry(made.append),
            manager=ToolContextManager(pointer_store=store),
            limits=RunLimits(max_rounds=1),
        )
        [result] = await executor.execute_plan(["one"], "q1", session="ann", resume=True)
    assert made == ["price", "price"]
    assert result.success
    assert "resumed" not in result.result[0]


async def test_a_timeout_of_the_selector_itself_is_raised(tmp_path: Path) -> None:
    class Impatient:
        async def select_detailed(self, **_: Any) -> ToolSelection:
            raise TimeoutError("no answer in its own time")

    limits = RunLimits(timeout_s=60)
    executor = runs.executor_of(tmp_path, selector=Impatient(), limits=limits)
    with pytest.raises(TimeoutError, match="no answer in its own time"):
        await executor.execute_plan(["one"], "q1")
