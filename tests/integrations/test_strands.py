"""Test Strands agents with our plugin and a scripted model."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager

from llm_common.agents import (
    InMemoryContextPointerStore,
    OffloadPolicy,
    SessionConfig,
    Sessions,
)
from llm_common.core import DefaultCounter
from llm_common.history import FoldPolicy
from llm_common.integrations.strands import LLMCommonPlugin
from tests.integrations.documented import blocks_of
from tests.integrations.programs.checks import check_program
from tests.integrations.unstored import assert_cut

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

Call = tuple[str, dict[str, Any]]
POINTER = re.compile(r"the id ([0-9a-f]{12,16})")


class ScriptedModel(Model):
    """A model that returns the replies in turn, texts or calls, and records its requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.seen: list[tuple[list[Any], list[str]]] = []

    def update_config(self, **model_config: Any) -> None: ...

    def get_config(self) -> Any:
        return {}

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def stream(
        self, messages: Any, tool_specs: Any = None, *args: Any, **kwargs: Any
    ) -> AsyncIterator[Any]:
        self.seen.append((messages, [spec["name"] for spec in tool_specs or []]))
        reply = self.replies.pop(0)
        reply = reply(messages) if callable(reply) else reply
        yield {"messageStart": {"role": "assistant"}}
        for event in _text(reply) if isinstance(reply, str) else _calls(reply, len(self.seen)):
            yield event
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(reply, str) else "tool_use"}}


def _text(reply: str) -> Iterator[Any]:
    yield {"contentBlockStart": {"start": {}}}
    yield {"contentBlockDelta": {"delta": {"text": reply}}}
    yield {"contentBlockStop": {}}


def _calls(calls: list[Call], turn: int) -> Iterator[Any]:
    for number, (name, args) in enumerate(calls):
        yield {
            "contentBlockStart": {
                "start": {"toolUse": {"name": name, "toolUseId": f"call{turn}-{number}"}}
            }
        }
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(args)}}}}
        yield {"contentBlockStop": {}}


@tool
def list_parts(warehouse: str) -> list[dict[str, Any]]:
    """Lists the parts of a warehouse.

    Args:
        warehouse: Its name.
    """
    return [
        {"id": number, "name": f"part {number} of {warehouse}", "stock": number * 7}
        for number in range(5_000)
    ]


@tool
def fail(length: int) -> str:
    """Fails with a long text.

    Args:
        length: Its length.
    """
    raise RuntimeError("broken " * length)


def results(messages: list[Any]) -> list[str]:
    """The texts of the tool results that the model was sent, the newest last."""
    blocks = [block for message in messages for block in message["content"]]
    return [block["toolResult"]["content"][0]["text"] for block in blocks if "toolResult" in block]


def read_back(path: str) -> Any:
    """A reply that reads back a part of the newest result."""

    def calls(messages: list[Any]) -> list[Call]:
        [pointer_id] = POINTER.findall(results(messages)[-1])
        return [("read_context", {"id": pointer_id, "path": path})]

    return calls


async def test_the_same_result_again_refers_to_the_one_above_t_05() -> None:
    call = [("list_parts", {"warehouse": "Oslo"})]
    model = ScriptedModel(call, call, "The same.")
    agent = Agent(
        model=model, tools=[list_parts], plugins=[LLMCommonPlugin()], callback_handler=None
    )
    await agent.invoke_async("Which parts are there? Look twice.")
    first, second = results(model.seen[-1][0])
    assert second.startswith("Identical to the result above: list_parts (")
    assert POINTER.findall(first)[0] in second


def many_tools(count: int) -> list[Any]:
    def made(number: int) -> Any:
        @tool(name=f"handle_case_{number}", description=f"Handles a case of kind {number}. " * 5)
        def handle(reason: str) -> str:
            return reason

        return handle

    return [made(number) for number in range(count)]


def test_a_result_is_offloaded_and_read_back_in_a_second_turn() -> None:
    model = ScriptedModel(
        [("list_parts", {"warehouse": "Oslo"})],
        read_back("/4321/stock"),
        "30,247 pieces.",
        "You are welcome.",
    )
    agent = Agent(
        model=model, tools=[list_parts], plugins=[LLMCommonPlugin()], callback_handler=None
    )
    assert str(agent("How many pieces of part 4321 are there?")).strip() == "30,247 pieces."
    preview, part = results(agent.messages)
    assert "part 4321 of Oslo" in preview
    assert len(preview) < 4_000
    assert "30247" in part
    assert str(agent("Thank you.")).strip() == "You are welcome."
    assert len(str(model.seen[-1][0])) < 8_000


