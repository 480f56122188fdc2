"""Test smolagents whose tools are wrapped functions."""

from typing import Any

import pytest
from smolagents import AgentImage, CodeAgent, ToolCallingAgent, tool

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs import smolagents
from tests.integrations.programs.desk import list_orders
from tests.integrations.promises import CODE, LIST, FunctionPromises
from tests.integrations.scripted_endpoint import (
    Calls,
    Messages,
    newest_results,
    pointer_of,
    read_listed,
    scripted,
)

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("error:Function .* has decorators"),
]


class TestFunctions(FunctionPromises):
    module = smolagents
    media = AgentImage("photo.png")

    def schema_of(self, function: Any) -> Any:
        declared = tool(function)
        return declared.name, declared.description, declared.inputs, declared.output_type


def test_a_manager_reads_what_a_managed_agent_stored_t_08() -> None:
    session = Session(InMemoryContextPointerStore())

    def report(messages: Messages) -> str:
        return f"### list_orders ({pointer_of('list_orders', messages)})"

    delegate: Calls = [("lister", {"task": "List the orders of bob."})]
    functions = [wrap_tool(list_orders, session), *tool_functions(session, sync=True)]
    with scripted(delegate, LIST, report, read_listed, newest_results) as endpoint:
        options: dict[str, Any] = {
            "tools": [tool(function) for function in functions],
            "model": smolagents.model_of(endpoint.url),
            "verbosity_level": 0,
        }
        lister = ToolCallingAgent(name="lister", description="Lists the orders.", **options)
        manager = ToolCallingAgent(managed_agents=[lister], **options)
        assert CODE in str(manager.run("Report on bob."))


def test_a_code_agent_computes_with_the_whole_result_of_an_unwrapped_tool() -> None:
    code = '<code>final_answer(list_orders("bob")[4321]["code"])</code>'
    with scripted(f"I take the row.\n{code}") as endpoint:
        model = smolagents.model_of(endpoint.url)
        agent = CodeAgent(tools=[tool(list_orders)], model=model, verbosity_level=0)
        assert agent.run("Which code has order 4321?") == CODE
