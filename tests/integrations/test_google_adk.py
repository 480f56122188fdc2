"""Test agents of Google's ADK with our plugin and a scripted model."""

import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from pydantic import BaseModel

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, SessionConfig, Sessions
from llm_common.core import DefaultCounter
from llm_common.history import FoldPolicy
from llm_common.integrations.google_adk import LLMCommonPlugin
from tests.integrations.documented import blocks_of
from tests.integrations.programs.checks import check_program
from tests.integrations.programs.script import contents_prompt
from tests.integrations.scripted_contents import served_contents
from tests.integrations.unstored import assert_cut

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

POINTER = re.compile(r"the id ([0-9a-f]{12,16})")


class ScriptedModel(BaseLlm):
    """A model that returns the replies in turn, texts or calls, and records its requests."""

    model: str = "scripted"
    replies: list[Any]
    seen: list[tuple[list[types.Content], list[str]]] = []  # noqa: RUF012 - a pydantic field

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[Any, None]:
        given: Any = llm_request.config.tools or []
        tools = [one.name for tool in given for one in tool.function_declarations or []]
        self.seen.append((llm_request.contents, tools))
        reply = self.replies.pop(0)
        reply = reply(llm_request.contents) if callable(reply) else reply
        parts = (
            [types.Part(text=reply)]
            if isinstance(reply, str)
            else [part_of(*call) for call in reply]
        )
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def part_of(name: str, args: dict[str, Any]) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=args))


def list_parts(warehouse: str) -> list[dict[str, Any]]:
    """Lists the parts of a warehouse."""
    return [
        {"id": number, "name": f"part {number} of {warehouse}", "stock": number * 7}
        for number in range(5_000)
    ]


def fail(length: int) -> dict[str, Any]:
    """Fails with a long text."""
    return {"error": "broken " * length}


