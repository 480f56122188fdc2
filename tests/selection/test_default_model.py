"""Tests which model is asked if none is configured."""

import pytest

from llm_common.agents import ToolSelectionConfig, ToolSelector
from llm_common.errors import ModelNotFoundError
from llm_common.testing import ScriptedClient
from tests.selection.doubles import REGISTRY, TASK

VARIABLE = "LLM_COMMON_TOOL_SELECTION_MODEL"


def scripted(provider: str | None, model: str | None) -> ScriptedClient:
    client = ScriptedClient(['{"calls": []}'])
    client.provider, client.default_model = provider, model
    return client


async def asked_model(
    client: ScriptedClient, config: ToolSelectionConfig | None = None
) -> str | None:
    await ToolSelector(client, config).select_tool_calls(task=TASK, tool_registry=REGISTRY)
    return client.calls[0].model


@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("openai", "gpt-4.1-mini", None),
        ("openrouter", "z-ai/glm-4.5-air", None),
        ("local", "default", None),
        ("custom", "only-model", None),
        ("litellm", None, None),
        ("zai", "glm-4.6", "glm-4.5-air"),
        (None, None, "glm-4.5-air"),
    ],
)
async def test_the_default_model_is_asked_of_zai_only_f_179(
    provider: str | None, model: str | None, expected: str | None
) -> None:
    assert await asked_model(scripted(provider, model)) == expected


@pytest.mark.parametrize("by", ["argument", "variable"])
@pytest.mark.parametrize("name", ["glm-4.5-air", "other"])
async def test_a_configured_model_is_asked_of_any_provider_f_179(
    by: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ToolSelectionConfig(model=name) if by == "argument" else None
    if by == "variable":
        monkeypatch.setenv(VARIABLE, name)
    assert await asked_model(scripted("openai", "gpt-4.1-mini"), config) == name


async def test_a_model_that_does_not_exist_is_named_with_its_setting_f_179(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "missing-model")
    missing = ModelNotFoundError("the endpoint has no such model", status=404)
    selection = await ToolSelector(ScriptedClient([missing])).select_detailed(
        task=TASK, tool_registry=REGISTRY
    )
    assert selection.status == "error"
    assert "missing-model" in selection.problem
    assert VARIABLE in selection.problem
