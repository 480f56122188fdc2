"""Runs that each leave out one item for one reason."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from llm_common._telemetry import record, span
from llm_common.agents import (
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    InMemoryContextPointerStore,
    LexicalRelevanceSelector,
    PlannedTask,
    Session,
    SessionConfig,
    Tool,
    ToolRegistry,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    ContextSelector,
    DataPoolSnapshot,
    MemorySnippet,
    TurnEntry,
    classify_intent,
)
from llm_common.core import answer_text
from llm_common.errors import LLMTimeoutError
from llm_common.history import FoldPolicy, fold
from llm_common.testing import ScriptedClient
from llm_common.trace import RecordedRun, Run, Trace, read_trace
from llm_common.trace.lines import RunEnd

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
QUERY = "When does the parcel arrive in Oslo?"
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
Story = Callable[[FileContextPointerStore], Awaitable[None]]


def ended(trace: Trace, run: Run) -> RecordedRun:
    """Return a run as its file has it."""
    assert trace.flush()
    assert run.path is not None
    return read_trace(run.path)


def end_of(trace: Trace, run: Run) -> RunEnd:
    """Return the last line of a run."""
    end = ended(trace, run).end
    assert end is not None
    return end


async def recorded(
    story: Story, folder: Path, *, texts: bool = False, query: str = QUERY
) -> RecordedRun:
    """Record a story, and return its run."""
    trace = Trace(folder / "trace", texts=texts)
    with trace.run("parcel", query=query) as run:
        await story(FileContextPointerStore(folder / "store", durability="rename"))
    return ended(trace, run)


async def outputs(store: FileContextPointerStore, *words: str) -> list[ContextPointer]:
    return [
        await store.save(
            query_id="parcel",
            task_id="1",
            tool_name="lookup",
            args={"query": word},
            result=f"{word} here",
        )
        for word in words
    ]


def registry(*names: str) -> ToolRegistry:
    async def run(city: str) -> str:
        return city

    return ToolRegistry(
        [Tool(run, name=name, description=f"Does {name}.", parameters=PARAMETERS) for name in names]
    )


async def pack(
    store: FileContextPointerStore | None, budget: int, /, *, exclude: str = "", **pool: Any
) -> None:
    request = ContextSelectionRequest(
        intent=classify_intent(QUERY),
        token_budget=budget,
        now=NOON,
        exclude_patterns=(exclude,) if exclude else (),
    )
    await ContextSelector(store=store).select(request, DataPoolSnapshot(**pool))


def file(name: str, text: str) -> ContextFile:
    return ContextFile(id=name, path=name, name=name, content=text)


def memory(number: int) -> MemorySnippet:
    return MemorySnippet(id=f"m{number}", text=f"Parcel {number} to Oslo arrives.", timestamp=NOON)


def turn(name: str, text: str) -> TurnEntry:
    return TurnEntry(id=name, timestamp=NOON, role="user", content=text)


def packs(budget: int, **pool: Any) -> Story:
    """Return the story of one packing."""

    async def story(_: FileContextPointerStore) -> None:
        await pack(None, budget, **pool)

    return story


LONG = "Parcels to Oslo. " * 900
TALK = tuple(turn(f"t{number}", f"Line {number} of the talk. " * 10) for number in range(40))
no_room = packs(420, context_files=tuple(file(f"{number}.txt", LONG) for number in range(9)))
SAID = "The parcel to Oslo arrives at noon, says the driver. " * 5


async def not_chosen(store: FileContextPointerStore) -> None:
    first, second = await outputs(store, "parcel", "weather")
    client = ScriptedClient(f'{{"pointer_ids": ["{first.pointer_id}"]}}')
    await ContextRelevanceSelector(client).select(query=QUERY, pointers=[first, second])


async def over_the_cap(store: FileContextPointerStore) -> None:
    pointers = await outputs(store, "parcel Oslo arrive", "parcel")
    await LexicalRelevanceSelector(1).select(query=QUERY, pointers=pointers)


async def choosing_failed(store: FileContextPointerStore) -> None:
    client = ScriptedClient([LLMTimeoutError("no answer", timeout_s=1.0)])
    await ContextRelevanceSelector(client).select(
        query=QUERY, pointers=await outputs(store, "parcel")
    )


async def tool_not_shown(_: FileContextPointerStore) -> None:
    config = ToolSelectionConfig(max_catalogue_tokens=60, shortlist_tools=1)
    tools = registry("track_parcel", *(f"other_{number}" for number in range(9)))
    client = ScriptedClient('{"calls": [{"tool": "track_parcel", "args": {"city": "Oslo"}}]}')
    await ToolSelector(client, config).select_detailed(
        task=PlannedTask(id=1, description=QUERY), tool_registry=tools
    )


async def call_refused(_: FileContextPointerStore) -> None:
    client = ScriptedClient('{"calls": [{"tool": "track_parcel", "args": {"town": "Oslo"}}]}')
    task = PlannedTask(id=1, description=QUERY)
    await ToolSelector(client).select_detailed(
        task=task, tool_registry=registry("track_parcel", "weather")
    )


async def tool_failed(_: FileContextPointerStore) -> None:
    with span("llm_common.tool"):
        record(
            "tool_call",
            tool="track_parcel",
            args={"city": "Oslo"},
            task=1,
            failure="TimeoutError",
        )


async def folded(store: FileContextPointerStore) -> None:
    messages = [
        {"role": "user" if n % 2 else "assistant", "content": f"message {n} " * 60}
        for n in range(40)
    ]
    await fold(messages, store=store, session_id="parcel", policy=FoldPolicy(max_tokens=2_000))


async def previewed(store: FileContextPointerStore) -> None:
    session = Session(store, session_id="parcel")
    shown = await session.offload("The parcel arrives. " * 3_000, tool="track", args={})
    reader, _, _, finder = session.tools()
    await reader.run({"id": shown.pointer_id, "lines": [1, 1]})
    await finder.run({"query": "parcel"})


async def not_stored(_: FileContextPointerStore) -> None:
    session = Session(InMemoryContextPointerStore(max_result_bytes=100))
    await session.offload("The parcel arrives. " * 9_000, tool="track", args={})


async def hidden_tools(store: FileContextPointerStore) -> None:
    session = Session(store, config=SessionConfig(max_tool_tokens=200))
    tools = [*registry(*(f"send_{number}" for number in range(20))), *session.tools()]
    await session.choose_tools(tools, messages=[{"role": "user", "content": QUERY}])


def answer_fields(**fields: Any) -> dict[str, Any]:
    """Return what an answer's line is built from."""
    empty = {"text": None, "problem": "", "prompt_tokens": 0, "shown": (), "attempts": ()}
    return empty | fields


