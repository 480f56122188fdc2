"""`HistoryMessage`: what folding reads of a message of OpenAI, Anthropic or `LLMMessage`.

OpenAI's chat completions put calls in `tool_calls` and each output in a message of the role `tool`;
Anthropic's messages put both in blocks of the content, `tool_use` and `tool_result`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, takewhile
from typing import Any, Final

from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.tokens import TokenCounter, message_tokens
from llm_common.text.canonical import stable_json, to_plain
from llm_common.text.display import printable

Message = LLMMessage | Mapping[str, Any]
"""An `LLMMessage`, or a dict as the SDKs of OpenAI and Anthropic take it."""

_OUTPUT_ROLES: Final = frozenset({"tool", "function"})
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_ROLES: Final = _OUTPUT_ROLES | _SYSTEM_ROLES | {"user", "assistant"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a message makes; `args` as a dict, or as the text that the model wrote."""

    call_id: str
    name: str
    args: object


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a call gave, as the model sees it: a text, or a list of blocks."""

    call_id: str
    value: object

    @property
    def text(self) -> str:
        """The value as one text."""
        return self.value if isinstance(self.value, str) else stable_json(self.value)


@dataclass(frozen=True)
class HistoryMessage:
    """A message, and what folding reads of it.

    Attributes:
        raw: The message as it was given; never changed.
        data: Its fields as plain data: the SDKs' own objects in a dict, such as a `ToolUseBlock`,
            count as dicts.
        number: Its place in the history, from 1.
    """

    raw: Message
    data: Mapping[str, Any]
    number: int

    @property
    def role(self) -> str:
        """Who speaks."""
        return str(self.data["role"])

    @cached_property
    def text(self) -> str:
        """What the message says, without calls and outputs."""
        content = self.data.get("content")
        if self.role in _OUTPUT_ROLES:
            return ""
        if isinstance(content, str):
            return content
        return "\n".join(
            str(block["text"]) for block in self._blocks if isinstance(block.get("text"), str)
        )

    @cached_property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls that the message makes."""
        calls: list[ToolCall] = []
        for call in self.data.get("tool_calls") or ():
            function = None
            if isinstance(call, Mapping):
                function = call.get("function") or call.get("custom")
            if isinstance(function, Mapping):
                args = function.get("arguments", function.get("input"))
                calls.append(ToolCall(str(call.get("id") or ""), str(function.get("name")), args))
        legacy = self.data.get("function_call")
        if isinstance(legacy, Mapping):
            name = str(legacy.get("name"))
            calls.append(ToolCall(f"function {name}", name, legacy.get("arguments")))
        uses = self._blocks_of("tool_use")
        calls += [
            ToolCall(str(use.get("id")), str(use.get("name")), use.get("input")) for use in uses
        ]
        return tuple(calls)

    @cached_property
    def outputs(self) -> tuple[ToolOutput, ...]:
        """The outputs of calls that the message holds."""
        if self.role == "function":
            call_id = f"function {self.data.get('name')}"
            return (ToolOutput(call_id, self.data.get("content")),)
        if self.role in _OUTPUT_ROLES:
            # Some servers give every call the id "", or none.
            call_id = str(self.data.get("tool_call_id") or "")
            return (ToolOutput(call_id, self.data.get("content")),)
        results = self._blocks_of("tool_result")
        return tuple(
            ToolOutput(str(result.get("tool_use_id")), result.get("content")) for result in results
        )

    @property
    def _blocks(self) -> list[Mapping[str, Any]]:
        content = self.data.get("content")
        blocks: list[Mapping[str, Any]] = []
        for block in content if isinstance(content, list) else ():
            if isinstance(block, str):
                blocks.append({"type": "text", "text": block})
            elif isinstance(block, Mapping):
                blocks.append(block)
        return blocks

    def _blocks_of(self, kind: str) -> list[Mapping[str, Any]]:
        return [block for block in self._blocks if block.get("type") == kind]

    @property
    def is_asked(self) -> bool:
        """Whether the user speaks, by a text or an image, and does not only return outputs."""
        is_said = bool(self.text) or any(
            block.get("type") not in ("text", "tool_result") for block in self._blocks
        )
        return self.role == "user" and is_said

    def tokens(self, counter: TokenCounter) -> int:
        """What the message takes in a prompt, its marks included."""
        return message_tokens(self.data, lambda text: counter.count(printable(text)))

    def with_outputs(self, texts: Mapping[str, str]) -> "HistoryMessage":
        """Return the message with other outputs, by the ids of their calls."""
        if self.role in _OUTPUT_ROLES:
            return self.with_content(texts[self.outputs[0].call_id])
        content: list[Mapping[str, Any]] = []
        for block in self._blocks:
            call_id = str(block.get("tool_use_id"))
            is_replaced = block.get("type") == "tool_result" and call_id in texts
            content.append({**block, "content": texts[call_id]} if is_replaced else block)
        return self.with_content(content)

    def with_text(self, text: str) -> "HistoryMessage":
        """Return the message with one text for all of its texts.

        Its other blocks, such as images, stay.
        """
        content: list[Mapping[str, Any]] = []
        is_placed = has_other_blocks = False
        for block in self._blocks:
            if not isinstance(block.get("text"), str):
                has_other_blocks = True
                content.append(block)
            elif not is_placed:
                is_placed = True
                content.append({**block, "text": text})
        return self.with_content(content if has_other_blocks else text)

    def with_content(self, content: object) -> "HistoryMessage":
        """The message with another content, in the same shape."""
        if isinstance(self.raw, LLMMessage):
            raw: Message = self.raw.model_copy(update={"content": content})
        else:
            raw = {**self.raw, "content": content}
        return HistoryMessage(raw, {**self.data, "content": content}, self.number)


