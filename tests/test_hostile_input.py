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


@call("ContextPointerStore.save")
async def save(place: Place, text: str) -> object:
    return await place.save(text)


@call("ContextPointerStore.save with hostile arguments")
async def save_arguments(place: Place, text: str) -> object:
    return await place.store.save(query_id="s", tool_name="web", args={"a": text}, result="x")


@call("ContextPointerStore.save with redaction")
async def save_redacted(place: Place, text: str) -> object:
    store = InMemoryContextPointerStore(redact_results=True)
    return await store.save(query_id="s", tool_name="web", args={}, result={"rows": [text]})


@call("ContextPointerStore.as_stored")
async def as_stored(place: Place, text: str) -> object:
    return await place.store.as_stored({"rows": [text]})


@call("ContextPointerStore.alist", "ToolContextManager.resume")
async def list_results(place: Place, text: str) -> object:
    await place.save(text)
    await place.manager.resume()
    return await place.store.alist(query_id="s")


@call(
    "ContextPointerStore.aload_result",
    "ToolContextManager.aload_result",
    "ToolContextManager.load_contexts",
    "ToolContextManager.save_context",
)
async def load(place: Place, text: str) -> object:
    manager = ToolContextManager.over(place.session)
    pointer = await manager.save_context("web", {}, text)
    await place.store.aload_result(pointer=pointer)
    await manager.load_contexts([pointer])
    return await manager.aload_result(pointer=pointer)


@call("Session.offload")
async def offload(place: Place, text: str) -> object:
    return await place.session.offload(text, tool="web", args={"words": text}, query="zebra")


@call("Session.offload of data")
async def offload_data(place: Place, text: str) -> object:
    return await place.session.offload({"rows": [text, text[:9]]}, tool="web", args={}, query=text)


@call("OffloadTurn.read", "OffloadTurn.take", "OffloadTurn.preview")
async def preview(place: Place, text: str) -> object:
    pointer = await place.save(text)
    turn = OffloadTurn(OffloadPolicy(), query=text)
    await turn.read("web", text)
    await turn.take(text)
    return await turn.preview(pointer, text)


@call("Session.choose_tools")
async def choose_tools(place: Place, text: str) -> object:
    return await place.session.choose_tools(definitions(text), messages=messages(text))


def definitions(text: str) -> list[ToolDefinition]:
    parameters = {"type": "object", "properties": {"words": {"type": "string"}}}
    names = [f"find_{index}" for index in range(100)]
    hostile = ToolDefinition("hostile", text, parameters)
    return [hostile, *(ToolDefinition(name, "Finds a thing. " * 20, parameters) for name in names)]


@call("Session.fold")
async def fold_in_session(place: Place, text: str) -> object:
    return await place.session.fold(messages(text))


@call("fold")
async def fold_messages(place: Place, text: str) -> object:
    history = [*messages(text), *messages(text)[1:]]
    policy = FoldPolicy(max_tokens=2_000)
    return await fold(history, store=place.store, session_id="s", policy=policy)


@call("fold of a user's text")
async def fold_user_text(place: Place, text: str) -> object:
    history = [{"role": "user", "content": text}, *messages("ok"), *messages("ok")[1:]]
    policy = FoldPolicy(max_tokens=2_000)
    return await fold(history, store=place.store, session_id="s", policy=policy)


@call("search_history", "Session.search")
async def search(place: Place, text: str) -> object:
    await fold_messages(place, text)
    await place.session.search(text)
    return await search_history(text, store=place.store, session_id="s")


@call("Session.pack")
async def pack(place: Place, text: str) -> object:
    await place.save(text)
    return await place.session.pack(
        text,
        max_tokens=2_000,
        turns=[TurnEntry(id="1", timestamp=NOON, role="user", content=text)],
        files=[ContextFile(id="1", path="a.py", name="a.py", content=text)],
        memories=[MemorySnippet(id="1", timestamp=NOON, text=text)],
    )


@call("ContextSelector.select")
async def select_context(place: Place, text: str) -> object:
    request = ContextSelectionRequest(intent=classify_intent(text), token_budget=2_000)
    pool = DataPoolSnapshot(
        session_log=(TurnEntry(id="1", timestamp=NOON, role="user", content=text),),
        context_files=(ContextFile(id="1", path="a.py", name="a.py", content=text),),
        memory_hits=(MemorySnippet(id="1", timestamp=NOON, text=text),),
    )
    return await ContextSelector().select(request, pool)


@call("compress_turns")
async def compress(place: Place, text: str) -> object:
    async def summarise(turns: object) -> str:
        return text

    turns = [
        TurnEntry(id=str(index), timestamp=NOON, role="user", content=text if index == 0 else "x")
        for index in range(15)
    ]
    return await compress_turns(turns, summarise)


@call("Session.read")
async def read(place: Place, text: str) -> object:
    pointer = await place.save(text)
    with suppress(LLMCommonError):
        await place.session.read(pointer.pointer_id, path=text)
    with suppress(LLMCommonError):
        await place.session.read(pointer.pointer_id, cursor=text)
    with suppress(LLMCommonError):
        await place.session.read(pointer.pointer_id, pattern=text)
    return await place.session.read(pointer.pointer_id, lines=(1, 10**9))


