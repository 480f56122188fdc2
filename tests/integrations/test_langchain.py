"""Test LangChain agents with `LLMCommonMiddleware` and a scripted chat model."""

import asyncio
import json
import logging
import operator
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain.tools import BaseTool, ToolException, ToolRuntime, tool
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send
from pydantic import Field

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, SessionConfig, Sessions
from llm_common.history import FoldPolicy
from llm_common.integrations.langchain import LLMCommonMiddleware
from tests.integrations import langgraph_runs
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.unstored import assert_cut

pytestmark = pytest.mark.integrations

ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]
Reply = Callable[[list[BaseMessage]], AIMessage]


class ScriptedModel(BaseChatModel):
    """A model that returns the next step of its script, and records its requests."""

    steps: list[Any]
    sent: list[list[BaseMessage]] = Field(default_factory=list)
    offered: list[list[str]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Any:
        self.offered.append([one["type"] if isinstance(one, dict) else one.name for one in tools])
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        step = self.steps[len(self.sent)]
        self.sent.append([*messages])
        reply = step(messages) if callable(step) else step
        return ChatResult(generations=[ChatGeneration(message=reply)])


def calls(*named: tuple[str, dict[str, Any]]) -> AIMessage:
    return AIMessage(
        "",
        tool_calls=[
            {"name": name, "args": args, "id": f"{name}-{n}"}
            for n, (name, args) in enumerate(named)
        ],
    )


def id_in(message: BaseMessage) -> str:
    return str(message.content).partition("the id ")[2].partition(" ")[0].strip(".")


def reads(path: str) -> Reply:
    """Return a call that reads a part of the newest offloaded result."""
    return lambda messages: calls(("read_context", {"id": id_in(messages[-1]), "path": path}))


@tool(response_format="content_and_artifact")
def list_parts(kind: str) -> tuple[str, list[int]]:
    """Lists the parts in stock."""
    return json.dumps(ROWS), [1, 2, 3]


@tool
def get_weather(city: str) -> str:
    """Forecasts the weather of a city."""
    return f"{city}: sunny"


@tool
def fail_long(kind: str) -> str:
    """Fails with a long text."""
    raise ToolException("no such kind; " * 2_000)


fail_long.handle_tool_error = True


async def run(
    agent: Any, how: str, text: str, thread: str | None = "a", history: Sequence[BaseMessage] = ()
) -> list[BaseMessage]:
    config = {"configurable": {"thread_id": thread}} if thread else {}
    given = {"messages": [*history, HumanMessage(text)]}
    if how == "sync":
        state = agent.invoke(given, config)
    elif how == "async":
        state = await agent.ainvoke(given, config)
    else:
        state = [*agent.stream(given, config, stream_mode="values")][-1]
    messages: list[BaseMessage] = state["messages"]
    return messages


@pytest.fixture(params=["sync", "async", "stream"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_large_result_is_offloaded_chosen_and_read_back_in_a_second_turn(how: str) -> None:
    model = ScriptedModel(
        steps=[
            calls(("list_parts", {"kind": "all"})),
            AIMessage("ask on"),
            lambda m: reads("/1500/stock")(m[:3]),
            AIMessage("10500"),
        ]
    )
    agent = create_agent(
        model,
        [list_parts, get_weather],
        middleware=[LLMCommonMiddleware()],
        checkpointer=InMemorySaver(),
    )
    first = await run(agent, how, "Which parts are there? I need part 1234")
    output = next(one for one in first if isinstance(one, ToolMessage))
    assert len(str(output.content)) < 3_000
    assert "part 1234" in str(output.content)
    assert (output.artifact, output.status, output.tool_call_id, output.name) == (
        [1, 2, 3],
        "success",
        "list_parts-0",
        "list_parts",
    )
    second = await run(agent, how, "What is the stock of part 1500?")
    assert "10500" in str(second[-2].content)
    assert second[-1].content == "10500"


async def test_the_same_result_again_refers_to_the_one_above_t_05(how: str) -> None:
    twice = [calls(("list_parts", {"kind": "all"})) for _ in range(2)]
    model = ScriptedModel(steps=[*twice, AIMessage("the same")])
    agent = create_agent(model, [list_parts], middleware=[LLMCommonMiddleware()])
    await run(agent, how, "Which parts are there? Look twice.")
    first, second = [one for one in model.sent[-1] if isinstance(one, ToolMessage)]
    assert str(second.content).startswith("Identical to the result above: list_parts (")
    assert id_in(first) in str(second.content)


async def test_a_direct_answer_to_the_user_stays_whole(how: str) -> None:
    @tool(return_direct=True)
    def show_parts(kind: str) -> str:
        """Shows the parts in stock."""
        return json.dumps(ROWS)

    agent = create_agent(
        ScriptedModel(steps=[calls(("show_parts", {"kind": "all"}))]),
        [show_parts],
        middleware=[LLMCommonMiddleware()],
    )
    assert (await run(agent, how, "Show all parts"))[-1].content == json.dumps(ROWS)


async def test_small_results_errors_and_images_do_not_change(how: str) -> None:
    image = [{"type": "image", "base64": "A" * 40_000, "mime_type": "image/png"}]

    @tool
    def draw() -> Any:
        """Draws."""
        return image

    model = ScriptedModel(
        steps=[
            calls(("get_weather", {"city": "Ulm"}), ("fail_long", {"kind": "x"}), ("draw", {})),
            AIMessage("done"),
        ]
    )
    agent = create_agent(model, [get_weather, fail_long, draw], middleware=[LLMCommonMiddleware()])
    outputs = [one for one in await run(agent, how, "go") if isinstance(one, ToolMessage)]
    assert [(one.content, one.status) for one in outputs] == [
        ("Ulm: sunny", "success"),
        ("no such kind; " * 2_000, "error"),
        (image, "success"),
    ]


@pytest.mark.parametrize("thread", ["b", None])
async def test_a_session_cannot_read_the_results_of_another(how: str, thread: str | None) -> None:
    stored: list[str] = []

    def read(_: list[BaseMessage]) -> AIMessage:
        return calls(
            ("read_context", {"id": stored[0]}), ("search_context", {"words": "part 1999"})
        )

    model = ScriptedModel(
        steps=[
            calls(("list_parts", {"kind": "all"})),
            AIMessage("done"),
            read,
            AIMessage("no"),
            read,
            AIMessage("yes"),
        ]
    )
    agent = create_agent(model, [list_parts], middleware=[LLMCommonMiddleware()])
    mine = "a" if thread else None
    first = await run(agent, how, "go", mine)
    stored.append(id_in(first[2]))
    refused, nothing = (await run(agent, how, "read it", thread))[-3:-1]
    assert "no stored result of this session" in str(refused.content)
    assert getattr(refused, "status", "") == "error"
    assert "No stored result" in str(nothing.content)
    found = (await run(agent, how, "read it", mine, first))[-3:-1]
    assert all("part 1999" in str(one.content) or "part 1" in str(one.content) for one in found)


@pytest.mark.parametrize("thread", ["a", None])
async def test_a_delegate_reads_the_pointers_that_it_is_given(how: str, thread: str | None) -> None:
    sessions = Sessions()

    def reads_named(messages: list[BaseMessage]) -> AIMessage:
        named = str(messages[-1].content).split()[-1]
        return calls(("read_context", {"id": named, "path": "/1500/stock"}))

    inner_model = ScriptedModel(steps=[reads_named, lambda m: AIMessage(m[-1].content)])
    inner = create_agent(inner_model, [], middleware=[LLMCommonMiddleware(sessions)])

    @tool
    async def ask_other(question: str) -> str:
        """Asks another agent."""
        state = await inner.ainvoke({"messages": [HumanMessage(question)]})
        return str(state["messages"][-1].content)

    @tool
    def ask_other_sync(question: str) -> str:
        """Asks another agent."""
        state = inner.invoke({"messages": [HumanMessage(question)]})
        return str(state["messages"][-1].content)

    asking = ask_other if how == "async" else ask_other_sync
    outer_model = ScriptedModel(
        steps=[
            calls(("list_parts", {"kind": "all"})),
            lambda m: calls((asking.name, {"question": f"Part 1500 of {id_in(m[-1])}"})),
            lambda m: AIMessage(m[-1].content),
        ]
    )
    outer = create_agent(
        outer_model, [list_parts, asking], middleware=[LLMCommonMiddleware(sessions)]
    )
    assert "10500" in str((await run(outer, how, "go", thread))[-1].content)


def asking(how: str, inner: Any, thread: str) -> Any:
    """Return a tool that asks an agent on a thread of its own."""
    config: Any = {"configurable": {"thread_id": thread}}

    @tool
    async def ask_other(question: str) -> str:
        """Asks another agent."""
        state = await inner.ainvoke({"messages": [HumanMessage(question)]}, config)
        return str(state["messages"][-1].content)

    @tool
    def ask_other_sync(question: str) -> str:
        """Asks another agent."""
        state = inner.invoke({"messages": [HumanMessage(question)]}, config)
        return str(state["messages"][-1].content)

    return ask_other if how == "async" else ask_other_sync


async def test_a_delegate_on_its_own_thread_reads_what_its_caller_names_t_08(how: str) -> None:
    stored: list[str] = []

    def lists_again(messages: list[BaseMessage]) -> AIMessage:
        stored.append(id_in(messages[-1]))
        return calls(("list_parts", {"kind": "more"}))

    def reads_named(messages: list[BaseMessage]) -> AIMessage:
        named = str(messages[-1].content).split()[-1]
        table = f"list_parts_{named[:6]}"
        return calls(
            ("read_context", {"id": named, "path": "/1500/stock"}),
            ("query_context", {"sql": f"SELECT max(stock) FROM {table}"}),
            ("read_context", {"id": stored[0], "path": "/1500/stock"}),
        )

    inner_model = ScriptedModel(
        steps=[reads_named, lambda m: AIMessage(" + ".join(str(one.content) for one in m[-3:]))]
    )
    inner = create_agent(inner_model, [], middleware=[LLMCommonMiddleware()])
    ask = asking(how, inner, "of the delegate")
    outer_model = ScriptedModel(
        steps=[
            calls(("list_parts", {"kind": "all"})),
            lists_again,
            lambda m: calls((ask.name, {"question": f"Part 1500 of {id_in(m[-1])}"})),
            lambda m: AIMessage(m[-1].content),
        ]
    )
    outer = create_agent(outer_model, [list_parts, ask], middleware=[LLMCommonMiddleware()])
    read, queried, refused = str((await run(outer, how, "go"))[-1].content).split(" + ")
    assert "10500" in read
    assert "13993" in queried
    # The caller did not name this one.
    assert "no stored result of this session" in refused


async def test_a_caller_reads_what_the_answer_of_a_delegate_names_t_08(how: str) -> None:
    of_delegate: list[str] = []

    def lists_again(messages: list[BaseMessage]) -> AIMessage:
        of_delegate.append(id_in(messages[-1]))
        return calls(("list_parts", {"kind": "more"}))

    inner_model = ScriptedModel(
        steps=[
            calls(("list_parts", {"kind": "all"})),
            lists_again,
            lambda m: AIMessage(f"They are in the id {id_in(m[-1])}."),
        ]
    )
    inner = create_agent(inner_model, [list_parts], middleware=[LLMCommonMiddleware()])
    ask = asking(how, inner, "of the delegate")
    outer_model = ScriptedModel(
        steps=[
            calls((ask.name, {"question": "Which parts?"})),
            lambda m: calls(
                ("read_context", {"id": id_in(m[-1]), "path": "/1500/stock"}),
                ("read_context", {"id": of_delegate[0], "path": "/1500/stock"}),
            ),
            lambda m: AIMessage(" + ".join(str(one.content) for one in m[-2:])),
        ]
    )
    outer = create_agent(outer_model, [ask], middleware=[LLMCommonMiddleware()])
    read, refused = str((await run(outer, how, "go"))[-1].content).split(" + ")
    assert "10500" in read
    assert "no stored result of this session" in refused


async def test_clients_that_number_their_messages_do_not_share_a_session(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    stored: list[str] = []
    model = ScriptedModel(
        steps=[
            calls(("list_parts", {"kind": "all"})),
            AIMessage("done"),
            lambda m: calls(("read_context", {"id": stored[0]})),
            AIMessage("done"),
        ]
    )
    agent = create_agent(model, [list_parts], middleware=[LLMCommonMiddleware()])
    mine = await run(agent, how, "go on", None, [HumanMessage("I am Ann", id="1")])
    stored.append(id_in(mine[-2]))
    theirs = await run(agent, how, "go on", None, [HumanMessage("I am Bob", id="1")])
    assert "no stored result of this session" in str(theirs[-2].content)
    assert caplog.text.count("pass a thread_id") == 1
    assert "Ann" not in caplog.text


async def test_a_tool_message_within_a_command_is_offloaded(how: str) -> None:
    @tool
    def list_and_note(kind: str, runtime: ToolRuntime) -> Command[Any]:
        """Lists the parts in stock."""
        message = ToolMessage(json.dumps(ROWS), tool_call_id=runtime.tool_call_id)
        return Command(update={"messages": [message]})

    model = ScriptedModel(
        steps=[calls(("list_and_note", {"kind": "all"})), reads("/1500/stock"), AIMessage("done")]
    )
    agent = create_agent(model, [list_and_note], middleware=[LLMCommonMiddleware()])
    messages = await run(agent, how, "go")
    assert len(str(messages[2].content)) < 3_000
    assert "10500" in str(messages[-2].content)


async def test_the_messages_of_a_tool_that_returns_a_list_are_offloaded(how: str) -> None:
    @tool
    def list_and_note(kind: str, runtime: ToolRuntime) -> Any:
        """Lists the parts in stock."""
        message = ToolMessage(json.dumps(ROWS), tool_call_id=runtime.tool_call_id)
        return [Command(update={"messages": []}), message]

    model = ScriptedModel(
        steps=[calls(("list_and_note", {"kind": "all"})), reads("/1500/stock"), AIMessage("done")]
    )
    agent = create_agent(model, [list_and_note], middleware=[LLMCommonMiddleware()])
    messages = await run(agent, how, "go")
    assert len(str(messages[2].content)) < 3_000
    assert "10500" in str(messages[-2].content)


class Desk(MessagesState):
    """The state of a graph of two agents."""

    owner: str
    visited: Annotated[list[str], operator.add]


@tool
def hand_over(kind: str, runtime: ToolRuntime) -> Command[Any]:
    """Lists the parts in stock, and asks the audit to go on."""
    message = ToolMessage(json.dumps(ROWS), tool_call_id=runtime.tool_call_id)
    return Command(goto="audit", update={"messages": [message], "owner": "audit"})


@tool
def hand_over_to_each(kind: str, runtime: ToolRuntime) -> Command[Any]:
    """Lists the parts in stock, and sends two of them to the audit."""
    message = ToolMessage(json.dumps(ROWS), tool_call_id=runtime.tool_call_id)
    sends = [Send("audit", {"owner": f"part {number}"}) for number in (3, 4)]
    return Command(goto=sends, update={"messages": [message], "owner": "audit"})


@pytest.mark.parametrize(
    ("handing", "visited"), [(hand_over, ["audit"]), (hand_over_to_each, ["part 3", "part 4"])]
)
async def test_a_command_goes_to_its_node_with_an_offloaded_message(
    how: str, handing: BaseTool, visited: list[str]
) -> None:
    middleware = LLMCommonMiddleware()

    def audit(state: Desk) -> dict[str, Any]:
        return {"visited": [state["owner"]]}

    graph: Any = StateGraph(Desk)
    graph.add_node("agent", lambda _: {"messages": [calls((handing.name, {"kind": "all"}))]})
    graph.add_node(
        "tools",
        ToolNode(
            [handing],
            wrap_tool_call=middleware.wrap_tool_call,
            awrap_tool_call=middleware.awrap_tool_call,
        ),
    )
    graph.add_node("audit", audit)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "tools")
    app = graph.compile(checkpointer=InMemorySaver())
    messages = await run(app, how, "go")
    state = app.get_state({"configurable": {"thread_id": "a"}}).values
    assert state["visited"] == visited
    assert state["owner"] == "audit"
    assert len(str(messages[-1].content)) < 3_000
    assert id_in(messages[-1])


async def test_a_handoff_to_an_agent_of_the_parent_graph_passes_unchanged(how: str) -> None:
    asked: list[Command[Any]] = []

    @tool
    def ask_bob(runtime: ToolRuntime) -> Command[Any]:
        """Hands over to Bob."""
        answer = ToolMessage("Bob goes on. " * 2_000, tool_call_id=runtime.tool_call_id)
        update = {"messages": [runtime.state["messages"][-1], answer], "owner": "bob"}
        asked.append(Command(goto="bob", graph=Command.PARENT, update=update))
        return asked[-1]

    middleware = [LLMCommonMiddleware()]
    ann_model = ScriptedModel(steps=[calls(("ask_bob", {}))])
    bob_model = ScriptedModel(steps=[AIMessage("I am Bob.")])
    graph: Any = StateGraph(Desk)
    graph.add_node("ann", create_agent(ann_model, [ask_bob], middleware=middleware))
    graph.add_node("bob", create_agent(bob_model, [list_parts], middleware=middleware))
    graph.add_edge(START, "ann")
    app = graph.compile(checkpointer=InMemorySaver())
    messages = await run(app, how, "go")
    assert messages[-1].content == "I am Bob."
    assert app.get_state({"configurable": {"thread_id": "a"}}).values["owner"] == "bob"
    assert str(bob_model.sent[0][-1].content) == "Bob goes on. " * 2_000


def test_the_next_worker_reads_what_a_checkpoint_names_t_02(tmp_path: Path) -> None:
    config: Any = {"configurable": {"thread_id": "a"}}

    def read_first(messages: list[BaseMessage]) -> AIMessage:
        return reads("/3")([message for message in messages if message.type == "tool"])

    # Each step has a middleware of its own, as a restarted server or another worker has.
    for step in (calls(("list_parts", {"kind": "all"})), read_first):
        with SqliteSaver.from_conn_string(str(tmp_path / "state.sqlite")) as saver:
            agent: Any = create_agent(
                ScriptedModel(steps=[step, AIMessage("done")]),
                [list_parts],
                middleware=[LLMCommonMiddleware()],
                checkpointer=saver,
            )
            state = agent.invoke({"messages": [HumanMessage("go")]}, config)
    assert "part 3" in state["messages"][-2].content


def test_a_checkpoint_on_disk_stays_small(tmp_path: Path) -> None:
    rows = [{"id": number, "name": f"part {number}"} for number in range(34_000)]

    @tool
    def list_all(page: int) -> str:
        """Lists all parts."""
        return json.dumps(rows)

    steps: list[Any] = [calls(("list_all", {"page": page})) for page in range(20)]
    with SqliteSaver.from_conn_string(str(tmp_path / "state.sqlite")) as saver:
        agent: Any = create_agent(
            ScriptedModel(steps=[*steps, AIMessage("done")]),
            [list_all],
            middleware=[LLMCommonMiddleware()],
            checkpointer=saver,
        )
        config = {"configurable": {"thread_id": "a"}, "recursion_limit": 100}
        agent.invoke({"messages": [HumanMessage("go")]}, config)
    written = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert len(json.dumps(rows)) > 1_100_000
    assert written < 1_000_000, written


async def test_parallel_calls_share_the_budget_of_their_turn(how: str) -> None:
    @tool
    def get_text(number: int) -> str:
        """Some words."""
        return f"word {number} " * 300

    sessions = Sessions(config=SessionConfig(offload=OffloadPolicy(max_turn_tokens=1_500)))
    stay = {}
    for count in (1, 2, 4):
        model = ScriptedModel(
            steps=[calls(*(("get_text", {"number": n}) for n in range(count))), AIMessage("done")]
        )
        agent = create_agent(model, [get_text], middleware=[LLMCommonMiddleware(sessions)])
        outputs = [
            str(one.content) for one in await run(agent, how, "go") if isinstance(one, ToolMessage)
        ]
        stay[count] = sum(one.startswith("word") for one in outputs)
    assert stay[1] == 1
    assert stay[2] == 1
    assert stay[4] < 4


async def test_a_long_history_is_folded_only_for_the_model(how: str) -> None:
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=800)))
    model = ScriptedModel(
        steps=[AIMessage("noted " * 50)] * 12
        + [calls(("search_context", {"words": "code of door 3"})), AIMessage("93")]
    )
    agent = create_agent(
        model,
        [get_weather],
        middleware=[LLMCommonMiddleware(sessions)],
        checkpointer=InMemorySaver(),
    )
    for number in range(12):
        await run(agent, how, f"The code of door {number} is {number * 31}. " + "word " * 40)
    messages = await run(agent, how, "What is the code of door 3?")
    assert "Earlier messages are folded away" in str(model.sent[-2][0].content)
    assert len(model.sent[-2]) < 13 < len(messages)
    assert "93" in str(messages[-2].content)


