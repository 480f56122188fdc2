"""What a step of folding takes, in which order, and how far it goes."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from llm_common.history import Folded, Message, search_history
from llm_common.pointers.records import LockedRecords
from llm_common.pointers.store import ContextPointerStore, InMemoryContextPointerStore
from llm_common.storage import MemoryBlobStore
from tests.context.samples import CharacterCounter
from tests.history.conversations import calls_for, folded, said


def use_and_result(number: int, name: str, args: dict[str, Any], output: str) -> list[Message]:
    """Return a call in Anthropic's shape, and its output."""
    call = {"type": "tool_use", "id": f"c{number}", "name": name, "input": args}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": output}
    return [said("assistant", [call]), said("user", [result])]


async def folded_at(messages: list[Any], max_tokens: int, **more: Any) -> Folded:
    """Return a history folded with a token for each character."""
    return await folded(messages, max_tokens, counter=CharacterCounter(), **more)


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
    messages = [
        said("user", "Compare the files."),
        *use_and_result(0, "read", READ, "a" * 1_700),
        *use_and_result(1, "read", READ, "b" * 1_600),
        *use_and_result(2, "read", READ, "c" * 1_400),
        *use_and_result(3, "list", READ, "d" * 1_800),
        *use_and_result(4, "find", READ, "e" * 2_000),
        said("user", "u" * 700),
    ]
    parts = (await folded_at(messages, 10_000, target_share=target)).parts
    assert [(part.kind, part.first) for part in parts] == [("output", n) for n in expected]


async def test_two_outputs_of_one_call_are_both_restored() -> None:
    store = InMemoryContextPointerStore()
    outputs = ["alpha " * 400, "beta " * 400]
    messages = [
        said("user", "Read it twice."),
        *use_and_result(0, "read", READ, outputs[0]),
        *use_and_result(1, "read", READ, outputs[1]),
        said("user", "u" * 700),
    ]
    parts = (await folded_at(messages, 5_000, target_share=0.4, store=store)).parts
    assert [part.kind for part in parts] == ["output", "output"]
    payloads = [store.load_payload(part.pointer_id, query_id="s")[1] for part in parts]
    assert [json.loads(payload) for payload in payloads] == outputs


async def test_an_output_keeps_its_pointer_while_another_call_has_the_short_id() -> None:
    output = use_and_result(0, "read", READ, "alpha " * 400)
    messages = [said("user", "Read it."), *output, said("user", "u" * 2_000)]
    blobs = MemoryBlobStore()
    store = ContextPointerStore(LockedRecords(blobs))
    await folded_at(messages, 4_000, target_share=0.9, store=store)
    [pointer] = store.list(query_id="s")
    other = pointer.model_copy(update={"tool_name": "other"})
    blobs.put(f"s/{pointer.pointer_id}.meta.json", other.model_dump_json().encode())

    result = await folded_at(messages, 4_000, target_share=0.9, store=store)
    [part] = result.parts
    assert len(part.pointer_id) == 16
    assert f"under the id {part.pointer_id} and not" in str(result.messages[2])
    assert json.loads(store.load_payload(part.pointer_id, query_id="s")[1]) == "alpha " * 400


@pytest.mark.parametrize(("age_s", "is_saved_again"), [(490, False), (510, True)])
async def test_a_part_is_saved_again_after_half_of_its_life(
    age_s: int, is_saved_again: bool
) -> None:
    blobs = MemoryBlobStore()
    messages = [said("user", f"{number} " + "x" * 90) for number in range(40)]

    async def fold_at(age: int) -> list[str]:
        earlier = timedelta(seconds=age)
        store = ContextPointerStore(LockedRecords(blobs), clock=lambda: datetime.now(UTC) - earlier)
        await folded_at(messages, 2_000, store=store, ttl_s=1_000.0)
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
    lost = {"role": "tool", "tool_call_id": "lost", "content": "alpha " * 400}
    store = InMemoryContextPointerStore()
    messages = [said("user", "Go on."), lost, said("user", "u" * 2_000)]
    await folded_at(messages, 4_000, target_share=0.9, store=store)
    [pointer] = store.list(query_id="s")
    assert (pointer.tool_name, pointer.args) == ("tool", {"arguments": None})


async def test_the_largest_limit_that_does_not_fold_is_the_size() -> None:
    messages = [said("user", "x" * 196)] * 5
    fitting, folded_away = await folded_at(messages, 1_000), await folded_at(messages, 999)
    assert (fitting.tokens, fitting.parts) == (1_000, ())
    assert folded_away.parts


async def test_a_folded_message_has_its_output_and_not_the_line_in_its_place() -> None:
    store = InMemoryContextPointerStore()
    messages = [
        said("user", "Read it."),
        *use_and_result(0, "read", READ, "alpha " * 400),
        *(said("assistant", "x" * 900), said("assistant", "y" * 900)),
        said("user", "u" * 1_600),
    ]
    shares = {"target_share": 0.9, "note_share": 0.2}
    parts = (await folded_at(messages, 4_000, store=store, **shares)).parts
    assert [(part.kind, part.first, part.last) for part in parts] == [
        ("output", 3, 3),
        ("messages", 1, 4),
    ]
    stored = json.loads(store.load_payload(parts[1].pointer_id, query_id="s")[1])
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
    messages = [
        said("user", "Compare both."),
        *of_empty_ids([*outputs.items()], is_openai=is_openai),
        *of_empty_ids([("stock", "low " * 20)], is_openai=is_openai),
        said("user", "u" * 1_500),
    ]
    store = InMemoryContextPointerStore()
    result = await folded_at(messages, 5_500, target_share=0.6, store=store)
    assert [part.kind for part in result.parts] == ["output", "output"]
    assert {pointer.tool_name for pointer in store.list(query_id="s")} == {*outputs}
    for part in result.parts:
        pointer, payload = store.load_payload(part.pointer_id, query_id="s")
        assert json.loads(payload) == outputs[pointer.tool_name]
        assert f"tokens of {pointer.tool_name} were here" in str(result.messages)
        assert f"under the id {part.pointer_id} and not" in str(result.messages)


@pytest.mark.torture
async def test_the_time_grows_with_the_outputs_and_not_with_their_square() -> None:
    messages = calls_for("Read all.", *(f"{number} alpha " * 80 for number in range(2_000)))
    started = time.process_time()
    assert len((await folded_at(messages, 8_000)).parts) > 2_000
    assert time.process_time() - started < 4
