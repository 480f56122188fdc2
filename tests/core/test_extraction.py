"""`extract_json`: what it skips, what it refuses and why, and its speed on hostile replies.

And tool calls in the notations of models, which are read as a whole or refused.
"""

import json
import time
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from llm_common.core import extract_json
from llm_common.core.extraction import (
    MAX_REPLY_CHARS,
    AnswerFilter,
    read_text_calls,
    without_thinking,
)
from llm_common.errors import MalformedReplyError

ANSWER = {"pointer_ids": ["a1b2c3d4e5f6", "deadbeefcafe"]}
PLAIN = json.dumps(ANSWER)
OTHER = '{"pointer_ids": ["bad"]}'
TICKS = "`" * 3


def reason_of(text: str) -> str:
    with pytest.raises(MalformedReplyError) as caught:
        extract_json(text)
    assert caught.value.reply == text
    return caught.value.reason


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(f"\ufeff \n{PLAIN}\n\n", id="bom and blank space"),
        pytest.param(f"{TICKS}json\n{PLAIN}\n{TICKS}", id="F-079 json fence"),
        pytest.param(f"{TICKS}\n{PLAIN}\n{TICKS}", id="F-079 bare fence"),
        pytest.param(f"{TICKS}JSON\n{PLAIN}\n{TICKS}", id="F-079 upper case"),
        pytest.param(f"~~~json\n{PLAIN}\n~~~", id="F-079 tildes"),
        pytest.param(
            f"{TICKS}json5 {{.line}} title='x'\n{PLAIN}{TICKS}", id="F-079 info string with braces"
        ),
        pytest.param(f"`{PLAIN}`", id="F-079 inline code"),
        pytest.param(f"{TICKS}json\n{PLAIN}", id="F-079 fence that is never closed"),
        pytest.param(
            f"Here it is:\n{TICKS}json\n{PLAIN}\n{TICKS}\nDone.", id="F-080 fence within prose"
        ),
        pytest.param(f"As \"asked\" it's {PLAIN}, isn't it?", id="F-080 prose alone"),
        pytest.param(
            f"use {{x}} and [1], [docs](u) and (a, b): {PLAIN}", id="F-080 prose with brackets"
        ),
        pytest.param(f"[1, 2] {PLAIN} [[{OTHER}]]", id="F-080 between lists"),
        pytest.param(f"- [x] done\n- [ ] open\n{PLAIN}", id="F-080 task list"),
        pytest.param(f"{PLAIN}\n{PLAIN}", id="F-084 twice"),
        pytest.param(
            f"{PLAIN}\n{TICKS}\n{json.dumps(ANSWER, indent=2)}\n{TICKS}",
            id="F-084 twice, formatted",
        ),
        pytest.param(f"<think>{OTHER}</think>\n{PLAIN}", id="F-085 think"),
        pytest.param(
            f"<THINKING level='1'>{{ {OTHER}</THINKING >{PLAIN}",
            id="F-085 thinking with attributes",
        ),
        pytest.param(f"<reasoning>x</Reasoning><think></think>{PLAIN}", id="F-085 two blocks"),
        pytest.param(f"<think>a<think>b</think>{OTHER}</think>{PLAIN}", id="F-085 nested"),
        pytest.param(
            f"I take {OTHER} or so.\n</think>\n{PLAIN}", id="F-085 opening tag in the prompt"
        ),
        pytest.param(f"<thought>{OTHER}</thought>{PLAIN}", id="F-085 thought"),
        pytest.param(f"[THINK]{OTHER}[/THINK]{PLAIN}", id="F-085 Mistral"),
        pytest.param(f"◁think▷{OTHER}◁/think▷{PLAIN}", id="F-085 Kimi"),
        pytest.param(f"<seed:think>{OTHER}</seed:think>{PLAIN}", id="F-085 Seed"),
        pytest.param(
            f"<|START_THINKING|>{OTHER}<|END_THINKING|><|START_RESPONSE|>{PLAIN}<|END_RESPONSE|>",
            id="F-085 Command",
        ),
        pytest.param(f"<|channel>thought\n{OTHER}<channel|>{PLAIN}", id="F-085 Gemma"),
        pytest.param(
            f"<|channel|>analysis<|message|>{OTHER}<|end|>"
            f"<|start|>assistant<|channel|>final<|message|>{PLAIN}",
            id="F-085 Harmony",
        ),
        pytest.param(
            f"<|channel|>commentary<|message|>I plan {OTHER}<|end|>"
            f"<|channel|>final<|message|>{PLAIN}<|return|>",
            id="F-085 Harmony commentary",
        ),
        pytest.param(f"assistantfinal{PLAIN}", id="F-085 Harmony without its marks"),
        pytest.param(f"<|begin_of_box|>{PLAIN}<|end_of_box|>", id="box tokens"),
        pytest.param(
            f"<think>{OTHER}</think><answer><|begin_of_box|>{PLAIN}<|end_of_box|></answer>",
            id="box tokens in answer tags",
        ),
        pytest.param(f"<json>{PLAIN}</json>", id="json tags"),
        pytest.param(f"<tool_call>{PLAIN}</tool_call>", id="call tags"),
        pytest.param(f"{PLAIN}<|im_end|>", id="end token"),
        pytest.param(f"<|python_tag|>{PLAIN}<|eom_id|>", id="Llama's tokens"),
        pytest.param(f"\\boxed{PLAIN}", id="LaTeX box"),
        pytest.param(f"\ufeff{PLAIN}\x00", id="null character"),
        pytest.param(f"<p>{PLAIN}</p>", id="HTML"),
        pytest.param(f"# Calls\n> {PLAIN}", id="F-080 quote"),
        pytest.param(f"答案是：{PLAIN}。", id="F-080 Chinese"),
        pytest.param(f"{TICKS}{TICKS}\n{PLAIN}\n{TICKS}{TICKS}", id="F-079 fence of six backticks"),
        pytest.param(f"  {TICKS}json\r\n{PLAIN}\r\n  {TICKS}", id="F-079 indented, CRLF"),
        pytest.param(f"{PLAIN}\n{json.dumps(PLAIN)}", id="F-084 once encoded"),
        pytest.param(f"<answer>{PLAIN}</answer>", id="answer tags"),
        pytest.param(json.dumps(PLAIN), id="F-096 encoded twice"),
        pytest.param(
            f"{TICKS}\n{json.dumps(json.dumps(ANSWER, indent=1))}\n{TICKS}",
            id="F-096 in a fence, indented",
        ),
        pytest.param(json.dumps(f"\n  {PLAIN}\n"), id="F-096 with blank space"),
    ],
)
def test_the_answer_is_extracted_from_its_surroundings(reply: str) -> None:
    assert extract_json(reply) == ANSWER


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(f"run {TICKS}json {{}} {TICKS} or ~~~", id="F-081 fences"),
        pytest.param('"}]{[ \\" \\\\', id="F-081 brackets, quotes, backslashes"),
        pytest.param("</think><think>", id="F-081 thinking tags"),
        pytest.param(PLAIN, id="F-081 json"),
        pytest.param("\ud800 \u2028 é", id="F-081 surrogates and separators"),
    ],
)
@pytest.mark.parametrize("wrap", ["{}", "```json\n{}\n```", "So: {} [1]", "<think>{{</think>{}"])
def test_marks_inside_a_string_are_ignored(value: str, wrap: str) -> None:
    body = {"text": value, value: [value]}
    assert extract_json(wrap.format(json.dumps(body))) == body
    assert extract_json(wrap.format(json.dumps(body, ensure_ascii=False))) == body