def read_messages(messages: Sequence[Message]) -> list[HistoryMessage]:
    """Return the messages, each with its place.

    Raises:
        TypeError: One is neither an `LLMMessage` nor a dict with a known role.
        UnserialisableError: JSON cannot stand for a message.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise TypeError(
            f"messages is a {type(messages).__name__}; pass a list of messages, oldest first"
        )
    return [_read(raw, number) for number, raw in enumerate(messages, 1)]


def _read(raw: object, number: int) -> HistoryMessage:
    if isinstance(raw, LLMMessage):
        return HistoryMessage(raw, raw.model_dump(mode="json", exclude_none=True), number)
    if not isinstance(raw, Mapping):
        raise TypeError(
            f"message {number} is a {type(raw).__name__}; pass an LLMMessage or a dict with role "
            f"and content"
        )
    if raw.get("role") not in _ROLES:
        raise TypeError(
            f"message {number} has no role that is known; pass one of {', '.join(sorted(_ROLES))}"
        )
    if not isinstance(raw.get("content"), str | list | None):
        raise TypeError(
            f"the content of message {number} is a {type(raw['content']).__name__}; pass a text "
            f"or a list of blocks"
        )
    data = {
        name: value if isinstance(value, str) else to_plain(value) for name, value in raw.items()
    }
    return HistoryMessage(raw, data, number)


def newest_first(messages: Sequence[Message]) -> Iterator[HistoryMessage]:
    """Yield the messages from the newest on; reads no more of them than are taken.

    Raises:
        TypeError: If one is neither an `LLMMessage` nor a dict with a known role.
    """
    for number in range(len(messages), 0, -1):
        yield _read(messages[number - 1], number)


def last_question(messages: Sequence[Message]) -> str:
    """Return what the user said last, or an empty text."""
    for message in newest_first(messages):
        if message.role == "user" and message.text:
            return message.text
    return ""


def newest_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of the newest message that makes any."""
    for message in newest_first(messages):
        if message.calls:
            return message.calls
    return ()


def calls_of(messages: Sequence[Message]) -> list[ToolCall]:
    """Return every call of the conversation, newest message first."""
    return [call for message in newest_first(messages) for call in message.calls]


def user_message(text: str, like: Message) -> Message:
    """Return a message of the user, in the shape of another message."""
    if isinstance(like, LLMMessage):
        return LLMMessage(role=MessageRole.USER, content=text)
    return {"role": "user", "content": text}


def in_units(
    messages: Sequence[HistoryMessage],
) -> tuple[list[HistoryMessage], list[list[HistoryMessage]]]:
    """Return the system messages at the head, and the others in units.

    A unit is one message, or all from a call to its output. It is kept or folded together, so no
    output is ever without its call.
    """
    head = [*takewhile(lambda message: message.role in _SYSTEM_ROLES, messages)]
    units: list[list[HistoryMessage]] = []
    unit_of_call: dict[str, int] = {}  # the last unit that makes a call, by the id of the call
    for message in messages[len(head) :]:
        numbers = [unit_of_call.get(output.call_id, -1) for output in message.outputs]
        number = max(numbers, default=-1)
        if number < 0:
            number = len(units)
        units[number:] = [[*chain(*units[number:]), message]]
        for unit_message in units[number]:
            for call in unit_message.calls:
                unit_of_call[call.call_id] = number
    return head, units
