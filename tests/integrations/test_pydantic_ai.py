"""Test pydantic-ai agents with `LLMCommonCapability`."""

import asyncio
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

from llm_common.agents import OffloadPolicy, SessionConfig, Sessions
from llm_common.history import FoldPolicy
from llm_common.integrations.pydantic_ai import LLMCommonCapability
from tests.integrations.documented import run_page
from tests.integrations.programs import pydantic_ai
from tests.integrations.programs.desk import list_orders
from tests.integrations.programs.process import Ask
from tests.integrations.promises import CODE, FoldingPromises
from tests.integrations.scripted_endpoint import POINTER

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


def call(name: str, **args: Any) -> ModelResponse:
    return ModelResponse([ToolCallPart(name, args, name)])


def says(text: str) -> ModelResponse:
    return ModelResponse([TextPart(text)])


LIST = call("list_orders", customer="bob")


def outputs(messages: list[ModelMessage]) -> list[ToolReturnPart[Any]]:
    return [part for one in messages for part in one.parts if isinstance(part, ToolReturnPart)]


def read_first(messages: list[ModelMessage]) -> ModelResponse:
    """Return a call that reads a part of the first offloaded result."""
    pointer_ids = POINTER.findall(str(messages))
    return call("read_context", id=pointer_ids[0], path="/4321/code")


class Script:
    """Return the next step, and record the request."""

    def __init__(self, *steps: Any) -> None:
        self.steps = [*steps]
        self.sent: list[list[ModelMessage]] = []
        self.model = FunctionModel(self.answer)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        step = self.steps[len(self.sent)]
        self.sent.append(messages)
        response: ModelResponse = step(messages) if callable(step) else step
        return response

    def agent(self, *tools: Any, sessions: Sessions | None = None, **more: Any) -> Agent[None, Any]:
        capability = LLMCommonCapability(store=sessions)
        return Agent(self.model, tools=tools, capabilities=[capability], **more)


class TestHook(FoldingPromises):
    module = pydantic_ai
    conversation: str | None = None

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        capabilities = [LLMCommonCapability(store=sessions)]
        model = pydantic_ai.model_of(url)
        inner = Agent(model, capabilities=capabilities)

        async def other(question: str) -> str:
            """Asks another agent."""
            return str((await inner.run(question, conversation_id=self.conversation)).output)

        outer = Agent(model, tools=[list_orders, other], capabilities=capabilities)

        async def ask(user: str, text: str) -> str:
            return str((await outer.run(text)).output)

        return ask

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        return "other", {"question": question}

    def run_page(self, model: object) -> None:
        with asyncio.Runner() as runner:
            asyncio.set_event_loop(runner.get_loop())
            run_page("pydantic_ai", model='"openai:gpt-5"', names={"model": model})


async def test_a_delegate_in_its_own_conversation_reads_what_it_is_given_t_08() -> None:
    hook = TestHook()
    hook.conversation = "of the delegate"
    await hook.test_a_delegate_reads_the_pointers_that_it_is_given_t_08()


async def test_a_result_keeps_its_metadata_and_is_read_back_in_a_second_turn() -> None:
    def list_with_metadata(customer: str) -> ToolReturn[Any]:
        """List all orders of a customer."""
        return ToolReturn(list_orders(customer), metadata={"pages": 3})

    listing = call("list_with_metadata", customer="bob")
    agent = Script(listing, says("ask on"), read_first, says(CODE)).agent(list_with_metadata)
    first = await agent.run("Which orders are there?")
    [output] = outputs(first.all_messages())
    assert len(str(output.content)) < 3_000
    assert (output.metadata, output.outcome) == ({"pages": 3}, "success")
    second = await agent.run("Which code?", message_history=first.all_messages())
    assert CODE in str(outputs(second.all_messages())[-1].content)


async def test_failures_and_files_do_not_change() -> None:
    image = BinaryContent(b"A" * 40_000, media_type="image/png")

    def fail_long() -> str:
        raise ToolFailed("no such kind; " * 2_000)

    def draw() -> BinaryContent:
        return image

    agent = Script(call("fail_long"), call("draw"), says("done")).agent(fail_long, draw)
    results = outputs((await agent.run("go")).all_messages())
    assert [(part.content, part.outcome) for part in results] == [
        ("no such kind; " * 2_000, "failed"),
        (image, "success"),
    ]


async def test_runs_without_a_conversation_id_cannot_read_each_others_results() -> None:
    stored: list[str] = []

    def read(_: list[ModelMessage]) -> ModelResponse:
        return call("read_context", id=stored[0], path="/4321/code")

    agent = Script(LIST, says("done"), read, says("no"), read, says("yes")).agent(list_orders)
    first = (await agent.run("go")).all_messages()
    stored += POINTER.findall(str(first))
    [refused] = outputs((await agent.run("read it")).all_messages())
    assert "no stored result of this session" in str(refused.content)
    assert refused.outcome == "failed"
    found = outputs((await agent.run("read it", message_history=first)).all_messages())
    assert CODE in str(found[-1].content)


