"""Replies in the notations of Qwen, Hermes, GLM and Mistral: whole ones are read, no others."""

import json
from typing import Any

import pytest

from llm_common.agents import ToolSelection
from llm_common.core import LLMResponse
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry
from tests.selection.doubles import select_tools

OSLO = {"city": "Oslo"}
OSLO_JSON = json.dumps({"name": "get_weather", "arguments": OSLO})
ROME_JSON = json.dumps({"name": "get_weather", "arguments": {"city": "Rome"}})
TRIP = {"days": 3, "stops": ["Oslo", "Bergen"], "by_train": True}
TRIP_JSON = json.dumps({"name": "plan_trip", "arguments": TRIP})
TAGGED_JSON = json.dumps({"name": "get_weather", "arguments": {"city": "</tool_call><tool_call>"}})
GLM_OSLO = (
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
)
GLM_ROME = GLM_OSLO.replace("Oslo", "Rome")
GLM_TRIP = (
    "<tool_call>plan_trip\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
    '<arg_key>stops</arg_key>\n<arg_value>["Oslo", "Bergen"]</arg_value>\n'
    "<arg_key>by_train</arg_key>\n<arg_value>true</arg_value>\n</tool_call>"
)
CODER_OSLO = (
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "</function>\n</tool_call>"
)
CODER_TRIP = (
    "<tool_call>\n<function=plan_trip>\n<parameter=days>\n3\n</parameter>\n"
    '<parameter=stops>\n["Oslo", "Bergen"]\n</parameter>\n<parameter=by_train>\ntrue\n</parameter>\n'
    "</function>\n</tool_call>"
)
MISTRAL_OSLO = '[TOOL_CALLS]get_weather[ARGS]{"city": "Oslo"}'
MISTRAL_ROME = '[TOOL_CALLS]get_weather[CALL_ID]abcdef123[ARGS]{"city": "Rome"}'


def tagged(*calls: str) -> str:
    return "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in calls)


def weather(city: object) -> tuple[str, dict[str, Any]]:
    return "get_weather", {"city": city}


