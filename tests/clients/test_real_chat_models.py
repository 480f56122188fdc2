"""LangChain's chat models for other providers than OpenAI, whose settings differ."""

import json
from importlib import import_module
from typing import Any

import pytest

from llm_common.clients import LangChainClient
from llm_common.core import LLMMessage, LLMUsage, MessageRole
from llm_common.errors import LLMRateLimitError
from tests.core.loopback import KEY, answer, loopback

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("default")]

ASKED = [
    LLMMessage(role=MessageRole.SYSTEM, content="Answer in JSON."),
    LLMMessage(role=MessageRole.USER, content="Which?"),
]
SETTINGS: dict[str, Any] = {
    "temperature": 0.0,
    "max_tokens": 7,
    "response_format": {"type": "json_object"},
}


def chat_anthropic(port: int) -> LangChainClient:
    chat_model = import_module("langchain_anthropic").ChatAnthropic(
        model="claude-first", api_key=KEY, base_url=f"http://127.0.0.1:{port}", max_retries=0
    )
    return LangChainClient(chat_model)


async def test_anthropics_chat_model_answers() -> None:
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-second",
        "content": [{"type": "text", "text": "{}"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 5},
    }
    async with loopback(answer(200, json.dumps(body).encode())) as server:
        got = await chat_anthropic(server.port).chat_completion(
            ASKED, model="claude-second", **SETTINGS
        )
    sent = server.requests[0].body
    assert (sent["model"], sent["temperature"], sent["max_tokens"]) == ("claude-second", 0.0, 7)
    assert "response_format" not in sent
    assert got.metadata == {"dropped_options": ["response_format"]}
    assert (got.content, got.model, got.finish_reason) == ("{}", "claude-second", "end_turn")
    assert got.usage == LLMUsage(
        prompt_tokens=15, completion_tokens=3, total_tokens=18, cached_tokens=5
    )


async def test_anthropics_errors_are_translated_without_the_key() -> None:
    body = {"type": "error", "error": {"type": "rate_limit_error", "message": f"slow down {KEY}"}}
    async with loopback(answer(429, json.dumps(body).encode(), {"Retry-After": "4"})) as server:
        with pytest.raises(LLMRateLimitError) as caught:
            await chat_anthropic(server.port).chat_completion(ASKED)
    assert caught.value.retry_after_s == 4.0
    assert "slow down [api key]" in caught.value.body


async def test_ollamas_settings_reach_the_server() -> None:
    body = {
        "model": "second",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": "{}"},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 5,
        "eval_count": 2,
    }
    line = json.dumps(body).encode() + b"\n"
    async with loopback(answer(200, line, {"Content-Type": "application/x-ndjson"})) as server:
        chat_model = import_module("langchain_ollama").ChatOllama(
            model="first", base_url=f"http://127.0.0.1:{server.port}"
        )
        got = await LangChainClient(chat_model).chat_completion(ASKED, model="second", **SETTINGS)
    sent = server.requests[0].body
    assert sent["model"] == "second"
    assert {name: sent["options"][name] for name in ("temperature", "num_predict")} == {
        "temperature": 0.0,
        "num_predict": 7,
    }
    assert (got.content, got.finish_reason) == ("{}", "stop")
    assert got.usage == LLMUsage(prompt_tokens=5, completion_tokens=2, total_tokens=7)
