"""The model calls of one answer, with reads of stored outputs between them.

A model reads a part of a stored output by a native tool call, or by a reply that is the call as
JSON. A call and its result are added to the conversation together, since APIs reject one without
the other.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict

from llm_common.agents.runs import Deadline, model_loop
from llm_common.agents.session.session import Session
from llm_common.context import ContextBundle
from llm_common.core.extraction import as_call, extract_json
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
{{"tool": "{name}", "args": {{"id": "<id>", "pattern": "<pattern>"}}}}
{signature}
Any other reply is your answer."""
_UNREAD = (
    "Stored outputs that you have not read whole. "
    "Read them with {name} and the id before you conclude:"
)
_NO_READS_LEFT = "No reads are left: answer now from what you have."
_NOT_READ = "Nothing was read: "
_NO_ROOM = f"{_NOT_READ}there is no room left in the prompt. Answer from what you have."
_SAME_CALL = f"{_NOT_READ}this call was made before, and its result stands above. Answer from it."
_FENCE = "```"
_MAX_LISTED = 20
_LISTED_CHARS = 120
_MAX_ID_CHARS = 64  # real ids are shorter, and a model may invent any text
# Models often write a remark before a native call. A longer text is the beginning of the answer.
_MAX_REMARK_CHARS: Final = 200


class ContextRead(BaseModel):
    """A read of a stored output by the model that answers.

    Attributes:
        pointer_id: The id in the call, or "" without one.
        args: The arguments of the call, or {} if they are not valid JSON.
        tokens: Tokens of the call's result.
        problem: Why nothing was read, as the result says it, or "".
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    args: dict[str, Any]
    tokens: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A read that the model requests. `args` is None if they are not a JSON object."""

    id: str
    name: str
    args: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ReadOffer:
    """An offer to read stored outputs, in the form in which the model can call.

    Attributes:
        load: Loads the session's results and nothing else.
        name: The model's name for the tool.
        max_reads: Maximum number of reads of an answer.
        native: Whether the model calls natively. Otherwise its reply is the call as JSON.
    """

    load: LoadsPayload
    name: str
    max_reads: int
    native: bool

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """Return the tool in the form of the API, or () without native calls."""
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
        """Return how to call by JSON, for the system message, or "" with native calls."""
        if self.native:
            return ""
        tool = ReadBackTool(self.load, name=self.name)
        described = signature(tool.name, tool.description, tool.parameters)
        return _JSON_FORM.format(max_reads=self.max_reads, name=self.name, signature=described)

    def added_to(
        self, bundle: PromptBundle, unread: "Unread", *, reserve_tokens: int
    ) -> PromptBundle:
        """Return the bundle with the offer, within a budget that is smaller by the reserve."""
        limit = max(bundle.budget.max_input_tokens - reserve_tokens, 0)
        update = {
            "budget": bundle.budget.model_copy(update={"max_input_tokens": limit}),
            "tools_json_schema": stable_json(list(self.tools)) if self.tools else None,
            "system": "\n\n".join(filter(None, [bundle.system, self.instructions])),
            "context_docs": [unread.listing(self.name), *bundle.context_docs],
        }
        return bundle.model_copy(update=update)

    def calls_of(self, turn: AnswerTurn, *, first_number: int) -> list[ReadCall]:
        """Return the calls of a turn, or none if the turn is the answer.

        Calls without an id are numbered from `first_number` on.
        """
        if not self.native:
            return self._written_calls(turn.text)
        calls: list[ReadCall] = []
        parsed_calls = read_native_calls(list(turn.calls))["calls"]
        for native_call, call in zip(turn.calls, parsed_calls, strict=True):
            # Some servers send no ids, and the result of a call needs one.
            call_id = str(native_call.get("id") or f"call_{first_number + len(calls)}")
            args = call["args"] if isinstance(call["args"], dict) else None
            calls.append(ReadCall(call_id, str(call["tool"]), args))
        return calls

    def _written_calls(self, text: str) -> list[ReadCall]:
        """Return the call that a whole reply consists of, in a list, or no call."""
        # The instructions ask for the JSON alone, so prose before it makes the reply an answer.
        if not text.startswith(("{", _FENCE)):
            return []
        try:
            reply: dict[str, Any] = extract_json(text)
        except MalformedReplyError:
            # With the tool's name it is a broken call, and not an answer in JSON.
            return [ReadCall("", self.name, None)] if f'"{self.name}"' in text else []
        # Some models write the keys of native calls instead: `name` and `arguments`.
        call = as_call(reply)
        if call["name"] != self.name:
            return []
        args = call["arguments"] if isinstance(call["arguments"], dict) else None
        return [ReadCall("", self.name, args)]

    def may_call(self, text: str) -> bool:
        """Return whether the beginning of a turn can still belong to a call."""
        if self.native:
            return len(text) <= _MAX_REMARK_CHARS
        # The backticks of a fence may come one at a time.
        return text.startswith(("{", _FENCE)) or _FENCE.startswith(text)

    def call_message(self, calls: Sequence[ReadCall], turn: AnswerTurn) -> LLMMessage:
        """Return the calls as a message of the model, without its remarks."""
        if not self.native:
            return LLMMessage(role=MessageRole.ASSISTANT, content=turn.text)
        tool_calls = []
        for call in calls:
            function = {"name": call.name, "arguments": stable_json(call.args or {})}
            tool_calls.append({"id": call.id, "type": "function", "function": function})
        return LLMMessage(role=MessageRole.ASSISTANT, tool_calls=tool_calls)

    def result(self, call: ReadCall, text: str) -> LLMMessage:
        """Return the message that answers a call."""
        if self.native:
            return LLMMessage(role=MessageRole.TOOL, content=text, tool_call_id=call.id)
        return LLMMessage(role=MessageRole.USER, content=text)


