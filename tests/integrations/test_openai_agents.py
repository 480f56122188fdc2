"""Test agents of the OpenAI Agents SDK in an `LLMCommonSession`, with a scripted model."""

import asyncio
import copy
import json
import logging
from pathlib import Path
from typing import Any

import mcp.types
import pytest
from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    Runner,
    SessionSettings,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
    handoff,
    set_tracing_disabled,
)
from agents.mcp import MCPServer
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, SessionConfig, Sessions
from llm_common.errors import ConfigError
from llm_common.history import FoldPolicy
from llm_common.integrations.openai_agents import LLMCommonSession
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.unstored import assert_cut

pytestmark = pytest.mark.integrations
set_tracing_disabled(True)

ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]


def calls(*named: tuple[str, dict[str, Any]]) -> ModelStep:
    return ModelStep(
        output=[
            function_call(name, args, call_id=f"{name}-{n}") for n, (name, args) in enumerate(named)
        ]
    )


def says(text: str) -> ModelStep:
    return ModelStep(output=[assistant_message(text)])


def outputs(items: Any) -> list[Any]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


def id_in(output: str) -> str:
    return output.partition("the id ")[2].partition(" ")[0].strip(".")


def reads(path: str) -> ModelStep:
    """Return a call that reads a part of the first offloaded result."""

    def respond(call: ModelCall) -> Any:
        args = {
            "id": id_in(outputs(call.input)[0]),
            "path": path,
            "keys": None,
            "cursor": None,
        }
        return calls(("read_context", args))

    return ModelStep.respond(respond)


@function_tool
def list_parts(kind: str) -> Any:
    """Lists the parts in stock."""
    return ROWS


@function_tool
def get_weather(city: str) -> str:
    """Forecasts the weather of a city."""
    return f"{city}: sunny"


def explain(_: Any, error: Exception) -> str:
    return "no such kind; " * 2_000


@function_tool(failure_error_function=explain)
def fail_long() -> str:
    """Fails."""
    raise ValueError


@function_tool
def draw() -> ToolOutputImage:
    """Draws."""
    return ToolOutputImage(image_url="data:image/png;base64," + "A" * 40_000)


async def run(session: LLMCommonSession, agent: Agent[Any], how: str, text: str) -> Any:
    facts: dict[str, Any] = {"session": session, "run_config": session.run_config()}
    equipped = session.equip(agent)
    if how == "async":
        return await Runner.run(equipped, text, **facts)
    if how == "streamed":
        streamed = Runner.run_streamed(equipped, text, **facts)
        async for _ in streamed.stream_events():
            pass
        return streamed

    def run_sync() -> Any:
        with asyncio.Runner() as runner:  # closes the loop that the framework would leave open
            asyncio.set_event_loop(runner.get_loop())
            return Runner.run_sync(equipped, text, **facts)

    return await asyncio.to_thread(run_sync)


