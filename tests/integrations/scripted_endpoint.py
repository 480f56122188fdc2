"""A chat completions endpoint on loopback with a script, and what the script of a model needs.

Endpoints of other providers translate a request into the shape of chat completions, so one script
serves all of them.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import Any

Messages = list[dict[str, Any]]
Calls = list[tuple[str, dict[str, Any]]]
Reply = str | Calls
Step = Reply | Callable[[Messages], Reply]
"""A reply of the model: a text, or calls. A function gets the messages of the request."""

_NUMBERS = count()  # a resumed conversation must not have an id twice

POINTER = re.compile(r"the id ([0-9a-f]{12,16})")
BOB = {"customer": "bob"}
REPORT: Calls = [("list_orders", BOB), ("read_log", BOB)]


class Endpoint:
    """The requests that arrived, and the replies to come."""

    def __init__(self, *steps: Step) -> None:
        self.steps = deque(steps)
        self.requests: list[dict[str, Any]] = []
        self.largest = 0
        self.url = ""

    def step(self, body: dict[str, Any], sent: dict[str, Any]) -> Reply:
        """Record a request and return the next reply of the model.

        Args:
            body: The request in the shape of chat completions.
            sent: The request as it arrived, of which `largest` has the most characters.
        """
        self.requests.append(body)
        self.largest = max(self.largest, len(json.dumps(sent)))
        reply = self.reply_to(body)
        declared = declared_by(body)
        if not isinstance(reply, str):
            return [(declared_name(name, declared), args) for name, args in reply]
        # smolagents ends a run by a tool.
        if "final_answer" in declared:
            return [("final_answer", {"answer": reply})]
        return reply

    def reply_to(self, body: dict[str, Any]) -> Reply:
        """Return the next reply, with the names of the tools as they are written."""
        step = self.steps.popleft()
        return step(body["messages"]) if callable(step) else step


Serve = Callable[[Endpoint], AbstractContextManager[None]]


@contextmanager
def scripted(*steps: Step) -> Iterator[Endpoint]:
    """Serve the steps in turn, and check that all of them are used."""
    endpoint = Endpoint(*steps)
    with served(endpoint):
        yield endpoint
    assert not endpoint.steps


@contextmanager
def served(endpoint: Endpoint) -> Iterator[None]:
    """Serve an endpoint on loopback."""

    def answer(body: dict[str, Any]) -> tuple[str, bytes]:
        message = _message(endpoint.step(body, body))
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


def _message(reply: Reply) -> dict[str, Any]:
    if isinstance(reply, str):
        return {"role": "assistant", "content": reply}
    calls = []
    for name, args in reply:
        function = {"name": name, "arguments": json.dumps(args)}
        calls.append({"id": f"call_{next(_NUMBERS)}", "type": "function", "function": function})
    return {"role": "assistant", "content": None, "tool_calls": calls}


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


def declared_by(body: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of the tools that a request offers, by name."""
    functions = [tool["function"] for tool in body.get("tools", ())]
    return {function["name"]: function.get("parameters") for function in functions}


def declared_name(name: str, declared: dict[str, Any]) -> str:
    """Return the name of a tool as the framework declares it. Claude Code puts the server before."""
    return next((tool for tool in declared if tool.endswith(f"__{name}")), name)


def text_of(content: Any) -> str:
    """Return a message's content as one text."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content or ():
        inner = block.get("text") or block.get("content")
        texts.append(inner if isinstance(inner, str) else text_of(inner))
    return "\n".join(texts)


def results_in(messages: Messages) -> list[str]:
    """Return the texts of the tools' messages."""
    return [text_of(one.get("content")) for one in messages if one["role"] == "tool"]


def newest_results(messages: Messages) -> str:
    """Answer with what followed the newest reply: results, which smolagents sends as the user's."""
    texts: list[str] = []
    for message in reversed(messages):
        if message["role"] == "assistant":
            break
        texts.insert(0, text_of(message.get("content")))
    return "\n".join(texts)


def pointer_of(tool: str, messages: Messages) -> str:
    """Return the pointer in the newest preview of a tool."""
    everything = "\n".join(text_of(message.get("content")) for message in messages)
    return str(re.findall(rf"### {tool} \(([0-9a-f]{{12,16}})\)", everything)[-1])


def reading(pointer_id: str, path: str = "/4321/code") -> Calls:
    """Return the call that reads a part of a result."""
    return [("read_context", {"id": pointer_id, "path": path})]


def read_both(messages: Messages) -> Reply:
    """Return the calls that read one row and one line of the two results."""
    log = {"id": pointer_of("read_log", messages), "pattern": "ERROR.*"}
    return [*reading(pointer_of("list_orders", messages)), ("read_context", log)]
