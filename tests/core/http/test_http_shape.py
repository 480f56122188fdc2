"""The bytes that are sent, and the response that a good answer becomes."""

import json
from typing import Any

import httpx
import pytest
import respx
from pydantic import SecretStr

from llm_common.core import LLMConfig, LLMMessage, LLMResponse, MessageRole, OpenAICompatibleClient
from llm_common.core.http.endpoint import open_connections
from llm_common.core.http.wire import read_response
from llm_common.errors import ConfigError
from tests.core.loopback import JSON_MODE

URL = "https://api.example.test/v1/chat/completions"
MESSAGES = [LLMMessage(role=MessageRole.USER, content="hello")]
CONFIG = LLMConfig.model_validate(
    {
        "base_url": "https://api.example.test/v1/",
        "default_model": "test-model",
        "api_key": "sk-1",
        "provider": "zai",
    }
)


def reply(message: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    choice = {
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": "hi"} | (message or {}),
    }
    return {"id": "r1", "model": "served-model", "choices": [choice]} | fields


async def exchange(
    answer: dict[str, Any], *, config: LLMConfig = CONFIG, **options: Any
) -> tuple[LLMResponse, httpx.Request]:
    """Return the client's response and its request."""
    with respx.mock:
        route = respx.post(URL).respond(json=answer)
        async with OpenAICompatibleClient(config) as client:
            response = await client.chat_completion(**{"messages": MESSAGES} | options)
        return response, route.calls.last.request


async def call(answer: dict[str, Any], **options: Any) -> tuple[LLMResponse, Any]:
    """Return the client's response and the JSON that it sent."""
    response, request = await exchange(answer, **options)
    return response, json.loads(request.content)


async def test_a_request_contains_only_the_arguments() -> None:
    messages = [
        LLMMessage(role=MessageRole.SYSTEM, content="be brief"),
        LLMMessage(
            role=MessageRole.ASSISTANT, tool_calls=[{"id": "1", "function": {"arguments": None}}]
        ),
        LLMMessage(role=MessageRole.TOOL, content="42 \ud800", tool_call_id="1"),
    ]
    _, sent = await call(reply(), messages=messages, temperature=0.0, max_tokens=5, seed=7)
    assert sent == {
        "model": "test-model",
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": None}}]},
            {"role": "tool", "content": "42 ?", "tool_call_id": "1"},
        ],
        "temperature": 0.0,
        "max_tokens": 5,
        "seed": 7,
    }


async def test_arguments_of_a_call_win_over_the_configuration() -> None:
    config = CONFIG.model_copy(update={"temperature": 0.5, "max_tokens": 9})
    _, sent = await call(reply(), config=config)
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("test-model", 0.5, 9)
    _, sent = await call(reply(), config=config, model="other", temperature=0.0, max_tokens=1)
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("other", 0.0, 1)


async def test_the_key_is_in_one_header_and_only_known_encodings_are_accepted() -> None:
    _, request = await exchange(reply())
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.headers["accept-encoding"] == "gzip, deflate"
    _, keyless = await exchange(
        reply(), config=CONFIG.model_copy(update={"api_key": SecretStr("")})
    )
    assert "authorization" not in keyless.headers


@pytest.mark.parametrize(
    ("options", "thinking"),
    [
        ({"model": "glm-4.5-air", "response_format": JSON_MODE}, {"type": "disabled"}),
        (
            {"model": "glm-4.5-air", "response_format": JSON_MODE, "thinking": {"type": "enabled"}},
            {"type": "enabled"},
        ),
        ({"model": "glm-4.5-air"}, None),
        ({"model": "unknown-model", "response_format": JSON_MODE}, None),
    ],
    ids=["the model's own", "of the call", "not structured", "unknown model"],
)
async def test_structured_calls_get_the_options_of_the_models_profile(
    options: dict[str, Any], thinking: dict[str, str] | None
) -> None:
    _, sent = await call(reply(), **options)
    assert sent.keys() - {"thinking"} == {"messages", *options} - {"thinking"}
    assert sent.get("thinking") == thinking