async def no_data(_: FileContextPointerStore) -> None:
    record(
        "answer",
        **answer_fields(status="no_data", problem="tool 'track_parcel' failed (TimeoutError)"),
    )


# The story, a part of the name of the item left out, and the reason as the page gives it.
STORIES: Mapping[str, tuple[Story, str, str]] = {
    "no room": (
        no_room,
        "8.txt",
        "It does not fit: it needs about",
    ),
    "a small part": (
        packs(1_000, session_log=TALK, context_files=(file("best.txt", LONG),)),
        "best.txt",
        "A request of the type 'conversational' reserves 80 tokens for files and outputs",
    ),
    "previewed": (previewed, "track", "A preview is shown, and it can be read."),
    "not stored": (not_stored, "track", "The store failed. The beginning and end are shown"),
    "hidden tools": (hidden_tools, "send_19", "The definitions of all tools exceed 200 tokens"),
    "six memories": (
        packs(4_000, memory_hits=tuple(map(memory, range(6)))),
        "m5",
        "Better items filled the limit for its kind.",
    ),
    "excluded": (
        packs(4_000, exclude="second*", context_files=(file("second.txt", "The parcel to Oslo."),)),
        "second.txt",
        "A pattern of the request excludes it.",
    ),
    "said twice": (
        packs(
            4_000,
            session_log=(turn("t1", SAID),),
            memory_hits=(memory(1).model_copy(update={"text": SAID}),),
        ),
        "m1",
        "It has the same text as turn t1, which is shown.",
    ),
    "not chosen": (not_chosen, "lookup", "The model saw it and did not choose it."),
    "over the cap": (
        over_the_cap,
        "lookup",
        "It matches, but better candidates filled the limit of 1.",
    ),
    "choosing failed": (
        choosing_failed,
        "lookup",
        "Choosing failed (timeout), so nothing was chosen",
    ),
    "tool not shown": (tool_not_shown, "other_1", "The model did not see it"),
    "call refused": (
        call_refused,
        "track_parcel",
        "Its call was refused: its arguments do not fit the tool",
    ),
    "tool failed": (
        tool_failed,
        "track_parcel",
        "The tool failed (TimeoutError), so there is no output.",
    ),
    "folded": (folded, "messages", "The history is over 2,000 tokens"),
}


async def long_story(store: FileContextPointerStore) -> None:
    """Record every kind of line in one run."""
    await call_refused(store)
    await tool_failed(store)
    await over_the_cap(store)
    await not_chosen(store)
    pointers = store.list(query_id="parcel")
    await pack(
        store,
        2_000,
        tool_outputs=tuple(pointers),
        memory_hits=(memory(1),),
        session_log=(turn("t1", "Oslo?"),),
    )
    await folded(store)
    messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": QUERY}]
    text = await answer_text(ScriptedClient("At noon."), messages, model=None, timeout_s=5)
    record("answer", **answer_fields(text=text, status="ok", prompt_tokens=20))