@dataclass(frozen=True, slots=True)
class Unread:
    """The stored outputs that a prompt's context does not have whole.

    Outputs in parts come first, then the newest of the hidden outputs.

    Attributes:
        ids: The ids of the first 20 outputs.
        lines: A line for each id.
        more: Number of further outputs.
    """

    ids: tuple[str, ...]
    lines: tuple[str, ...]
    more: int

    @classmethod
    def of(cls, context: ContextBundle, session: Session) -> Self:
        """Return the unread outputs of a session, except those that cannot be loaded."""
        pointers = {pointer.pointer_id: pointer for pointer in session.results.pointers.values()}
        forms: dict[str, str] = {}
        for account in (*context.kept, *context.dropped):
            if account.form == "whole" or account.reason == "unavailable":
                pointers.pop(account.id, None)
            elif account.id in pointers:
                forms[account.id] = account.form
        # A dict keeps the first place of a repeated id.
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
        """Return the list of outputs for a prompt."""
        lines = [_UNREAD.format(name=reader_name), *self.lines]
        if self.more:
            lines.append(f"and {self.more} more, which are not listed")
        return "\n".join(lines)


class _TextBuffer:
    """Buffers the text of a turn until it cannot be a call any more."""

    def __init__(self, on_text: Callable[[str], None], offer: ReadOffer | None) -> None:
        self._on_text = on_text
        self._offer = offer
        self._buffer = ""
        self.is_open = False

    def __call__(self, text: str) -> None:
        self._buffer += text
        if self.is_open or self._offer is None or not self._offer.may_call(self._buffer):
            self.flush()

    def flush(self) -> None:
        if self._buffer:
            self._on_text(self._buffer)
            self._buffer = ""
            self.is_open = True


