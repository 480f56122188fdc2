"""Test the functions that the hooks of all frameworks share: what they keep apart, keep, and end."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from llm_common.agents import (
    InMemoryContextPointerStore,
    OffloadPolicy,
    Session,
    SessionConfig,
    Sessions,
)
from llm_common.errors import ToolArgumentsError, ToolFailedError
from llm_common.history import FoldPolicy
from llm_common.integrations.delegation import begin_call, inlined, session_of_caller
from llm_common.integrations.responses_items import (
    arguments_of,
    group_items,
    read_group,
    write_group,
)
from llm_common.integrations.stored_items import StoredItems
from llm_common.integrations.translation import (
    choose_tools,
    fold_messages,
    plain_text,
    read_back,
    run_sync,
)
from llm_common.tools.definitions import ToolDefinition

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


LONG = "word " * 3_000


async def test_conversations_with_one_turn_name_have_budgets_of_their_own() -> None:
    policy = OffloadPolicy(max_whole_tokens=2_000, max_turn_tokens=1_500)
    sessions = Sessions(InMemoryContextPointerStore(), SessionConfig(offload=policy))
    text = "word " * 1_000
    for name in ("a", "b"):
        shown = await sessions.get(name).offload(text, tool="read", args={}, turn="1")
        assert shown.is_whole
    again = await sessions.get("b").offload(text, tool="read", args={"n": 2}, turn="1")
    assert not again.is_whole


async def test_items_of_a_conversation_outlive_its_results() -> None:
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = InMemoryContextPointerStore(ttl_s=60.0, clock=lambda: now[0])
    sessions = Sessions(store, SessionConfig(ttl_s=60.0))
    items = StoredItems(sessions, "a")
    await items.add_items([{"text": "hello"}])
    await sessions.get("a").offload(LONG, tool="read", args={})
    assert len(store.list(query_id="a")) == 1
    now[0] += timedelta(days=400)
    assert await items.get_items() == [{"text": "hello"}]
    assert store.list(query_id="a") == []


async def test_no_session_reads_the_items_of_a_conversation() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    items = StoredItems(sessions, "a")
    await items.add_items(["the code is 4711"])
    [query] = [summary.query_id for summary in sessions.store.queries()]
    assert await sessions.get("a").search("code") == ()
    # A name that looks like the id of the items is another conversation.
    assert sessions.session_id_of(query) != query
    assert await sessions.get(query).search("code") == ()


async def test_the_note_of_a_fold_names_the_tools_of_the_session() -> None:
    config = SessionConfig(
        offload=OffloadPolicy(reader_name="look_up"),
        fold=FoldPolicy(max_tokens=900),
        search_name="find_words",
    )
    session = Session(InMemoryContextPointerStore(), config=config)
    messages = [{"role": "user", "content": f"Use port {n}. " + "w " * 60} for n in range(40)]

    def write_note(original: dict[str, Any] | None, text: str) -> dict[str, Any]:
        assert original is None
        return write(original, text)

    [note, *_] = await fold_messages(session, messages, read=read, write=write_note)
    assert "read it with look_up (" in note["content"]
    assert "find it with find_words" in note["content"]
    assert "read_context" not in note["content"]


async def test_hidden_tools_leave_the_list_and_tools_of_the_provider_stay() -> None:
    config = SessionConfig(max_tool_tokens=120)
    session = Session(InMemoryContextPointerStore(), config=config)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    definitions: dict[str, ToolDefinition | None] = {"web search of the provider": None}
    for name in ("send_mail", "book_flight", "print_page", "resize_image", "call_taxi"):
        words = name.replace("_", " ")
        definitions[name] = ToolDefinition(
            name=name, description=f"Does {words}.", parameters=schema
        )
    chosen = await choose_tools(
        session,
        [*definitions],
        describe=definitions.__getitem__,
        messages=[{"role": "user", "content": "book a flight to Oslo"}],
        keep=("call_taxi",),
    )
    assert len(chosen) < len(definitions)
    assert chosen[0] == "web search of the provider"
    assert {"book_flight", "call_taxi"} <= {*chosen}
    assert chosen == [name for name in definitions if name in chosen]


# A parent that ignores SIGINT must not make the child ignore it.
INTERRUPTED = """
import asyncio, signal, threading
from llm_common.integrations.translation import run_sync

signal.signal(signal.SIGINT, signal.default_int_handler)
ended = threading.Event()

async def work():
    try:
        print("ready", flush=True)
        await asyncio.sleep(600)
    finally:
        ended.set()

try:
    run_sync(work())
except KeyboardInterrupt:
    print("ended" if ended.wait(10) else "goes on", flush=True)
"""


def test_the_work_of_an_interrupted_caller_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "ended\n"


def test_work_ends_whose_caller_is_interrupted_as_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin, ended = asyncio.run_coroutine_threadsafe, threading.Event()

    def interrupted(*args: Any) -> None:
        begin(*args)
        raise KeyboardInterrupt

    async def work() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_sync(work())
    assert ended.wait(60)


FORKED = """
import asyncio, os, signal
from llm_common.integrations.translation import run_sync

async def answer():
    await asyncio.sleep(0)
    return 7

assert run_sync(answer()) == 7
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(run_sync(answer()))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_runs_hooks_too() -> None:
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, check=True
    )
    assert completed.stdout == "7\n"


async def test_a_call_that_begins_in_a_task_ends_with_it() -> None:
    sessions = Sessions(InMemoryContextPointerStore())
    alice = sessions.get("alice")

    async def call() -> Session | None:
        begin_call(alice)
        await asyncio.sleep(0)
        return session_of_caller(sessions)

    assert await asyncio.create_task(call()) is alice
    assert session_of_caller(sessions) is None


async def test_an_id_is_inlined_once_and_not_within_longer_words() -> None:
    session = Session(InMemoryContextPointerStore())
    pointer = await session.results.save("all is well", tool="check", args={})
    for text in (f"x{pointer.pointer_id}", f"{pointer.pointer_id}9", pointer.pointer_id[:11]):
        assert await inlined(session, {"a": [text]}) == {"a": [text]}
    twice = f"{pointer.pointer_id} and {pointer.pointer_id}"
    nested = await inlined(session, {"a": [twice]})
    assert nested["a"][0].startswith(f"{twice}\n")
    assert nested["a"][0].count("all is well") == 1


def test_an_image_of_the_user_stays_beside_a_shorter_text() -> None:
    image = {"type": "input_image", "image_url": "u"}
    question = {"role": "user", "content": [{"type": "input_text", "text": "long"}, image]}
    answer = {"role": "assistant", "content": [{"type": "output_text", "text": "long"}]}
    text = {"type": "input_text", "text": "short"}
    assert write_group([question], "short") == [{"role": "user", "content": [text, image]}]
    assert write_group([answer], "short") == [{"role": "assistant", "content": "short"}]
    bare = {"role": "user", "content": "long"}
    assert write_group([bare], "short") == [{"role": "user", "content": "short"}]


def test_instructions_and_questions_are_no_part_of_a_response() -> None:
    call = {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"}
    said = {"role": "assistant", "content": "I look."}
    for role in ("user", "system", "developer"):
        item = {"role": role, "content": "Go"}
        assert group_items([call, item, said, item]) == [[call], [item], [said], [item]]
        assert read_group([item]) == {"role": role, "content": "Go"}
    assert read_group([said, call]) == {
        "role": "assistant",
        "content": [{"type": "text", "text": "I look."}],
        "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": "{}"}}],
    }
    # A message without a content, as a refusal, is empty.
    refusal = {"type": "message", "role": "assistant", "content": None}
    assert read_group([refusal])["content"] == []
