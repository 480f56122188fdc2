"""The pieces that every framework's hooks are made of."""

import asyncio
import copy
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, ToolContextManager
from llm_common.errors import ToolArgumentsError, ToolFailedError
from llm_common.history import FoldPolicy
from llm_common.integrations.responses_items import (
    arguments_of,
    grouped,
    read_group,
    said,
    write_group,
)
from llm_common.integrations.session_hooks import (
    DEFAULT_TTL_S,
    SessionHooks,
    StoredItems,
    ToolFacts,
    plain_text,
    run_sync,
)

ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]
SESSION = "user:42"
TOOLS = [
    ToolFacts("read_context", "Reads a stored result.", {}),
    ToolFacts("get_weather", "Forecasts the weather of a city.", {}),
    ToolFacts("send_mail", "Sends a mail to a person.", {}),
    ToolFacts("list_issues", "Lists the open issues of a repository.", {}),
]


def itself(facts: ToolFacts) -> ToolFacts:
    return facts


def write(original: dict[str, Any] | None, text: str) -> dict[str, Any]:
    return {**(original or {"role": "user"}), "content": text}


def read(message: dict[str, Any]) -> Mapping[str, Any]:
    return message


async def test_a_large_result_is_offloaded_and_read_back() -> None:
    hooks = SessionHooks()
    shown = await hooks.offload(
        ROWS, tool_name="list_parts", args={}, session_id=SESSION, query="part 1234"
    )
    assert shown is not None
    assert "part 1234" in shown.text
    args = {
        "pointer_id": shown.pointer_id,
        "select": {"path": "/1500/stock", "filter": None},
        "cursor": None,
    }
    assert "10500" in await hooks.read_back(hooks.reader_name, args, session_id=SESSION)
    assert str(shown.pointer_id) in await hooks.read_back(
        "search_history", {"query": "part 1999"}, session_id=SESSION
    )


async def test_a_small_result_and_what_was_read_back_stay() -> None:
    hooks = SessionHooks()
    assert (
        await hooks.offload("sunny", tool_name="get_weather", args={}, session_id=SESSION) is None
    )
    assert (
        await hooks.offload(ROWS, tool_name=hooks.reader_name, args={}, session_id=SESSION) is None
    )
    assert hooks.store.list(query_id=SESSION) == []


async def test_a_session_cannot_read_or_find_what_another_stored() -> None:
    hooks = SessionHooks()
    shown = await hooks.offload(ROWS, tool_name="list_parts", args={}, session_id=SESSION)
    assert shown is not None
    with pytest.raises(ToolFailedError, match="no stored result of this session"):
        await hooks.read_back(
            hooks.reader_name, {"pointer_id": shown.pointer_id}, session_id="user:43"
        )
    assert "Nothing" in await hooks.read_back(
        "search_history", {"query": "part 1999"}, session_id="user:43"
    )


@pytest.mark.parametrize(
    ("turns", "stay"), [(("one", "one"), [True, False]), (("one", "two"), [True, True])]
)
async def test_calls_of_one_turn_share_its_budget(turns: tuple[str, str], stay: list[bool]) -> None:
    hooks = SessionHooks(policy=OffloadPolicy(turn_tokens=1_000))
    text = "word " * 500
    shown = [
        await hooks.offload(
            text, tool_name="get_text", args={"turn": turn}, session_id=SESSION, turn_id=turn
        )
        for turn in turns
    ]
    assert [one is None for one in shown] == stay


async def test_a_preview_without_room_still_names_the_pointer() -> None:
    hooks = SessionHooks(policy=OffloadPolicy(preview_tokens=0))
    shown = await hooks.offload(ROWS, tool_name="list_parts", args={}, session_id=SESSION)
    assert shown is not None
    assert str(shown.pointer_id) in shown.text
    assert hooks.reader_name in shown.text


@pytest.mark.parametrize(
    ("limit", "query", "keep", "names"),
    [
        (None, "weather", (), ["read_context", "get_weather", "send_mail", "list_issues"]),
        (10_000, "weather", (), ["read_context", "get_weather", "send_mail", "list_issues"]),
        (60, "the weather in Ulm", (), ["read_context", "get_weather"]),
        (40, "the weather in Ulm", ("send_mail",), ["read_context", "send_mail"]),
        (60, "xqzzt", ("send_mail",), ["read_context", "send_mail"]),
        (60, "xqzzt", (), ["read_context"]),
    ],
)
async def test_tools_over_the_limit_are_those_that_fit(
    limit: int | None, query: str, keep: tuple[str, ...], names: list[str]
) -> None:
    hooks = SessionHooks(tools_limit_tokens=limit)
    for _ in range(2):
        chosen = await hooks.choose_tools(TOOLS, query=query, facts_of=itself, keep=keep)
        assert [tool.name for tool in chosen] == names


