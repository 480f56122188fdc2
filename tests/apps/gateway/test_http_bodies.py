"""Test that the body of a server over HTTP is limited after its decompression."""

import gzip
import http.server
import json
import resource
import threading
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from llm_common.apps.gateway import ServerConfig
from tests.apps.gateway.hosts import config_of, host_of, text_of

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


class Upstream(http.server.BaseHTTPRequestHandler):
    """A server whose tools answer with the bodies of `answer_of`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(405, b"", "", "")

    def handle(self) -> None:
        with suppress(ConnectionError):  # the gateway reads no further
            super().handle()

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        params, id_ = message.get("params", {}), message.get("id")
        if id_ is None:
            self._send(202, b"", "", "")
        elif message["method"] == "tools/call":
            self._send(200, *answer_of(params["name"], id_))
        else:
            names = ("fine", *BOMBS)
            result: dict[str, Any] = {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "one", "version": "1"},
                "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names],
            }
            body = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}).encode()
            self._send(200, body, "", "application/json")

    def _send(self, status: int, body: bytes, encoding: str, kind: str) -> None:
        self.send_response(status)
        for name, value in (("Content-Encoding", encoding), ("Content-Type", kind)):
            if value:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


BOMBS = {
    "gzip_bomb": "returned an answer of over 64,000,000 bytes",
    "deflate_bomb": "returned an answer of over 64,000,000 bytes",
    "event_bomb": "exceeded the 64000000 byte limit",
    "two_layers": "returned an answer that is not valid JSON-RPC",
    "other_encoding": "returned an answer that is not valid JSON-RPC",
    "damaged": "returned an answer that is not valid JSON-RPC",
}


@pytest.fixture
def upstream() -> Iterator[ServerConfig]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield ServerConfig(url=f"http://127.0.0.1:{server.server_port}/mcp")
        server.shutdown()


async def call(host: Client, name: str) -> types.CallToolResult:
    await host.list_tools()
    return await host.call_tool(name, {})


@pytest.mark.parametrize("name", BOMBS)
async def test_a_body_that_unpacks_to_more_than_the_limit_fails_its_call(
    upstream: ServerConfig, name: str
) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with host_of(config_of(one=upstream), mode="legacy") as host:
        try:
            problem = text_of(await call(host, name))
        except MCPError as exc:  # the SDK's own limit for an event
            problem = exc.message
        assert BOMBS[name] in problem
        assert text_of(await host.call_tool("fine", {})) == "ok"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KB


async def test_a_compressed_answer_is_read(upstream: ServerConfig) -> None:
    async with host_of(config_of(one=upstream), mode="legacy") as host:
        assert text_of(await call(host, "fine")) == "ok"
