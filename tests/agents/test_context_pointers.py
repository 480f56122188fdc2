"""The face that applications import, used the way they use it."""

from pathlib import Path
from types import ModuleType
from unittest.mock import AsyncMock

import pytest

from llm_common import agents
from llm_common.agents import context_pointers, tool_selector
from llm_common.agents.context_pointers import (
    ContextPointer,
    ContextRelevanceSelector,
    FileContextPointerStore,
    LexicalRelevanceSelector,
    compute_pointer_id,
    deterministic_summary,
    format_selected_contexts,
)
from llm_common.core import LLMResponse, LLMUsage


def test_every_public_name_exists() -> None:
    assert all(hasattr(context_pointers, name) for name in context_pointers.__all__)
    assert context_pointers.ObjectContextPointerStore is agents.ObjectContextPointerStore
    assert "ObjectContextPointerStore" in dir(context_pointers)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("ContextPointer", context_pointers),
        ("FileContextPointerStore", context_pointers),
        ("ContextRelevanceSelector", context_pointers),
        ("format_selected_contexts", context_pointers),
        ("ToolSelector", tool_selector),
        ("ToolSelectionConfig", tool_selector),
    ],
)
def test_a_name_of_the_card_is_exported_twice_s0_41(name: str, module: ModuleType) -> None:
    assert name in agents.__all__
    assert name in module.__all__
    assert getattr(agents, name) is getattr(module, name)


@pytest.mark.parametrize("module", [agents, context_pointers])
def test_a_name_that_does_not_exist_is_refused(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match="FileContextPointerStor"):
        _ = module.FileContextPointerStor
    assert "FileContextPointerStor" not in dir(module)


async def test_saves_selects_and_shows(tmp_path: Path) -> None:
    store = FileContextPointerStore(base_dir=tmp_path)
    rain = await store.save(
        query_id="q",
        task_id="1",
        tool_name="weather",
        args={"query": "Oslo"},
        result={"rain": True},
    )
    await store.save(
        query_id="q", task_id="1", tool_name="news", args={"query": "stocks"}, result={"up": 3}
    )
    client = AsyncMock()
    client.chat_completion.return_value = LLMResponse(
        id="x",
        model="m",
        content=f'{{"pointer_ids":["{rain.pointer_id}"]}}',
        finish_reason="stop",
        usage=LLMUsage(prompt_tokens=1, completion_tokens=1, total_tokens=2),
        provider="test",
    )
    selector = ContextRelevanceSelector(client, None, 3, True)
    selected = await selector.select(query="weather in Oslo?", pointers=store.list(query_id="q"))
    assert selected == [rain]
    local = await LexicalRelevanceSelector(max_selected=1).select(
        query="weather in Oslo?", pointers=store.list(query_id="q")
    )
    assert local == selected
    text = format_selected_contexts(pointers=selected, store=store, max_chars=500)
    assert f"### weather ({rain.pointer_id})" in text
    assert '{"rain":true}' in text


async def test_the_digest_of_a_saved_result_finds_it_s0_08(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path)
    saved = [
        await store.save(
            query_id="q", task_id=None, tool_name="read", args={"path": str(number)}, result=result
        )
        for number, result in enumerate(
            ["the invoice of Acme", "a poem", {"kind": "recipe", "of": ["bread"]}, "a song"]
        )
    ]
    selected = await LexicalRelevanceSelector(max_selected=1).select(
        query="Acme's invoices", pointers=saved
    )
    assert selected == [saved[0]]


def test_the_pure_functions_keep_their_shapes() -> None:
    pointer_id = compute_pointer_id(
        tool_name="tool", args={"ticker": "AAPL", "limit": 5}, query_id="q", task_id="t"
    )
    assert pointer_id == "24248a36f5e3"
    assert (
        deterministic_summary(tool_name="web_search", args={"query": "foo", "count": 3})
        == "web_search query=foo count=3"
    )
    ContextPointer(
        pointer_id="deadbeefcafe",
        query_id="q",
        task_id=None,
        tool_name="t",
        args={},
        created_at="now",
        summary="t",
        result_path="/tmp/x",
        source_urls=[],
    )
