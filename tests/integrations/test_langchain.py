"""Test LangChain agents with `LLMCommonMiddleware`."""

import asyncio
import json
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import BaseTool, ToolException, ToolRuntime, tool
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send

from llm_common.agents import SessionConfig, Sessions
from llm_common.history import FoldPolicy
from llm_common.integrations.langchain import LLMCommonMiddleware
from tests.integrations import langgraph_runs
from tests.integrations.documented import run_page
from tests.integrations.programs import desk, langchain
from tests.integrations.programs.process import Ask
from tests.integrations.promises import CODE, LIST, FoldingPromises, read_named
from tests.integrations.scripted_endpoint import (
    POINTER,
    Calls,
    Messages,
    Step,
    newest_results,
    pointer_of,
    reading,
    results_in,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

ORDERS = json.dumps(desk.list_orders("bob"))


@tool(response_format="content_and_artifact")
def list_orders(customer: str) -> tuple[str, list[int]]:
    """List all orders of a customer."""
    return ORDERS, [1, 2, 3]


def agent_of(url: str, *tools: Any, sessions: Sessions | None = None, **more: Any) -> Any:
    middleware = [LLMCommonMiddleware(sessions)]
    return create_agent(langchain.model_of(url), [*tools], middleware=middleware, **more)


async def run(
    agent: Any,
    text: Any = "go",
    how: str = "async",
    thread: str | None = "a",
    history: Sequence[BaseMessage] = (),
) -> list[BaseMessage]:
    config = {"configurable": {"thread_id": thread}} if thread else {}
    state = {"messages": [*history, HumanMessage(text)]}
    if how == "sync":
        state = await asyncio.to_thread(agent.invoke, state, config)
    elif how == "async":
        state = await agent.ainvoke(state, config)
    else:
        state = [*agent.stream(state, config, stream_mode="values")][-1]
    return state["messages"]


def read_first(messages: Messages) -> Calls:
    """Return the call that reads a part of the first offloaded result."""
    return reading(POINTER.findall(str(messages))[0])


class TestHook(FoldingPromises):
    module = langchain
    thread: str | None = None
    is_async = True

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        inner = agent_of(url, list_orders, sessions=sessions)
        config: Any = {"configurable": {"thread_id": self.thread}} if self.thread else None

        def other_sync(question: str) -> str:
            state = inner.invoke({"messages": [HumanMessage(question)]}, config)
            return str(state["messages"][-1].content)

        @tool
        async def other(question: str) -> str:
            """Asks another agent."""
            state = await inner.ainvoke({"messages": [HumanMessage(question)]}, config)
            return str(state["messages"][-1].content)

        other.func = other_sync
        outer = agent_of(url, list_orders, other, sessions=sessions)

        async def ask(user: str, text: str) -> str:
            messages = await run(outer, text, "async" if self.is_async else "sync")
            return str(messages[-1].content)

        return ask

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        return "other", {"question": question}

    def run_page(self, model: object) -> None:
        run_page("langchain", model='"openai:gpt-5"', names={"model": model})


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("thread", [None, "of the delegate"])
async def test_a_delegate_reads_on_its_own_or_its_callers_thread_t_08(
    is_async: bool, thread: str | None
) -> None:
    hook = TestHook()
    hook.is_async, hook.thread = is_async, thread
    await hook.test_a_delegate_reads_the_pointers_that_it_is_given_t_08()


async def test_caller_and_delegate_read_only_what_they_name_each_other_t_08() -> None:
    pointers: list[str] = []

    def keep_and_list(messages: Messages) -> Calls:
        pointers.append(pointer_of("list_orders", messages))
        return [("list_orders", {"customer": "ann"})]

    def keep_and_ask(messages: Messages) -> Calls:
        pointers.append(pointer_of("list_orders", messages))
        return [("other", {"question": f"Read the id {pointers[1]} now."})]

    def keep_and_answer(messages: Messages) -> str:
        pointers.append(pointer_of("list_orders", messages))
        return f"It is in the id {pointers[3]} now."

    def read_named_and(number: int) -> Step:
        return lambda messages: [*read_named(messages), *reading(pointers[number])]

    by_delegate = [read_named_and(0), LIST, keep_and_list, keep_and_answer]
    with scripted(LIST, keep_and_list, keep_and_ask, *by_delegate, read_named_and(2), "Done.") as e:
        hook = TestHook()
        hook.thread = "of the delegate"
        await hook.delegating(e.url, Sessions())("bob", "go")
    for request in (e.requests[4], e.requests[-1]):
        read, refused = results_in(request["messages"])[-2:]
        assert CODE in read
        assert "no stored result of this session" in refused


@pytest.mark.parametrize("how", ["sync", "async", "stream"])
async def test_every_way_to_run_offloads_and_reads_back_in_a_second_turn(how: str) -> None:
    with scripted(LIST, "Ask on.", read_first, newest_results) as endpoint:
        agent = agent_of(endpoint.url, list_orders, checkpointer=InMemorySaver())
        first = await run(agent, "Which code has order 4321?", how)
        [output] = [message for message in first if isinstance(message, ToolMessage)]
        assert CODE in str(output.content)
        assert len(str(output.content)) < 3_000
        kept = (output.artifact, output.status, output.name)
        assert kept == ([1, 2, 3], "success", "list_orders")
        second = await run(agent, "Which code?", how)
    assert CODE in str(second[-1].content)


async def test_a_direct_answer_to_the_user_stays_whole_t_08() -> None:
    @tool(return_direct=True)
    def show_orders() -> str:
        """Shows the orders."""
        return ORDERS

    with scripted([("show_orders", {})]) as endpoint:
        messages = await run(agent_of(endpoint.url, show_orders))
    assert messages[-1].content == ORDERS


async def test_errors_and_images_do_not_change() -> None:
    image = [{"type": "image", "base64": "A" * 40_000, "mime_type": "image/png"}]

    @tool
    def draw() -> Any:
        """Draws."""
        return image

    @tool
    def fail() -> str:
        """Fails with a long text."""
        raise ToolException("no such kind; " * 2_000)

    fail.handle_tool_error = True
    with scripted([("fail", {}), ("draw", {})], "Done.") as endpoint:
        messages = await run(agent_of(endpoint.url, fail, draw))
    results = [message for message in messages if isinstance(message, ToolMessage)]
    assert [(result.content, result.status) for result in results] == [
        ("no such kind; " * 2_000, "error"),
        (image, "success"),
    ]


async def test_clients_that_number_their_messages_do_not_share_a_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ann, ben = [HumanMessage("I am Ann", id="1")], [HumanMessage("I am Ben", id="1")]
    stored: list[str] = []

    def keep(messages: Messages) -> str:
        stored.append(pointer_of("list_orders", messages))
        return "Done."

    def read(_: Messages) -> Calls:
        return reading(stored[0])

    with scripted(LIST, keep, read, newest_results, read, newest_results) as endpoint:
        agent = agent_of(endpoint.url, list_orders)
        of_ann = await run(agent, thread=None, history=ann)
        of_ben = await run(agent, thread=None, history=ben)
        again = await run(agent, thread=None, history=of_ann)
    assert "no stored result of this session" in str(of_ben[-1].content)
    assert getattr(of_ben[-2], "status", "") == "error"
    assert CODE in str(again[-1].content)
    assert caplog.text.count("pass a thread_id") == 1
    assert "Ann" not in caplog.text


class Desk(MessagesState):
    """The state of a graph of two agents."""

    owner: str
    visited: Annotated[list[str], operator.add]


def orders_message(runtime: ToolRuntime) -> ToolMessage:
    return ToolMessage(ORDERS, tool_call_id=runtime.tool_call_id)


@tool
def hand_over(runtime: ToolRuntime) -> Command[Any]:
    """Lists the orders, and asks the audit to go on."""
    update = {"messages": [orders_message(runtime)], "owner": "audit"}
    return Command(goto="audit", update=update)


@tool
def hand_over_to_each(runtime: ToolRuntime) -> Any:
    """Lists the orders, and sends two of them to the audit."""
    sends = [Send("audit", {"owner": f"order {number}"}) for number in (3, 4)]
    return [Command(goto=sends, update={"messages": [], "owner": "audit"}), orders_message(runtime)]


@pytest.mark.parametrize(
    ("handing", "visited"), [(hand_over, ["audit"]), (hand_over_to_each, ["order 3", "order 4"])]
)
async def test_a_command_goes_to_its_node_with_an_offloaded_message(
    handing: BaseTool, visited: list[str]
) -> None:
    middleware = LLMCommonMiddleware()
    call: Any = {"name": handing.name, "args": {}, "id": "1"}
    graph: Any = StateGraph(Desk)
    graph.add_node("agent", lambda _: {"messages": [AIMessage("", tool_calls=[call])]})
    graph.add_node("tools", ToolNode([handing], awrap_tool_call=middleware.awrap_tool_call))
    graph.add_node("audit", lambda state: {"visited": [state["owner"]]})
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "tools")
    app = graph.compile(checkpointer=InMemorySaver())
    messages = await run(app)
    state = app.get_state({"configurable": {"thread_id": "a"}}).values
    assert (state["visited"], state["owner"]) == (visited, "audit")
    assert len(str(messages[-1].content)) < 3_000
    assert POINTER.search(str(messages[-1].content))


