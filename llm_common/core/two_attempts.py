"""`ask_with_fallback`: a chat model's choice, in at most two calls that share one deadline."""

import asyncio
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel

from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.selection_cache import SelectionCache
from llm_common.core.structured import Attempt, ReadToolCalls, SupportsChat, ask
from llm_common.errors import LLMCommonError, LLMError, LLMTimeoutError, MalformedReplyError
from llm_common.text.display import in_fence

ClientT = TypeVar("ClientT")
ReplyT = TypeVar("ReplyT")
ModelT = TypeVar("ModelT", bound=BaseModel)
ChoiceT = TypeVar("ChoiceT")

_FINAL = frozenset({"auth", "cost_limit"})  # the endpoint would refuse another model too


@dataclass(frozen=True, slots=True)
class CallOptions:
    """Which models a choice asks, and for how long.

    Attributes:
        model: Asked first; None is the client's default.
        fallback_model: Asked once if the first reply was not usable; None makes no second call.
        timeout_s: Seconds for one call.
        deadline_s: Seconds for the whole choice; None is `timeout_s` for each model that may be
            asked.
        temperature: Sampling temperature.
        cache: Looked up before a model is asked; None asks every time.

    Raises:
        ValueError: `timeout_s` or `deadline_s` is not positive.
    """

    model: str | None = None
    fallback_model: str | None = None
    timeout_s: float = 30.0
    deadline_s: float | None = None
    temperature: float = 0.0
    cache: SelectionCache | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("timeout_s", self.timeout_s), ("deadline_s", self.total_s)):
            if not seconds > 0:
                raise ValueError(f"{name} is {seconds}; it must be more than 0")

    @property
    def total_s(self) -> float:
        """Seconds that the whole choice may take."""
        if self.deadline_s is not None:
            return self.deadline_s
        return self.timeout_s * (1 if self.fallback_model is None else 2)

    def ends_at(self) -> float:
        """The deadline of a choice that starts now, on the running loop's clock."""
        return asyncio.get_running_loop().time() + self.total_s


@dataclass(frozen=True, slots=True)
class Verdict(Generic[ChoiceT]):
    """The result of judging one reply.

    Attributes:
        choice: What the model chose, with an account of it.
        count: How many of the chosen entries are valid.
        usable: Whether the reply counts as an answer; "nothing fits" does.
        feedback: A correction for the fallback model, which is asked if this is not empty.
        reason: Why the reply is not usable, as a code for the attempt's record.
    """

    choice: ChoiceT
    count: int
    usable: bool = True
    feedback: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelCall:
    """How one call is made: the model, its temperature, seconds, and where its record goes."""

    model: str | None
    temperature: float
    timeout_s: float
    attempts: list[Attempt]


class Inquiry(ABC, Generic[ClientT, ReplyT, ChoiceT]):
    """What a model is asked, whatever its kind, and the check of its reply.

    `Prompt` asks a chat model. Rooms above add inquiries of other models, which share the
    deadline, the cache and the account of `ask_with_fallback`.
    """

    judge: Callable[[ReplyT], Verdict[ChoiceT]]

    @abstractmethod
    async def ask(self, client: ClientT, feedback: str, call: ModelCall, /) -> ReplyT:
        """The reply to one call, which appends one record; raises only LLMError."""

    @abstractmethod
    def inputs(self, feedback: str, /) -> object:
        """What a reply depends on besides client, model and temperature, as plain data."""

    @abstractmethod
    def dump(self, reply: ReplyT) -> object:
        """The reply as plain data."""

    @abstractmethod
    def restore(self, data: Any) -> ReplyT:
        """The reply that `dump` made this data of."""


@dataclass(frozen=True, slots=True)
class Prompt(Inquiry[SupportsChat, ModelT, ChoiceT]):
    """The question to a chat model, and the check of its reply.

    Attributes:
        system: The system message: the part that rarely changes.
        user: The user message.
        reply_model: What the reply must validate as.
        judge: Makes a verdict of a valid reply.
        json_schema: As for `ask`.
        read_tool_calls: As for `ask`.
        scope: What a cached reply depends on besides the prompt, such as settings.
    """

    system: str
    user: str
    reply_model: type[ModelT]
    judge: Callable[[ModelT], Verdict[ChoiceT]]
    json_schema: Mapping[str, Any] | None = None
    read_tool_calls: ReadToolCalls | None = None
    scope: str = ""

    def messages(self, feedback: str = "") -> list[LLMMessage]:
        """The conversation; feedback comes last, for the provider's prefix cache."""
        complaint = (
            f"\n\nAn earlier answer was not usable:\n{in_fence(feedback)}" if feedback else ""
        )
        return [
            LLMMessage(role=MessageRole.SYSTEM, content=self.system),
            LLMMessage(role=MessageRole.USER, content=self.user + complaint),
        ]

    async def ask(self, client: SupportsChat, feedback: str, call: ModelCall, /) -> ModelT:
        """See `Inquiry`."""
        return await ask(
            client,
            self.messages(feedback),
            reply_model=self.reply_model,
            model=call.model,
            timeout_s=call.timeout_s,
            temperature=call.temperature,
            attempts=call.attempts,
            read_tool_calls=self.read_tool_calls,
            json_schema=self.json_schema,
        )

    def inputs(self, feedback: str, /) -> object:
        """See `Inquiry`."""
        texts = [message.content for message in self.messages(feedback)]
        return [self.json_schema and dict(self.json_schema), self.scope, texts]

    def dump(self, reply: ModelT) -> object:
        """See `Inquiry`."""
        return reply.model_dump()

    def restore(self, data: Any) -> ModelT:
        """See `Inquiry`."""
        return self.reply_model.model_validate(data)


