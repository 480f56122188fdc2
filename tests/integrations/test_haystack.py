"""Test Haystack agents with our hook and Haystack's mock of a model."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent, TextContent, ToolCall
from haystack.tools import AgentTool, tool
from haystack.tools.tool import Tool

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, SessionConfig, Sessions
from llm_common.core import DefaultCounter
from llm_common.errors import ConfigError
from llm_common.history import FoldPolicy
from llm_common.integrations.haystack import SESSION_KEY, LLMCommonHook
from tests.integrations.documented import blocks_of
from tests.integrations.programs.checks import check_program
from tests.integrations.unstored import assert_cut

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

POINTER = re.compile(r"the id ([0-9a-f]{12,16})")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@tool
def list_parts(warehouse: Annotated[str, "Its name"]) -> str:
    """Lists the parts of a warehouse."""
    rows = [
        {"id": number, "name": f"part {number} of {warehouse}", "stock": number * 7}
        for number in range(5_000)
    ]
    return json.dumps(rows)


@tool
def fail(length: Annotated[int, "Its length"]) -> str:
    """Fails with a long text."""
    raise RuntimeError("broken " * length)


def call(name: str, **args: Any) -> ChatMessage:
    return ChatMessage.from_assistant(tool_calls=[ToolCall(name, args)])


class Script:
    """A model that gives each of the replies in turn, and keeps what it was sent."""

    def __init__(
        self, *replies: ChatMessage | str | Callable[[list[ChatMessage]], ChatMessage]
    ) -> None:
        self.replies = list(replies)
        self.seen: list[tuple[list[ChatMessage], list[str]]] = []
        self.model = MockChatGenerator(response_fn=self._reply)

    def _reply(self, messages: list[ChatMessage], tools: Any) -> ChatMessage | str:
        self.seen.append((messages, [tool.name for tool in tools or []]))
        reply = self.replies.pop(0)
        return reply(messages) if callable(reply) else reply


def agent_of(script: Script, hook: LLMCommonHook, *tools: Tool) -> Any:
    return Agent(
        chat_generator=script.model,
        tools=[*tools, *hook.tools],
        hooks={"before_llm": [hook]},
        raise_on_tool_invocation_failure=False,
    )


def results(messages: list[ChatMessage]) -> list[Any]:
    return [message.tool_call_result.result for message in messages if message.tool_call_result]


def read_back(path: str) -> Callable[[list[ChatMessage]], ChatMessage]:
    """A reply that reads back a part of the newest result."""

    def reply(messages: list[ChatMessage]) -> ChatMessage:
        [pointer_id] = POINTER.findall(results(messages)[-1])
        return call("read_context", id=pointer_id, path=path)

    return reply


def user(text: str) -> list[ChatMessage]:
    return [ChatMessage.from_user(text)]


def test_a_result_is_offloaded_and_read_back_in_a_second_turn() -> None:
    script = Script(
        call("list_parts", warehouse="Oslo"),
        read_back("/4321/stock"),
        "30,247.",
        "You are welcome.",
    )
    agent = agent_of(script, LLMCommonHook(), list_parts)
    first = agent.run(user("How many pieces of part 4321 are there?"))
    preview, part = results(first["messages"])
    assert "part 4321 of Oslo" in preview
    assert len(preview) < 4_000
    assert "30247" in part
    second = agent.run([*first["messages"], *user("Thank you.")])
    assert second["last_message"].text == "You are welcome."
    assert (
        sum(
            len(text)
            for message in script.seen[-1][0]
            for text in [*message.texts, *results([message])]
        )
        < 8_000
    )


def test_the_same_result_again_refers_to_the_one_above_t_05() -> None:
    same = call("list_parts", warehouse="Oslo")
    script = Script(same, same, "The same.")
    agent_of(script, LLMCommonHook(), list_parts).run(user("Which parts are there? Look twice."))
    first, second = results(script.seen[-1][0])
    assert second.startswith("Identical to the result above: list_parts (")
    assert POINTER.findall(first)[0] in second


async def test_asynchronous_calls_of_one_message_share_a_budget() -> None:
    calls = [ToolCall("list_parts", {"warehouse": name}) for name in ("Oslo", "Rome", "Lima")]
    script = Script(ChatMessage.from_assistant(tool_calls=calls), read_back("/7/name"), "Done.")
    hook = LLMCommonHook(Sessions(config=SessionConfig(offload=OffloadPolicy(max_turn_tokens=600))))
    run = await agent_of(script, hook, list_parts).run_async(user("List them."))
    *previews, part = results(run["messages"])
    assert [len(POINTER.findall(preview)) for preview in previews] == [1, 1, 1]
    assert sum(map(DefaultCounter().count, previews)) <= 600
    assert "part 7 of Lima" in part


def test_an_error_is_not_changed() -> None:
    script = Script(call("fail", length=5_000), "It failed.")
    run = agent_of(script, LLMCommonHook(), fail).run(user("Try."))
    [text] = results(run["messages"])
    assert text.count("broken") == 5_000


def test_a_result_with_an_image_is_not_changed() -> None:
    content = [TextContent("words " * 5_000), ImageContent(PIXEL, mime_type="image/png")]
    photo = Tool(
        "photo",
        "A photo.",
        {"type": "object", "properties": {}},
        lambda: content,
        {"raw_result": True},
    )
    run = agent_of(Script(call("photo"), "Seen."), LLMCommonHook(), photo).run(user("Look."))
    assert results(run["messages"]) == [content]


def test_two_sessions_cannot_read_each_others_results(tmp_path: Path) -> None:
    hook = LLMCommonHook(Sessions(tmp_path))
    run = agent_of(Script(call("list_parts", warehouse="Oslo"), "Done."), hook, list_parts).run(
        user("List them."), hook_context={SESSION_KEY: "user:1"}
    )
    [pointer_id] = POINTER.findall(results(run["messages"])[0])
    reading = call("read_context", id=pointer_id, path="/1/name")
    for session, expected in (
        ("user:2", "no stored result of this session"),
        ("user:1", "part 1 of Oslo"),
    ):
        other = agent_of(Script(reading, "Done."), hook).run(
            user("Read."), hook_context={SESSION_KEY: session}
        )
        assert expected in results(other["messages"])[0]


def test_only_matching_tools_are_shown() -> None:
    parameters = {"type": "object", "properties": {}}
    others = [
        Tool(
            f"handle_case_{number}",
            f"Handles a case of kind {number}. " * 5,
            parameters,
            lambda: "done",
        )
        for number in range(300)
    ]
    script = Script(call("list_parts", warehouse="Oslo"), "Done.", "Done.")
    agent = agent_of(script, LLMCommonHook(), *others, list_parts)
    agent.run(user("List the parts of the warehouse in Oslo."))
    agent.run(user("Handle a case of kind 77."))
    for needed, (_, names) in zip(
        ("list_parts", "list_parts", "handle_case_77"), script.seen, strict=True
    ):
        assert {needed, "read_context", "search_context"} <= set(names)
        assert len(names) < 100


def talk(count: int) -> list[ChatMessage]:
    words = "some words about the weather of the day " * 20
    turns = [(f"Remember this, number {number}: {words}", "Noted.") for number in range(count)]
    said = [("The door code of the shed is 7421.", "Noted."), *turns]
    messages = [
        [ChatMessage.from_user(one), ChatMessage.from_assistant(other)] for one, other in said
    ]
    return [*(message for pair in messages for message in pair), *user("What is the door code?")]


def test_a_long_history_is_folded() -> None:
    hook = LLMCommonHook(Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=2_000))))
    script = Script(call("search_context", words="number 3 weather"), "7421.")
    run = agent_of(script, hook).run(talk(30))
    sent = script.seen[0][0]
    assert len(sent) < 30
    assert "7421" in str(sent[0].text)
    assert "Remember this, number 3:" in results(run["messages"])[0]


def test_earlier_results_are_folded_and_keep_their_calls() -> None:
    weather = Tool(
        "weather", "A table.", {"type": "object", "properties": {}}, lambda: "rain and sun " * 200
    )
    hook = LLMCommonHook(Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=2_000))))
    calls = [
        ChatMessage.from_assistant(tool_calls=[ToolCall("weather", {}, id=f"call{n}")])
        for n in range(6)
    ]
    script = Script(*calls, "Done.")
    agent_of(script, hook, weather).run(user("How is the weather?"))
    for sent, _ in script.seen[1:]:
        assert sum(len(message.tool_calls) for message in sent) == len(results(sent)) > 0
        assert sum(map(len, results(sent))) < 8_000
    # How the note begins depends on the tokens of random ids.
    assert "Messages 2-" in str(script.seen)


def test_serialising_a_hook_raises_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="in code"):
        LLMCommonHook().to_dict()
    with pytest.raises(ConfigError, match="in code"):
        LLMCommonHook.from_dict({})


def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12() -> None:
    hook = LLMCommonHook(Sessions(InMemoryContextPointerStore(max_result_bytes=10_000)))
    script = Script(call("list_parts", warehouse="Oslo"), "Done.")
    run = agent_of(script, hook, list_parts).run(user("List them."))
    assert run["last_message"].text == "Done."
    assert_cut(results(run["messages"])[0])


@pytest.mark.parametrize("block", blocks_of("haystack"))
def test_the_documentation_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = Script(call("list_parts", warehouse="Oslo"), read_back("/4321/stock"), "30,247.")
    names: dict[str, Any] = {"model": script.model}
    exec(block, names)
    assert names["run"]["last_message"].text == "30,247."
    assert "30247" in results(names["run"]["messages"])[-1]


def names_pointer(messages: list[ChatMessage]) -> ChatMessage:
    """Return a call of another agent, with the id of the newest result."""
    [pointer_id] = POINTER.findall(results(messages)[-1])
    question = {"role": "user", "content": f"Part 1500 of {pointer_id}"}
    return call("other", messages=[question])


def reads_named(messages: list[ChatMessage]) -> ChatMessage:
    """Return a call that reads a part of the result that the question names."""
    pointer_id = str(messages[-1].text).split()[-1]
    return call("read_context", id=pointer_id, path="/1500/stock")


def says_result(messages: list[ChatMessage]) -> ChatMessage:
    return ChatMessage.from_assistant(str(results(messages)[-1]))


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("context", [{SESSION_KEY: "a"}, None])
async def test_a_delegate_reads_the_pointers_that_it_is_given(how: str, context: Any) -> None:
    sessions = Sessions()
    inner = agent_of(Script(reads_named, says_result), LLMCommonHook(sessions))
    other = AgentTool(agent=inner, name="other", description="Another agent.")
    script = Script(call("list_parts", warehouse="Oslo"), names_pointer, says_result)
    agent = agent_of(script, LLMCommonHook(sessions), list_parts, other)
    if how == "async":
        run = await agent.run_async(user("go"), hook_context=context)
    else:
        run = agent.run(user("go"), hook_context=context)
    assert "10500" in run["last_message"].text


async def test_a_delegate_without_the_hook_gets_the_result() -> None:
    inner_script = Script("done")
    inner = Agent(chat_generator=inner_script.model)
    other = AgentTool(agent=inner, name="other", description="Another agent.")
    script = Script(call("list_parts", warehouse="Oslo"), names_pointer, "done")
    agent_of(script, LLMCommonHook(), list_parts, other).run(user("go"))
    [asked] = inner_script.seen[0][0]
    assert "part 4999 of Oslo" in str(asked.text)
    assert 4_000 < len(str(asked.text)) < 40_000


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("haystack", tmp_path)
