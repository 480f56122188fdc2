"""Every adapter, around a double and around the real client, against a real endpoint on loopback."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from llm_common.agents import (
    ContextRelevanceSelector,
)
from llm_common.core import LLMClient, LLMMessage, LLMUsage, MessageRole
from llm_common.errors import (
    ContextTooLongError,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
)
from tests.clients.conftest import Adapter
from tests.core.loopback import KEY, Loopback, Script, Wire, answer, loopback, ok, raw, response
from tests.selection.test_relevance import THREE, A, chosen

ASKED = [
    LLMMessage(role=MessageRole.SYSTEM, content="Answer in JSON."),
    LLMMessage(role=MessageRole.USER, content="Which?"),
]
USAGE = {
    "prompt_tokens": 110,
    "completion_tokens": 7,
    "total_tokens": 117,
    "prompt_tokens_details": {"cached_tokens": 64},
    "cost": 0.0125,
}
SCHEMA = {
    "name": "choice",
    "strict": True,
    "schema": {"type": "object", "properties": {"n": {"type": "integer"}}},
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Forecasts.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Ulm"}'},
}


def reply(content: object = "{}", **fields: Any) -> bytes:
    """Return a body with every field that the strictest client requires."""
    return ok(content, **{"object": "chat.completion", "created": 1} | fields)


@asynccontextmanager
async def served(
    adapter: Adapter, *scripts: Script, **timeouts: float
) -> AsyncIterator[tuple[LLMClient, Loopback]]:
    async with (
        loopback(*scripts, max_connections=50) as server,
        adapter.client(f"http://127.0.0.1:{server.port}/v1", **timeouts) as client,
    ):
        yield client, server


async def raised(adapter: Adapter, *scripts: Script, **timeouts: float) -> LLMError:
    async with served(adapter, *scripts, **timeouts) as (client, _):
        with pytest.raises(LLMError) as caught:
            await client.chat_completion(ASKED)
    assert KEY not in str(caught.value)
    return caught.value


async def silence(wire: Wire) -> None:
    await wire.request()
    await asyncio.sleep(60)


# --- the answer


async def test_an_answer_is_whole_with_the_servers_counts(adapter: Adapter) -> None:
    async with served(adapter, answer(200, reply('{"n": 1}', usage=USAGE))) as (client, _):
        got = await client.chat_completion(ASKED)
    assert (got.content, got.finish_reason, got.model, got.id) == (
        '{"n": 1}',
        "stop",
        "test-model",
        "chatcmpl-1",
    )
    assert got.usage == LLMUsage(
        prompt_tokens=110, completion_tokens=7, total_tokens=117, cached_tokens=64
    )
    assert got.tool_calls is None
    assert got.latency_ms is not None
    assert got.metadata == {}
    assert got.cost_usd == 0.0125


async def test_an_adapter_names_its_model_and_its_provider_f_179(adapter: Adapter) -> None:
    async with adapter.client("http://127.0.0.1:9/v1") as client:
        assert client.default_model == f"{adapter.prefix}test-model"
        assert client.provider in {"custom", "litellm"}


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_the_finish_reason_of_a_cut_answer_is_kept(adapter: Adapter, reason: str) -> None:
    choice = {"index": 0, "finish_reason": reason, "message": {"role": "assistant", "content": "{"}}
    async with served(adapter, answer(200, reply(choices=[choice]))) as (client, _):
        assert (await client.chat_completion(ASKED)).finish_reason == reason


async def test_tools_are_sent_and_their_calls_returned(adapter: Adapter) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    async with served(adapter, answer(200, reply(choices=[choice]))) as (client, server):
        got = await client.chat_completion(ASKED, tools=[TOOL])
    [sent] = server.requests[0].body["tools"]
    assert sent == TOOL
    assert not got.content
    assert got.finish_reason == "tool_calls"
    assert got.tool_calls is not None
    [call] = got.tool_calls
    assert (call["id"], call["type"], call["function"]["name"]) == (
        "call_1",
        "function",
        "get_weather",
    )
    assert json.loads(call["function"]["arguments"]) == {"city": "Ulm"}


async def test_content_in_parts_is_read_or_refused(adapter: Adapter) -> None:
    body = reply([{"type": "text", "text": "{}"}])
    if adapter.real and adapter.name == "litellm":
        # It accepts no parts from an endpoint of this kind.
        await raised(adapter, answer(200, body))
        return
    async with served(adapter, answer(200, body)) as (client, _):
        assert (await client.chat_completion(ASKED)).content == [{"type": "text", "text": "{}"}]


# --- the call


async def test_every_option_reaches_the_endpoint(adapter: Adapter) -> None:
    async with served(adapter, answer(200, reply())) as (client, server):
        await client.chat_completion(
            ASKED,
            temperature=0.0,
            max_tokens=9,
            response_format={"type": "json_schema", "json_schema": SCHEMA},
            seed=4,
        )
    [received] = server.requests
    body = received.body
    assert received.authorization == f"Bearer {KEY}"
    assert body["messages"] == [
        {"role": "system", "content": "Answer in JSON."},
        {"role": "user", "content": "Which?"},
    ]
    assert (body["model"], body["temperature"], body["seed"]) == ("test-model", 0.0, 4)
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 9
    assert body["response_format"]["type"] == "json_schema"
    sent = body["response_format"]["json_schema"]
    assert sent["name"] == "choice"
    assert sent["schema"]["properties"] == {"n": {"type": "integer"}}


async def test_a_call_can_name_another_model(adapter: Adapter) -> None:
    async with served(adapter, answer(200, reply())) as (client, server):
        await client.chat_completion(ASKED, model=f"{adapter.prefix}other")
        await client.chat_completion(ASKED)
    assert [request.body["model"] for request in server.requests] == ["other", "test-model"]


async def test_a_whole_conversation_is_sent(adapter: Adapter) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    conversation = [
        *ASKED,
        LLMMessage(role=MessageRole.USER, content=[{"type": "text", "text": "Look"}, image]),
        LLMMessage(role=MessageRole.ASSISTANT, content="I ask.", tool_calls=[CALL]),
        LLMMessage(role=MessageRole.TOOL, content="Rain.", tool_call_id="call_1"),
        LLMMessage(role=MessageRole.ASSISTANT, content="It rains."),
        LLMMessage(role=MessageRole.USER, content="Thanks."),
    ]
    async with served(adapter, answer(200, reply())) as (client, server):
        await client.chat_completion(conversation)
    sent = server.requests[0].body["messages"]
    assert [message["role"] for message in sent] == [message.role for message in conversation]
    parts = sent[2]["content"]
    assert (parts[0]["text"], parts[1]["image_url"]["url"]) == ("Look", "https://example.com/a.png")
    [call] = sent[3]["tool_calls"]
    assert (call["id"], json.loads(call["function"]["arguments"])) == ("call_1", {"city": "Ulm"})
    assert (sent[3]["content"], sent[4]["content"], sent[4]["tool_call_id"]) == (
        "I ask.",
        "Rain.",
        "call_1",
    )
    assert [message["content"] for message in sent[5:]] == ["It rains.", "Thanks."]


async def test_a_stream_is_refused(adapter: Adapter) -> None:
    async with served(adapter, answer(200, reply())) as (client, server):
        with pytest.raises(ValueError, match="stream"):
            await client.chat_completion(ASKED, stream=True)
    assert server.requests == []


async def test_a_refused_response_format_is_left_out_and_remembered(adapter: Adapter) -> None:
    def refusing(wire_body: dict[str, Any]) -> bytes:
        if "response_format" in wire_body:
            return response(
                400, b'{"error": {"message": "response_format is not supported", "code": 400}}'
            )
        return response(200, reply())

    async def script(wire: Wire) -> None:
        while (request := await wire.request()) is not None:
            await wire.send(refusing(request.body))

    async with served(adapter, script) as (client, server):
        answers = [
            await client.chat_completion(
                ASKED, response_format={"type": "json_object"}, temperature=0.0
            )
            for _ in range(2)
        ]
    assert ["response_format" in request.body for request in server.requests] == [
        True,
        False,
        False,
    ]
    assert {request.body["temperature"] for request in server.requests} == {0.0}
    assert [got.metadata for got in answers] == [{"dropped_options": ["response_format"]}] * 2


# --- errors


@pytest.mark.parametrize("model", [None, "other"])
async def test_an_unknown_model_is_named_with_its_source(
    adapter: Adapter, model: str | None
) -> None:
    named = model and f"{adapter.prefix}{model}"
    async with served(adapter, answer(404, f"no such model, {KEY}".encode())) as (client, server):
        with pytest.raises(ModelNotFoundError) as caught:
            await client.chat_completion(ASKED, model=named)
    error = caught.value
    assert str(error).startswith(f"model {named or client.default_model}")
    assert (
        "LLM_COMMON_TOOL_SELECTION_MODEL" if model else "argument `model` of the client"
    ) in str(error)
    assert KEY not in str(error)
    if adapter.name == "openai_sdk":
        assert error.host == client.host == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        pytest.param(401, f"no such key {KEY}", LLMAuthError, id="401"),
        pytest.param(403, "not allowed", LLMAuthError, id="403"),
        pytest.param(404, "unknown name", ModelNotFoundError, id="404"),
        pytest.param(429, "slow down", LLMRateLimitError, id="429"),
        pytest.param(
            400,
            "This model's maximum context length is 5 tokens",
            ContextTooLongError,
            id="400-too-long",
        ),
        pytest.param(413, "too large", ContextTooLongError, id="413"),
        pytest.param(400, "bad request", LLMStatusError, id="400"),
        pytest.param(500, "broken", LLMStatusError, id="500"),
        pytest.param(503, "busy", LLMStatusError, id="503"),
    ],
)
async def test_an_error_of_the_endpoint_has_its_class_and_status(
    adapter: Adapter, status: int, text: str, kind: type[LLMStatusError]
) -> None:
    body = json.dumps({"error": {"message": text, "type": "some_error"}}).encode()
    error = await raised(adapter, answer(status, body, {"Retry-After": "7"}))
    assert type(error) is kind
    assert isinstance(error, LLMStatusError)
    assert error.status == status
    assert KEY not in f"{error.body}{error}"
    # Some packages pass on the whole error object, others only a text that contains it.
    assert error.endpoint_message in {"", text.replace(KEY, "[api key]")}
    if status == 429:
        assert error.retry_after_s == 7.0


@pytest.mark.parametrize("clock", ["timeout_s", "own_timeout_s"])
async def test_either_deadline_raises_a_timeout(adapter: Adapter, clock: str) -> None:
    started = asyncio.get_running_loop().time()
    error = await raised(adapter, silence, **{clock: 0.1})
    assert isinstance(error, LLMTimeoutError)
    assert asyncio.get_running_loop().time() - started < 2


async def test_a_refused_and_a_broken_connection_are_connection_errors(adapter: Adapter) -> None:
    async def hang_up(wire: Wire) -> None:
        await wire.request()
        wire.reset()

    assert isinstance(await raised(adapter, hang_up), LLMConnectionError)
    async with loopback(hang_up) as server:
        pass
    async with adapter.client(f"http://127.0.0.1:{server.port}/v1") as client:
        with pytest.raises(LLMConnectionError):
            await client.chat_completion(ASKED)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(answer(200, b"<html>", {"Content-Type": "text/html"}), id="html"),
        pytest.param(answer(200, b""), id="empty"),
        pytest.param(answer(200, b'{"choices": ['), id="cut"),
        pytest.param(answer(200, b"[1]"), id="list"),
        pytest.param(answer(200, reply(choices=None)), id="null choices"),
        pytest.param(answer(200, reply(choices=[])), id="no choice"),
        pytest.param(
            answer(200, reply(choices=[{"index": 0, "message": None}])), id="null message"
        ),
        pytest.param(
            answer(200, b'{"error": {"code": 429, "message": "slow down"}}'), id="error in 200"
        ),
        pytest.param(raw(response(200, reply())[:-9]), id="half a body"),
    ],
)
async def test_an_unusable_answer_is_an_llm_error(adapter: Adapter, script: Script) -> None:
    error = await raised(adapter, script)
    if adapter.name == "openai_sdk":
        assert isinstance(error, MalformedReplyError | LLMRateLimitError | LLMConnectionError)


async def test_cancelling_the_caller_cancels_the_call_and_leaves_nothing(adapter: Adapter) -> None:
    started = asyncio.Event()

    async def noted_silence(wire: Wire) -> None:
        started.set()
        await silence(wire)

    async with served(adapter, noted_silence) as (client, _):
        before = asyncio.all_tasks()
        call = asyncio.create_task(client.chat_completion(ASKED))
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert {task for task in asyncio.all_tasks() - before if "serve" not in repr(task)} <= {
            call
        }


# --- the selectors


async def test_the_pointer_selector_works_with_each_adapter(adapter: Adapter) -> None:
    async with served(adapter, answer(200, reply(chosen(A), usage=USAGE))) as (client, _):
        selection = await ContextRelevanceSelector(client).select_detailed(
            query="weather", pointers=THREE
        )
    assert [pointer.pointer_id for pointer in selection.pointers] == [A]
    [attempt] = selection.attempts
    assert attempt.usage == LLMUsage(
        prompt_tokens=110, completion_tokens=7, total_tokens=117, cached_tokens=64
    )
