"""Test that a host uses what a gateway showed it after the gateway was restarted.

The host starts a new process over stdio, and over HTTP it connects to the one at the new address.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.apps.gateway.hosts import (
    TOKENS,
    host_at,
    host_of_process,
    id_in,
    odd,
    served,
    text_of,
)

pytestmark = pytest.mark.mcp


@asynccontextmanager
async def a_gateway(door: str, folder: Path) -> AsyncIterator[Client]:
    """A host of a gateway in a new process."""
    if door == "http":
        async with (
            served(folder, "--tools", "search") as address,
            host_at(address, TOKENS[0], "auto") as host,
        ):
            yield host
        return
    server = odd()
    config = folder / "mcp.json"
    entry = {"command": server.command, "args": list(server.args)}
    config.write_text(json.dumps({"mcpServers": {"odd": entry}}), encoding="utf-8")
    options = ["-c", str(config), "--folder", str(folder / "kept"), "--tools", "search"]
    async with host_of_process(*options) as host:
        yield host


@pytest.mark.parametrize("door", ["stdio", "http"])
async def test_a_restarted_gateway_serves_ids_tables_and_found_tools(
    door: str, tmp_path: Path
) -> None:
    call: dict[str, Any] = {"name": "list_items", "arguments": {"count": 6_000}}
    async with a_gateway(door, tmp_path) as host:
        found = text_of(await host.call_tool("search_tools", {"query": "the lines of the log"}))
        assert "get_log(lines: int)" in found
        preview = text_of(await host.call_tool("call_read_only_tool", call))
    [table] = re.findall(r"^Table (\w+)", preview, re.MULTILINE)
    async with a_gateway(door, tmp_path) as host:
        # The table first, since no reading has listed its result yet.
        queried = await host.call_tool("context", {"sql": f"SELECT count(*) FROM {table}"})
        assert "\n6000\n" in text_of(queried)
        read = await host.call_tool("context", {"id": id_in(preview), "path": "/4321"})
        assert "item 4321" in text_of(read)
        called = await host.call_tool("call_tool", {"name": "get_log", "arguments": {"lines": 2}})
        assert text_of(called) == "line 0 of the log\nline 1 of the log"


async def test_a_call_in_the_form_of_the_hooks_is_understood_and_told(tmp_path: Path) -> None:
    async with a_gateway("stdio", tmp_path) as host:
        call = {"name": "list_items", "arguments": {"count": 6_000}}
        pointer_id = id_in(text_of(await host.call_tool("call_read_only_tool", call)))
        old = {"pointer_id": pointer_id, "select": {"path": "/4321"}}
        answer = text_of(await host.call_tool("context", old))
    assert "item 4321" in answer
    assert "Next time pass the arguments by these names: chars, cursor, id, " in answer