def photo() -> list[Any]:
    """A photo with a long text."""
    return ["words " * 5_000, types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")]


class Chat:
    """A conversation of one user with an agent."""

    def __init__(
        self,
        *replies: Any,
        tools: Any = (list_parts,),
        sessions: Sessions | None = None,
        **more: Any,
    ) -> None:
        self.model = ScriptedModel(replies=list(replies), seen=[])
        agent = LlmAgent(name="keeper", model=self.model, tools=list(tools), **more)
        self.runner = InMemoryRunner(
            app=App(name="parts", root_agent=agent, plugins=[LLMCommonPlugin(sessions)])
        )
        self.runner.auto_create_session = True
        self.results: list[Any] = []

    async def say(self, text: str, user_id: str = "ann") -> str:
        """The agent's answer."""
        answer = ""
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in self.runner.run_async(
            user_id=user_id, session_id="chat", new_message=message
        ):
            for part in (event.content.parts if event.content else None) or ():
                answer = part.text or answer
                if part.function_response:
                    self.results.append(part.function_response.response)
        return answer


def read_back(path: str) -> Callable[[list[types.Content]], Any]:
    """A reply that reads back a part of the newest result."""

    def calls(contents: list[types.Content]) -> list[Any]:
        pointer_ids = POINTER.findall(str(contents[-1].parts))
        return [("read_context", {"id": pointer_ids[-1], "path": path})]

    return calls


async def test_a_result_is_offloaded_and_read_back_in_a_second_turn() -> None:
    chat = Chat(
        [("list_parts", {"warehouse": "Oslo"})],
        read_back("/4321/stock"),
        "30,247.",
        "You are welcome.",
    )
    assert await chat.say("How many pieces of part 4321 are there?") == "30,247."
    preview, part = chat.results
    assert "part 4321 of Oslo" in preview["result"]
    assert len(preview["result"]) < 4_000
    assert "30247" in part["result"]
    assert await chat.say("Thank you.") == "You are welcome."
    assert len(str(chat.model.seen[-1][0])) < 20_000


async def test_the_same_result_again_refers_to_the_one_above_t_05() -> None:
    call = [("list_parts", {"warehouse": "Oslo"})]
    chat = Chat(call, call, "The same.")
    await chat.say("Which parts are there? Look twice.")
    first, second = [result["result"] for result in chat.results]
    assert second.startswith("Identical to the result above: list_parts (")
    assert POINTER.findall(first)[0] in second
    assert "Identical to the result above" in str(chat.model.seen[-1][0])


async def test_pydantic_models_of_the_application_are_stored_as_data() -> None:
    class Part(BaseModel):
        name: str

    def list_models() -> list[Part]:
        """Lists parts as models."""
        return [Part(name=f"part {number}") for number in range(5_000)]

    chat = Chat([("list_models", {})], read_back("/4321/name"), "Done.", tools=[list_models])
    await chat.say("List them.")
    assert "part 4321" in chat.results[1]["result"]


async def test_calls_of_one_message_share_a_budget() -> None:
    calls = [("list_parts", {"warehouse": name}) for name in ("Oslo", "Rome", "Lima")]
    chat = Chat(
        calls,
        "Done.",
        sessions=Sessions(config=SessionConfig(offload=OffloadPolicy(max_turn_tokens=600))),
    )
    await chat.say("List them.")
    previews = [one["result"] for one in chat.results]
    assert [len(POINTER.findall(preview)) for preview in previews] == [1, 1, 1]
    assert sum(map(DefaultCounter().count, previews)) <= 600


@pytest.mark.parametrize(("tool", "args"), [(fail, {"length": 5_000}), (photo, {})])
async def test_errors_and_media_are_not_changed(
    tool: Callable[..., Any], args: dict[str, Any]
) -> None:
    chat = Chat([(tool.__name__, args)], "Done.", tools=[tool])
    await chat.say("Try.")
    assert len(str(chat.results[0])) > 25_000


async def test_two_users_cannot_read_each_others_results(tmp_path: Path) -> None:
    chat = Chat([("list_parts", {"warehouse": "Oslo"})], "Done.", sessions=Sessions(tmp_path))
    await chat.say("List them.")
    [pointer_id] = POINTER.findall(str(chat.results))
    for user_id, expected in (
        ("bob", "no stored result of this session"),
        ("ann", "part 1 of Oslo"),
    ):
        reading = [("read_context", {"id": pointer_id, "path": "/1/name"})]
        other = Chat(reading, "Done.", sessions=Sessions(tmp_path))
        await other.say("Read it.", user_id=user_id)
        assert expected in str(other.results[0])


async def test_only_matching_tools_are_shown() -> None:
    def made(number: int) -> Callable[[str], str]:
        def handle(reason: str) -> str:
            return reason

        handle.__name__ = f"handle_case_{number}"
        handle.__doc__ = f"Handles a case of kind {number}. " * 5
        return handle

    others = [made(number) for number in range(300)]
    chat = Chat(
        [("list_parts", {"warehouse": "Oslo"})], "Done.", "Fine.", tools=[*others, list_parts]
    )
    await chat.say("List the parts of the warehouse in Oslo.")
    await chat.say("Handle a case of kind 77.")
    for _, names in chat.model.seen:
        assert {"list_parts", "read_context", "search_context"} <= set(names)
        assert len(names) < 100


async def test_a_long_history_is_folded_only_for_the_model() -> None:
    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=2_000)))
    searching = [("search_context", {"words": "number 3 weather"})]
    chat = Chat(*["Noted."] * 30, searching, "7421.", tools=[], sessions=sessions)
    await chat.say("The door code of the shed is 7421.")
    for number in range(29):
        await chat.say(
            f"Remember this, number {number}: " + "some words about the weather of the day " * 20
        )
    assert await chat.say("What is the door code?") == "7421."
    sent = chat.model.seen[-1][0]
    assert len(sent) < 30
    assert "7421" in str(sent[0])
    assert "Remember this, number 3:" in str(chat.results[-1])