def test_prototype_keys_are_data_f_106() -> None:
    reply = '{"__proto__": {"__class__": "os.system"}, "__class__": 1}'
    assert extract_json(reply) == {"__proto__": {"__class__": "os.system"}, "__class__": 1}


def test_key_order_does_not_make_another_object_f_084() -> None:
    assert extract_json('{"a": 1, "b": {"c": 2, "d": 3}} {"b": {"d": 3, "c": 2}, "a": 1}') == {
        "a": 1,
        "b": {"c": 2, "d": 3},
    }


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param("", "empty", id="F-073 nothing"),
        pytest.param(" \n\t\ufeff", "empty", id="F-073 blank space"),
        pytest.param(f"{TICKS}json\n{TICKS}", "no_json", id="F-082 empty fence"),
        pytest.param(f"{OTHER} {PLAIN}", "ambiguous", id="F-083 two objects"),
        pytest.param(
            '{"a": 1} {"a": true}', "ambiguous", id="F-083 equal to Python, different as JSON"
        ),
        pytest.param('{"a": 1} {"a": 1.0}', "ambiguous", id="F-083 integer and float"),
        pytest.param(
            f"{PLAIN} and then {json.dumps(OTHER)}",
            "ambiguous",
            id="F-083 one of them encoded twice",
        ),
        pytest.param("{} " * 2_000, "ambiguous", id="F-083 thousands"),
        pytest.param(f"<think>{OTHER}", "unclosed_thinking", id="F-086 unclosed"),
        pytest.param(
            f"<think>{OTHER}</thinking>{PLAIN}",
            "unclosed_thinking",
            id="F-086 closed by another tag",
        ),
        pytest.param(f"<think>{PLAIN}</think>", "no_json", id="F-086 thinking alone"),
        pytest.param(f"{PLAIN}</think>", "no_json", id="F-086 answer within thinking"),
        pytest.param(
            f"{PLAIN} <think> or", "unclosed_thinking", id="F-086 thinking after the answer"
        ),
        pytest.param(f"[THINK]{PLAIN}", "unclosed_thinking", id="F-086 Mistral"),
        pytest.param(
            f"<|channel|>analysis<|message|>{PLAIN}<|end|>", "no_json", id="F-086 Harmony"
        ),
        pytest.param("I cannot help with that.", "no_json", id="F-089 refusal"),
        pytest.param("[1, 2]", "no_json", id="list"),
        pytest.param(f"[{PLAIN}]", "no_json", id="answer in a list"),
        pytest.param("42", "no_json", id="number"),
        pytest.param('"text"', "no_json", id="string"),
        pytest.param("null", "no_json", id="F-097 null"),
        pytest.param('{"a": 1, "a": 1}', "duplicate_keys", id="F-090 outside"),
        pytest.param(
            '{"x": [{"a": 1, "\\u0061": 2}]}', "duplicate_keys", id="F-090 inside, escaped"
        ),
        pytest.param('{"a": NaN}', "bad_number", id="F-091 NaN"),
        pytest.param('{"a": [-Infinity]}', "bad_number", id="F-091 Infinity"),
        pytest.param('{"a": 1e999}', "bad_number", id="F-091 overflow"),
        pytest.param('{"a": ' + "9" * 5_000 + "}", "bad_number", id="F-094 digits"),
        pytest.param('{"a": 0.' + "1" * 5_000 + "}", "bad_number", id="F-094 decimals"),
        pytest.param("{'a': 1}", "not_strict", id="F-095 single quotes"),
        pytest.param('{"a": 1,}', "not_strict", id="F-095 trailing comma"),
        pytest.param('{"a": 1} // {', "truncated", id="F-095 bracket in a comment"),
        pytest.param('{"a": /* one */ 1}', "not_strict", id="F-095 comment"),
        pytest.param("{a: 1}", "not_strict", id="F-095 bare key"),
        pytest.param('{"a": True}', "not_strict", id="F-095 Python"),
        pytest.param('{"a": "\n"}', "not_strict", id="F-095 raw line break in a string"),
        pytest.param('{"a": 01}', "not_strict", id="F-095 leading zero"),
        pytest.param('[1] {"a": 1,}', "not_strict", id="F-095 beside a list"),
        pytest.param(json.dumps(json.dumps(PLAIN)), "truncated", id="F-096 encoded three times"),
        pytest.param(json.dumps(f"{PLAIN} ok"), "not_strict", id="F-096 prose inside"),
        pytest.param(json.dumps('{"a": 1,}'), "not_strict", id="F-096 not strict inside"),
        pytest.param(json.dumps('{"a": {"b": 1}'), "truncated", id="F-096 cut inside"),
        pytest.param('{"x": {"a": 1}', "truncated", id="outer object never closed"),
        pytest.param('[{"a": 1}', "truncated", id="outer list never closed"),
        pytest.param(f'{PLAIN} {{"x": {{"a": 1}}', "truncated", id="cut object after a whole one"),
        pytest.param(f'{{"x": {{"a": 1}} {PLAIN}', "truncated", id="cut object before a whole one"),
        pytest.param(f"{PLAIN}}}", "not_strict", id="one bracket too many"),
        pytest.param('{"a": 1], {"b": 2}', "not_strict", id="brackets that cross"),
    ],
)
def test_anything_but_one_whole_strict_value_is_refused(reply: str, reason: str) -> None:
    assert reason_of(reply) == reason


