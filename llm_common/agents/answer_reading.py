"""The model calls of one answer, and what the model reads back between them.

A model asks for a part of a stored output by a native tool call, or by a reply that is the call as
JSON. The call and its result are added to the conversation together, so neither is ever without the
other.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

from llm_common.agents.runs import Deadline, model_loop
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
from llm_common.tools.read_back import DEFAULT_MAX_TOKENS, LoadsPayload, ReadBackTool
from llm_common.tools.signature import signature

_JSON_FORM = """\
Before you answer you may read stored outputs, at most {max_reads} times. \
To read, reply with this JSON object alone:
{{"tool": "{name}", "args": {{"pointer_id": "<id>", "select": {{"regex": "<pattern>"}}}}}}
{signature}
Any other reply is your answer."""
_UNREAD = (
    "Stored outputs that you have not read whole. "
    "Read them with {name} and the id before you conclude:"
)
_NO_READS_LEFT = "No reads are left: answer now from what you have."
_NOT_READ = "Nothing was read: "
_NO_ROOM = f"{_NOT_READ}there is no room left in the prompt. Answer from what you have."
_FENCE = "```"
_MAX_LISTED = 20
_LISTED_CHARS = 120
_MAX_ID_CHARS = 64
# a longer text is no remark beside a call, but the beginning of the answer
_MAX_REMARK_CHARS: Final = 200


class ContextRead(BaseModel):
    """A read of a stored output by the model that answers.

    Attributes:
        pointer_id: Which output, as the model asked; "" if it named none.
        args: The arguments of the call; empty if they could not be read.
        tokens: Tokens of what the model got.
        problem: Why nothing was read, as the model was told; else "".
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    args: dict[str, Any]
    tokens: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A read as the model requests it. `args` is None if they are not one JSON object."""

    id: str
    name: str
    args: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ReadOffer:
    """An offer to read stored outputs, in the form in which the model can call.

    Attributes:
        load: Loads the session's results and nothing else.
        name: The name under which the model calls.
        max_reads: Maximum number of reads of an answer.
        native: Whether the model calls natively. Otherwise its reply is the call as JSON.
    """

    load: LoadsPayload
    name: str
    max_reads: int
    native: bool

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The tool as the API takes it, or () where the model does not call natively."""
        if not self.native:
            return ()
        tool = ReadBackTool(self.load, name=self.name)
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        return ({"type": "function", "function": function},)

    @property
    def instructions(self) -> str:
        """How to call by JSON, for the system's text, or "" where the model calls natively."""
        if self.native:
            return ""
        tool = ReadBackTool(self.load, name=self.name)
        described = signature(tool.name, tool.description, tool.parameters)
        return _JSON_FORM.format(max_reads=self.max_reads, name=self.name, signature=described)

    def added_to(
        self, bundle: PromptBundle, unread: "Unread", *, reserve_tokens: int
    ) -> PromptBundle:
        """Return the bundle with the offer, in a budget that leaves room to read."""
        limit = max(bundle.budget.max_input_tokens - reserve_tokens, 0)
        update = {
            "budget": bundle.budget.model_copy(update={"max_input_tokens": limit}),
            "tools_json_schema": stable_json(list(self.tools)) if self.tools else None,
            "system": "\n\n".join(filter(None, [bundle.system, self.instructions])),
            "context_docs": [unread.listing(self.name), *bundle.context_docs],
        }
        return bundle.model_copy(update=update)

    def calls_of(self, turn: AnswerTurn, *, number: int) -> list[ReadCall]:
        """Return the calls of a turn, the first with that number, or none if it is the answer."""
        if not self.native:
            return self._written_calls(turn.text)
        calls: list[ReadCall] = []
        for made, call in zip(
            turn.calls, read_native_calls(list(turn.calls))["calls"], strict=True
        ):
            call_id = str(made.get("id") or f"call_{number + len(calls)}")
            args = call["args"] if isinstance(call["args"], dict) else None
            calls.append(ReadCall(call_id, str(call["tool"]), args))
        return calls

    def _written_calls(self, text: str) -> list[ReadCall]:
        """Return the call that a reply is, as a list of none or one."""
        if not text.startswith(("{", _FENCE)):
            return []
        try:
            reply: dict[str, Any] = extract_json(text)
        except MalformedReplyError:
            return [ReadCall("", self.name, None)] if f'"{self.name}"' in text else []
        if reply.get("tool", reply.get("name")) != self.name:
            return []
        args = reply.get("args", reply.get("arguments"))
        return [ReadCall("", self.name, args if isinstance(args, dict) else None)]

    def may_call(self, text: str) -> bool:
        """Return whether the beginning of a turn can still belong to a call."""
        if self.native:
            return len(text) <= _MAX_REMARK_CHARS
        return text.startswith(("{", _FENCE)) or _FENCE.startswith(text)

    def call_message(self, calls: Sequence[ReadCall], turn: AnswerTurn) -> LLMMessage:
        """Return the calls as a message of the model, without its remarks."""
        if not self.native:
            return LLMMessage(role=MessageRole.ASSISTANT, content=turn.text)
        made = []
        for call in calls:
            function = {"name": call.name, "arguments": stable_json(call.args or {})}
            made.append({"id": call.id, "type": "function", "function": function})
        return LLMMessage(role=MessageRole.ASSISTANT, tool_calls=made)

    def result(self, call: ReadCall, text: str) -> LLMMessage:
        """Return the message that answers a call."""
        if self.native:
            return LLMMessage(role=MessageRole.TOOL, content=text, tool_call_id=call.id)
        return LLMMessage(role=MessageRole.USER, content=text)