async def test_earlier_results_are_folded_and_keep_their_calls() -> None:
    def table(city: str) -> str:
        """A table of a city."""
        return f"{city}: " + "rain and sun " * 200

    sessions = Sessions(config=SessionConfig(fold=FoldPolicy(max_tokens=4_000)))
    turns = [
        reply
        for number in range(12)
        for reply in ([("table", {"city": f"City {number}"})], "Noted.")
    ]
    chat = Chat(*turns, tools=[table], sessions=sessions)
    for number in range(12):
        await chat.say(f"How is the weather in city {number}?")
    for contents, _ in chat.model.seen[2:]:
        parts = [part for content in contents for part in content.parts or ()]
        calls, results = (
            sum(bool(getattr(part, f"function_{kind}")) for part in parts)
            for kind in ("call", "response")
        )
        assert calls == results > 0
        assert len(str(parts)) < 30_000
    assert "not shown now" in str(chat.model.seen)


async def test_an_agent_with_an_output_schema_gets_no_tools() -> None:
    class Count(BaseModel):
        n: int

    chat = Chat('{"n": 1}', tools=[], output_schema=Count)
    await chat.say("Count.")
    assert chat.model.seen[0][1] == []


async def test_a_result_that_cannot_be_stored_is_cut_and_the_run_goes_on_t_12() -> None:
    sessions = Sessions(InMemoryContextPointerStore(max_result_bytes=10_000))
    chat = Chat([("list_parts", {"warehouse": "Oslo"})], "Done.", sessions=sessions)
    assert await chat.say("List them.") == "Done."
    assert_cut(chat.results[0]["result"])


@pytest.mark.parametrize("block", blocks_of("google_adk"))
def test_the_documentation_runs(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel(
        replies=[[("list_parts", {"warehouse": "Oslo"})], read_back("/4321/stock"), "30,247."],
        seen=[],
    )
    names: dict[str, Any] = {"model": model}
    exec(block, names)
    assert names["answer"][-1].content.parts[0].text == "30,247."
    assert "30247" in str(model.seen[-1])


def names_pointer(contents: list[types.Content]) -> list[Any]:
    """Return a call of another agent, with the id of the newest result."""
    [pointer_id] = POINTER.findall(str(contents[-1]))
    return [("other", {"request": f"Part 1500 of {pointer_id}"})]


def reads_named(contents: list[types.Content]) -> list[Any]:
    """Return a call that reads a part of the result that the question names."""
    parts: Any = contents[-1].parts
    pointer_id = parts[0].text.split()[-1]
    return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]


def says_result(contents: list[types.Content]) -> str:
    return str(contents[-1])


async def test_a_delegate_reads_the_pointers_that_it_is_given() -> None:
    inner_model = ScriptedModel(replies=[reads_named, says_result], seen=[])
    inner = LlmAgent(name="other", model=inner_model, description="Another agent.")
    chat = Chat(
        [("list_parts", {"warehouse": "Oslo"})],
        names_pointer,
        says_result,
        tools=[list_parts, AgentTool(inner)],
    )
    assert "10500" in await chat.say("go")


async def test_a_delegate_without_plugins_gets_the_result() -> None:
    inner_model = ScriptedModel(replies=["done"], seen=[])
    inner = LlmAgent(name="other", model=inner_model, description="Another agent.")
    chat = Chat(
        [("list_parts", {"warehouse": "Oslo"})],
        names_pointer,
        "done",
        tools=[list_parts, AgentTool(inner, include_plugins=False)],
    )
    await chat.say("go")
    [asked] = inner_model.seen[0][0]
    assert "part 4999 of Oslo" in str(asked)
    assert 4_000 < len(str(asked)) < 40_000


async def test_a_sub_agent_reads_what_the_parent_stored() -> None:
    def reads_first(contents: list[types.Content]) -> list[Any]:
        pointer_id = POINTER.findall(str(contents))[0]
        return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]

    inner_model = ScriptedModel(replies=[reads_first, says_result], seen=[])
    inner = LlmAgent(name="other", model=inner_model, description="Another agent.")
    chat = Chat(
        [("list_parts", {"warehouse": "Oslo"})],
        [("transfer_to_agent", {"agent_name": "other"})],
        sub_agents=[inner],
    )
    assert "10500" in await chat.say("go")


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("google_adk", tmp_path, read=contents_prompt, serve=served_contents)
