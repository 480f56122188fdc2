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
        reply = endpoint.step(body)
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
