"""Anthropic's messages endpoint on loopback with a script, for Claude Code and Anthropic's client."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.integrations.scripted_endpoint import Endpoint, declared_by, listening

_NUMBERS = count()  # a resumed conversation must not have an id twice


@contextmanager
def served_messages(endpoint: Endpoint) -> Iterator[None]:
    """Serve an endpoint on loopback, to requests with tools of ours. Others get "ok"."""

    def answer(body: dict[str, Any]) -> tuple[str, bytes]:
        blocks = _blocks(endpoint, body)
        if body.get("stream"):
            return "text/event-stream", _stream(blocks)
        return "application/json", _message(blocks)

    with listening(answer) as url:
        endpoint.url = url
        yield


def _blocks(endpoint: Endpoint, body: dict[str, Any]) -> list[dict[str, Any]]:
    chat = _as_chat(body)
    # Claude Code also asks for titles and the like. All agents here read back.
    if not any(name.endswith("read_context") for name in declared_by(chat)):
        return [{"type": "text", "text": "ok"}]
    reply = endpoint.step(chat, body)
    if isinstance(reply, str):
        return [{"type": "text", "text": reply}]
    calls = []
    for name, args in reply:
        call_id = f"toolu_{next(_NUMBERS)}"
        calls.append({"type": "tool_use", "id": call_id, "name": name, "input": args})
    return calls


def _as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request in the shape of chat completions, with a message for each result."""
    messages: list[dict[str, Any]] = []
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            role = "tool" if block["type"] == "tool_result" else message["role"]
            messages.append({"role": role, "content": [block]})
    tools = []
    for tool in body.get("tools", ()):
        if "input_schema" in tool:
            function = {"name": tool["name"], "parameters": tool["input_schema"]}
            tools.append({"function": function})
    return {"messages": messages, "tools": tools}


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
