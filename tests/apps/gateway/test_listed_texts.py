"""Test that hosts get no control characters and invisible letters in what servers list."""

from typing import Any

import pytest

from tests.apps.gateway.hosts import config_of, host_of, hostile, text_of

pytestmark = pytest.mark.mcp
HIDDEN = "a\x1b]0;b\x07\u202ec\u200f\U000e0041d\r\ne"
VISIBLE = "a\ufffd]0;b\ufffd\ufffdc\ufffd\ufffdd\ne"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": VISIBLE,
    "properties": {
        "description": {"type": "string", "description": VISIBLE, "enum": [HIDDEN]},
        "many": {"type": "array", "items": {"anyOf": [{"description": VISIBLE}]}},
        "default": {"type": "string", "title": VISIBLE},
        HIDDEN: {"default": {"title": HIDDEN}},
    },
}


async def test_tools_are_listed_without_hidden_letters() -> None:
    async with host_of(config_of(bad=hostile("hidden letters"))) as host:
        _, tool = (await host.list_tools()).tools
        assert tool.description == VISIBLE
        assert tool.title == "a ]0;b c \ufffdd e"
        assert tool.annotations is not None
        assert tool.annotations.title == VISIBLE
        assert tool.input_schema == SCHEMA
        arguments = {"description": HIDDEN, HIDDEN: {}}
        answer = text_of(await host.call_tool("ok", arguments))
        assert answer.endswith(f"with {list(arguments)}")


async def test_output_schemas_are_listed_without_hidden_letters() -> None:
    config = config_of(bad=hostile("hidden letters"), settings={"max_whole_tokens": None})
    async with host_of(config) as host:
        (tool,) = (await host.list_tools()).tools
        assert tool.output_schema == SCHEMA


async def test_a_search_finds_tools_without_hidden_letters() -> None:
    config = config_of(bad=hostile("hidden letters"), settings={"tools": "search"})
    async with host_of(config) as host:
        answer = text_of(await host.call_tool("search_tools", {"query": "ok"}))
        assert "a\ufffd]0;b\ufffd\ufffdc" in answer
        assert "\x1b" not in answer


async def test_resources_and_prompts_are_listed_without_hidden_letters() -> None:
    async with host_of(config_of(bad=hostile("hidden letters"))) as host:
        (resource,) = (await host.list_resources()).resources
        (template,) = (await host.list_resource_templates()).resource_templates
        for entry in (resource, template):
            assert (entry.name, entry.title, entry.description) == (VISIBLE,) * 3
        (prompt,) = (await host.list_prompts()).prompts
        assert (prompt.name, prompt.title, prompt.description) == (HIDDEN, VISIBLE, VISIBLE)
        assert prompt.arguments is not None
        (argument,) = prompt.arguments
        assert (argument.name, argument.description) == (HIDDEN, VISIBLE)
        answer = await host.get_prompt(prompt.name)
        assert answer.description == f"hidden letters: {HIDDEN}"
