"""Anthropic's messages endpoint on loopback with a script, for Claude Code and Anthropic's client."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.integrations.scripted_endpoint import Endpoint, Step, listening, text_of

_NUMBERS = count()  # a resumed conversation must not have an id twice


@contextmanager
def scripted_messages(*steps: Step) -> Iterator[Endpoint]:
    """Serve the steps in turn to requests with tools of our own, and "ok" to others."""
    endpoint = Endpoint(steps)
    with served_messages(endpoint):
        yield endpoint
    assert not endpoint.steps


@contextmanager
def served_messages(endpoint: Endpoint) -> Iterator[None]:
    """Serve an endpoint on loopback."""

    def answer(body: dict[str, Any]) -> tuple[str, bytes]:
        blocks = _blocks(endpoint, body)
        if body.get("stream"):
            return "text/event-stream", _stream(blocks)
        return "application/json", _message(blocks)

    with listening(answer) as url:
        endpoint.url = url
        yield


def _blocks(endpoint: Endpoint, body: dict[str, Any]) -> list[dict[str, Any]]:
    names = [tool["name"] for tool in body.get("tools", ()) if "name" in tool]
    # Claude Code also asks for titles and the like. All agents here read back.
    if not any(name.endswith("read_context") for name in names):
        return [{"type": "text", "text": "ok"}]
    content = endpoint.step(body)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    calls = []
    for name, args in content:
        call_id = f"toolu_{next(_NUMBERS)}"
        calls.append({"type": "tool_use", "id": call_id, "name": name, "input": args})
    return calls


def _head(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": f"msg_{next(_NUMBERS)}",  # Claude Code joins messages with the same id
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
