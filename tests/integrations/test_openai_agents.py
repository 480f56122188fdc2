"""Test agents of the OpenAI Agents SDK in an `LLMCommonSession`."""

import asyncio
from pathlib import Path
from typing import Any

import mcp.types
import pytest
from agents import (
    Agent,
    RunConfig,
    Runner,
    SessionSettings,
    ToolOutputImage,
    ToolOutputText,
    function_tool,
    handoff,
)
from agents.mcp import MCPServer
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from llm_common.agents import InMemoryContextPointerStore, SessionConfig, Sessions
from llm_common.errors import ConfigError
from llm_common.history import FoldPolicy
from llm_common.integrations.openai_agents import LLMCommonSession
from tests.integrations.documented import run_page
from tests.integrations.programs import desk, openai_agents
from tests.integrations.programs.process import Ask
from tests.integrations.promises import CODE, FoldingPromises, InliningPromises
from tests.integrations.scripted_endpoint import POINTER

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


def calls(name: str, **args: Any) -> ModelStep:
    return ModelStep(output=[function_call(name, args, call_id=name)])


def says(text: str) -> ModelStep:
    return ModelStep(output=[assistant_message(text)])


LIST = calls("list_orders", customer="bob")


def outputs(items: Any) -> list[Any]:
    return [item["output"] for item in items if item.get("type") == "function_call_output"]


def reads_first(call: ModelCall) -> Any:
    """Return the call that reads a part of the first result."""
    [pointer_id] = POINTER.findall(outputs(call.input)[0])
    return calls("read_context", id=pointer_id, path="/4321/code")


READ = ModelStep.respond(reads_first)


@function_tool
def list_orders(customer: str) -> Any:
    """List all orders of a customer."""
    return desk.list_orders(customer)


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


async def run(session: LLMCommonSession, agent: Agent[Any], text: Any, how: str = "async") -> Any:
    options: dict[str, Any] = {"session": session, "run_config": session.run_config()}
    equipped = session.equip(agent)
    if how == "async":
        return await Runner.run(equipped, text, **options)
    if how == "streamed":
        streamed = Runner.run_streamed(equipped, text, **options)
        async for _ in streamed.stream_events():
            pass
        return streamed

    def run_sync() -> Any:
        with asyncio.Runner() as runner:  # closes the loop that the framework would leave open
            asyncio.set_event_loop(runner.get_loop())
            return Runner.run_sync(equipped, text, **options)

    return await asyncio.to_thread(run_sync)


class TestHook(FoldingPromises, InliningPromises):
    module = openai_agents

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        session, model = LLMCommonSession("bob", sessions), openai_agents.model_of(url)
        inner = Agent("other", model=model)
        if is_equipped:
            inner = session.equip(inner)
        asking = inner.as_tool("other", "Asks another agent.", run_config=session.run_config())
        outer = Agent("first", model=model, tools=[list_orders, asking])

        async def ask(user: str, text: str) -> str:
            return str((await run(session, outer, text)).final_output)

        return ask

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        return "other", {"input": question}

    def run_page(self, model: object) -> None:
        with asyncio.Runner() as runner:
            asyncio.set_event_loop(runner.get_loop())
            run_page("openai_agents", model='"gpt-5"', names={"model": model})

    async def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12(
        self, tmp_path: Path
    ) -> None:
        # The session of ours would also store its items, which cannot be cut.
        session = LLMCommonSession("a", Sessions(InMemoryContextPointerStore(max_result_bytes=100)))
        model = ScriptedModel([LIST, says("Done.")])
        agent = session.equip(Agent("desk", model=model, tools=[list_orders]))
        await Runner.run(agent, "List the orders.", run_config=session.run_config())
        [text] = outputs(model.calls[-1].input)
        assert "characters were not kept: the store failed" in text
        assert 10_000 < len(text) < 110_000


@pytest.mark.parametrize("how", ["sync", "async", "streamed"])
async def test_every_way_to_run_offloads_and_reads_back_in_a_second_turn(how: str) -> None:
    model = ScriptedModel([LIST, says("Ask on."), READ, says(CODE)])
    agent, sessions = Agent("desk", model=model, tools=[list_orders]), Sessions()
    first = await run(LLMCommonSession("a", sessions), agent, "Which code has order 4321?", how)
    [item] = [one for one in first.to_input_list() if one.get("type") == "function_call_output"]
    assert len(item["output"]) < 3_000
    assert CODE in item["output"]
    assert item["call_id"] == "list_orders"
    second = await run(LLMCommonSession("a", sessions), agent, "Which code?", how)
    assert second.final_output == CODE
    assert CODE in outputs(model.calls[-1].input)[-1]
    assert [tool.name for tool in agent.tools] == ["list_orders"]


@pytest.mark.parametrize(
    "behavior", ["stop_on_first_tool", {"stop_at_tool_names": ["list_orders"]}]
)
async def test_a_result_that_ends_the_run_stays_whole_t_08(behavior: Any) -> None:
    model = ScriptedModel([LIST])
    agent = Agent("desk", model=model, tools=[list_orders], tool_use_behavior=behavior)
    result = await run(LLMCommonSession("a"), agent, "Show all orders.")
    assert result.final_output == str(desk.list_orders("bob"))


