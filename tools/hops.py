"""Prints how far a reader has to walk: files entered, functions entered, calls and moves between files.

Each walk is one real call on a small session. The model answers from a script: in the process, or
behind HTTP, where the library's own client is part of the walk. Everything runs once before it is
counted, so that imports are left out. Run:

    make hops                   # a table in Markdown
    make hops HOPS=--files      # and the files of each walk, with the functions entered
    make hops HOPS=--json

What is counted, by `sys.setprofile` in every thread: calls of Python functions of the package,
lambdas included. Comprehensions and generator expressions are part of the function that holds them
(Python 3.12 inlines most of them). A coroutine or generator that goes on after an `await` or
`yield` is not called again. The doubles in `llm_common.testing` stand for a model and are left out.
A move is a call in another file than the call before it.
"""

import argparse
import asyncio
import dis
import json
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import llm_common
from llm_common.agents import (
    AgenticExecutor,
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    Session,
    Sessions,
    ToolRegistry,
    ToolSelector,
)
from llm_common.agents.schemas import PlannedTask
from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.host_results import HostResults, ServerOutput
from llm_common.context import TurnEntry
from llm_common.core import LLMClient, LLMConfig, OpenAICompatibleClient
from llm_common.folders import pack_folder
from llm_common.testing import ScriptedClient

PACKAGE = Path(llm_common.__file__).parent
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
RESUME = dis.opmap["RESUME"]
QUERY = "Is it snowing in Oslo?"
REPORT = [{"city": "Oslo", "hour": hour, "report": "snow", "degrees": -3.5} for hour in range(7)]
ROWS = [{"id": number, "note": "snow in Oslo" if number % 7 else "fog"} for number in range(900)]
CALLS = '{"calls": [{"tool": "weather", "args": {"city": "Oslo"}}]}'


@dataclass(frozen=True)
class Walk:
    """The files and functions that one call of the public API enters."""

    name: str
    files: int
    functions: int
    calls: int
    moves: int
    entered: dict[str, list[str]] = field(default_factory=dict)
    """Functions by file, both in the order in which they are entered."""


def starts(frame: FrameType) -> bool:
    """Return whether the frame starts, and does not resume after an `await` or a `yield`."""
    instruction = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return instruction[:1] != bytes([RESUME]) or instruction[1:] == b"\0"


class Recorder:
    """Counts the calls of package code, in all threads, while a walk is open."""

    def __init__(self) -> None:
        self.walks: list[Walk] = []
        self._calls: list[CodeType] | None = None

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        if self._calls is not None and event == "call" and starts(frame):
            self._calls.append(frame.f_code)

    @contextmanager
    def walk(self, name: str) -> Iterator[None]:
        calls: list[CodeType] = []
        self._calls = calls
        yield
        self._calls = None
        steps = [(file, code.co_qualname) for code in calls if (file := file_of(code)) is not None]
        entered: dict[str, list[str]] = {}
        for file, function in dict.fromkeys(steps):
            entered.setdefault(file, []).append(function)
        self.walks.append(
            Walk(
                name=name,
                files=len(entered),
                functions=len(set(steps)),
                calls=len(steps),
                moves=sum(before[0] != after[0] for before, after in pairwise(steps)),
                entered=entered,
            )
        )


@cache
def file_of(code: CodeType) -> str | None:
    """Return the file of a package function that counts, else None."""
    path = Path(code.co_filename)
    if code.co_name in COMPREHENSIONS or not path.is_relative_to(PACKAGE):
        return None
    name = path.relative_to(PACKAGE).as_posix()
    return None if name == "testing.py" else name


