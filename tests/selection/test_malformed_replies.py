"""A hundred replies that are not what was asked for: how many still hold the answer, and how many of those are read.

A reply is recoverable where the whole answer stands in it once, or several times alike, under
wrapping that can be peeled off without guessing. Everything else has to be refused.
"""

import json
from typing import Any

from llm_common.agents import PlannedTask, ToolSelection, ToolSelectionConfig, ToolSelector
from llm_common.core import LLMResponse
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry

GOOD = '{"calls": [{"tool": "get_weather", "args": {"city": "Ulm"}}]}'
BAD = '{"calls": [{"tool": "search_web", "args": {"query": "x"}}]}'
CALL = '{"name": "get_weather", "arguments": {"city": "Ulm"}}'
PRETTY = json.dumps(json.loads(GOOD), indent=2)
EXPECTED = [("get_weather", {"city": "Ulm"})]
F = "`" * 3


def native(arguments: object, **facts: Any) -> dict[str, Any]:
    return {
        "content": None,
        "tool_calls": [{"function": {"name": "get_weather", "arguments": arguments}}],
    } | facts


RECOVERABLE: list[str | dict[str, Any]] = [
    # fences
    f"{F}json\n{GOOD}\n{F}",
    f"{F}\n{GOOD}\n{F}",
    f"{F}JSON\n{PRETTY}\n{F}",
    f"~~~json\n{GOOD}\n~~~",
    f"{F}{F}\n{GOOD}\n{F}{F}",
    f"{F}json\n{GOOD}",
    f"`{GOOD}`",
    f"{F}javascript\n{GOOD}\n{F}",
    f"  {F}json\r\n{GOOD}\r\n  {F}",
    f"{F}json {{.numberLines}}\n{GOOD}\n{F}",
    # prose
    f"Here is the plan: {GOOD}",
    f"{GOOD}\n\nThis asks for the weather.",
    f"Sure!\n\n{F}json\n{GOOD}\n{F}\n\nLet me know.",
    f"**Answer:** {GOOD}",
    f"1. Look up [the docs](x).\n2. Answer: {GOOD}",
    f"I use {{city}} as asked: {GOOD}",
    f"# Calls\n> {GOOD}",
    f"答案是：{GOOD}。",
    f'It\'s as "asked": {GOOD}',
    f"- [x] think\n- [ ] answer\n{PRETTY}",
    f"Result = {GOOD};",
    f"<p>{GOOD}</p>",
    # thinking
    f"<think>Hm.</think>{GOOD}",
    f"<think>{BAD}</think>\n{GOOD}",
    f"<think>{BAD}\n{GOOD}</think>\n{GOOD}",
    f"<thinking>{{</thinking>{GOOD}",
    f"<THINK>{BAD}</THINK>{GOOD}",
    f"<reasoning effort='low'>{BAD}</reasoning>{GOOD}",
    f"<thought>{BAD}</thought>{GOOD}",
    f"So {BAD}?</think>{GOOD}",
    f"<think></think><think>{BAD}</think>{GOOD}",
    f"[THINK]{BAD}[/THINK]{GOOD}",
    f"◁think▷{BAD}◁/think▷{GOOD}",
    f"<seed:think>{BAD}</seed:think>{GOOD}",
    f"<|START_THINKING|>{BAD}<|END_THINKING|><|START_RESPONSE|>{GOOD}<|END_RESPONSE|>",
    f"<|channel>thought\n{BAD}<channel|>{GOOD}",
    f"<|channel|>analysis<|message|>{BAD}<|end|><|start|>assistant<|channel|>final<|message|>{GOOD}",
    f"<|channel|>commentary<|message|>I plan {BAD}<|end|><|channel|>final<|message|>{GOOD}<|return|>",
    f"assistantfinal{GOOD}",
    # boxes and other marks
    f"<|begin_of_box|>{GOOD}<|end_of_box|>",
    f"<think>{BAD}</think><answer><|begin_of_box|>{GOOD}<|end_of_box|></answer>",
    f"<answer>\n{GOOD}\n</answer>",
    f"<json>{GOOD}</json>",
    f"<tool_call>{GOOD}</tool_call>",
    f"{GOOD}<|im_end|>",
    f"<|python_tag|>{GOOD}<|eom_id|>",
    f"\\boxed{GOOD}",
    f"\ufeff{GOOD}\x00",
    # twice
    f"{GOOD}{GOOD}",
    f"{GOOD}\n{PRETTY}\n{GOOD}",
    f'{GOOD}\nAs JSON:\n{F}\n{{"calls":[{{"args":{{"city":"Ulm"}},"tool":"get_weather"}}]}}\n{F}',
    f"{GOOD}\n{json.dumps(GOOD)}",
    # encoded
    json.dumps(GOOD),
    json.dumps(PRETTY),
    f"{F}json\n{json.dumps(GOOD)}\n{F}",
    # within the answer
    GOOD.replace('{"city": "Ulm"}', json.dumps('{"city": "Ulm"}')),
    GOOD.replace("get_weather", "Get-Weather"),
    GOOD.replace('"args"', '"reasoning": null, "args"'),
    GOOD.replace('"calls"', '"note": "```json {", "calls"'),
    GOOD.replace("]}", ', {"tool": "nope", "args": {}}, null]}'),
    # parts
    {"content": [{"type": "text", "text": GOOD}]},
    {"content": [{"type": "text", "text": GOOD[:20]}, {"type": "text", "text": GOOD[20:]}]},
    {
        "content": [
            {"type": "thinking", "thinking": BAD},
            {"type": "text", "text": f"{F}\n{GOOD}\n{F}"},
        ]
    },
    {
        "content": [
            {"type": "image_url", "image_url": {"url": "x"}},
            {"type": "output_text", "text": GOOD},
        ]
    },
    # native calls
    native('{"city": "Ulm"}'),
    native({"city": "Ulm"}, finish_reason="tool_calls"),
    native('  {"city":"Ulm"}\n', content=""),
    {"content": None, "function_call": {"name": "get_weather", "arguments": '{"city": "Ulm"}'}},
    f"[TOOL_CALLS][{CALL}]",
    f"<|tool_call|>[{CALL}]<|/tool_call|>",
    f"<think>{BAD}</think>I look it up.<|tool_call|>[{CALL}]",
]
HOPELESS: list[str | dict[str, Any]] = [
    "",
    "I cannot help with that.",
    GOOD[:-1],
    GOOD[:-20],
    f"{F}json\n{GOOD[:-2]}\n{F}",
    f"{GOOD}\n{BAD}",
    f"Either {GOOD} or {BAD}.",
    f"<think>{GOOD}",
    f"<think>{GOOD}</think>",
    f"[THINK]{GOOD}",
    f"<|channel|>analysis<|message|>{GOOD}<|end|>",
    f"{GOOD}<think>or not",
    GOOD.replace('"', "'"),
    GOOD.replace("]}", ",]}"),
    GOOD.replace("{", "{ /* one */ ", 1),
    GOOD.replace('"calls"', "calls"),
    GOOD.replace('"Ulm"', "None"),
    GOOD.replace('"Ulm"', '"Ulm", "city": "Ulm"'),
    GOOD.replace('"Ulm"', "NaN"),
    GOOD.replace('"calls"', '"tools"'),
    f"[{GOOD}]",
    CALL,
    f"<tool_call>{CALL}</tool_call>",
    f"[TOOL_CALLS][{CALL}",
    f"[TOOL_CALLS][{CALL}] and {BAD}",
    f"[TOOL_CALLS]get_weather[ARGS]{CALL}",
    "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Ulm</arg_value>\n</tool_call>",
    '[get_weather(city="Ulm")]',
    "{" * 100_000,
    json.dumps(json.dumps(json.dumps(GOOD))),
    {"content": GOOD, "finish_reason": "length"},
    {"content": GOOD, "finish_reason": "content_filter"},
    {"content": GOOD, "finish_reason": "made_up_yesterday"},
    {"content": GOOD, "refusal": "No."},
    native('{"city": "Ul'),
    native("Ulm"),
    {"content": None},
    {"content": [{"type": "image_url", "image_url": {"url": "x"}, "text": GOOD}]},
    GOOD.replace("get_weather", "get_weathers"),
    GOOD.replace('"Ulm"', "5"),
]  # fmt: skip
REPLIES = [*((reply, True) for reply in RECOVERABLE), *((reply, False) for reply in HOPELESS)]


def get_weather(city: str) -> str:
    """Forecasts the weather."""
    return city


def search_web(query: str) -> str:
    """Finds pages."""
    return query


async def select(reply: str | dict[str, Any]) -> ToolSelection:
    facts = {"content": reply} if isinstance(reply, str) else reply
    answer = LLMResponse.model_validate({"id": "1", "model": "m", "finish_reason": "stop"} | facts)
    selector = ToolSelector(ScriptedClient([answer]), ToolSelectionConfig())
    task = PlannedTask(id=1, description="weather")
    return await selector.select_detailed(
        task=task, tool_registry=ToolRegistry([get_weather, search_web])
    )


async def test_each_is_recovered_or_fails_closed() -> None:
    assert len(REPLIES) >= 100
    assert len(RECOVERABLE) >= 60
    for reply, recoverable in REPLIES:
        selection = await select(reply)
        assert [(call.tool, call.args) for call in selection.calls] == (
            EXPECTED if recoverable else []
        ), reply
        assert selection.failed is not recoverable, reply
