"""Connect the official MCP client to a gateway in this process, or in a process of its own."""

import asyncio
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from starlette.applications import Starlette

from llm_common.apps.gateway import Gateway, GatewayConfig, ServerConfig

ODD = Path(__file__).parent / "odd_server.py"
HOSTILE = Path(__file__).parent / "hostile_server.py"
FULL = Path(__file__).parents[2] / "conformance" / "full_server.py"
ERAS = ("legacy", "auto")
TOKENS = ("first-token-of-a-host", "other-token-of-a-host")


def odd(**settings: Any) -> ServerConfig:
    return ServerConfig(command=sys.executable, args=(str(ODD), json.dumps(settings)))


def hostile(case: str = "") -> ServerConfig:
    """A server that does what none should; without a case a small one that names its arguments."""
    return ServerConfig(command=sys.executable, args=("-S", str(HOSTILE), case))


def full(*arguments: str) -> ServerConfig:
    """The server of the conformance suites, which does everything."""
    return ServerConfig(command=sys.executable, args=(str(FULL), *arguments))


def entry_of(server: ServerConfig, **more: Any) -> dict[str, Any]:
    return {"command": server.command, "args": list(server.args), **more}


def config_file(folder: Path, **entries: Any) -> Path:
    """Write a configuration with these servers, or with their entries as they are."""
    for name, entry in entries.items():
        if isinstance(entry, ServerConfig):
            entries[name] = entry_of(entry)
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    return path


class Heard:
    """Keeps what a host gets besides answers."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def __call__(self, message: Any) -> None:
        self.messages.append(message)

    def count(self, kind: type = types.ToolListChangedNotification) -> int:
        return sum(isinstance(message, kind) for message in self.messages)


class Files:
    """The files of a server that does what they say, also after a restart of the gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder / "kept"
        self.offer("search")

    @property
    def server(self) -> ServerConfig:
        return ServerConfig(
            command=sys.executable, args=("-S", str(HOSTILE), "files", str(self.folder))
        )

    def config(self, **settings: Any) -> GatewayConfig:
        kept = {"memory_only": False, "folder": self.kept, **settings}
        return config_of(one=self.server, settings=kept)

    def offer(
        self,
        *names: str,
        description: str = "Does a thing.",
        schema: Mapping[str, Any] | None = None,
        read_only: bool = False,
    ) -> None:
        tool: dict[str, Any] = {
            "description": description,
            "inputSchema": schema or {"type": "object"},
            "annotations": {"readOnlyHint": read_only},
        }
        tools = [{"name": name, **tool} for name in names]
        (self.folder / "tools.json").write_text(json.dumps(tools), encoding="utf-8")

    def release(self) -> None:
        """Let the server start."""
        (self.folder / "ready").touch()


def config_of(**servers: Any) -> GatewayConfig:
    """A configuration with these servers, and `settings` besides."""
    # The default wait is shorter than some servers start on a busy machine.
    settings = {"list_wait_s": 60.0, "memory_only": True, **servers.pop("settings", {})}
    return GatewayConfig(servers=servers, **settings)


@asynccontextmanager
async def host_of(config: GatewayConfig, **options: Any) -> AsyncIterator[Client]:
    """A host of a gateway in this process."""
    async with Gateway(config) as gateway, Client(gateway.server, **options) as client:
        yield client


@asynccontextmanager
async def host_and_changes(config: GatewayConfig) -> AsyncIterator[tuple[Client, Heard]]:
    """A host of the older protocol of a gateway in this process, and what it is told."""
    heard = Heard()
    async with host_of(config, mode="legacy", message_handler=heard) as host:
        yield host, heard


@asynccontextmanager
async def host_of_process(*arguments: str, **options: Any) -> AsyncIterator[Client]:
    """A host that starts the command line's gateway."""
    command = ["-c", "from llm_common.apps.cli import main; main()", "gateway", *arguments]
    async with Client(
        StdioServerParameters(command=sys.executable, args=command), **options
    ) as client:
        yield client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def served(
    folder: Path,
    *arguments: str,
    server: ServerConfig | None = None,
    tokens: Sequence[str] = TOKENS,
) -> AsyncIterator[str]:
    """The address of a gateway over HTTP in a process of its own."""
    config = config_file(folder, odd=server or odd())
    port = free_port()
    options = [
        "gateway",
        "-c",
        str(config),
        "--http",
        str(port),
        "--folder",
        str(folder),
        *arguments,
    ]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from llm_common.apps.cli import main; main()",
        *options,
        env={"LLM_COMMON_GATEWAY_TOKEN": " ".join(tokens), "PYTHONPATH": ":".join(sys.path)},
    )
    try:
        await is_open(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def host_at(
    address: str, token: str, era: str, session_ids: set[str] | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A host of a gateway over HTTP. The ids of its sessions are added to `session_ids`."""

    async def note(response: httpx2.Response) -> None:
        if session_ids is not None:
            session_ids.update(response.headers.get_list("mcp-session-id"))

    async with (
        httpx2.AsyncClient(
            headers=bearer(token), timeout=60, event_hooks={"response": [note]}
        ) as http,
        Client(streamable_http_client(address, http_client=http), mode=era, **options) as client,
    ):
        yield client


@asynccontextmanager
async def host_through(
    door: str, folder: Path, server: ServerConfig, era: str, *arguments: str, **options: Any
) -> AsyncIterator[Client]:
    """A host of a gateway in a new process, over stdio or HTTP."""
    if door == "http":
        async with (
            served(folder, *arguments, server=server) as address,
            host_at(address, TOKENS[0], era, **options) as host,
        ):
            yield host
        return
    kept = ("-c", str(config_file(folder, odd=server)), "--folder", str(folder / "kept"))
    async with host_of_process(*kept, *arguments, mode=era, **options) as host:
        yield host


@asynccontextmanager
async def serving(app_of: Callable[[int], Starlette]) -> AsyncIterator[int]:
    """Serve an application, which is made for its port, in this process."""
    # The socket queues connections before the server accepts them.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
        settings = uvicorn.Config(app_of(port), log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(settings)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield port
        finally:
            server.should_exit = True
            await task


async def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition is true. The timeout of the test ends the wait."""
    while not holds():  # noqa: ASYNC110 - it is another process's file
        await asyncio.sleep(0.02)


async def names_of(host: Client) -> set[str]:
    """The names of the listed tools without the gateway's own reader."""
    return {tool.name for tool in (await host.list_tools()).tools} - {"context"}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def runs(pid: int) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"


def text_of(result: types.CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, types.TextContent)
    return block.text


def id_in(text: str) -> str:
    return next(re.finditer(r"\b[0-9a-f]{12,16}\b", text))[0]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def is_open(port: int) -> None:
    """Wait until a process listens on the port. The timeout of the test ends the wait."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
