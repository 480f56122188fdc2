"""Test that a host uses what a gateway showed it after the gateway was restarted.

The host starts a new process over stdio, and over HTTP it connects to the one at the new address.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.apps.gateway.hosts import (
    host_through,
    id_in,
    odd,
    text_of,
)

pytestmark = pytest.mark.mcp


@pytest.mark.parametrize("door", ["stdio", "http"])
async def test_a_restarted_gateway_serves_ids_tables_and_found_tools_t_02(
    door: str, tmp_path: Path
) -> None:
    call: dict[str, Any] = {"name": "list_items", "arguments": {"count": 6_000}}
    async with host_through(door, tmp_path, odd(), "legacy", "--tools", "search") as host:
        found = text_of(await host.call_tool("search_tools", {"query": "the lines of the log"}))
        assert "get_log(lines: int)" in found
        preview = text_of(await host.call_tool("call_read_only_tool", call))
    [table] = re.findall(r"^Table (\w+)", preview, re.MULTILINE)
    async with host_through(door, tmp_path, odd(), "auto", "--tools", "search") as host:
        # The table first, since no reading has listed its result yet.
        queried = await host.call_tool("context", {"sql": f"SELECT count(*) FROM {table}"})
        assert "\n6000\n" in text_of(queried)
        read = await host.call_tool("context", {"id": id_in(preview), "path": "/4321"})
        assert "item 4321" in text_of(read)
        called = await host.call_tool("call_tool", {"name": "get_log", "arguments": {"lines": 2}})
        assert text_of(called) == "line 0 of the log\nline 1 of the log"
