"""Log messages reach the hosts that want them, at the level that they want."""

import mcp_types as types
import pytest
from mcp import Client

from tests.apps.gateway.hosts import Heard, config_of, full, host_of, odd, text_of, until

pytestmark = pytest.mark.mcp


async def set_level(host: Client, level: types.LoggingLevel) -> None:
    request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
    await host.session.send_request(request, types.EmptyResult)


async def test_a_host_of_the_older_protocol_sets_the_level() -> None:
    logs = Heard()
    config = config_of(one=full(), two=odd())
    async with host_of(config, mode="legacy", logging_callback=logs) as host:
        assert host.server_capabilities.logging is not None
        await set_level(host, "error")
        assert "from error" in text_of(await host.call_tool("test_logging_tool", {}))
        await host.call_tool("say_log", {})  # a server that logs at any level
        await set_level(host, "warning")
        await host.call_tool("say_log", {})
        await until(lambda: bool(logs.messages))
    [log] = logs.messages
    assert (log.level, log.data, log.logger) == ("warning", "a word of warning", "two/odd")


async def test_a_server_is_told_the_level_when_it_starts() -> None:
    config = config_of(one=full(), settings={"lazy": True})
    async with host_of(config, mode="legacy") as host:
        await set_level(host, "error")
        assert "from error" in text_of(await host.call_tool("test_logging_tool", {}))


@pytest.mark.parametrize(("level", "wanted"), [("info", 1), ("error", 0), (None, 0)])
async def test_a_host_of_the_newest_protocol_asks_for_logs_in_its_request(
    level: types.LoggingLevel | None, wanted: int
) -> None:
    logs = Heard()
    config = config_of(one=full())
    async with host_of(config, log_level=level, logging_callback=logs) as host:
        await host.call_tool("test_tool_with_logging", {})
        assert len(logs.messages) == 3 * wanted


async def test_a_server_of_the_older_protocol_logs_to_a_host_of_the_newest() -> None:
    logs = Heard()
    config = config_of(one=full("older"))
    async with host_of(config, log_level="info", logging_callback=logs) as host:
        await host.call_tool("test_tool_with_logging", {})
        assert len(logs.messages) == 3