def test_an_error_text_never_quotes_the_reply() -> None:
    with pytest.raises(MalformedReplyError) as caught:
        extract_json('{"token": "canary",}')
    assert "canary" not in str(caught.value)


def test_depth_is_bounded_before_any_parser_sees_it_f_092() -> None:
    assert extract_json('{"a":' + "[" * 99 + "]" * 99 + "}")
    for reply in (
        "[" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000,
        json.dumps("{" + '"' * 3 + "[" * 101),
    ):
        started = time.thread_time()
        assert reason_of(reply) in {"too_deep", "truncated"}
        assert time.thread_time() - started < 0.05
    assert reason_of("[" * 101 + "]" * 101) == "too_deep"
    assert reason_of(json.dumps('{"a":' + "[" * 100 + "]" * 100 + "}")) == "too_deep"


def test_size_is_bounded_f_093() -> None:
    assert reason_of('{"a": "' + "x" * 5_000_000 + '"}') == "too_large"
    most = PLAIN + " " * (MAX_REPLY_CHARS - len(PLAIN))
    assert extract_json(most) == ANSWER
    assert reason_of(f"{most} ") == "too_large"
    assert extract_json('{"a": "' + "x" * 999_000 + '"}') == {"a": "x" * 999_000}


MEGABYTE = 1_000_000


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        ('{"', '\\"'),
        *(
            ("", unit)
            for unit in (
                "{",
                "`",
                '"',
                "<think>",
                "</think>",
                "<think ",
                "{}",
                "{x}",
                '"{\\"',
                '"  ',
                '{"',
                '{"\\"',
                "{}</think>",
                "<",
            )
        ),
    ],
)
def test_a_hostile_megabyte_takes_linear_time(start: str, unit: str) -> None:
    started = time.thread_time()
    reason_of(start + unit * ((MEGABYTE - len(start)) // len(unit)))
    # Measured at 0 to 0.28 s. Quadratic time would be minutes.
    assert time.thread_time() - started < 2


Json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
Objects = st.dictionaries(st.text(max_size=5), Json, min_size=1, max_size=4)
Prose = st.text(st.characters(exclude_characters='{}[]<"', exclude_categories=["Cs"]), max_size=30)


@given(value=Objects, ascii_only=st.booleans(), indent=st.sampled_from([None, 0, 2]))
def test_a_proper_prefix_of_an_object_is_never_a_value_f_087(
    value: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    reply = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for cut in range(len(reply)):
        with pytest.raises(MalformedReplyError):
            extract_json(reply[:cut])


@given(
    value=Objects,
    before=Prose,
    after=Prose,
    fence=st.sampled_from(
        ["{}", "`{}`", "```\n{}\n```", "```JSON {{.x}}\n{}````", "~~~json\n{}\n~~~"]
    ),
    encoded=st.booleans(),
)
def test_prose_and_fences_never_change_the_value(
    value: dict[str, object], before: str, after: str, fence: str, encoded: bool
) -> None:
    body = json.dumps(json.dumps(value)) if encoded else json.dumps(value, indent=1)
    extracted = extract_json(f"{before}\n{fence.format(body)}\n{after}")
    assert json.dumps(extracted) == json.dumps(value)


@given(
    st.text(st.sampled_from('{}[]",:\\ 1ae`~<>/thinkNf\n\ud800\ufeff')) | st.text(st.characters())
)
@example("{" + '"a":' * 2)
@example('"{\\"\ud800')
def test_any_text_gives_a_json_value_or_a_malformed_reply_error(text: str) -> None:
    try:
        value = extract_json(text)
    except MalformedReplyError as exc:
        assert exc.reason  # noqa: PT017 - both outcomes are legitimate
    else:
        assert isinstance(value, dict)
        json.dumps(value, allow_nan=False)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**900), 10**900))
