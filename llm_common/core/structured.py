"""One question to a model, answered by a typed value or by an `LLMError`.

Contains all faults of a third-party client: the outcome is a validated reply, an `LLMError` or a
cancellation.
"""

import asyncio
import inspect
import re
import time
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llm_common._telemetry import count_inference, record, span
from llm_common.core.external_errors import external_errors
from llm_common.core.extraction import AnswerFilter, extract_json, read_text_calls, without_thinking
from llm_common.core.http.wire import as_messages
from llm_common.core.models import LLMDelta, LLMMessage, LLMUsage
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

ValueT = TypeVar("ValueT")
AnsweredT = TypeVar("AnsweredT", bound="Answered")
ModelT = TypeVar("ModelT", bound=BaseModel)
ReadToolCalls = Callable[[list[dict[str, Any]]], object]


class SupportsChat(Protocol):
    """What `ask` needs of a client: this one method, which every `LLMClient` has."""

    def chat_completion(
        self,
        *,
        messages: list[LLMMessage],
        model: str | None,
        temperature: float,
        response_format: dict[str, Any],
    ) -> Awaitable[object]:
        """A response with the reply as `content`, and a `finish_reason`."""


class SupportsStream(Protocol):
    """What `answer_turn` needs of a client whose answers it passes on as they are written."""

    def stream(
        self, *, messages: list[LLMMessage], model: str | None, **options: Any
    ) -> AsyncGenerator[LLMDelta, None]:
        """Deltas with text, then one with the whole response."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Cost and outcome of one model call, without text of prompt or reply.

    Attributes:
        model: The model that answered as the endpoint names it, else the one that was asked for.
        latency_ms: Wall time in milliseconds.
        usage: Tokens, where the endpoint counted them.
        cost_usd: Dollars, where the client knows them.
        error: None for success, else `timeout`, `connection`, `status`, `auth`, `rate_limit`,
            `model_not_found`, `too_long`, `cost_limit`, `malformed` or `client` (any other
            exception of the client, or a cancellation).
        reason: A detail of the error: the reason code of a malformed reply, an HTTP status, or a
            class name.
    """

    model: str | None
    latency_ms: int
    usage: LLMUsage | None = None
    cost_usd: float | None = None
    error: str | None = None
    reason: str | None = None


def usage_of(attempts: Iterable[Attempt]) -> LLMUsage:
    """Tokens of all attempts together; an uncounted one adds nothing."""
    return sum((attempt.usage for attempt in attempts if attempt.usage is not None), LLMUsage())


def cost_of(attempts: Iterable[Attempt]) -> float | None:
    """Dollars of all attempts, 0 for none; None if the price of one is unknown."""
    costs = [attempt.cost_usd for attempt in attempts]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