async def test_errors_and_images_do_not_change() -> None:
    both = [function_call("fail_long", {}, call_id="f"), function_call("draw", {}, call_id="d")]
    model = ScriptedModel([ModelStep(output=both), says("done")])
    await run(LLMCommonSession("a"), Agent("any", model=model, tools=[fail_long, draw]), "go")
    failure, image = outputs(model.calls[-1].input)
    assert failure == "no such kind; " * 2_000
    assert image[0]["type"] == "input_image"
    assert len(image[0]["image_url"]) > 40_000


@pytest.mark.parametrize("as_list", [True, False])
async def test_a_text_output_of_the_sdk_is_stored_as_text(as_list: bool) -> None:
    @function_tool
    def list_texts() -> Any:
        """List lines."""
        text = ToolOutputText(text=desk.read_log("bob"))
        return [text] if as_list else text

    def read(call: ModelCall) -> Any:
        [pointer_id] = POINTER.findall(outputs(call.input)[0])
        return calls("read_context", id=pointer_id, pattern="ERROR.*")

    model = ScriptedModel([calls("list_texts"), ModelStep.respond(read), says("done")])
    await run(LLMCommonSession("a"), Agent("desk", model=model, tools=[list_texts]), "go")
    assert "a disk of bob failed" in outputs(model.calls[-1].input)[-1]


async def test_an_image_stays_with_shortened_text() -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"}
    content = [image, {"type": "input_text", "text": "word " * 2_000}]
    config = SessionConfig(fold=FoldPolicy(max_tokens=1_000))
    model = ScriptedModel([says("A cat.")])
    session = LLMCommonSession("a", Sessions(config=config))
    await run(session, Agent("any", model=model), [{"role": "user", "content": content}])
    sent: Any = model.calls[0].input
    text, kept = sent[0]["content"]
    assert kept == image
    assert text["text"].count("the rest has not been read") == 1


async def test_a_session_keeps_its_items() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    session = LLMCommonSession("a", sessions)
    items = [{"role": "user", "content": str(number)} for number in range(5)]
    await session.add_items(items)
    session.session_settings = SessionSettings(limit=1)
    assert await session.get_items() == items[4:]
    assert await session.get_items(9) == items
    assert await session.pop_item() == items[4]
    await session.clear_session()
    assert await session.get_items(9) == []


def test_the_configuration_of_the_run_is_preserved() -> None:
    assert LLMCommonSession("a").run_config(RunConfig(workflow_name="mine")).workflow_name == "mine"


@pytest.mark.parametrize("kind", ["agent", "handoff", "equipped"])
async def test_an_agent_reads_after_a_handoff_t_08(kind: str) -> None:
    again = function_call("list_orders", {"customer": "ann"}, call_id="again")
    steps = [LIST, calls("transfer_to_reader"), READ, ModelStep(output=[again]), says("done")]
    model, session = ScriptedModel(steps), LLMCommonSession("a")
    reader: Any = Agent("reader", model=model, tools=[list_orders])
    first = Agent("first", model=model, tools=[list_orders], handoffs=[reader])
    if kind == "handoff":
        first.handoffs = [handoff(reader)]
    elif kind == "equipped":
        first.handoffs = [session.equip(reader)]
    reader.handoffs = [first]  # agents may hand off to each other
    done = await run(session, first, "go")
    read, preview = outputs(model.calls[-1].input)[-2:]
    assert CODE in read
    assert POINTER.search(preview)
    assert done.last_agent.name == "reader"


class OrdersServer(MCPServer):
    """Has one tool with a long result."""

    name = "orders"

    async def connect(self) -> None: ...

    async def cleanup(self) -> None: ...

    async def list_tools(self, run_context: Any = None, agent: Any = None) -> list[mcp.types.Tool]:
        schema = {"type": "object", "properties": {}}
        return [mcp.types.Tool(name="read_log", input_schema=schema)]

    async def call_tool(
        self, tool_name: str, arguments: Any, meta: Any = None
    ) -> mcp.types.CallToolResult:
        text = mcp.types.TextContent(type="text", text=desk.read_log("bob"))
        return mcp.types.CallToolResult(content=[text])

    async def list_prompts(self) -> Any: ...

    async def get_prompt(self, name: str, arguments: Any = None) -> Any: ...


async def test_results_of_an_mcp_server_are_offloaded_too() -> None:
    model = ScriptedModel([calls("read_log"), says("done")])
    agent = Agent("desk", model=model, mcp_servers=[OrdersServer()])
    await run(LLMCommonSession("a"), agent, "What failed?")
    [preview] = outputs(model.calls[-1].input)
    assert POINTER.search(str(preview))
    assert len(str(preview)) < 3_000


async def test_an_agent_equipped_for_one_session_refuses_another_t_01() -> None:
    model = ScriptedModel([LIST, says("done")])
    agent, sessions = Agent("desk", model=model, tools=[list_orders]), Sessions()
    alice, bob = LLMCommonSession("alice", sessions), LLMCommonSession("bob", sessions)
    with pytest.raises(ConfigError, match="'desk' was equipped for another session"):
        await Runner.run(alice.equip(agent), "go", session=bob, run_config=bob.run_config())
    assert not model.calls
    assert sessions.store.list(query_id="alice") == []
    await run(bob, agent, "go")
    assert len(sessions.store.list(query_id="bob")) == 1
