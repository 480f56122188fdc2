"""Model calls that return a validated value or raise an `LLMError`.

Whatever a third-party client does, a call ends in one of three ways: with a checked reply, an
`LLMError` or a cancellation.

`ask` makes one call. `ask_with_fallback` makes a model's choice in at most two calls that share one
deadline.
"""

import asyncio
import inspect
import math
import re
import time
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, Protocol, Self, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llm_common._telemetry import record, span
from llm_common.core.extraction import (
    AnswerFilter,
    as_call,
    extract_json,
    is_call,
    read_text_calls,
    without_thinking,
)
from llm_common.core.http.external_errors import external_errors
from llm_common.core.models import LLMMessage, LLMUsage, MessageRole, as_messages
from llm_common.errors import (
    ContextTooLongError,
    CostLimitError,
    LLMAuthError,
    LLMCommonError,
    LLMConnectionError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
    ModelNotFoundError,
)
from llm_common.text.display import in_fence

THINKING_TOKENS: Final = 2_500
"""Room in `max_tokens` for thinking, which some endpoints count as part of a reply."""

ValueT = TypeVar("ValueT")
ModelT = TypeVar("ModelT", bound=BaseModel)
ChoiceT = TypeVar("ChoiceT")
ReadToolCalls = Callable[[list[dict[str, Any]]], object]


class SupportsChat(Protocol):
    """The only method that `ask` needs of a client. Every `LLMClient` has it."""

    def chat_completion(
        self,
        *,
        messages: list[LLMMessage],
        model: str | None,
        temperature: float,
        response_format: dict[str, Any],
    ) -> Awaitable[object]:
        """Return a response with the reply as `content`, and a `finish_reason`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Cost and outcome of one model call, without any text of its prompt or reply.

    Attributes:
        model: The model that answered, as the endpoint names it, else the requested model.
        latency_ms: Wall time in milliseconds.
        usage: Tokens, or None if the endpoint did not count them.
        cost_usd: Dollars, or None if unknown.
        error: None for success, else `timeout`, `connection`, `status`, `auth`, `rate_limit`,
            `model_not_found`, `too_long`, `cost_limit`, `malformed` or `client` (any other
            exception of the client, or a cancellation).
        reason: Detail of the error: the reason code of a malformed reply, an HTTP status, or the
            name of an exception's class.
    """

    model: str | None
    latency_ms: int
    usage: LLMUsage | None = None
    cost_usd: float | None = None
    error: str | None = None
    reason: str | None = None


def accepts(client: SupportsChat, name: str) -> bool:
    """Return whether the signature of a client's `chat_completion` has an argument."""
    try:
        parameters = inspect.signature(client.chat_completion).parameters
    except (TypeError, ValueError):
        return False
    # `**kwargs` may pass it on. If tools are refused then, an answer falls back to JSON.
    kinds = {parameter.kind for parameter in parameters.values()}
    return name in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def usage_of(attempts: Iterable[Attempt]) -> LLMUsage:
    """Return the tokens of all attempts. An attempt without a count adds nothing."""
    return sum((attempt.usage for attempt in attempts if attempt.usage is not None), LLMUsage())