FailureStatus = Literal["timeout", "invalid", "error"]
SelectionStatus = Literal["ok", "empty", "no_candidates"] | FailureStatus


def status_of(error: LLMCommonError | None) -> FailureStatus:
    """The status for a call's error; None: a reply that holds nothing usable."""
    if isinstance(error, LLMTimeoutError):
        return "timeout"
    return "invalid" if error is None or isinstance(error, MalformedReplyError) else "error"


@dataclass(frozen=True, slots=True)
class Outcome(Generic[ChoiceT]):
    """The outcome of `ask_with_fallback`.

    Attributes:
        verdict: On the reply that counts; None if no reply could be read.
        error: Why no reply could be read.
        attempts: One record for each call.
        cached: Whether the reply that counts came from the cache.
    """

    verdict: Verdict[ChoiceT] | None = None
    error: LLMError | None = None
    attempts: tuple[Attempt, ...] = ()
    cached: bool = False

    @property
    def feedback(self) -> str:
        """A correction for the fallback model; "" if the reply needs none."""
        if self.error is not None:
            return self.error.message
        return self.verdict.feedback if self.verdict else ""

    @property
    def failure(self) -> str:
        """Why there is no usable reply, for the caller, or "".

        Names model and host where no reply could be read.
        """
        if self.error is not None:
            return str(self.error)
        if self.status in {"ok", "empty"}:
            return ""  # of a usable reply some calls may still be worth a correction
        return self.feedback.partition("\n")[0]

    @property
    def status(self) -> SelectionStatus:
        """What came of it, in one word."""
        if self.verdict is not None and self.verdict.usable:
            return "ok" if self.verdict.count else "empty"
        return status_of(self.error)

    @property
    def count(self) -> int:
        """How many of the chosen entries are valid."""
        return self.verdict.count if self.verdict else 0


async def ask_with_fallback(
    client: ClientT,
    prompt: Inquiry[ClientT, ReplyT, ChoiceT],
    options: CallOptions,
    *,
    ends_at: float,
) -> Outcome[ChoiceT]:
    """The decision of the first model, or of the fallback if that needs correction.

    The fallback is asked once, but not after a refused key, a spent budget or the deadline. Its
    answer counts unless the first one holds more valid entries: a failed second attempt takes
    nothing away.

    Args:
        client: What answers.
        prompt: What to ask.
        options: Models, timeout of one call, cache.
        ends_at: The deadline on the running loop's clock; see `CallOptions.ends_at`.

    Raises:
        asyncio.CancelledError: The caller was cancelled; every other failure is the decision's
            `error`.
    """
    first = await _attempt(client, prompt, options, options.model, ends_at=ends_at)
    final = bool(first.attempts) and first.attempts[-1].error in _FINAL
    late = asyncio.get_running_loop().time() >= ends_at
    if not first.feedback or options.fallback_model is None or final or late:
        return first
    second = await _attempt(
        client, prompt, options, options.fallback_model, ends_at=ends_at, feedback=first.feedback
    )
    best = first if first.count > second.count else second
    return replace(best, attempts=first.attempts + second.attempts)


async def _attempt(
    client: ClientT,
    prompt: Inquiry[ClientT, ReplyT, ChoiceT],
    options: CallOptions,
    model: str | None,
    *,
    ends_at: float,
    feedback: str = "",
) -> Outcome[ChoiceT]:
    """One cached reply or one model call, with its verdict."""
    key = ""
    if options.cache is not None:
        # One digest of everything that a reply depends on.
        facts = json.dumps(
            [id(client), model, options.temperature, prompt.inputs(feedback)], sort_keys=True
        )
        key = hashlib.sha256(facts.encode()).hexdigest()
        known = options.cache.get(key, client=client)
        if known is not None:
            return Outcome(prompt.judge(prompt.restore(known)), cached=True)
    left_s = ends_at - asyncio.get_running_loop().time()
    if left_s <= 0:
        error = LLMTimeoutError(
            "The deadline passed before a model was asked; raise it", timeout_s=options.timeout_s
        )
        error.locate(model=model, host=None)
        return Outcome(error=error)
    attempts: list[Attempt] = []
    call = ModelCall(model, options.temperature, min(options.timeout_s, left_s), attempts)
    try:
        reply = await prompt.ask(client, feedback, call)
    except LLMError as exc:
        return Outcome(error=exc, attempts=tuple(attempts))
    verdict = prompt.judge(reply)
    if not verdict.usable:
        attempts[-1] = replace(attempts[-1], error="malformed", reason=verdict.reason)
    elif options.cache is not None:
        options.cache.put(key, prompt.dump(reply), client=client)
    return Outcome(verdict, attempts=tuple(attempts))


def closed_object(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Schema of an object that has exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
