"""The model sees true counts of its context, and what it drops comes back word for word."""

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import pytest

from llm_common.agents import InMemoryContextPointerStore, Session, SessionConfig
from llm_common.core import DefaultCounter
from llm_common.core.tokens import message_tokens
from llm_common.errors import ToolFailedError
from llm_common.history import FoldPolicy, Message
from llm_common.tools.tool import Tool

COUNTER = DefaultCounter()
LIMIT = 3_000
STEPS = 40


def session_of(limit: int = LIMIT, **settings: Any) -> Session:
    config = SessionConfig(fold=FoldPolicy(max_tokens=limit), drops_outputs=True, **settings)
    return Session(InMemoryContextPointerStore(), session_id="s", config=config)


def tools_of(session: Session) -> Mapping[str, Tool]:
    return {tool.name: tool for tool in session.tools()}


def call(number: int, name: str, args: dict[str, Any], output: str) -> list[Message]:
    function = {"name": name, "arguments": json.dumps(args)}
    calls = [{"id": f"c{number}", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]


def log_of(rng: random.Random, name: str, words: int = 200) -> str:
    return f"log of {name}: " + " ".join(str(rng.randrange(10**6)) for _ in range(words))


def tokens_of(messages: list[Any]) -> int:
    return sum(message_tokens(message, COUNTER.count) for message in messages)


def outputs_in(overview: str) -> dict[str, int]:
    """Return the tokens of the shown outputs, by id."""
    lines = re.findall(r"^(\w{12}): \w+, shown, ([\d,]+) tokens", overview, re.MULTILINE)
    return {pointer_id: int(tokens.replace(",", "")) for pointer_id, tokens in lines}


async def test_the_overview_counts_the_tokens_of_the_prompt() -> None:
    rng = random.Random(1)
    session = session_of()
    messages: list[Message] = [
        {"role": "system", "content": "You read logs."},
        {"role": "user", "content": "Read two logs."},
        *call(1, "read_log", {"name": "a"}, log_of(rng, "a", 150)),
        *call(2, "read_log", {"name": "b"}, log_of(rng, "b", 100)),
    ]
    sent = await session.fold(messages)
    overview = session.overview()
    assert f"{tokens_of(sent):,} of {LIMIT:,} tokens" in overview
    output_tokens = COUNTER.count(str(messages[3]["content"]))  # type: ignore[index]
    assert f"read_log, shown, {output_tokens:,} tokens, 2 messages ago" in overview
    assert COUNTER.count(overview) <= 150


async def test_readings_are_counted() -> None:
    session = session_of()
    rows = [{"n": number, "text": "x" * 50} for number in range(500)]
    shown = await session.offload(rows, tool="rows", args={})
    assert shown.pointer_id is not None
    await session.read(shown.pointer_id)
    assert "read once" in session.overview()
    await tools_of(session)["read_context"].run({"pointer_id": shown.pointer_id})
    assert "read 2 times" in session.overview()


async def test_a_drop_takes_effect_at_the_next_step_and_changes_nothing_before() -> None:
    rng = random.Random(2)
    session = session_of()
    small = log_of(rng, "small", 60)
    messages: list[Message] = [
        {"role": "user", "content": "Read logs."},
        *call(1, "read_log", {"name": "small"}, small),
        *call(2, "read_log", {"name": "b"}, log_of(rng, "b", 600)),
    ]
    before = await session.fold(messages)
    pointer_id = min(outputs := outputs_in(session.overview()), key=outputs.__getitem__)
    answer = await tools_of(session)["drop_context"].run({"ids": [pointer_id]})
    drop = call(3, "drop_context", {"ids": [pointer_id]}, str(answer))
    after = await session.fold([*messages, *drop])
    assert after[: len(before)] == before, "nothing changes before the next step of folding"

    more = call(4, "read_log", {"name": "c"}, log_of(rng, "c", 400))
    assert small in json.dumps(await session.fold([*messages, *more])), "the step has room for it"
    folded = json.dumps(await session.fold([*messages, *drop, *more]))
    assert small not in folded
    assert pointer_id in folded

    answer = await tools_of(session)["restore_context"].run({"id": pointer_id})
    assert answer == small
    restore = call(5, "restore_context", {"id": pointer_id}, str(answer))
    assert small in json.dumps(await session.fold([*messages, *drop, *more, *restore]))


# Together some 500 drops and restores.
CAMPAIGN = [pytest.param(seed, marks=pytest.mark.torture) for seed in range(1, 30)]


@pytest.mark.parametrize("seed", [0, *CAMPAIGN])
async def test_random_drops_come_back_word_for_word(seed: int) -> None:
    rng = random.Random(seed)
    session = session_of()
    tools = tools_of(session)
    contents: dict[str, str] = {}  # by the ids that the model saw
    messages: list[Message] = [{"role": "user", "content": "Read logs."}]
    logs: list[str] = []
    restored = 0
    for number in range(STEPS):
        # Each has another number of words, so that its tokens tell which one it is.
        content = log_of(rng, str(number), 40 + number)
        logs.append(content)
        messages += call(number, "read_log", {"name": number}, content)
        sent = await session.fold(messages)
        overview = session.overview()
        assert f" {tokens_of(sent):,} of" in overview
        assert COUNTER.count(overview) <= 150
        for pointer_id, tokens in outputs_in(overview).items():
            if pointer_id not in contents and rng.random() < 0.5:
                [contents[pointer_id]] = {text for text in logs if COUNTER.count(text) == tokens}
                args = {"ids": [pointer_id]}
                answer = await tools["drop_context"].run(args)
                messages += call(10_000 + number, "drop_context", args, str(answer))
                break
        if contents and rng.random() < 0.5:
            pointer_id = rng.choice(sorted(contents))
            answer = str(await tools["restore_context"].run({"id": pointer_id}))
            if "still in your context" not in answer:
                assert answer == contents[pointer_id]
                restored += 1
            messages += call(20_000 + number, "restore_context", {"id": pointer_id}, answer)
    assert restored > STEPS / 10


async def test_unknown_ids_and_outputs_without_room_are_refused_with_the_way_out() -> None:
    rng = random.Random(4)
    session = session_of(1_000)
    with pytest.raises(ToolFailedError, match=r"abc is not the id .* These are: none"):
        await tools_of(session)["drop_context"].run({"ids": ["abc"]})
    messages: list[Message] = [
        {"role": "user", "content": "Read logs."},
        *call(1, "read_log", {"name": "a"}, log_of(rng, "a", 600)),
        {"role": "assistant", "content": "Read."},
        {"role": "user", "content": "Go on."},
    ]
    await session.fold(messages)
    [pointer] = session.results.list_all()
    with pytest.raises(ToolFailedError, match=r"500 fit; read parts of it with read_context"):
        await tools_of(session)["restore_context"].run({"id": pointer.pointer_id})


def test_without_the_setting_a_session_has_no_tools_to_drop() -> None:
    session = Session(InMemoryContextPointerStore())
    assert not {"drop_context", "restore_context"} & tools_of(session).keys()