async def test_asynchronous_calls_of_one_message_share_a_budget() -> None:
    calls = [("list_parts", {"warehouse": name}) for name in ("Oslo", "Rome", "Lima")]
    plugin = LLMCommonPlugin(
        Sessions(config=SessionConfig(offload=OffloadPolicy(max_turn_tokens=600)))
    )
    agent = Agent(
        model=ScriptedModel(calls, "Done."),
        tools=[list_parts],
        plugins=[plugin],
        callback_handler=None,
    )
    await agent.invoke_async("List them.")
    previews = results(agent.messages)
    assert [len(POINTER.findall(preview)) for preview in previews] == [1, 1, 1]
    assert sum(map(DefaultCounter().count, previews)) <= 600


@tool
def answer_with_data(rows: int) -> dict[str, Any]:
    """Answers with data that holds a text.

    Args:
        rows: How many.
    """
    return {
        "status": "success",
        "content": [{"json": {"text": "All rows.", "rows": [*range(rows)]}}],
    }


def test_data_is_stored_whole() -> None:
    model = ScriptedModel([("answer_with_data", {"rows": 9_000})], read_back("/rows/8765"), "Done.")
    agent = Agent(
        model=model, tools=[answer_with_data], plugins=[LLMCommonPlugin()], callback_handler=None
    )
    agent("Which number is in row 8765?")
    assert "8765" in results(agent.messages)[-1]


@tool
def photo() -> dict[str, Any]:
    """A photo with a long text."""
    image = {"format": "png", "source": {"bytes": b"\x89PNG"}}
    return {"status": "success", "content": [{"text": "words " * 5_000}, {"image": image}]}


def test_an_image_stays_with_a_preview() -> None:
    agent = Agent(
        model=ScriptedModel([("photo", {})], "Seen."),
        tools=[photo],
        plugins=[LLMCommonPlugin()],
        callback_handler=None,
    )
    agent("Look.")
    text, image = agent.messages[-2]["content"][0]["toolResult"]["content"]
    assert POINTER.search(text["text"])
    assert image["image"]["source"] == {"bytes": b"\x89PNG"}


def test_an_error_is_not_changed() -> None:
    agent = Agent(
        model=ScriptedModel([("fail", {"length": 5_000})], "It failed."),
        tools=[fail],
        plugins=[LLMCommonPlugin()],
        callback_handler=None,
    )
    agent("Try.")
    [text] = results(agent.messages)
    assert text.count("broken") == 5_000


@pytest.mark.parametrize("shared", [True, False])
def test_two_agents_cannot_read_each_others_results(tmp_path: Path, shared: bool) -> None:
    sessions = Sessions(tmp_path)
    plugin = LLMCommonPlugin(sessions)
    first = Agent(
        model=ScriptedModel([("list_parts", {"warehouse": "Oslo"})], "Done."),
        tools=[list_parts],
        plugins=[plugin],
        callback_handler=None,
    )
    first("List them.")
    [pointer_id] = POINTER.findall(results(first.messages)[-1])
    call = [("read_context", {"id": pointer_id})]
    second = Agent(
        model=ScriptedModel(call, "No."),
        plugins=[plugin if shared else LLMCommonPlugin(Sessions(tmp_path))],
        callback_handler=None,
    )
    second("Read it.")
    [text] = results(second.messages)
    assert "no stored result of this session" in text
    assert second.messages[-2]["content"][0]["toolResult"]["status"] == "error"


def test_a_resumed_session_reads_its_stored_results(tmp_path: Path) -> None:
    def agent(*replies: Any) -> Any:
        manager = FileSessionManager(session_id="user-42", storage_dir=str(tmp_path / "sessions"))
        plugin = LLMCommonPlugin(Sessions(tmp_path / "results"))
        return Agent(
            model=ScriptedModel(*replies),
            tools=[list_parts],
            plugins=[plugin],
            session_manager=manager,
            callback_handler=None,
        )

    agent([("list_parts", {"warehouse": "Oslo"})], "Done.")("List them.")
    resumed = agent(read_back("/7/name"), "Part 7.")
    resumed("Which is the eighth?")
    assert "part 7 of Oslo" in results(resumed.messages)[-1]


def test_only_matching_tools_are_shown_and_all_stay_callable() -> None:
    model = ScriptedModel([("list_parts", {"warehouse": "Oslo"})], "Done.", "And so on.")
    agent = Agent(
        model=model,
        tools=[*many_tools(300), list_parts],
        plugins=[LLMCommonPlugin()],
        callback_handler=None,
    )
    agent("List the parts of the warehouse in Oslo.")
    agent("Thank you.")
    names = [set(tools) for _, tools in model.seen]
    assert {"list_parts", "read_context", "search_context"} <= names[0]
    assert len(names[0]) < 100
    assert {"list_parts", "read_context", "search_context"} <= names[-1]