@call("Session.query", "Session.query_rows", "Session.tables")
async def query(place: Place, text: str) -> object:
    rows = [{"id": index, "text": text[:9_999]} for index in range(100)]
    await place.session.offload(rows, tool="web", args={})
    [table, *_] = await place.session.tables()
    for sql in (text, f"SELECT '{text[:9_000]}' FROM {table.name}", f"SELECT * FROM {table.name}"):
        with suppress(LLMCommonError):
            await place.session.query(sql)
        with suppress(LLMCommonError):
            await place.session.query(sql, cursor=text)
    return await place.session.query_rows(f"SELECT text FROM {table.name}")


@call("ReadBackTool.run", "read_context")
async def read_back(place: Place, text: str) -> object:
    pointer = await place.save(text)
    await read_context(pointer.pointer_id, load=place.manager.load_payload)
    tool = ReadBackTool(place.manager.load_payload)
    with suppress(LLMCommonError):
        await tool.run({"id": text})
    with suppress(LLMCommonError):
        await tool.run({"id": pointer.pointer_id, "select": text})
    return await tool.run({"id": pointer.pointer_id, "pattern": "(a+)+$"})


@call("ChoosesPointers.select", "ChoosesPointers.select_detailed")
async def select_pointers(place: Place, text: str) -> object:
    pointers = [await place.save(f"{index} zebra {text[:900]}") for index in range(30)]
    selector = LexicalRelevanceSelector()
    await selector.select(query=text, pointers=pointers)
    model = ContextRelevanceSelector(ScriptedClient([], default=text))
    await model.select_detailed(query="zebra", pointers=pointers)
    return await selector.select_detailed(query=text, pointers=pointers)


@call("ChoosesTools.select_detailed", "ChoosesTools.select_tool_calls")
async def select_tools(place: Place, text: str) -> object:
    registry = place.registry()
    await LexicalToolSelector().select_tool_calls(task=task(text), tool_registry=registry)
    selector = ToolSelector(ScriptedClient([], default=text))
    return await selector.select_detailed(task=task("Find it"), tool_registry=registry, query=text)


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


def executor(place: Place, text: str, reply: str) -> AgenticExecutor:
    client = ScriptedClient([], default=reply)
    return AgenticExecutor(client, place.registry(result=text), place.manager)


@call("AgenticExecutor.execute_tool_calls", "ToolRegistry.execute", "Tool.run")
async def execute_calls(place: Place, text: str) -> object:
    await place.registry().execute("find_1", {"words": text})
    calls: list[ToolCall | dict[str, Any]] = [ToolCall(tool="find_1", args={"words": text})]
    calls.append({"tool": text, "args": {}})
    return await executor(place, text, "").execute_tool_calls(calls, 1, "s")


@call("AgenticExecutor.execute_task")
async def execute_task(place: Place, text: str) -> object:
    return await executor(place, text, text).execute_task(task(text), "s")


@call("AgenticExecutor.execute_plan")
async def execute_plan(place: Place, text: str) -> object:
    runner = AgenticExecutor(
        None, place.registry(result=text), place.manager, selector=LexicalToolSelector()
    )
    return await runner.execute_plan(ExecutionPlan(tasks=[task(text)]), "s")


@call("AgenticExecutor.run")
async def run(place: Place, text: str) -> object:
    return await executor(place, text, text).run(text, plan=[task("Find it")])


@call("InMemoryMemory.append_event", "InMemoryMemory.recent", "InMemoryMemory.retrieve")
async def remember(place: Place, text: str) -> object:
    memory = place.memory
    await memory.append_event("s", await event_of(text), key=text[:100])
    await memory.recent("s")
    return await memory.retrieve(text, 5, MemoryFilters(session_id="s"))


@call("FactMemory.summarize_episode")
async def summarize(place: Place, text: str) -> object:
    await place.memory.append_event("s", await event_of(text))
    return await place.memory.summarize_episode("s")


@call(
    "SqliteMemory.append_event",
    "SqliteMemory.recent",
    "SqliteMemory.retrieve",
)
async def remember_in_sqlite(place: Place, text: str) -> object:
    memory = SqliteMemory(place.folder / f"{time.monotonic_ns()}.db")
    try:
        await memory.append_event("s", await event_of(text))
        await memory.recent("s")
        await memory.summarize_episode("s")
        return await memory.retrieve(text, 5, MemoryFilters(session_id="s"))
    finally:
        await memory.aclose()


@call(
    "fold_messages", "choose_tools", "read_back", "read_back_or_explain", "take_over_from_callers"
)
async def translate(place: Place, text: str) -> object:
    await translation.choose_tools(
        place.session, definitions(text), describe=lambda tool: tool, messages=messages(text)
    )
    with suppress(LLMCommonError):
        name = place.session.tools()[0].name
        await translation.read_back(place.session, name, {"id": text})
    await translation.read_back_or_explain(place.session, name, {"id": text})
    with calling(Session(place.store), {"task": text}):
        await take_over_from_callers(place.session)
    return await translation.fold_messages(
        place.session,
        messages(text),
        read=lambda message: message,
        write=lambda message, content: {**(message or {"role": "user"}), "content": content},
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

    async def attempt() -> None:
        # A refusal is an answer too.
        with suppress(LLMCommonError, ValueError):
            await function(place, text)

    begin_s = time.process_time()
    longest_s, _ = await longest_tick_s(attempt())
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
