"""Which values of folded messages the note names for the next call."""

import json
import re
import time
from typing import Any

import pytest

from llm_common.history import FoldPolicy, fold
from llm_common.pointers.store import InMemoryContextPointerStore
from tests.history.conversations import conversation, plain


def called(number: int, args: dict[str, Any], output: object) -> list[dict[str, Any]]:
    function = {"name": "lookup", "arguments": json.dumps(args)}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"v{number}", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"v{number}", "content": json.dumps(output)},
    ]


async def note_of(start: list[dict[str, Any]], limit: int = 2_000) -> str:
    folded = await fold(
        [*start, *conversation(40)[1:]],
        store=InMemoryContextPointerStore(),
        session_id="s",
        policy=FoldPolicy(max_tokens=limit),
    )
    return str(plain(folded.messages[0])["content"])


async def test_values_are_listed_by_their_fields_those_in_calls_first() -> None:
    start = called(
        1, {"user_id": "mia_li_3668"}, {"payments": [{"id": "card_77"}], "note": "x" * 300}
    )
    start += called(2, {"payment_id": "card_77"}, [{"code": "HAT110"}, {"code": "HAT172"}])
    note = await note_of(start)
    line = re.search(r"^Values: (.*)$", note, re.MULTILINE)
    assert line is not None
    assert "payment_id card_77" in line[1]
    assert "user_id mia_li_3668" in line[1]
    assert "code HAT110, HAT172" in line[1] or "code HAT172, HAT110" in line[1]
    assert line[1].index("card_77") < line[1].index("HAT110")
    assert "xxx" not in line[1]


async def test_values_that_the_model_sees_are_not_repeated() -> None:
    messages = [*called(1, {"id": "AB-1234"}, "ok"), *conversation(40)[1:]]
    messages.append({"role": "user", "content": "And AB-1234?"})
    folded = await fold(
        messages,
        store=InMemoryContextPointerStore(),
        session_id="s",
        policy=FoldPolicy(max_tokens=2_000, target_share=0.9),
    )
    note = str(plain(folded.messages[0])["content"])
    assert "Values: " in note


@pytest.mark.parametrize("output", ["a" * 40_000 + "-", "-" * 50_000 + "!", "\n" * 60_000 + "."])
async def test_long_odd_outputs_are_folded_in_linear_time(output: str) -> None:
    start = called(1, {"id": "AB-1234"}, "ok")
    start[1]["content"] = output
    begin = time.process_time()
    note = await note_of(start)
    assert time.process_time() - begin < 4
    assert "AB-1234" in note


@pytest.mark.parametrize("word", ["ACGT" * 25_000 + ".", "a." * 25_000 + "!", "~/" * 15_000])
async def test_a_long_word_in_an_output_takes_linear_time(word: str) -> None:
    started = time.process_time()
    note = await note_of(called(1, {"id": "AB-1234"}, f"ticket TK-4711, sequence: {word}"))
    assert time.process_time() - started < 5
    assert "TK-4711" in note


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
async def test_a_deeply_nested_output_is_folded(opening: str, closing: str) -> None:
    deep = opening * 1_000 + "4711" + closing * 1_000
    turn = called(1, {}, "")
    turn[1]["content"] = deep
    turn[0]["tool_calls"][0]["function"]["arguments"] = deep
    note = await note_of([*turn, *called(2, {}, {"a": [{"b": "AB-1234"}]})])
    assert "AB-1234" in note


async def test_empty_lines_take_linear_time() -> None:
    started = time.process_time()
    note = await note_of([{"role": "assistant", "content": "\n" * 25_000 + "The id is AB-1234."}])
    assert time.process_time() - started < 5
    assert "AB-1234" in note
