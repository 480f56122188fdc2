"""Test Agno agents with our tool hook and a scripted model."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
from agno.agent import Agent
from agno.db.in_memory import InMemoryDb
from agno.media import Image
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.team import Team
from agno.tools.function import ToolResult
from pydantic import BaseModel, ConfigDict, Field

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, SessionConfig, Sessions
from llm_common.core import DefaultCounter
from llm_common.integrations.agno import LLMCommonToolHook
from tests.integrations.documented import blocks_of
from tests.integrations.programs.checks import check_program
from tests.integrations.unstored import assert_cut

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

DATABASE: Any = InMemoryDb  # has no types
POINTER = re.compile(r"the id ([0-9a-f]{12,16})")


@dataclass
class ScriptedModel(Model):
    """A model that returns the replies in turn, texts or calls, and records its requests."""

    id: str = "scripted"
    replies: list[Any] = field(default_factory=list)
    seen: list[tuple[list[Message], list[str]]] = field(default_factory=list)

    def invoke(
        self, *args: Any, messages: list[Message], tools: Any = None, **kwargs: Any
    ) -> ModelResponse:
        self.seen.append(([*messages], [tool["function"]["name"] for tool in tools or []]))
        reply = self.replies.pop(0)
        reply = reply(messages) if callable(reply) else reply
        if isinstance(reply, str):
            return ModelResponse(role="assistant", content=reply)
        calls = [
            {
                "id": f"call{len(self.seen)}-{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for number, (name, args) in enumerate(reply)
        ]
        return ModelResponse(role="assistant", tool_calls=calls)

    async def ainvoke(self, *args: Any, **kwargs: Any) -> ModelResponse:
        return self.invoke(*args, **kwargs)

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Iterator[ModelResponse]:
        yield self.invoke(*args, **kwargs)

    async def ainvoke_stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelResponse]:
        yield self.invoke(*args, **kwargs)

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


def list_parts(warehouse: str) -> str:
    """Lists the parts of a warehouse."""
    rows = [
        {"id": number, "name": f"part {number} of {warehouse}", "stock": number * 7}
        for number in range(5_000)
    ]
    return json.dumps(rows)


async def list_parts_later(warehouse: str) -> list[dict[str, Any]]:
    """Lists the parts of a warehouse as data."""
    rows: list[dict[str, Any]] = json.loads(list_parts(warehouse))
    return rows


def fail(length: int) -> str:
    """Fails with a long text."""
    raise RuntimeError("broken " * length)


def photo() -> ToolResult:
    """A photo with a long text."""
    return ToolResult(content="words " * 5_000, images=[Image(url="https://example.org/a.png")])


class Part(BaseModel):
    """A part with what JSON cannot stand for."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    name: str
    lock: Any = Field(default_factory=Lock)


def list_models() -> list[Part]:
    """Lists parts as models."""
    return [Part(name=f"part {number}") for number in range(5_000)]


def count_up(length: int) -> Iterator[str]:
    """Counts in a stream."""
    yield from (f"{number} " for number in range(length))


def agent_of(
    *replies: Any, hook: LLMCommonToolHook, tools: Any = (list_parts,), **more: Any
) -> Any:
    return Agent(
        model=ScriptedModel(replies=list(replies)),
        tools=[*tools, *hook.tools],
        tool_hooks=[hook],
        telemetry=False,
        **more,
    )


def results(run: Any) -> list[str]:
    return [message.content for message in run.messages if message.role == "tool"]


def read_back(path: str) -> Callable[[list[Message]], Any]:
    """A reply that reads back a part of the newest result."""

    def calls(messages: list[Message]) -> list[Any]:
        [pointer_id] = POINTER.findall(str(messages[-1].content))
        return [("read_context", {"id": pointer_id, "path": path})]

    return calls


def test_a_result_is_offloaded_and_read_back_in_a_second_turn() -> None:
    calls, database = [("list_parts", {"warehouse": "Oslo"})], DATABASE()
    agent = agent_of(
        calls,
        read_back("/4321/stock"),
        "30,247.",
        "You are welcome.",
        hook=LLMCommonToolHook(),
        db=database,
        add_history_to_context=True,
    )
    run = agent.run("How many pieces of part 4321 are there?", session_id="chat")
    preview, part = results(run)
    assert "part 4321 of Oslo" in preview
    assert len(preview) < 4_000
    assert "30247" in part
    assert agent.run("Thank you.", session_id="chat").content == "You are welcome."
    sent = agent.model.seen[-1][0]
    assert "part 4321 of Oslo" in str(sent)
    assert len(str([message.content for message in sent])) < 8_000


