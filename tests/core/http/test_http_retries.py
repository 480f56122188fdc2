"""When the client repeats a request, and which options it then leaves out."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from llm_common.core import OpenAICompatibleClient
from llm_common.errors import ContextTooLongError, LLMRateLimitError, LLMStatusError
from tests.core.loopback import (
    JSON_MODE,
    MESSAGES,
    Loopback,
    Script,
    Wire,
    answer,
    ask_once,
    failure_at,
    loopback,
    ok,
    raw,
    response,
)

SCHEMA_MODE = {
    "type": "json_schema",
    "json_schema": {"name": "choice", "strict": True, "schema": {"type": "object"}},
}
# Errors for a refused option from OpenAI, DeepSeek (twice), Groq, Alibaba, LM Studio and llama.cpp.
SCHEMA_REFUSALS = [
    (
        400,
        (
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this "
            "model."
        ),
    ),
    (400, "This response_format type is unavailable now"),
    (
        422,
        (
            "Failed to deserialize the JSON body: response_format.type `json_schema` is unavailable "
            "now at line 1"
        ),
    ),
    (400, "This model does not support response format `json_schema`. See supported models."),
    (400, "'response_format.type' : value is not one of the allowed values ['text','json_object']"),
    (400, 'Either "json_schema" or "grammar" can be specified, but not both'),
]


def in_seconds(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("status", "wait"),
    [(429, "1"), (503, "0.6"), (500, "0.6"), (408, "0.6")],
    ids=lambda value: f"F-112-{value}",
)
async def test_retry_after_is_honoured_for_every_status(status: int, wait: str) -> None:
    busy = raw(response(status, b"{}", {"Retry-After": wait}))
    async with loopback(busy, answer(200, ok())) as server:
        started = time.monotonic()
        assert (await ask_once(server.config())).content
        assert float(wait) <= time.monotonic() - started < float(wait) + 10
        assert len(server.requests) == 2


async def test_a_delay_in_milliseconds_wins_over_seconds_f_112() -> None:
    headers = {"Retry-After": "3600", "Retry-After-Ms": "20"}
    async with loopback(raw(response(429, b"{}", headers)), answer(200, ok())) as server:
        assert (await ask_once(server.config(timeout_s=30.0))).content


@pytest.mark.parametrize("status", [429, 503], ids=lambda status: f"F-113-{status}")
@pytest.mark.parametrize("wait", [str, in_seconds], ids=["seconds", "date"])
async def test_a_delay_beyond_the_deadline_is_reported_and_not_begun(
    status: int, wait: Callable[[int], str]
) -> None:
    busy = answer(status, b"{}", {"Retry-After": wait(3600)})
    started = time.monotonic()
    error, server = await failure_at(LLMStatusError, busy, timeout_s=3.0)
    assert time.monotonic() - started < 10  # seconds of patience on a busy machine
    assert len(server.requests) == 1
    assert error.retry_after_s == pytest.approx(3600, abs=30)
    assert isinstance(error, LLMRateLimitError) is (status == 429)


@pytest.mark.parametrize("attempts", [1, 2, 4])
async def test_server_errors_are_retried_at_most_as_configured_f_115(
    attempts: int, no_waits: None
) -> None:
    down = answer(503, b"down")
    error, server = await failure_at(LLMStatusError, down, max_attempts=attempts)
    assert len(server.requests) == attempts
    assert (error.status, error.body) == (503, "down")


# --- refused options


def picky(
    *accepted: str, says: str = "response_format is not supported", status: int = 400
) -> Script:
    """Accept only these types of `response_format`. "none" is a request without one."""

    async def script(wire: Wire) -> None:
        while (request := await wire.request()) is not None:
            kind = request.body.get("response_format", {}).get("type", "none")
            await wire.send(
                response(200, ok()) if kind in accepted else response(status, says.encode())
            )

    return script


def formats(server: Loopback) -> list[str]:
    """Return the type of `response_format` of each request, in order."""
    return [
        request.body.get("response_format", {}).get("type", "none") for request in server.requests
    ]


async def dropped(client: OpenAICompatibleClient, **options: Any) -> list[str]:
    reply = await client.chat_completion(messages=MESSAGES, **options)
    names: list[str] = reply.metadata.get("dropped_options", [])
    return names


async def test_a_refused_response_format_is_left_out_and_reported_f_117() -> None:
    refusal = raw(response(400, b'{"error": {"message": "response_format is not supported"}}'))
    async with loopback(refusal, answer(200, ok())) as server:
        reply = await ask_once(server.config(), model="glm-4.5-air", response_format=JSON_MODE)
        first, second = (request.body for request in server.requests)
    assert first == second | {"response_format": JSON_MODE, "thinking": {"type": "disabled"}}
    assert reply.metadata == {"dropped_options": ["response_format", "thinking"]}


async def test_a_lasting_refusal_is_an_error_after_one_retry_f_117() -> None:
    options = {"response_format": JSON_MODE}
    _, server = await failure_at(LLMStatusError, picky(), options=options, max_attempts=5)
    assert formats(server) == ["json_object", "none"]


async def no_thinking(wire: Wire) -> None:
    """Refuse `thinking` alone."""
    while (request := await wire.request()) is not None:
        refused = "thinking" in request.body
        await wire.send(
            response(400, b"unknown field: thinking") if refused else response(200, ok())
        )


OTHER_TYPE = "'response_format.type' must be another one"
SCHEMA: dict[str, Any] = {"response_format": SCHEMA_MODE}
JSON: dict[str, Any] = {"response_format": JSON_MODE}


@pytest.mark.parametrize(
    ("script", "max_attempts", "requested", "sent", "left_out"),
    [
        *(
            pytest.param(
                picky("json_object", "none", says=says, status=status),
                2,
                [SCHEMA] * 3,
                ["json_schema", "none", "json_object", "json_object"],
                [["response_format"], ["json_schema"], ["json_schema"]],
                id=f"F-117-{number} a refused schema costs one request once",
            )
            for number, (status, says) in enumerate(SCHEMA_REFUSALS)
        ),
        pytest.param(
            picky("none", says=OTHER_TYPE),
            2,
            [SCHEMA] * 4,
            ["json_schema", "none", "json_object", "none", "none", "none"],
            [["response_format"]] * 4,
            id="F-117 every refused format is learned call by call",
        ),
        pytest.param(
            picky("json_object", says=OTHER_TYPE),
            3,
            [SCHEMA] * 2,
            ["json_schema", "json_object", "json_object"],
            [["json_schema"]] * 2,
            id="F-117 with more attempts the next format is tried directly",
        ),
        pytest.param(
            picky("none", says=OTHER_TYPE),
            3,
            [SCHEMA] * 2,
            ["json_schema", "json_object", "none", "none"],
            [["response_format"]] * 2,
            id="F-117 with more attempts every format is tried directly",
        ),
        pytest.param(
            picky("json_schema", "none", says=OTHER_TYPE),
            2,
            [JSON, JSON, SCHEMA],
            ["json_object", "none", "none", "json_schema"],
            [["response_format"], ["response_format"], []],
            id="F-117 an endpoint accepts only schemas",
        ),
        pytest.param(
            picky("none"),
            2,
            [JSON | {"model": model} for model in ("first", "first", "second")],
            ["json_object", "none", "none", "json_object", "none"],
            [["response_format"]] * 3,
            id="F-117 a refusal counts only for its model",
        ),
        pytest.param(
            no_thinking,
            2,
            [JSON | {"model": "glm-4.5-air"}] * 2,
            ["json_object", "none", "json_object"],
            [["response_format", "thinking"], ["thinking"]],
            id="F-117 one refused option does not remove the others",
        ),
    ],
)
async def test_a_client_learns_what_its_endpoint_refuses_f_117(
    script: Script,
    max_attempts: int,
    requested: list[dict[str, Any]],
    sent: list[str],
    left_out: list[list[str]],
) -> None:
    """Check that the last request of a call is one that any endpoint accepts."""
    async with (
        loopback(script) as server,
        OpenAICompatibleClient(server.config(max_attempts=max_attempts)) as client,
    ):
        assert [await dropped(client, **options) for options in requested] == left_out
        assert formats(server) == sent


async def test_an_error_that_only_quotes_the_call_is_not_remembered_f_117() -> None:
    complaint = raw(response(400, b"bad request: {response_format: ...}"))
    async with (
        loopback(complaint, complaint, answer(200, ok())) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        with pytest.raises(LLMStatusError):
            await dropped(client, **JSON)
        assert await dropped(client, **JSON) == []
        assert formats(server) == ["json_object", "none", "json_object"]


async def test_a_prompt_that_is_too_long_is_not_a_refused_option_f_119() -> None:
    says = b"context_length_exceeded; your request: {response_format: ...}"
    options = {"response_format": JSON_MODE}
    _, server = await failure_at(ContextTooLongError, answer(400, says), options=options)
    assert len(server.requests) == 1
