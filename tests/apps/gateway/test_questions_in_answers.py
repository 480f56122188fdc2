"""Servers ask each host of the newest protocol for what it can do, in the answers to its call."""

from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from llm_common.apps.gateway import Gateway
from tests.apps.gateway.hosts import config_of, full, host_of, text_of

pytestmark = pytest.mark.mcp


async def name_ada(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    assert params.message.startswith("[one] ")
    return types.ElicitResult(action="accept", content={"username": "ada", "name": "ada"})


async def say_paris(_: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
    assert "the MCP server one" in (params.system_prompt or "")
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="any")


ELICITS: Any = {"elicitation_callback": name_ada}
SAMPLES: Any = {"sampling_callback": say_paris}


async def test_a_host_of_the_newest_protocol_is_asked_during_a_call() -> None:
    async with host_of(config_of(one=full("older")), **ELICITS, **SAMPLES) as host:
        answer = text_of(await host.call_tool("test_elicitation", {"message": "Who are you?"}))
        assert "ada" in answer
        answer = text_of(await host.call_tool("test_sampling", {"prompt": "The capital?"}))
        assert answer == "LLM response: Paris"


async def test_each_host_is_asked_for_what_it_can_do() -> None:
    async with (
        Gateway(config_of(one=full())) as gateway,
        Client(gateway.server, **SAMPLES) as first,
        Client(gateway.server, **ELICITS) as second,
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
