"""The model calls of one answer, and what the model reads back between them.

A model asks for a part of a stored output by a native tool call, or by a reply that is the call as
JSON. The call and its result are added to the conversation together, so neither is ever without the
other.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

from llm_common.agents.tool_context import ToolContextManager
from llm_common.context import ContextBundle
from llm_common.core.extraction import extract_json
from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.structured import AnswerTurn, Attempt, SupportsChat, answer_turn
from llm_common.core.tokens import TokenCounter, count_tokens
from llm_common.errors import (
    LLMAuthError,
    LLMCommonError,
    LLMError,
    LLMRateLimitError,
    LLMStatusError,
    LLMTimeoutError,
    MalformedReplyError,
)
from llm_common.pointers.reading import MIN_LIMIT_TOKENS
from llm_common.prompt import PromptBundle, TokenBudget
from llm_common.prompt.prompt_bundle import PromptMeter
from llm_common.selection.tool_calls import read_native_calls
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line
from llm_common.tools.read_back import DEFAULT_LIMIT_TOKENS, LoadsPayload, ReadBackTool
from llm_common.tools.signature import signature

_JSON_FORM = """\
Before you answer you may read stored outputs, at most {max_reads} times. To read, reply with this JSON object alone:
{{"tool": "{name}", "args": {{"pointer_id": "<id>", "select": {{"regex": "<pattern>"}}}}}}
{signature}
Any other reply is your answer."""
_UNREAD = "Stored outputs that you have not read whole. Read them with {name} and the id before you conclude:"
_NO_READS_LEFT = "No reads are left: answer now from what you have."
_NOT_READ = "Nothing was read: "
_NO_ROOM = f"{_NOT_READ}there is no room left in the prompt. Answer from what you have."
_FENCE = "```"
_MAX_LISTED = 20
_LISTED_CHARS = 120
_MAX_ID_CHARS = 64
_MAX_REMARK_CHARS: Final = 200
"""A longer text is no remark beside a call, but the beginning of the answer: it is passed on as it comes."""


class ContextRead(BaseModel):
    """One read of a stored output by the model that answers.

    Attributes:
        pointer_id: Which output, as the model asked; "" if it named none.
        args: The arguments of the call; empty if they could not be read.
        tokens: Tokens of what the model got.
        problem: Why nothing was read, as the model was told; else "".
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    pointer_id: str
    args: dict[str, Any]
    tokens: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _ReadCall:
    """A read as the model asks for it; `args` is None if they are not one JSON object."""

    id: str
    name: str
    args: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ReadOffer:
    """The offer to read stored outputs.

    Attributes:
        load: Loads the session's results and nothing else.
        name: The name under which the model calls.
        max_reads: Most reads of an answer.
        native: Whether the model calls natively; else its reply is the call as JSON.
    """

    load: LoadsPayload
    name: str
    max_reads: int
    native: bool

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The tool as the API takes it; () where the model does not call natively."""
        if not self.native:
            return ()
        tool = ReadBackTool(self.load, name=self.name)
        facts = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        return ({"type": "function", "function": facts},)

    @property
    def instructions(self) -> str:
        """How to call by JSON, for the system's text; "" where the model calls natively."""
        if self.native:
            return ""
        tool = ReadBackTool(self.load, name=self.name)
        described = signature(tool.name, tool.description, tool.parameters)
        return _JSON_FORM.format(max_reads=self.max_reads, name=self.name, signature=described)

    def added_to(
        self, bundle: PromptBundle, unread: "Unread", *, reserve_tokens: int
    ) -> PromptBundle:
        """The bundle with the offer, in a budget that leaves room to read."""
        limit = max(bundle.budget.max_input_tokens - reserve_tokens, 0)
        update = {
            "budget": bundle.budget.model_copy(update={"max_input_tokens": limit}),
            "tools_json_schema": stable_json(list(self.tools)) if self.tools else None,
            "system": "\n\n".join(filter(None, [bundle.system, self.instructions])),
            "context_docs": [unread.listing(self.name), *bundle.context_docs],
        }
        return bundle.model_copy(update=update)

    def calls_of(self, turn: AnswerTurn, *, number: int) -> list[_ReadCall]:
        """The calls of a turn, of which the first has that number; none if it is the answer."""
        if self.native:
            read = read_native_calls(list(turn.calls))["calls"]
            ids = [
                call.get("id") or f"call_{place}"
                for place, call in enumerate(turn.calls, start=number)
            ]
            return [
                _ReadCall(
                    str(each),
                    str(facts["tool"]),
                    facts["args"] if isinstance(facts["args"], dict) else None,
                )
                for each, facts in zip(ids, read, strict=True)
            ]
        if not turn.text.startswith(("{", _FENCE)):
            return []
        try:
            found: dict[str, Any] = extract_json(turn.text)
        except MalformedReplyError:
            return [_ReadCall("", self.name, None)] if f'"{self.name}"' in turn.text else []
        named, args = (
            found.get("tool", found.get("name")),
            found.get("args", found.get("arguments")),
        )
        return [_ReadCall("", self.name, args if isinstance(args, dict) else None)] * (
            named == self.name
        )

    def holds_back(self, text: str) -> bool:
        """Whether the beginning of a turn may still belong to a call."""
        if self.native:
            return len(text) <= _MAX_REMARK_CHARS
        return text.startswith(("{", _FENCE)) or _FENCE.startswith(text)

    def asked(self, calls: Sequence[_ReadCall], turn: AnswerTurn) -> LLMMessage:
        """The calls as a message of the model, without its remarks."""
        if not self.native:
            return LLMMessage(role=MessageRole.ASSISTANT, content=turn.text)
        made = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": stable_json(call.args or {})},
            }
            for call in calls
        ]
        return LLMMessage(role=MessageRole.ASSISTANT, tool_calls=made)

    def result(self, call: _ReadCall, text: str) -> LLMMessage:
        """The message that answers a call."""
        if self.native:
            return LLMMessage(role=MessageRole.TOOL, content=text, tool_call_id=call.id)
        return LLMMessage(role=MessageRole.USER, content=text)