class AnswerRun:
    """An answer as a dialogue, in which the model can only call the reader.

    Args:
        client: The client of the model.
        model: Name at the endpoint. None takes the client's default.
        timeout_s: Seconds from now for all turns and reads.
        budget: Maximum tokens of each prompt, and of each turn.
        counter: Counts tokens.
        on_text: Called with each new text of the answer, if the client streams.

    Attributes:
        attempts: The model calls.
        reads: The reads between them.
        prompt_tokens: Tokens of the largest prompt so far.
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
        self.goes_on = False
        self._begin([], None)

    def _begin(self, messages: Sequence[LLMMessage], offer: ReadOffer | None) -> None:
        self._messages = list(messages)
        self._offer = offer
        self._reads_left = offer.max_reads if offer else 0
        self._may_call = offer is not None
        self._texts: list[str] = []
        self._turn = AnswerTurn("")
        self._read_calls: set[str] = set()

    async def text(self, messages: Sequence[LLMMessage], offer: ReadOffer | None = None) -> str:
        """Return the answer, after at most `offer.max_reads` reads.

        The result of the last read asks the model to answer. If it calls again, nothing is read and
        the tool is not offered any more. So there are at most two turns more than reads.

        Raises:
            LLMError: If a model call fails, the time is over, or the model does not stop calling.
        """
        self._begin(messages, offer)
        async with aclosing(model_loop(self, max_turns=self._reads_left + 2)) as reads:
            async for read in reads:
                self.reads.append(read)
        return "\n\n".join(self._texts)

    def refused_tools(self, error: LLMError) -> bool:
        """Return whether the first call failed because endpoint or client has no native tools."""
        if len(self.attempts) != 1:
            return False  # the endpoint accepted the tools before
        # Without tools these requests would fail as well.
        if isinstance(error, LLMAuthError | LLMRateLimitError):
            return False
        if isinstance(error, LLMStatusError):
            # Endpoints share no error code for this, but their texts name the parameter.
            return "tool" in error.body.lower()
        return isinstance(error.__cause__, NotImplementedError)

    async def ask(self, _: int, /) -> Sequence[ReadCall]:
        """Ask for the model's next turn, and report its text as far as it belongs to the answer."""
        offer = self._offer
        tools = offer.tools if offer and self._may_call else ()
        self.prompt_tokens = max(self.prompt_tokens, self._tokens(self._messages, tools))
        buffer = None
        if self._on_text:
            # Without the tool a native call is impossible, but a reply in JSON may still be a call.
            can_call = offer is not None and (self._may_call or not offer.native)
            buffer = _TextBuffer(self._on_text, offer if can_call else None)
        turn = await answer_turn(
            self._client,
            self._messages,
            model=self._model,
            timeout_s=self._left_s() if self.attempts else self._timeout_s,
            max_tokens=self._budget.max_output_tokens,
            attempts=self.attempts,
            tools=tools,
            on_text=buffer,
        )
        calls: list[ReadCall] = []
        if offer is not None:
            calls = offer.calls_of(turn, first_number=len(self.reads))
        self.goes_on = bool(calls)
        if calls and not self._may_call:
            # The reply itself was valid, so its attempt was recorded as a success.
            self.attempts[-1] = replace(self.attempts[-1], error="malformed", reason="reads_again")
            text = (
                "The model asked to read again instead of answering; "
                "allow more reads, or use another model"
            )
            raise MalformedReplyError(text, reason="reads_again")
        if not calls:
            self._texts.append(turn.text)
            if buffer is not None:
                buffer.flush()
        elif buffer is not None and buffer.is_open and self._on_text:
            # The caller has seen this text already, so it is a part of the answer.
            self._texts.append(turn.text)
            # As `text` joins the turns, so that the joined deltas are the answer.
            self._on_text("\n\n")
        self._turn = turn
        return calls

    async def run(self, calls: Sequence[ReadCall]) -> AsyncGenerator[ContextRead, None]:
        """Read for the calls of a turn, and add calls and results to the conversation.

        If the calls exceed the budget even without results, they are left out.
        """
        offer = self._offer
        if offer is None or not calls:
            return
        # The result of every call is set to the shortest one first, so that each read knows how
        # many tokens it can have.
        shortest = f"{_NO_ROOM}\n{_NO_READS_LEFT}"
        exchange = [offer.call_message(calls, self._turn)]
        exchange += [offer.result(call, shortest) for call in calls]
        reads_left = self._reads_left
        self._may_call = reads_left > 0
        self._reads_left = max(reads_left - len(calls), 0)
        if self._tokens_after(exchange) < 0:
            self._may_call = False
            for call in calls[:reads_left]:
                yield self._record(call, _NO_ROOM, tokens=0)
            return
        for index, call in enumerate(calls, start=1):  # the first message has the calls
            if index > reads_left:
                # APIs reject a call without a result, so a call above the limit gets one too.
                exchange[index] = offer.result(call, _NO_READS_LEFT)
                continue
            text, problem = await self._read(call, offer, self._tokens_after(exchange))
            is_last = index == reads_left
            exchange[index] = offer.result(call, f"{text}\n{_NO_READS_LEFT}" if is_last else text)
            if self._tokens_after(exchange) < 0:  # the text of a problem may be long
                text = problem = _NO_ROOM
                exchange[index] = offer.result(call, shortest)
            elif not problem:
                self._read_calls.add(stable_json(call.args))
            yield self._record(call, problem, tokens=count_tokens(self._counter, text))
        self._messages += exchange

    async def _read(self, call: ReadCall, offer: ReadOffer, max_tokens: int) -> tuple[str, str]:
        """Return the result of a call, and why nothing was read, or ""."""
        if call.args is None:
            problem = "the arguments are not one whole JSON object. Correct the call."
        elif call.name.strip() != offer.name:
            problem = f"no tool has this name. Call {offer.name}."
        elif stable_json(call.args) in self._read_calls:
            return _SAME_CALL, _SAME_CALL
        elif max_tokens < MIN_LIMIT_TOKENS:
            return _NO_ROOM, _NO_ROOM
        else:
            limit = min(DEFAULT_MAX_TOKENS, max_tokens)
            # A new tool for each read, since its limit is what the prompt has left.
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
        pointer_id = args.get("id", args.get("pointer_id"))
        if not isinstance(pointer_id, str):
            pointer_id = ""
        pointer_id = one_line(pointer_id, max_chars=_MAX_ID_CHARS)
        return ContextRead(pointer_id=pointer_id, args=args, tokens=tokens, problem=problem)

    def _tokens_after(self, exchange: Sequence[LLMMessage]) -> int:
        """Return the tokens that the next prompt has left after an exchange."""
        tools = self._offer.tools if self._offer else ()
        used = self._tokens([*self._messages, *exchange], tools)
        return self._budget.max_input_tokens - used

    def _tokens(self, messages: Iterable[LLMMessage], tools: Sequence[dict[str, Any]]) -> int:
        tokens = self._meter.messages(messages)
        if tools:
            tokens += count_tokens(self._counter, stable_json(list(tools)))
        return tokens

    def _left_s(self) -> float:
        left_s = self._deadline.left_s()
        if not left_s:
            raise self._late()
        return left_s

    def _late(self) -> LLMTimeoutError:
        text = f"No answer within {self._timeout_s:g} s; raise the timeout, or use a faster model"
        return LLMTimeoutError(text, timeout_s=self._timeout_s)