async def test_a_handoff_to_an_agent_of_the_parent_graph_passes_unchanged() -> None:
    @tool
    def ask_ben(runtime: ToolRuntime) -> Command[Any]:
        """Hands over to Ben."""
        answer = ToolMessage("Ben goes on. " * 2_000, tool_call_id=runtime.tool_call_id)
        update = {"messages": [runtime.state["messages"][-1], answer], "owner": "ben"}
        return Command(goto="ben", graph=Command.PARENT, update=update)

    with scripted([("ask_ben", {})], "I am Ben.") as endpoint:
        graph: Any = StateGraph(Desk)
        graph.add_node("ann", agent_of(endpoint.url, ask_ben))
        graph.add_node("ben", agent_of(endpoint.url, list_orders))
        graph.add_edge(START, "ann")
        app = graph.compile(checkpointer=InMemorySaver())
        messages = await run(app)
    assert messages[-1].content == "I am Ben."
    assert app.get_state({"configurable": {"thread_id": "a"}}).values["owner"] == "ben"
    assert newest_results(endpoint.requests[-1]["messages"]) == "Ben goes on. " * 2_000


async def test_an_image_stays_with_shortened_text_and_tools_of_the_provider_are_shown() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    content = ["What is it?", image, {"type": "text", "text": "word " * 2_000}]
    of_provider = {"type": "function", "function": {"name": "of_provider", "parameters": {}}}
    config = SessionConfig(fold=FoldPolicy(max_tokens=800), max_tool_tokens=1)
    with scripted("A cat.") as endpoint:
        await run(agent_of(endpoint.url, of_provider, sessions=Sessions(config=config)), content)
    text, kept = endpoint.requests[0]["messages"][0]["content"]
    assert kept == image
    assert str(text).count("the rest has not been read") == 1
    assert of_provider in endpoint.requests[0]["tools"]


