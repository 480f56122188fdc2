"""`ask`: one call ends in a checked reply, an `LLMError` or a cancellation, and is recorded once.

And `ask_with_fallback`, whose two calls share one deadline.
"""

import asyncio
import gc
import json
import time
import traceback
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, ConfigDict

from llm_common.agents import ToolCall
from llm_common.core import (
    Attempt,
    LLMMessage,
    LLMResponse,
    LLMUsage,
    MessageRole,
    answer_text,
    ask,
    extract_json,
)
from llm_common.core.structured import (
    CallOptions,
    Outcome,
    Prompt,
    SupportsChat,
    ask_with_fallback,
    cost_of,
    usage_of,
)
from llm_common.errors import (
    ContextTooLongError,
    CostLimitError,
    LLMAuthError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
    TokenBudgetError,
)
from llm_common.testing import ScriptedClient

MESSAGES = [LLMMessage(role=MessageRole.USER, content="choose")]
SECRET = "sk-canary-0123456789"


class Choice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    ids: list[str]


WHOLE = '{"ids": ["a", "b"]}'
CHOICE = Choice(ids=["a", "b"])


async def asked(
    client: SupportsChat,
    *,
    attempts: list[Attempt] | None = None,
    timeout_s: float = 5,
    read_tool_calls: Callable[[list[dict[str, Any]]], object] | None = None,
) -> Choice:
    return await ask(
        client,
        MESSAGES,
        reply_model=Choice,
        model="m",
        timeout_s=timeout_s,
        attempts=attempts,
        read_tool_calls=read_tool_calls,
    )


def response(content: Any, **fields: Any) -> LLMResponse:
    return LLMResponse(id="x", model="served", content=content, **fields)


def unwanted(_: object) -> object:
    raise AssertionError("there is no tool call to read")


def answering(answer: object) -> Any:
    """Return a double of a client that gives one answer."""
    return AsyncMock(chat_completion=AsyncMock(return_value=answer))


async def failed(
    client: Any, **options: Any
) -> tuple[LLMError, list[tuple[str | None, str | None]]]:
    """Return the error of a call, and what its attempts record of it."""
    attempts: list[Attempt] = []
    with pytest.raises(LLMError) as caught:
        await asked(client, attempts=attempts, **options)
    assert SECRET not in str(caught.value)
    return caught.value, [(attempt.error, attempt.reason) for attempt in attempts]


class Stubborn(ScriptedClient):
    """A client that ignores cancellations until it is released."""

    def __init__(self, late: str | Exception) -> None:
        super().__init__([self.reply])
        self.late = late
        self.entered = asyncio.Event()
        self.released = asyncio.Event()

    async def reply(self, _: list[LLMMessage]) -> str | Exception:
        self.entered.set()
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue
        return self.late


# --- the request


async def test_passes_every_argument_by_keyword_and_returns_the_validated_reply() -> None:
    client = answering(response(WHOLE, finish_reason="stop"))
    assert (
        await ask(client, MESSAGES, reply_model=Choice, model=None, timeout_s=60, temperature=0.3)
        == CHOICE
    )
    client.chat_completion.assert_awaited_once_with(
        messages=MESSAGES, model=None, temperature=0.3, response_format={"type": "json_object"}
    )


async def test_a_client_that_alters_its_messages_does_not_alter_the_callers() -> None:
    messages = list(MESSAGES)

    async def forgetful(*, messages: list[LLMMessage], **_: Any) -> LLMResponse:
        messages.clear()
        return response(WHOLE)

    client = MagicMock(chat_completion=forgetful)
    assert await ask(client, messages, reply_model=Choice, model=None, timeout_s=60) == CHOICE
    assert messages == MESSAGES


SCHEMA = {"name": "choice", "strict": True, "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("preference", "json_schema", "asked_for"),
    [
        (True, SCHEMA, {"type": "json_schema", "json_schema": SCHEMA}),
        (True, None, {"type": "json_object"}),
        (False, SCHEMA, {"type": "json_object"}),
        (1, SCHEMA, {"type": "json_object"}),
        (MagicMock(), SCHEMA, {"type": "json_object"}),
    ],
)
async def test_a_client_that_prefers_schemas_gets_one_s0_31(
    preference: object, json_schema: dict[str, Any] | None, asked_for: dict[str, Any]
) -> None:
    client = ScriptedClient([WHOLE])
    client.prefers_json_schema = preference  # type: ignore[attr-defined]
    options: dict[str, Any] = {
        "reply_model": Choice,
        "model": None,
        "timeout_s": 1,
        "json_schema": json_schema,
    }
    assert await ask(client, MESSAGES, **options) == CHOICE
    assert client.calls[0].options == {"response_format": asked_for}


