"""`decide`: a choice that a model makes, in at most two calls that share one deadline."""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from llm_common.core.models import LLMMessage
from llm_common.core.structured import Attempt, ReadToolCalls, SupportsChat, ask
from llm_common.errors import LLMError, LLMTimeoutError

__all__ = ["Asking", "Decision", "Judged", "Question", "SelectionCache", "cache_key", "decide"]


@dataclass(frozen=True, slots=True)
class _Entry:
    client: object  # held, so that another client can never have its id
    reply: str
    expires_at: float


class SelectionCache:
    """Replies of models, to be read again instead of paid for again, for a while and up to a number.

    Pass one to a selector, or to several. A reply is found again only for the same client, model, temperature, schema
    and prompt, byte for byte, and the same settings and registry. What is kept is the reply and not the selection: it
    is held against the registry or the candidates of the day each time. Only what led to a selection is kept; failures
    never are. In memory; for the tasks of one event loop.

    Args:
        ttl_s: Seconds for which a reply is used; what it names may be out of date then.
        max_entries: Most replies; the ones used longest ago go first.
        clock: Seconds that never run backwards; for tests.

    Raises:
        ValueError: A limit is not positive.
    """

    def __init__(
        self, *, ttl_s: float = 300.0, max_entries: int = 1_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if not ttl_s > 0 or max_entries < 1:
            raise ValueError(f"ttl_s is {ttl_s} and max_entries {max_entries}; both must be more than 0")
        self._ttl_s = ttl_s
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forgets every reply."""
        self._entries.clear()

    def get(self, key: str, *, client: object) -> Any:
        """The reply as data of its own, or None when there is none of this client, or none that is young enough."""
        entry = self._entries.get(key)
        if entry is None or entry.client is not client:
            return None
        if self._clock() >= entry.expires_at:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return json.loads(entry.reply)

    def put(self, key: str, reply: object, *, client: object) -> None:
        """Keeps a reply; one that JSON cannot hold is not kept."""
        try:
            text = json.dumps(reply)
        except (TypeError, ValueError, RecursionError):
            return
        self._entries[key] = _Entry(client, text, self._clock() + self._ttl_s)
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


def cache_key(
    client: object,
    messages: Sequence[LLMMessage],
    *,
    model: str | None,
    temperature: float,
    json_schema: Mapping[str, Any] | None,
    scope: str,
) -> str:
    """One digest of everything that a reply depends on; `scope` is what the caller adds."""
    prompt = [message.model_dump(exclude_none=True) for message in messages]
    asked = [id(client), model, temperature, json_schema and dict(json_schema), scope, prompt]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


ReplyT = TypeVar("ReplyT", bound=BaseModel)
ChoiceT = TypeVar("ChoiceT")

_FINAL = frozenset({"auth", "cost_limit"})  # another model would be refused alike


@dataclass(frozen=True, slots=True)
class Asking:
    """Whom to ask, and how long.

    Attributes:
        client: What answers.
        model: Asked first; None is the client's default.
        fallback_model: Asked once when the first gave nothing usable; None asks nobody else.
        timeout_s: Seconds for one call.
        ends_at: When the whole selection has to be over, on the running loop's clock.
        temperature: Sampling temperature.
        cache: Where replies are looked up first; None asks every time.
    """

    client: SupportsChat
    model: str | None
    fallback_model: str | None
    timeout_s: float
    ends_at: float
    temperature: float = 0.0
    cache: SelectionCache | None = None


@dataclass(frozen=True, slots=True)
class Judged(Generic[ChoiceT]):
    """What a reply amounts to.

    Attributes:
        choice: What was chosen, with an account of it.
        count: How much of it is valid.
        usable: Whether it counts as an answer; "nothing fits" does.
        wrong: What to tell the other model, which is asked wherever this is not empty.
        reason: The code of what makes it unusable, for the record of the attempt.
    """

    choice: ChoiceT
    count: int
    usable: bool = True
    wrong: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Question(Generic[ReplyT, ChoiceT]):
    """What to ask, and how to judge the reply.

    Attributes:
        messages: The prompt, given what was wrong with an earlier answer, "" at first; the first prompt has to be a
            prefix of the second.
        reply_model: What the reply has to validate as.
        judge: What a valid reply amounts to.
        json_schema: As for `ask`.
        read_tool_calls: As for `ask`.
        scope: What a cached reply depends on beside the prompt, such as settings.
    """

    messages: Callable[[str], list[LLMMessage]]
    reply_model: type[ReplyT]
    judge: Callable[[ReplyT], Judged[ChoiceT]]
    json_schema: Mapping[str, Any] | None = None
    read_tool_calls: ReadToolCalls | None = None
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Decision(Generic[ChoiceT]):
    """How it ended.

    Attributes:
        judged: The reply that counts; None when none could be read.
        error: Why none could.
        attempts: One record for each call that was made.
        cached: Whether the reply that counts was known from before.
    """

    judged: Judged[ChoiceT] | None = None
    error: LLMError | None = None
    attempts: tuple[Attempt, ...] = ()
    cached: bool = False

    @property
    def wrong(self) -> str:
        """What to tell another model; "" when nothing was wrong."""
        if self.error is not None:
            return self.error.message
        return self.judged.wrong if self.judged else ""


async def decide(question: Question[ReplyT, ChoiceT], asking: Asking) -> Decision[ChoiceT]:
    """The decision of the first model, or of the fallback where the first left something wrong.

    The fallback is asked once, not after a refused key or a spent budget, and not when the time is over. What it says
    counts, unless the first answer chose more that is valid: a failed second attempt takes nothing away.

    Raises:
        asyncio.CancelledError: The caller was cancelled; every other failure is the decision's `error`.
    """
    first = await _attempt(question, asking, asking.model, wrong="")
    ended = bool(first.attempts) and first.attempts[-1].error in _FINAL
    if not first.wrong or asking.fallback_model is None or ended or _left_s(asking) <= 0:
        return first
    second = await _attempt(question, asking, asking.fallback_model, wrong=first.wrong)
    counts = first if _count(first) > _count(second) else second
    return replace(counts, attempts=first.attempts + second.attempts)


async def _attempt(
    question: Question[ReplyT, ChoiceT], asking: Asking, model: str | None, *, wrong: str
) -> Decision[ChoiceT]:
    """One model call, or a reply known from before, and what it led to."""
    messages = question.messages(wrong)
    key = _key(question, asking, model, messages)
    known = asking.cache.get(key, client=asking.client) if asking.cache is not None else None
    if known is not None:
        return Decision(question.judge(question.reply_model.model_validate(known)), cached=True)
    left_s = _left_s(asking)
    if left_s <= 0:
        late = LLMTimeoutError("The time was over before a model was asked; allow more", timeout_s=asking.timeout_s)
        return Decision(error=late)
    attempts: list[Attempt] = []
    try:
        reply = await ask(
            asking.client,
            messages,
            reply_model=question.reply_model,
            model=model,
            timeout_s=min(asking.timeout_s, left_s),
            temperature=asking.temperature,
            attempts=attempts,
            read_tool_calls=question.read_tool_calls,
            json_schema=question.json_schema,
        )
    except LLMError as exc:
        return Decision(error=exc, attempts=tuple(attempts))
    judged = question.judge(reply)
    if not judged.usable:
        attempts[-1] = replace(attempts[-1], error="malformed", reason=judged.reason)
    elif asking.cache is not None:
        asking.cache.put(key, reply.model_dump(), client=asking.client)
    return Decision(judged, attempts=tuple(attempts))


def _key(question: Question[ReplyT, ChoiceT], asking: Asking, model: str | None, messages: list[LLMMessage]) -> str:
    if asking.cache is None:
        return ""
    return cache_key(
        asking.client,
        messages,
        model=model,
        temperature=asking.temperature,
        json_schema=question.json_schema,
        scope=question.scope,
    )


def _count(decision: Decision[ChoiceT]) -> int:
    return decision.judged.count if decision.judged else 0


def _left_s(asking: Asking) -> float:
    return asking.ends_at - asyncio.get_running_loop().time()
