"""A chat completions endpoint on loopback with a script, and tools with results of 300 KB."""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any

Calls = list[tuple[str, dict[str, Any]]]
Reply = str | Calls
Step = Reply | Callable[[list[dict[str, Any]]], Reply]
"""A reply of the model: a text, or calls. A function gets the messages of the request."""

_NUMBERS = count()  # a resumed conversation must not have an id twice

POINTER = re.compile(r"the id ([0-9a-f]{12,16})")
REPORT: Calls = [("list_orders", {"customer": "bob"}), ("read_log", {"customer": "bob"})]


def list_orders(customer: str) -> str:
    """List all orders of a customer.

    Args:
        customer: Who placed the orders.
    """
    return json.dumps(
        [
            {"id": number, "name": f"part {number}", "code": f"S-{customer}-{number}"}
            for number in range(5_000)
        ]
    )


async def read_log(customer: str) -> str:
    """Read the log of a customer.

    Args:
        customer: Whose log it is.
    """
    return read_log_now(customer)


def read_log_now(customer: str) -> str:
    """Read the log of a customer.

    Args:
        customer: Whose log it is.
    """
    lines = [f"{number:06} INFO the request of {customer} is served" for number in range(6_000)]
    lines[3_777] = f"003777 ERROR a disk of {customer} failed"
    return "\n".join(lines)


def check_audit(customer: str) -> str:
    """Check the audit of a customer.

    Args:
        customer: Whose audit it is.
    """
    raise RuntimeError(f"the audit of {customer} is down")


class Endpoint:
    """The requests that arrived, and the replies to come."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps = deque(steps)
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    def step(self, body: dict[str, Any]) -> Reply:
        """Record a request and return the next reply of the model."""
        self.requests.append(body)
        step = self.steps.popleft()
        return step(body["messages"]) if callable(step) else step

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the next message of the model."""
        content = self.step(body)
        if isinstance(content, str):
            return {"role": "assistant", "content": content}
        calls = []
        for name, args in content:
            function = {"name": name, "arguments": json.dumps(args)}
            call_id = f"call_{next(_NUMBERS)}"
            calls.append({"id": call_id, "type": "function", "function": function})
        return {"role": "assistant", "content": None, "tool_calls": calls}

    @property
    def largest(self) -> int:
        """Return the characters of the longest request."""
        return max(len(json.dumps(body)) for body in self.requests)


@contextmanager
def scripted(*steps: Step) -> Iterator[Endpoint]:
    """Serve the steps in turn, and check that all of them are used."""
    endpoint = Endpoint(steps)
    with served(endpoint):
        yield endpoint
    assert not endpoint.steps


@contextmanager
def served(endpoint: Endpoint) -> Iterator[None]:
    """Serve an endpoint on loopback."""

    def answer(body: dict[str, Any]) -> tuple[str, bytes]:
        message = endpoint.reply(body)
        if body.get("stream"):
            return "text/event-stream", _stream(message)
        return "application/json", _completion(message)

    with listening(answer) as url:
        endpoint.url = f"{url}/v1"
        yield


@contextmanager
def listening(answer: Callable[[dict[str, Any]], tuple[str, bytes]]) -> Iterator[str]:
    """Serve JSON requests on loopback by a function that returns a media type and a body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            kind, content = answer(body)
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def _completion(message: dict[str, Any]) -> bytes:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return json.dumps({**_head("chat.completion"), "choices": [choice]}).encode()


def _stream(message: dict[str, Any]) -> bytes:
    calls = message.get("tool_calls", [])
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": message["content"]}]
    # One call a chunk, as OpenAI sends them.
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(calls)]
    deltas.append({})
    events = []
    for number, delta in enumerate(deltas, start=1):
        reason = None
        if number == len(deltas):
            reason = "tool_calls" if calls else "stop"
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        chunk = {**_head("chat.completion.chunk"), "choices": [choice]}
        events.append(f"data: {json.dumps(chunk)}\n\n")
    return "".join([*events, "data: [DONE]\n\n"]).encode()


def _head(kind: str) -> dict[str, Any]:
    usage = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    return {"id": "1", "object": kind, "created": 1, "model": "scripted", "usage": usage}


def text_of(message: dict[str, Any]) -> str:
    """Return the content of a message as one text."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content)


def results_in(messages: list[dict[str, Any]]) -> list[str]:
    """Return the texts of the tools' messages."""
    return [text_of(message) for message in messages if message["role"] == "tool"]


def pointer_of(tool: str, messages: list[dict[str, Any]]) -> str:
    """Return the pointer in the newest preview of a tool."""
    preview = [text for text in results_in(messages) if f"### {tool} (" in text][-1]
    return str(POINTER.findall(preview)[0])


def read_both(messages: list[dict[str, Any]]) -> Reply:
    """Return the calls that read one row and one line of the two results."""
    orders, log = pointer_of("list_orders", messages), pointer_of("read_log", messages)
    return [
        ("read_context", {"id": orders, "path": "/4321/code"}),
        ("read_context", {"id": log, "pattern": "ERROR.*"}),
    ]


def newest_results(messages: list[dict[str, Any]]) -> str:
    """Answer with the two newest results."""
    return "\n".join(results_in(messages)[-2:])


def newest_result(messages: list[dict[str, Any]]) -> str:
    """Answer with the newest result."""
    return results_in(messages)[-1]