def cost_of(attempts: Iterable[Attempt]) -> float | None:
    """Return the dollars of all attempts, or None if the cost of any is unknown."""
    total_usd = 0.0
    for attempt in attempts:
        if attempt.cost_usd is None:
            return None
        total_usd += attempt.cost_usd
    return total_usd


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
    max_tokens: int | None = None,
) -> ModelT:
    """Ask a model once, and return its reply as a `reply_model`.

    There is no retry. The deadline always holds: a late answer is discarded, and a client that
    ignores its cancellation is abandoned. Cancelling the caller cancels the call immediately. Safe
    to run concurrently.

    Args:
        client: The client, whose `chat_completion` gets every argument by keyword.
        messages: The conversation, oldest first: messages, or dicts of the chat completions API.
            The client gets a list of messages.
        reply_model: The pydantic model of the reply's JSON object.
        model: Name at the endpoint. None uses the client's default.
        timeout_s: Seconds until the call fails.
        temperature: Sampling temperature. The default 0 makes choices repeatable.
        attempts: Gets exactly one record of this call, also if it fails or is cancelled.
        read_tool_calls: Converts tool calls to the object to validate, for models that send calls
            instead of text, or write them as text (`read_text_calls`). It raises
            MalformedReplyError for calls that it cannot read. With None, native calls without text
            are an empty reply.
        json_schema: `{"name", "strict", "schema"}` of the API, which is sent to clients whose
            `prefers_json_schema` is True. Otherwise the client is asked for a JSON object.
        max_tokens: Maximum length of the reply, for clients whose `chat_completion` accepts it.
            None uses the client's default.

    Returns:
        The validated reply of a model that finished its answer.

    Raises:
        LLMTimeoutError: If no answer came in time.
        MalformedReplyError: If there is no single, whole, valid reply. `.reason` is a code of
            `extract_json`, or `cut`, `content_filter`, `refusal`, `unknown_finish` or `schema`.
        LLMError: Any other subclass that the client raised. The class itself for any other
            exception of the client.
        TypeError: If `messages` is not a list of messages.
    """

    def read(response: _ProviderResponse) -> ModelT:
        # First, since a reply that was cut can still contain a whole object.
        response.check_whole()
        calls: list[dict[str, Any]] | None = [*response.tool_calls]
        # A reply with text is read as text, even if native calls come with it.
        if response.content.strip():
            calls = read_text_calls(response.content, has_ended=response.has_ended)
        if not (read_tool_calls and calls):
            value = extract_json(response.content)
            # Beside a tag, a call is a part of calls that were cut off.
            if response.has_ended and is_call(value) and "<tool_call>" not in response.content:
                calls = [as_call(value)]
        if read_tool_calls and calls:
            return _validated(read_tool_calls(calls), reply_model, reply=response.content)
        return _validated(value, reply_model, reply=response.content)

    sent = as_messages(messages)
    arguments = {"messages": sent, "model": model, "temperature": temperature}
    if max_tokens is not None and accepts(client, "max_tokens"):
        arguments["max_tokens"] = max_tokens
    call = _call(client, timeout_s, arguments, json_schema or {})
    return await _recorded(
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
    """Ask a model once, and return its whole answer as text, without its thinking.

    As with `ask`, there is no retry and the deadline always holds.

    Args:
        client: The client to call.
        messages: As for `ask`.
        model: Name at the endpoint. None uses the client's default.
        timeout_s: Seconds until the call fails.
        max_tokens: Maximum length of the answer. None uses the client's default.
        attempts: Gets exactly one record of this call.

    Returns:
        The answer, which is never empty.

    Raises:
        LLMTimeoutError: If no answer came in time.
        MalformedReplyError: If the answer is empty, cut, withheld or refused, or ends before its
            thinking does.
        LLMError: As from `ask`.
        TypeError: If `messages` is not a list of messages.
    """
    turn = await answer_turn(
        client, messages, model=model, timeout_s=timeout_s, max_tokens=max_tokens, attempts=attempts
    )
    return turn.text


@dataclass(frozen=True, slots=True)
class AnswerTurn:
    """A model's turn: a text without thinking, and its tool calls.

    Attributes:
        text: The answer. With calls, a remark or "".
        calls: Calls in the API's form, or `{"name", "arguments"}` if the model wrote them as text.
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
    """Ask a model once, and return its next turn: an answer, or calls of the offered tools.

    As with `ask`, there is no retry and the deadline always holds.

    Args:
        client: The client to call.
        messages: As for `ask`.
        model: As for `ask`.
        timeout_s: As for `ask`.
        max_tokens: Maximum length of the turn. None uses the client's default.
        attempts: As for `ask`.
        tools: Definitions in the API's form. The client gets them as `tools` if there are any.
        on_text: Called with each piece of the text as it arrives, without thinking, if the client
            has an async generator `stream`. Unless the call fails, the joined pieces are the turn's
            text.

    Returns:
        The turn of a model that finished it.

    Raises:
        LLMTimeoutError: As from `answer_text`.
        MalformedReplyError: As from `answer_text`, or if the model did not finish tool calls that
            it wrote as text.
        LLMError: As from `ask`.
        TypeError: If `messages` is not a list of messages.
    """

    def read(response: _ProviderResponse) -> AnswerTurn:
        response.check_whole()
        if tools and response.tool_calls:
            # `without_thinking` would raise for a remark that is only thinking.
            return AnswerTurn(AnswerFilter().feed(response.content), response.tool_calls)
        if tools and (written := read_text_calls(response.content, has_ended=response.has_ended)):
            return AnswerTurn("", tuple(written))
        return AnswerTurn(without_thinking(response.content))

    arguments: dict[str, Any] = {"messages": as_messages(messages), "model": model}
    if tools:
        arguments["tools"] = [dict(tool) for tool in tools]
    if max_tokens is not None:
        arguments["max_tokens"] = max_tokens
    # Looked up statically, since a mock or a proxy seems to have any attribute.
    if on_text is not None and inspect.isasyncgenfunction(
        inspect.getattr_static(client, "stream", None)
    ):
        call = _streamed_call(client, timeout_s, arguments, on_text)
    else:
        call = _call(client, timeout_s, arguments, None)
    sent = [*arguments.get("tools", ()), *arguments["messages"]]
    return await _recorded(
        client, call, read, prompt=sent, model=model, timeout_s=timeout_s, attempts=attempts
    )


async def _recorded(
    client: object,
    call: Coroutine[Any, Any, "_ProviderResponse"],
    read: Callable[["_ProviderResponse"], ValueT],
    *,
    prompt: Sequence[object],
    model: str | None,
    timeout_s: float,
    attempts: list[Attempt] | None,
) -> ValueT:
    """Run one call of a model under the rules of `ask`, and record it.

    Args:
        client: The client. Its `default_model` and `host` are named in errors.
        call: All contact with the client. Raises only LLMError.
        read: Checks the answer. Raises only LLMError.
        prompt: The tools and messages, for the record of the run.
        model: As for `ask`.
        timeout_s: As for `ask`.
        attempts: Gets exactly one record, however the call ends.

    Returns:
        The result of `read`.

    Raises:
        LLMError: As from `ask`.
    """
    answered_by, usage, cost_usd = model, None, None
    answer: _ProviderResponse | None = None
    # Stays so if neither branch below runs: a CancelledError is not caught.
    error: str | None = "client"
    reason: str | None = "cancelled"
    started = time.perf_counter()
    with span("llm_common.ask", {"llm_common.model": model or "default"}) as current:
        try:
            answer = await _within(timeout_s, call)
            # Before the reply is read, since an unusable one is charged too.
            answered_by, usage, cost_usd = answer.model or model, answer.usage, answer.cost_usd
            value = read(answer)
            error = reason = None
        except LLMError as exc:
            error = next(code for kind, code in _CODES if isinstance(exc, kind))
            reason = type(exc.__cause__).__name__ if exc.__cause__ else None
            if isinstance(exc, MalformedReplyError):
                reason = exc.reason
            elif isinstance(exc, LLMStatusError):
                reason = str(exc.status)
            if isinstance(exc.usage, LLMUsage):  # an application's client may attach anything
                usage, cost_usd = exc.usage, _dollars(exc.cost_usd)
            exc.locate(
                model=model or _stored(client, "default_model"), host=_stored(client, "host")
            )
            current.set_attributes({"llm_common.error.code": error})
            raise
        finally:  # also records a cancelled call, which the endpoint may charge
            latency_ms = round((time.perf_counter() - started) * 1000)
            attempt = Attempt(answered_by, latency_ms, usage, cost_usd, error, reason)
            record("model_call", prompt=prompt, attempt=attempt, answer=answer)
            if attempts is not None:
                attempts.append(attempt)
    return value


async def _within(timeout_s: float, call: Coroutine[Any, Any, ValueT]) -> ValueT:
    """Return the call's answer, or raise LLMTimeoutError after `timeout_s` seconds."""
    # Not `asyncio.timeout`: a client that swallows its cancellation would go on past the deadline.
    task = asyncio.create_task(call)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        # Also if the caller is cancelled, which `asyncio.wait` does not pass on to the task.
        finished = task.done()
        task.cancel()
        # asyncio would log the exception of an abandoned call if nothing retrieved it.
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
    """Call a third-party client and read its response. Raises only LLMError.

    With None as `json_schema` the client is asked for text, else for JSON, by the schema if it is
    not empty (see `ask`).
    """
    with external_errors(type(client).__name__, timeout_s=timeout_s):
        # `is True`, since every attribute of a mock is truthy.
        if json_schema and getattr(client, "prefers_json_schema", False) is True:
            arguments["response_format"] = {"type": "json_schema", "json_schema": dict(json_schema)}
        elif json_schema is not None:
            arguments["response_format"] = {"type": "json_object"}
        pending = client.chat_completion(**arguments)
        if not inspect.isawaitable(pending):
            raise LLMError(
                f"{type(client).__name__}.chat_completion is not async; make it an `async def`"
            )
        response = await pending
        if isinstance(response, str | dict | None):
            raise MalformedReplyError(
                f"{type(client).__name__}.chat_completion returned a {type(response).__name__}; "
                "return an object with .content, such as LLMResponse",
                reason="empty",
                reply="",
            )
        return _ProviderResponse.of(response)


async def _streamed_call(
    client: Any,
    timeout_s: float,
    arguments: dict[str, Any],
    on_text: Callable[[str], None],
) -> "_ProviderResponse":
    """Call a client as `_call` does, and pass on the text of the answer as it arrives.

    The client's `stream` yields deltas with text, then one with the whole response.
    """
    answer_filter = AnswerFilter()
    with external_errors(type(client).__name__, timeout_s=timeout_s):
        async with aclosing(client.stream(**arguments)) as deltas:
            async for delta in deltas:
                if text := answer_filter.feed(delta.text):
                    on_text(text)
                if delta.response is not None:
                    if text := answer_filter.end():
                        on_text(text)
                    return _ProviderResponse.of(delta.response)
    raise LLMConnectionError("the stream ended before the answer was whole; try again")


# Finish reasons of whole answers, from OpenAI, Anthropic, text-generation-inference and gateways.
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
# Finish reasons of other answers, from OpenAI, z.ai, Anthropic, Mistral, DeepSeek, vLLM and Gemini.
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
    "cut": "The answer was cut off before its end; allow more tokens, or ask for less",
    "content_filter": "The endpoint withheld the answer; rephrase the request, or use another "
    "model",
    "refusal": "The model refused to answer; rephrase the request, or use another model",
    "unknown_finish": "The endpoint ended the answer for an unknown reason, so that it may not be "
    "whole; ask again",
}
_TEXT_PARTS: Final = ("text", "output_text")


