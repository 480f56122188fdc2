"""`ask_with_fallback`: a model's choice in at most two calls that share one deadline."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.structured import Attempt, ReadToolCalls, SupportsChat, ask
from llm_common.errors import LLMCommonError, LLMError, LLMTimeoutError, MalformedReplyError
from llm_common.text.display import in_fence

ModelT = TypeVar("ModelT", bound=BaseModel)
ChoiceT = TypeVar("ChoiceT")

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