# --- the reply


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(response(WHOLE), id="text"),
        pytest.param(response(f"```json\n{WHOLE}\n```", finish_reason="stop"), id="F-079"),
        pytest.param(response(f"Sure:\n```\n{WHOLE}\n```\nDone."), id="F-080"),
        pytest.param(response(f"<think>{{}}</think>{WHOLE}"), id="F-085"),
        pytest.param(response(json.dumps(WHOLE)), id="F-096"),
        pytest.param(
            response(
                [{"type": "text", "text": WHOLE[:7]}, {"type": "output_text", "text": WHOLE[7:]}]
            ),
            id="F-075",
        ),
        pytest.param(
            response(
                [
                    {"type": "thinking", "thinking": "{"},
                    {"type": "image_url", "image_url": {"url": "{"}, "text": "{"},
                    {"type": ["text"], "text": "{"},
                    {"type": "text"},
                    {"type": "text", "text": WHOLE},
                ]
            ),
            id="F-076",
        ),
        pytest.param(response(WHOLE, tool_calls=[], refusal=""), id="empty tool calls and refusal"),
        pytest.param(response(WHOLE, tool_calls=[{"id": "1"}]), id="F-077 text beside tool calls"),
        pytest.param(MagicMock(content=WHOLE), id="compat: a double made of mocks"),
        pytest.param(
            MagicMock(content=WHOLE, spec=["content"]), id="compat: a double with content alone"
        ),
    ],
)
async def test_every_shape_of_answer_is_read(answer: object) -> None:
    attempts: list[Attempt] = []
    assert await asked(answering(answer), attempts=attempts, read_tool_calls=unwanted) == CHOICE
    assert [(attempt.error, attempt.reason) for attempt in attempts] == [(None, None)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(response(""), "empty", id="F-073"),
        pytest.param(response(" \n"), "empty", id="F-073 blank"),
        pytest.param(response(None), "empty", id="F-074"),
        pytest.param(
            response([{"type": "image_url", "text": WHOLE}]), "empty", id="F-076 image alone"
        ),
        pytest.param(response([]), "empty", id="F-075 no part"),
        pytest.param(
            response(None, tool_calls=[{"id": "1"}]), "empty", id="F-077 unwanted tool calls"
        ),
        pytest.param(
            response(None, function_call={"name": "t"}), "empty", id="F-078 unwanted function call"
        ),
        pytest.param(response(f'{WHOLE} {{"ids": []}}'), "ambiguous", id="F-083"),
        pytest.param(response(WHOLE[:-1]), "truncated", id="F-087"),
        pytest.param(response(WHOLE, finish_reason="length"), "cut", id="F-088"),
        pytest.param(
            response(WHOLE, finish_reason="MAX_TOKENS"), "cut", id="F-088 by another name"
        ),
        pytest.param(response(WHOLE, finish_reason="network_error"), "cut", id="F-088 z.ai"),
        pytest.param(response(WHOLE, finish_reason="content_filter"), "content_filter", id="F-089"),
        pytest.param(response(WHOLE, finish_reason="sensitive"), "content_filter", id="F-089 z.ai"),
        pytest.param(response(WHOLE, refusal="no"), "refusal", id="F-089 refusal field"),
        pytest.param(
            response(WHOLE, finish_reason="new_reason"),
            "unknown_finish",
            id="F-088 a reason nobody knows",
        ),
        pytest.param(response("I cannot do that."), "no_json", id="F-089 refusal in words"),
        pytest.param(response("x" * 5_000_000), "too_large", id="F-093"),
        pytest.param(response("{}"), "schema", id="F-097 nothing"),
        pytest.param(response('{"pointers": []}'), "schema", id="F-097 wrong key"),
        pytest.param(response('{"ids": null}'), "schema", id="F-097 null value"),
        pytest.param(response('{"ids": [1]}'), "schema", id="wrong type"),
        pytest.param({"content": WHOLE}, "empty", id="a dict for an answer"),
        pytest.param(None, "empty", id="no answer at all"),
        pytest.param(MagicMock(), "empty", id="compat: a mock that was told nothing"),
    ],
)
async def test_a_reply_that_is_not_one_whole_valid_answer_is_malformed(
    answer: object, reason: str
) -> None:
    """Check that `ask` passes on the reasons of `extract_json`, whose own table has them all."""
    error, recorded = await failed(answering(answer))
    assert isinstance(error, MalformedReplyError)
    assert error.reason == reason
    assert recorded == [("malformed", reason)]