@dataclass(frozen=True, slots=True)
class _ProviderResponse:
    """The fields of a response that are used.

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
        """Read a client's response, whose attributes may raise anything."""
        calls = _typed(response, "tool_calls", list) or []
        function = _typed(response, "function_call", dict)
        if not calls and function:  # the API's older form of a single call
            calls = [{"type": "function", "function": function}]
        if not all(isinstance(call, dict) for call in calls):
            calls = []
        return cls(
            content=_text_of(getattr(response, "content", None)),
            finish_reason=_typed(response, "finish_reason", str),
            refusal=_typed(response, "refusal", str),
            tool_calls=tuple(calls),
            model=_typed(response, "model", str),
            usage=_typed(response, "usage", LLMUsage),
            cost_usd=_dollars(getattr(response, "cost_usd", None)),
        )

    @property
    def has_ended(self) -> bool:
        """Return whether the endpoint said why the answer ended."""
        return bool(self.finish_reason)

    def check_whole(self) -> None:
        """Check that the model finished its answer.

        Raises:
            MalformedReplyError: `cut`, `content_filter`, `refusal` or `unknown_finish`.
        """
        reason = "refusal" if self.refusal else (self.finish_reason or "").lower()
        # An allowlist, since providers invent reasons: an unknown one may mean a cut answer.
        if reason not in _WHOLE:
            fault = _UNFINISHED.get(reason, "unknown_finish")
            raise MalformedReplyError(_FAULTS[fault], reason=fault, reply=self.content)