@dataclass(frozen=True, slots=True)
class Unread:
    """The stored outputs that a context does not show whole.

    Those that it shows in part come first, then the best of the others.

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
        """Return those of a session, without the ones that cannot be loaded."""
        pointers = {pointer.pointer_id: pointer for pointer in manager.get_all_pointers()}
        forms: dict[str, str] = {}
        for account in (*context.kept, *context.dropped):
            if account.form == "whole" or account.reason == "unavailable":
                pointers.pop(account.id, None)
            elif account.id in pointers:
                forms[account.id] = account.form
        ids = list(dict.fromkeys([*forms, *reversed(pointers)]))
        listed = tuple(ids[:_MAX_LISTED])
        lines = []
        for pointer_id in listed:
            pointer = pointers[pointer_id]
            is_hidden = forms.get(pointer_id, "left_out") in {"left_out", "pointer"}
            part = "not shown" if is_hidden else "shown in part"
            summary = one_line(pointer.summary, max_chars=_LISTED_CHARS)
            lines.append(f"- {pointer_id} {summary}: {pointer.result_bytes or 0:,} bytes, {part}")
        return cls(listed, tuple(lines), len(ids) - len(listed))

    def listing(self, reader_name: str) -> str:
        """Return the outputs for a prompt."""
        lines = [_UNREAD.format(name=reader_name), *self.lines]
        if self.more:
            lines.append(f"and {self.more} more, which are not listed")
        return "\n".join(lines)

    def is_named_in(self, texts: Sequence[str]) -> bool:
        """Return whether one of the ids is in one of the texts."""
        return any(pointer_id in text for pointer_id in self.ids for text in texts)


def takes_tools(client: SupportsChat) -> bool:
    """Return whether a client's `chat_completion` takes `tools`, by its signature."""
    try:
        parameters = inspect.signature(client.chat_completion).parameters
    except (TypeError, ValueError):
        return False
    kinds = {parameter.kind for parameter in parameters.values()}
    return "tools" in parameters or inspect.Parameter.VAR_KEYWORD in kinds


