"""The promises of `OpenAICompatibleClient`, over real connections."""

import logging
from typing import Any

import pytest
from pydantic import ValidationError

from llm_common.core import LLMConfig, LLMMessage, MessageRole, OpenAICompatibleClient
from llm_common.errors import ConfigError, LLMConnectionError, LLMStatusError, LLMTimeoutError
from tests.core.loopback import (
    KEY,
    MESSAGES,
    Wire,
    answer,
    ask_once,
    failure_at,
    loopback,
    ok,
    raw,
    response,
)
from tests.core.misbehaving_server import FAULTS, misbehaving


@pytest.mark.parametrize("name", ["timeout_s", "timeout"])
@pytest.mark.parametrize("row", ["F-110", "F-111", "F-129-endless"])
async def test_a_call_can_set_its_own_deadline(row: str, name: str) -> None:
    script = misbehaving(FAULTS[row].act)
    error, _ = await failure_at(LLMTimeoutError, script, options={name: 0.1})
    assert error.timeout_s == 0.1


async def test_a_retry_is_logged_without_text_of_the_conversation(
    no_waits: None, caplog: pytest.LogCaptureFixture
) -> None:
    secret = [LLMMessage(role=MessageRole.USER, content="my diagnosis")]
    with caplog.at_level(logging.DEBUG):
        async with (
            loopback(
                raw(response(500, f"my diagnosis {KEY}".encode())), answer(200, ok())
            ) as server,
            OpenAICompatibleClient(server.config()) as client,
        ):
            await client.chat_completion(messages=secret)
    [retry] = [
        record.getMessage() for record in caplog.records if record.name.startswith("llm_common")
    ]
    where = f"model test-model at 127.0.0.1:{server.port}"
    assert retry.startswith(
        f"{where}: the endpoint answered with an error (status 500); request 2 of 2 follows in 0."
    )
    logged = "".join(f"{record.getMessage()}{vars(record)}" for record in caplog.records)
    assert "diagnosis" not in logged
    assert KEY not in logged


async def test_an_error_body_is_short_and_without_the_key() -> None:
    body = ("x" * 1_990 + KEY + "y" * 5_000).encode()
    error, _ = await failure_at(LLMStatusError, answer(400, body))
    assert len(error.body) == 2_000
    assert KEY[:8] not in error.body


async def test_a_client_that_is_closed_during_a_call_is_not_retried() -> None:
    async def close_and_fail(wire: Wire) -> None:
        await wire.request()
        await client.aclose()
        await wire.send(response(503, b"{}"))

    async with loopback(close_and_fail, answer(200, ok())) as server:
        client = OpenAICompatibleClient(server.config(max_attempts=5))
        with pytest.raises(LLMConnectionError):
            await client.chat_completion(messages=MESSAGES)
        assert len(server.requests) == 1


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_an_unusable_key_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OpenAICompatibleClient(
            LLMConfig.model_validate(
                {"base_url": "https://x", "default_model": "m", "api_key": key}
            )
        )
    assert caught.value.variable == "api_key"
    assert key not in f"{caught.value}{vars(caught.value)}"


@pytest.mark.parametrize(
    "options",
    [
        {"stream": True},
        {"seed": float("nan")},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"timeout": -1},
        {"timeout": "soon"},
    ],
)
async def test_impossible_options_are_a_value_error(options: dict[str, Any]) -> None:
    async with loopback(answer(200, ok())) as server:
        with pytest.raises(ValueError, match=r"stream|timeout_s must be a positive number|JSON"):
            await ask_once(server.config(), **options)
        assert not server.requests


async def test_a_call_does_not_block_the_event_loop(blockbuster: object) -> None:
    async with loopback(answer(200, ok())) as server:
        assert (await ask_once(server.config())).content


@pytest.mark.parametrize(
    ("field", "allowed", "refused"),
    [
        ("timeout_s", (0.001, 3_600), (0, 3_600.1)),
        ("max_attempts", (1, 10), (0, 11)),
        ("max_response_bytes", (1,), (0,)),
        ("max_tokens", (None, 1), (0,)),
        ("cost_limit_usd", (None, 0, 0.5), (-0.1, float("inf"), float("nan"))),
    ],
)
def test_a_limit_of_a_client_is_taken_up_to_its_bounds(
    field: str, allowed: tuple[Any, ...], refused: tuple[Any, ...]
) -> None:
    address: dict[str, Any] = {"base_url": "http://127.0.0.1:9", "default_model": "m"}
    for value in allowed:
        assert getattr(LLMConfig(**address, **{field: value}), field) == value
    for value in refused:
        with pytest.raises(ValidationError, match=field):
            LLMConfig(**address, **{field: value})
