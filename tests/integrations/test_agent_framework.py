"""Test agents of Microsoft's framework with wrapped functions."""

from typing import Any

import pytest
from agent_framework import Agent, AgentSession, Content, Message, tool

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs import agent_framework
from tests.integrations.programs.desk import list_orders
from tests.integrations.promises import CODE, LIST, FunctionPromises, read_named
from tests.integrations.scripted_endpoint import (
    Endpoint,
    name_listed,
    newest_results,
    scripted,
)

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]


class TestFunctions(FunctionPromises):
    module = agent_framework
    model_name = "client"
    media = (Content.from_data(data=b"\x89PNG" + bytes(90_000), media_type="image/png"),)

    def schema_of(self, function: Any) -> Any:
        return tool(function).to_json_schema_spec()


def agent_of(endpoint: Endpoint, session: Session, *tools: Any, **options: Any) -> Any:
    client = agent_framework.model_of(endpoint.url)
    return Agent(client, "You report.", tools=[*tools, *tool_functions(session)], **options)


async def test_an_approved_call_is_offloaded() -> None:
    session = Session(InMemoryContextPointerStore())
    lister = tool(wrap_tool(list_orders, session), approval_mode="always_require")
    with scripted(LIST, newest_results) as endpoint:
        agent, conversation = agent_of(endpoint, session, lister), AgentSession()
        asked = await agent.run("List them.", session=conversation)
        [request] = asked.user_input_requests
        assert session.results.list_all() == []
        approval = Message(role="user", contents=[request.to_function_approval_response(True)])
        answer = await agent.run(approval, session=conversation)
    assert "characters are stored" in answer.text


async def test_an_agent_reads_what_the_agent_that_it_called_stored_t_08() -> None:
    session = Session(InMemoryContextPointerStore())

    delegate = [("lister", {"task": "List the orders of bob."})]
    with scripted(delegate, LIST, name_listed, read_named, newest_results) as endpoint:
        wrapped = wrap_tool(list_orders, session)
        lister = agent_of(endpoint, session, wrapped, name="lister", description="Lists.")
        answer = await agent_of(endpoint, session, lister.as_tool()).run("Report.")
    assert CODE in answer.text
