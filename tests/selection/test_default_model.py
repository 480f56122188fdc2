"""Tests which model is asked if none is configured."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from llm_common.agents import (
    PlannedTask,
    ToolSelectionConfig,
    ToolSelector,
)
from llm_common.clients import OpenAISDKClient
from llm_common.core import LLMClient, OpenAICompatibleClient
from llm_common.testing import ScriptedClient
from llm_common.tools import ToolRegistry
from tests.core.loopback import answer, loopback

TASK = PlannedTask(id=1, description="What does Apple trade at?")
CALL = json.dumps({"calls": [{"tool": "get_price", "args": {"ticker": "AAPL"}}]})
VARIABLE = "LLM_COMMON_TOOL_SELECTION_MODEL"


def get_price(ticker: str) -> str:
    """The price of a share."""
    return ticker


REGISTRY = ToolRegistry([get_price])


def scripted(provider: str | None, model: str | None) -> ScriptedClient:
    client = ScriptedClient([CALL])
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


async def test_an_adapter_is_asked_for_its_own_model_f_179() -> None:
    models: list[str] = []

    async def create(**arguments: Any) -> dict[str, Any]:
        models.append(arguments["model"])
        return {"choices": [{"finish_reason": "stop", "message": {"content": CALL}}]}

    sdk = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    client: LLMClient = OpenAISDKClient(sdk, model="my-deployment")
    calls = await ToolSelector(client).select_tool_calls(task=TASK, tool_registry=REGISTRY)
    assert [call.tool for call in calls] == ["get_price"]
    assert models == ["my-deployment"]


async def test_a_failed_selection_names_model_host_and_setting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(VARIABLE, "missing-model")
    error = b'{"error": {"message": "no such model", "code": "model_not_found"}}'
    async with (
        loopback(answer(404, error)) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        selection = await ToolSelector(client).select_detailed(task=TASK, tool_registry=REGISTRY)
    assert selection.status == "error"
    for text in ("missing-model", "127.0.0.1", VARIABLE):
        assert text in selection.problem
        assert text in caplog.text
