"""One question to a model, answered by a value of the type that was asked for, or by an `LLMError`.

Contains all faults of a third-party client: the outcome is a validated reply, an `LLMError` or a cancellation.
"""

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llm_common._telemetry import span
from llm_common.core.external_errors import external_errors
from llm_common.core.extraction import extract_json, read_text_calls, without_thinking
from llm_common.core.models import LLMMessage, LLMUsage
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
)

__all__ = [
    "Attempt",
    "ProviderResponse",
    "ReadToolCalls",
    "SupportsChat",
    "answer_text",
    "ask",
    "cost_of",
    "extract_json",
    "read_answer",
    "usage_of",
]

ValueT = TypeVar("ValueT")

_TEXT_PARTS: Final = ("text", "output_text")

# How an answer that is whole ends, as OpenAI, Anthropic, text-generation-inference and gateways before them say it.
_WHOLE: Final = frozenset(
    {"", "stop", "tool_calls", "function_call", "tool_use", "end_turn", "stop_sequence", "eos", "eos_token"}
    | {"complete", "completed", "done", "finished"}
)
# How one ends that is not: OpenAI, then z.ai, Anthropic, Mistral, DeepSeek, vLLM and Gemini.
_UNFINISHED: Final = {
    "length": "cut",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "model_context_window_exceeded": "cut",
    "network_error": "cut",
    "error": "cut",
    "max_tokens": "cut",
    "refusal": "refusal",
    "model_length": "cut",
    "insufficient_system_resource": "cut",
    "abort": "cut",
    "safety": "content_filter",
    "recitation": "content_filter",
    "prohibited_content": "content_filter",
    "guardrail_intervened": "content_filter",
}


@dataclass(frozen=True, slots=True)
class ProviderResponse:
    """The parts of a provider's response that matter; a value of another type counts as absent."""

    content: str = ""
    finish_reason: str | None = None
    refusal: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    model: str | None = None
    usage: LLMUsage | None = None
    cost_usd: float | None = None

    @property
    def unfinished(self) -> str | None:
        """Why the answer is not the model's whole one: `cut`, `content_filter`, `refusal`, or `unknown_finish`.

        Providers invent reasons at will, so one that is not known to mean a whole answer counts as none.
        """
        if self.refusal:
            return "refusal"
        reason = (self.finish_reason or "").lower()
        return None if reason in _WHOLE else _UNFINISHED.get(reason, "unknown_finish")


def read_answer(answer: object) -> ProviderResponse:
    """The parts of an answer that matter; may raise whatever the attributes of a third-party object raise."""
    return ProviderResponse(
        content=_text_of(getattr(answer, "content", None)),
        finish_reason=_typed(answer, "finish_reason", str),
        refusal=_typed(answer, "refusal", str),
        tool_calls=_tool_calls_of(answer),
        model=_typed(answer, "model", str),
        usage=_typed(answer, "usage", LLMUsage),
        cost_usd=_typed(answer, "cost_usd", float),
    )


def _typed(answer: object, name: str, kind: type[ValueT]) -> ValueT | None:
    value = getattr(answer, name, None)
    return value if isinstance(value, kind) else None


def _text_of(content: object) -> str:
    """The text of a reply that is a string or a list of parts; images and other parts are left out."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") in _TEXT_PARTS]
    return "".join(text for text in texts if isinstance(text, str))


def _tool_calls_of(answer: object) -> tuple[dict[str, Any], ...]:
    """Native tool calls in today's shape, also where the answer has the older `function_call`; all or none."""
    calls = _typed(answer, "tool_calls", list) or []
    function = _typed(answer, "function_call", dict)
    if not calls and function:
        calls = [{"type": "function", "function": function}]
    return tuple(calls) if all(isinstance(call, dict) for call in calls) else ()


ModelT = TypeVar("ModelT", bound=BaseModel)
ReadToolCalls = Callable[[list[dict[str, Any]]], object]

# The first class that fits names the error, so subclasses stand before their base.
_CODES: Final[tuple[tuple[type[LLMError], str], ...]] = (
    (LLMTimeoutError, "timeout"),
    (LLMConnectionError, "connection"),
    (LLMAuthError, "auth"),
    (LLMRateLimitError, "rate_limit"),
    (ModelNotFoundError, "model_not_found"),
    (ContextTooLongError, "too_long"),
    (LLMStatusError, "status"),
    (MalformedReplyError, "malformed"),
    (CostLimitError, "cost_limit"),
    (LLMError, "client"),
)

_FAULTS: Final = {
    "cut": "The model was stopped before its answer was whole; allow more tokens, or ask for less",
    "content_filter": "The endpoint withheld the answer; rephrase the request, or use another model",
    "refusal": "The model refused to answer; rephrase the request, or use another model",
    "unknown_finish": "The endpoint ended the answer for a reason that is not known to mean a whole one; ask again",
}
_MAX_PLACES: Final = 5
_FIELD_NAME: Final = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII)


