"""Test that the body of a server over HTTP is limited after its decompression."""

import gzip
import resource
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from llm_common.apps.gateway import ServerConfig
from tests.apps.gateway.hosts import config_of, host_of, serving, text_of

pytestmark = pytest.mark.mcp
MEGABYTE = b"x" * 1_000_000
HEAD = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"'
MAX_GROWTH_KB = 200_000


def packed(text: bytes, megabytes: int, window_bits: int) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, window_bits)
    parts = [packer.compress(text)]
    parts += [packer.compress(MEGABYTE) for _ in range(megabytes)]
    return b"".join((*parts, packer.compress(b'"}]}}'), packer.flush()))


def answer_of(name: str, id_: int) -> tuple[bytes, str, str]:
    """Return the body, the encoding and the type of a tool's answer."""
    head = HEAD % id_
    body, encoding, kind = packed(head + b"ok", 0, 31), "gzip", "application/json"
    match name:
        case "gzip_bomb":
            body = packed(head, 150, 31)
        case "deflate_bomb":
            body, encoding = packed(head, 150, 15), "deflate"
        case "event_bomb":
            body, kind = packed(b"data: " + head, 150, 31), "text/event-stream"
        case "two_layers":
            body, encoding = gzip.compress(packed(head, 1, 31)), "gzip, gzip"
        case "other_encoding":
            body, encoding = head, "br"
        case "damaged":
            body = b"\x1f\x8bno gzip at all"
    return body, encoding, kind


async def respond(request: Request) -> Response:
    """Be a server whose tools answer with the bodies of `answer_of`."""
    if request.method == "GET":
        return Response(status_code=405)
    message = await request.json()
    params, id_ = message.get("params", {}), message.get("id")
    if id_ is None:
        return Response(status_code=202)
    if message["method"] == "tools/call":
        body, encoding, kind = answer_of(params["name"], id_)
        return Response(body, headers={"content-encoding": encoding, "content-type": kind})
    names = ("fine", *BOMBS)
    result: dict[str, Any] = {
        "protocolVersion": params.get("protocolVersion"),
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "one", "version": "1"},
        "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names],
    }
    return JSONResponse({"jsonrpc": "2.0", "id": id_, "result": result})


BOMBS = {
    "gzip_bomb": "returned an answer of over 64,000,000 bytes",
    "deflate_bomb": "returned an answer of over 64,000,000 bytes",
    "event_bomb": "exceeded the 64000000 byte limit",
    "two_layers": "returned an answer that is not valid JSON-RPC",
    "other_encoding": "returned an answer that is not valid JSON-RPC",
    "damaged": "returned an answer that is not valid JSON-RPC",
}


@pytest.fixture
async def upstream() -> AsyncIterator[ServerConfig]:
    routes = [Route("/mcp", respond, methods=["GET", "POST"])]
    async with serving(lambda _: Starlette(routes=routes)) as port:
        yield ServerConfig(url=f"http://127.0.0.1:{port}/mcp")


@pytest.mark.parametrize("name", BOMBS)
async def test_a_body_that_unpacks_to_more_than_the_limit_fails_its_call(
    upstream: ServerConfig, name: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with host_of(config_of(one=upstream), mode="legacy") as host:
        await host.list_tools()
        try:
            problem = text_of(await host.call_tool(name, {}))
        except MCPError as exc:  # the SDK's own limit for an event
            problem = exc.message
        assert BOMBS[name] in problem
        # A compressed answer within the limit is read.
        assert text_of(await host.call_tool("fine", {})) == "ok"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KB
