"""Test smolagents whose tools are wrapped functions, against a scripted endpoint."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from smolagents import AgentImage, CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.scripted_endpoint import (
    Calls,
    Endpoint,
    check_audit,
    list_orders,
    read_log_now,
    scripted,
    text_of,
)

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error:Function .* has decorators"),
]

POINTER = re.compile(r"### (\w+) \(([0-9a-f]{12,16})\)")
REPORT: Calls = [("list_orders", {"customer": "bob"}), ("read_log_now", {"customer": "bob"})]
Message = dict[str, Any]


def agent_of(
    endpoint: Endpoint, session: Session, *more: Callable[..., Any], **options: Any
) -> ToolCallingAgent:
    functions = [wrap_tool(list_orders, session), wrap_tool(read_log_now, session), *more]
    functions += tool_functions(session, sync=True)
    return ToolCallingAgent(
        tools=[tool(function) for function in functions],
        model=model_of(endpoint),
        verbosity_level=0,
        **options,
    )


def model_of(endpoint: Endpoint) -> OpenAIServerModel:
    return OpenAIServerModel("scripted", api_base=endpoint.url, api_key="none")


def session_of(folder: Path | None = None, user: str = "bob") -> Session:
    return Session(folder or InMemoryContextPointerStore(), session_id=f"user:{user}")


def pointers_in(messages: list[Message]) -> dict[str, str]:
    """Return the pointers of the previews by tool. smolagents sends results as the user's texts."""
    return dict(POINTER.findall("\n".join(map(text_of, messages))))


def read_both(messages: list[Message]) -> Calls:
    pointers = pointers_in(messages)
    return [
        ("read_context", {"id": pointers["list_orders"], "path": "/4321/code"}),
        ("read_context", {"id": pointers["read_log_now"], "pattern": "ERROR.*"}),
    ]


def finish(messages: list[Message]) -> Calls:
    """Answer with the newest observations."""
    return [("final_answer", {"answer": text_of(messages[-1])})]


def test_two_parallel_results_are_offloaded_and_read_back() -> None:
    with scripted(REPORT, read_both, finish) as endpoint:
        answer = str(agent_of(endpoint, session_of()).run("Report on bob."))
    assert "S-bob-4321" in answer
    assert "a disk of bob failed" in answer
    assert endpoint.largest < 15_000


def test_a_wrapped_function_has_the_same_schema() -> None:
    plain, wrapped = tool(list_orders), tool(wrap_tool(list_orders, session_of()))
    for name in ("name", "description", "inputs", "output_type"):
        assert getattr(wrapped, name) == getattr(plain, name)


def test_the_model_reads_why_a_tool_failed_and_finds_the_other_result() -> None:
    session = session_of()
    calls = [("list_orders", {"customer": "bob"}), ("check_audit", {"customer": "bob"})]
    search = [("search_context", {"words": "S-bob-4321"})]
    with scripted(calls, search, finish) as endpoint:
        agent = agent_of(endpoint, session, wrap_tool(check_audit, session))
        answer = str(agent.run("Check bob."))
    assert "the audit of bob is down" in json.dumps(endpoint.requests[1])
    assert "list_orders" in answer


def test_a_restarted_process_reads_an_old_pointer_and_another_user_does_not(
    tmp_path: Path,
) -> None:
    with scripted(REPORT, finish) as endpoint:
        agent_of(endpoint, session_of(tmp_path)).run("Report on bob.")
    pointer_id = pointers_in(endpoint.requests[-1]["messages"])["list_orders"]
    reading = [("read_context", {"id": pointer_id, "path": "/4321/code"})]
    for user, expected in (("bob", "S-bob-4321"), ("ann", "no stored result of this session")):
        with scripted(reading, finish) as endpoint:
            answer = agent_of(endpoint, session_of(tmp_path, user)).run("Which code has row 4321?")
        assert expected in str(answer)


def test_a_manager_reads_what_a_managed_agent_stored() -> None:
    session = session_of()
    delegate = [("lister", {"task": "List the orders of bob."})]

    def report(messages: list[Message]) -> Calls:
        pointers = pointers_in(messages)
        return [("final_answer", {"answer": f"### list_orders ({pointers['list_orders']})"})]

    def read(messages: list[Message]) -> Calls:
        pointer_id = pointers_in(messages)["list_orders"]
        return [("read_context", {"id": pointer_id, "path": "/4321/code"})]

    with scripted(delegate, REPORT, report, read, finish) as endpoint:
        lister = agent_of(endpoint, session, name="lister", description="Lists the orders.")
        manager = agent_of(endpoint, session, managed_agents=[lister])
        assert "S-bob-4321" in str(manager.run("Report on bob."))


def test_an_image_reaches_the_framework_unchanged() -> None:
    image = AgentImage("photo.png")

    def photo() -> AgentImage:
        return image

    assert wrap_tool(photo, session_of())() is image


def test_a_result_that_cannot_be_stored_is_shown_and_cut() -> None:
    session = Session(InMemoryContextPointerStore(max_result_bytes=10_000))
    with scripted([("list_orders", {"customer": "bob"})], finish) as endpoint:
        agent_of(endpoint, session).run("Report on bob.")
    assert "characters were not kept" in json.dumps(endpoint.requests[1])


def test_a_code_agent_computes_with_the_whole_result_of_an_unwrapped_tool() -> None:
    code = '<code>import json\nfinal_answer(json.loads(list_orders("bob"))[4321]["code"])</code>'
    with scripted(f"I take the row.\n{code}") as endpoint:
        agent = CodeAgent(
            tools=[tool(list_orders)],
            model=model_of(endpoint),
            verbosity_level=0,
            additional_authorized_imports=["json"],
        )
        assert agent.run("Which code has row 4321?") == "S-bob-4321"


def test_the_documentation_runs_for_two_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def read(messages: list[Message]) -> Calls:
        pointer_id = pointers_in(messages)["list_parts"]
        return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]

    with scripted([("list_parts", {"kind": "all"})], read, finish) as endpoint:
        page = run_page("smolagents", names={"model": model_of(endpoint)})
        assert "10500" in page["answer"]("ann", "What is the stock of part 1500?")
    pointer_id = pointers_in(endpoint.requests[-1]["messages"])["list_parts"]
    # Two calls, which smolagents runs in threads.
    reading = 2 * [("read_context", {"id": pointer_id, "path": "/1500/stock"})]
    with scripted(reading, finish, reading, finish) as endpoint:
        page = run_page("smolagents", names={"model": model_of(endpoint)})
        assert "no stored result of this session" in page["answer_any"]("bob", "And part 1500?")
        assert "10500" in page["answer_any"]("ann", "And part 1500?")


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("smolagents", tmp_path)
