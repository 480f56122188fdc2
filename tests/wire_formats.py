"""Read a host's request to a model, and write the answer, in the four formats that hosts speak.

`chat` is OpenAI's chat completions, `responses` OpenAI's responses, `messages` Anthropic's, and
`contents` Gemini's.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Event = tuple[str, Json]
"""The name of a server-sent event, empty where the format has none, and what it carries."""

_USAGE = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}


@dataclass(frozen=True)
class ListedTool:
    """A tool in a request. Codex puts the tools of one server into a namespace."""

    name: str
    namespace: str | None
    definition: Json


@dataclass(frozen=True)
class UserText:
    """A text of the user, or of the host in the user's name."""

    text: str


@dataclass(frozen=True)
class ToolResult:
    """What a host shows its model of a tool's result."""

    call_id: str
    text: str


@dataclass(frozen=True)
class ModelRequest:
    """A request in the words that all formats share."""

    wire_format: str
    body: Json
    tools: tuple[ListedTool, ...]
    turns: tuple[UserText | ToolResult, ...]
    images: int

    @property
    def text(self) -> str:
        """All texts of the request, also those of the host's own instructions."""
        return "\n".join(_texts(self.body))


@dataclass(frozen=True)
class Say:
    """An answer in words, which ends the host's turn."""

    text: str


@dataclass(frozen=True)
class ToolCall:
    """A call of a listed tool."""

    call_id: str
    tool: ListedTool
    arguments: Mapping[str, Any]


def wire_format_of(path: str) -> str | None:
    """Return the format that a URL path stands for, None if it is not asked for an answer."""
    for ending, name in (
        ("/chat/completions", "chat"),
        ("/responses", "responses"),
        ("/messages", "messages"),
        (":generateContent", "contents"),
        (":streamGenerateContent", "contents"),
    ):
        if path.partition("?")[0].endswith(ending):
            return name
    return None


def read_request(wire_format: str, body: Json) -> ModelRequest:
    """Return a request in the words that all formats share."""
    entries = body[_ENTRIES[wire_format]]
    turns: list[UserText | ToolResult] = []
    for entry in entries:
        turns.extend(_TURNS[wire_format](entry))
    return ModelRequest(
        wire_format=wire_format,
        body=body,
        tools=tuple(_tools(body)),
        turns=tuple(turns),
        images=_count_images(entries),
    )


def write_answer(request: ModelRequest, answer: Say | ToolCall) -> tuple[Json, list[Event]]:
    """Return an answer twice: as one document, and as the events of a stream."""
    return _ANSWERS[request.wire_format](str(request.body.get("model")), answer)


def _tools(body: Json) -> Iterator[ListedTool]:
    definitions = list(body.get("tools") or ())
    if isinstance(body.get("input"), list):
        for entry in body["input"]:  # Codex finds deferred tools in the middle of a conversation
            definitions.extend(entry.get("tools") or ())
    for definition in definitions:
        if definition.get("type") == "namespace":
            for member in definition["tools"]:
                yield ListedTool(member["name"], definition["name"], member)
            continue
        if "functionDeclarations" in definition:
            for member in definition["functionDeclarations"]:
                yield ListedTool(member["name"], None, member)
            continue
        function = definition.get("function", definition)
        yield ListedTool(function.get("name") or definition["type"], None, definition)