async def ask(
    client: SupportsChat,
    messages: Sequence[LLMMessage | Mapping[str, Any]],
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

    One model call, no retry. The deadline always holds: a later answer is discarded, and a client
    that ignores its cancellation is abandoned. Cancelling the caller cancels the call at once. Safe
    to run concurrently.

    Args:
        client: What answers; its `chat_completion` gets every argument by keyword.
        messages: The conversation, oldest first, of messages or of dicts of the chat completions
            API; the client gets a list of messages.
        reply_model: What the JSON object of the reply must validate as.
        model: Name at the endpoint; None takes the client's default.
        timeout_s: Seconds until the call counts as failed.
        temperature: Sampling temperature; 0 for choices that should repeat.
        attempts: Gets exactly one record of this call, also if it fails or is cancelled.
        read_tool_calls: Makes the object to validate from tool calls, for a model that sends those
            instead of text, or writes them as text (`read_text_calls`); raises MalformedReplyError
            for calls that it cannot read. None: native calls alone count as an empty reply.
        json_schema: `{"name", "strict", "schema"}` as the API takes it, for a client whose
            `prefers_json_schema` is True; without either, the client is asked for a JSON object.

    Returns:
        The validated reply of a model that finished its answer.

    Raises:
        LLMTimeoutError: No answer in time.
        MalformedReplyError: No single, whole, valid reply. `.reason` is one of those of
            `extract_json`, or `cut`, `content_filter`, `refusal`, `unknown_finish`, or `schema`.
        LLMError: Its other classes as the client raised them; itself for any other exception of the
            client.
        TypeError: `messages` is not a list of messages.
    """

    def read(response: _ProviderResponse) -> ModelT:
        response.check_whole()
        calls: list[dict[str, Any]] | None = [*response.tool_calls]
        if response.content.strip():
            calls = read_text_calls(response.content)
        if read_tool_calls and calls:
            value = read_tool_calls(calls)
        else:
            value = extract_json(response.content)
        return _validated(value, reply_model, reply=response.content)

    arguments = {"messages": as_messages(messages), "model": model, "temperature": temperature}
    call = _call(client, timeout_s, arguments, json_schema or {})
    sent = arguments["messages"]
    return await recorded(
        client, call, read, prompt=sent, model=model, timeout_s=timeout_s, attempts=attempts
    )


async def answer_text(
    client: SupportsChat,
    messages: Sequence[LLMMessage | Mapping[str, Any]],
    *,
    model: str | None,
    timeout_s: float,
    max_tokens: int | None = None,
    attempts: list[Attempt] | None = None,
) -> str:
    """The model's whole answer as text, without its thinking.

    One call under the rules of `ask`: no retry, and a deadline that always holds.

    Args:
        client: What answers.
        messages: As for `ask`.
        model: Name at the endpoint; None takes the client's default.
        timeout_s: Seconds until the call counts as failed.
        max_tokens: Limit of the answer; None takes the client's default.
        attempts: Gets exactly one record of this call.

    Raises:
        LLMTimeoutError: No answer in time.
        MalformedReplyError: An answer that is empty, cut, withheld or refused, or ends before its
            thinking does.
        LLMError: As from `ask`.
        TypeError: `messages` is not a list of messages.
    """
    turn = await answer_turn(
        client, messages, model=model, timeout_s=timeout_s, max_tokens=max_tokens, attempts=attempts
    )
    return turn.text


@dataclass(frozen=True, slots=True)
class AnswerTurn:
    """A model's turn: a text without thinking, and the tool calls that it makes.

    Attributes:
        text: The answer; with calls a remark, or "".
        calls: As the API gives them, or `{"name", "arguments"}` where the model wrote them as text.
    """

    text: str
    calls: tuple[dict[str, Any], ...] = ()


async def answer_turn(
    client: SupportsChat,
    messages: Sequence[LLMMessage | Mapping[str, Any]],
    *,
    model: str | None,
    timeout_s: float,
    max_tokens: int | None = None,
    attempts: list[Attempt] | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    on_text: Callable[[str], None] | None = None,
) -> AnswerTurn:
    """The model's next turn: an answer, or calls of the offered tools.

    One call under the rules of `ask`: no retry, and a deadline that always holds.

    Args:
        client: What answers.
        messages: As for `ask`.
        model: As for `ask`.
        timeout_s: As for `ask`.
        max_tokens: Limit of the turn; None takes the client's default.
        attempts: As for `ask`.
        tools: Definitions in the API's form; the client gets them as `tools`, if there are any.
        on_text: Called with the text as it comes, without thinking, if the client has an async
            generator `stream`. The pieces, joined, are the turn's text, unless the call fails.

    Raises:
        LLMTimeoutError: As from `answer_text`, as are the others.
        MalformedReplyError: Also tool calls that the model wrote as text and did not finish.
        LLMError: As from `ask`.
        TypeError: `messages` is not a list of messages.
    """

    def read(response: _ProviderResponse) -> AnswerTurn:
        response.check_whole()
        if tools and response.tool_calls:  # a remark may be nothing but thinking
            return AnswerTurn(AnswerFilter().feed(response.content), response.tool_calls)
        if tools and (written := read_text_calls(response.content)):
            return AnswerTurn("", tuple(written))
        return AnswerTurn(without_thinking(response.content))

    arguments: dict[str, Any] = {"messages": as_messages(messages), "model": model}
    if tools:
        arguments["tools"] = [dict(tool) for tool in tools]
    if max_tokens is not None:
        arguments["max_tokens"] = max_tokens
    if on_text is not None and inspect.isasyncgenfunction(
        inspect.getattr_static(client, "stream", None)
    ):
        call = _streamed_call(cast("SupportsStream", client), timeout_s, arguments, on_text)
    else:
        call = _call(client, timeout_s, arguments, None)
    sent = [*arguments.get("tools", ()), *arguments["messages"]]
    return await recorded(
        client, call, read, prompt=sent, model=model, timeout_s=timeout_s, attempts=attempts
    )


async def recorded(
    client: object,
    call: Coroutine[Any, Any, AnsweredT],
    read: Callable[[AnsweredT], ValueT],
    *,
    prompt: object,
    model: str | None,
    timeout_s: float,
    attempts: list[Attempt] | None,
) -> ValueT:
    """Return what `read` makes of a call's answer, for any kind of model, by the rules of `ask`.

    Args:
        client: What answers; named in errors by its `default_model` and `host`.
        call: All contact with it; raises only LLMError.
        read: Checks the answer; raises only LLMError.
        prompt: What is sent, for the record of the run.
        model: As for `ask`.
        timeout_s: As for `ask`.
        attempts: Gets exactly one record, however the call ends.

    Raises:
        LLMError: As from `ask`.
    """
    answered_by, usage, cost_usd = model, None, None
    answer: AnsweredT | None = None
    error: str | None = "client"
    reason: str | None = "cancelled"
    started = time.perf_counter()
    count_inference()
    with span("llm_common.ask", {"llm_common.model": model or "default"}) as current:
        try:
            answer = await _within(timeout_s, call)
            answered_by, usage, cost_usd = answer.model or model, answer.usage, answer.cost_usd
            value = read(answer)
            error = reason = None
        except LLMError as exc:
            error, reason = (
                next(code for kind, code in _CODES if isinstance(exc, kind)),
                _detail(exc),
            )
            if isinstance(exc.usage, LLMUsage):
                usage, cost_usd = exc.usage, exc.cost_usd
            exc.locate(
                model=model or _stored(client, "default_model"), host=_stored(client, "host")
            )
            current.set_attribute("llm_common.error.code", error)
            raise
        finally:
            latency_ms = round((time.perf_counter() - started) * 1000)
            attempt = Attempt(answered_by, latency_ms, usage, cost_usd, error, reason)
            record("model_call", prompt=prompt, attempt=attempt, answer=answer)
            if attempts is not None:
                attempts.append(attempt)
    return value


class Answered(Protocol):
    """What a record is made of."""

    @property
    def model(self) -> str | None:
        """The model that answered."""

    @property
    def usage(self) -> LLMUsage | None:
        """Tokens, where they were counted."""

    @property
    def cost_usd(self) -> float | None:
        """Dollars, where they are known."""


async def _within(timeout_s: float, call: Coroutine[Any, Any, ValueT]) -> ValueT:
    """The call's answer; waits in another task, since a client may swallow its cancellation."""
    task = asyncio.create_task(call)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        finished = task.done()
        task.cancel()
        # Retrieves the exception of an abandoned call, which asyncio would log otherwise.
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    if not finished:
        raise LLMTimeoutError(
            f"No answer within {timeout_s:g} s; raise the timeout, or use a faster model",
            timeout_s=timeout_s,
        )
    return task.result()


async def _call(
    client: SupportsChat,
    timeout_s: float,
    arguments: dict[str, Any],
    json_schema: Mapping[str, Any] | None,
) -> "_ProviderResponse":
    """All contact with the third-party client and its response; raises only LLMError.

    None for `json_schema` asks for text; else JSON is asked for, by the schema if it is not empty
    (see `ask`).
    """
    with external_errors(type(client).__name__, timeout_s=timeout_s):
        if json_schema and getattr(client, "prefers_json_schema", False) is True:
            arguments["response_format"] = {"type": "json_schema", "json_schema": dict(json_schema)}
        elif json_schema is not None:
            arguments["response_format"] = {"type": "json_object"}
        pending = client.chat_completion(**arguments)
        if not inspect.isawaitable(pending):
            raise LLMError(
                f"{type(client).__name__}.chat_completion is not async; make it an `async def`"
            )
        return _ProviderResponse.of(await pending)


async def _streamed_call(
    client: SupportsStream,
    timeout_s: float,
    arguments: dict[str, Any],
    on_text: Callable[[str], None],
) -> "_ProviderResponse":
    """As `_call`, with the text of the answer passed on as it comes."""
    shown = AnswerFilter()
    with external_errors(type(client).__name__, timeout_s=timeout_s):
        async with aclosing(client.stream(**arguments)) as deltas:
            async for delta in deltas:
                if text := shown.feed(delta.text):
                    on_text(text)
                if delta.response is not None:
                    if text := shown.end():
                        on_text(text)
                    return _ProviderResponse.of(delta.response)
    raise LLMConnectionError("the stream broke off before the answer was whole; try again")


# The `finish_reason` of a whole answer at OpenAI, Anthropic, text-generation-inference and gateways
# before them.
_WHOLE: Final = frozenset(
    {
        "",
        "stop",
        "tool_calls",
        "function_call",
        "tool_use",
        "end_turn",
        "stop_sequence",
        "eos",
        "eos_token",
    }
    | {"complete", "completed", "done", "finished"}
)
# And of one that is not whole: OpenAI, then z.ai, Anthropic, Mistral, DeepSeek, vLLM and Gemini.
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
_FAULTS: Final = {
    "cut": "The model was stopped before its answer was whole; allow more tokens, or ask for less",
    "content_filter": "The endpoint withheld the answer; rephrase the request, or use another "
    "model",
    "refusal": "The model refused to answer; rephrase the request, or use another model",
    "unknown_finish": "The endpoint ended the answer for a reason that is not known to mean a "
    "whole one; ask again",
}
_TEXT_PARTS: Final = ("text", "output_text")


@dataclass(frozen=True, slots=True)
class _ProviderResponse:
    """The parts of a response that matter.

    A value of another type, as in a mock, counts as absent.
    """

    content: str = ""
    finish_reason: str | None = None
    refusal: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()
    model: str | None = None
    usage: LLMUsage | None = None
    cost_usd: float | None = None

    @classmethod
    def of(cls, response: object) -> Self:
        """Reads a client's response, whose attributes may raise anything."""
        return cls(
            content=_text_of(getattr(response, "content", None)),
            finish_reason=_typed(response, "finish_reason", str),
            refusal=_typed(response, "refusal", str),
            tool_calls=_tool_calls_of(response),
            model=_typed(response, "model", str),
            usage=_typed(response, "usage", LLMUsage),
            cost_usd=_typed(response, "cost_usd", float),
        )

    def check_whole(self) -> None:
        """Nothing, if the answer is whole.

        Providers invent reasons, so one that is not known to mean a whole answer counts as
        unfinished.

        Raises:
            MalformedReplyError: `cut`, `content_filter`, `refusal` or `unknown_finish`.
        """
        reason = "refusal" if self.refusal else (self.finish_reason or "").lower()
        if reason not in _WHOLE:
            fault = _UNFINISHED.get(reason, "unknown_finish")
            raise MalformedReplyError(_FAULTS[fault], reason=fault, reply=self.content)


def _typed(response: object, name: str, kind: type[ValueT]) -> ValueT | None:
    value = getattr(response, name, None)
    return value if isinstance(value, kind) else None


def _stored(client: object, name: str) -> str | None:
    """A stored text of a third-party client, of which no property is run."""
    value = inspect.getattr_static(client, name, None)
    return value if isinstance(value, str) else None


def _text_of(content: object) -> str:
    """The text of a reply that is a string or a list of parts.

    Images and other parts are left out.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, dict) and part.get("type") in _TEXT_PARTS:
            text = part.get("text")
            texts.append(text if isinstance(text, str) else "")
    return "".join(texts)


def _tool_calls_of(response: object) -> tuple[dict[str, Any], ...]:
    """Native tool calls in today's shape, also from the older `function_call`; all or none."""
    calls = _typed(response, "tool_calls", list) or []
    function = _typed(response, "function_call", dict)
    if not calls and function:
        calls = [{"type": "function", "function": function}]
    return tuple(calls) if all(isinstance(call, dict) for call in calls) else ()


_MAX_PROBLEMS: Final = 5
_FIELD_NAME: Final = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII)