@pytest.fixture(params=["sync", "async", "streamed"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_large_result_is_offloaded_chosen_and_read_back_in_a_second_turn(how: str) -> None:
    model = ScriptedModel(
        [
            calls(("list_parts", {"kind": "all"})),
            says("ask on"),
            reads("/1500/stock"),
            says("10500"),
        ]
    )
    agent = Agent("stock", model=model, tools=[list_parts, get_weather])
    sessions = Sessions()
    first = await run(
        LLMCommonSession("a", sessions), agent, how, "Which parts are there? I need part 1234"
    )
    [item] = [one for one in first.to_input_list() if one.get("type") == "function_call_output"]
    assert len(item["output"]) < 3_000
    assert "part 1234" in item["output"]
    assert item["call_id"] == "list_parts-0"
    second = await run(
        LLMCommonSession("a", sessions), agent, how, "What is the stock of part 1500?"
    )
    assert second.final_output == "10500"
    assert "10500" in outputs(model.calls[-1].input)[-1]
    assert [tool.name for tool in agent.tools] == ["list_parts", "get_weather"]


@pytest.mark.parametrize("behavior", ["stop_on_first_tool", {"stop_at_tool_names": ["list_parts"]}])
async def test_a_result_that_ends_the_run_stays_whole(how: str, behavior: Any) -> None:
    model = ScriptedModel([calls(("list_parts", {"kind": "all"}))])
    agent = Agent("stock", model=model, tools=[list_parts], tool_use_behavior=behavior)
    result = await run(LLMCommonSession("a"), agent, how, "Show all parts")
    assert result.final_output == str(ROWS)


async def test_the_same_result_again_refers_to_the_one_above_t_05(how: str) -> None:
    # The SDK drops an item whose id the input has already.
    same = [
        ModelStep(output=[function_call("list_parts", {"kind": "all"}, call_id=call_id)])
        for call_id in ("first", "second")
    ]
    model = ScriptedModel([*same, says("the same")])
    agent = Agent("stock", model=model, tools=[list_parts])
    await run(LLMCommonSession("a"), agent, how, "Which parts are there? Look twice.")
    first, second = outputs(model.calls[-1].input)
    assert second.startswith("Identical to the result above: list_parts (")
    assert id_in(first) in second


async def test_small_results_errors_and_images_do_not_change(how: str) -> None:
    model = ScriptedModel(
        [calls(("get_weather", {"city": "Ulm"}), ("fail_long", {}), ("draw", {})), says("done")]
    )
    agent = Agent("any", model=model, tools=[get_weather, fail_long, draw])
    await run(LLMCommonSession("a"), agent, how, "go")
    weather, failure, image = outputs(model.calls[-1].input)
    assert (weather, failure) == ("Ulm: sunny", "no such kind; " * 2_000)
    assert image[0]["type"] == "input_image"
    assert len(image[0]["image_url"]) > 40_000


@pytest.mark.parametrize("as_list", [True, False])
async def test_a_text_output_of_the_sdk_is_stored_as_text(as_list: bool) -> None:
    @function_tool
    def list_texts() -> Any:
        """Lists the parts in stock."""
        text = ToolOutputText(text=json.dumps(ROWS))
        return [text] if as_list else text

    model = ScriptedModel([calls(("list_texts", {})), reads("/1500/stock"), says("10500")])
    await run(LLMCommonSession("a"), Agent("stock", model=model, tools=[list_texts]), "async", "go")
    assert "10500" in outputs(model.calls[-1].input)[-1]


async def test_a_session_cannot_read_the_results_of_another(how: str) -> None:
    stored: list[str] = []

    def read(_: ModelCall) -> Any:
        return calls(
            ("read_context", {"id": stored[0]}), ("search_context", {"words": "part 1999"})
        )

    steps = [
        calls(("list_parts", {"kind": "all"})),
        says("a"),
        ModelStep.respond(read),
        says("b"),
        ModelStep.respond(read),
    ]
    model = ScriptedModel([*steps, says("c")])
    agent, sessions = Agent("stock", model=model, tools=[list_parts]), Sessions()
    await run(LLMCommonSession("a", sessions), agent, how, "go")
    stored.append(id_in(outputs(model.calls[-1].input)[0]))
    await run(LLMCommonSession("b", sessions), agent, how, "read it")
    refused, nothing = outputs(model.calls[-1].input)
    assert "no stored result of this session" in refused
    assert "No stored result" in nothing
    await run(LLMCommonSession("a", sessions), agent, how, "read it")
    assert all("part 1" in output for output in outputs(model.calls[-1].input)[-2:])


async def test_parallel_calls_share_the_budget_of_their_turn(how: str) -> None:
    @function_tool
    def get_text(number: int) -> str:
        """Some words."""
        return f"word {number} " * 300

    stay = {}
    for count in (1, 2, 4):
        model = ScriptedModel(
            [calls(*(("get_text", {"number": n}) for n in range(count))), says("done")]
        )
        sessions = Sessions(config=SessionConfig(offload=OffloadPolicy(max_turn_tokens=1_500)))
        await run(
            LLMCommonSession("a", sessions), Agent("any", model=model, tools=[get_text]), how, "go"
        )
        stay[count] = sum(output.startswith("word") for output in outputs(model.calls[-1].input))
    assert stay[1] == 1
    assert stay[2] == 1
    assert stay[4] < 4


async def test_an_image_stays_with_shortened_text(how: str) -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}
    said: Any = [
        {"role": "user", "content": [image, {"type": "input_text", "text": "word " * 2_000}]}
    ]
    session = LLMCommonSession(
        "a", Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=1_000)))
    )
    model = ScriptedModel([says("A cat.")])
    await run(session, Agent("any", model=model), how, said)
    sent: Any = model.calls[0].input
    text, kept = sent[0]["content"]
    assert kept == image
    assert text["text"].count("the rest has not been read") == 1


