"""Be a client for the conformance suites, with the SDK alone or with the gateway in between.

The suites run this module as a command, and add the address of their server.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from tests.conformance.servers import GATEWAY, environment

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT: Mapping[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
EXAMPLES: Mapping[str, Any] = {"string": "a", "integer": 1, "number": 1.5, "boolean": True}
LOGINS = 3
"""The logins of a user who is asked for another one again and again."""


async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    """Answer with the defaults, and with an example where there is none."""
    content: dict[str, Any] = {}
    if isinstance(params, types.ElicitRequestFormParams):
        for name, schema in params.requested_schema.get("properties", {}).items():
            content[name] = schema.get("default", EXAMPLES.get(schema.get("type")))
    return types.ElicitResult(action="accept", content=content)


async def sample(*_: Any) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="Paris")
    return types.CreateMessageResult(role="assistant", content=content, model="none")


async def roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[])


ABLE: Mapping[str, Any] = {
    "elicitation_callback": elicit,
    "sampling_callback": sample,
    "list_roots_callback": roots,
    "mode": "auto" if VERSION.startswith("2026") else "legacy",
}


def arguments_of(tool: types.Tool, tools: list[types.Tool]) -> dict[str, Any]:
    """Return an example for each argument that a tool requires."""
    arguments: dict[str, Any] = {}
    for name in tool.input_schema.get("required", []):
        schema = tool.input_schema.get("properties", {}).get(name, {})
        arguments[name] = EXAMPLES.get(schema.get("type"), {})
    if tool.name == "json_schema_echo":  # wants to see what arrived of another tool's schema
        arguments["schema"] = next(other for other in tools if other is not tool).input_schema
    return arguments


async def use(client: Client) -> bool:
    """Call every tool, and return whether one wants another login."""
    tools = [tool for tool in (await client.list_tools()).tools if tool.name != "context"]
    calls = CONTEXT.get("toolCalls")
    if calls is None:
        calls = [{"name": tool.name, "arguments": arguments_of(tool, tools)} for tool in tools]
    # A server that wants a login for its list has no tools behind the gateway.
    wants_login = SCENARIO.startswith("auth/") and not tools
    for call in calls:
        with suppress(MCPError):
            result = await client.call_tool(call["name"], call["arguments"])
            wants_login = wants_login or "wants a login" in result.model_dump_json()
    return wants_login


class Storage:
    """The SDK's storage of a login, with the client that the suite has registered."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        if "client_id" in CONTEXT:
            self.client = OAuthClientInformationFull(
                client_id=CONTEXT["client_id"],
                client_secret=CONTEXT["client_secret"],
                redirect_uris=[AnyUrl("http://localhost:9/callback")],
                token_endpoint_auth_method="client_secret_basic",
            )

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def use_bare(url: str) -> None:
    """Use a server with the SDK's client, which logs in by itself."""
    answers: list[Mapping[str, list[str]]] = []

    async def redirect(address: str) -> None:
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(address)
        answers.append(parse_qs(urlsplit(response.headers["location"]).query))

    async def answer() -> AuthorizationCodeResult:
        code, state, iss = (answers[-1].get(name, [None])[0] for name in ("code", "state", "iss"))
        return AuthorizationCodeResult(code=code or "", state=state, iss=iss)

    metadata = OAuthClientMetadata(
        client_name="bare", redirect_uris=[AnyUrl("http://localhost:9/callback")]
    )
    login = OAuthClientProvider(
        url, metadata, Storage(), redirect_handler=redirect, callback_handler=answer
    )
    async with (
        httpx2.AsyncClient(auth=login, timeout=30.0) as http,
        Client(streamable_http_client(url, http_client=http), **ABLE) as client,
    ):
        await use(client)


async def log_in(config: Path) -> None:
    """Log in as a user would, whose browser needs no click."""
    process = await asyncio.create_subprocess_exec(
        *GATEWAY,
        *("login", "far", "-c", str(config), "--no-browser"),
        env={**os.environ, **environment(config.parent)},
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async for line in process.stderr:
        address = line.decode().partition("Log in at ")[2].strip()
        if address:
            async with httpx2.AsyncClient(follow_redirects=True) as browser:
                await browser.get(address)
    await process.wait()


async def use_gateway(url: str, folder: Path) -> None:
    """Use a server through a gateway on stdio, after a login with its command."""
    entry: dict[str, Any] = {"url": url}
    if "client_id" in CONTEXT:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        client = {"clientId": CONTEXT["client_id"], "clientSecret": CONTEXT["client_secret"]}
        entry["oauth"] = {**client, "callbackPort": port}
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"far": entry}}), encoding="utf-8")
    server = StdioServerParameters(
        command=GATEWAY[0],
        args=[*GATEWAY[1:], "-c", str(config), "--list-wait", "60"],
        env={**os.environ, **environment(folder)},
    )
    for _ in range(LOGINS):
        if SCENARIO.startswith("auth/"):
            await log_in(config)
        async with Client(server, **ABLE) as host:
            if not await use(host):
                break


async def main() -> None:
    way, url = sys.argv[1:]
    if way == "bare":
        await use_bare(url)
    else:
        with tempfile.TemporaryDirectory() as folder:
            await use_gateway(url, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
