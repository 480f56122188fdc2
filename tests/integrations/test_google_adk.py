"""Test agents of Google's ADK with our plugin."""

from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from pydantic import BaseModel

from llm_common.agents import Sessions
from llm_common.integrations.google_adk import LLMCommonPlugin
from tests.integrations.programs import google_adk
from tests.integrations.programs.desk import list_orders
from tests.integrations.programs.process import Ask
from tests.integrations.promises import CODE, LIST, FoldingPromises, InliningPromises
from tests.integrations.scripted_endpoint import (
    Calls,
    Endpoint,
    Messages,
    Step,
    declared_by,
    newest_results,
    pointer_of,
    read_listed,
    reading,
    results_in,
    served_without_path,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


def asking(agent: LlmAgent, sessions: Sessions | None = None) -> Ask:
    """Return how users ask an agent with our plugin."""
    app = App(name="parts", root_agent=agent, plugins=[LLMCommonPlugin(sessions)])
    runner = InMemoryRunner(app=app)
    runner.auto_create_session = True

    async def ask(user: str, text: str) -> str:
        answer = ""
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in runner.run_async(user_id=user, session_id="chat", new_message=message):
            for part in (event.content and event.content.parts) or ():
                answer = part.text or answer
        return answer

    return ask


def agent_of(url: str, **more: Any) -> LlmAgent:
    return LlmAgent(name="keeper", model=google_adk.model_of(url), **more)


def reader_of(url: str) -> LlmAgent:
    model = google_adk.model_of(url)
    return LlmAgent(name="other", model=model, description="Another agent.")


class TestHook(FoldingPromises, InliningPromises):
    module = google_adk
    serve = staticmethod(served_without_path)

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        other = AgentTool(reader_of(url), include_plugins=is_equipped)
        return asking(agent_of(url, tools=[list_orders, other]), sessions)

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        return "other", {"request": question}


async def run(*steps: Step, **more: Any) -> tuple[str, Endpoint]:
    """Return the answer to a question, and the requests to the model."""
    endpoint = Endpoint(*steps)
    with served_without_path(endpoint):
        answer = await asking(agent_of(endpoint.url, **more))("ann", "Go.")
    return answer, endpoint


async def test_pydantic_models_of_the_application_are_stored_as_data() -> None:
    class Part(BaseModel):
        name: str

    def list_parts() -> list[Part]:
        """Lists parts as models."""
        return [Part(name=f"part {number}") for number in range(5_000)]

    def read(messages: Messages) -> Calls:
        return reading(pointer_of("list_parts", messages), "/4321/name")

    answer, _ = await run([("list_parts", {})], read, newest_results, tools=[list_parts])
    assert "part 4321" in answer


async def test_errors_and_media_are_not_changed() -> None:
    def fail() -> dict[str, Any]:
        """Fails with a long text."""
        return {"error": "broken " * 5_000}

    def photo() -> list[Any]:
        """A photo with a long text."""
        return ["words " * 5_000, types.Part.from_bytes(data=b"\x89PNG", mime_type="image/png")]

    calls: Calls = [("fail", {}), ("photo", {})]
    _, endpoint = await run(calls, "Done.", tools=[fail, photo])
    failure, image = results_in(endpoint.requests[-1]["messages"])
    assert failure.count("broken") == 5_000
    assert image.count("words") == 5_000


async def test_an_agent_with_an_output_schema_gets_no_tools() -> None:
    class Count(BaseModel):
        n: int

    _, endpoint = await run('{"n": 1}', output_schema=Count)
    assert declared_by(endpoint.requests[0]) == {}


async def test_a_sub_agent_reads_what_the_parent_stored_t_08() -> None:
    endpoint = Endpoint(
        LIST, [("transfer_to_agent", {"agent_name": "other"})], read_listed, newest_results
    )
    with served_without_path(endpoint):
        other = reader_of(endpoint.url)
        ask = asking(agent_of(endpoint.url, tools=[list_orders], sub_agents=[other]))
        assert CODE in await ask("ann", "Go.")