def _typed(response: object, name: str, kind: type[ValueT]) -> ValueT | None:
    value = getattr(response, name, None)
    return value if isinstance(value, kind) else None


def _dollars(cost_usd: object) -> float | None:
    """Return a cost that a client reports, None for one that could raise a limit."""
    if isinstance(cost_usd, float) and 0 <= cost_usd < math.inf:
        return cost_usd
    return None


def _stored(client: object, name: str) -> str | None:
    """Return a stored str of a third-party client without running its properties."""
    value = inspect.getattr_static(client, name, None)
    return value if isinstance(value, str) else None


def _text_of(content: object) -> str:
    """Return the text of a reply: a str, or a list of parts whose images are left out."""
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


_MAX_PROBLEMS: Final = 5
_FIELD_NAME: Final = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII)


def _validated(value: object, reply_model: type[ModelT], *, reply: str) -> ModelT:
    try:
        return reply_model.model_validate(value)
    except ValidationError as exc:
        problems = exc.errors(include_url=False, include_context=False, include_input=False)
    # Outside the handler, since a chained ValidationError would quote the reply in every traceback.
    listing = ", ".join(map(_problem_text, problems[:_MAX_PROBLEMS]))
    form = reply_model.__name__
    if form.startswith("_"):
        form = "the form that was asked for"
    raise MalformedReplyError(
        f"The reply does not fit {form}: {listing}; ask again, or use another model",
        reason="schema",
        reply=reply,
    )


