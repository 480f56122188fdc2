"""`HistoryMessage`: one view of the messages of OpenAI, of Anthropic, and of `LLMMessage`.

OpenAI's chat completions put calls in `tool_calls`, and each output in a message of the role
`tool`. Anthropic's messages put both in blocks of the content, `tool_use` and `tool_result`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple

import orjson

from llm_common._threads import computed_once
from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.tokens import TokenCounter, message_tokens, without_media
from llm_common.text.canonical import encode_json, stable_json, to_plain
from llm_common.text.display import printable

Message = LLMMessage | Mapping[str, Any]
"""An `LLMMessage`, or a dict as the SDKs of OpenAI and Anthropic accept it."""

NOTE_BEGIN: Final = "Earlier messages are folded away: "
"""The beginning of the note about folded messages."""
PINS_BEGIN: Final = "The application has pinned what follows. It holds in the whole conversation."
"""The first line of the message with the pinned texts."""

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})
_OUTPUT_ROLES: Final = frozenset({"tool", "function"})
# OpenAI's reasoning models take `developer` in place of `system`.
_SYSTEM_ROLES: Final = frozenset({"system", "developer"})
_ROLES: Final = _OUTPUT_ROLES | _SYSTEM_ROLES | {"user", "assistant"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call in a message. `args` is a dict, or the text that the model wrote."""

    call_id: str
    name: str
    args: object

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return the arguments. Empty if the model did not finish them."""
        args = self.args
        if isinstance(args, str):
            try:
                args = orjson.loads(args)
            except orjson.JSONDecodeError:
                return {}
        return args if isinstance(args, Mapping) else {}


UNKNOWN_CALL: Final = ToolCall("", "tool", None)
"""The call of an output whose own call is lost, or may be any of several."""


def _is_text(block: object) -> bool:
    """Return whether a block of an output is a text."""
    return (
        isinstance(block, Mapping)
        and block.get("type") in _TEXT_TYPES
        and isinstance(block.get("text"), str)
    )


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output of a call as the model sees it: a text, or a list of blocks."""

    call_id: str
    value: object

    @property
    def text(self) -> str:
        """Return the value as one text: that of its blocks, if all are of text, or JSON."""
        value = self.value
        if isinstance(value, list) and value and all(map(_is_text, value)):
            value = "\n".join(block["text"] for block in value)
        return value if isinstance(value, str) else stable_json(value)

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens of the value."""
        value, media_tokens = without_media(self.value)
        return counter.count(ToolOutput(self.call_id, value).text) + media_tokens


@dataclass(frozen=True)
class HistoryMessage:
    """A message with the properties that folding reads.

    Attributes:
        raw: The caller's message, never changed.
        data: The message's fields as plain data. Objects of the SDKs, such as a `ToolUseBlock`,
            are dicts here.
        position: Position in the history, from 1.
    """

    raw: Message
    data: Mapping[str, Any]
    position: int

    @property
    def role(self) -> str:
        """Return the role of the message."""
        return str(self.data["role"])

    @property
    def is_system(self) -> bool:
        """Return whether the message instructs the model, as system messages do."""
        return self.role in _SYSTEM_ROLES

    @property
    def is_note(self) -> bool:
        """Return whether the message is one of ours: a note or pins."""
        return self.role == "user" and self.text.startswith((NOTE_BEGIN, PINS_BEGIN))

    @computed_once
    def blocks(self) -> list[Mapping[str, Any]]:
        """Return the content as blocks. A text is one block."""
        content = self.data.get("content")
        blocks: list[Mapping[str, Any]] = []
        for item in content if isinstance(content, list) else [content]:
            if isinstance(item, str):
                blocks.append({"type": "text", "text": item})
            elif isinstance(item, Mapping):
                blocks.append(item)
        return blocks

    @computed_once
    def text(self) -> str:
        """Return the text of the message, without calls and outputs."""
        if self.role in _OUTPUT_ROLES:
            return ""
        texts = [block.get("text") for block in self.blocks]
        return "\n".join(text for text in texts if isinstance(text, str))

    @property
    def content(self) -> str:
        """Return the text of the message and of its outputs, without calls."""
        return "\n".join([self.text, *(output.text for output in self.outputs)])

    @computed_once
    def calls(self) -> tuple[ToolCall, ...]:
        """Return the calls of the message."""
        calls: list[ToolCall] = []
        for call in self.data.get("tool_calls") or ():
            function = None
            if isinstance(call, Mapping):
                # Custom tools take free text, in `input` instead of `arguments`.
                function = call.get("function") or call.get("custom")
            if isinstance(function, Mapping):
                args = function.get("arguments", function.get("input"))
                calls.append(ToolCall(str(call.get("id") or ""), str(function.get("name")), args))
        legacy = self.data.get("function_call")
        if isinstance(legacy, Mapping):
            # The oldest shape has no ids, and its output names the function instead.
            name = str(legacy.get("name"))
            calls.append(ToolCall(f"function {name}", name, legacy.get("arguments")))
        for block in self.blocks:
            if block.get("type") == "tool_use":
                name = str(block.get("name"))
                calls.append(ToolCall(str(block.get("id")), name, block.get("input")))
        return tuple(calls)

    @computed_once
    def outputs(self) -> tuple[ToolOutput, ...]:
        """Return the outputs of calls in the message."""
        if self.role in _OUTPUT_ROLES:
            # Some servers give every call the id "", or none.
            call_id = str(self.data.get("tool_call_id") or "")
            if self.role == "function":
                call_id = f"function {self.data.get('name')}"
            return (ToolOutput(call_id, self.data.get("content")),)
        outputs: list[ToolOutput] = []
        for block in self.blocks:
            if block.get("type") == "tool_result":
                outputs.append(ToolOutput(str(block.get("tool_use_id")), block.get("content")))
        return tuple(outputs)

    @property
    def is_question(self) -> bool:
        """Return whether the user wrote a text or sent an image."""
        if self.role != "user":
            return False
        # Anthropic's messages of the user also carry the outputs of tools.
        kinds = {block.get("type") for block in self.blocks}
        return bool(self.text) or not kinds <= {"text", "tool_result"}

    def tokens(self, counter: TokenCounter) -> int:
        """Return the tokens of the message in a prompt, with those around it."""
        return message_tokens(self.data, lambda text: counter.count(printable(text)))

    @property
    def media_tokens(self) -> int:
        """Return the tokens of the images, sounds and files in the message."""
        return without_media(self.data.get("content"))[1]

    @property
    def media(self) -> list[str]:
        """Return the kind and the tokens of each image, sound and file in the message."""
        media: list[str] = []
        for block in self.blocks:
            output = block.get("content")
            for part in output if isinstance(output, list) else [block]:
                tokens = without_media([part])[1]
                if tokens:
                    kind = str(part["type"]).removeprefix("input_").removesuffix("_url")
                    media.append(f"{kind}, {tokens:,} tokens")
        return media

    def with_output(self, number: int, text: str) -> "HistoryMessage":
        """Return the message with another text in place of one of its outputs, counted from 0."""
        if self.role in _OUTPUT_ROLES:
            return self.with_content(text)
        content: list[Mapping[str, Any]] = []
        outputs = 0
        for block in self.blocks:
            if block.get("type") != "tool_result":
                content.append(block)
                continue
            content.append({**block, "content": text} if outputs == number else block)
            outputs += 1
        return self.with_content(content)

    def with_text(self, text: str) -> "HistoryMessage":
        """Return the message with one text in place of its texts. Images and other blocks stay."""
        content: list[Mapping[str, Any]] = []
        is_placed = has_other_blocks = False
        for block in self.blocks:
            if not isinstance(block.get("text"), str):
                has_other_blocks = True
                content.append(block)
            elif not is_placed:
                is_placed = True
                content.append({**block, "text": text})
        return self.with_content(content if has_other_blocks else text)

    def with_content(self, content: object) -> "HistoryMessage":
        """Return the message with another content, in the same shape."""
        if isinstance(self.raw, LLMMessage):
            raw: Message = self.raw.model_copy(update={"content": content})
        else:
            raw = {**self.raw, "content": content}
        return HistoryMessage(raw, {**self.data, "content": content}, self.position)


def read_messages(messages: Sequence[Message]) -> list[HistoryMessage]:
    """Read the messages of a history, and number them.

    Raises:
        TypeError: If a message is neither an `LLMMessage` nor a dict with a known role.
        UnserialisableError: If a message cannot be written as JSON.
    """
    _check_messages(messages)
    history = [_read(raw, position) for position, raw in enumerate(messages, 1)]
    for message in history:
        fields = {name: value for name, value in message.data.items() if not isinstance(value, str)}
        encode_json(fields)  # refuses an integer that is too long for JSON
    return history


def _check_messages(messages: object) -> None:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise TypeError(
            f"messages is a {type(messages).__name__}; pass a list of messages, oldest first"
        )


def _read(raw: object, position: int) -> HistoryMessage:
    if isinstance(raw, LLMMessage):
        return HistoryMessage(raw, raw.model_dump(mode="json", exclude_none=True), position)
    if not isinstance(raw, Mapping):
        raise TypeError(
            f"message {position} is a {type(raw).__name__}; pass an LLMMessage or a dict with role "
            f"and content"
        )
    if raw.get("role") not in _ROLES:
        raise TypeError(
            f"message {position} has no known role; pass one of {', '.join(sorted(_ROLES))}"
        )
    if not isinstance(raw.get("content"), str | list | None):
        raise TypeError(
            f"the content of message {position} is a {type(raw['content']).__name__}; pass a text "
            f"or a list of blocks"
        )
    data: dict[str, Any] = {}
    for name, value in raw.items():
        # Most messages are one long text, which needs no walk.
        data[name] = value if isinstance(value, str) else to_plain(value)
    return HistoryMessage(raw, data, position)


def newest_first(messages: Sequence[Message]) -> Iterator[HistoryMessage]:
    """Yield the messages from the newest on, and read only those that are taken.

    Raises:
        TypeError: If `messages` is not a list, or a message is neither an `LLMMessage` nor a dict
            with a known role.
    """
    _check_messages(messages)
    for position in range(len(messages), 0, -1):
        yield _read(messages[position - 1], position)


def last_question(messages: Sequence[Message]) -> str:
    """Return the newest text of the user, or an empty text."""
    for message in newest_first(messages):
        if message.role == "user" and message.text:
            return message.text
    return ""


def new_message(text: str, *, like: Message) -> HistoryMessage:
    """Return a message of the user in the shape of another message.

    Its position is 0, since the messages of a history are numbered from 1.
    """
    raw: Message = {"role": "user", "content": text}
    if isinstance(like, LLMMessage):
        raw = LLMMessage(role=MessageRole.USER, content=text)
    return HistoryMessage(raw, {"role": "user", "content": text}, 0)


def in_units(
    messages: Sequence[HistoryMessage],
) -> tuple[list[HistoryMessage], list[list[HistoryMessage]]]:
    """Return the leading system messages, and the remaining messages in units.

    A unit is one message, or all messages from a call to its output. It is kept or folded together,
    since APIs reject an output without its call.
    """
    head = [*takewhile(lambda message: message.is_system, messages)]
    units: list[list[HistoryMessage]] = []
    unit_of_call: dict[str, int] = {}  # the last unit that makes a call, by the id of the call
    for message in messages[len(head) :]:
        index = len(units)
        for output in message.outputs:  # an output may have lost its call
            index = min(index, unit_of_call.get(output.call_id, index))
        # Everything since the call becomes one unit, also messages between call and output.
        units[index:] = [[*chain(*units[index:]), message]]
        for unit_message in units[index]:
            for call in unit_message.calls:
                unit_of_call[call.call_id] = index
    return head, units


class CalledOutput(NamedTuple):
    """An output of a call, with its place in a list of messages.

    Attributes:
        message_index: Index of its message.
        number: Its place among the outputs of its message, from 0.
        output: The output.
        call: Its call, or `UNKNOWN_CALL`.
        calls: The calls with its id. Several if a server gave them one id, none if they are lost.
    """

    message_index: int
    number: int
    output: ToolOutput
    call: ToolCall
    calls: Sequence[ToolCall]


def called_outputs(messages: Sequence[HistoryMessage]) -> Iterator[CalledOutput]:
    """Yield the outputs of messages with their calls.

    Some servers give all calls of a message one id, and use it again in the next message. Their
    outputs have the order of the calls.
    """
    calls_by_id: dict[str, list[ToolCall]] = {}
    answered: Counter[str] = Counter()
    for index, message in enumerate(messages):
        for call in message.calls:
            calls_by_id[call.call_id] = []
            answered[call.call_id] = 0
        for call in message.calls:
            calls_by_id[call.call_id].append(call)
        for number, output in enumerate(message.outputs):
            calls = calls_by_id.get(output.call_id, [])
            # A single call may have two outputs.
            turn = 0 if len(calls) == 1 else answered[output.call_id]
            answered[output.call_id] += 1
            call = calls[turn] if turn < len(calls) else UNKNOWN_CALL
            yield CalledOutput(index, number, output, call, calls)


def text_of(messages: Sequence[HistoryMessage]) -> str:
    """Return what a model reads of messages: texts, calls and outputs."""
    texts: list[str] = []
    for message in messages:
        texts += [*texts_of(message), *(output.text for output in message.outputs)]
    return "\n".join(texts)


def texts_of(message: HistoryMessage) -> Iterator[str]:
    """Yield the text of a message, if it has one, and its calls."""
    if message.text:
        yield message.text
    for call in message.calls:
        args = call.args if isinstance(call.args, str) else stable_json(call.args)
        yield f"{call.name} {args}"
