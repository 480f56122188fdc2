"""Replies that a model must not send, and does."""

import json

import pytest

from llm_common.agents import ContextPointer, ContextRelevanceSelector
from llm_common.core import LLMResponse
from llm_common.testing import ScriptedClient

A, B = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
GOOD = f'{{"pointer_ids":["{A}"]}}'
CANDIDATES = [
    ContextPointer(
        pointer_id=each,
        query_id="q",
        tool_name="t",
        created_at="now",
        summary=f"t k={each}",
        result_path="x",
    )
    for each in (A, B)
]


def answer(content: object, **fields: object) -> LLMResponse:
    return LLMResponse.model_validate(
        {"id": "1", "model": "m", "content": content, "finish_reason": "stop", **fields}
    )


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": GOOD}}

FAIL_CLOSED = [
    ("F-073", ""),
    ("F-073", " \n\t"),
    ("F-074", answer(None)),
    ("F-077", answer(None, tool_calls=[CALL])),
    ("F-078", answer(None, function_call={"name": "f", "arguments": GOOD})),
    ("F-082", "```json\n```"),
    ("F-083", f'{GOOD}\n{{"pointer_ids":["{B}"]}}'),
    ("F-086", f"<think>perhaps {GOOD}"),
    ("F-088", answer(GOOD, finish_reason="length")),
    ("F-089", answer(GOOD, finish_reason="content_filter")),
    ("F-089", "I'm sorry, but I can't help with that."),
    ("F-089", answer(None, refusal="no")),
    ("F-090", f'{{"pointer_ids":["{A}"],"pointer_ids":["{B}"]}}'),
    ("F-091", f'{{"pointer_ids":["{A}"],"score":NaN}}'),
    ("F-091", f'{{"pointer_ids":["{A}"],"score":-Infinity}}'),
    ("F-092", "[" * 100_000),
    ("F-092", '{"pointer_ids":' + "[" * 100_000 + "]" * 100_000 + "}"),
    ("F-093", json.dumps({"pointer_ids": [A], "why": "x" * 5_000_000})),
    ("F-094", f'{{"pointer_ids":["{A}"],"n":{"9" * 5_000}}}'),
    ("F-095", f"{{'pointer_ids':['{A}']}}"),
    ("F-095", f'{{"pointer_ids":["{A}",]}}'),
    ("F-095", f'{{"pointer_ids":["{A}"] /* best */}}'),
    ("F-097", "{}"),
    ("F-097", f'{{"ids":["{A}"]}}'),
    ("F-097", '{"pointer_ids":null}'),
    ("F-099", '{"pointer_ids":["cccccccccccc"]}'),
    ("F-100", '{"pointer_ids":["*"]}'),
    ("F-100", '{"pointer_ids":["all"]}'),
    ("F-100", '{"pointer_ids":"all"}'),
    ("F-101", '{"pointer_ids":[0,1]}'),
    ("F-101", '{"pointer_ids":["0","1"]}'),
    ("F-105", '{"pointer_ids":["x"]}'),
    ("F-106", '{"__proto__":{"pointer_ids":["aaaaaaaaaaaa"]},"__class__":"list"}'),
]

PARSED = [
    ("F-075", answer([{"type": "text", "text": GOOD[:9]}, {"type": "text", "text": GOOD[9:]}])),
    (
        "F-076",
        answer(
            [
                {"type": "image_url", "image_url": {"url": "x"}},
                {"type": "text", "text": GOOD},
                {"type": "?"},
            ]
        ),
    ),
    ("F-079", f"```json\n{GOOD}\n```"),
    ("F-079", f"```\n{GOOD}\n```"),
    ("F-079", f"```JSON\n{GOOD}\n```"),
    ("F-079", f"~~~\n{GOOD}\n~~~"),
    ("F-080", f"Here you go:\n```json\n{GOOD}\n```\nAnything else?"),
    ("F-081", f'```json\n{{"pointer_ids":["{A}"],"why":"it says ```x``` there"}}\n```'),
    ("F-084", f"{GOOD}\n{GOOD}"),
    ("F-085", f'<think>{{"pointer_ids":["{B}"]}}</think>\n{GOOD}'),
    ("F-096", json.dumps(GOOD)),
    (
        "F-098",
        json.dumps(
            {
                "pointer_ids": [
                    "zz",
                    f" {A.upper()} ",
                    A,
                    7,
                    [A],
                    None,
                    True,
                    {"id": B},
                    1.5,
                    "é" * 99,
                ]
            }
        ),
    ),
    ("F-098", json.dumps({"pointer_ids": [f"{number:012x}" for number in range(10_000)] + [A]})),
    ("F-099", f'{{"pointer_ids":["cccccccccccc","{A}"]}}'),
    ("F-106", f'{{"__proto__":{{}},"__class__":"os.system","pointer_ids":["__class__","{A}"]}}'),
]


@pytest.mark.parametrize(
    "reply", [reply for _, reply in FAIL_CLOSED], ids=[row for row, _ in FAIL_CLOSED]
)
async def test_an_unsound_reply_selects_nothing(reply: str | LLMResponse) -> None:
    client = ScriptedClient([reply])
    selection = await ContextRelevanceSelector(client).select_detailed(
        query="q", pointers=CANDIDATES
    )
    assert (selection.pointers, selection.status, len(client.calls)) == ([], "invalid", 1)
    assert {choice.reason for choice in selection.choices} == {"not chosen"}


@pytest.mark.parametrize("reply", [reply for _, reply in PARSED], ids=[row for row, _ in PARSED])
async def test_a_sound_reply_is_found_in_its_wrapping(reply: str | LLMResponse) -> None:
    selection = await ContextRelevanceSelector(ScriptedClient([reply])).select_detailed(
        query="q", pointers=CANDIDATES
    )
    assert (selection.pointers, selection.status) == (CANDIDATES[:1], "ok")
    assert len(selection.dropped) <= 100


async def test_no_prefix_of_a_reply_selects_anything_f_087() -> None:
    whole = json.dumps({"pointer_ids": [A, B], "why": "both"})
    client = ScriptedClient([whole[:length] for length in range(len(whole))])
    selector = ContextRelevanceSelector(client)
    for _ in whole:
        selection = await selector.select_detailed(query="q", pointers=CANDIDATES)
        assert (selection.pointers, selection.status) == ([], "invalid")
