"""Tool calls in the notations of models are read as a whole, or the reply is refused."""

import json
import time
from typing import Any

import pytest

from llm_common.core.extraction import read_text_calls
from llm_common.errors import MalformedReplyError

ARGS = {"city": "Ulm"}
CALL = {"name": "get_weather", "arguments": ARGS}
V31 = "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>"
V31_CALL = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
KIMI = "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>"
KIMI_CALL = "<|tool_call_begin|>functions.{}:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
PLAIN = V31.format(V31_CALL.format("t", "{}"))


@pytest.mark.parametrize(
    "text", ["", '{"calls": []}', "I use a tool.", "<tool_call>{}</tool_call>", "TOOL_CALLS"]
)
def test_text_without_a_notation_is_left_alone(text: str) -> None:
    assert read_text_calls(text) is None


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"[TOOL_CALLS]{json.dumps([CALL, CALL])}", [CALL, CALL]),
        (f"[TOOL_CALLS]{json.dumps([CALL])}</s>", [CALL]),
        (
            '<|tool_call|>[{"name": "t", "arguments": "{}"}]<|/tool_call|>',
            [{"name": "t", "arguments": "{}"}],
        ),
        (
            '<|START_ACTION|>[{"tool_name": "t", "parameters": {}}]<|END_ACTION|>',
            [{"name": "t", "arguments": {}}],
        ),
        ("[TOOL_CALLS][5, {}]", [{"name": None, "arguments": None}] * 2),
        (PLAIN, [{"name": "t", "arguments": {}}]),
        (V31.format(V31_CALL.format("t", "{}") * 2), [{"name": "t", "arguments": {}}] * 2),
        (KIMI.format(KIMI_CALL.format("t", "{}") * 2), [{"name": "t", "arguments": {}}] * 2),
        (
            KIMI.format(KIMI_CALL.format("t", ' {"a": "<b>"} ')),
            [{"name": "t", "arguments": {"a": "<b>"}}],
        ),
        (f"<think>[TOOL_CALLS]</think>{PLAIN}", [{"name": "t", "arguments": {}}]),
    ],
)
def test_calls_are_read_into_the_apis_form(text: str, calls: list[dict[str, Any]]) -> None:
    assert read_text_calls(text) == calls


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS]",
        '[TOOL_CALLS][{"name": "t"}',
        '[TOOL_CALLS][{"name": "t", "name": "u"}]',
        "[TOOL_CALLS][{}][TOOL_CALLS][{}]",
        "[TOOL_CALLS][{}] or so",
        '[TOOL_CALLS]t[ARGS]{"a": 1}',
        PLAIN[:-5],
        PLAIN + "{}",
        V31.format("text"),
        V31.format(V31_CALL.format("t", "{'a': 1}")),
        # A mark inside an argument must not cut one call into two.
        KIMI.format(KIMI_CALL.format("t", '{"a": "' + KIMI_CALL.format("rm", "{}") + '"}')),
        f"<think>{PLAIN}",
    ],
)
def test_calls_that_are_cut_off_are_malformed(text: str) -> None:
    with pytest.raises(MalformedReplyError):
        read_text_calls(text)


@pytest.mark.parametrize("answer", ['{"calls": []}', "{}", "[1]"])
def test_calls_after_a_bracket_are_not_read_f_083(answer: str) -> None:
    assert read_text_calls(f"{answer} [TOOL_CALLS][{{}}]") is None


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL_CALLS][" + "]<a>" * 200_000,
        "[TOOL_CALLS][]" + " " * 900_000 + "x",
        "[TOOL_CALLS][]" + "<a>" * 300_000 + "x",
        V31.format("<｜tool▁call▁begin｜>t<｜tool▁sep｜>" + " " * 900_000),
        V31.format("") * 20_000 + "x",
        KIMI.format("<|tool_call_begin|>t" + " " * 900_000),
        "<|tool_calls_section_begin|>" + "<|tool_calls_section_end|>" * 30_000 + " x",
        "<tool_call>" * 80_000,
        "<tool_call>t" + "<arg_key>k</arg_key><arg_value>v" * 30_000,
        "<tool_call>t<arg_key>k</arg_key><arg_value>" + "< " * 400_000,
        "<tool_call><function=t>" + "<parameter=k>v</parameter>" * 35_000,
        "<tool_call>" + " " * 900_000 + "x",
        '<tool_call>{"name": "t", "arguments": {}}</tool_call>' + "<|a|>" * 150_000 + "x",
        '[TOOL_CALLS]t[ARGS]{"a": 1}' * 30_000 + "x",
    ],
)
def test_a_hostile_megabyte_takes_linear_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(MalformedReplyError):
        read_text_calls(text, has_ended=True)
    assert time.process_time() - started < 2


def test_tags_around_another_answer_are_left_alone() -> None:
    assert read_text_calls('<tool_call>{"calls": []}</tool_call>', has_ended=True) is None
    assert read_text_calls(f"<tool_call>{json.dumps(CALL)}</tool_call>") is None


def test_a_reply_that_is_too_large_is_not_read_f_093() -> None:
    assert read_text_calls(f"[TOOL_CALLS][{' ' * 1_000_000}]") is None
