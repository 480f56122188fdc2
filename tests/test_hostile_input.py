"""Test that megabytes of hostile text neither block the event loop nor take quadratic time.

Each public coroutine of the packages below has an entry in `CALLS` or in `WITHOUT_TEXT`.
"""

import asyncio
import gc
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    AgenticExecutor,
    Answering,
    ContextBuilder,
    ContextRelevanceSelector,
    ExecutionPlan,
    InMemoryContextPointerStore,
    LexicalRelevanceSelector,
    LexicalToolSelector,
    OffloadPolicy,
    OffloadTurn,
    PlannedTask,
    Planner,
    ReadBackTool,
    Session,
    SubTaskResult,
    Tool,
    ToolCall,
    ToolContextManager,
    ToolRegistry,
    ToolSelector,
    TriggerInput,
    read_context,
)
from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    MemorySnippet,
    TurnEntry,
    classify_intent,
    compress_turns,
)
from llm_common.errors import LLMCommonError
from llm_common.history import FoldPolicy, fold, search_history
from llm_common.integrations import translation
from llm_common.integrations.delegation import calling, take_over_from_callers
from llm_common.integrations.functions import wrap_tool
from llm_common.memory import Event, InMemoryMemory, MemoryFilters, SqliteMemory
from llm_common.testing import ScriptedClient
from llm_common.tools.definitions import ToolDefinition
from tests.loop_cpu import longest_tick_s

