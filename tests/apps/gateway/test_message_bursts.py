"""Test that a burst of messages of one server does not reach the host."""

import re
import time
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from llm_common.apps.gateway.servers.streams import MessageBursts
from tests.apps.gateway.hosts import Heard, config_of, host_and_changes, host_of, hostile, until

pytestmark = pytest.mark.mcp
DROPPED = re.compile(r"([\d,]+) more log messages of this second were dropped")


def messages_of(method: str, count: int) -> list[SessionMessage]:
    messages = []
    for number in range(count):
        params = {"level": "info", "data": number}
        notification = types.JSONRPCNotification(jsonrpc="2.0", method=method, params=params)
        messages.append(SessionMessage(notification))
    return messages


async def passing(messages: list[SessionMessage]) -> tuple[list[bool], list[Any]]:
    """Return which messages pass, and the data of those that are sent at the end of the burst."""
    later: list[Any] = []

    async def send(message: SessionMessage) -> None:
        assert isinstance(message.message, types.JSONRPCNotification)
        later.append((message.message.params or {})["data"])

    async with anyio.create_task_group() as group:
        bursts = MessageBursts(group, send)
        admitted = [bursts.admits(message) for message in messages]
    return admitted, later


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
async def test_the_first_and_last_change_of_a_burst_pass(kind: str) -> None:
    changes = messages_of(f"notifications/{kind}/list_changed", 1_000)
    progress = messages_of("notifications/progress", 1)
    admitted, later = await passing([*changes, *progress])
    assert admitted == [True, *[False] * 999, True]
    assert later == [999]
    assert await passing(changes[:1]) == ([True], [])


async def test_log_messages_above_the_limit_are_dropped_and_counted() -> None:
    logs = messages_of("notifications/message", 1_600)
    admitted, later = await passing(logs)
    assert admitted == [True] * 100 + [False] * 1_500
    assert later == ["1,500 more log messages of this second were dropped"]
    assert await passing(logs[:1]) == ([True], [])


async def test_a_host_gets_few_changes_of_a_burst() -> None:
    async with host_and_changes(config_of(bad=hostile("a flood of changes"))) as (host, heard):
        await host.list_tools()
        began = time.monotonic()
        await host.call_tool("ok", {})
        await until(lambda: heard.count() > 1)
        # One at once, and one for each half second since.
        assert heard.count() <= 2 + 2 * (time.monotonic() - began)


async def test_a_host_is_told_of_dropped_log_messages() -> None:
    logs = Heard()
    config = config_of(bad=hostile("a flood of logs"))
    async with host_of(config, mode="legacy", logging_callback=logs) as host:
        await host.call_tool("ok", {})
        await until(lambda: any(DROPPED.fullmatch(str(log.data)) for log in logs.messages))
    assert {log.logger for log in logs.messages} == {"bad"}
    assert len(logs.messages) < 3_000
