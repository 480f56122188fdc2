"""When the client repeats a request, and which options it then leaves out."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from llm_common.core import OpenAICompatibleClient
from llm_common.errors import ContextTooLongError, LLMRateLimitError, LLMStatusError
from tests.core.calling import JSON_MODE, MESSAGES, ask_once, failure_at
from tests.core.loopback import Loopback, Script, Wire, answer, loopback, ok, raw, response

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


async def dropped(
    client: OpenAICompatibleClient, requested: dict[str, Any], **options: Any
) -> list[str]:
    reply = await client.chat_completion(messages=MESSAGES, response_format=requested, **options)
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


@pytest.mark.parametrize(
    ("status", "says"), SCHEMA_REFUSALS, ids=[f"F-117-{n}" for n in range(len(SCHEMA_REFUSALS))]
)
async def test_a_refused_schema_costs_one_request_once_and_no_call_more_than_two(
    status: int, says: str
) -> None:
    """Check that the last request of a call is one that any endpoint accepts."""
    script = picky("json_object", "none", says=says, status=status)
    async with loopback(script) as server, OpenAICompatibleClient(server.config()) as client:
        dropped_options = [await dropped(client, SCHEMA_MODE) for _ in range(3)]
        assert formats(server) == ["json_schema", "none", "json_object", "json_object"]
    assert dropped_options == [["response_format"], ["json_schema"], ["json_schema"]]


@pytest.mark.parametrize(
    ("accepted", "max_attempts", "requested", "sent", "left_out"),
    [
        pytest.param(
            ["none"],
            2,
            [SCHEMA_MODE] * 4,
            ["json_schema", "none", "json_object", "none", "none", "none"],
            [["response_format"]] * 4,
            id="F-117 every refused format is learned call by call",
        ),
        pytest.param(
            ["json_object"],
            3,
            [SCHEMA_MODE] * 2,
            ["json_schema", "json_object", "json_object"],
            [["json_schema"]] * 2,
            id="F-117 with more attempts the next format is tried directly",
        ),
        pytest.param(
            ["none"],
            3,
            [SCHEMA_MODE] * 2,
            ["json_schema", "json_object", "none", "none"],
            [["response_format"]] * 2,
            id="F-117 with more attempts every format is tried directly",
        ),
        pytest.param(
            ["json_schema", "none"],
            2,
            [JSON_MODE, JSON_MODE, SCHEMA_MODE],
            ["json_object", "none", "none", "json_schema"],
            [["response_format"], ["response_format"], []],
            id="F-117 an endpoint accepts only schemas",
        ),
    ],
)
async def test_a_client_learns_which_formats_its_endpoint_refuses(
    accepted: list[str],
    max_attempts: int,
    requested: list[dict[str, Any]],
    sent: list[str],
    left_out: list[list[str]],
) -> None:
    says = "'response_format.type' must be another one"
    async with (
        loopback(picky(*accepted, says=says)) as server,
        OpenAICompatibleClient(server.config(max_attempts=max_attempts)) as client,
    ):
        assert [await dropped(client, mode) for mode in requested] == left_out
        assert formats(server) == sent


async def test_one_refused_option_does_not_remove_the_others_f_117() -> None:
    async def no_thinking(wire: Wire) -> None:
        while (request := await wire.request()) is not None:
            refused = "thinking" in request.body
            await wire.send(
                response(400, b"unknown field: thinking") if refused else response(200, ok())
            )

    async with loopback(no_thinking) as server, OpenAICompatibleClient(server.config()) as client:
        dropped_options = [await dropped(client, JSON_MODE, model="glm-4.5-air") for _ in range(2)]
        assert formats(server) == ["json_object", "none", "json_object"]
    assert dropped_options == [["response_format", "thinking"], ["thinking"]]


async def test_a_refusal_counts_only_for_its_model_f_117() -> None:
    async with loopback(picky("none")) as server, OpenAICompatibleClient(server.config()) as client:
        for model in ("first", "first", "second"):
            await dropped(client, JSON_MODE, model=model)
        assert formats(server) == ["json_object", "none", "none", "json_object", "none"]


async def test_an_error_that_only_quotes_the_call_is_not_remembered_f_117() -> None:
    complaint = raw(response(400, b"bad request: {response_format: ...}"))
    async with (
        loopback(complaint, complaint, answer(200, ok())) as server,
        OpenAICompatibleClient(server.config()) as client,
    ):
        with pytest.raises(LLMStatusError):
            await dropped(client, JSON_MODE)
        assert await dropped(client, JSON_MODE) == []
        assert formats(server) == ["json_object", "none", "json_object"]


async def test_a_prompt_that_is_too_long_is_not_a_refused_option_f_119() -> None:
    says = b"context_length_exceeded; your request: {response_format: ...}"
    options = {"response_format": JSON_MODE}
    _, server = await failure_at(ContextTooLongError, answer(400, says), options=options)
    assert len(server.requests) == 1
