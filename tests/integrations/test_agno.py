"""Test Agno agents with our tool hook."""

from collections.abc import Iterator
from threading import Lock
from typing import Any

import pytest
from agno.agent import Agent
from agno.media import Image
from agno.team import Team
from agno.tools.function import ToolResult
from pydantic import BaseModel, ConfigDict, Field

from llm_common.agents import InMemoryContextPointerStore, Sessions
from llm_common.integrations.agno import LLMCommonToolHook
from tests.integrations.programs import agno
from tests.integrations.programs.desk import list_orders
from tests.integrations.programs.process import Ask
from tests.integrations.promises import CODE, LIST, HookPromises
from tests.integrations.scripted_endpoint import (
    POINTER,
    Endpoint,
    newest_results,
    pointer_of,
    read_listed,
    reading,
    results_in,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


def agent_of(endpoint: Endpoint, *tools: Any, sessions: Sessions | None = None, **more: Any) -> Any:
    hook = LLMCommonToolHook(sessions)
    model = agno.model_of(endpoint.url)
    functions = [*tools, *hook.tools]
    return Agent(model=model, tools=functions, tool_hooks=[hook], telemetry=False, **more)


class TestHook(HookPromises):
    module = agno

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        hook = LLMCommonToolHook(sessions)
        hooked: dict[str, Any] = {"tool_hooks": [hook], "model": agno.model_of(url)}
        member = Agent(id="other", name="other", tools=[*hook.tools], **hooked)
        team = Team(members=[member], tools=[list_orders, *hook.tools], **hooked)

        async def ask(user: str, text: str) -> str:
            run: Any = await team.arun(text, session_id="chat", user_id=user)
            return str(run.content)

        return ask

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        return "delegate_task_to_member", {"member_id": "other", "task": question}


def result_of(tool: Any) -> tuple[Any, str]:
    """Return a run that calls a tool, and the tool's result as the model sees it."""
    with scripted([(tool.__name__, {})], "Done.") as endpoint:
        run = agent_of(endpoint, tool).run("Go.")
    [result] = results_in(endpoint.requests[-1]["messages"])
    return run, result


def test_a_synchronous_run_reads_back() -> None:
    with scripted(LIST, read_listed, newest_results) as endpoint:
        assert CODE in agent_of(endpoint, list_orders).run("Which code?").content


def test_errors_and_streams_do_not_change() -> None:
    def fail() -> str:
        raise RuntimeError("broken " * 5_000)

    def count_up() -> Iterator[str]:
        yield from (f"{number} " for number in range(5_000))

    assert result_of(fail)[1].count("broken") == 5_000
    assert result_of(count_up)[1].endswith("4998 4999 ")


def test_a_value_that_is_not_json_is_offloaded_as_text() -> None:
    class Part(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        lock: Any = Field(default_factory=Lock)

    def list_parts() -> list[Part]:
        return [Part() for _ in range(5_000)]

    assert len(POINTER.findall(result_of(list_parts)[1])) == 1


def test_media_stay_with_a_preview() -> None:
    def photo() -> ToolResult:
        return ToolResult(content="words " * 5_000, images=[Image(url="https://example.org/a.png")])

    run, result = result_of(photo)
    [message] = [message for message in run.messages if message.role == "tool"]
    assert POINTER.search(result)
    assert [image.url for image in run.images or message.images] == ["https://example.org/a.png"]


def test_users_and_sessions_cannot_read_each_others_results() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    pointers: list[str] = []

    def keep(messages: Any) -> str:
        pointers.append(pointer_of("list_orders", messages))
        return "Done."

    def read(_: Any) -> Any:
        return reading(pointers[0])

    with scripted(LIST, keep, *3 * [read, newest_results]) as endpoint:
        agent = agent_of(endpoint, list_orders, sessions=sessions)
        agent.run("List them.", session_id="one", user_id="ann")
        answers = [
            agent.run("Read it.", session_id=session_id, user_id=user).content
            for session_id, user in (("one", "ann"), ("two", "ann"), ("one", "bob"))
        ]
    assert [CODE in answer for answer in answers] == [True, False, False]