class ScriptedEndpoint(BaseHTTPRequestHandler):
    """An endpoint on loopback that replies in the order of a script."""

    protocol_version = "HTTP/1.1"
    replies: Iterator[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": next(self.replies)}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = json.dumps(
            {"id": "1", "model": "scripted", "choices": [choice], "usage": usage}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@asynccontextmanager
async def in_process(*replies: str) -> AsyncIterator[LLMClient]:
    yield ScriptedClient(replies)


@asynccontextmanager
async def over_http(*replies: str) -> AsyncIterator[LLMClient]:
    handler = type("Handler", (ScriptedEndpoint,), {"replies": iter(replies)})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()
        config = LLMConfig(
            base_url=f"http://127.0.0.1:{server.server_port}/v1", default_model="scripted"
        )
        async with OpenAICompatibleClient(config) as client:
            yield client
        server.shutdown()


MODELS: dict[str, Callable[..., AbstractAsyncContextManager[LLMClient]]] = {
    "": in_process,
    ", HTTP": over_http,
}


def new_registry() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool
    async def weather(city: str) -> list[dict[str, object]]:
        """Report the weather of a city."""
        return [{"place": city}, *REPORT]

    return registry


async def save(store: FileContextPointerStore, city: str) -> None:
    await store.save(
        query_id="q", task_id=None, tool_name="weather", args={"city": city}, result=REPORT
    )


async def walk_through_store(folder: Path, recorder: Recorder) -> list[ContextPointer]:
    """Walk through a store, and return its three pointers."""
    store = FileContextPointerStore(folder)
    with recorder.walk("save"):
        await save(store, "Oslo")
    with recorder.walk("save of the same call again"):
        await save(store, "Oslo")
    for city in ("Lima", "Rome"):
        await save(store, city)
    new_store = FileContextPointerStore(folder)
    with recorder.walk("list"):
        pointers = new_store.list(query_id="q")
    with recorder.walk("list again"):
        new_store.list(query_id="q")
    with recorder.walk("load"):
        store.load_result(pointer=pointers[0])
    return pointers


async def walk_through_doors(folder: Path, recorder: Recorder) -> None:
    """Walk through hooks, the gateway and packing."""
    session = Sessions(folder / "doors").get("user:42")
    with recorder.walk("hook: offload a result"):
        assert (await session.offload(ROWS, tool="list", args={}, query=QUERY)).pointer_id
    messages = [
        {"role": role, "content": f"message {number} " + "word " * 300}
        for number in range(100)
        for role in ("user", "assistant")
    ]
    with recorder.walk("hook: fold 200 messages"):
        assert len(await session.fold(messages)) < len(messages)
    config = GatewayConfig.model_validate({"servers": {"weather": {"command": "x"}}})
    results = HostResults(config, FileContextPointerStore(folder / "gateway"))
    limits = config.result_limits("weather", "list")
    with recorder.walk("gateway: preview a result"):
        assert await results.preview(ServerOutput(ROWS), limits, tool="list", args={"city": "Oslo"})
    packing = Session(folder / "packing")
    await packing.offload(ROWS, tool="list", args={}, query=QUERY)
    now = datetime.now(UTC)
    turns = [
        TurnEntry(id=f"t{number}", timestamp=now, role="user", content=f"snow {number}")
        for number in range(20)
    ]
    with recorder.walk("pack an output and turns"):
        assert (await packing.pack(QUERY, max_tokens=900, turns=turns)).render()
    tree = folder / "tree"
    tree.mkdir()
    for number in range(20):
        (tree / f"m{number}.py").write_text(f"def parse_{number}():\n    return 'status'\n" * 5)
    with recorder.walk("pack a folder"):
        pack_folder("where is the status", tree, cache_dir=folder / "cache", budget_tokens=1_000)


async def walk_through_all(folder: Path, recorder: Recorder) -> None:
    """Make each walk once, in a new folder."""
    pointers = await walk_through_store(folder / "store", recorder)
    await walk_through_doors(folder, recorder)
    registry, task = new_registry(), PlannedTask(id=1, description=QUERY)
    ids = json.dumps({"pointer_ids": [pointers[0].pointer_id]})
    for how, model in MODELS.items():
        async with model(ids) as client:
            relevance = ContextRelevanceSelector(client)
            with recorder.walk(f"select outputs{how}"):
                assert await relevance.select(query=QUERY, pointers=pointers)
        async with model(CALLS) as client:
            selector = ToolSelector(client)
            with recorder.walk(f"select tools{how}"):
                assert await selector.select_tool_calls(
                    task=task, tool_registry=registry, query=QUERY
                )
        async with model(CALLS, "It snows.") as client:
            executor = AgenticExecutor(client, registry, Session(folder / f"session{how}"))
            with recorder.walk(f"run{how}"):
                assert (await executor.run(QUERY)).text == "It snows."


def measure() -> list[Walk]:
    """Return the walks, in the order of the table."""
    recorder, before = Recorder(), sys.getprofile()
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
    try:
        for _ in range(2):
            recorder.walks.clear()
            with tempfile.TemporaryDirectory() as folder:
                asyncio.run(walk_through_all(Path(folder), recorder))
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return recorder.walks


def table(walks: list[Walk]) -> str:
    lines = ["| walk | files | functions | calls | moves |", "|---|---|---|---|---|"]
    lines += [
        f"| {walk.name} | {walk.files} | {walk.functions} | {walk.calls} | {walk.moves} |"
        for walk in walks
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How far a reader has to walk.")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--files", action="store_true", help="print the files of each walk too")
    options = parser.parse_args(arguments)
    walks = measure()
    if options.json:
        print(json.dumps([asdict(walk) for walk in walks], indent=1))
        return
    print(table(walks))
    for walk in walks if options.files else []:
        print(f"\n{walk.name}")
        for file, functions in walk.entered.items():
            print(f"  {file}: {', '.join(functions)}")


if __name__ == "__main__":
    main()
