"""Tests can replace the network: `transport=` accepts the mock transport of httpx."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from llm_common.core import LLMConfig, LLMResponse, OpenAICompatibleClient
from tests.core.loopback import MESSAGES, ok

CONFIG = LLMConfig(base_url="https://api.example.test/v1", default_model="m", max_attempts=1)
JSON = {"content-type": "application/json"}


async def asked(handler: Callable[[Any], Any], **changes: Any) -> LLMResponse:
    config = CONFIG.model_copy(update=changes)
    async with OpenAICompatibleClient(config, transport=httpx.MockTransport(handler)) as client:
        return await client.chat_completion(messages=MESSAGES)


async def streamed() -> Any:
    yield ok("in pieces")[:20]
    yield ok("in pieces")[20:]


async def test_a_mock_transport_streams_a_text() -> None:
    def handler(request: Any) -> Any:
        events = [
            {"delta": {"content": "Hel"}},
            {"delta": {"content": "lo"}, "finish_reason": "stop"},
        ]
        text = "".join(f"data: {json.dumps({'choices': [choice]})}\n\n" for choice in events)
        return httpx.Response(200, text=text, headers={"content-type": "text/event-stream"})

    async with OpenAICompatibleClient(CONFIG, transport=httpx.MockTransport(handler)) as client:
        assert [delta.text async for delta in client.stream(MESSAGES)] == ["Hel", "lo", ""]


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"content": ok("whole"), "headers": JSON}, "whole"),
        (
            {
                "content": gzip.compress(ok("packed")),
                "headers": JSON | {"content-encoding": "gzip"},
            },
            "packed",
        ),
        ({"content": streamed, "headers": JSON}, "in pieces"),
        ({"json": {"choices": [{"message": {"content": "a value"}}]}}, "a value"),
    ],
    ids=["bytes", "gzip", "stream", "json"],
)
async def test_a_mock_transport_answers_in_every_form(fields: dict[str, Any], content: str) -> None:
    def handler(request: Any) -> Any:
        assert request.url.host == "api.example.test"
        values = {name: value() if callable(value) else value for name, value in fields.items()}
        return httpx.Response(200, **values)

    assert (await asked(handler)).content == content


@pytest.mark.parametrize(
    "transport", [httpx.HTTPTransport(), lambda _: None, "http://proxy"], ids=["sync", "f", "str"]
)
def test_other_transports_are_refused_with_the_remedy(transport: Any) -> None:
    with pytest.raises(
        TypeError, match=f"got {type(transport).__name__}; pass .*httpx.MockTransport"
    ):
        OpenAICompatibleClient(CONFIG, transport=transport)


def test_other_configurations_are_refused_with_the_remedy() -> None:
    wrong: Any = "https://api.example.test/v1"
    with pytest.raises(TypeError, match="config must be an LLMConfig, got str; pass one"):
        OpenAICompatibleClient(wrong)
