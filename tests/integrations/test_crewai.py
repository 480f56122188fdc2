"""Test crews with wrapped functions, against a scripted endpoint."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crewai import LLM, Agent, Crew, Task
from crewai.hooks import (
    ToolCallHookContext,
    register_before_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools import tool
from crewai.tools.tool_failure import ToolFailure

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.documented import run_page
from tests.integrations.programs.checks import check_program
from tests.integrations.scripted_endpoint import (
    Calls,
    Endpoint,
    check_audit,
    list_orders,
    newest_result,
    newest_results,
    pointer_of,
    read_both,
    read_log_now,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ORDERS = ("list_orders", {"customer": "bob"})


def read_log(customer: str) -> str:
    """Read the log of a customer."""
    return read_log_now(customer)


REPORT: Calls = [ORDERS, ("read_log", {"customer": "bob"})]


@pytest.fixture(autouse=True)
def _without_telemetry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("CREWAI_TRACING_ENABLED", "false")
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "crewai"))


def llm_of(endpoint: Endpoint) -> Any:
    return LLM(model="openai/gpt-4o", base_url=endpoint.url, api_key="none", max_retries=0)


def agent_of(endpoint: Endpoint, session: Session, *more: Callable[..., Any]) -> Any:
    functions = [wrap_tool(list_orders, session), wrap_tool(read_log, session), *more]
    functions += tool_functions(session, sync=True)
    make: Any = Agent  # its types do not have the fields
    return make(
        role="Reporter",
        goal="Report",
        backstory="You report.",
        tools=[tool(function) for function in functions],
        llm=llm_of(endpoint),
    )


def run(*agents: Any) -> str:
    tasks = [Task(description="Report.", expected_output="A text", agent=agent) for agent in agents]
    return str(Crew(agents=[*agents], tasks=tasks).kickoff())


def session_of(folder: Path | None = None, user: str = "bob") -> Session:
    return Session(folder or InMemoryContextPointerStore(), session_id=f"user:{user}")


def test_two_parallel_results_are_offloaded_and_read_back() -> None:
    with scripted(REPORT, read_both, newest_results) as endpoint:
        answer = run(agent_of(endpoint, session_of()))
    assert "S-bob-4321" in answer
    assert "a disk of bob failed" in answer
    assert endpoint.largest < 12_000


def test_a_wrapped_function_has_the_same_schema() -> None:
    plain, wrapped = tool(list_orders), tool(wrap_tool(list_orders, session_of()))
    assert wrapped.name == plain.name
    assert wrapped.description == plain.description
    assert wrapped.args_schema.model_json_schema() == plain.args_schema.model_json_schema()


def test_the_model_reads_why_a_tool_failed() -> None:
    session = session_of()
    with scripted([("check_audit", {"customer": "bob"})], newest_result) as endpoint:
        answer = run(agent_of(endpoint, session, wrap_tool(check_audit, session)))
    assert "the audit of bob is down" in answer


def test_a_restarted_process_reads_an_old_pointer_and_another_user_does_not(
    tmp_path: Path,
) -> None:
    with scripted(REPORT, "Done.") as endpoint:
        run(agent_of(endpoint, session_of(tmp_path)))
    pointer_id = pointer_of("list_orders", endpoint.requests[-1]["messages"])
    reading = [("read_context", {"id": pointer_id, "path": "/4321/code"})]
    for user, expected in (("bob", "S-bob-4321"), ("ann", "no stored result of this session")):
        with scripted(reading, newest_result) as endpoint:
            assert expected in run(agent_of(endpoint, session_of(tmp_path, user)))


def test_a_second_agent_reads_what_the_first_one_stored() -> None:
    session = session_of()
    pointer: list[str] = []

    def report(messages: list[dict[str, Any]]) -> str:
        pointer.append(pointer_of("list_orders", messages))
        return f"They are in {pointer[0]}."

    def read(messages: list[dict[str, Any]]) -> Calls:
        assert pointer[0] in json.dumps(messages)
        return [("read_context", {"id": pointer[0], "path": "/4321/code"})]

    with scripted([ORDERS], report, read, newest_result) as endpoint:
        answer = run(agent_of(endpoint, session), agent_of(endpoint, session))
    assert "S-bob-4321" in answer


@pytest.fixture
def blocked() -> Iterator[list[str]]:
    names: list[str] = []

    def block(context: ToolCallHookContext) -> bool | None:
        names.append(context.tool_name)
        return False

    register_before_tool_call_hook(block)
    yield names
    unregister_before_tool_call_hook(block)


def test_a_call_that_a_hook_blocks_stores_nothing(blocked: list[str]) -> None:
    session = session_of()
    with scripted([ORDERS], newest_result) as endpoint:
        answer = run(agent_of(endpoint, session))
    assert "blocked by hook" in answer
    assert blocked == ["list_orders"]
    assert session.results.list_all() == []


def test_a_failure_as_a_value_passes_unchanged() -> None:
    failure = ToolFailure(message="the audit is down")

    def check() -> ToolFailure:
        return failure

    assert wrap_tool(check, session_of())() is failure


def test_a_result_that_cannot_be_stored_is_shown_and_cut() -> None:
    session = Session(InMemoryContextPointerStore(max_result_bytes=10_000))
    with scripted([ORDERS], newest_result) as endpoint:
        assert "characters were not kept" in run(agent_of(endpoint, session))


def test_the_documentation_runs_for_two_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def read(messages: list[dict[str, Any]]) -> Calls:
        pointer_id = pointer_of("list_parts", messages)
        return [("read_context", {"id": pointer_id, "path": "/1500/stock"})]

    with scripted([("list_parts", {"kind": "all"})], read, newest_result) as endpoint:
        page = run_page("crewai", names={"model": llm_of(endpoint)})
        assert "10500" in page["answer"]("ann", "What is the stock of part 1500?")
    pointer_id = pointer_of("list_parts", endpoint.requests[-1]["messages"])
    reading = [("read_context", {"id": pointer_id, "path": "/1500/stock"})]
    with scripted(reading, newest_result, reading, newest_result) as endpoint:
        page = run_page("crewai", names={"model": llm_of(endpoint)})
        assert "10500" in page["answer_any"]("ann", "And part 1500?")
        # The same call, which a cache by arguments would answer.
        assert "no stored result of this session" in page["answer_any"]("bob", "And part 1500?")


def test_a_program_of_four_users_goes_on_after_a_restart(tmp_path: Path) -> None:
    check_program("crewai", tmp_path)
