"""Test that a host uses what a gateway showed it after the gateway was restarted.

The host starts a new process over stdio, and over HTTP it connects to the one at the new address.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from tests.apps.gateway.hosts import (
    TOKENS,
    config_file,
    host_at,
    host_of_process,
    id_in,
    odd,
    served,
    text_of,
)

pytestmark = pytest.mark.mcp


@asynccontextmanager
async def a_gateway(door: str, folder: Path, era: str) -> AsyncIterator[Client]:
    """A host of a gateway in a new process."""
    search = ("--tools", "search")
    if door == "http":
        async with served(folder, *search) as address, host_at(address, TOKENS[0], era) as host:
            yield host
        return
    options = ["-c", str(config_file(folder, odd=odd())), "--folder", str(folder / "kept")]
    async with host_of_process(*options, *search, mode=era) as host:
        yield host


@pytest.mark.parametrize("door", ["stdio", "http"])
async def test_a_restarted_gateway_serves_ids_tables_and_found_tools_t_02(
    door: str, tmp_path: Path
) -> None:
    call: dict[str, Any] = {"name": "list_items", "arguments": {"count": 6_000}}
    async with a_gateway(door, tmp_path, "legacy") as host:
        found = text_of(await host.call_tool("search_tools", {"query": "the lines of the log"}))
        assert "get_log(lines: int)" in found
        preview = text_of(await host.call_tool("call_read_only_tool", call))
    [table] = re.findall(r"^Table (\w+)", preview, re.MULTILINE)
    async with a_gateway(door, tmp_path, "auto") as host:
        # The table first, since no reading has listed its result yet.
        queried = await host.call_tool("context", {"sql": f"SELECT count(*) FROM {table}"})
        assert "\n6000\n" in text_of(queried)
        read = await host.call_tool("context", {"id": id_in(preview), "path": "/4321"})
        assert "item 4321" in text_of(read)
        called = await host.call_tool("call_tool", {"name": "get_log", "arguments": {"lines": 2}})
        assert text_of(called) == "line 0 of the log\nline 1 of the log"
