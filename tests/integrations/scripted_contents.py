"""Gemini's endpoint on loopback with a script, for Google's ADK."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integrations.scripted_endpoint import Endpoint, listening


@contextmanager
def served_contents(endpoint: Endpoint) -> Iterator[None]:
    """Serve an endpoint on loopback."""

    def answer(body: dict[str, Any]) -> tuple[str, bytes]:
        reply = endpoint.step(_as_chat(body), body)
        parts: list[dict[str, Any]] = []
        if isinstance(reply, str):
            parts.append({"text": reply})
        else:
            parts += [{"functionCall": {"name": name, "args": args}} for name, args in reply]
        content = {"role": "model", "parts": parts}
        candidate = {"index": 0, "content": content, "finishReason": "STOP"}
        return "application/json", json.dumps({"candidates": [candidate]}).encode()

    with listening(answer) as url:
        endpoint.url = url
        yield


def _as_chat(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request in the shape of chat completions."""
    messages: list[dict[str, Any]] = []
    for content in body["contents"]:
        role = "assistant" if content["role"] == "model" else "user"
        for part in content["parts"]:
            if call := part.get("functionCall"):
                messages.append({"role": role, "content": None, "tool_calls": [call]})
            elif result := part.get("functionResponse"):
                text = "\n".join(map(str, result["response"].values()))
                messages.append({"role": "tool", "content": text})
            else:
                messages.append({"role": role, "content": part.get("text", "")})
    tools = []
    for tool in body.get("tools", ()):
        for function in tool.get("functionDeclarations", ()):
            schema = function.get("parameters_json_schema")
            tools.append({"function": {**function, "parameters": schema}})
    return {"messages": messages, "tools": tools}