@dataclass(frozen=True, slots=True)
class Unread:
    """The stored outputs that a context does not show whole: those that it shows in part, then the best of the others.

    Attributes:
        ids: At most 20.
        lines: One for each of them.
        more: How many there are besides.
    """

    ids: tuple[str, ...]
    lines: tuple[str, ...]
    more: int

    @classmethod
    def of(cls, context: ContextBundle, manager: ToolContextManager) -> Self:
        """Those of a session, without the ones that cannot be loaded."""
        accounts = [each for each in (*context.kept, *context.dropped) if each.kind == "output"]
        forms = {
            each.id: "lost" if each.reason == "unavailable" else each.form for each in accounts
        }
        known = {pointer.pointer_id: pointer for pointer in manager.get_all_pointers()}
        ids = [each for each in dict.fromkeys([*forms, *reversed(known)]) if each in known]
        ids = [each for each in ids if forms.get(each) not in {"whole", "lost"}]
        lines = []
        for each in ids[:_MAX_LISTED]:
            shown = (
                "not shown"
                if forms.get(each, "left_out") in {"left_out", "pointer"}
                else "shown in part"
            )
            summary = one_line(known[each].summary, max_chars=_LISTED_CHARS)
            lines.append(f"- {each} {summary}: {known[each].result_bytes or 0:,} bytes, {shown}")
        return cls(tuple(ids[:_MAX_LISTED]), tuple(lines), max(len(ids) - _MAX_LISTED, 0))

    def listing(self, reader_name: str) -> str:
        """The outputs for a prompt."""
        more = [f"and {self.more} more, which are not listed"] if self.more else []
        return "\n".join([_UNREAD.format(name=reader_name), *self.lines, *more])

    def is_named_in(self, texts: Sequence[str]) -> bool:
        """Whether one of the ids is left."""
        return any(each in text for each in self.ids for text in texts)