ROME = weather("Rome")
WHOLE: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {
    "qwen": (tagged(OSLO_JSON), [weather("Oslo")]),
    "qwen, two": (tagged(OSLO_JSON, ROME_JSON), [weather("Oslo"), ROME]),
    "qwen, after prose": ("I look it up.\n" + tagged(OSLO_JSON), [weather("Oslo")]),
    "qwen, after thinking": ("<think>\nHm.\n</think>\n" + tagged(OSLO_JSON), [weather("Oslo")]),
    "qwen, end of turn": (tagged(OSLO_JSON) + "<|im_end|>", [weather("Oslo")]),
    "qwen, on one line": (f"<tool_call>{OSLO_JSON}</tool_call>", [weather("Oslo")]),
    "qwen, types": (tagged(TRIP_JSON), [("plan_trip", TRIP)]),
    "qwen, a tag in a value": (tagged(TAGGED_JSON), [weather("</tool_call><tool_call>")]),
    "qwen, bare": (OSLO_JSON, [weather("Oslo")]),
    "qwen, bare in a fence": (f"```json\n{OSLO_JSON}\n```", [weather("Oslo")]),
    "qwen, bare with our names": (
        '{"tool": "get_weather", "args": {"city": "Oslo"}}',
        [weather("Oslo")],
    ),
    "qwen, our names in tags": (
        tagged('{"tool": "get_weather", "args": {"city": "Oslo"}}'),
        [weather("Oslo")],
    ),
    "qwen3-coder": (CODER_OSLO, [weather("Oslo")]),
    "qwen3-coder, types": (CODER_TRIP, [("plan_trip", TRIP)]),
    "hermes, arguments as a text": (
        tagged(json.dumps({"name": "get_weather", "arguments": json.dumps(OSLO)})),
        [weather("Oslo")],
    ),
    "hermes, arguments first": (
        tagged('{"arguments": {"city": "Oslo"}, "name": "get_weather"}'),
        [weather("Oslo")],
    ),
    "hermes, namespace": (tagged(OSLO_JSON.replace("get_w", "functions.get_w")), [weather("Oslo")]),
    "hermes, the same twice": (tagged(OSLO_JSON, OSLO_JSON), [weather("Oslo")]),
    "glm": (GLM_OSLO, [weather("Oslo")]),
    "glm, two": (f"{GLM_OSLO}\n{GLM_ROME}", [weather("Oslo"), ROME]),
    "glm, types": (GLM_TRIP, [("plan_trip", TRIP)]),
    "glm, observation": (GLM_OSLO + "<|observation|>", [weather("Oslo")]),
    "glm, on one line": (GLM_OSLO.replace("\n", ""), [weather("Oslo")]),
    "glm, a sign in a value": (GLM_OSLO.replace("Oslo", "a < b > c"), [weather("a < b > c")]),
    "mistral, list": (f"[TOOL_CALLS] [{OSLO_JSON}, {ROME_JSON}]", [weather("Oslo"), ROME]),
    "mistral, list and end": (f"[TOOL_CALLS][{OSLO_JSON}]</s>", [weather("Oslo")]),
    "mistral, arguments": (MISTRAL_OSLO, [weather("Oslo")]),
    "mistral, two": (MISTRAL_OSLO + MISTRAL_ROME, [weather("Oslo"), ROME]),
    "mistral, arguments and end": (MISTRAL_OSLO + "</s>", [weather("Oslo")]),
}
REFUSED = {
    "qwen without its closing tag": tagged(OSLO_JSON).removesuffix("</tool_call>"),
    "qwen with half of its closing tag": tagged(OSLO_JSON)[:-4],
    "qwen cut within the call": tagged(OSLO_JSON)[:40],
    "qwen cut within the second call": tagged(OSLO_JSON, ROME_JSON)[:-30],
    "qwen cut after the second opening": tagged(OSLO_JSON) + "\n<tool_call>",
    "qwen without its last brace": tagged(OSLO_JSON[:-1]),
    "qwen with a brace too much": tagged(OSLO_JSON + "}"),
    "qwen with two openings": "<tool_call>" + tagged(OSLO_JSON),
    "qwen with two objects in one tag": tagged(OSLO_JSON + ROME_JSON),
    "qwen with prose after the call": tagged(OSLO_JSON) + "\nIt rains.",
    "qwen with a key twice": tagged(OSLO_JSON.replace('"city"', '"city": "Rome", "city"')),
    "qwen with a name twice": tagged(OSLO_JSON.replace('"name"', '"name": "rm", "name"')),
    "qwen, two bare calls": f"{OSLO_JSON}\n{ROME_JSON}",
    "qwen, a bare call before a tag": f"{OSLO_JSON}\n<tool_call>",
    "qwen, a bare call cut": OSLO_JSON[:-1],
    "qwen, a bare call with more keys": OSLO_JSON[:-1] + ', "days": 3}',
    "qwen3-coder without its last tag": CODER_OSLO.removesuffix("</tool_call>"),
    "qwen3-coder without the end of its function": CODER_OSLO.replace("</function>", ""),
    "qwen3-coder with a parameter twice": CODER_OSLO.replace(
        "</function>", "<parameter=city>\nRome\n</parameter>\n</function>"
    ),
    "hermes in Python": tagged("{'name': 'get_weather', 'arguments': {'city': 'Oslo'}}"),
    "hermes, an empty tag": tagged(""),
    "hermes, another tool": tagged(OSLO_JSON.replace("get_weather", "get_whether")),
    "hermes, a list of arguments": tagged('{"name": "get_weather", "arguments": ["Oslo"]}'),
    "hermes, unclosed thinking": f"<think>\n{tagged(OSLO_JSON)}",
    "glm without its closing tag": GLM_OSLO.removesuffix("</tool_call>"),
    "glm cut within a value": GLM_OSLO[:60],
    "glm cut between key and value": GLM_OSLO[: GLM_OSLO.index("<arg_value>")],
    "glm with a value that is not closed": GLM_OSLO.replace("</arg_value>", ""),
    "glm with a key twice": GLM_OSLO.replace(
        "</tool_call>", "<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>"
    ),
    "glm with a call within a value": GLM_OSLO.replace("Oslo", f"Oslo {GLM_ROME} x"),
    "glm cut within the second call": (GLM_OSLO + GLM_ROME)[:-12],
    "mistral without its last bracket": f"[TOOL_CALLS][{OSLO_JSON}",
    "mistral, two lists": f"[TOOL_CALLS][{OSLO_JSON}][TOOL_CALLS][{ROME_JSON}]",
    "mistral, arguments cut": MISTRAL_OSLO[:-1],
    "mistral, second name cut": MISTRAL_OSLO + MISTRAL_ROME[:20],
    "mistral with a key twice": MISTRAL_OSLO.replace('"city"', '"city": "Rome", "city"'),
}


async def get_weather(city: str, days: int = 1) -> str:
    """Return the weather of a city."""
    return f"{city} {days}"


async def plan_trip(days: int, stops: list[str], *, by_train: bool = False) -> str:
    """Plan a trip."""
    return f"{days} {stops} {by_train}"


async def selected(reply: str, **fields: Any) -> ToolSelection:
    client = ScriptedClient([LLMResponse(id="r", content=reply, model="m", **fields)])
    return await select_tools(client, ToolRegistry([get_weather, plan_trip]))


@pytest.mark.parametrize("name", WHOLE)
async def test_a_whole_reply_is_read_s2_06(name: str) -> None:
    reply, calls = WHOLE[name]
    selection = await selected(reply, finish_reason="stop")
    assert selection.status == "ok", selection.problem
    assert [(call.tool, call.args) for call in selection.calls] == calls


@pytest.mark.parametrize("name", REFUSED)
async def test_a_cut_or_contradicting_reply_is_refused_by_name_s2_06(name: str) -> None:
    selection = await selected(REFUSED[name], finish_reason="stop")
    assert (selection.calls, selection.status) == ((), "invalid")
    assert selection.problem
    assert selection.attempts[0].error == "malformed"


@pytest.mark.parametrize("name", ["qwen", "qwen, bare", "qwen3-coder", "glm", "mistral, arguments"])
@pytest.mark.parametrize("finish_reason", [None, "length"])
async def test_a_reply_that_may_have_been_cut_is_refused_s2_06(
    name: str, finish_reason: str | None
) -> None:
    selection = await selected(WHOLE[name][0], finish_reason=finish_reason)
    assert (selection.calls, selection.status) == ((), "invalid")