CALL = {"type": "function", "function": {"name": "choose", "arguments": WHOLE}}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"tool_calls": [CALL]}, id="F-077"),
        pytest.param({"function_call": CALL["function"]}, id="F-078"),
        pytest.param(
            {"tool_calls": [CALL], "finish_reason": "tool_calls"}, id="F-077 finish reason"
        ),
    ],
)
async def test_native_tool_calls_replace_a_missing_text(fields: dict[str, Any]) -> None:
    def arguments(calls: list[dict[str, Any]]) -> object:
        return extract_json(calls[0]["function"]["arguments"])

    assert (
        await asked(ScriptedClient([response(None, **fields)]), read_tool_calls=arguments) == CHOICE
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param(
            {"tool_calls": [CALL], "finish_reason": "length"}, "cut", id="F-088 tool calls"
        ),
        pytest.param({"tool_calls": [{}]}, "truncated", id="F-077 arguments do not parse"),
    ],
)
async def test_tool_calls_that_are_not_whole_are_malformed(
    fields: dict[str, Any], reason: str
) -> None:
    client = ScriptedClient([response(None, **fields)])
    _, recorded = await failed(client, read_tool_calls=lambda _: extract_json('{"ids": ['))
    assert recorded == [("malformed", reason)]


async def test_tool_calls_of_unknown_objects_count_as_absent() -> None:
    client = answering(MagicMock(content=None, tool_calls=[CALL, object()]))
    _, recorded = await failed(client, read_tool_calls=unwanted)
    assert recorded == [("malformed", "empty")]


async def test_a_schema_error_names_fields_and_never_values() -> None:
    reply = json.dumps({"ids": ["a", {"token": SECRET}], f"{SECRET} is my key": 1})
    error, _ = await failed(ScriptedClient([reply]))
    assert isinstance(error, MalformedReplyError)
    assert str(error) == (
        "model m: The reply does not fit Choice: ids.1 (string_type), ? (extra_forbidden); ask "
        "again, or use another "
        "model"
    )
    assert SECRET not in "".join(traceback.format_exception(error))
    assert error.reply == reply


async def test_a_schema_error_stays_short_f_098() -> None:
    error, _ = await failed(ScriptedClient([json.dumps({"ids": list(range(10_000))})]))
    assert len(str(error)) < 200


# --- faults of a client


@pytest.mark.parametrize(
    ("raised", "code", "reason"),
    [
        (LLMTimeoutError("late", timeout_s=1), "timeout", None),
        (LLMConnectionError("gone"), "connection", None),
        (LLMStatusError("broken", status=500), "status", "500"),
        (LLMAuthError("no", status=401), "auth", "401"),
        (LLMRateLimitError("slow", status=429), "rate_limit", "429"),
        (ModelNotFoundError("who", status=404), "model_not_found", "404"),
        (ContextTooLongError("long", status=400), "too_long", "400"),
        (CostLimitError("dear", spent_usd=1, limit_usd=1), "cost_limit", None),
        (MalformedReplyError("odd", reason="empty"), "malformed", "empty"),
        (LLMError("else"), "client", None),
    ],
)
async def test_our_own_errors_pass_unchanged_and_have_stable_codes(
    raised: LLMError, code: str, reason: str | None
) -> None:
    assert await failed(ScriptedClient([raised])) == (raised, [(code, reason)])