def _problem_text(problem: ErrorDetails) -> str:
    """Return the location and the type of a problem."""
    steps = []
    for step in problem["loc"]:
        # A key that cannot be a field's name may be any text of the model.
        is_safe = isinstance(step, int) or _FIELD_NAME.fullmatch(step)
        steps.append(str(step) if is_safe else "?")
    return f"{'.'.join(steps) or 'the whole reply'} ({problem['type']})"


# The first matching class names the error, so subclasses come before their base.
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

# After these errors the endpoint would refuse another model too.
_FINAL = frozenset({"auth", "cost_limit"})


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Models and limits of a choice.

    Attributes:
        model: Model of the first call. None uses the client's default.
        fallback_model: Model of a second call if the first reply needs a correction. None makes no
            second call.
        timeout_s: Seconds for one call.
        temperature: Sampling temperature.

    Raises:
        ValueError: If `timeout_s` is not positive.
    """

    model: str | None = None
    fallback_model: str | None = None
    timeout_s: float = 30.0
    temperature: float = 0.0

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s is {self.timeout_s}; it must be more than 0")

    @property
    def total_s(self) -> float:
        """Return the seconds that the whole choice may take: `timeout_s` for each possible call."""
        if self.fallback_model is None:
            return self.timeout_s
        return 2 * self.timeout_s

    def ends_at(self) -> float:
        """Return the deadline of a choice that starts now, on the running loop's clock."""
        return asyncio.get_running_loop().time() + self.total_s


@dataclass(frozen=True, slots=True)
class Verdict(Generic[ChoiceT]):
    """The judgement of one reply.

    Attributes:
        choice: The model's choice.
        count: Number of chosen entries that are valid.
        feedback: Correction for the fallback model, or "" if the reply is an answer. "Nothing fits"
            is one.
        reason: Reason code of an unusable reply, for the attempt's record.
    """

    choice: ChoiceT
    count: int
    feedback: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Prompt(Generic[ModelT, ChoiceT]):
    """A question to a chat model, and the judge of its reply.

    Attributes:
        system: The system message, which rarely changes.
        user: The user message.
        reply_model: The pydantic model of the reply.
        judge: Returns the verdict on a valid reply.
        closing: The last line, which asks for the answer.
        json_schema: As for `ask`.
        max_tokens: As for `ask`.
        read_tool_calls: As for `ask`.
    """

    system: str
    user: str
    reply_model: type[ModelT]
    judge: Callable[[ModelT], Verdict[ChoiceT]]
    closing: str = ""
    json_schema: Mapping[str, Any] | None = None
    max_tokens: int | None = None
    read_tool_calls: ReadToolCalls | None = None

    def messages(self, feedback: str = "") -> list[LLMMessage]:
        """Return the conversation."""
        parts = [self.user, self.closing]
        if feedback:  # at the end, since providers cache the prefix that both calls share
            problem = f"An earlier answer was not usable:\n{in_fence(feedback)}"
            parts += [problem, self.closing]
        user = "\n\n".join(filter(None, parts))
        return [
            LLMMessage(role=MessageRole.SYSTEM, content=self.system),
            LLMMessage(role=MessageRole.USER, content=user),
        ]


