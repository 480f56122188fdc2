"""`Session`: one conversation, as a plain loop uses it."""

import asyncio
import inspect
import json
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    FileContextPointerStore,
    InMemoryContextPointerStore,
    OffloadPolicy,
    Session,
    SessionConfig,
    Tool,
    ToolContextManager,
    ToolRegistry,
)
from llm_common.context import TurnEntry
from llm_common.core import DefaultCounter
from llm_common.core.tokens import message_tokens
from llm_common.errors import (
    ConfigError,
    PointerNotFoundError,
    ToolArgumentsError,
    ToolFailedError,
)
from llm_common.history import FoldPolicy
from llm_common.tools import ToolDefinition

COUNTER = DefaultCounter()
ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]
TOOLS = [
    ToolDefinition("read_context", "Reads a stored result."),
    ToolDefinition("get_weather", "Forecasts the weather of a city."),
    ToolDefinition("send_mail", "Sends a mail to a person."),
    ToolDefinition("list_issues", "Lists the open issues of a repository."),
]


def memory_session(session_id: str | None = None, **config: Any) -> Session:
    store = InMemoryContextPointerStore()
    return Session(store, session_id=session_id, config=SessionConfig(**config))


@pytest.fixture
def session() -> Session:
    return memory_session()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calling(*names: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
    arguments = json.dumps(args or {})
    calls = [{"id": name, "function": {"name": name, "arguments": arguments}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


async def offload_rows(session: Session, **changes: Any) -> str:
    call: dict[str, Any] = {"tool": "list_parts", "args": {}} | changes
    shown = await session.offload(call.pop("result", ROWS), **call)
    assert shown.pointer_id is not None
    return shown.pointer_id


async def test_the_loop_of_the_docstring_offloads_and_reads_back_t_01(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(tmp_path))
    doc = inspect.getdoc(Session) or ""
    loop = [line for line in doc.splitlines() if line.startswith("    ")]
    loop = loop[: loop.index("            messages.append(output)") + 1]

    async def ask(messages: list[Any], definitions: list[Tool]) -> dict[str, Any]:
        assert {"query_context", "read_context", "search_context"} < {t.name for t in definitions}
        outputs = [message["content"] for message in messages if message["role"] == "tool"]
        if not outputs:
            return calling("list_parts")
        if len(outputs) == 1:
            pointer_id = outputs[0].partition("(")[2][:12]
            return calling("read_context", args={"id": pointer_id, "path": "/1500"})
        return {"role": "assistant", "content": "It is 10500."}

    def list_parts() -> list[dict[str, Any]]:
        """List the parts in stock."""
        return ROWS

    messages: list[Any] = [user("What is the stock of part 1500?")]
    names = {
        "Session": Session,
        "ToolRegistry": ToolRegistry,
        "json": json,
        "ask": ask,
        "messages": messages,
        "own_tools": [list_parts],
    }
    exec("async def main():\n" + textwrap.indent("\n".join(loop), "    "), names)
    main: Any = names["main"]
    await main()
    assert messages[-1]["content"] == "It is 10500."
    assert "part 1500" in messages[2]["content"]
    assert COUNTER.count(messages[2]["content"]) <= 400
    assert '"stock":10500' in messages[4]["content"]
    assert len(FileContextPointerStore(tmp_path).list(query_id="user:42")) == 1


async def test_a_session_sees_the_queries_of_a_manager_with_its_id_t_01(
    tmp_path: Path,
) -> None:
    manager = ToolContextManager(tmp_path, session_id="user:42")
    query_id = manager.query_id_of("a question")
    saved = await manager.save_context("list_parts", {}, ROWS, query_id=query_id)
    session = Session(tmp_path, session_id="user:42")
    assert "part 3" in (await session.read(saved.pointer_id, path="/3")).text
    assert [finding.pointer_id for finding in await session.search("part 1999")] == [
        saved.pointer_id
    ]
    assert ToolContextManager(tmp_path, session_id="user:42").size == 0


async def test_a_session_cannot_read_or_find_what_another_stored_t_01(
    store: InMemoryContextPointerStore,
) -> None:
    pointer_id = await offload_rows(Session(store, session_id="user:42"))
    for other in (Session(store, session_id="user:43"), Session(store)):
        with pytest.raises(PointerNotFoundError):
            await other.read(pointer_id)
        with pytest.raises(ToolFailedError, match="no stored result of this session"):
            await other.tools()[0].run({"id": pointer_id})
        assert await other.search("part 1999") == ()
        assert pointer_id not in other.overview()
        assert pointer_id not in (await other.pack("part 1999", max_tokens=2_000)).render()


async def test_a_result_is_read_in_parts_with_a_cursor_t_01(session: Session) -> None:
    pointer_id = await offload_rows(session, result="\n".join(f"line {n}" for n in range(9_000)))
    assert (await session.read(pointer_id, lines=(5_000, 5_001))).text.startswith("line 4999")
    assert (await session.read(pointer_id, chars=(0, 6))).text == "line 0"
    assert "line 8123" in (await session.read(pointer_id, pattern="line 8123")).text
    first = await session.read(pointer_id)
    assert COUNTER.count(str(first)) <= session.config.max_read_tokens
    second = await session.read(pointer_id, cursor=first.cursor)
    assert second.start == len(first.text)


async def test_searching_is_bounded_by_a_count_and_by_tokens_t_01() -> None:
    session = memory_session(max_read_tokens=300)
    for page in range(12):
        await offload_rows(session, args={"page": page})
    assert len(await session.search("part 1999")) == 10
    assert len(await session.search("part 1999", limit=3)) == 3
    assert await session.search("?!") == ()
    search = session.tools()[1]
    assert "try others" in str(await search.run({"words": "zygomorphic"}))
    # The name of the argument in the calls of an older conversation.
    assert "part 1999" in str(await search.run({"query": "part 1999"}))
    with pytest.raises(ToolArgumentsError, match="'sql' was unexpected"):
        await search.run({"words": "part 1999", "sql": "SELECT 1"})


@pytest.mark.parametrize("is_data", [False, True])
async def test_a_search_meets_the_text_as_it_is_read_t_16(is_data: bool) -> None:
    session = memory_session()
    text = "\n".join(["\x1b[31mERROR\x1b[0m: pump off", "C:\\new is full", "[1] ok"] * 900)
    await offload_rows(session, result={"stdout": text} if is_data else text)
    for words in ("error", "pump off", r"C:\new is full"):
        (match,) = await session.search(words)
        assert match.places == 900
        assert words in match.text.lower() or words in match.text


async def test_bytes_of_a_text_are_a_text_s4_01(session: Session) -> None:
    text = "".join(f"{number},größe {number}\n" for number in range(2_000))
    offloaded = await session.offload(text.encode(), tool="run", args={})
    assert offloaded.pointer_id is not None
    assert (await session.read(offloaded.pointer_id, lines=(7, 7))).text == "6,größe 6\n"
    binary = await session.offload(b"\xff\x00", tool="run", args={})
    assert binary.text == '{"base64":"/wA="}'


async def test_a_search_shows_the_beginning_of_a_match_that_is_longer_than_an_answer() -> None:
    session = memory_session(max_read_tokens=200)
    await offload_rows(session, result=["harbour " + "🦀🧭🛟" * 100] * 100)
    answer = str(await session.tools()[1].run({"words": "harbour"}))
    assert "harbour 🦀" in answer
    assert COUNTER.count(answer) <= 200


@pytest.mark.parametrize(
    ("turns", "stay"), [(("one", "one"), [True, False]), (("one", "two"), [True, True])]
)
async def test_calls_of_one_turn_share_its_budget_s4_08(
    turns: tuple[str, str], stay: list[bool]
) -> None:
    session = memory_session(offload=OffloadPolicy(max_turn_tokens=1_000))
    text = "word " * 500
    shown = [
        await session.offload(text, tool="get_text", args={"turn": turn}, turn=turn)
        for turn in turns
    ]
    assert [offloaded.pointer_id is None for offloaded in shown] == stay


async def test_messages_give_the_question_and_the_calls_of_a_turn_s4_08() -> None:
    session = memory_session(offload=OffloadPolicy(max_turn_tokens=600))
    messages = [user("part 1234"), calling("list_parts", "list_parts")]
    shown = [
        await session.offload(ROWS, tool="list_parts", args={"n": n}, turn="1", messages=messages)
        for n in range(2)
    ]
    assert all("part 1234" in str(offloaded) for offloaded in shown)
    assert COUNTER.count(str(shown[0])) <= 300  # which leaves the other call its half


@pytest.mark.parametrize(
    ("limit", "request_text", "called", "names"),
    [
        (None, "weather", (), ["read_context", "get_weather", "send_mail", "list_issues"]),
        (10_000, "weather", (), ["read_context", "get_weather", "send_mail", "list_issues"]),
        (40, "the weather in Ulm", (), ["read_context", "get_weather"]),
        (60, "the weather in Ulm", (), ["read_context", "get_weather", "send_mail"]),
        (40, "the weather in Ulm", ("send_mail",), ["read_context", "send_mail"]),
        (60, "xqzzt", ("list_issues",), ["read_context", "get_weather", "list_issues"]),
        (60, "xqzzt", (), ["read_context", "get_weather", "send_mail"]),
        (1, "xqzzt", (), ["read_context"]),
    ],
)
async def test_tools_over_the_limit_are_those_that_fit_best_t_06(
    limit: int | None, request_text: str, called: tuple[str, ...], names: list[str]
) -> None:
    session = memory_session(max_tool_tokens=limit)
    messages = [calling(*called), user(request_text), {"role": "assistant", "content": "Yes."}]
    for _ in range(2):
        chosen = await session.choose_tools(TOOLS, messages=messages)
        assert [tool.name for tool in chosen] == names
    kept = await session.choose_tools(TOOLS, messages=messages[1:], keep=called)
    assert [tool.name for tool in kept] == names


ACTIONS = [
    "create",
    "delete",
    "update",
    "list",
    "archive",
    "export",
    "import",
    "share",
    "rename",
    "approve",
]
OBJECTS = ["invoice", "customer", "ticket", "order", "contract", "report"]


def office_tools(objects: Sequence[str] = OBJECTS) -> list[ToolDefinition]:
    """Return ten tools for each object, about 70 tokens each."""
    text = (
        "{} one {} in the accounting system of the company. The name is needed. " + "Notes. " * 25
    )
    return [
        ToolDefinition(f"{action}_{thing}", text.format(action.capitalize(), thing))
        for thing in objects
        for action in ACTIONS
    ]


def names_of(tools: Sequence[ToolDefinition]) -> set[str]:
    return {tool.name for tool in tools}


@pytest.mark.parametrize("answer", ["yes, do it", "go ahead", "Ja bitte", "Can you bill Ann?"])
async def test_a_tool_stays_when_the_user_only_agrees_t_06(answer: str) -> None:
    tools = office_tools([*(f"record{number}" for number in range(24)), *OBJECTS])
    messages = [
        user("Please create an invoice for Ann over 50 dollars, but ask me first."),
        {"role": "assistant", "content": "Shall I create it?"},
        user(answer),
    ]
    chosen = await memory_session().choose_tools(tools, messages=messages)
    assert "create_invoice" in names_of(chosen)
    assert sum(COUNTER.count(tool.text) for tool in chosen) > 3_900  # of 4,000: filled with others


async def test_a_tool_that_was_shown_stays_in_the_next_turns_t_06() -> None:
    session, tools = memory_session(), office_tools()
    messages = [user("Please archive the contract with Northwind.")]
    assert "archive_contract" in names_of(await session.choose_tools(tools, messages=messages))
    for text in ("Thanks.", "What is new?", "Which report is due?", "And the ticket?", "Do it."):
        messages += [{"role": "assistant", "content": "One moment."}, user(text)]
        assert "archive_contract" in names_of(await session.choose_tools(tools, messages=messages))


async def test_a_hidden_tool_is_found_and_shown_from_then_on_t_06() -> None:
    session = memory_session(max_tool_tokens=500)
    finder = session.tools()[3]
    tools = [*office_tools(), *(tool.definition for tool in session.tools())]
    messages = [user("Please create an invoice.")]
    before = await session.choose_tools(tools, messages=messages)
    assert "approve_ticket" not in names_of(before)
    assert finder.name == "find_tools"
    assert finder.name in names_of(before)
    assert "approve_ticket" in str(await finder.run({"query": "approve a ticket"}))
    assert "approve_ticket" in names_of(await session.choose_tools(tools, messages=messages))
    assert "No tool fits" in str(await finder.run({"query": "xqzzt"}))


async def test_a_tool_that_an_earlier_process_found_is_shown_t_06() -> None:
    first = memory_session(max_tool_tokens=500)
    finder = first.tools()[3]
    tools = [*office_tools(), *(tool.definition for tool in first.tools())]
    messages: list[Any] = [user("Please create an invoice.")]
    await first.choose_tools(tools, messages=messages)
    answer = str(await finder.run({"query": "approve a ticket"}))
    found = {"role": "tool", "tool_call_id": "find_tools", "content": answer}
    messages += [calling("find_tools"), found]
    second = memory_session(max_tool_tokens=500)
    assert "approve_ticket" in names_of(await second.choose_tools(tools, messages=messages))
    # Only the finder's own answer counts.
    messages[1] = calling("read_page", "find_tools")
    messages[2] = found | {"tool_call_id": "read_page"}
    third = memory_session(max_tool_tokens=500)
    assert "approve_ticket" not in names_of(await third.choose_tools(tools, messages=messages))


async def test_the_finder_is_shown_only_while_tools_are_hidden_t_06(session: Session) -> None:
    own = [tool.definition for tool in session.tools()]
    few = await session.choose_tools([*TOOLS[1:], *own], messages=[user("weather")])
    assert names_of(few) == names_of([*TOOLS, *own[1:3]])
    all_shown = memory_session(max_tool_tokens=None)
    assert [tool.name for tool in all_shown.tools()] == [
        *("read_context", "search_context", "query_context")
    ]


async def test_hidden_tools_are_logged_by_their_count_t_06(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    await memory_session().choose_tools(office_tools(), messages=[user("invoice")])
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "of 60 tools are shown" in caplog.text


async def test_definitions_are_returned_as_they_were_given_t_06() -> None:
    weather = TOOLS[1]
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    function = {"name": weather.name, "description": weather.description, "parameters": schema}
    spellings: list[Any] = [
        weather,
        Tool(print, name=weather.name, description=weather.description, parameters=schema),
        {"type": "function", "function": function},
        {"name": weather.name, "description": weather.description, "input_schema": schema},
        {"name": weather.name, "description": weather.description, "inputSchema": schema},
    ]
    for limit, is_shown in ((4_000, True), (0, False)):
        session = memory_session(max_tool_tokens=limit)
        for spelling in spellings:
            chosen = await session.choose_tools([spelling], messages=[user("weather")])
            assert [id(tool) for tool in chosen] == [id(spelling)] * is_shown
    with pytest.raises(ConfigError, match="a dict among the tools has no name"):
        await memory_session().choose_tools([{"type": "function"}], messages=[])


async def test_tools_of_the_same_name_with_another_schema_are_read_anew() -> None:
    session = memory_session(max_tool_tokens=100)
    changed = ToolDefinition("get_weather", "word " * 500)
    messages = [user("weather")]
    assert await session.choose_tools(TOOLS[1:2], messages=messages) == TOOLS[1:2]
    assert await session.choose_tools([changed], messages=messages) == []


async def test_a_pack_holds_results_and_turns_within_its_limit_t_01(session: Session) -> None:
    pointer_id = await offload_rows(session)
    turns = [
        TurnEntry(
            id="t1", timestamp=datetime(2026, 1, 1, tzinfo=UTC), role="user", content="part 1500?"
        )
    ]
    bundle = await session.pack("stock of part 1500", max_tokens=900, turns=turns)
    text = bundle.render()
    assert COUNTER.count(text) <= 900
    assert "part 1500?" in text
    assert pointer_id in text


async def test_an_overview_takes_150_tokens_and_lists_the_newest_first_t_01(
    session: Session,
) -> None:
    assert session.overview() == "No results are stored."
    rows = ROWS[:300]
    ids = [await offload_rows(session, args={"page": page}, result=rows) for page in range(30)]
    overview = session.overview()
    assert COUNTER.count(overview) <= 150
    size_bytes = 30 * len(json.dumps(rows, separators=(",", ":")))
    assert overview.startswith(f"30 results are stored, newest first, {size_bytes:,} bytes. ")
    listed = [pointer_id for pointer_id in ids if pointer_id in overview]
    assert listed == ids[-len(listed) :] != []
    assert overview.index(ids[-1]) < overview.index(ids[-2])


async def test_an_overview_counts_the_tokens_of_the_prompt() -> None:
    session = memory_session(fold=FoldPolicy(max_tokens=3_000))
    sent: list[Any] = await session.fold([user("Read the log."), user("line " * 900)])
    tokens = sum(message_tokens(message, COUNTER.count) for message in sent)
    assert f"{tokens:,} of 3,000 tokens (user {tokens:,})." in session.overview()


async def test_clearing_removes_all_of_the_session_and_nothing_else_t_01(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path)
    pointer_id = await offload_rows(Session(store, session_id="user:42"))
    other_id = await offload_rows(Session(store, session_id="user:43"))
    session = Session(store, session_id="user:42")
    await session.fold([user("word " * 40_000), user("short")])
    await session.clear()
    await session.clear()
    assert store.list(query_id="user:42") == []
    with pytest.raises(PointerNotFoundError) as caught:
        await session.read(pointer_id)
    assert caught.value.reason == "erased"
    assert (await Session(store, session_id="user:43").read(other_id)).total_chars > 0


async def test_results_may_be_offloaded_side_by_side_and_on_other_loops(session: Session) -> None:
    ids = await asyncio.gather(*(offload_rows(session, args={"n": n}) for n in range(8)))
    ids.append(await asyncio.to_thread(lambda: asyncio.run(offload_rows(session))))
    assert len({*ids}) == 9
    for pointer_id in ids:
        assert (await session.read(pointer_id, path="/0")).text


class SlowCounter:
    """Counts a tool's definition once its gate is open."""

    def __init__(self) -> None:
        self.began, self.gate = asyncio.Event(), asyncio.Event()
        self.loop = asyncio.get_running_loop()

    def count(self, text: str) -> int:
        if "send_mail" in text:
            self.loop.call_soon_threadsafe(self.began.set)
            asyncio.run_coroutine_threadsafe(self.gate.wait(), self.loop).result(5)
        return len(text)


async def test_results_are_offloaded_while_many_tools_are_indexed() -> None:
    counter = SlowCounter()
    session = memory_session(counter=counter)
    choosing = asyncio.create_task(session.choose_tools(TOOLS, messages=[user("mail")]))
    await counter.began.wait()
    await session.offload("sunny", tool="get_weather", args={}, turn="1")
    counter.gate.set()
    assert len(await choosing) == len(TOOLS)


async def test_the_fence_of_a_search_counts_towards_its_tokens() -> None:
    session = memory_session(max_read_tokens=300)
    for page in range(12):
        await offload_rows(session, args={"page": page})
    for max_read_tokens in range(300, 620, 17):
        config = replace(session.config, max_read_tokens=max_read_tokens)
        same = Session(session.store, session_id=session.session_id, config=config)
        answer = str(await same.tools()[1].run({"words": "part 1999"}))
        assert "part 1999" in answer
        assert COUNTER.count(answer) <= max_read_tokens


async def test_folded_messages_are_not_packed_as_results() -> None:
    session = memory_session(fold=FoldPolicy(max_tokens=600))
    messages = [
        {"role": "user", "content": f"door {n}: {n * 31}. " + "word " * 60} for n in range(30)
    ]
    await session.fold(messages)
    pointer_id = await offload_rows(session)
    bundle = await session.pack("door 3 and part 1500", max_tokens=2_000)
    accounts = [*bundle.kept, *bundle.dropped]
    assert [account.id for account in accounts if account.kind == "output"] == [pointer_id]
