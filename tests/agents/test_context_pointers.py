"""The face that applications import, used the way they use it."""

from types import ModuleType

import pytest

from llm_common import agents
from llm_common.agents import context_pointers, tool_selector


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