@pytest.mark.parametrize(
    "raised",
    [
        Exception(SECRET),
        ValueError(SECRET),
        StopAsyncIteration(SECRET),
        TokenBudgetError(SECRET, needed_tokens=2, limit_tokens=1),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_anything_else_that_a_client_raises_becomes_an_llm_error_without_its_text(
    raised: Exception,
) -> None:
    error, recorded = await failed(AsyncMock(chat_completion=AsyncMock(side_effect=raised)))
    assert type(error) is LLMError
    assert error.__cause__ is raised
    assert type(raised).__name__ in str(error)
    assert recorded == [("client", type(raised).__name__)]


async def test_a_timeout_inside_the_client_is_a_timeout() -> None:
    error, _ = await failed(ScriptedClient([TimeoutError()]))
    assert isinstance(error, LLMTimeoutError)


async def test_a_response_that_raises_is_the_clients_fault() -> None:
    class Answer:
        @property
        def content(self) -> str:
            raise KeyError(SECRET)

    error, _ = await failed(answering(Answer()))
    assert "KeyError" in str(error)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        pytest.param(
            MagicMock(return_value=response(WHOLE)),
            "MagicMock.chat_completion is not async",
            id="not async",
        ),
        pytest.param(None, "MagicMock raised TypeError", id="absent"),
    ],
)
async def test_a_client_without_an_async_method_is_an_error(method: object, text: str) -> None:
    with pytest.raises(LLMError, match=text):
        await asked(MagicMock(chat_completion=method))


# --- time and cancellation


async def test_a_call_that_is_too_late_is_cancelled_f_133() -> None:
    async def never(_: list[LLMMessage]) -> str:
        await asyncio.Event().wait()
        return WHOLE

    _, recorded = await failed(ScriptedClient([never]), timeout_s=0.05)
    assert recorded == [("timeout", None)]
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("late", [WHOLE, ValueError("late")], ids=["F-133 returns", "F-133 raises"])
async def test_an_answer_after_the_timeout_is_discarded(late: str | Exception) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    client = Stubborn(late)
    started = time.perf_counter()
    error, recorded = await failed(client, timeout_s=0.02)
    assert time.perf_counter() - started < 10
    assert isinstance(error, LLMTimeoutError)
    assert (error.timeout_s, recorded) == (0.02, [("timeout", None)])
    client.released.set()
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert complaints == []


async def test_cancelling_the_caller_does_not_wait_for_a_client_that_ignores_it_f_132() -> None:
    client, attempts = Stubborn(WHOLE), list[Attempt]()
    caller = asyncio.create_task(asked(client, attempts=attempts))
    await client.entered.wait()
    caller.cancel()
    await asyncio.wait({caller}, timeout=60)
    assert caller.cancelled()
    assert [(attempt.error, attempt.reason) for attempt in attempts] == [("client", "cancelled")]
    client.released.set()


@pytest.mark.parametrize("raised", [asyncio.CancelledError, KeyboardInterrupt])
def test_a_cancellation_and_an_interrupt_of_the_client_pass_f_132(
    raised: type[BaseException],
) -> None:
    attempts: list[Attempt] = []
    with pytest.raises(raised):
        asyncio.run(asked(ScriptedClient([raised()]), attempts=attempts))
    assert len(attempts) == 1


# --- the record


async def test_an_attempt_records_the_fields_of_the_answer() -> None:
    usage = LLMUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5)
    attempts: list[Attempt] = []
    client = ScriptedClient(
        [response(WHOLE, usage=usage, cost_usd=0.25), response("no", usage=usage), ValueError()]
    )
    await asked(client, attempts=attempts)
    for _ in range(2):
        with pytest.raises(LLMError):
            await asked(client, attempts=attempts)
    assert [(a.model, a.usage, a.cost_usd, a.error) for a in attempts] == [
        ("served", usage, 0.25, None),
        ("served", usage, None, "malformed"),
        ("m", None, None, "client"),
    ]


def test_a_total_is_unknown_if_any_attempt_is() -> None:
    usage = LLMUsage(prompt_tokens=3, completion_tokens=2, total_tokens=5, cached_tokens=1)
    paid, free = Attempt("m", 1, usage, 0.25), Attempt("m", 1)
    assert usage_of([paid, free, paid]) == usage + usage
    assert usage_of([]) == LLMUsage()
    assert (cost_of([paid, paid]), cost_of([paid, free]), cost_of([])) == (0.5, None, 0)


async def test_values_of_a_mock_are_not_recorded() -> None:
    attempts: list[Attempt] = []
    await asked(answering(MagicMock(content=WHOLE)), attempts=attempts)
    assert attempts == [Attempt(model="m", latency_ms=attempts[0].latency_ms)]


