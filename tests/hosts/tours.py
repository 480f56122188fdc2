"""Tours: a host works through a script, ends, and goes on with the same conversation."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from llm_common.core import DefaultCounter
from tests.hosts.real_hosts import RealHost
from tests.hosts.scripted_model import (
    HOST_SEARCHES,
    Arguments,
    ModelRequest,
    ScriptedModel,
    Step,
    ToolResult,
    call,
    find_tool,
)
from tests.hosts.workspace import COMMITS, asleep_file, make_workspace, servers_of
from tests.model_server import serving

WAYS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "direct": (),
    # All servers are listed, however loaded the machine is.
    "gateway": ("--tools", "all", "--list-wait", "60"),
    "search": ("--tools", "search"),
}
"""How a host reaches the servers, with the options of the gateway. `none` has no servers."""

RESUMED_WAY = "gateway"
FIRST_PROMPT = "How did the ports of the services change?"
SECOND_PROMPT = "And what did you read from the log before?"
READER = "context"
SILENT_TOOL = "wake_up"
PART_LINES = (100, 103)
PART_COMMIT = 281
"""The commit whose message these lines of the log hold."""

_COUNTER = DefaultCounter()
_LOG_HEAD = re.compile(r"### git_log \((\w+)\)")
_LOG_TABLE = re.compile(r"\bFROM (git_log_\w+)")


@dataclass(frozen=True)
class Tour:
    """What a host showed its model.

    Attributes:
        first_requests: The first request of each prompt, in order.
        results: The result of each step, by its label, as the last request shows it.
        images: The images in the last request of each prompt.
        output: What the host printed.
    """

    first_requests: tuple[ModelRequest, ...]
    results: Mapping[str, ToolResult]
    images: tuple[int, ...]
    output: str

    def text(self, label: str) -> str:
        """Return what the model saw of a step's result."""
        assert label in self.results, f"no result of {label}; the host printed:\n{self.output}"
        return self.results[label].text


def run_tour(host: RealHost, way: str, folder: Path) -> Tour:
    """Run a host with a script, and on the resumed way once more in the same conversation."""
    workspace = make_workspace(folder)
    home = folder / "home"
    home.mkdir()
    servers = {} if way == "none" else servers_of(workspace)
    scripts = {FIRST_PROMPT: steps_of(workspace, way)}
    if way == RESUMED_WAY:
        # The query first, because reading the result might make its table known.
        scripts[SECOND_PROMPT] = {"queried again": count_commits, "resumed": read_part}
        if host.defers_tools:
            scripts[SECOND_PROMPT]["loaded"] = load_silent_tool
    model = ScriptedModel({prompt: [*steps.values()] for prompt, steps in scripts.items()})

    results: dict[str, ToolResult] = {}
    first_requests: list[ModelRequest] = []
    images: list[int] = []
    output = ""
    with serving(model.answer) as url:
        host.configure(home, servers, url)
        if WAYS[way]:
            host.install_gateway(home, WAYS[way])
        for prompt, steps in scripts.items():
            before = len(model.requests)
            output += host.run(
                prompt,
                home=home,
                workspace=workspace,
                model_url=url,
                resume=prompt == SECOND_PROMPT,
            )
            # A request without tools is for a title of the conversation.
            with_tools = [request for request in model.requests[before:] if request.tools]
            first_requests.append(with_tools[0])
            asleep_file(workspace).touch()
            results |= zip(steps, model.results_of(prompt), strict=False)
            images.append(model.requests[-1].images)
    return Tour(tuple(first_requests), results, tuple(images), output)


def steps_of(workspace: Path, way: str) -> dict[str, Step]:
    """Return the steps of the first prompt, by label."""
    if way == "none":
        return {}
    steps = {"log": call("git_log", repo_path=str(workspace), max_count=COMMITS)}
    if way != "direct":
        steps["part"] = read_part
        steps["queried"] = count_commits
    inside, outside = workspace / "inside.txt", workspace.parent / "outside" / "outside.txt"
    steps["inside"] = call("read_text_file", path=str(inside))
    steps["outside"] = call("read_text_file", path=str(outside))
    steps["picture"] = call("get-tiny-image")
    return steps


def read_part(request: ModelRequest) -> tuple[str, Arguments]:
    """Read some lines of the stored log."""
    return READER, {"id": pointer_id(request), "lines": list(PART_LINES)}


def count_commits(request: ModelRequest) -> tuple[str, Arguments]:
    """Ask the table of the stored log with SQL."""
    table = _first_match(_LOG_TABLE, request)
    return READER, {"sql": f"SELECT 'commits: ' || count(*) FROM {table}"}


def load_silent_tool(request: ModelRequest) -> tuple[str, Arguments]:
    """Load a tool whose server is silent since the restart, with the host's search."""
    search = find_tool(request.tools, *HOST_SEARCHES)
    assert search is not None
    return search.name, {"query": f"select:mcp__gateway__{SILENT_TOOL}", "max_results": 5}


def pointer_id(request: ModelRequest) -> str:
    """Return the id in the preview of the log."""
    return _first_match(_LOG_HEAD, request)


def _first_match(pattern: re.Pattern[str], request: ModelRequest) -> str:
    for turn in request.turns:
        if isinstance(turn, ToolResult):
            match = pattern.search(turn.text)
            if match:
                return match[1]
    return "none"


def tokens_of(text: str) -> int:
    """Return an estimate of the tokens of a text."""
    return _COUNTER.count(text)


def request_tokens(request: ModelRequest) -> int:
    """Return an estimate of the tokens of a whole request."""
    return tokens_of(json.dumps(request.body, ensure_ascii=False))