async def test_a_model_that_always_reasons_gets_no_temperature() -> None:
    config = CONFIG.model_copy(update={"provider": "openai"})
    structured: dict[str, Any] = {
        "response_format": {"type": "json_object"},
        "temperature": 0.0,
        "max_tokens": 50,
    }
    _, sent = await call(reply(), config=config, model="gpt-5-mini", **structured)
    assert "temperature" not in sent
    assert "max_tokens" not in sent
    assert (sent["max_completion_tokens"], sent["reasoning_effort"]) == (50, "minimal")


async def test_an_answer_keeps_everything_that_selectors_read() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 60},
    }
    message = {
        "content": None,
        "tool_calls": [{"id": "1"}],
        "function_call": {"name": "f"},
        "refusal": "no",
    }
    response, _ = await call(reply(message, usage=usage), model="glm-4.5-air")
    assert response.latency_ms is not None
    kept = {"id", "model", "provider", "finish_reason", "metadata", *message}
    assert response.model_dump(include=kept) == {
        "id": "r1",
        "model": "served-model",
        "provider": "zai",
        "finish_reason": "stop",
        "metadata": {},
        **message,
    }
    assert (response.usage.total_tokens, response.usage.cached_tokens) == (110, 60)
    assert response.cost_usd == pytest.approx((40 * 0.20 + 60 * 0.03 + 10 * 1.10) / 1e6)


async def test_content_can_be_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]
    response, _ = await call(reply({"content": parts}))
    assert response.content == parts


@pytest.mark.parametrize(
    ("usage", "cost_usd"),
    [
        ({"cost": 0.25}, 0.25),
        ({"cost": 0}, 0.0),
        ({"cost": -1}, None),
        ({"cost": True}, None),
        ({"cost": "0.1"}, None),
        (None, None),
        ("many", None),
    ],
)
async def test_a_cost_that_the_endpoint_reports_is_used(
    usage: object, cost_usd: float | None
) -> None:
    response, _ = await call(reply(usage=usage))
    assert response.cost_usd == cost_usd


async def test_deepseeks_cache_hits_are_cached_tokens() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_cache_hit_tokens": 60}
    response, _ = await call(reply(usage=usage), model="glm-4.5-air")
    assert response.usage.cached_tokens == 60
    assert response.cost_usd == pytest.approx((40 * 0.20 + 60 * 0.03 + 10 * 1.10) / 1e6)


@pytest.mark.parametrize("value", [None, -1, 1.5, True, "7", []])
async def test_an_unusable_count_is_zero(value: object) -> None:
    usage = {
        "prompt_tokens": value,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": value},
    }
    response, _ = await call(reply(usage=usage))
    assert (
        response.usage.prompt_tokens,
        response.usage.total_tokens,
        response.usage.cached_tokens,
    ) == (0, 2, 0)


@pytest.mark.parametrize(
    "base_url",
    [
        "",
        "api.z.ai",
        "ftp://x/v1",
        "https://",
        "https://user:pw@x/v1",
        "https://x/v1?key=1",
        "https://x:0/",
        "https://[x",
        "https://x/v1/chat/completions/",
    ],
)
def test_an_unusable_address_is_refused_by_the_constructor(base_url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAICompatibleClient(CONFIG.model_copy(update={"base_url": base_url}))
    assert caught.value.variable == "base_url"


@pytest.mark.parametrize(("scheme", "trusted"), [("https", True), ("http", False)])
async def test_a_proxy_from_the_environment_never_sees_plain_text(
    scheme: str, trusted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    async with open_connections(f"{scheme}://example.test/v1", None) as connections:
        assert bool(connections._mounts) is trusted
        assert connections.follow_redirects is False


def test_a_client_shows_no_key() -> None:
    client = OpenAICompatibleClient(CONFIG)
    assert "sk-1" not in f"{client!r}{client.config!r}{client.config}{client.usage!r}"


@pytest.mark.parametrize(
    ("reported", "model"),
    [
        ("/home/ines/models/small.gguf", "small.gguf"),
        ("C:\\Users\\ines\\small.gguf", "small.gguf"),
        ("~/small.gguf", "small.gguf"),
        ("maker/model:free", "maker/model:free"),
        ("", "asked"),
    ],
)
def test_a_model_named_by_its_path_is_shortened_to_its_file(reported: str, model: str) -> None:
    reply = {"model": reported, "choices": [{"message": {"content": "x"}}]}
    assert read_response(reply, model="asked").model == model
