"""Test Haystack agents with our hook."""

from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.components.generators.chat import MockChatGenerator
from haystack.dataclasses import ChatMessage, ImageContent, TextContent, ToolCall
from haystack.tools import AgentTool
from haystack.tools.from_function import create_tool_from_function
from haystack.tools.tool import Tool

from llm_common.agents import Sessions
from llm_common.errors import ConfigError
from llm_common.integrations.haystack import SESSION_KEY, LLMCommonHook
from tests.integrations.programs import desk, haystack
from tests.integrations.programs.process import Ask
from tests.integrations.promises import CODE, LIST, FoldingPromises, InliningPromises
from tests.integrations.scripted_endpoint import (
    newest_results,
    read_listed,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

list_orders = create_tool_from_function(desk.list_orders)


def agent_of(model: Any, *tools: Tool, hook: LLMCommonHook | None = None) -> Agent:
    used = hook or LLMCommonHook()
    return Agent(
        chat_generator=model,
        tools=[*tools, *used.tools],
        hooks={"before_llm": [used]},
        raise_on_tool_invocation_failure=False,
    )


class TestHook(FoldingPromises, InliningPromises):
    module = haystack
    keeps_history = False  # the messages of the run change
    is_async = True
    context: dict[str, Any] | None = None

    def delegating(self, url: str, sessions: Sessions, *, is_equipped: bool = True) -> Ask:
        model = haystack.model_of(url)
        inner = Agent(chat_generator=model)
        if is_equipped:
            inner = agent_of(model, hook=LLMCommonHook(sessions))
        other = AgentTool(agent=inner, name="other", description="Another agent.")
        outer = agent_of(model, list_orders, other, hook=LLMCommonHook(sessions))

        async def ask(user: str, text: str) -> str:
            question: Any = {
                "messages": [ChatMessage.from_user(text)],
                "hook_context": self.context,
            }
            run = await outer.run_async(**question) if self.is_async else outer.run(**question)
            return str(run["last_message"].text)

        return ask

    def delegation(self, question: str) -> tuple[str, dict[str, Any]]:
        return "other", {"messages": [{"role": "user", "content": question}]}


@pytest.mark.parametrize("context", [{SESSION_KEY: "a"}, None])
async def test_a_synchronous_delegate_reads_or_gets_what_it_is_given_t_08(
    context: dict[str, Any] | None,
) -> None:
    hook = TestHook()
    hook.is_async, hook.context = False, context
    await hook.test_a_delegate_reads_the_pointers_that_it_is_given_t_08()
    await hook.test_a_delegate_without_a_hook_gets_the_result_t_08()


def result_of(tool: Tool) -> Any:
    """Return the result of a tool in the messages of a synchronous run."""
    call = ChatMessage.from_assistant(tool_calls=[ToolCall(tool.name, {})])
    replies = iter([call, ChatMessage.from_assistant("Done.")])
    # Not the endpoint, to which OpenAI's client cannot send a tool's image.
    model = MockChatGenerator(response_fn=lambda messages, tools: next(replies))
    run: Any = agent_of(model, tool).run([ChatMessage.from_user("Go.")])
    return run["messages"][-2].tool_call_result.result


def test_a_synchronous_run_reads_back() -> None:
    with scripted(LIST, read_listed, newest_results) as endpoint:
        agent = agent_of(haystack.model_of(endpoint.url), list_orders)
        run: Any = agent.run([ChatMessage.from_user("Go.")])
    assert CODE in run["last_message"].text


def test_errors_and_images_do_not_change() -> None:
    def fail() -> str:
        """Fails with a long text."""
        raise RuntimeError("broken " * 5_000)

    content = [TextContent("words " * 5_000), ImageContent(PIXEL, mime_type="image/png")]
    schema = {"type": "object", "properties": {}}
    photo = Tool("photo", "A photo.", schema, lambda: content, {"raw_result": True})
    assert result_of(create_tool_from_function(fail)).count("broken") == 5_000
    assert result_of(photo) == content


def test_serialising_a_hook_raises_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="in code"):
        LLMCommonHook().to_dict()
    with pytest.raises(ConfigError, match="in code"):
        LLMCommonHook.from_dict({})
