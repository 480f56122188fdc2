"""Servers ask each host of the newest protocol for what it can do, in the answers to its call."""

from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from llm_common.apps.gateway import Gateway
from tests.apps.gateway.hosts import config_of, full, host_of, text_of

pytestmark = pytest.mark.mcp


async def test_a_host_of_the_newest_protocol_is_asked_during_a_call() -> None:
    asked: list[str] = []

    async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"username": "ada"})

    async def sample(_: Any, params: types.CreateMessageRequestParams) -> Any:
        asked.append(params.system_prompt or "")
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="any")

    able: Any = {"elicitation_callback": elicit, "sampling_callback": sample}
    async with host_of(config_of(one=full("older")), **able) as host:
        answer = text_of(await host.call_tool("test_elicitation", {"message": "Who are you?"}))
        assert (asked, "ada" in answer) == (["[one] Who are you?"], True)
        answer = text_of(await host.call_tool("test_sampling", {"prompt": "The capital?"}))
        assert answer == "LLM response: Paris"
        assert "the MCP server one" in asked[-1]


async def test_each_host_is_asked_for_what_it_can_do() -> None:
    async def elicit(*_: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "ada"})

    async def sample(*_: Any) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="Paris")
        return types.CreateMessageResult(role="assistant", content=content, model="any")

    samples: Any = {"sampling_callback": sample}
    elicits: Any = {"elicitation_callback": elicit}
    async with (
        Gateway(config_of(one=full())) as gateway,
        Client(gateway.server, **samples) as first,
        Client(gateway.server, **elicits) as second,
    ):
        for host, question in ((first, "sample"), (second, "elicit")):
            result = await host.call_tool("test_input_required_result_capabilities", {})
            assert text_of(result) == question


async def test_an_answer_to_a_call_that_has_ended_starts_no_other_call() -> None:
    async with host_of(config_of(one=full("older"))) as host:
        await host.list_tools()
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name="test_simple_text", arguments={}, request_state="of another run"
            )
        )
        with pytest.raises(MCPError, match="this call has ended"):
            await host.session.send_request(request, types.CallToolResult)
