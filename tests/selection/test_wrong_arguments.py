"""Tests that arguments of a wrong type raise a `TypeError` that says what to pass."""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from llm_common.agents import (
    ContextRelevanceSelector,
    LexicalRelevanceSelector,
    LexicalToolSelector,
    PlannedTask,
    ToolSelectionConfig,
    ToolSelector,
    format_selected_contexts,
)
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry
from tests.selection.doubles import candidate

POINTER = candidate()
SDK = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=print)))
Pick = Callable[..., Awaitable[Any]]
PICKS: dict[str, Pick] = {
    "model": lambda **options: ContextRelevanceSelector(ScriptedClient([])).select(**options),
    "lexical": lambda **options: LexicalRelevanceSelector().select(**options),
}
CHOICES: dict[str, Pick] = {
    "model": lambda **options: ToolSelector(
        ScriptedClient([]), ToolSelectionConfig()
    ).select_tool_calls(**options),
    "lexical": lambda **options: LexicalToolSelector(ToolSelectionConfig()).select_tool_calls(
        **options
    ),
}
NO_POINTERS: list[tuple[object, str]] = [
    (["24248a36f5e3"], r"contains a str\. Pass a list of ContextPointer"),
    ([POINTER, POINTER.model_dump()], r"contains a dict\. .* ContextPointer.model_validate"),
    ("24248a36f5e3", "must be a list, got str"),
    (POINTER, r"must be a list, got ContextPointer\. Pass a list"),
    (None, "must be a list, got NoneType"),
    ([None], "contains a NoneType"),
]


@pytest.mark.parametrize("make", [ToolSelector, ContextRelevanceSelector])
@pytest.mark.parametrize(
    ("client", "text"),
    [(SDK, "OpenAISDKClient"), (object(), "chat_completion"), (None, "LLMClient")],
)
def test_a_wrong_client_raises_f_178(make: Any, client: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        make(client)


@pytest.mark.parametrize(
    "make", [lambda config: ToolSelector(ScriptedClient([]), config), LexicalToolSelector]
)
def test_a_wrong_configuration_raises(make: Any) -> None:
    with pytest.raises(TypeError, match="config must be a ToolSelectionConfig, got str; pass"):
        make("glm-4.5-air")


@pytest.mark.parametrize("kind", PICKS)
@pytest.mark.parametrize(("pointers", "text"), NO_POINTERS)
async def test_selecting_from_wrong_pointers_raises(kind: str, pointers: object, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        await PICKS[kind](query="prices", pointers=pointers)


@pytest.mark.parametrize(("pointers", "text"), NO_POINTERS)
def test_formatting_wrong_pointers_raises(pointers: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        format_selected_contexts(
            pointers=pointers, store=SimpleNamespace(load_result=lambda pointer: pointer)
        )


@pytest.mark.parametrize("kind", PICKS)
@pytest.mark.parametrize("query", [None, 5, ["prices"]])
async def test_a_query_of_a_wrong_type_raises(kind: str, query: object) -> None:
    with pytest.raises(TypeError, match="query must be a str, got"):
        await PICKS[kind](query=query, pointers=[POINTER])
    with pytest.raises(TypeError, match="query must be a str, got list"):
        await CHOICES[kind](
            task=PlannedTask(id=1, description="x"), tool_registry=ToolRegistry(), query=["x"]
        )


@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("task", ["weather", {"id": 1, "description": "weather"}, None])
async def test_a_task_of_a_wrong_type_raises(kind: str, task: object) -> None:
    with pytest.raises(
        TypeError, match=r"task must be a PlannedTask, got .*; pass PlannedTask\(id=1"
    ):
        await CHOICES[kind](task=task, tool_registry=ToolRegistry())
