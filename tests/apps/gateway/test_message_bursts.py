"""Test that a burst of messages of one server does not reach the host."""

import re
import time
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from llm_common.apps.gateway.servers.message_bursts import MessageBursts
from tests.apps.gateway.hosts import config_of, host_of, hostile, until

pytestmark = pytest.mark.mcp
LOG = "notifications/message"
TOOLS_CHANGED = "notifications/tools/list_changed"
DROPPED = re.compile(r"([\d,]+) more log messages of this second were dropped")


def message_of(method: str, number: int) -> SessionMessage:
    notification = types.JSONRPCNotification(
        jsonrpc="2.0", method=method, params={"level": "info", "data": number}
    )
    return SessionMessage(notification)


def params_of(message: SessionMessage) -> Any:
    assert isinstance(message.message, types.JSONRPCNotification)
    return message.message.params


@pytest.mark.parametrize(
    "method",
    [
        TOOLS_CHANGED,
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
    ],
)
async def test_the_first_and_last_change_of_a_burst_pass(method: str) -> None:
    sent: list[SessionMessage] = []

    async def send(message: SessionMessage) -> None:
        sent.append(message)

    async with anyio.create_task_group() as group:
        bursts = MessageBursts(group, send)
        admitted = [bursts.admits(message_of(method, number)) for number in range(1_000)]
        assert admitted == [True] + [False] * 999
        assert bursts.admits(message_of("notifications/progress", 0))
    assert [params_of(message)["data"] for message in sent] == [999]


async def test_log_messages_above_the_limit_are_dropped_and_counted() -> None:
    sent: list[SessionMessage] = []

    async def send(message: SessionMessage) -> None:
        sent.append(message)

    async with anyio.create_task_group() as group:
        bursts = MessageBursts(group, send)
        admitted = [bursts.admits(message_of(LOG, number)) for number in range(1_600)]
        assert admitted == [True] * 100 + [False] * 1_500
    texts = [params_of(message)["data"] for message in sent]
    assert texts == ["1,500 more log messages of this second were dropped"]


async def test_a_single_message_is_sent_once() -> None:
    sent: list[SessionMessage] = []

    async def send(message: SessionMessage) -> None:
        sent.append(message)

    async with anyio.create_task_group() as group:
        bursts = MessageBursts(group, send)
        assert bursts.admits(message_of(LOG, 1))
        assert bursts.admits(message_of(TOOLS_CHANGED, 1))
    assert sent == []


async def test_a_host_gets_few_changes_of_a_burst() -> None:
    changes: list[float] = []

    async def note(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changes.append(time.monotonic())

    config = config_of(bad=hostile("a flood of changes"))
    async with host_of(config, mode="legacy", message_handler=note) as host:
        await host.list_tools()
        began = time.monotonic()
        await host.call_tool("ok", {})
        await until(lambda: len(changes) > 1)
        # One at once, and one for each half second since.
        assert len(changes) <= 2 + 2 * (time.monotonic() - began)


async def test_a_host_is_told_of_dropped_log_messages() -> None:
    logs: list[types.LoggingMessageNotificationParams] = []

    async def note(log: types.LoggingMessageNotificationParams) -> None:
        logs.append(log)

    config = config_of(bad=hostile("a flood of logs"))
    async with host_of(config, mode="legacy", logging_callback=note) as host:
        await host.call_tool("ok", {})
        await until(lambda: any(DROPPED.fullmatch(str(log.data)) for log in logs))
    assert {log.logger for log in logs} == {"bad"}
    assert len(logs) < 3_000