def _text(content: object) -> str:
    """Return the text of a content, which is a text or a list of blocks."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(block.get("text") or block.get("tool_name") or "" for block in content)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from _texts(member)


def _count_images(value: object) -> int:
    """Return the number of images anywhere in a request."""
    if isinstance(value, Mapping):
        own = value.get("type") in {"image", "image_url", "input_image"} or "inlineData" in value
        return own + sum(_count_images(member) for member in value.values())
    if isinstance(value, list):
        return sum(_count_images(member) for member in value)
    return 0


def _turns_of_chat(entry: Json) -> Iterator[UserText | ToolResult]:
    if entry["role"] == "user":
        yield UserText(_text(entry["content"]))
    if entry["role"] == "tool":
        yield ToolResult(entry["tool_call_id"], _text(entry["content"]))


def _turns_of_responses(entry: Json) -> Iterator[UserText | ToolResult]:
    if entry.get("role") == "user":
        yield UserText(_text(entry["content"]))
    if str(entry.get("type")).endswith("_output"):
        shown = entry.get("output") or json.dumps(entry.get("tools"))
        yield ToolResult(entry["call_id"], _text(shown))


def _turns_of_messages(entry: Json) -> Iterator[UserText | ToolResult]:
    if entry["role"] != "user":
        return
    if isinstance(entry["content"], str):
        yield UserText(entry["content"])
        return
    for block in entry["content"]:
        if block["type"] == "tool_result":
            yield ToolResult(block["tool_use_id"], _text(block.get("content")))
        elif block["type"] == "text":
            yield UserText(block["text"])


def _turns_of_contents(entry: Json) -> Iterator[UserText | ToolResult]:
    if entry.get("role") != "user":
        return
    for part in entry["parts"]:
        if "functionResponse" in part:
            response = part["functionResponse"]
            yield ToolResult(response["id"], "\n".join(_texts(response["response"])))
        elif "text" in part:
            yield UserText(part["text"])


def _answer_in_chat(model: str, answer: Say | ToolCall) -> tuple[Json, list[Event]]:
    if isinstance(answer, Say):
        message: Json = {"role": "assistant", "content": answer.text}
        finish = "stop"
    else:
        function = {"name": answer.tool.name, "arguments": json.dumps(answer.arguments)}
        call = {"index": 0, "id": answer.call_id, "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        finish = "tool_calls"
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": 0, "model": model}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    whole = {"index": 0, "message": message, "finish_reason": finish}
    document = {**head, "object": "chat.completion", "choices": [whole], "usage": usage}

    chunk = {**head, "object": "chat.completion.chunk"}
    first = {"index": 0, "delta": message, "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": finish}
    return document, [
        ("", {**chunk, "choices": [first]}),
        ("", {**chunk, "choices": [last], "usage": usage}),
    ]


def _answer_in_responses(_model: str, answer: Say | ToolCall) -> tuple[Json, list[Event]]:
    item: Json = {"id": f"item_{uuid.uuid4().hex}", "status": "completed"}
    if isinstance(answer, Say):
        text = {"type": "output_text", "text": answer.text, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [text]}
    elif answer.tool.name == "tool_search":  # arguments are a document here, not a text
        item |= {"type": "tool_search_call", "execution": "client"}
        item |= {"call_id": answer.call_id, "arguments": answer.arguments}
    else:
        item |= {"type": "function_call", "call_id": answer.call_id, "name": answer.tool.name}
        item |= {"arguments": json.dumps(answer.arguments)}
        if answer.tool.namespace:
            item |= {"namespace": answer.tool.namespace}

    head = {"id": f"resp_{uuid.uuid4().hex}", "object": "response"}
    document = {**head, "status": "completed", "output": [item], "usage": _USAGE}
    begun = {**head, "status": "in_progress", "output": []}
    return document, [
        _event("response.created", response=begun),
        _event("response.output_item.added", output_index=0, item=item),
        _event("response.output_item.done", output_index=0, item=item),
        _event("response.completed", response=document),
    ]


def _answer_in_messages(model: str, answer: Say | ToolCall) -> tuple[Json, list[Event]]:
    if isinstance(answer, Say):
        block: Json = {"type": "text", "text": answer.text}
        begun: Json = {"type": "text", "text": ""}
        delta: Json = {"type": "text_delta", "text": answer.text}
        stop = "end_turn"
    else:
        block = {"type": "tool_use", "id": answer.call_id, "name": answer.tool.name}
        begun = {**block, "input": {}}
        block = {**block, "input": answer.arguments}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer.arguments)}
        stop = "tool_use"
    usage = {"input_tokens": 100, "output_tokens": 10}
    document: Json = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant"}
    document |= {"model": model, "content": [block], "stop_reason": stop, "usage": usage}
    document |= {"stop_sequence": None}
    opening = {**document, "content": [], "stop_reason": None}
    ending = {"stop_reason": stop, "stop_sequence": None}
    return document, [
        _event("message_start", message=opening),
        _event("content_block_start", index=0, content_block=begun),
        _event("content_block_delta", index=0, delta=delta),
        _event("content_block_stop", index=0),
        _event("message_delta", delta=ending, usage=usage),
        _event("message_stop"),
    ]


def _answer_in_contents(model: str, answer: Say | ToolCall) -> tuple[Json, list[Event]]:
    if isinstance(answer, Say):
        part: Json = {"text": answer.text}
    else:
        call = {"id": answer.call_id, "name": answer.tool.name, "args": answer.arguments}
        part = {"functionCall": call}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    document = {
        "candidates": [{"content": content, "finishReason": "STOP", "index": 0}],
        "usageMetadata": usage,
        "modelVersion": model,
        "responseId": uuid.uuid4().hex,
    }
    return document, [("", document)]


def _event(name: str, **fields: Any) -> Event:
    return name, {"type": name, **fields}


_ENTRIES = {
    "chat": "messages",
    "responses": "input",
    "messages": "messages",
    "contents": "contents",
}
_TURNS = {
    "chat": _turns_of_chat,
    "responses": _turns_of_responses,
    "messages": _turns_of_messages,
    "contents": _turns_of_contents,
}
_ANSWERS = {
    "chat": _answer_in_chat,
    "responses": _answer_in_responses,
    "messages": _answer_in_messages,
    "contents": _answer_in_contents,
}
