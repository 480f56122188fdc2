"""Test crews with wrapped functions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crewai import Agent, Crew, Task
from crewai.hooks import (
    ToolCallHookContext,
    register_before_tool_call_hook,
    unregister_before_tool_call_hook,
)
from crewai.tools import tool
from crewai.tools.tool_failure import ToolFailure

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs import crewai
from tests.integrations.programs.desk import list_orders
from tests.integrations.promises import CODE, LIST, FunctionPromises, read_named
from tests.integrations.scripted_endpoint import (
    name_listed,
    newest_results,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture(autouse=True)
def _without_telemetry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CREWAI_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("CREWAI_TRACING_ENABLED", "false")
    monkeypatch.setenv("CREWAI_STORAGE_DIR", str(tmp_path / "crewai"))


class TestFunctions(FunctionPromises):
    module = crewai
    media = ToolFailure(message="the audit is down")

    def schema_of(self, function: Any) -> Any:
        declared = tool(function)
        return declared.name, declared.description, declared.args_schema.model_json_schema()


def crew_of(url: str, session: Session, agents: int = 1) -> Crew:
    """Return a crew of agents that do one task each."""
    functions: list[Any] = [wrap_tool(list_orders, session)]
    functions += tool_functions(session, sync=True)
    tools = [tool(function) for function in functions]
    make: Any = Agent  # its types do not have the fields
    llm = crewai.model_of(url)
    tasks = []
    for _ in range(agents):
        agent = make(role="Clerk", goal="Answer", backstory="Knows.", tools=tools, llm=llm)
        tasks.append(Task(description="Report.", expected_output="A text", agent=agent))
    return Crew(agents=[task.agent for task in tasks if task.agent], tasks=tasks)


def test_a_second_agent_reads_what_the_first_one_stored_t_08() -> None:
    with scripted(LIST, name_listed, read_named, newest_results) as endpoint:
        crew = crew_of(endpoint.url, Session(InMemoryContextPointerStore()), agents=2)
        assert CODE in str(crew.kickoff())


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
    session = Session(InMemoryContextPointerStore())
    with scripted(LIST, newest_results) as endpoint:
        answer = str(crew_of(endpoint.url, session).kickoff())
    assert "blocked by hook" in answer
    assert blocked == ["list_orders"]
    assert session.results.list_all() == []
