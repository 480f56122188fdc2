"""Test agents of Microsoft's framework with wrapped functions, against a scripted endpoint."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agent_framework import Agent, AgentSession, Content, Message, tool
from agent_framework.openai import OpenAIChatCompletionClient

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.scripted_endpoint import (
    POINTER,
    REPORT,
    Calls,
    Endpoint,
    check_audit,
    list_orders,
    newest_result,
    newest_results,
    pointer_of,
    read_both,
    read_log,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


def client_of(endpoint: Endpoint) -> OpenAIChatCompletionClient:
    return OpenAIChatCompletionClient(
        model="scripted",
        api_key="none",
        base_url=endpoint.url,
        function_invocation_configuration={"include_detailed_errors": True},
    )


def agent_of(endpoint: Endpoint, session: Session, *more: Any, **options: Any) -> Any:
    functions = [wrap_tool(list_orders, session), wrap_tool(read_log, session), *more]
    tools: list[Any] = [*functions, *tool_functions(session)]
    return Agent(client_of(endpoint), "You report.", tools=tools, **options)


def session_of(folder: Path | None = None, user: str = "bob") -> Session:
    return Session(folder or InMemoryContextPointerStore(), session_id=f"user:{user}")


async def ask(agent: Any, question: str | Message, **more: Any) -> str:
    return str((await agent.run(question, **more)).text)


async def test_two_parallel_results_are_offloaded_and_read_back() -> None:
    with scripted(REPORT, read_both, newest_results) as endpoint:
        answer = await ask(agent_of(endpoint, session_of()), "Report on bob.")
    assert "S-bob-4321" in answer
    assert "a disk of bob failed" in answer
    assert endpoint.largest < 12_000


async def test_a_streamed_run_is_offloaded_and_read_back() -> None:
    with scripted(REPORT, read_both, newest_results) as endpoint:
        stream = agent_of(endpoint, session_of()).run("Report on bob.", stream=True)
        texts = [update.text async for update in stream]
    assert "S-bob-4321" in "".join(texts)
    assert endpoint.largest < 12_000


async def test_a_wrapped_function_has_the_same_schema() -> None:
    plain, wrapped = tool(list_orders), tool(wrap_tool(list_orders, session_of()))
    assert wrapped.to_json_schema_spec() == plain.to_json_schema_spec()


async def test_the_model_reads_why_a_tool_failed() -> None:
    session = session_of()
    with scripted([("check_audit", {"customer": "bob"})], newest_result) as endpoint:
        agent = agent_of(endpoint, session, wrap_tool(check_audit, session))
        assert "the audit of bob is down" in await ask(agent, "Check bob.")


async def test_a_restarted_process_reads_an_old_pointer_and_another_user_does_not(
    tmp_path: Path,
) -> None:
    with scripted(REPORT, "Done.") as endpoint:
        conversation = AgentSession()
        agent = agent_of(endpoint, session_of(tmp_path))
        await ask(agent, "Report on bob.", session=conversation)
    saved = json.dumps(conversation.to_dict())
    assert len(saved) < 12_000
    pointer_id = POINTER.findall(saved)[0]
    reading = [("read_context", {"id": pointer_id, "path": "/4321/code"})]
    for user, expected in (("bob", "S-bob-4321"), ("ann", "no stored result of this session")):
        with scripted(reading, newest_result) as endpoint:
            conversation = AgentSession.from_dict(json.loads(saved))
            agent = agent_of(endpoint, session_of(tmp_path, user))
            assert expected in await ask(agent, "Which code?", session=conversation)


async def test_an_approved_call_is_offloaded() -> None:
    session = session_of()

    def export_orders(customer: str) -> str:
        """Export the orders of a customer."""
        return list_orders(customer)

    exporter = tool(wrap_tool(export_orders, session), approval_mode="always_require")
    calls = [("export_orders", {"customer": "bob"})]
    with scripted(calls, newest_result) as endpoint:
        agent, conversation = agent_of(endpoint, session, exporter), AgentSession()
        asked = await agent.run("Export.", session=conversation)
        [request] = asked.user_input_requests
        assert session.results.list_all() == []
        approval = Message(role="user", contents=[request.to_function_approval_response(True)])
        assert "characters are stored" in await ask(agent, approval, session=conversation)


async def test_an_agent_reads_what_the_agent_that_it_called_stored() -> None:
    session = session_of()
    delegate = [("lister", {"task": "List the orders of bob."})]

    def report(messages: list[dict[str, Any]]) -> str:
        return f"They are in the id {pointer_of('list_orders', messages)} now."

    def read(messages: list[dict[str, Any]]) -> Calls:
        [pointer_id] = POINTER.findall(newest_result(messages))
        return [("read_context", {"id": pointer_id, "path": "/4321/code"})]

    with scripted(delegate, REPORT, report, read, newest_result) as endpoint:
        lister = agent_of(endpoint, session, name="lister", description="Lists the orders.")
        assert "S-bob-4321" in await ask(agent_of(endpoint, session, lister.as_tool()), "Report.")


async def test_media_reach_the_framework_unchanged() -> None:
    photo = [Content.from_data(data=b"\x89PNG" + bytes(90_000), media_type="image/png")]

    def take_photo() -> list[Content]:
        """Take a photo."""
        return photo

    assert wrap_tool(take_photo, session_of())() is photo


async def test_a_result_that_cannot_be_stored_is_shown_and_cut() -> None:
    session = Session(InMemoryContextPointerStore(max_result_bytes=10_000))
    with scripted([("list_orders", {"customer": "bob"})], newest_result) as endpoint:
        answer = await ask(agent_of(endpoint, session), "Report on bob.")
    assert "characters were not kept" in answer


async def test_the_documentation_runs_for_two_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def read(messages: list[dict[str, Any]]) -> Calls:
        pointer_id = pointer_of("list_parts", messages)
        return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]

    with scripted([("list_parts", {"kind": "all"})], read, newest_result) as endpoint:
        page = run_page("agent_framework", model="client", names={"model": client_of(endpoint)})
        assert "10500" in await page["answer"]("ann", "What is the stock of part 1500?")
    pointer_id = pointer_of("list_parts", endpoint.requests[-1]["messages"])
    reading = [("read_context", {"id": pointer_id, "path": "/1500/stock"})]
    with scripted(reading, newest_result, reading, newest_result) as endpoint:
        page = run_page("agent_framework", model="client", names={"model": client_of(endpoint)})
        # Tasks, as a server has them. Each has a copy of the context variables.
        bob = await asyncio.create_task(page["answer_any"]("bob", "And part 1500?"))
        ann = await asyncio.create_task(page["answer_any"]("ann", "And part 1500?"))
    assert "no stored result of this session" in bob
    assert "10500" in ann


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("agent_framework", tmp_path)
