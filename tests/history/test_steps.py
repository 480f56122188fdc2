"""What a step of folding takes, in which order, and how far it goes."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from llm_common.history import FoldPolicy, Message, fold, search_history
from llm_common.pointers.records import LockedRecords
from llm_common.pointers.store import ContextPointerStore, InMemoryContextPointerStore
from llm_common.storage import MemoryBlobStore
from tests.context.samples import CharacterCounter


def call_and_output(number: int, name: str, args: dict[str, Any], output: str) -> list[Message]:
    call = {"type": "tool_use", "id": f"c{number}", "name": name, "input": args}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


async def parts_of(messages: list[Message], policy: FoldPolicy) -> list[tuple[str, int]]:
    folded = await fold(
        messages,
        store=InMemoryContextPointerStore(),
        session_id="s",
        policy=policy,
        counter=CharacterCounter(),
    )
    return [(part.kind, part.first) for part in folded.parts]


READ: dict[str, Any] = {"path": "a", "lines": 5}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (0.9, [11]),
        (0.8, [11, 9]),
        (0.65, [11, 9, 3]),
        (0.5, [11, 9, 3, 5]),
    ],
)
async def test_a_step_takes_the_largest_outputs(target: float, expected: list[int]) -> None:
    messages: list[Message] = [{"role": "user", "content": "Compare the files."}]
    messages += call_and_output(0, "read", READ, "a" * 1_700)
    messages += call_and_output(1, "read", READ, "b" * 1_600)
    messages += call_and_output(2, "read", READ, "c" * 1_400)
    messages += call_and_output(3, "list", READ, "d" * 1_800)
    messages += call_and_output(4, "find", READ, "e" * 2_000)
    messages.append({"role": "user", "content": "u" * 700})
    parts = await parts_of(messages, FoldPolicy(max_tokens=10_000, target_share=target))
    assert parts == [("output", position) for position in expected]


async def test_two_outputs_of_one_call_are_both_restored() -> None:
    store = InMemoryContextPointerStore()
    outputs = ["alpha " * 400, "beta " * 400]
    messages: list[Message] = [{"role": "user", "content": "Read it twice."}]
    for number, output in enumerate(outputs):
        messages += call_and_output(number, "read", READ, output)
    messages.append({"role": "user", "content": "u" * 700})
    folded = await fold(
        messages,
        store=store,
        session_id="s",
        policy=FoldPolicy(max_tokens=5_000, target_share=0.4),
        counter=CharacterCounter(),
    )
    assert [part.kind for part in folded.parts] == ["output", "output"]
    ids = [part.pointer_id for part in folded.parts]
    assert [json.loads(store.load_payload(one, query_id="s")[1]) for one in ids] == outputs


async def test_an_output_keeps_its_pointer_while_another_call_has_the_short_id() -> None:
    messages: list[Message] = [{"role": "user", "content": "Read it."}]
    messages += call_and_output(0, "read", READ, "alpha " * 400)
    messages.append({"role": "user", "content": "u" * 2_000})
    policy = FoldPolicy(max_tokens=4_000, target_share=0.9)
    blobs = MemoryBlobStore()
    store = ContextPointerStore(LockedRecords(blobs))
    await fold(messages, store=store, session_id="s", policy=policy, counter=CharacterCounter())
    [pointer] = store.list(query_id="s")
    other = pointer.model_copy(update={"tool_name": "other"})
    blobs.put(f"s/{pointer.pointer_id}.meta.json", other.model_dump_json().encode())

    folded = await fold(
        messages, store=store, session_id="s", policy=policy, counter=CharacterCounter()
    )
    [part] = folded.parts
    assert len(part.pointer_id) == 16
    assert f"under the id {part.pointer_id} and not" in str(folded.messages[2])
    assert json.loads(store.load_payload(part.pointer_id, query_id="s")[1]) == "alpha " * 400


@pytest.mark.parametrize(("age_s", "is_saved_again"), [(490, False), (510, True)])
async def test_a_part_is_saved_again_after_half_of_its_life(
    age_s: int, is_saved_again: bool
) -> None:
    blobs = MemoryBlobStore()
    messages = [{"role": "user", "content": f"{number} " + "x" * 90} for number in range(40)]
    policy = FoldPolicy(max_tokens=2_000)

    def store_of(age: int) -> ContextPointerStore:
        earlier = timedelta(seconds=age)
        return ContextPointerStore(LockedRecords(blobs), clock=lambda: datetime.now(UTC) - earlier)

    async def fold_at(age: int) -> list[str]:
        store = store_of(age)
        await fold(
            messages,
            store=store,
            session_id="s",
            policy=policy,
            ttl_s=1_000.0,
            counter=CharacterCounter(),
        )
        return [pointer.created_at for pointer in store.list(query_id="s")]

    before = await fold_at(age_s)
    after = await fold_at(0)
    assert len(before) == len(after) > 0
    assert (before != after) == is_saved_again


@pytest.mark.parametrize(("limit", "matches"), [(-1, 0), (0, 0), (3, 3), (20, 20), (99, 20)])
async def test_a_search_returns_at_most_twenty_matches(limit: int, matches: int) -> None:
    store = InMemoryContextPointerStore()
    for number in range(25):
        await store.save(query_id="s", tool_name="read", args={"n": number}, result="snow")
    assert len(await search_history("snow", store=store, session_id="s", limit=limit)) == matches
    assert len(await search_history("snow", store=store, session_id="s")) == 5


async def test_an_output_without_its_call_is_stored_as_of_a_tool() -> None:
    messages: list[Message] = [
        {"role": "user", "content": "Go on."},
        {"role": "tool", "tool_call_id": "lost", "content": "alpha " * 400},
        {"role": "user", "content": "u" * 2_000},
    ]
    store = InMemoryContextPointerStore()
    await fold(
        messages,
        store=store,
        session_id="s",
        policy=FoldPolicy(max_tokens=4_000, target_share=0.9),
        counter=CharacterCounter(),
    )
    [pointer] = store.list(query_id="s")
    assert (pointer.tool_name, pointer.args) == ("tool", {"arguments": None})


async def test_the_largest_limit_that_does_not_fold_is_the_size() -> None:
    messages: list[Message] = [{"role": "user", "content": "x" * 196} for _ in range(5)]
    store = InMemoryContextPointerStore()
    for max_tokens, is_folded in ((1_000, False), (999, True)):
        folded = await fold(
            messages,
            store=store,
            session_id="s",
            policy=FoldPolicy(max_tokens=max_tokens),
            counter=CharacterCounter(),
        )
        assert (folded.tokens == 1_000, bool(folded.parts)) == (not is_folded, is_folded)


async def test_a_folded_message_has_its_output_and_not_the_line_in_its_place() -> None:
    store = InMemoryContextPointerStore()
    messages: list[Message] = [{"role": "user", "content": "Read it."}]
    messages += call_and_output(0, "read", READ, "alpha " * 400)
    messages += [
        {"role": "assistant", "content": "x" * 900},
        {"role": "assistant", "content": "y" * 900},
        {"role": "user", "content": "u" * 1_600},
    ]
    folded = await fold(
        messages,
        store=store,
        session_id="s",
        policy=FoldPolicy(max_tokens=4_000, target_share=0.9, note_share=0.2),
        counter=CharacterCounter(),
    )
    assert [(part.kind, part.first, part.last) for part in folded.parts] == [
        ("output", 3, 3),
        ("messages", 1, 4),
    ]
    stored = json.loads(store.load_payload(folded.parts[1].pointer_id, query_id="s")[1])
    assert list(stored.values()) == messages[:4]


def of_empty_ids(calls: list[tuple[str, str]], *, is_openai: bool) -> list[Message]:
    """Return a turn whose calls all have the id "", with the name of a tool and its output each."""
    if is_openai:
        functions = [{"id": "", "function": {"name": name}} for name, _ in calls]
        outputs = [{"role": "tool", "tool_call_id": "", "content": text} for _, text in calls]
        return [{"role": "assistant", "content": None, "tool_calls": functions}, *outputs]
    uses = [{"type": "tool_use", "id": "", "name": name, "input": {}} for name, _ in calls]
    results = [{"type": "tool_result", "tool_use_id": "", "content": text} for _, text in calls]
    return [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]


@pytest.mark.parametrize("is_openai", [True, False])
async def test_outputs_of_calls_with_one_id_belong_to_their_own_tools(is_openai: bool) -> None:
    outputs = {"weather": "rain " * 400, "stock": "price " * 400}
    messages: list[Message] = [{"role": "user", "content": "Compare both."}]
    messages += of_empty_ids([*outputs.items()], is_openai=is_openai)
    messages += of_empty_ids([("stock", "low " * 20)], is_openai=is_openai)
    messages.append({"role": "user", "content": "u" * 1_500})
    store = InMemoryContextPointerStore()
    folded = await fold(
        messages,
        store=store,
        session_id="s",
        policy=FoldPolicy(max_tokens=5_500, target_share=0.6),
        counter=CharacterCounter(),
    )
    assert [part.kind for part in folded.parts] == ["output", "output"]
    assert {pointer.tool_name for pointer in store.list(query_id="s")} == {*outputs}
    for part in folded.parts:
        pointer, payload = store.load_payload(part.pointer_id, query_id="s")
        assert json.loads(payload) == outputs[pointer.tool_name]
        assert f"tokens of {pointer.tool_name} were here" in str(folded.messages)
        assert f"under the id {part.pointer_id} and not" in str(folded.messages)


@pytest.mark.torture
async def test_the_time_grows_with_the_outputs_and_not_with_their_square() -> None:
    messages: list[Message] = [{"role": "user", "content": "Read all."}]
    for number in range(2_000):
        messages += call_and_output(number, "read", {"number": number}, f"{number} alpha " * 80)
    started = time.process_time()
    parts = await parts_of(messages, FoldPolicy(max_tokens=8_000))
    assert len(parts) > 2_000
    assert time.process_time() - started < 4