class SupportsChat(Protocol):
    """What `ask` needs of a client; every `LLMClient` has it, and so has anything with this one method."""

    def chat_completion(
        self,
        *,
        messages: list[LLMMessage],
        model: str | None,
        temperature: float,
        response_format: dict[str, Any],
    ) -> Awaitable[object]:
        """An answer whose `content` is the reply and whose `finish_reason` says whether it is whole."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one model call took and what came of it; holds no text of the prompt or the reply.

    Attributes:
        model: The model that answered as the endpoint names it, else the one that was asked for.
        latency_ms: Wall time in milliseconds.
        usage: Tokens, where the endpoint counted them.
        cost_usd: Dollars, where the client knows them.
        error: None for success, else `timeout`, `connection`, `status`, `auth`, `rate_limit`, `model_not_found`,
            `too_long`, `cost_limit`, `malformed` or `client` (raised what no client of ours raises, or was cancelled).
        reason: A detail of the error: the reason code of a malformed reply, an HTTP status, or a class name.
    """

    model: str | None
    latency_ms: int
    usage: LLMUsage | None = None
    cost_usd: float | None = None
    error: str | None = None
    reason: str | None = None


def usage_of(attempts: Iterable[Attempt]) -> LLMUsage:
    """Tokens of all attempts together; one whose endpoint did not count them adds nothing."""
    return sum((attempt.usage for attempt in attempts if attempt.usage is not None), LLMUsage())


def cost_of(attempts: Iterable[Attempt]) -> float | None:
    """Dollars of all attempts together, 0 for none; None as soon as one attempt's price is not known."""
    costs = [attempt.cost_usd for attempt in attempts]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


async def ask(
    client: SupportsChat,
    messages: list[LLMMessage],
    *,
    reply_model: type[ModelT],
    model: str | None,
    timeout_s: float,
    temperature: float = 0.0,
    attempts: list[Attempt] | None = None,
    read_tool_calls: ReadToolCalls | None = None,
    json_schema: Mapping[str, Any] | None = None,
) -> ModelT:
    """The model's reply as a `reply_model`.

    One model call, no retry. The deadline holds whatever the client does: an answer that comes later is discarded,
    and a client that ignores its cancellation is left behind. Cancelling the caller cancels the call at once. Safe to
    run many times at once.

    Args:
        client: What answers; its `chat_completion` gets every argument by keyword.
        messages: The conversation, oldest first; the client gets a list of its own.
        reply_model: What the JSON object of the reply has to validate as.
        model: Name at the endpoint; None takes the client's default.
        timeout_s: Seconds until the call counts as failed.
        temperature: Sampling temperature; 0 for the choices that ought to repeat.
        attempts: Gets exactly one record of this call, also when it fails or is cancelled.
        read_tool_calls: Makes the object to validate out of tool calls, where a model sends those and no text, or
            writes them as text (`read_text_calls`); raises MalformedReplyError for calls that it cannot read. None:
            native calls alone count as an empty reply.
        json_schema: `{"name", "strict", "schema"}` as the API takes it, for a client whose `prefers_json_schema` is
            True; any other is asked for a JSON object, and so is every client without it.

    Returns:
        The validated reply of a model that finished its answer.

    Raises:
        LLMTimeoutError: No answer in time.
        MalformedReplyError: No single, whole, valid reply. `.reason` is one of those of `extract_json`, or `cut`,
            `content_filter`, `refusal`, `unknown_finish`, or `schema`.
        LLMError: Its other classes as the client raised them; itself for anything else that the client raised.
    """
    return await _recorded(
        client,
        messages,
        lambda answer: _read(answer, reply_model, read_tool_calls),
        model=model,
        timeout_s=timeout_s,
        attempts=attempts,
        options={"temperature": temperature},
        json_schema=json_schema or {},
    )


async def answer_text(
    client: SupportsChat,
    messages: list[LLMMessage],
    *,
    model: str | None,
    timeout_s: float,
    max_tokens: int | None = None,
    attempts: list[Attempt] | None = None,
) -> str:
    """The model's whole answer as text, without its thinking.

    Keeps the promises of `ask`: one call, no retry, a deadline that holds, whatever the client does.

    Args:
        client: What answers.
        messages: The conversation, oldest first.
        model: Name at the endpoint; None takes the client's default.
        timeout_s: Seconds until the call counts as failed.
        max_tokens: Limit of the answer; None takes the client's default.
        attempts: Gets exactly one record of this call.

    Raises:
        LLMTimeoutError: No answer in time.
        MalformedReplyError: An answer that is empty, cut, withheld or refused, or ends before its thinking does.
        LLMError: As from `ask`.
    """
    return await _recorded(
        client,
        messages,
        _read_text,
        model=model,
        timeout_s=timeout_s,
        attempts=attempts,
        options={} if max_tokens is None else {"max_tokens": max_tokens},
    )


