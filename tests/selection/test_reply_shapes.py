"""Every shape of `reply_shapes`, through the real client, to both selectors."""

import json
from typing import Any

import httpx
import pytest

from llm_common.agents import (
    ContextPointer,
    ContextRelevanceSelector,
    PlannedTask,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.core import LLMConfig, OpenAICompatibleClient, extract_json
from llm_common.core.extraction import read_text_calls
from llm_common.errors import MalformedReplyError
from llm_common.selection.tool_calls import read_native_calls
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry
from tests.selection.reply_shapes import SHAPES, Shape

CONFIG = LLMConfig(base_url="http://shapes.test/v1", default_model="m", max_attempts=1)
CALLS = json.dumps({"calls": [{"tool": "get_weather", "args": {"city": "Ulm"}}]})
IDS = json.dumps({"pointer_ids": ["aaaaaaaaaaaa"]})
POINTERS = [
    ContextPointer(
        pointer_id=each * 12,
        query_id="q",
        tool_name="t",
        created_at="now",
        summary="t",
        result_path="x",
    )
    for each in "ab"
]
TASK = PlannedTask(id=1, description="weather")
SELECTION = ToolSelectionConfig(model="m")


def get_weather(city: str) -> str:
    """Forecasts the weather."""
    return city


def search_web(query: str) -> str:
    """Finds pages."""
    return query


REGISTRY = ToolRegistry([get_weather, search_web])


async def chosen_tools(client: Any) -> tuple[list[Any], bool]:
    selection = await ToolSelector(client, SELECTION).select_detailed(
        task=TASK, tool_registry=REGISTRY
    )
    return [(call.tool, call.args) for call in selection.calls], selection.failed


async def chosen_pointers(client: Any) -> tuple[list[Any], bool]:
    selection = await ContextRelevanceSelector(client).select_detailed(query="q", pointers=POINTERS)
    return [pointer.pointer_id for pointer in selection.pointers], selection.status not in {
        "ok",
        "empty",
    }


def answering(body: dict[str, Any]) -> OpenAICompatibleClient:
    stream = httpx.ByteStream(json.dumps(body).encode())
    reply = httpx.Response(200, headers={"content-type": "application/json"}, stream=stream)
    return OpenAICompatibleClient(CONFIG, transport=httpx.MockTransport(lambda _: reply))


def test_there_are_shapes_enough_each_with_a_source_and_a_reason_where_it_is_refused() -> None:
    assert len(SHAPES) >= 60
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert all(shape.source.startswith("https://") for shape in SHAPES)
    assert all(shape.why for shape in SHAPES if not shape.tools)


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
async def test_each_shape_is_read_or_fails_closed(shape: Shape) -> None:
    async with answering(shape.body(CALLS)) as client:
        expected = ([("get_weather", {"city": "Ulm"})], False) if shape.tools else ([], True)
        assert await chosen_tools(client) == expected
    async with answering(shape.body(IDS)) as client:
        assert await chosen_pointers(client) == (
            (["aaaaaaaaaaaa"], False) if shape.pointers else ([], True)
        )


READ_AS_TEXT = [
    shape
    for shape in SHAPES
    if shape.tools
    and isinstance(shape.message("x").get("content"), str)
    and shape.message("x")["content"]
    # Before its closing mark such a reply is one of prose with an answer in it: only its finish
    # reason tells.
    and shape.name != "qwen 2507 closing tag alone"
]


def read(content: str, key: str) -> object:
    """What `ask` reads of a text, in full; None for what it refuses."""
    try:
        calls = read_text_calls(content) if key == "calls" else None
        value = read_native_calls(calls) if calls else extract_json(content)
    except MalformedReplyError:
        return None
    return value if isinstance(value.get(key), list) else None


@pytest.mark.parametrize("shape", READ_AS_TEXT, ids=[shape.name for shape in READ_AS_TEXT])
def test_a_shape_cut_at_any_byte_is_read_whole_or_not_f_087(shape: Shape) -> None:
    for answer, key in ((CALLS, "calls"), (IDS, "pointer_ids")):
        content: str = shape.message(answer)["content"]
        whole = read(content, key)
        assert (whole is not None) == (shape.tools if key == "calls" else shape.pointers)
        for cut in range(len(content.encode())):
            assert read(content.encode()[:cut].decode(errors="replace"), key) in (None, whole)


MISTRAL = (
    '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "A"}}, '
    '{"name": "get_weather", "arguments": {"city": "B"}}]'
)
DEEPSEEK = (
    "<｜tool▁calls▁begin｜>"
    '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "A"}<｜tool▁call▁end｜>'
    '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "B"}<｜tool▁call▁end｜>'
    "<｜tool▁calls▁end｜>"
)
KIMI = (
    "<|tool_calls_section_begin|>"
    '<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "A"}<|tool_call_end|>'
    '<|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{"city": "B"}<|tool_call_end|>'
    "<|tool_calls_section_end|>"
)
PLAIN = '{"calls": [{"tool": "get_weather", "args": {"city": "A"}}, {"tool": "get_weather", "args": {"city": "B"}}]}'
TWO_CALLS = [PLAIN, MISTRAL, DEEPSEEK, KIMI]


@pytest.mark.parametrize("content", TWO_CALLS, ids=["json", "mistral", "deepseek", "kimi"])
async def test_no_prefix_of_two_calls_gives_one_f_087(content: str) -> None:
    whole, _ = await chosen_tools(ScriptedClient([content]))
    assert [args for _, args in whole] == [{"city": "A"}, {"city": "B"}]
    read_whole = read(content, "calls")
    assert all(read(content[:cut], "calls") in (None, read_whole) for cut in range(len(content)))
    for cut in range(0, len(content), 40):
        assert (await chosen_tools(ScriptedClient([content[:cut]])))[0] in ([], whole)
