"""Test the functions that the hooks of all frameworks share."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from llm_common.agents import InMemoryContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ToolArgumentsError, ToolFailedError
from llm_common.history import FoldPolicy
from llm_common.integrations.responses_items import (
    arguments_of,
    group_items,
    read_group,
    write_group,
)
from llm_common.integrations.stored_items import StoredItems
from llm_common.integrations.translation import fold_messages, plain_text, read_back, run_sync

ROWS = [{"id": number, "name": f"part {number}", "stock": number * 7} for number in range(2_000)]


def session_of(**config: Any) -> Session:
    return Session(InMemoryContextPointerStore(), config=SessionConfig(**config))


def write(original: dict[str, Any] | None, text: str) -> dict[str, Any]:
    return {**(original or {"role": "user"}), "content": text}


def read(message: dict[str, Any]) -> Mapping[str, Any]:
    return message


async def test_an_offloaded_result_is_read_back_and_found() -> None:
    session = session_of()
    shown = await session.offload(ROWS, tool="list_parts", args={})
    args = {
        "id": shown.pointer_id,
        "path": "/1500/stock",
        "keys": None,
        "cursor": None,
    }
    assert "10500" in await read_back(session, "read_context", args)
    found = await read_back(session, "search_context", {"words": "part 1999"})
    assert str(shown.pointer_id) in found
    with pytest.raises(ToolFailedError, match="no stored result of this session"):
        await read_back(session_of(), "read_context", args)


@pytest.mark.parametrize("policy", [FoldPolicy(), None])
async def test_messages_that_fit_are_the_same_objects(policy: FoldPolicy | None) -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "yes"}]
    sent = await fold_messages(session_of(fold=policy), messages, read=read, write=write)
    assert [id(message) for message in sent] == [id(message) for message in messages]


async def test_a_long_history_is_folded_and_found_again() -> None:
    session = session_of(fold=FoldPolicy(max_tokens=600))
    messages = [
        {"role": role, "content": f"{n} {role}: the code of door {n} is {n * 31}. " + "word " * 60}
        for n in range(20)
        for role in ("user", "assistant")
    ]
    sent = await fold_messages(session, messages, read=read, write=write)
    assert len(sent) < len(messages)
    assert sent[0]["content"].startswith("Earlier messages are folded away")
    assert sent[-1] is messages[-1]
    assert "93" in await read_back(session, "search_context", {"words": "code of door 3"})


async def test_the_text_of_a_message_with_an_image_is_shortened() -> None:
    session = session_of(fold=FoldPolicy(max_tokens=600))
    blocks = [{"type": "image", "url": "u"}, {"type": "text", "text": "word " * 2_000}]
    messages: list[dict[str, Any]] = [{"role": "assistant", "content": "word " * 200}] * 3
    messages.append({"role": "user", "content": blocks, "key": "of the framework"})
    [note, sent] = await fold_messages(session, messages, read=read, write=write)
    assert note["content"].startswith("Earlier messages are folded away")
    assert sent["content"].startswith("[This message has")
    assert sent["key"] == "of the framework"


async def test_run_sync_works_beside_a_loop_and_raises_errors() -> None:
    session = session_of()
    shown = run_sync(session.offload(ROWS, tool="list_parts", args={}))
    assert shown.pointer_id is not None
    with pytest.raises(ToolArgumentsError):
        run_sync(read_back(session, "read_context", {"name": shown.pointer_id}))
    assert await asyncio.to_thread(lambda: run_sync(asyncio.sleep(0, "done"))) == "done"


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
def test_plain_text_is_none_for_anything_but_text(content: object, text: str | None) -> None:
    assert plain_text(content) == text


async def test_items_stay_in_order_and_apart_from_results() -> None:
    sessions = Sessions()
    items, other = StoredItems(sessions, "a"), StoredItems(sessions, "b")
    for number in range(12):
        await items.add_items([number, str(number)])
        await items.add_items([])
    assert await items.get_items(3) == ["10", 11, "11"]
    assert await items.get_items(0) == []
    assert await items.get_items(99) == await items.get_items()
    assert [await items.pop_item() for _ in range(3)] == ["11", 11, "10"]
    assert len(await items.get_items()) == 21
    assert sessions.store.list(query_id=sessions.session_id_of("a")) == []
    assert await other.get_items() == []
    assert await other.pop_item() is None
    await items.clear_session()
    assert await items.get_items() == []


def test_items_of_one_model_response_are_one_message() -> None:
    asked = {"role": "user", "content": "Go"}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    said_ = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look"}],
    }
    call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "1", "output": "x"}
    groups = group_items([asked, thought, said_, call, output, said_])
    assert groups == [[asked], [thought, said_, call], [output], [said_]]
    messages = [read_group(group) for group in groups]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["content"] == [thought, {"type": "output_text", "text": "I look"}]
    assert messages[1]["tool_calls"][0]["id"] == messages[2]["tool_call_id"] == "1"
    assert write_group(groups[2], "short") == [{**output, "output": "short"}]
    assert write_group(groups[3], "short") == [{"role": "assistant", "content": "short"}]
    assert write_group(None, "note") == [{"role": "user", "content": "note"}]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ('{"a": 1}', {"a": 1}),
        ("[1]", {"arguments": [1]}),
        ("{broken", {"arguments": "{broken"}),
    ],
)
def test_arguments_that_are_not_an_object_are_preserved(
    text: str, arguments: dict[str, Any]
) -> None:
    assert arguments_of(text) == arguments


async def test_items_of_concurrent_writers_are_all_stored() -> None:
    sessions = Sessions()
    writers = [StoredItems(sessions, "a") for _ in range(8)]
    await asyncio.gather(
        *(writer.add_items([number, -number]) for number, writer in enumerate(writers))
    )
    await writers[0].add_items(["last"])
    items = await writers[1].get_items()
    assert sorted(items[:-1]) == sorted([*range(8), *(-number for number in range(8))])
    assert items[-1] == "last"
    assert [await writers[2].pop_item() for _ in range(17)] == items[::-1]
    assert await writers[3].pop_item() is None
