"""Test pydantic-ai agents with `LLMCommonCapability` and a `FunctionModel`."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ImageUrl,
    ModelMessage,
    RunContext,
    Tool,
    ToolFailed,
    ToolReturn,
)
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, SessionConfig, Sessions
from llm_common.history import FoldPolicy
from llm_common.integrations.pydantic_ai import LLMCommonCapability
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.unstored import assert_cut

pytestmark = pytest.mark.integrations

ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]


def calls(*named: tuple[str, dict[str, Any]]) -> ModelResponse:
    return ModelResponse(
        [ToolCallPart(name, args, f"{name}-{n}") for n, (name, args) in enumerate(named)]
    )


def says(text: str) -> ModelResponse:
    return ModelResponse([TextPart(text)])


def outputs(messages: list[ModelMessage]) -> list[ToolReturnPart[Any]]:
    return [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]


def id_in(part: ToolReturnPart[Any]) -> str:
    return str(part.content).partition("the id ")[2].partition(" ")[0].strip(".")


class Script:
    """Return the next step, and record the request."""

    def __init__(self, *steps: Any) -> None:
        self.steps, self.sent, self.offered = (
            [*steps],
            list[list[ModelMessage]](),
            list[list[str]](),
        )
        self.model = FunctionModel(self.answer)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = self.steps[len(self.sent)]
        self.sent.append(messages)
        self.offered.append([tool.name for tool in info.function_tools])
        response: ModelResponse = step(messages) if callable(step) else step
        return response


def reads(path: str) -> Callable[[list[ModelMessage]], ModelResponse]:
    """Return a call that reads a part of the first offloaded result."""

    def step(messages: list[ModelMessage]) -> ModelResponse:
        return calls(
            (
                "read_context",
                {
                    "id": id_in(outputs(messages)[0]),
                    "path": path,
                    "cursor": None,
                },
            )
        )

    return step


def list_parts(kind: str) -> ToolReturn[Any]:
    """Lists the parts in stock."""
    return ToolReturn(ROWS, metadata={"pages": 3})


def get_weather(city: str) -> str:
    """Forecasts the weather of a city."""
    return f"{city}: sunny"


async def run(
    agent: Agent[None, Any], how: str, text: str, history: Any = None, **facts: Any
) -> Any:
    if how == "async":
        return await agent.run(text, message_history=history, **facts)

    def run_sync() -> Any:
        with asyncio.Runner() as runner:  # closes the loop that the framework would leave open
            asyncio.set_event_loop(runner.get_loop())
            return agent.run_sync(text, message_history=history, **facts)

    return await asyncio.to_thread(run_sync)


@pytest.fixture(params=["sync", "async"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_large_result_is_offloaded_chosen_and_read_back_in_a_second_turn(how: str) -> None:
    script = Script(
        calls(("list_parts", {"kind": "all"})), says("ask on"), reads("/1500/stock"), says("10500")
    )
    agent = Agent(
        script.model, tools=[list_parts, get_weather], capabilities=[LLMCommonCapability()]
    )
    first = await run(agent, how, "Which parts are there? I need part 1234")
    [output] = outputs(first.all_messages())
    assert len(str(output.content)) < 3_000
    assert "part 1234" in str(output.content)
    assert (output.metadata, output.outcome, output.tool_call_id) == (
        {"pages": 3},
        "success",
        "list_parts-0",
    )
    second = await run(agent, how, "What is the stock of part 1500?", first.all_messages())
    assert "10500" in str(outputs(second.all_messages())[-1].content)
    assert second.output == "10500"


async def test_the_same_result_again_refers_to_the_one_above_t_05(how: str) -> None:
    call = calls(("list_parts", {"kind": "all"}))
    script = Script(call, call, says("the same"))
    agent = Agent(script.model, tools=[list_parts], capabilities=[LLMCommonCapability()])
    await run(agent, how, "Which parts are there? Look twice.")
    first, second = outputs(script.sent[-1])
    assert str(second.content).startswith("Identical to the result above: list_parts (")
    assert id_in(first) in str(second.content)


async def test_small_results_failures_and_files_do_not_change(how: str) -> None:
    image = BinaryContent(b"A" * 40_000, media_type="image/png")

    def fail_long() -> str:
        raise ToolFailed("no such kind; " * 2_000)

    def draw() -> BinaryContent:
        return image

    script = Script(
        calls(("get_weather", {"city": "Ulm"}), ("fail_long", {}), ("draw", {})), says("done")
    )
    agent = Agent(
        script.model, tools=[get_weather, fail_long, draw], capabilities=[LLMCommonCapability()]
    )
    given = outputs((await run(agent, how, "go")).all_messages())
    assert [(one.content, one.outcome) for one in given] == [
        ("Ulm: sunny", "success"),
        ("no such kind; " * 2_000, "failed"),
        (image, "success"),
    ]


@pytest.mark.parametrize("named", [True, False])
async def test_a_session_cannot_read_the_results_of_another(how: str, named: bool) -> None:
    stored: list[str] = []

    def read(_: list[ModelMessage]) -> ModelResponse:
        return calls(
            ("read_context", {"id": stored[0]}), ("search_context", {"words": "part 1999"})
        )

    script = Script(
        calls(("list_parts", {"kind": "all"})), says("done"), read, says("no"), read, says("yes")
    )
    agent = Agent(script.model, tools=[list_parts], capabilities=[LLMCommonCapability()])
    mine, other = ({"conversation_id": name} if named else {} for name in "ab")
    first = await run(agent, how, "go", **mine)
    stored.append(id_in(outputs(first.all_messages())[0]))
    refused, nothing = outputs((await run(agent, how, "read it", **other)).all_messages())
    assert "no stored result of this session" in str(refused.content)
    assert refused.outcome == "failed"
    assert "No stored result" in str(nothing.content)
    found = outputs(
        (await run(agent, how, "read it", first.all_messages(), **mine)).all_messages()
    )[-2:]
    assert all("part 1" in str(one.content) for one in found)


async def test_a_result_is_offloaded_after_its_approval(how: str) -> None:
    def delete_parts(kind: str) -> Any:
        """Deletes parts."""
        return ROWS

    script = Script(calls(("delete_parts", {"kind": "all"})), reads("/1500/stock"), says("10500"))
    agent: Agent[None, Any] = Agent(
        script.model,
        tools=[Tool(delete_parts, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
        capabilities=[LLMCommonCapability()],
    )
    asked = await run(agent, how, "Delete all parts")
    assert isinstance(asked.output, DeferredToolRequests)
    approved = DeferredToolResults(
        approvals={call.tool_call_id: True for call in asked.output.approvals}
    )
    done = await run(agent, how, "", asked.all_messages(), deferred_tool_results=approved)
    preview, part = outputs(done.all_messages())
    assert len(str(preview.content)) < 3_000
    assert "10500" in str(part.content)
    assert done.output == "10500"


async def test_results_from_outside_the_run_are_offloaded(how: str) -> None:
    def list_later(kind: str) -> str:
        """Lists the parts in stock later."""
        raise CallDeferred

    script = Script(
        calls(("list_later", {"kind": "all"}), ("get_weather", {"city": "Ulm"})),
        reads("/1500/stock"),
        says("10500"),
    )
    agent: Agent[None, Any] = Agent(
        script.model,
        tools=[list_later, get_weather],
        output_type=[str, DeferredToolRequests],
        capabilities=[LLMCommonCapability()],
    )
    asked = await run(agent, how, "Which parts are there?")
    later = DeferredToolResults(calls={call.tool_call_id: ROWS for call in asked.output.calls})
    done = await run(agent, how, "And?", asked.all_messages(), deferred_tool_results=later)
    assert max(len(str(part.content)) for part in outputs(done.all_messages())) < 3_000
    assert "10500" in str(outputs(done.all_messages())[-1].content)
    assert done.output == "10500"


async def test_the_content_of_a_tool_return_is_offloaded(how: str) -> None:
    image = ImageUrl("https://example.org/a.png")

    def show_parts() -> ToolReturn[Any]:
        """Shows parts."""
        return ToolReturn("see below", content=["word " * 60_000, image], metadata={"pages": 3})

    script = Script(calls(("show_parts", {})), says("done"))
    agent = Agent(script.model, tools=[show_parts], capabilities=[LLMCommonCapability()])
    await run(agent, how, "Show me")
    result, shown = script.sent[-1][-1].parts
    assert isinstance(result, ToolReturnPart)
    assert (result.content, result.metadata) == ("see below", {"pages": 3})
    assert isinstance(shown, UserPromptPart)
    text, kept = list(shown.content)
    assert len(str(text)) < 3_000
    assert "read_context" in str(text)
    assert kept == image


async def test_a_question_is_never_folded_for_the_content_of_a_result(how: str) -> None:
    def show_parts() -> ToolReturn[Any]:
        """Shows parts."""
        return ToolReturn("see below", content="word " * 4_000)

    config = SessionConfig(
        offload=OffloadPolicy(max_whole_tokens=100_000, max_turn_tokens=None),
        fold=FoldPolicy(max_tokens=1_000),
    )
    script = Script(calls(("show_parts", {})), says("done"))
    capability = LLMCommonCapability(store=Sessions(config=config))
    agent = Agent(script.model, tools=[show_parts], capabilities=[capability])
    await run(agent, how, "Where is part 7?")
    question, call, result = script.sent[-1]
    assert [getattr(part, "content", "") for part in question.parts] == ["Where is part 7?"]
    assert isinstance(call, ModelResponse)
    assert [part.part_kind for part in result.parts] == ["tool-return", "user-prompt"]
    assert "stored under the id" in str(getattr(result.parts[1], "content", ""))


@pytest.mark.parametrize("conversation", [None, "of the delegate"])
async def test_a_delegate_reads_the_pointers_that_it_is_given(
    how: str, conversation: str | None
) -> None:
    sessions = Sessions()

    def reads_named(messages: list[ModelMessage]) -> ModelResponse:
        [prompt] = messages[-1].parts
        named = str(getattr(prompt, "content", "")).split()[-1]
        return calls(("read_context", {"id": named, "path": "/1500/stock"}))

    def says_result(messages: list[ModelMessage]) -> ModelResponse:
        return says(str(outputs(messages)[-1].content))

    inner_script = Script(reads_named, says_result)
    inner = Agent(inner_script.model, capabilities=[LLMCommonCapability(store=sessions)])

    async def ask_other(question: str) -> str:
        """Asks another agent."""
        return str((await inner.run(question, conversation_id=conversation)).output)

    script = Script(
        calls(("list_parts", {"kind": "all"})),
        lambda messages: calls(
            ("ask_other", {"question": f"Part 1500 of {id_in(outputs(messages)[-1])}"})
        ),
        says_result,
    )
    agent = Agent(
        script.model,
        tools=[list_parts, ask_other],
        capabilities=[LLMCommonCapability(store=sessions)],
    )
    assert "10500" in (await run(agent, how, "go")).output


async def test_a_delegate_that_the_application_names_has_its_own_session(how: str) -> None:
    sessions = Sessions()
    inner_script = Script(calls(("list_parts", {"kind": "all"})), says("done"))
    inner = Agent(
        inner_script.model, tools=[list_parts], capabilities=[LLMCommonCapability(store=sessions)]
    )

    async def ask_other() -> str:
        """Asks another agent."""
        return str((await inner.run("go", conversation_id="bob")).output)

    script = Script(calls(("ask_other", {})), says("done"))
    agent = Agent(
        script.model, tools=[ask_other], capabilities=[LLMCommonCapability(store=sessions)]
    )
    await run(agent, how, "go", conversation_id="alice")
    assert len(sessions.store.list(query_id="bob")) == 1
    assert sessions.store.list(query_id="alice") == []


async def test_parallel_calls_share_the_budget_of_their_turn(how: str) -> None:
    def get_text(number: int) -> str:
        """Some words."""
        return f"word {number} " * 300

    stay = {}
    for count in (1, 2, 4):
        script = Script(calls(*(("get_text", {"number": n}) for n in range(count))), says("done"))
        sessions = Sessions(config=SessionConfig(offload=OffloadPolicy(max_turn_tokens=1_500)))
        agent = Agent(
            script.model, tools=[get_text], capabilities=[LLMCommonCapability(store=sessions)]
        )
        given = outputs((await run(agent, how, "go")).all_messages())
        stay[count] = sum(str(one.content).startswith("word") for one in given)
    assert stay[1] == 1
    assert stay[2] == 1
    assert stay[4] < 4


async def test_an_image_stays_with_shortened_text(how: str) -> None:
    image = ImageUrl("https://example.org/a.png")
    script = Script(says("A cat."))
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=800)))
    agent = Agent(script.model, capabilities=[LLMCommonCapability(store=sessions)])
    said: Any = ["What is it?", image, "word " * 2_000]
    await run(agent, how, said)
    [part] = [part for part in script.sent[0][0].parts if isinstance(part, UserPromptPart)]
    content: Any = part.content
    text, kept = content
    assert kept == image
    assert str(text).count("the rest has not been read") == 1


async def test_a_long_history_is_folded_only_for_the_model(how: str) -> None:
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=1_000)))
    steps = [calls(("get_weather", {"city": "Ulm"})), says("noted " * 50)] * 12
    script = Script(*steps, calls(("search_context", {"words": "code of door 3"})), says("93"))
    agent = Agent(
        script.model,
        system_prompt="Answer.",
        tools=[get_weather],
        capabilities=[LLMCommonCapability(store=sessions)],
    )
    history: list[ModelMessage] = []
    for number in range(12):
        done = await run(
            agent, how, f"The code of door {number} is {number * 31}. " + "word " * 40, history
        )
        history = done.all_messages()
    messages = (await run(agent, how, "What is the code of door 3?", history)).all_messages()
    head = script.sent[-2][0].parts
    assert [type(part) for part in head[:2]] == [SystemPromptPart, UserPromptPart]
    assert "Earlier messages are folded away" in str(getattr(head[1], "content", ""))
    assert len(script.sent[-2]) < 20 < len(messages)
    assert "93" in str(outputs(messages)[-1].content)
    called = {
        call.tool_call_id
        for one in script.sent[-1]
        if isinstance(one, ModelResponse)
        for call in one.tool_calls
    }
    assert {one.tool_call_id for one in outputs(script.sent[-1])} == called


async def test_many_tools_are_reduced_to_matching_ones(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="llm_common")
    agent = Agent(capabilities=[LLMCommonCapability()], tools=[get_weather])
    for number in range(200):

        @agent.tool(name=f"convert_unit_{number}")
        def convert(ctx: RunContext[None], amount: float) -> str:
            """Converts an amount of one unit into another one, and says what it is."""
            return "1"

    script = Script(calls(("get_weather", {"city": "Ulm"})), says("sunny"), says("yes"))
    agent.model = script.model
    first = await run(agent, how, "What is the weather in Ulm?")
    await run(agent, how, "xqzzt", first.all_messages())
    assert len(script.offered) == 3
    for names in script.offered:
        assert {"get_weather", "read_context", "search_context"} <= set(names)
    logged: list[Any] = [entry.args for entry in caplog.records if "tools are shown" in entry.msg]
    # Without the finder, which needs no room.
    assert [shown for shown, *_ in logged] == [len(names) - 1 for names in script.offered]
    assert all(3_900 < tokens <= 4_000 for _, _, tokens, _ in logged)


async def test_a_request_within_the_limit_is_sent_unchanged() -> None:
    script = Script(says("yes"))
    agent = Agent(script.model, capabilities=[LLMCommonCapability()])
    history: list[ModelMessage] = [
        ModelRequest([UserPromptPart("a"), UserPromptPart("b")]),
        says("c"),
    ]
    await agent.run("d", message_history=history)
    assert script.sent[0][:2] == history


def test_the_documentation_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [calls(("list_parts", {"kind": "all"})), says("ask on"), reads("/1500/stock")]
    script = Script(
        *steps, lambda messages: says(str(outputs(messages)[-1].content).splitlines()[-2])
    )
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        run_page("pydantic_ai", model='"openai:gpt-5"', names={"model": script.model})
    assert capsys.readouterr().out == "ask on\n10500\n"


async def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12(how: str) -> None:
    sessions = Sessions(InMemoryContextPointerStore(max_result_bytes=100))
    script = Script(calls(("list_parts", {"kind": "all"})), says("done"))
    agent = Agent(
        script.model, tools=[list_parts], capabilities=[LLMCommonCapability(store=sessions)]
    )
    done = await run(agent, how, "go")
    assert done.output == "done"
    assert_cut(str(outputs(done.all_messages())[0].content))


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("pydantic_ai", tmp_path)
