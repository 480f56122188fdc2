"""Test Strands agents with our plugin."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from strands import Agent, tool

from llm_common.agents import Sessions
from llm_common.integrations.strands import LLMCommonPlugin
from tests.integrations.programs import desk, strands
from tests.integrations.programs.process import Ask
from tests.integrations.promises import LIST, FoldingPromises, InliningPromises
from tests.integrations.scripted_endpoint import (
    POINTER,
    Messages,
    Step,
    newest_results,
    pointer_of,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

list_orders = tool(desk.list_orders)


def agent_of(url: str, *tools: Any, plugin: LLMCommonPlugin | None = None, **more: Any) -> Any:
    plugins: list[Any] = [plugin or LLMCommonPlugin()]
    model = strands.model_of(url)
    return Agent(model=model, tools=[*tools], plugins=plugins, callback_handler=None, **more)


class TestHook(FoldingPromises, InliningPromises):
    module = strands

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        inner: Any = Agent(name="other", model=strands.model_of(url), callback_handler=None)
        if is_equipped:
            inner = agent_of(url, plugin=LLMCommonPlugin(sessions), name="other")
        outer = agent_of(url, list_orders, inner, plugin=LLMCommonPlugin(sessions))

        async def ask(user: str, text: str) -> str:
            return str(await outer.invoke_async(text))

        return ask

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        return "other", {"input": question}

    async def test_roles_alternate_in_a_folded_history(self, tmp_path: Path) -> None:
        for messages in await self.talk(tmp_path):
            # The format of OpenAI has a message for each result of a user's message.
            roles = [message["role"] for message in messages if message["role"] != "tool"]
            for role, next_role in pairwise(roles):
                assert (role, next_role) != ("user", "user")


def result_of(function: Any) -> Any:
    """Return the tool's result in the messages of an agent, which calls the tool."""
    with scripted([(function.tool_name, {})], "Done.") as endpoint:
        agent = agent_of(endpoint.url, function)
        agent("Go.")
    return agent.messages[-2]["content"][0]["toolResult"]


def test_data_is_stored_whole() -> None:
    @tool
    def answer_with_data() -> dict[str, Any]:
        """Answers with data that holds a text."""
        data = {"text": "All rows.", "rows": [*range(9_000)]}
        return {"status": "success", "content": [{"json": data}]}

    def read(messages: Messages) -> Any:
        pointer_id = pointer_of("answer_with_data", messages)
        return [("read_context", {"id": pointer_id, "path": "/rows/8765"})]

    with scripted([("answer_with_data", {})], read, newest_results) as endpoint:
        assert "8765" in str(agent_of(endpoint.url, answer_with_data)("Which number?"))


def test_an_image_stays_with_a_preview() -> None:
    @tool
    def photo() -> dict[str, Any]:
        """A photo with a long text."""
        image = {"format": "png", "source": {"bytes": b"\x89PNG"}}
        return {"status": "success", "content": [{"text": "words " * 5_000}, {"image": image}]}

    text, image = result_of(photo)["content"]
    assert POINTER.search(text["text"])
    assert image["image"]["source"] == {"bytes": b"\x89PNG"}


def test_an_error_is_not_changed() -> None:
    @tool
    def fail() -> str:
        """Fails with a long text."""
        raise RuntimeError("broken " * 5_000)

    [block] = result_of(fail)["content"]
    assert block["text"].count("broken") == 5_000


@pytest.mark.parametrize("is_shared", [True, False])
def test_two_agents_cannot_read_each_others_results(tmp_path: Path, is_shared: bool) -> None:
    plugin = LLMCommonPlugin(Sessions(tmp_path))
    other = plugin if is_shared else LLMCommonPlugin(Sessions(tmp_path))
    with scripted(LIST, "Done.") as endpoint:
        agent_of(endpoint.url, list_orders, plugin=plugin)("List them.")
    pointer_id = pointer_of("list_orders", endpoint.requests[-1]["messages"])
    reading: list[Step] = [[("read_context", {"id": pointer_id})], "Done."]
    with scripted(*reading) as endpoint:
        agent = agent_of(endpoint.url, plugin=other)
        agent("Read it.")
    result = agent.messages[-2]["content"][0]["toolResult"]
    assert "no stored result of this session" in result["content"][0]["text"]
    assert result["status"] == "error"


def test_a_call_of_the_application_returns_the_whole_result() -> None:
    with scripted() as endpoint:
        agent = agent_of(endpoint.url, list_orders)
        result = agent.tool.list_orders(customer="bob")
    assert result["status"] == "success"
    assert len(json.loads(result["content"][0]["text"])) == desk.ORDERS