async def test_tools_of_the_same_name_with_another_schema_are_read_anew() -> None:
    hooks = SessionHooks(tools_limit_tokens=0)
    assert await hooks.choose_tools(TOOLS[1:2], query="weather", facts_of=itself) == []
    hooks = SessionHooks(tools_limit_tokens=100)
    changed = ToolFacts("get_weather", "word " * 500, {})
    assert await hooks.choose_tools(TOOLS[1:2], query="weather", facts_of=itself) == TOOLS[1:2]
    assert await hooks.choose_tools([changed], query="weather", facts_of=itself) == []


async def test_messages_that_fit_are_the_same_objects() -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]
    for policy in (FoldPolicy(), None):
        shown = await SessionHooks(fold_policy=policy).fold_messages(
            messages, session_id=SESSION, read=read, write=write
        )
        assert [id(one) for one in shown] == [id(one) for one in messages]


async def test_a_long_history_is_folded_and_found_again() -> None:
    hooks = SessionHooks(fold_policy=FoldPolicy(limit_tokens=600))
    messages = [
        {
            "role": role,
            "content": f"{number} {role}: the code of door {number} is {number * 31}. "
            + "word " * 60,
        }
        for number in range(20)
        for role in ("user", "assistant")
    ]
    shown = await hooks.fold_messages(messages, session_id=SESSION, read=read, write=write)
    assert len(shown) < len(messages)
    assert shown[0]["content"].startswith("Earlier messages are folded away")
    assert shown[-1] is messages[-1]
    assert "93" in await hooks.read_back(
        "search_history", {"query": "code of door 3"}, session_id=SESSION
    )


async def test_a_text_beside_an_image_is_written_as_a_text() -> None:
    hooks = SessionHooks(fold_policy=FoldPolicy(limit_tokens=600))
    blocks = [{"type": "image", "url": "u"}, {"type": "text", "text": "word " * 2_000}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": blocks}]
    [shown] = await hooks.fold_messages(messages, session_id=SESSION, read=read, write=write)
    assert shown["content"].startswith("[This message has")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("user:42", True),
        ("thread 1", True),
        ("../etc", False),
        ("x" * 300, False),
        (7, False),
        (("app", "user"), False),
    ],
)
def test_a_session_has_the_name_of_the_framework_if_allowed(given: object, kept: bool) -> None:
    hooks = SessionHooks()
    assert (hooks.session(given) == given) is kept
    assert hooks.session(given) == SessionHooks().session(given)


def test_no_name_leads_to_the_session_of_another_one() -> None:
    hooks = SessionHooks()
    names: list[object] = [
        "a",
        "../etc",
        ("a", "b"),
        "('a', 'b')",
        '["a","b"]',
        7,
        "7",
        hooks.session("../etc"),
        "\ud800",
    ]
    assert len({hooks.session(name) for name in names}) == len(names)


def test_without_a_name_each_object_is_a_session() -> None:
    one, other = SessionHooks(), SessionHooks()
    assert one.session() == one.session("") == one.session_id != other.session()


async def test_a_manager_sees_what_is_offloaded(tmp_path: Path) -> None:
    manager = ToolContextManager(tmp_path)
    hooks = SessionHooks(manager)
    shown = await hooks.offload(ROWS, tool_name="list_parts", args={}, session_id=hooks.session())
    assert shown is not None
    assert [pointer.pointer_id for pointer in manager.get_all_pointers()] == [shown.pointer_id]
    again = SessionHooks(tmp_path)
    assert "10500" in await again.read_back(
        again.reader_name,
        {"pointer_id": shown.pointer_id, "select": {"path": "/1500"}},
        session_id=hooks.session(),
    )


@pytest.mark.parametrize("owned", [True, False])
async def test_only_a_store_of_its_own_is_collected(
    owned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = SessionHooks(None if owned else InMemoryContextPointerStore(ttl_s=DEFAULT_TTL_S))
    await hooks.store.save(
        query_id="old", task_id=None, tool_name="tool", args={}, result=ROWS, ttl_s=1e-9
    )
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 7_200.0)
    await hooks.offload(ROWS, tool_name="list_parts", args={}, session_id=SESSION)
    assert ((await hooks.store.gc()).expired == 0) is owned