def test_numbers_are_read_exactly(real: float, whole: int) -> None:
    value = extract_json(json.dumps({"real": real, "whole": whole}))
    assert value == {"real": real, "whole": whole}
    assert repr(value["real"]) == repr(real)


@pytest.mark.parametrize("mark", ["think", "thinking", "reasoning"])
@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 1_000])
def test_an_answer_behind_thinking_is_shown_whatever_its_pieces(mark: str, pieces: int) -> None:
    text = f" <{mark}>a < b, </ or </{mark[:4]} ... </{mark}>\n\nhello </{mark}> world \n"
    shown = AnswerFilter()
    parts = [shown.feed(text[start : start + pieces]) for start in range(0, len(text), pieces)]
    assert "".join([*parts, shown.end()]) == without_thinking(text) == f"hello </{mark}> world"


ARGS = {"city": "Ulm"}
CALL = {"name": "get_weather", "arguments": ARGS}
V31 = "<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>"
V31_CALL = "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
KIMI = "<|tool_calls_section_begin|>{}<|tool_calls_section_end|>"
KIMI_CALL = "<|tool_call_begin|>functions.{}:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
WHOLE = V31.format(V31_CALL.format("t", "{}"))


@pytest.mark.parametrize(
    "text",
    [
        *("", '{"calls": []}', "I use a tool.", "<tool_call>{}</tool_call>", "TOOL_CALLS"),
        *(
            pytest.param(f"{before} [TOOL_CALLS][{{}}]", id=f"F-083 after {before}")
            for before in ('{"calls": []}', "{}", "[1]")
        ),
        pytest.param(f"[TOOL_CALLS][{' ' * 1_000_000}]", id="F-093"),
    ],
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
        (WHOLE, [{"name": "t", "arguments": {}}]),
        (V31.format(V31_CALL.format("t", "{}") * 2), [{"name": "t", "arguments": {}}] * 2),
        (KIMI.format(KIMI_CALL.format("t", "{}") * 2), [{"name": "t", "arguments": {}}] * 2),
        (
            KIMI.format(KIMI_CALL.format("t", ' {"a": "<b>"} ')),
            [{"name": "t", "arguments": {"a": "<b>"}}],
        ),
        (f"<think>[TOOL_CALLS]</think>{WHOLE}", [{"name": "t", "arguments": {}}]),
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
        WHOLE[:-5],
        WHOLE + "{}",
        V31.format("text"),
        V31.format(V31_CALL.format("t", "{'a': 1}")),
        # A mark inside an argument must not cut one call into two.
        KIMI.format(KIMI_CALL.format("t", '{"a": "' + KIMI_CALL.format("rm", "{}") + '"}')),
        f"<think>{WHOLE}",
    ],
)
def test_calls_that_are_cut_off_are_malformed(text: str) -> None:
    with pytest.raises(MalformedReplyError):
        read_text_calls(text)


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
def test_a_hostile_megabyte_of_calls_takes_linear_time(text: str) -> None:
    started = time.process_time()
    with pytest.raises(MalformedReplyError):
        read_text_calls(text, has_ended=True)
    assert time.process_time() - started < 2


def test_tags_around_another_answer_are_left_alone() -> None:
    assert read_text_calls('<tool_call>{"calls": []}</tool_call>', has_ended=True) is None
    assert read_text_calls(f"<tool_call>{json.dumps(CALL)}</tool_call>") is None
