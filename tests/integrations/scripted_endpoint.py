"""A model on loopback with a script, and what the script needs.

A request of any format has the shape of chat completions, so one script serves all providers.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import count
from typing import Any

from tests.model_server import serving
from tests.wire_formats import Answer, ListedTool, ToolCall, messages_of, text_of, tools_of

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

    def answer(self, wire_format: str, body: dict[str, Any]) -> Answer:
        """Record a request, with its messages as chat completions, and return the next reply."""
        declared = declared_by(body)
        # Claude Code also asks for titles and the like. All agents of its format read back.
        if wire_format == "messages" and not any(
            tool.endswith("read_context") for tool in declared
        ):
            return "ok"
        request = {**body, "messages": messages_of(wire_format, body)}
        self.requests.append(request)
        self.largest = max(self.largest, len(json.dumps(body)))
        reply = self.reply_to(request)
        if isinstance(reply, str):
            # smolagents ends a run by a tool.
            if "final_answer" not in declared:
                return reply
            reply = [("final_answer", {"answer": reply})]
        calls = []
        for name, args in reply:
            tool = ListedTool(declared_name(name, declared))
            calls.append(ToolCall(f"call_{next(_NUMBERS)}", tool, args))
        return calls

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
def served(endpoint: Endpoint, path: str = "/v1") -> Iterator[None]:
    """Serve an endpoint on loopback, with the path that OpenAI's clients want."""
    with serving(endpoint.answer) as url:
        endpoint.url = f"{url}{path}"
        yield


served_without_path = partial(served, path="")
"""Serve an endpoint as Anthropic's and Google's clients want it."""


def declared_by(body: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas of the tools that a request offers, by name."""
    return {tool.name: tool.schema for tool in tools_of(body)}


def declared_name(name: str, declared: dict[str, Any]) -> str:
    """Return the name of a tool as the framework declares it. Claude Code puts the server before."""
    return next((tool for tool in declared if tool.endswith(f"__{name}")), name)


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


def read_listed(messages: Messages) -> Calls:
    """Return the call that reads a part of the listed orders."""
    return reading(pointer_of("list_orders", messages))


def name_listed(messages: Messages) -> str:
    """Answer with the id of the listed orders."""
    return f"They are in the id {pointer_of('list_orders', messages)} now."


def read_both(messages: Messages) -> Reply:
    """Return the calls that read one row and one line of the two results."""
    log = {"id": pointer_of("read_log", messages), "pattern": "ERROR.*"}
    return [*read_listed(messages), ("read_context", log)]