def _validated(value: object, reply_model: type[ModelT], *, reply: str) -> ModelT:
    try:
        return reply_model.model_validate(value)
    except ValidationError as exc:
        problems = exc.errors(include_url=False, include_context=False, include_input=False)
    # Outside the handler, since a chained ValidationError would quote the reply in every traceback.
    places = ", ".join(map(_place, problems[:_MAX_PROBLEMS]))
    raise MalformedReplyError(
        f"The reply does not fit {reply_model.__name__}: {places}; ask again, or use another model",
        reason="schema",
        reply=reply,
    )


def _place(problem: ErrorDetails) -> str:
    """Where and how a value does not fit.

    Hides a name that cannot be a field's, since it is the model's text.
    """
    steps = []
    for step in problem["loc"]:
        is_safe = isinstance(step, int) or _FIELD_NAME.fullmatch(step)
        steps.append(str(step) if is_safe else "?")
    return f"{'.'.join(steps) or 'the whole'} ({problem['type']})"


# The first class that fits names the error: subclasses come before their base.
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


def _detail(error: LLMError) -> str | None:
    if isinstance(error, MalformedReplyError):
        return error.reason
    if isinstance(error, LLMStatusError):
        return str(error.status)
    return type(error.__cause__).__name__ if error.__cause__ else None
