"""Test the gateway with published servers, in environments that `make test-mcp` sets up."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from llm_common.apps.gateway import GatewayConfig, ServerConfig
from llm_common.core import DefaultCounter
from tests.apps.gateway.hosts import ERAS, host_of, id_in, serving, text_of

pytestmark = pytest.mark.mcp_servers
SERVERS = Path(__file__).parents[3] / ".mcp-servers"
NODE = SERVERS / "node" / "node_modules" / ".bin"
COUNTER = DefaultCounter()
ITEMS = [
    {"id": number, "name": f"item {number}", "note": "some words about this thing"}
    for number in range(6_000)
]
DOCUMENT = json.dumps(ITEMS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a large file, which is a repository too."""
    if not SERVERS.exists():
        pytest.skip("make test-mcp sets the servers up")
    (tmp_path / "items.json").write_text(DOCUMENT, encoding="utf-8")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@localhost"]
    for command in (["init", "-q"], ["add", "items.json"], ["commit", "-q", "-m", "Add the items"]):
        subprocess.run([*git, *command], check=True)
    return tmp_path


@pytest.fixture
async def page() -> AsyncIterator[str]:
    """The address of a large text on loopback."""
    text = "\n".join(f"line {number} of the page" for number in range(20_000))
    routes = [Route("/page.txt", lambda _: PlainTextResponse(text))]
    async with serving(lambda _: Starlette(routes=routes)) as port:
        yield f"http://127.0.0.1:{port}/page.txt"


def servers_in(folder: Path) -> dict[str, ServerConfig]:
    def python(name: str, *arguments: str) -> ServerConfig:
        return ServerConfig(command=str(SERVERS / name / "bin" / name), args=arguments)

    found = {
        "git": python("mcp-server-git", "-r", str(folder)),
        "time": python("mcp-server-time"),
        "sqlite": python("mcp-server-sqlite", "--db-path", str(folder / "data.db")),
        "fetch": python("mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"),
    }
    if NODE.exists():
        found["files"] = ServerConfig(
            command=str(NODE / "mcp-server-filesystem"), args=(str(folder),)
        )
        found["copies"] = ServerConfig(
            command=str(NODE / "mcp-server-filesystem"), args=(str(folder),)
        )
        found["everything"] = ServerConfig(command=str(NODE / "mcp-server-everything"))
    return found


def config_of(folder: Path, *names: str, **settings: Any) -> GatewayConfig:
    servers = {
        name: server for name, server in servers_in(folder).items() if not names or name in names
    }
    if names and len(servers) < len(names):
        pytest.skip("node is not there")
    return GatewayConfig(servers=servers, memory_only=True, list_wait_s=60, **settings)


async def names_of(host: Client, wanted: str) -> list[str]:
    """The names of the listed tools, once a server that adds its tools late has done so."""
    while True:
        names = [tool.name for tool in (await host.list_tools(cache_mode="bypass")).tools]
        if wanted in names:
            return names
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("era", ERAS)
async def test_more_than_sixty_tools_of_seven_servers_are_listed(folder: Path, era: str) -> None:
    config = config_of(folder, *servers_in(folder), tools="all")
    if "everything" not in config.servers:
        pytest.skip("node is not there")
    async with host_of(config, mode=era) as host:
        names = await names_of(host, "echo")
        assert len(names) >= 60
        assert {
            "files_read_text_file",
            "copies_read_text_file",
            "git_log",
            "read_query",
            "echo",
        } <= set(names)
        answer = await host.call_tool("echo", {"message": "hello"})
        assert "hello" in text_of(answer)


async def test_a_file_of_400_000_characters_becomes_a_preview_of_400_tokens(folder: Path) -> None:
    assert len(DOCUMENT) > 400_000
    async with host_of(config_of(folder, "files")) as host:
        preview = text_of(
            await host.call_tool("read_text_file", {"path": str(folder / "items.json")})
        )
        assert COUNTER.count(preview) <= 400
        answer = text_of(await host.call_tool("context", {"id": id_in(preview), "path": "/4321"}))
        assert '{"id":4321,"name":"item 4321","note":"some words about this thing"}' in answer


@pytest.mark.parametrize("era", ERAS)
async def test_a_commit_and_a_query_and_a_page_are_read_back_in_part(
    folder: Path, page: str, era: str
) -> None:
    async with host_of(config_of(folder, "git", "sqlite", "fetch"), mode=era) as host:
        shown = text_of(
            await host.call_tool("git_show", {"repo_path": str(folder), "revision": "HEAD"})
        )
        assert COUNTER.count(shown) <= 400
        created = await host.call_tool(
            "create_table", {"query": "CREATE TABLE items (id INTEGER, name TEXT)"}
        )
        assert not created.is_error
        rows = ", ".join(f"({item['id']}, '{item['name']}')" for item in ITEMS)
        assert not (
            await host.call_tool("write_query", {"query": f"INSERT INTO items VALUES {rows}"})
        ).is_error
        rows_shown = text_of(await host.call_tool("read_query", {"query": "SELECT * FROM items"}))
        assert COUNTER.count(rows_shown) <= 400
        part = {"id": id_in(rows_shown), "pattern": "item 4321"}
        assert "item 4321" in text_of(await host.call_tool("context", part))
        page_shown = text_of(await host.call_tool("fetch", {"url": page, "max_length": 500_000}))
        assert COUNTER.count(page_shown) <= 400
        found = text_of(await host.call_tool("context", {"words": "line 15321 of the page"}))
        assert "line 15321 of the page" in found


async def test_completions_and_changes_of_everything_reach_the_host(folder: Path) -> None:
    async with host_of(config_of(folder, "everything")) as host:
        await names_of(host, "echo")
        prompt, argument = (
            types.PromptReference(name="completable-prompt"),
            {"name": "department", "value": "E"},
        )
        assert (await host.complete(prompt, argument)).completion.values == ["Engineering"]
        (first, *_) = (await host.list_resources()).resources
        async with host.listen(resource_subscriptions=[first.uri]) as events:
            await host.call_tool("toggle-subscriber-updates", {})
            assert await anext(events) == ResourceUpdated(first.uri)
