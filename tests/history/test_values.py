"""Which values of folded messages the note names for the next call."""

import json
import re
import time
from typing import Any

import pytest

from tests.history.conversations import call_and_output, conversation, folded, note_of, said


async def note_after(start: list[dict[str, Any]]) -> str:
    """Return the note of a history that begins with these messages."""
    return note_of(await folded([*start, *conversation(40)[1:]]))


async def test_values_are_listed_by_their_fields_those_in_calls_first() -> None:
    paid = {"payments": [{"id": "card_77"}], "note": "x" * 300}
    flights = [{"code": "HAT110"}, {"code": "HAT172"}]
    note = await note_after(
        [
            *call_and_output(1, "lookup", {"user_id": "mia_li_3668"}, json.dumps(paid)),
            *call_and_output(2, "lookup", {"payment_id": "card_77"}, json.dumps(flights)),
        ]
    )
    line = re.search(r"^Values: (.*)$", note, re.MULTILINE)
    assert line is not None
    assert "payment_id card_77" in line[1]
    assert "user_id mia_li_3668" in line[1]
    assert "code HAT110, HAT172" in line[1] or "code HAT172, HAT110" in line[1]
    assert line[1].index("card_77") < line[1].index("HAT110")
    assert "xxx" not in line[1]


@pytest.mark.parametrize(
    "output",
    [
        *("a" * 40_000 + "-", "-" * 50_000 + "!", "\n" * 60_000 + "."),
        *(
            f"sequence: {word}"
            for word in ("ACGT" * 25_000 + ".", "a." * 25_000 + "!", "~/" * 15_000)
        ),
    ],
)
async def test_long_odd_outputs_are_folded_in_linear_time(output: str) -> None:
    start = call_and_output(1, "lookup", {"id": "AB-1234"}, f"ticket TK-4711, {output}")
    begin = time.process_time()
    note = await note_after([*start, said("assistant", "\n" * 25_000 + "The id is EF-5678.")])
    assert time.process_time() - begin < 5
    assert "AB-1234" in note
    assert "TK-4711" in note
    assert "EF-5678" in note


async def test_values_that_the_model_sees_are_not_repeated() -> None:
    start = call_and_output(1, "lookup", {"id": "AB-1234", "of": "AB-5678"}, "ok")
    newest = [said("user", "And AB-1234?"), said("assistant", "so " * 900)]
    note = note_of(await folded([*start, *conversation(40)[1:], *newest], target_share=0.9))
    [values] = re.findall(r"^Values: (.*)$", note, re.MULTILINE)
    assert "AB-5678" in values
    assert "AB-1234" not in values


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}")])
async def test_a_deeply_nested_output_is_folded(opening: str, closing: str) -> None:
    deep = opening * 1_000 + "4711" + closing * 1_000
    call, output = call_and_output(1, "lookup", {}, deep)
    call["tool_calls"][0]["function"]["arguments"] = deep
    nested = json.dumps({"a": [{"b": "AB-1234"}]})
    assert "AB-1234" in await note_after([call, output, *call_and_output(2, "lookup", {}, nested)])