async def test_a_result_is_offloaded_after_its_approval() -> None:
    tool = Tool(list_orders, requires_approval=True)
    script = Script(LIST, read_first, says(CODE))
    agent = script.agent(tool, output_type=[str, DeferredToolRequests])
    asked = await agent.run("List all orders.")
    approvals: dict[str, Any] = {one.tool_call_id: True for one in asked.output.approvals}
    done = await agent.run(
        message_history=asked.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals=approvals),
    )
    preview, part = outputs(done.all_messages())
    assert len(str(preview.content)) < 3_000
    assert CODE in str(part.content)


async def test_results_from_outside_the_run_are_offloaded() -> None:
    def list_later(customer: str) -> str:
        """List the orders later."""
        raise CallDeferred

    both = ModelResponse([ToolCallPart("list_later", {"customer": "bob"}, "a"), *LIST.parts])
    script = Script(both, read_first, says(CODE))
    agent = script.agent(list_later, list_orders, output_type=[str, DeferredToolRequests])
    asked = await agent.run("Which orders are there?")
    rows = list_orders("bob")
    results: dict[str, Any] = {one.tool_call_id: rows for one in asked.output.calls}
    done = await agent.run(
        message_history=asked.all_messages(),
        deferred_tool_results=DeferredToolResults(calls=results),
    )
    *previews, part = outputs(done.all_messages())
    assert max(len(str(preview.content)) for preview in previews) < 3_000
    assert CODE in str(part.content)


async def test_the_content_of_a_tool_return_is_offloaded() -> None:
    image = ImageUrl("https://example.org/a.png")

    def show_parts() -> ToolReturn[Any]:
        """Shows parts."""
        return ToolReturn("see below", content=["word " * 60_000, image], metadata={"pages": 3})

    script = Script(call("show_parts"), says("done"))
    await script.agent(show_parts).run("Show me")
    result, prompt = script.sent[-1][-1].parts
    assert isinstance(result, ToolReturnPart)
    assert (result.content, result.metadata) == ("see below", {"pages": 3})
    assert isinstance(prompt, UserPromptPart)
    text, kept = list(prompt.content)
    assert len(str(text)) < 3_000
    assert "read_context" in str(text)
    assert kept == image


async def test_a_question_is_never_folded_for_the_content_of_a_result() -> None:
    def show_parts() -> ToolReturn[Any]:
        """Shows parts."""
        return ToolReturn("see below", content="word " * 4_000)

    offload = OffloadPolicy(max_whole_tokens=100_000, max_turn_tokens=None)
    config = SessionConfig(offload=offload, fold=FoldPolicy(max_tokens=1_000))
    script = Script(call("show_parts"), says("done"))
    await script.agent(show_parts, sessions=Sessions(config=config)).run("Where is part 7?")
    question, response, result = script.sent[-1]
    assert [getattr(part, "content", "") for part in question.parts] == ["Where is part 7?"]
    assert isinstance(response, ModelResponse)
    assert [part.part_kind for part in result.parts] == ["tool-return", "user-prompt"]
    assert "stored under the id" in str(getattr(result.parts[1], "content", ""))


async def test_a_delegate_that_the_application_names_has_its_own_session() -> None:
    sessions = Sessions()
    inner = Script(LIST, says("done")).agent(list_orders, sessions=sessions)

    async def ask_other() -> str:
        """Asks another agent."""
        return str((await inner.run("go", conversation_id="bob")).output)

    agent = Script(call("ask_other"), says("done")).agent(ask_other, sessions=sessions)
    await agent.run("go", conversation_id="alice")
    assert len(sessions.store.list(query_id="bob")) == 1
    assert sessions.store.list(query_id="alice") == []


async def test_instructions_stay_before_a_folded_history_and_images_beside_shortened_text() -> None:
    image = ImageUrl("https://example.org/a.png")
    script = Script(says("Noted."), says("A cat."))
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=800)))
    agent = script.agent(sessions=sessions, system_prompt="Answer.")
    first = await agent.run("word " * 2_000)
    await agent.run(["What is it?", image, "word " * 2_000], message_history=first.all_messages())
    parts = [part for message in script.sent[-1] for part in message.parts]
    assert isinstance(parts[0], SystemPromptPart)
    assert "Earlier messages are folded away" in str(getattr(parts[1], "content", ""))
    content: Any = getattr(parts[-1], "content", "")
    text, kept = content
    assert kept == image
    assert str(text).count("the rest has not been read") == 1


async def test_a_request_within_the_limit_is_sent_unchanged() -> None:
    script = Script(says("yes"))
    history: list[ModelMessage] = [
        ModelRequest([UserPromptPart("a"), UserPromptPart("b")]),
        says("c"),
    ]
    await script.agent().run("d", message_history=history)
    assert script.sent[0][:2] == history