async def test_a_span_names_model_and_error_without_any_text(
    exported: InMemorySpanExporter,
) -> None:
    await asked(ScriptedClient([WHOLE]))
    with pytest.raises(MalformedReplyError):
        await asked(ScriptedClient([f"choose {SECRET}"]))
    good, bad = exported.get_finished_spans()
    assert dict(good.attributes or {}) == {"llm_common.model": "m"}
    assert dict(bad.attributes or {}) == {
        "llm_common.model": "m",
        "llm_common.error.code": "malformed",
        "error.type": "MalformedReplyError",
    }
    assert {name for event in bad.events for name in event.attributes or {}} == {"exception.type"}
    assert SECRET not in bad.to_json()


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("Snow.", "Snow."),
        ("<think>Oslo</think>\nSnow.", "Snow."),
        (" <THINKING lang='en'>a</THINKING> Snow.", "Snow."),
        ("Use <think> for notes.", "Use <think> for notes."),
        (
            [
                {"type": "text", "text": "Sn"},
                {"type": "image_url"},
                {"type": "text", "text": "ow."},
            ],
            "Snow.",
        ),
    ],
    ids=["plain", "thinking", "another-tag", "tag-in-prose", "parts"],
)
async def test_a_text_answer_is_the_text_after_the_thinking(
    reply: str | list[dict[str, Any]], text: str
) -> None:
    attempts: list[Attempt] = []
    client = ScriptedClient([LLMResponse(id="1", model="m", content=reply, finish_reason="stop")])
    assert await answer_text(client, MESSAGES, model="m", timeout_s=60, attempts=attempts) == text
    assert [attempt.error for attempt in attempts] == [None]
    assert client.calls[0].options == {}


@pytest.mark.parametrize(
    ("reply", "finish_reason", "reason"),
    [("", "stop", "empty"), ("<think>a", "stop", "unclosed_thinking"), ("Sno", "length", "cut")],
    ids=["empty", "only-thinking", "cut"],
)
async def test_a_text_answer_that_is_not_whole_is_a_failure(
    reply: str, finish_reason: str, reason: str
) -> None:
    client = ScriptedClient(
        [LLMResponse(id="1", model="m", content=reply, finish_reason=finish_reason)]
    )
    with pytest.raises(MalformedReplyError) as caught:
        await answer_text(client, MESSAGES, model=None, timeout_s=60, max_tokens=7)
    assert caught.value.reason == reason
    assert client.calls[0].max_tokens == 7


UNANSWERED: Prompt[ToolCall, None] = Prompt("s", "u", ToolCall, lambda _: pytest.fail("no reply"))


async def hang(_: list[LLMMessage]) -> str:
    await asyncio.sleep(30)
    return ""


async def asked_twice(
    client: ScriptedClient, *, seconds: float, timeout_s: float = 5.0
) -> Outcome[None]:
    options = CallOptions(model="one", fallback_model="two", timeout_s=timeout_s)
    ends_at = asyncio.get_running_loop().time() + seconds
    return await ask_with_fallback(client, UNANSWERED, options, ends_at=ends_at)


@pytest.mark.parametrize("row", ["S2-11", "S0-38"])
async def test_attempts_share_one_deadline_and_each_has_its_own(row: str) -> None:
    # Long enough that a busy machine cannot use up the time of the second attempt.
    started = time.perf_counter()
    outcome = await asked_twice(ScriptedClient([hang, hang]), seconds=1.2, timeout_s=0.8)
    assert 1.1 < time.perf_counter() - started < 10
    assert [attempt.error for attempt in outcome.attempts] == ["timeout", "timeout"]
    assert outcome.attempts[0].latency_ms >= 790
    assert outcome.attempts[1].latency_ms < outcome.attempts[0].latency_ms


@pytest.mark.parametrize(("seconds", "calls"), [(0.05, 1), (-1, 0)])
async def test_after_the_deadline_there_is_no_further_call(seconds: float, calls: int) -> None:
    client = ScriptedClient([hang])
    outcome = await asked_twice(client, seconds=seconds)
    assert isinstance(outcome.error, LLMTimeoutError)
    assert outcome.error.model == "one"
    assert len(client.calls) == len(outcome.attempts) == calls