def takes_tools(client: SupportsChat) -> bool:
    """Whether a client's `chat_completion` takes `tools`, by its signature."""
    try:
        parameters = inspect.signature(client.chat_completion).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(each.name == "tools" or each.kind is each.VAR_KEYWORD for each in parameters)


class _HeldText:
    """Passes a text on as soon as it cannot belong to a call."""

    def __init__(self, pass_on: Callable[[str], None], offer: ReadOffer | None) -> None:
        self._pass_on = pass_on
        self._offer = offer
        self._held = ""
        self.passed = False

    def __call__(self, text: str) -> None:
        self._held += text
        if self.passed or self._offer is None or not self._offer.holds_back(self._held):
            self.release()

    def release(self) -> None:
        if self._held:
            self._pass_on(self._held)
            self._held, self.passed = "", True


class AnswerRun:
    """The calls of one answer: one budget for each prompt, one deadline for all of them.

    Args:
        client: What answers.
        model: Name at the endpoint; None takes the client's default.
        timeout_s: Seconds from now on, reads included.
        budget: Tokens of each prompt, never exceeded, and of each turn.
        counter: Counts them.
        on_text: Gets the text of the answer as it comes, if the client streams.

    Attributes:
        attempts: One record for each call.
        reads: One record for each read.
        prompt_tokens: Tokens of the largest prompt so far.
        last_prompt_tokens: Tokens of the last one.
    """

    def __init__(
        self,
        client: SupportsChat,
        *,
        model: str | None,
        timeout_s: float,
        budget: TokenBudget,
        counter: TokenCounter,
        on_text: Callable[[str], None] | None = None,
    ) -> None:
        self._client = client
        self._model = model
        self._timeout_s = timeout_s
        self._ends_at = asyncio.get_running_loop().time() + timeout_s
        self._budget = budget
        self._counter = counter
        self._meter = PromptMeter(counter)
        self._on_text = on_text
        self.attempts: list[Attempt] = []
        self.reads: list[ContextRead] = []
        self.prompt_tokens = self.last_prompt_tokens = 0

    async def text(self, messages: Sequence[LLMMessage], offer: ReadOffer | None = None) -> str:
        """The answer, after at most `offer.max_reads` reads, in at most two calls more than reads.

        After the last read the model is told to answer. If it calls again, nothing is read, and the
        tool is not offered any more.

        Raises:
            LLMError: A call failed, the time is over, or the model goes on calling.
        """
        beginning: list[str] = []
        left = offer.max_reads if offer else 0
        may_call = offer is not None
        while True:
            turn, calls, was_shown = await self._turn(messages, offer, may_call=may_call)
            if offer is None or not calls:
                return "\n\n".join([*beginning, turn.text])
            if not may_call:
                self.attempts[-1] = replace(
                    self.attempts[-1], error="malformed", reason="reads_again"
                )
                text = "The model asked to read again instead of answering; allow more reads, or use another model"
                raise MalformedReplyError(text, reason="reads_again")
            if was_shown and self._on_text is not None:
                beginning.append(turn.text)
                self._on_text("\n\n")
            exchange = await self._exchange(messages, turn, calls, offer, left=left)
            may_call = left > 0 and bool(exchange)
            left = max(left - len(calls), 0)
            messages = [*messages, *exchange]

    def refused_tools(self, error: LLMError) -> bool:
        """Whether the first call failed since the endpoint, or the client, takes no tools."""
        if len(self.attempts) != 1:
            return False
        if isinstance(error, LLMStatusError):
            return (
                not isinstance(error, LLMAuthError | LLMRateLimitError)
                and "tool" in error.body.lower()
            )
        return isinstance(error.__cause__, NotImplementedError)

    async def _turn(
        self, messages: Sequence[LLMMessage], offer: ReadOffer | None, *, may_call: bool
    ) -> tuple[AnswerTurn, list[_ReadCall], bool]:
        """The model's turn, the calls that it makes, and whether its text was passed on before its end."""
        tools = offer.tools if offer and may_call else ()
        self.last_prompt_tokens = self._tokens(messages, tools)
        self.prompt_tokens = max(self.prompt_tokens, self.last_prompt_tokens)
        holds = offer if offer and (may_call or not offer.native) else None
        held = _HeldText(self._on_text, holds) if self._on_text else None
        turn = await answer_turn(
            self._client,
            messages,
            model=self._model,
            timeout_s=self._left_s() if self.attempts else self._timeout_s,
            max_tokens=self._budget.max_output_tokens,
            attempts=self.attempts,
            tools=tools,
            on_text=held,
        )
        calls = offer.calls_of(turn, number=len(self.reads)) if offer else []
        was_shown = held is not None and held.passed
        if held is not None and not calls:
            held.release()
        return turn, calls, was_shown

    async def _exchange(
        self,
        messages: Sequence[LLMMessage],
        turn: AnswerTurn,
        calls: Sequence[_ReadCall],
        offer: ReadOffer,
        *,
        left: int,
    ) -> list[LLMMessage]:
        """The calls and their results, within the budget; [] if not even the calls fit."""
        nothing = f"{_NO_ROOM}\n{_NO_READS_LEFT}"
        exchange = [offer.asked(calls, turn), *(offer.result(call, nothing) for call in calls)]

        def room() -> int:
            return self._budget.max_input_tokens - self._tokens([*messages, *exchange], offer.tools)

        if room() < 0:
            self.reads += [self._record(call, _NO_ROOM, tokens=0) for call in calls[:left]]
            return []
        for number, call in enumerate(calls, start=1):
            if number > left:
                exchange[number] = offer.result(call, _NO_READS_LEFT)
                continue
            text, problem = await self._read(call, offer, room())
            exchange[number] = offer.result(
                call, f"{text}\n{_NO_READS_LEFT}" if number == left else text
            )
            if room() < 0:  # a problem's text may be long
                text = problem = _NO_ROOM
                exchange[number] = offer.result(call, nothing)
            self.reads.append(self._record(call, problem, tokens=count_tokens(self._counter, text)))
        return exchange

    async def _read(self, call: _ReadCall, offer: ReadOffer, room: int) -> tuple[str, str]:
        """What the model gets for a call, and why nothing was read."""
        if call.args is None:
            problem = "the arguments are not one whole JSON object. Correct the call."
        elif call.name.strip() != offer.name:
            problem = f"there is no tool of this name. Call {offer.name}."
        elif room < MIN_LIMIT_TOKENS:
            return _NO_ROOM, _NO_ROOM
        else:
            limit = min(DEFAULT_LIMIT_TOKENS, room)
            tool = ReadBackTool(
                offer.load, name=offer.name, limit_tokens=limit, counter=self._counter
            )
            try:
                async with asyncio.timeout(self._left_s()):
                    return (await tool.run(call.args)).rendered, ""
            except TimeoutError:
                raise self._late() from None
            except LLMCommonError as exc:
                problem = exc.message
        return f"{_NOT_READ}{problem}", problem

    def _record(self, call: _ReadCall, problem: str, *, tokens: int) -> ContextRead:
        named = (call.args or {}).get("pointer_id")
        pointer_id = one_line(named, max_chars=_MAX_ID_CHARS) if isinstance(named, str) else ""
        return ContextRead(
            pointer_id=pointer_id, args=call.args or {}, tokens=tokens, problem=problem
        )

    def _tokens(self, messages: Iterable[LLMMessage], tools: Sequence[dict[str, Any]]) -> int:
        described = count_tokens(self._counter, stable_json(list(tools))) if tools else 0
        return self._meter.messages(messages) + described

    def _left_s(self) -> float:
        left_s = self._ends_at - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise self._late()
        return left_s

    def _late(self) -> LLMTimeoutError:
        text = f"No answer within {self._timeout_s:g} s; raise the timeout, or use a faster model"
        return LLMTimeoutError(text, timeout_s=self._timeout_s)