MB = 1_000_000
MAX_TICK_S = 0.1
MAX_GROWTH = 20  # from one megabyte to ten
NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
SHAPES: dict[str, Callable[[int], str]] = {
    "names of secrets": lambda size: "token = {" * (size // 9),
    "deep brackets": lambda size: "[" * (size // 2) + "]" * (size // 2),
    "one long word": lambda size: "x" * size,
    "different numbers": lambda size: " ".join(map(str, range(100_000, 100_000 + size // 7))),
    "NULs": lambda size: "\0" * size,
    "half pairs": lambda size: "\ud800 " * (size // 2),
}


@dataclass
class Place:
    """What a call needs besides the hostile text."""

    folder: Path
    store: InMemoryContextPointerStore = field(default_factory=InMemoryContextPointerStore)

    def __post_init__(self) -> None:
        self.session = Session(self.store, session_id="s")
        self.manager = ToolContextManager(pointer_store=self.store)
        self.memory = InMemoryMemory()

    def registry(self, description: str = "Finds a thing.", result: str = "") -> ToolRegistry:
        def find(words: str) -> str:
            return result or words

        tools = [Tool(find, name=f"find_{index}", description=description) for index in range(20)]
        return ToolRegistry(tools)

    async def save(self, text: str, **settings: Any) -> Any:
        return await self.store.save(
            query_id="s", tool_name="web", args={}, result=text, **settings
        )


async def event_of(text: str) -> Event:
    """Return an event, which its caller creates before any coroutine runs."""
    return await asyncio.to_thread(Event, text=text)


Call = Callable[[Place, str], Awaitable[object]]
CALLS: dict[str, Call] = {}
# Coroutines that take and read no text, or whose text another entry covers.
WITHOUT_TEXT: dict[str, str] = {
    "doctor": "reads the environment",
    "Session.clear": "deletes",
    "ToolContextManager.clear": "deletes",
    "ToolContextManager.clear_context_dir": "deletes",
    "ContextPointerStore.adelete": "deletes",
    "ContextPointerStore.gc": "reads records only",
    "ContextPointerStore.verify": "hashes files, in a thread",
    "Memory.aclose": "closes",
    "InMemoryMemory.aclose": "closes",
    "SqliteMemory.aclose": "closes",
    "UserMemory.aclose": "closes",
    "Memory.recent": "a protocol",
    "MemoryReader.retrieve": "a protocol",
    "MemoryWriter.append_event": "a protocol",
    "MemoryWriter.summarize_episode": "a protocol",
    "FactMemory.append_event": "a protocol",
    "FactMemory.forget": "a protocol",
    "FactMemory.recent": "a protocol",
    "SelectsPointers.select_detailed": "a protocol",
    "SelectsTools.select_detailed": "a protocol",
    "InMemoryMemory.forget": "deletes",
    "SqliteMemory.forget": "deletes",
    "UserMemory.forget": "deletes",
    "SqliteMemory.read_rows": "runs a statement of the library's own",
    "UserMemory.append_event": "calls the memory that it wraps",
    "UserMemory.recent": "calls the memory that it wraps",
    "UserMemory.retrieve": "calls the memory that it wraps",
    "UserMemory.summarize_episode": "calls the memory that it wraps",
    "AdaptiveWeights.record_feedback": "takes the id of an item",
    "AdaptiveWeights.weights": "takes names",
    "LexicalToolSelector.choose": "called by `select_detailed`",
    "ToolSelector.choose": "called by `select_detailed`",
    "ChoosesTools.choose": "a protocol",
    "AgenticExecutor.run_stream": "called by `run`",
    "AgenticExecutor.answer_stream": "called by `run`",
    "Answering.stream": "called by `answer`",
}


def call(*names: str) -> Callable[[Call], Call]:
    def register(function: Call) -> Call:
        for name in names:
            CALLS[name] = function
        return function

    return register


def task(text: str) -> PlannedTask:
    return PlannedTask(id=1, description=text)


def messages(text: str) -> list[dict[str, Any]]:
    asked = {"id": "a", "type": "function", "function": {"name": "web", "arguments": "{}"}}
    return [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "What is new?"},
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": "a", "content": text},
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "And now?"},
    ]


async def answered(*calls: Awaitable[object]) -> None:
    """Await each call. A refusal is an answer too."""
    for each in calls:
        with suppress(LLMCommonError, ValueError):
            await each


@call("ContextPointerStore.save", "ContextPointerStore.as_stored")
async def save(place: Place, text: str) -> None:
    redacted = InMemoryContextPointerStore(redact_results=True)
    await answered(
        place.save(text),
        place.store.save(query_id="s", tool_name="web", args={"a": text}, result="x"),
        redacted.save(query_id="s", tool_name="web", args={}, result={"rows": [text]}),
        place.store.as_stored({"rows": [text]}),
    )


@call(
    "ContextPointerStore.alist",
    "ContextPointerStore.aload_result",
    "ToolContextManager.aload_result",
    "ToolContextManager.load_contexts",
    "ToolContextManager.resume",
    "ToolContextManager.save_context",
)
async def load(place: Place, text: str) -> object:
    manager = ToolContextManager.over(place.session)
    pointer = await manager.save_context("web", {}, text)
    await place.manager.resume()
    await place.store.alist(query_id="s")
    await place.store.aload_result(pointer=pointer)
    await manager.load_contexts([pointer])
    return await manager.aload_result(pointer=pointer)


@call("Session.offload")
async def offload(place: Place, text: str) -> None:
    await answered(
        place.session.offload(text, tool="web", args={"words": text}, query="zebra"),
        place.session.offload({"rows": [text, text[:9]]}, tool="web", args={}, query=text),
    )


@call("OffloadTurn.read", "OffloadTurn.take", "OffloadTurn.preview")
async def preview(place: Place, text: str) -> object:
    turn = OffloadTurn(OffloadPolicy(), query=text)
    await turn.read("web", text)
    await turn.take(text)
    return await turn.preview(await place.save(text), text)


@call("Session.choose_tools")
async def choose_tools(place: Place, text: str) -> object:
    return await place.session.choose_tools(definitions(text), messages=messages(text))


def definitions(text: str) -> list[ToolDefinition]:
    parameters = {"type": "object", "properties": {"words": {"type": "string"}}}
    names = [f"find_{index}" for index in range(100)]
    hostile = ToolDefinition("hostile", text, parameters)
    return [hostile, *(ToolDefinition(name, "Finds a thing. " * 20, parameters) for name in names)]


@call("fold", "search_history", "Session.fold", "Session.search")
async def fold_and_search(place: Place, text: str) -> None:
    of_a_tool = [*messages(text), *messages(text)[1:]]
    of_a_user = [{"role": "user", "content": text}, *messages("ok"), *messages("ok")[1:]]
    options: dict[str, Any] = {"store": place.store, "session_id": "s"}
    await answered(
        place.session.fold(messages(text)),
        fold(of_a_user, **options, policy=FoldPolicy(max_tokens=2_000)),
        fold(of_a_tool, **options, policy=FoldPolicy(max_tokens=2_000)),
        place.session.search(text),
        search_history(text, **options),
    )


@call("ContextSelector.select", "Session.pack")
async def pack(place: Place, text: str) -> None:
    await place.save(text)
    turns = (TurnEntry(id="1", timestamp=NOON, role="user", content=text),)
    files = (ContextFile(id="1", path="a.py", name="a.py", content=text),)
    memories = (MemorySnippet(id="1", timestamp=NOON, text=text),)
    pool = DataPoolSnapshot(session_log=turns, context_files=files, memory_hits=memories)
    request = ContextSelectionRequest(intent=classify_intent(text), token_budget=2_000)
    await answered(
        place.session.pack(text, max_tokens=2_000, turns=turns, files=files, memories=memories),
        ContextSelector().select(request, pool),
    )


@call("compress_turns")
async def compress(place: Place, text: str) -> object:
    async def summarise(turns: object) -> str:
        return text

    turns = [
        TurnEntry(id=str(index), timestamp=NOON, role="user", content=text if index == 0 else "x")
        for index in range(15)
    ]
    return await compress_turns(turns, summarise)


@call("Session.read", "ReadBackTool.run", "read_context")
async def read(place: Place, text: str) -> None:
    pointer_id = (await place.save(text)).pointer_id
    tool = ReadBackTool(place.manager.load_payload)
    await answered(
        place.session.read(pointer_id, path=text),
        place.session.read(pointer_id, cursor=text),
        place.session.read(pointer_id, pattern=text),
        place.session.read(pointer_id, lines=(1, 10**9)),
        read_context(pointer_id, load=place.manager.load_payload),
        tool.run({"id": text}),
        tool.run({"id": pointer_id, "select": text}),
        tool.run({"id": pointer_id, "pattern": "(a+)+$"}),
    )


@call("Session.query", "Session.query_rows", "Session.tables")
async def query(place: Place, text: str) -> None:
    rows = [{"id": index, "text": text[:9_999]} for index in range(100)]
    await place.session.offload(rows, tool="web", args={})
    [table, *_] = await place.session.tables()
    every = f"SELECT * FROM {table.name}"
    await answered(
        place.session.query(text),
        place.session.query(text, cursor=text),
        place.session.query(f"SELECT '{text[:9_000]}' FROM {table.name}"),
        place.session.query(every),
        place.session.query(every, cursor=text),
        place.session.query_rows(f"SELECT text FROM {table.name}"),
    )


@call("ChoosesPointers.select", "ChoosesPointers.select_detailed")
async def select_pointers(place: Place, text: str) -> None:
    pointers = [await place.save(f"{index} zebra {text[:900]}") for index in range(30)]
    model = ContextRelevanceSelector(ScriptedClient([], default=text))
    await answered(
        LexicalRelevanceSelector().select(query=text, pointers=pointers),
        LexicalRelevanceSelector().select_detailed(query=text, pointers=pointers),
        model.select_detailed(query="zebra", pointers=pointers),
    )


@call("ChoosesTools.select_detailed", "ChoosesTools.select_tool_calls")
async def select_tools(place: Place, text: str) -> None:
    registry = place.registry()
    model = ToolSelector(ScriptedClient([], default=text))
    await answered(
        LexicalToolSelector().select_tool_calls(task=task(text), tool_registry=registry),
        model.select_detailed(task=task("Find it"), tool_registry=registry, query=text),
    )


@call("Planner.plan")
async def plan(place: Place, text: str) -> object:
    planner = Planner(ScriptedClient([], default=text))
    return await planner.plan(text, place.registry())


@call("ContextBuilder.build")
async def build(place: Place, text: str) -> object:
    await place.memory.append_event("s", await event_of(text))
    builder = ContextBuilder(None, place.memory, tools=place.registry())
    return await builder.build(TriggerInput(session_id="s", goal=text))


@call("Answering.answer")
async def answer(place: Place, text: str) -> object:
    await place.save(text)
    result = SubTaskResult(task_id=1, sub_task_id=1, success=True, result=text)
    client = ScriptedClient([], default=text)
    return await Answering().answer(client, place.manager, query=text, results=[result])


@call(
    "AgenticExecutor.execute_plan",
    "AgenticExecutor.execute_task",
    "AgenticExecutor.execute_tool_calls",
    "AgenticExecutor.run",
    "Tool.run",
    "ToolRegistry.execute",
)
async def execute(place: Place, text: str) -> None:
    registry, client = place.registry(result=text), ScriptedClient([], default=text)
    executor = AgenticExecutor(client, registry, place.manager)
    words = LexicalToolSelector()
    without_model = AgenticExecutor(None, registry, place.manager, selector=words)
    calls: list[ToolCall | dict[str, Any]] = [ToolCall(tool="find_1", args={"words": text})]
    calls.append({"tool": text, "args": {}})
    await answered(
        place.registry().execute("find_1", {"words": text}),
        executor.execute_tool_calls(calls, 1, "s"),
        executor.execute_task(task(text), "s"),
        executor.run(text, plan=[task("Find it")]),
        without_model.execute_plan(ExecutionPlan(tasks=[task(text)]), "s"),
    )


@call(
    "FactMemory.summarize_episode",
    "InMemoryMemory.append_event",
    "InMemoryMemory.recent",
    "InMemoryMemory.retrieve",
    "SqliteMemory.append_event",
    "SqliteMemory.recent",
    "SqliteMemory.retrieve",
)
async def remember(place: Place, text: str) -> None:
    sqlite = SqliteMemory(place.folder / f"{time.monotonic_ns()}.db")
    event = await event_of(text)
    for memory in (place.memory, sqlite):
        await answered(
            memory.append_event("s", event, key=text[:100]),
            memory.append_event("s", event),
            memory.recent("s"),
            memory.summarize_episode("s"),
            memory.retrieve(text, 5, MemoryFilters(session_id="s")),
        )
    await sqlite.aclose()


@call(
    "fold_messages", "choose_tools", "read_back", "read_back_or_explain", "take_over_from_callers"
)
async def translate(place: Place, text: str) -> None:
    reader = place.session.tools()[0].name
    with calling(Session(place.store), {"task": text}):
        await take_over_from_callers(place.session)
    await answered(
        translation.choose_tools(
            place.session, definitions(text), describe=lambda tool: tool, messages=messages(text)
        ),
        translation.read_back(place.session, reader, {"id": text}),
        translation.read_back_or_explain(place.session, reader, {"id": text}),
        translation.fold_messages(
            place.session,
            messages(text),
            read=lambda message: message,
            write=lambda message, content: {**(message or {"role": "user"}), "content": content},
        ),
    )


@call("wrap_tool")
async def call_wrapped(place: Place, text: str) -> object:
    async def web(words: str) -> str:
        return words

    return await wrap_tool(web, place.session, query=text)(text)


PACKAGES = ("agents", "history", "context", "memory", "integrations.translation")


def public_coroutines() -> set[str]:
    """Return the qualified names of the public coroutines of the packages."""
    names: set[str] = set()
    for package in PACKAGES:
        module = import_module(f"llm_common.{package}")
        exported = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
        for name in exported:
            value = getattr(module, name)
            if _is_coroutine(value):
                names.add(value.__qualname__)
            for base in getattr(value, "__mro__", ()):
                if base.__module__.startswith("llm_common."):
                    methods = [member for member in vars(base).values() if _is_coroutine(member)]
                    names |= {_function(method).__qualname__ for method in methods}
    return {name for name in names if not name.rpartition(".")[2].startswith("_")}


def _is_coroutine(value: object) -> bool:
    function = _function(value)
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _function(value: Any) -> Any:
    return getattr(value, "__func__", value)


@pytest.fixture(scope="module", autouse=True)
def frozen() -> Iterator[None]:
    """Keep what the tests have imported out of garbage collections."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


async def cpu_of(function: Call, folder: Path, text: str) -> tuple[float, float]:
    """Return the CPU seconds of a call, and the loop's longest between two ticks."""
    # Outlives the measurement: an application keeps its session longer than a call.
    place = Place(folder)

    begin_s = time.process_time()
    longest_s, _ = await longest_tick_s(answered(function(place, text)))
    return time.process_time() - begin_s, longest_s


def test_every_public_coroutine_gets_hostile_text() -> None:
    names = {name for name in CALLS if " " not in name and name != "wrap_tool"}
    assert not names & WITHOUT_TEXT.keys()
    assert public_coroutines() == names | WITHOUT_TEXT.keys()


EACH_CALL = pytest.mark.parametrize(
    "function", dict.fromkeys(CALLS.values()), ids=lambda function: function.__name__
)


@EACH_CALL
async def test_half_a_megabyte_of_hostile_text_does_not_block_the_loop(
    function: Call, tmp_path: Path
) -> None:
    # All shapes in one text. The campaign below has each of them alone.
    part = MB // 2 // len(SHAPES)
    text = "\n".join(shape(part) for shape in SHAPES.values())
    await cpu_of(function, tmp_path, "warm up")
    _, tick_s = await cpu_of(function, tmp_path, text)
    assert tick_s < MAX_TICK_S


@pytest.mark.torture
@pytest.mark.parametrize("shape", SHAPES)
@EACH_CALL
async def test_ten_megabytes_of_hostile_text_take_linear_time(
    function: Call, shape: str, tmp_path: Path
) -> None:
    await cpu_of(function, tmp_path, "warm up")
    small_s, _ = await cpu_of(function, tmp_path, SHAPES[shape](MB))
    large_s, tick_s = await cpu_of(function, tmp_path, SHAPES[shape](10 * MB))
    assert tick_s < MAX_TICK_S
    assert large_s <= MAX_GROWTH * max(small_s, 0.05)