async def _recorded(
    client: SupportsChat,
    messages: list[LLMMessage],
    read: Callable[[ProviderResponse], ValueT],
    *,
    model: str | None,
    timeout_s: float,
    attempts: list[Attempt] | None,
    options: dict[str, Any],
    json_schema: Mapping[str, Any] | None = None,
) -> ValueT:
    """What `read` makes of the client's answer; the call leaves one record, however it ends.

    None for `json_schema` asks for text; else JSON is asked for, by the schema if it is not empty (see `ask`).
    """
    answer = ProviderResponse(model=model)
    error: str | None = "client"
    reason: str | None = "cancelled"
    started = time.perf_counter()
    with span("llm_common.ask", model=model or "default") as current:
        try:
            arguments = {"messages": list(messages), "model": model, **options}
            answer = await _within(timeout_s, _call(client, timeout_s, arguments, json_schema))
            value = read(answer)
            error = reason = None
        except LLMError as exc:
            error, reason = _code(exc), _detail(exc)
            if isinstance(exc.usage, LLMUsage):
                answer = replace(answer, usage=exc.usage, cost_usd=exc.cost_usd)
            current.set_attribute("error.code", error)
            raise
        finally:
            if attempts is not None:
                latency_ms = round((time.perf_counter() - started) * 1000)
                attempts.append(
                    Attempt(answer.model or model, latency_ms, answer.usage, answer.cost_usd, error, reason)
                )
    return value


async def _within(timeout_s: float, call: Coroutine[Any, Any, ProviderResponse]) -> ProviderResponse:
    """The call's answer, waited for from outside, since a client may swallow its cancellation."""
    task = asyncio.create_task(call)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        finished = task.done()
        task.cancel()
        task.add_done_callback(_look_at_its_error)
    if not finished:
        raise LLMTimeoutError(
            f"No answer within {timeout_s:g} s; raise the timeout, or use a faster model", timeout_s=timeout_s
        )
    return task.result()


def _look_at_its_error(task: asyncio.Task[ProviderResponse]) -> None:
    """Keeps asyncio from logging an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


async def _call(
    client: SupportsChat, timeout_s: float, arguments: dict[str, Any], json_schema: Mapping[str, Any] | None
) -> ProviderResponse:
    """All contact with the third-party client and its answer; only an LLMError or a cancellation leaves."""
    with external_errors(type(client).__name__, timeout_s=timeout_s):
        if json_schema is not None:
            arguments["response_format"] = _response_format(client, json_schema)
        pending = client.chat_completion(**arguments)
        if not inspect.isawaitable(pending):
            raise LLMError(f"{type(client).__name__}.chat_completion is not async; make it an `async def`")
        return read_answer(await pending)


def _response_format(client: object, json_schema: Mapping[str, Any]) -> dict[str, Any]:
    if json_schema and getattr(client, "prefers_json_schema", False) is True:
        return {"type": "json_schema", "json_schema": dict(json_schema)}
    return {"type": "json_object"}


def _read_text(answer: ProviderResponse) -> str:
    _refuse_unfinished(answer)
    return without_thinking(answer.content)


def _refuse_unfinished(answer: ProviderResponse) -> None:
    reason = answer.unfinished
    if reason:
        raise MalformedReplyError(_FAULTS[reason], reason=reason, reply=answer.content)


def _read(answer: ProviderResponse, reply_model: type[ModelT], read_tool_calls: ReadToolCalls | None) -> ModelT:
    _refuse_unfinished(answer)
    calls: list[dict[str, Any]] | None = None
    if read_tool_calls:
        calls = read_text_calls(answer.content) if answer.content.strip() else list(answer.tool_calls)
    value = read_tool_calls(calls) if read_tool_calls and calls else extract_json(answer.content)
    try:
        return reply_model.model_validate(value)
    except ValidationError as exc:
        problems = exc.errors(include_url=False, include_context=False, include_input=False)
    # Outside the handler, since a chained ValidationError would quote the reply in every traceback.
    places = ", ".join(_place(problem) for problem in problems[:_MAX_PLACES])
    raise MalformedReplyError(
        f"The reply does not fit {reply_model.__name__}: {places}; ask again, or use another model",
        reason="schema",
        reply=answer.content,
    )


def _place(problem: ErrorDetails) -> str:
    """Where and how a value does not fit; a name that cannot be a field's is the model's text and is not shown."""
    steps = [str(step) if isinstance(step, int) or _FIELD_NAME.fullmatch(step) else "?" for step in problem["loc"]]
    return f"{'.'.join(steps) or 'the whole'} ({problem['type']})"


def _code(error: LLMError) -> str:
    return next(code for kind, code in _CODES if isinstance(error, kind))


def _detail(error: LLMError) -> str | None:
    if isinstance(error, MalformedReplyError):
        return error.reason
    if isinstance(error, LLMStatusError):
        return str(error.status)
    return type(error.__cause__).__name__ if error.__cause__ else None
