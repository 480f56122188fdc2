"""Test that a server is held to the folders of the host, as it is without the gateway."""

import asyncio
from pathlib import Path

import mcp_types as types
import pytest
from mcp.client import ClientRequestContext
from pydantic import FileUrl

from tests.apps.gateway.hosts import (
    ERAS,
    config_of,
    host_of,
    host_through,
    hostile,
    odd,
    text_of,
)

pytestmark = pytest.mark.mcp
SERVER = hostile("roots")


class Folders:
    """The folders of a host, which its user changes."""

    def __init__(self, *uris: str) -> None:
        self.uris = uris

    async def __call__(self, _: ClientRequestContext) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(uri)) for uri in self.uris])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("door", ["stdio", "http"])
async def test_a_server_that_asks_at_its_start_is_held_to_the_roots(
    door: str, era: str, tmp_path: Path
) -> None:
    folders = Folders("file:///srv/project")
    async with host_through(door, tmp_path, SERVER, era, list_roots_callback=folders) as host:
        await host.list_tools()
        answer = await host.call_tool("ok", {})
        assert text_of(answer) == '["file:///srv/project"]'
        folders.uris = ("file:///srv/other", "file:///srv/third")
        if era == "legacy":
            await host.session.send_notification(types.RootsListChangedNotification())
            # The notification and the next call may overtake each other over HTTP.
            while text_of(answer) == '["file:///srv/project"]':
                answer = await host.call_tool("ok", {})
        answer = await host.call_tool("ok", {})
        assert text_of(answer) == '["file:///srv/other", "file:///srv/third"]'


@pytest.mark.parametrize("era", ERAS)
async def test_the_first_read_and_the_first_call_after_a_restart_are_held_to_the_roots(
    era: str,
) -> None:
    folders = Folders("file:///srv/project")
    async with host_of(
        config_of(one=SERVER, two=odd()), mode=era, list_roots_callback=folders
    ) as host:
        await host.list_resources()
        (content,) = (await host.read_resource("bad://a")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == '["file:///srv/project"]'
        if era == "legacy":  # a server of the newest protocol cannot ask during a call
            assert "file:///srv/project" in text_of(await host.call_tool("count_roots", {}))
        await host.call_tool("ok", {"end": True})
        while (again := await host.call_tool("ok", {})).is_error:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert text_of(again) == '["file:///srv/project"]'


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_without_roots_offers_servers_no_roots(era: str) -> None:
    async with host_of(config_of(one=SERVER), mode=era) as host:
        assert text_of(await host.call_tool("ok", {})) == '["the command line\'s folder"]'