async def test_asynchronous_calls_of_one_message_share_a_budget() -> None:
    names = ("list_parts", "list_parts_later", "list_parts")
    calls = [
        (name, {"warehouse": city})
        for name, city in zip(names, ("Oslo", "Rome", "Lima"), strict=True)
    ]
    hook = LLMCommonToolHook(
        Sessions(config=SessionConfig(offload=OffloadPolicy(max_turn_tokens=600)))
    )
    agent = agent_of(
        calls, read_back("/7/name"), "Done.", hook=hook, tools=[list_parts, list_parts_later]
    )
    run = await agent.arun("List them.")
    *previews, part = results(run)
    assert [len(POINTER.findall(preview)) for preview in previews] == [1, 1, 1]
    assert sum(map(DefaultCounter().count, previews)) <= 600
    assert "part 7 of Lima" in part


def test_an_error_is_not_changed() -> None:
    calls = [("fail", {"length": 5_000})]
    run = agent_of(calls, "It failed.", hook=LLMCommonToolHook(), tools=[fail]).run("Try.")
    assert results(run)[0].count("broken") == 5_000


def test_a_value_that_is_not_json_is_offloaded_as_text() -> None:
    run = agent_of(
        [("list_models", {})], "Done.", hook=LLMCommonToolHook(), tools=[list_models]
    ).run("List them.")
    assert len(POINTER.findall(results(run)[0])) == 1


def test_a_stream_is_not_changed() -> None:
    calls = [("count_up", {"length": 5_000})]
    run = agent_of(calls, "Done.", hook=LLMCommonToolHook(), tools=[count_up]).run("Count.")
    assert results(run)[0].endswith("4998 4999 ")


def test_media_stay_with_a_preview() -> None:
    run = agent_of([("photo", {})], "Done.", hook=LLMCommonToolHook(), tools=[photo]).run("Look.")
    [message] = [message for message in run.messages if message.role == "tool"]
    assert POINTER.search(message.content)
    assert [image.url for image in run.images or message.images] == ["https://example.org/a.png"]


@pytest.mark.parametrize(
    "other", [{"session_id": "two", "user_id": "ann"}, {"session_id": "one", "user_id": "bob"}]
)
def test_two_sessions_cannot_read_each_others_results(
    tmp_path: Path, other: dict[str, str]
) -> None:
    hook, first = LLMCommonToolHook(Sessions(tmp_path)), {"session_id": "one", "user_id": "ann"}
    run = agent_of([("list_parts", {"warehouse": "Oslo"})], "Done.", hook=hook).run(
        "List them.", **first
    )
    [pointer_id] = POINTER.findall(results(run)[0])
    reading = [("read_context", {"id": pointer_id, "path": "/1/name"})]
    for session, expected in (
        (other, "no stored result of this session"),
        (first, "part 1 of Oslo"),
    ):
        read = agent_of(reading, "Done.", hook=LLMCommonToolHook(Sessions(tmp_path))).run(
            "Read it.", **session
        )
        assert expected in results(read)[0]


def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12() -> None:
    hook = LLMCommonToolHook(Sessions(InMemoryContextPointerStore(max_result_bytes=10_000)))
    run = agent_of([("list_parts", {"warehouse": "Oslo"})], "Done.", hook=hook).run("List them.")
    [text] = results(run)
    assert_cut(text)


@pytest.mark.parametrize("block", blocks_of("agno"))
def test_the_documentation_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel(
        replies=[[("list_parts", {"warehouse": "Oslo"})], read_back("/4321/stock"), "30,247."]
    )
    names: dict[str, Any] = {"model": model}
    exec(block, names)
    assert names["run"].content == "30,247."
    assert "30247" in results(names["run"])[-1]


def names_pointer(messages: list[Message]) -> list[Any]:
    """Return a call of another agent, with the id of the newest result."""
    [pointer_id] = POINTER.findall(str(messages[-1].content))
    return [
        ("delegate_task_to_member", {"member_id": "other", "task": f"Part 1500 of {pointer_id}"})
    ]


def reads_named(messages: list[Message]) -> list[Any]:
    """Return a call that reads a part of the result that the question names."""
    pointer_id = re.findall("[0-9a-f]{12,16}", str(messages[-1].content))[-1]
    return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]


def test_a_delegate_reads_the_pointers_that_it_is_given() -> None:
    hook = LLMCommonToolHook()
    inner_model = ScriptedModel(replies=[reads_named, lambda m: str(m[-1].content)])
    member = Agent(
        id="other", name="other", model=inner_model, tools=[*hook.tools], tool_hooks=[hook]
    )
    model = ScriptedModel(
        replies=[
            [("list_parts", {"warehouse": "Oslo"})],
            names_pointer,
            lambda m: str(m[-1].content),
        ]
    )
    team = Team(members=[member], model=model, tools=[list_parts, *hook.tools], tool_hooks=[hook])
    run: Any = team.run("go", session_id="chat", user_id="ann")
    assert "10500" in run.content


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("agno", tmp_path)
