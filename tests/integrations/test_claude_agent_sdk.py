"""Test the Claude Agent SDK with wrapped functions, which starts the Claude Code that it contains."""

from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    create_sdk_mcp_server,
)

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.documented import run_page
from tests.integrations.programs import claude_agent_sdk
from tests.integrations.programs.desk import list_orders
from tests.integrations.promises import CODE, LIST, FailingPromises, Reader
from tests.integrations.scripted_endpoint import (
    Calls,
    Endpoint,
    Messages,
    newest_results,
    pointer_of,
    reading,
    served_without_path,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


class TestFunctions(FailingPromises):
    module = claude_agent_sdk
    serve = staticmethod(served_without_path)


async def ask(endpoint: Endpoint, folder: Path, session: Session, **more: Any) -> str:
    """Return the answer of Claude Code with our tools."""
    functions: list[Any] = [wrap_tool(list_orders, session), *tool_functions(session, sync=True)]
    tools = [claude_agent_sdk.in_process(function) for function in functions]
    settings: dict[str, Any] = {"tools": [], "allowed_tools": ["mcp__parts"], **more}
    with served_without_path(endpoint):
        options = ClaudeAgentOptions(
            mcp_servers={"parts": create_sdk_mcp_server("parts", tools=tools)},
            setting_sources=[],
            cwd=folder,
            env=claude_agent_sdk.env_of(endpoint.url, folder),
            **settings,
        )
        async with ClaudeSDKClient(options) as client:
            await client.query("Report on bob.")
            messages = [message async for message in client.receive_response()]
    assert isinstance(messages[-1], ResultMessage)
    return str(messages[-1].result)


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_permission_is_asked_before_a_call_is_stored(
    tmp_path: Path, is_allowed: bool
) -> None:
    session = Session(InMemoryContextPointerStore())
    asked: list[tuple[str, int]] = []

    async def decide(name: str, args: dict[str, Any], context: Any) -> Any:
        asked.append((name, len(session.results.list_all())))
        return PermissionResultAllow() if is_allowed else PermissionResultDeny(message="not now")

    endpoint = Endpoint(LIST, newest_results)
    answer = await ask(endpoint, tmp_path, session, allowed_tools=[], can_use_tool=decide)
    assert asked == [("mcp__parts__list_orders", 0)]
    assert ("characters are stored" if is_allowed else "not now") in answer
    assert len(session.results.list_all()) == int(is_allowed)


async def test_a_subagent_reads_what_the_main_agent_stored_t_08(tmp_path: Path) -> None:
    pointers: list[str] = []

    def delegate(messages: Messages) -> Calls:
        pointers.append(pointer_of("list_orders", messages))
        task = {"description": "read", "prompt": pointers[0], "subagent_type": "reader"}
        return [("Agent", {**task, "run_in_background": False})]

    def read(messages: Messages) -> Calls:
        return reading(pointers[0])

    tools = ["mcp__parts__read_context"]
    reader = AgentDefinition(description="Reads.", prompt="You read.", tools=tools)
    more = {"tools": ["Agent"], "allowed_tools": ["mcp__parts", "Agent"]}
    endpoint = Endpoint(LIST, delegate, read, newest_results, newest_results)
    session = Session(InMemoryContextPointerStore())
    assert CODE in await ask(endpoint, tmp_path, session, agents={"reader": reader}, **more)


async def test_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    endpoint = Reader()
    with served_without_path(endpoint):
        env = claude_agent_sdk.env_of(endpoint.url, tmp_path)
        page = run_page("claude_agent_sdk", names={"env": env})
        assert "10500" in await page["answer"]("ann", "What is the stock of part 1500?")