class _HeldText:
    """Passes a text on as soon as it cannot belong to a call."""

    def __init__(self, pass_on: Callable[[str], None], offer: ReadOffer | None) -> None:
        self._pass_on = pass_on
        self._offer = offer
        self._held = ""
        self.passed = False

    def __call__(self, text: str) -> None:
        self._held += text
        if self.passed or self._offer is None or not self._offer.may_call(self._held):
            self.release()

    def release(self) -> None:
        if self._held:
            self._pass_on(self._held)
            self._held = ""
            self.passed = True


class AnswerRun:
    """An answer as a dialogue, in which the model may call `read_context` alone.

    Args:
        client: Answers.
        model: Name at the endpoint. None uses the client's default.
        timeout_s: Seconds from now on for all turns, reads included.
        budget: Tokens of each prompt, never exceeded, and of each turn.
        counter: Counts them.
        on_text: Gets the text of the answer as it comes, if the client streams.

    Attributes:
        attempts: One record for each model call.
        reads: One record for each read.
        prompt_tokens: Tokens of the largest prompt so far.
        last_prompt_tokens: Tokens of the last one.
        goes_on: Whether the model is asked again.
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
        self._deadline = Deadline(timeout_s)
        self._budget = budget
        self._counter = counter
        self._meter = PromptMeter(counter)
        self._on_text = on_text
        self.attempts: list[Attempt] = []
        self.reads: list[ContextRead] = []
        self.prompt_tokens = 0
        self.last_prompt_tokens = 0
        self.goes_on = False
        self._begin([], None)

    def _begin(self, messages: Sequence[LLMMessage], offer: ReadOffer | None) -> None:
        self._messages = list(messages)
        self._offer = offer
        self._reads_left = offer.max_reads if offer else 0
        self._may_call = offer is not None
        self._texts: list[str] = []
        self._turn = AnswerTurn("")

    async def text(self, messages: Sequence[LLMMessage], offer: ReadOffer | None = None) -> str:
        """Return the answer, after at most `offer.max_reads` reads.

        The model is asked at most twice more than it reads. After the last read it is told to
        answer. If it calls again, nothing is read, and the tool is not offered any more.

        Raises:
            LLMError: If a call failed, the time is over, or the model goes on calling.
        """
        self._begin(messages, offer)
        async with aclosing(model_loop(self, max_turns=self._reads_left + 2)) as reads:
            async for read in reads:
                self.reads.append(read)
        return "\n\n".join(self._texts)

    def refused_tools(self, error: LLMError) -> bool:
        """Return whether the first call failed since the endpoint or the client takes no tools."""
        if len(self.attempts) != 1:
            return False
        if isinstance(error, LLMAuthError | LLMRateLimitError):
            return False
        if isinstance(error, LLMStatusError):
            return "tool" in error.body.lower()
        return isinstance(error.__cause__, NotImplementedError)

    async def ask(self, _: int, /) -> Sequence[ReadCall]:
        """Ask for the model's next turn, and pass its text on as far as it is the answer's."""
        offer = self._offer
        tools = offer.tools if offer and self._may_call else ()
        self.last_prompt_tokens = self._tokens(self._messages, tools)
        self.prompt_tokens = max(self.prompt_tokens, self.last_prompt_tokens)
        held = None
        if self._on_text:
            # without the tool, a native model cannot call, while a JSON one may still try
            can_call = offer is not None and (self._may_call or not offer.native)
            held = _HeldText(self._on_text, offer if can_call else None)
        turn = await answer_turn(
            self._client,
            self._messages,
            model=self._model,
            timeout_s=self._left_s() if self.attempts else self._timeout_s,
            max_tokens=self._budget.max_output_tokens,
            attempts=self.attempts,
            tools=tools,
            on_text=held,
        )
        calls = offer.calls_of(turn, number=len(self.reads)) if offer else []
        self.goes_on = bool(calls)
        if calls and not self._may_call:
            self.attempts[-1] = replace(self.attempts[-1], error="malformed", reason="reads_again")
            text = (
                "The model asked to read again instead of answering; "
                "allow more reads, or use another model"
            )
            raise MalformedReplyError(text, reason="reads_again")
        if not calls:
            self._texts.append(turn.text)
            if held is not None:
                held.release()
        elif held is not None and held.passed and self._on_text:
            self._texts.append(turn.text)
            self._on_text("\n\n")
        self._turn = turn
        return calls

    async def run(self, calls: Sequence[ReadCall]) -> AsyncGenerator[ContextRead, None]:
        """Read for the calls of a turn, and add them with their results to the conversation.

        Calls that do not fit the budget even without results are left out.
        """
        offer = self._offer
        if offer is None or not calls:
            return
        nothing = f"{_NO_ROOM}\n{_NO_READS_LEFT}"
        exchange = [offer.call_message(calls, self._turn)]
        exchange += [offer.result(call, nothing) for call in calls]
        left = self._reads_left
        self._may_call = left > 0
        self._reads_left = max(left - len(calls), 0)
        if self._room_beside(exchange) < 0:
            self._may_call = False
            for call in calls[:left]:
                yield self._record(call, _NO_ROOM, tokens=0)
            return
        for number, call in enumerate(calls, start=1):
            if number > left:
                exchange[number] = offer.result(call, _NO_READS_LEFT)
                continue
            text, problem = await self._read(call, offer, self._room_beside(exchange))
            told = f"{text}\n{_NO_READS_LEFT}" if number == left else text
            exchange[number] = offer.result(call, told)
            if self._room_beside(exchange) < 0:  # a problem's text may be long
                text = problem = _NO_ROOM
                exchange[number] = offer.result(call, nothing)
            yield self._record(call, problem, tokens=count_tokens(self._counter, text))
        self._messages += exchange

    async def _read(self, call: ReadCall, offer: ReadOffer, room: int) -> tuple[str, str]:
        """Return what the model gets for a call, and why nothing was read."""
        if call.args is None:
            problem = "the arguments are not one whole JSON object. Correct the call."
        elif call.name.strip() != offer.name:
            problem = f"there is no tool of this name. Call {offer.name}."
        elif room < MIN_LIMIT_TOKENS:
            return _NO_ROOM, _NO_ROOM
        else:
            limit = min(DEFAULT_MAX_TOKENS, room)
            tool = ReadBackTool(
                offer.load, name=offer.name, max_tokens=limit, counter=self._counter
            )
            try:
                async with asyncio.timeout(self._left_s()):
                    return (await tool.run(call.args)).rendered, ""
            except TimeoutError:
                raise self._late() from None
            except LLMCommonError as exc:
                problem = exc.message
        return f"{_NOT_READ}{problem}", problem

    def _record(self, call: ReadCall, problem: str, *, tokens: int) -> ContextRead:
        args = call.args or {}
        named = args.get("pointer_id")
        pointer_id = one_line(named, max_chars=_MAX_ID_CHARS) if isinstance(named, str) else ""
        return ContextRead(pointer_id=pointer_id, args=args, tokens=tokens, problem=problem)

    def _room_beside(self, exchange: Sequence[LLMMessage]) -> int:
        """Return the tokens that the next prompt has left beside an exchange."""
        tools = self._offer.tools if self._offer else ()
        used = self._tokens([*self._messages, *exchange], tools)
        return self._budget.max_input_tokens - used

    def _tokens(self, messages: Iterable[LLMMessage], tools: Sequence[dict[str, Any]]) -> int:
        described = count_tokens(self._counter, stable_json(list(tools))) if tools else 0
        return self._meter.messages(messages) + described

    def _left_s(self) -> float:
        left_s = self._deadline.left_s()
        if not left_s:
            raise self._late()
        return left_s

    def _late(self) -> LLMTimeoutError:
        text = f"No answer within {self._timeout_s:g} s; raise the timeout, or use a faster model"
        return LLMTimeoutError(text, timeout_s=self._timeout_s)