def test_a_long_history_is_folded_only_for_the_model() -> None:
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=4_000)))
    model = ScriptedModel(*["Noted.", "Noted, at length. " * 60] * 15)
    agent = Agent(
        model=model,
        plugins=[LLMCommonPlugin(sessions)],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
    agent("The door code of the shed is 7421.")
    for number in range(29):
        agent(f"Remember this, number {number}: " + "some words about the weather of the day " * 20)
    sent = model.seen[-1][0]
    assert len(agent.messages) == 60
    assert len(sent) < 40
    assert "7421" in str(sent)
    for messages, _ in model.seen:
        roles = [message["role"] for message in messages]
        assert all(one != other for one, other in pairwise(roles))


@tool
def table(city: str) -> str:
    """A table of a city.

    Args:
        city: Its name.
    """
    return f"{city}: " + "rain and sun " * 200


def test_earlier_results_are_folded_and_keep_their_calls() -> None:
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=4_000)))
    model = ScriptedModel(
        *(reply for n in range(12) for reply in ([("table", {"city": f"City {n}"})], "Noted."))
    )
    agent = Agent(
        model=model,
        tools=[table],
        plugins=[LLMCommonPlugin(sessions)],
        conversation_manager=NullConversationManager(),
        callback_handler=None,
    )
    for number in range(12):
        agent(f"How is the weather in city {number}?")
    for messages, _ in model.seen[2:]:
        blocks = [block for message in messages for block in message["content"]]
        assert (
            sum("toolUse" in block for block in blocks)
            == sum("toolResult" in block for block in blocks)
            > 0
        )
        assert len(str(blocks)) < 30_000
    assert "not shown now" in str(model.seen)
    assert str(agent.messages).count("rain and sun") == 2_400


def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12() -> None:
    plugin = LLMCommonPlugin(Sessions(InMemoryContextPointerStore(max_result_bytes=10_000)))
    model = ScriptedModel([("list_parts", {"warehouse": "Oslo"})], "Done.")
    agent = Agent(model=model, tools=[list_parts], plugins=[plugin], callback_handler=None)
    agent("List them.")
    [text] = results(model.seen[-1][0])
    assert_cut(text)


def test_a_call_of_the_application_returns_the_whole_result() -> None:
    agent = Agent(
        model=ScriptedModel(),
        tools=[list_parts],
        plugins=[LLMCommonPlugin()],
        callback_handler=None,
    )
    given = agent.tool.list_parts(warehouse="Oslo")
    assert given["status"] == "success"
    assert len(json.loads(given["content"][0]["text"])) == 5_000


@pytest.mark.parametrize("block", blocks_of("strands"))
def test_the_documentation_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel(
        *[[("list_parts", {"warehouse": "Oslo"})], read_back("/4321/stock"), "30,247 pieces."] * 2
    )
    names: dict[str, Any] = {"model": model}
    exec(block, names)
    assert str(names["answer"]).strip() == "30,247 pieces."
    assert "30247" in str(model.seen[-1])


def names_pointer(messages: list[Any]) -> list[Call]:
    """Return a call of another agent, with the id of the newest result."""
    [pointer_id] = POINTER.findall(results(messages)[-1])
    return [("other", {"input": f"Part 1500 of {pointer_id}"})]


def reads_named(messages: list[Any]) -> list[Call]:
    """Return a call that reads a part of the result that the question names."""
    pointer_id = messages[-1]["content"][0]["text"].split()[-1]
    return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]


def test_a_delegate_reads_the_pointers_that_it_is_given() -> None:
    sessions = Sessions()
    inner_model = ScriptedModel(reads_named, lambda messages: results(messages)[-1])
    inner = Agent(
        name="other", model=inner_model, plugins=[LLMCommonPlugin(sessions)], callback_handler=None
    )
    model = ScriptedModel(
        [("list_parts", {"warehouse": "Oslo"})],
        names_pointer,
        lambda messages: results(messages)[-1],
    )
    agent = Agent(
        model=model,
        tools=[list_parts, inner],
        plugins=[LLMCommonPlugin(sessions)],
        callback_handler=None,
    )
    assert "10500" in str(agent("go"))


def test_a_delegate_without_the_plugin_gets_the_result() -> None:
    inner_model = ScriptedModel("done")
    inner = Agent(name="other", model=inner_model, callback_handler=None)
    model = ScriptedModel([("list_parts", {"warehouse": "Oslo"})], names_pointer, "done")
    agent = Agent(
        model=model, tools=[list_parts, inner], plugins=[LLMCommonPlugin()], callback_handler=None
    )
    agent("go")
    [asked] = inner_model.seen[0][0]
    assert "part 4999 of Oslo" in str(asked)
    assert 4_000 < len(str(asked)) < 40_000


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("strands", tmp_path)
