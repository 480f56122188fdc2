"""Test the Claude Agent SDK with wrapped functions, against a scripted endpoint.

The SDK starts the Claude Code that it contains.
"""

import json
from collections.abc import Awaitable, Callable
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
    query,
)

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations import scripted_endpoint
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.programs.script import messages_prompt
from tests.integrations.scripted_endpoint import POINTER, Calls, Endpoint, read_log
from tests.integrations.scripted_messages import newest_results, scripted_messages, served_messages

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

Messages = list[dict[str, Any]]
ORDERS: Calls = [("mcp__parts__list_orders", {"customer": "bob"})]
REPORT: Calls = [*ORDERS, ("mcp__parts__read_log", {"customer": "bob"})]


async def list_orders(customer: str) -> str:
    """List all orders of a customer."""
    return scripted_endpoint.list_orders(customer)


async def check_audit(customer: str) -> str:
    """Check the audit of a customer."""
    raise RuntimeError(f"the audit of {customer} is down")


def env_of(endpoint: Endpoint, folder: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": endpoint.url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "DISABLE_AUTOUPDATER": "1",
    }


@pytest.fixture
def in_process() -> Callable[[Callable[..., Awaitable[object]]], Any]:
    """Return the function of the page."""
    page = run_page("claude_agent_sdk", names={"env": {}})
    function: Callable[[Callable[..., Awaitable[object]]], Any] = page["in_process"]
    return function


@pytest.fixture
def options_of(in_process: Callable[..., Any], tmp_path: Path) -> Callable[..., ClaudeAgentOptions]:
    def options(endpoint: Endpoint, session: Session, **more: Any) -> ClaudeAgentOptions:
        functions = [wrap_tool(f, session) for f in (list_orders, read_log, check_audit)]
        tools = [in_process(function) for function in (*functions, *tool_functions(session))]
        named = {"tools": [], "allowed_tools": ["mcp__parts"], **more}
        return ClaudeAgentOptions(
            mcp_servers={"parts": create_sdk_mcp_server("parts", tools=tools)},
            setting_sources=[],
            cwd=tmp_path,
            env=env_of(endpoint, tmp_path),
            **named,
        )

    return options


async def ask(options: ClaudeAgentOptions, question: str) -> ResultMessage:
    results = []
    async for message in query(prompt=question, options=options):
        if isinstance(message, ResultMessage):
            results.append(message)
    return results[-1]


def session_of(folder: Path | None = None, user: str = "bob") -> Session:
    return Session(folder or InMemoryContextPointerStore(), session_id=f"user:{user}")


def read_both(messages: Messages) -> Calls:
    orders, log = POINTER.findall(newest_results(messages))
    return [
        ("mcp__parts__read_context", {"id": orders, "path": "/4321/code"}),
        ("mcp__parts__read_context", {"id": log, "pattern": "ERROR.*"}),
    ]


def reading_of(pointer_id: str) -> Calls:
    return [("mcp__parts__read_context", {"id": pointer_id, "path": "/4321/code"})]


async def test_two_parallel_results_are_offloaded_and_read_back(options_of: Any) -> None:
    with scripted_messages(REPORT, read_both, newest_results) as endpoint:
        result = await ask(options_of(endpoint, session_of()), "Report on bob.")
    assert "S-bob-4321" in str(result.result)
    assert "a disk of bob failed" in str(result.result)
    assert endpoint.largest < 15_000


async def test_the_model_reads_why_a_tool_failed(options_of: Any) -> None:
    calls = [("mcp__parts__check_audit", {"customer": "bob"})]
    with scripted_messages(calls, newest_results) as endpoint:
        result = await ask(options_of(endpoint, session_of()), "Check bob.")
    assert "the audit of bob is down" in str(result.result)


async def test_a_resumed_conversation_reads_an_old_pointer_and_another_user_does_not(
    options_of: Any, tmp_path: Path
) -> None:
    with scripted_messages(ORDERS, newest_results) as endpoint:
        first = await ask(options_of(endpoint, session_of(tmp_path / "context")), "Report.")
    [pointer_id] = POINTER.findall(str(first.result))
    for user, expected in (("bob", "S-bob-4321"), ("ann", "no stored result of this session")):
        with scripted_messages(reading_of(pointer_id), newest_results) as endpoint:
            session = session_of(tmp_path / "context", user)
            options = options_of(endpoint, session, resume=first.session_id)
            assert expected in str((await ask(options, "Which code?")).result)
        assert pointer_id in json.dumps(endpoint.requests[0]["messages"])


@pytest.mark.parametrize("is_allowed", [True, False])
async def test_permission_is_asked_before_a_call_is_stored(
    options_of: Any, is_allowed: bool
) -> None:
    session, asked = session_of(), []

    async def decide(name: str, args: dict[str, Any], context: Any) -> Any:
        asked.append((name, len(session.results.list_all())))
        return PermissionResultAllow() if is_allowed else PermissionResultDeny(message="not now")

    with scripted_messages(ORDERS, newest_results) as endpoint:
        options = options_of(endpoint, session, allowed_tools=[], can_use_tool=decide)
        async with ClaudeSDKClient(options) as client:
            await client.query("Report on bob.")
            messages = [message async for message in client.receive_response()]
    assert asked == [("mcp__parts__list_orders", 0)]
    expected = "characters are stored" if is_allowed else "not now"
    assert isinstance(messages[-1], ResultMessage)
    assert expected in str(messages[-1].result)
    assert len(session.results.list_all()) == int(is_allowed)


async def test_a_subagent_reads_what_the_main_agent_stored(options_of: Any) -> None:
    pointers: list[str] = []

    def delegate(messages: Messages) -> Calls:
        pointers.extend(POINTER.findall(newest_results(messages)))
        task = {"description": "read", "prompt": pointers[0], "subagent_type": "reader"}
        return [("Agent", {**task, "run_in_background": False})]

    def read(messages: Messages) -> Calls:
        return reading_of(pointers[0])

    reader = AgentDefinition(
        description="Reads.", prompt="You read.", tools=["mcp__parts__read_context"]
    )
    with scripted_messages(ORDERS, delegate, read, newest_results, newest_results) as endpoint:
        options = options_of(
            endpoint,
            session_of(),
            tools=["Agent"],
            allowed_tools=["mcp__parts", "Agent"],
            agents={"reader": reader},
        )
        assert "S-bob-4321" in str((await ask(options, "Report on bob.")).result)


async def test_a_result_that_cannot_be_stored_is_shown_and_cut(
    in_process: Callable[..., Any],
) -> None:
    session = Session(InMemoryContextPointerStore(max_result_bytes=10_000))
    output = await in_process(wrap_tool(list_orders, session)).handler({"customer": "bob"})
    assert "characters were not kept" in output["content"][0]["text"]


async def test_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def read(messages: Messages) -> Calls:
        [pointer_id] = POINTER.findall(newest_results(messages))
        return [("mcp__parts__read_context", {"id": pointer_id, "path": "/1500/stock"})]

    listing: Calls = [("mcp__parts__list_parts", {"kind": "all"})]
    with scripted_messages(listing, read, newest_results) as endpoint:
        env = env_of(endpoint, tmp_path)
        page = run_page("claude_agent_sdk", names={"env": env})
        assert "10500" in await page["answer"]("ann", "What is the stock of part 1500?")


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("claude_agent_sdk", tmp_path, read=messages_prompt, serve=served_messages)