async def test_a_long_history_is_folded_only_for_the_model(how: str) -> None:
    session = LLMCommonSession(
        "a", Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=1_200)))
    )
    step = [
        calls(("get_weather", {"city": "Ulm"}), ("get_weather", {"city": "Bonn"})),
        says("noted " * 50),
    ]
    found = calls(("search_context", {"words": "code of door 3"}))
    model = ScriptedModel(
        [*(copy.deepcopy(one) for _ in range(12) for one in step), found, says("93")]
    )
    agent = Agent("any", model=model, tools=[get_weather])
    for number in range(12):
        await run(
            session, agent, how, f"The code of door {number} is {number * 31}. " + "word " * 40
        )
    await run(session, agent, how, "What is the code of door 3?")
    sent: Any = model.calls[-1].input
    assert "Earlier messages are folded away" in sent[0]["content"]
    assert len(sent) < 30 < len(await session.get_items())
    assert "93" in outputs(sent)[-1]
    called = [item["call_id"] for item in sent if item.get("type") == "function_call"]
    assert sorted(called) == sorted(
        item["call_id"] for item in sent if item.get("type") == "function_call_output"
    )


async def test_many_tools_are_reduced_to_matching_ones(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llm_common")

    def one(number: int) -> FunctionTool:
        @function_tool(name_override=f"convert_unit_{number}")
        def convert(amount: float) -> str:
            """Converts an amount of one unit into another one, and says what it is."""
            return "1"

        return convert

    model = ScriptedModel([calls(("get_weather", {"city": "Ulm"})), says("sunny"), says("yes")])
    agent = Agent("any", model=model, tools=[get_weather, *(one(number) for number in range(200))])
    session = LLMCommonSession("a")
    await run(session, agent, how, "What is the weather in Ulm?")
    await run(session, agent, how, "xqzzt")
    offered = [sorted(tool.name for tool in call.tools) for call in model.calls]
    assert len(offered) == 3
    for names in offered:
        assert {"get_weather", "read_context", "search_context"} <= set(names)
    logged: list[Any] = [entry.args for entry in caplog.records if "tools are shown" in entry.msg]
    # Without the finder, which needs no room.
    assert [shown for shown, *_ in logged] == [len(names) - 1 for names in offered]
    assert all(3_900 < tokens <= 4_000 for _, _, tokens, _ in logged)


async def test_a_session_keeps_its_items() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    session, other = LLMCommonSession("a", sessions), LLMCommonSession("b", sessions)
    items = [{"role": "user", "content": str(number)} for number in range(5)]
    await session.add_items(items[:3])
    await session.add_items([])
    await session.add_items(items[3:])
    assert await session.get_items() == items
    assert await session.get_items(2) == items[3:]
    assert await session.get_items(0) == []
    session.session_settings = SessionSettings(limit=1)
    assert await session.get_items() == items[4:]
    assert await session.get_items(9) == items
    assert [await session.pop_item() for _ in range(6)] == [*reversed(items), None]
    await session.add_items(items)
    await session.clear_session()
    assert await session.get_items(9) == await other.get_items() == []


def test_the_configuration_of_the_run_is_preserved() -> None:
    assert LLMCommonSession("a").run_config(RunConfig(workflow_name="mine")).workflow_name == "mine"


def test_the_documentation_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    last = ModelStep.respond(lambda call: says(outputs(call.input)[-1].splitlines()[-2]))
    model = ScriptedModel(
        [calls(("list_parts", {"kind": "all"})), says("ask on"), reads("/1500/stock"), last]
    )
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        run_page("openai_agents", model='"gpt-5"', names={"model": model})
    assert capsys.readouterr().out == "ask on\n10500\n"


async def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12(how: str) -> None:
    # The session of ours would also store its items, which cannot be cut.
    session = LLMCommonSession("a", Sessions(InMemoryContextPointerStore(max_result_bytes=100)))
    model = ScriptedModel([calls(("list_parts", {"kind": "all"})), says("done")])
    agent = session.equip(Agent("stock", model=model, tools=[list_parts]))
    run_config = session.run_config()
    if how == "streamed":
        streamed = Runner.run_streamed(agent, "go", run_config=run_config)
        async for _ in streamed.stream_events():
            pass
    else:
        await Runner.run(agent, "go", run_config=run_config)
    assert_cut(outputs(model.calls[-1].input)[0])


def reads_named(call: ModelCall) -> Any:
    """Return a call that reads a part of the result that the newest message names."""
    said: Any = call.input
    named = str(said[-1]["content"]).split()[-1]
    return calls(("read_context", {"id": named, "path": "/1500/stock"}))


def asks_other(call: ModelCall) -> Any:
    """Return a call of an agent as a tool, with the id of the first result."""
    return calls(("ask_other", {"input": f"Part 1500 of {id_in(outputs(call.input)[0])}"}))


SAYS_RESULT = ModelStep.respond(lambda call: says(outputs(call.input)[-1]))


@pytest.mark.parametrize("kind", ["agent", "handoff", "equipped"])
async def test_a_delegate_reads_the_pointers_that_it_is_given(how: str, kind: str) -> None:
    model = ScriptedModel(
        [
            calls(("list_parts", {"kind": "all"})),
            ModelStep(output=[function_call("transfer_to_reader", {}, call_id="h")]),
            reads("/1500/stock"),
            ModelStep(output=[function_call("list_parts", {"kind": "more"}, call_id="more")]),
            says("10500"),
        ]
    )
    session = LLMCommonSession("a")
    reader: Any = Agent("reader", model=model, tools=[list_parts])
    first = Agent("first", model=model, tools=[list_parts], handoffs=[reader])
    if kind == "handoff":
        first.handoffs = [handoff(reader)]
    elif kind == "equipped":
        first.handoffs = [session.equip(reader)]
    reader.handoffs = [first]  # agents may hand off to each other
    done = await run(session, first, how, "go")
    assert "10500" in outputs(model.calls[-1].input)[-2]
    assert "the id " in outputs(model.calls[-1].input)[-1]
    assert done.last_agent.name == "reader"


@pytest.mark.parametrize("is_equipped", [True, False])
async def test_an_agent_as_a_tool_reads_or_gets_the_result(how: str, is_equipped: bool) -> None:
    session = LLMCommonSession("a")
    inner_steps = [ModelStep.respond(reads_named), SAYS_RESULT]
    if not is_equipped:
        inner_steps = [ModelStep.respond(lambda call: says(str(call.input)))]
    inner_model = ScriptedModel(inner_steps)
    inner = Agent("other", model=inner_model)
    if is_equipped:
        inner = session.equip(inner)
    model = ScriptedModel(
        [calls(("list_parts", {"kind": "all"})), ModelStep.respond(asks_other), SAYS_RESULT]
    )
    asking = inner.as_tool("ask_other", "Asks another agent.", run_config=session.run_config())
    agent = Agent("first", model=model, tools=[list_parts, asking])
    done = await run(session, agent, how, "go")
    if is_equipped:
        assert "10500" in done.final_output
    else:
        sent: Any = inner_model.calls[0].input
        assert "part 1999" in str(sent)
        assert 4_000 < len(str(sent)) < 40_000


class PartsServer(MCPServer):
    """Has one tool with a long result."""

    name = "parts"

    async def connect(self) -> None:
        pass

    async def cleanup(self) -> None:
        pass

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[mcp.types.Tool]:
        return [
            mcp.types.Tool(name="list_parts", input_schema={"type": "object", "properties": {}})
        ]

    async def call_tool(
        self, tool_name: str, arguments: Any, meta: Any = None
    ) -> mcp.types.CallToolResult:
        text = mcp.types.TextContent(type="text", text=json.dumps(ROWS))
        return mcp.types.CallToolResult(content=[text])

    async def list_prompts(self) -> Any:
        raise NotImplementedError

    async def get_prompt(self, name: str, arguments: Any = None) -> Any:
        raise NotImplementedError


async def test_results_of_an_mcp_server_are_offloaded_too() -> None:
    model = ScriptedModel(
        [calls(("list_parts", {})), says("ask on"), reads("/1500/stock"), says("10500")]
    )
    session, agent = LLMCommonSession("a"), Agent("stock", model=model, mcp_servers=[PartsServer()])
    await run(session, agent, "async", "Which parts?")
    await run(session, agent, "async", "What is the stock of part 1500?")
    first, second = outputs(model.calls[-1].input)
    assert len(str(first)) < 3_000
    assert "10500" in second


async def test_an_agent_equipped_for_one_session_refuses_another_t_01() -> None:
    model = ScriptedModel([calls(("list_parts", {"kind": "all"})), says("done")])
    agent, sessions = Agent("stock", model=model, tools=[list_parts]), Sessions()
    alice, bob = LLMCommonSession("alice", sessions), LLMCommonSession("bob", sessions)
    with pytest.raises(ConfigError, match="'stock' was equipped for another session"):
        await Runner.run(alice.equip(agent), "go", session=bob, run_config=bob.run_config())
    assert not model.calls
    assert sessions.store.list(query_id="alice") == []
    await Runner.run(bob.equip(agent), "go", session=bob, run_config=bob.run_config())
    assert len(sessions.store.list(query_id="bob")) == 1


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("openai_agents", tmp_path)
