"""Test LlamaIndex agents whose tools are wrapped functions."""

from typing import Any

import pytest
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ImageBlock
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context, HumanResponseEvent, InputRequiredEvent

from llm_common.agents import InMemoryContextPointerStore, Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs import llamaindex
from tests.integrations.programs.desk import list_orders
from tests.integrations.promises import CODE, LIST, FunctionPromises
from tests.integrations.scripted_endpoint import (
    BOB,
    newest_results,
    read_listed,
    scripted,
)

# LlamaIndex leaves HTTP clients and event loops open.
pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]

ASKED: Any = InputRequiredEvent  # events take any field, which their types do not say
ANSWERED: Any = HumanResponseEvent


class TestFunctions(FunctionPromises):
    module = llamaindex
    media = ImageBlock(image=b"\x89PNG" + bytes(90_000))

    def schema_of(self, function: Any) -> Any:
        return FunctionTool.from_defaults(function).metadata.to_openai_tool()


async def test_an_approval_is_awaited_before_the_result_is_offloaded() -> None:
    session = Session(InMemoryContextPointerStore())

    async def export_orders(ctx: Context, customer: str) -> Any:
        """Export the orders, after a person has agreed."""
        answer = await ctx.wait_for_event(
            HumanResponseEvent,
            waiter_event=ASKED(prefix="Export?", user_name=customer),
            requirements={"user_name": customer},
        )
        return list_orders(customer) if answer.response == "yes" else "refused"

    with scripted([("export_orders", BOB)], newest_results) as endpoint:
        tools: list[Any] = [wrap_tool(export_orders, session)]
        handler = FunctionAgent(tools=tools, llm=llamaindex.model_of(endpoint.url)).run("Export.")
        async for event in handler.stream_events():
            if isinstance(event, InputRequiredEvent):
                assert handler.ctx is not None
                handler.ctx.send_event(ANSWERED(response="yes", user_name="bob"))
        assert "characters are stored" in str(await handler)
    [pointer] = session.results.list_all()
    assert pointer.args == BOB


async def test_another_agent_reads_after_a_handoff_t_08() -> None:
    session = Session(InMemoryContextPointerStore())

    handoff = [("handoff", {"to_agent": "reader", "reason": "read"})]
    with scripted(LIST, handoff, read_listed, newest_results) as endpoint:
        llm = llamaindex.model_of(endpoint.url)
        reader = FunctionAgent(
            name="reader", description="reads", tools=[*tool_functions(session)], llm=llm
        )
        lister = FunctionAgent(
            name="lister",
            description="lists",
            tools=[wrap_tool(list_orders, session)],
            llm=llm,
            can_handoff_to=["reader"],
        )
        workflow = AgentWorkflow(agents=[lister, reader], root_agent="lister")
        assert CODE in str(await workflow.run("Report on bob."))
