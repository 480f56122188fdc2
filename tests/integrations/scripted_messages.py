"""Anthropic's messages endpoint on loopback with a script, for Claude Code and Anthropic's client."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any

from tests.integrations.scripted_endpoint import Endpoint, Step, text_of

_NUMBERS = count()  # a resumed conversation must not have an id twice


@contextmanager
def scripted_messages(*steps: Step) -> Iterator[Endpoint]:
    """Serve the steps in turn to requests with tools of our own, and "ok" to others."""
    endpoint = Endpoint(steps)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            blocks = _blocks(endpoint, body)
            content, kind = _message(blocks), "application/json"
            if body.get("stream"):
                content, kind = _stream(blocks), "text/event-stream"
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        endpoint.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield endpoint
        finally:
            server.shutdown()
    assert not endpoint.steps


def _blocks(endpoint: Endpoint, body: dict[str, Any]) -> list[dict[str, Any]]:
    names = [tool["name"] for tool in body.get("tools", ()) if "name" in tool]
    # Claude Code also asks for titles and the like. All agents here read back.
    if not any(name.endswith("read_context") for name in names):
        return [{"type": "text", "text": "ok"}]
    endpoint.requests.append(body)
    step = endpoint.steps.popleft()
    content = step(body["messages"]) if callable(step) else step
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    calls = []
    for name, args in content:
        call_id = f"toolu_{next(_NUMBERS)}"
        calls.append({"type": "tool_use", "id": call_id, "name": name, "input": args})
    return calls


def _head(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": blocks,
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }


def _reason(blocks: list[dict[str, Any]]) -> str:
    return "tool_use" if blocks[0]["type"] == "tool_use" else "end_turn"


def _message(blocks: list[dict[str, Any]]) -> bytes:
    return json.dumps(_head(blocks) | {"stop_reason": _reason(blocks)}).encode()


def _stream(blocks: list[dict[str, Any]]) -> bytes:
    events: list[dict[str, Any]] = [{"type": "message_start", "message": _head([])}]
    for index, block in enumerate(blocks):
        delta = {"type": "text_delta", "text": block.get("text", "")}
        empty = block | {"text": ""}
        if block["type"] == "tool_use":
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            empty = block | {"input": {}}
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    end = {"stop_reason": _reason(blocks), "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 10}})
    events.append({"type": "message_stop"})
    lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "".join(lines).encode()


def newest_results(messages: list[dict[str, Any]]) -> str:
    """Answer with the results of the newest calls."""
    for message in reversed(messages):
        if isinstance(message["content"], list):
            results = [b for b in message["content"] if b["type"] == "tool_result"]
            if results:
                return "\n".join(map(text_of, results))
    raise AssertionError("no tool was called")