async def test_the_synchronous_form_runs_beside_a_loop_and_raises_what_the_work_raises() -> None:
    hooks = SessionHooks()
    shown = run_sync(hooks.offload(ROWS, tool_name="list_parts", args={}, session_id=SESSION))
    assert shown is not None
    with pytest.raises(ToolArgumentsError):
        run_sync(hooks.read_back(hooks.reader_name, {"id": shown.pointer_id}, session_id=SESSION))
    assert await asyncio.to_thread(lambda: run_sync(asyncio.sleep(0, "done"))) == "done"


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="store is a int; pass a ContextPointerStore"):
        SessionHooks(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        ([{"type": "text", "text": "a"}, "b"], "a\nb"),
        ([{"type": "text", "text": "a"}, {"type": "image", "url": "x"}], None),
        ([], None),
        (None, None),
    ],
)
def test_only_text_counts_as_text(content: object, text: str | None) -> None:
    assert plain_text(content) == text


async def test_the_items_of_a_session_are_kept_in_order_and_out_of_reach_of_results() -> None:
    hooks = SessionHooks()
    items, other = StoredItems(hooks, "a"), StoredItems(hooks, "b")
    for number in range(12):
        await items.add_items([number, str(number)])
    assert await items.get_items(3) == ["10", 11, "11"]
    assert [await items.pop_item() for _ in range(3)] == ["11", 11, "10"]
    assert len(await items.get_items()) == 21
    assert hooks.store.list(query_id=hooks.session("a")) == []
    assert await other.get_items() == []
    assert await other.pop_item() is None
    await items.clear_session()
    assert await items.get_items() == []


def test_what_the_model_answered_at_once_is_one_message() -> None:
    asked = {"role": "user", "content": "Go"}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    said_ = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look"}],
    }
    call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": "x"}
    groups = grouped([asked, thought, said_, call, output, said_])
    assert groups == [[asked], [thought, said_, call], [output], [said_]]
    messages = [read_group(group) for group in groups]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["content"] == [thought, {"type": "output_text", "text": "I look"}]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "1"
    assert write_group(groups[2], "short") == [{**output, "output": "short"}]
    assert write_group(groups[3], "short") == [{"role": "assistant", "content": "short"}]
    assert write_group(None, "note") == [{"role": "user", "content": "note"}]
    assert said([asked, call]) == ("Go", {"look"})


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"arguments": [1]}),
        ("{broken", {"arguments": "{broken"}),
    ],
)
def test_arguments_that_are_no_object_are_kept(text: str, arguments: dict[str, Any]) -> None:
    assert arguments_of(text) == arguments


class Slow:
    """Counts a tool's definition once the gate is open."""

    def __init__(self) -> None:
        self.began, self.gate, self.was_opened = threading.Event(), threading.Event(), False

    def count(self, text: str) -> int:
        if "send_mail" in text:
            self.began.set()
            self.was_opened = self.gate.wait(5)
        return len(text)


async def test_results_are_offloaded_while_many_tools_are_indexed() -> None:
    counter = Slow()
    hooks = SessionHooks(counter=counter)
    choosing = asyncio.create_task(hooks.choose_tools(TOOLS, query="mail", facts_of=itself))
    await asyncio.to_thread(counter.began.wait)
    await hooks.offload("sunny", tool_name="get_weather", args={}, session_id=SESSION, turn_id="1")
    counter.gate.set()
    assert len(await choosing) == len(TOOLS)
    assert counter.was_opened


async def test_a_deep_copy_shares_the_store() -> None:
    hooks = SessionHooks()
    shown = await copy.deepcopy({"hooks": hooks})["hooks"].offload(
        ROWS, tool_name="list_parts", args={}, session_id=hooks.session_id
    )
    assert shown is not None
    read = await hooks.read_back(
        hooks.reader_name, {"pointer_id": shown.pointer_id}, session_id=hooks.session_id
    )
    assert "part 0" in read


async def test_what_two_writers_add_at_once_is_all_kept() -> None:
    hooks = SessionHooks()
    writers = [StoredItems(hooks, "a") for _ in range(8)]
    await asyncio.gather(
        *(writer.add_items([number, -number]) for number, writer in enumerate(writers))
    )
    await writers[0].add_items(["last"])
    items = await writers[1].get_items()
    assert sorted(items[:-1]) == sorted([*range(8), *(-number for number in range(8))])
    assert items[-1] == "last"
    assert [await writers[2].pop_item() for _ in range(17)] == items[::-1]
    assert await writers[3].pop_item() is None