async def test_an_image_stays_with_shortened_text(how: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    said: Any = ["What is it?", image, {"type": "text", "text": "word " * 2_000}]
    model = ScriptedModel(steps=[AIMessage("A cat.")])
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=800)))
    await run(create_agent(model, middleware=[LLMCommonMiddleware(sessions)]), how, said, None)
    content: Any = model.sent[0][0].content
    text, kept = content
    assert kept == image
    assert str(text).count("the rest has not been read") == 1


async def test_many_tools_are_reduced_to_matching_ones(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llm_common")

    def one(number: int) -> Any:
        @tool(f"convert_unit_{number}")
        def convert(amount: float) -> str:
            """Converts an amount of one unit into another one, and says what it is."""
            return "1"

        return convert

    tools = [get_weather, *(one(number) for number in range(200)), {"type": "web_search"}]
    model = ScriptedModel(
        steps=[calls(("get_weather", {"city": "Ulm"})), AIMessage("sunny"), AIMessage("yes")]
    )
    agent = create_agent(
        model, tools, middleware=[LLMCommonMiddleware()], checkpointer=InMemorySaver()
    )
    await run(agent, how, "What is the weather in Ulm?")
    await run(agent, how, "xqzzt")
    assert len(model.offered) == 3
    for names in model.offered:
        assert {"read_context", "search_context", "get_weather", "web_search"} <= set(names)
    logged: list[Any] = [entry.args for entry in caplog.records if "tools are shown" in entry.msg]
    # Without the finder and the tool of the provider, which need no room.
    assert [shown for shown, *_ in logged] == [len(names) - 2 for names in model.offered]
    assert all(3_900 < tokens <= 4_000 for _, _, tokens, _ in logged)


def test_the_documentation_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel(
        steps=[
            calls(("list_parts", {"kind": "all"})),
            AIMessage("ask on"),
            lambda messages: reads("/1500/stock")(messages[:3]),
            lambda messages: AIMessage(str(messages[-1].content).splitlines()[-2]),
        ]
    )
    run_page("langchain", model='"openai:gpt-5"', names={"model": model})
    assert capsys.readouterr().out == "ask on\n10500\n"


async def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12(how: str) -> None:
    sessions = Sessions(InMemoryContextPointerStore(max_result_bytes=100))
    model = ScriptedModel(steps=[calls(("list_parts", {"kind": "all"})), AIMessage("done")])
    agent = create_agent(model, [list_parts], middleware=[LLMCommonMiddleware(sessions)])
    messages = await run(agent, how, "go")
    assert messages[-1].content == "done"
    assert_cut(str(messages[-2].content))


def test_a_checkpoint_stays_small_and_a_second_process_continues_it_t_13(tmp_path: Path) -> None:
    """Test the LangGraph program of `how-to/durable_runs.md`."""
    plain, whole, killed = tmp_path / "plain", tmp_path / "whole", tmp_path / "killed"
    assert langgraph_runs.run_process(whole) == "All pages are read."
    langgraph_runs.run_process(killed, ends_at=3)
    assert langgraph_runs.run_process(killed) == "All pages are read."
    langgraph_runs.run_process(plain, "plain")

    contents = [message.content for message in langgraph_runs.state_of(whole)]
    assert [message.content for message in langgraph_runs.state_of(killed)] == contents
    # Only the call that did not end is made again.
    assert (killed / "calls").read_text().split() == ["0", "1", "2", "3", "3", "4", "5"]
    size = langgraph_runs.checkpoint_bytes(whole)
    assert size <= 40_000 * langgraph_runs.PAGES
    assert langgraph_runs.checkpoint_bytes(plain) >= 20 * size


async def test_each_pointer_of_a_continued_thread_is_readable_t_13(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    await asyncio.to_thread(langgraph_runs.run_process, folder, ends_at=1)
    await asyncio.to_thread(langgraph_runs.run_process, folder)
    session = Sessions(folder / "context").get("user:42/parts")
    outputs = [one for one in langgraph_runs.state_of(folder) if isinstance(one, ToolMessage)]
    for page, output in enumerate(outputs):
        reading = await session.read(id_in(output), path="/0/id")
        assert str(page * langgraph_runs.ROWS) in reading.text
    assert len(outputs) == langgraph_runs.PAGES


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("langchain", tmp_path)
