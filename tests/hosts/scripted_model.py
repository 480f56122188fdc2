"""A model that follows a script, whatever host asks it."""

import re
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.wire_formats import (
    Answer,
    Json,
    ListedTool,
    ToolCall,
    messages_of,
    text_of,
    texts_in,
    tools_of,
)

END_OF_SCRIPT = "END OF THE SCRIPT"
NO_SUCH_TOOL = "THE HOST LISTS NO TOOL"
HOST_SEARCHES = ("ToolSearch", "tool_search")
"""How Claude Code and Qwen Code name the search that loads a deferred tool."""
HOST_BRIDGE = "tool_call"
"""Through this tool Qwen Code calls a deferred one. Claude Code calls it by its name."""
GATEWAY_SEARCH = "search_tools"
GATEWAY_CALL = "call_tool"

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class UserText:
    """A text of the user, or of the host in the user's name."""

    text: str


@dataclass(frozen=True)
class ToolResult:
    """What a host shows its model of a tool's result."""

    call_id: str
    text: str


@dataclass(frozen=True)
class ModelRequest:
    """A request of a host."""

    body: Json
    tools: tuple[ListedTool, ...]
    turns: tuple[UserText | ToolResult, ...]
    images: int

    @classmethod
    def of(cls, wire_format: str, body: Json) -> "ModelRequest":
        """Return a request that arrived in one of the formats."""
        turns: list[UserText | ToolResult] = []
        for message in messages_of(wire_format, body):
            text = text_of(message["content"])
            if message["role"] == "user":
                turns.append(UserText(text))
            elif message["role"] == "tool":
                turns.append(ToolResult(message["tool_call_id"], text))
        entries = [body.get(key) for key in ("messages", "input", "contents")]
        return cls(body, tuple(tools_of(body)), tuple(turns), _count_images(entries))

    @property
    def text(self) -> str:
        """All texts of the request, also those of the host's own instructions."""
        return "\n".join(texts_in(self.body))


def _count_images(value: object) -> int:
    """Return the number of images anywhere in the entries of a request."""
    if isinstance(value, Mapping):
        own = value.get("type") in {"image", "image_url", "input_image"} or "inlineData" in value
        return own + sum(_count_images(member) for member in value.values())
    if isinstance(value, list):
        return sum(_count_images(member) for member in value)
    return 0


Step = Callable[[ModelRequest], tuple[str, Arguments]]
"""Returns the tool to call and its arguments, which may depend on earlier results.

The tool has the name that its server gives it. Hosts and the gateway add prefixes.
"""


def call(tool: str, **arguments: Any) -> Step:
    """Return a step whose call does not depend on earlier results."""
    return lambda _: (tool, arguments)


class ScriptedModel:
    """Answers each prompt with its script, one step a request, and records the requests.

    A tool that is not listed is looked for first: with the host's search if the host defers it,
    and with the gateway's otherwise.
    """

    def __init__(self, scripts: Mapping[str, Sequence[Step]]) -> None:
        self.requests: list[ModelRequest] = []
        self._scripts = scripts
        # The tool that a call searches for, by the id of the call, and None if it is a step.
        self._searched_by_call: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def answer(self, wire_format: str, body: Json) -> Answer:
        """Return the next step of the newest prompt that has a script."""
        request = ModelRequest.of(wire_format, body)
        with self._lock:
            self.requests.append(request)
            prompt = self._newest_prompt(request)
            if prompt is None or not request.tools:  # a host asks for a title, without tools
                return "A title"
            steps = self._scripts[prompt]
            done = len(self.results_of(prompt, request))
            if done == len(steps):
                return END_OF_SCRIPT
            tool, arguments = steps[done](request)
            reached = self._reach(request, prompt, tool, arguments)
            return [reached] if reached else f"{NO_SUCH_TOOL} {tool}"

    def results_of(self, prompt: str, request: ModelRequest | None = None) -> list[ToolResult]:
        """Return the results of a prompt's steps, as the last request shows them."""
        results = []
        for result in self._results_after(prompt, request or self.requests[-1]):
            if self._searched_by_call[result.call_id] is None:
                results.append(result)
        return results

    def _newest_prompt(self, request: ModelRequest) -> str | None:
        newest = None
        for turn in request.turns:
            if isinstance(turn, UserText):
                newest = next((key for key in self._scripts if key in turn.text), newest)
        return newest

    def _results_after(self, prompt: str, request: ModelRequest) -> list[ToolResult]:
        """Return the results of our calls between a prompt and the next one."""
        results: list[ToolResult] = []
        current = None
        for turn in request.turns:
            if isinstance(turn, UserText):
                current = next((key for key in self._scripts if key in turn.text), current)
            elif current == prompt and turn.call_id in self._searched_by_call:
                results.append(turn)
        return results

    def _reach(
        self, request: ModelRequest, prompt: str, name: str, arguments: Arguments
    ) -> ToolCall | None:
        """Return the call of a tool, or of a search that comes before it, or None."""
        listed = self._reach_in_host(request, prompt, name, arguments)
        if listed is not None:
            return listed
        if name not in self._searched(request, prompt):
            query = {"query": name.replace("_", " ")}
            return self._reach_in_host(request, prompt, GATEWAY_SEARCH, query, searches=name)
        inner = {"name": name, "arguments": arguments}
        return self._reach_in_host(request, prompt, GATEWAY_CALL, inner)

    def _reach_in_host(
        self,
        request: ModelRequest,
        prompt: str,
        name: str,
        arguments: Arguments,
        *,
        searches: str | None = None,
    ) -> ToolCall | None:
        """Return the call of a tool that the host lists or defers, or None.

        Args:
            request: The request to answer.
            prompt: Its newest prompt.
            name: The tool.
            arguments: The arguments of the tool.
            searches: The tool that the call searches for in the gateway, None for a step.
        """
        tool = find_tool(request.tools, name)
        if tool is not None:
            return self._recorded(tool, arguments, searches)
        host_search = find_tool(request.tools, *HOST_SEARCHES)
        deferred = deferred_name(request, name)
        if host_search is None or deferred is None:
            return None
        if deferred not in self._searched(request, prompt):
            query = {"query": f"select:{deferred}", "max_results": 5}
            return self._recorded(host_search, query, deferred)
        bridge = find_tool(request.tools, HOST_BRIDGE)
        if bridge is None:
            return self._recorded(ListedTool(deferred), arguments, searches)
        inner = {"name": deferred, "arguments": arguments}
        return self._recorded(bridge, inner, searches)

    def _searched(self, request: ModelRequest, prompt: str) -> set[str | None]:
        results = self._results_after(prompt, request)
        return {self._searched_by_call[result.call_id] for result in results}

    def _recorded(self, tool: ListedTool, arguments: Arguments, searches: str | None) -> ToolCall:
        call_id = f"call_{uuid.uuid4().hex[:20]}"
        self._searched_by_call[call_id] = searches
        return ToolCall(call_id, tool, arguments)


def find_tool(tools: Sequence[ListedTool], *names: str) -> ListedTool | None:
    """Return the tool that has one of these names, after a prefix of the host."""
    wanted = {name.replace("-", "_") for name in names}
    for tool in tools:
        listed = tool.name.replace("-", "_")  # Codex replaces them
        if listed in wanted or any(listed.endswith(f"_{name}") for name in wanted):
            return tool
    return None


def deferred_name(request: ModelRequest, name: str) -> str | None:
    """Return the full name of a tool that the host only mentions in its instructions."""
    match = re.search(rf"\bmcp__\w+?__{re.escape(name)}\b", request.text)
    return match[0] if match else None