def test_a_checkpoint_stays_small_and_a_second_process_continues_it_t_13(tmp_path: Path) -> None:
    """Test the LangGraph program of `how-to/durable_runs.md`."""
    plain, whole, killed = tmp_path / "plain", tmp_path / "whole", tmp_path / "killed"
    assert langgraph_runs.run_process(whole) == "All pages are read."
    langgraph_runs.run_process(killed, ends_at=3)
    assert langgraph_runs.run_process(killed) == "All pages are read."
    langgraph_runs.run_process(plain, "plain")

    outputs = langgraph_runs.state_of(killed)
    contents = [message.content for message in langgraph_runs.state_of(whole)]
    assert [message.content for message in outputs] == contents
    # Only the call that did not end is made again.
    assert (killed / "calls").read_text().split() == ["0", "1", "2", "3", "3", "4", "5"]
    size = langgraph_runs.checkpoint_bytes(whole)
    assert size <= 40_000 * langgraph_runs.PAGES
    assert langgraph_runs.checkpoint_bytes(plain) >= 20 * size
    session = Sessions(killed / "context").get("user:42/parts")
    pages = [output for output in outputs if isinstance(output, ToolMessage)]
    assert len(pages) == langgraph_runs.PAGES
    for page, output in enumerate(pages):
        [pointer_id] = POINTER.findall(str(output.content))
        read = asyncio.run(session.read(pointer_id, path="/0/id"))
        assert str(page * langgraph_runs.ROWS) in read.text