FailureStatus = Literal["timeout", "invalid", "error"]
SelectionStatus = Literal["ok", "empty", "no_candidates"] | FailureStatus


def status_of(error: LLMCommonError | None) -> FailureStatus:
    """Return the status for an error, or for an unusable reply without one."""
    if isinstance(error, LLMTimeoutError):
        return "timeout"
    return "invalid" if error is None or isinstance(error, MalformedReplyError) else "error"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ChoiceT]):
    """The outcome of `ask_with_fallback`.

    Attributes:
        verdict: Verdict on the reply that counts. None if no reply could be read.
        error: Error of the call if no reply could be read.
        attempts: One record for each call.
    """

    verdict: Verdict[ChoiceT] | None = None
    error: LLMError | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def feedback(self) -> str:
        """Return the correction for the fallback model, or "" if the reply needs none."""
        if self.error is not None:
            return self.error.message
        return self.verdict.feedback if self.verdict else ""

    @property
    def failure(self) -> str:
        """Return why there is no usable reply, for the caller, or ""."""
        if self.error is not None:
            return str(self.error)  # begins with the model and the host
        return self.feedback.partition("\n")[0]

    @property
    def status(self) -> SelectionStatus:
        """Return the outcome in one word."""
        if self.verdict is not None and not self.verdict.feedback:
            return "ok" if self.verdict.count else "empty"
        return status_of(self.error)


async def ask_with_fallback(
    client: SupportsChat,
    prompt: Prompt[ModelT, ChoiceT],
    options: CallOptions,
    *,
    ends_at: float,
) -> Outcome[ChoiceT]:
    """Ask a model for a choice, and a fallback model if the reply needs a correction.

    The fallback model is asked once, and not after a refused key, a spent budget or the deadline.
    Its reply then counts, unless it chooses nothing where the first reply chose what cannot be
    used.

    Args:
        client: The client to call.
        prompt: The question.
        options: Models, and timeout of one call.
        ends_at: Deadline on the running loop's clock, from `CallOptions.ends_at`.

    Returns:
        The outcome. An LLMError is its `error` and is not raised.
    """
    first = await _attempt(client, prompt, options, options.model, ends_at=ends_at)
    # A call after the deadline is no attempt.
    is_final = bool(first.attempts) and first.attempts[-1].error in _FINAL
    is_late = asyncio.get_running_loop().time() >= ends_at
    if not first.feedback or options.fallback_model is None or is_final or is_late:
        return first
    second = await _attempt(
        client, prompt, options, options.fallback_model, ends_at=ends_at, feedback=first.feedback
    )
    attempts = first.attempts + second.attempts
    if first.verdict is not None and second.status == "empty":
        # "Nothing" is how a model escapes a correction, and the first reply says otherwise.
        return replace(first, attempts=attempts)
    return replace(second, attempts=attempts)


async def _attempt(
    client: SupportsChat,
    prompt: Prompt[ModelT, ChoiceT],
    options: CallOptions,
    model: str | None,
    *,
    ends_at: float,
    feedback: str = "",
) -> Outcome[ChoiceT]:
    """Return the verdict on one model call."""
    remaining_s = ends_at - asyncio.get_running_loop().time()
    if remaining_s <= 0:
        error = LLMTimeoutError(
            "The deadline passed before a model was called; raise it", timeout_s=options.timeout_s
        )
        error.locate(model=model, host=None)
        return Outcome(error=error)
    attempts: list[Attempt] = []
    try:
        reply = await ask(
            client,
            prompt.messages(feedback),
            reply_model=prompt.reply_model,
            model=model,
            timeout_s=min(options.timeout_s, remaining_s),
            temperature=options.temperature,
            attempts=attempts,
            read_tool_calls=prompt.read_tool_calls,
            json_schema=prompt.json_schema,
            max_tokens=prompt.max_tokens,
        )
    except LLMError as exc:
        return Outcome(error=exc, attempts=tuple(attempts))
    verdict = prompt.judge(reply)
    if verdict.feedback:
        # The call succeeded by its record, which was made before the verdict.
        attempts[-1] = replace(attempts[-1], error="malformed", reason=verdict.reason)
    return Outcome(verdict, attempts=tuple(attempts))


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
