"""Read a request to a model, and write the answer, in the four formats that are spoken.

`chat` is OpenAI's chat completions, `responses` OpenAI's responses, `messages` Anthropic's, and
`contents` Gemini's. A request is read into the shape of chat completions, whatever its format.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Event = tuple[str, Json]
"""The name of a server-sent event, empty where the format has none, and what it carries."""


@dataclass(frozen=True)
class ListedTool:
    """A tool in a request. Codex puts the tools of one server into a namespace."""

    name: str
    namespace: str | None = None
    schema: Any = None


@dataclass(frozen=True)
class ToolCall:
    """A call of a listed tool."""

    call_id: str
    tool: ListedTool
    arguments: Mapping[str, Any]


Answer = str | Sequence[ToolCall]
"""Words, which end the turn of a host, or calls."""


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


def messages_of(wire_format: str, body: Json) -> list[Json]:
    """Return the messages of a request, with a message for each result of a tool."""
    key, read = _READERS[wire_format]
    return [message for entry in body[key] for message in read(entry)]


def tools_of(body: Json) -> Iterator[ListedTool]:
    """Return the tools that a request offers."""
    definitions = list(body.get("tools") or ())
    if isinstance(body.get("input"), list):
        for entry in body["input"]:  # Codex finds deferred tools in the middle of a conversation
            definitions.extend(entry.get("tools") or ())
    for definition in definitions:
        namespace = None
        members = definition.get("functionDeclarations", [definition.get("function", definition)])
        if definition.get("type") == "namespace":
            namespace, members = definition["name"], definition["tools"]
        for member in members:
            schemas = (member.get(key) for key in _SCHEMAS)
            name = member.get("name") or member["type"]
            yield ListedTool(name, namespace, next(filter(None, schemas), None))


def text_of(content: Any) -> str:
    """Return the text of a message's content, which is a text or a list of blocks."""
    if isinstance(content, str):
        return content
    texts = []
    for block in content or ():
        texts.append(text_of(block.get("text") or block.get("tool_name") or block.get("content")))
    return "\n".join(texts)


def texts_in(value: object) -> Iterator[str]:
    """Return all texts of a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from texts_in(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts_in(member)


def write_answer(wire_format: str, model: str, answer: Answer) -> tuple[Json, list[Event]]:
    """Return an answer twice: as one document, and as the events of a stream."""
    text, calls = (answer, ()) if isinstance(answer, str) else (None, answer)
    return _WRITERS[wire_format](model, text, calls)


def _read_chat(entry: Json) -> Iterator[Json]:
    yield entry


def _read_responses(entry: Json) -> Iterator[Json]:
    if str(entry.get("type")).endswith("_output"):
        shown = entry.get("output") or json.dumps(entry.get("tools"))
        yield {"role": "tool", "tool_call_id": entry["call_id"], "content": shown}
    elif "role" in entry:
        yield entry


def _read_messages(entry: Json) -> Iterator[Json]:
    content = entry["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks:
        if block["type"] == "tool_result":
            result = {"tool_call_id": block["tool_use_id"], "content": block.get("content")}
            yield {"role": "tool", **result}
        else:
            yield {"role": entry["role"], "content": [block]}


def _read_contents(entry: Json) -> Iterator[Json]:
    role = "assistant" if entry.get("role") == "model" else "user"
    for part in entry["parts"]:
        if call := part.get("functionCall"):
            yield {"role": role, "content": None, "tool_calls": [call]}
        elif result := part.get("functionResponse"):
            text = "\n".join(texts_in(result["response"]))
            yield {"role": "tool", "tool_call_id": result.get("id"), "content": text}
        else:
            yield {"role": role, "content": part.get("text", "")}


def _write_chat(
    model: str, text: str | None, calls: Sequence[ToolCall]
) -> tuple[Json, list[Event]]:
    message: Json = {"role": "assistant", "content": text}
    deltas = [message]
    if calls:
        listed = []
        for index, call in enumerate(calls):
            function = {"name": call.tool.name, "arguments": json.dumps(call.arguments)}
            named = {"id": call.call_id, "type": "function", "function": function}
            listed.append({"index": index, **named})
        # One call a chunk, as OpenAI sends them.
        deltas += [{"tool_calls": [call]} for call in listed]
        message = {**message, "tool_calls": listed}
    finish = "tool_calls" if calls else "stop"
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": 0, "model": model}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    whole = {"index": 0, "message": message, "finish_reason": finish}
    document = {**head, "object": "chat.completion", "choices": [whole], "usage": usage}

    chunk = {**head, "object": "chat.completion.chunk"}
    events: list[Event] = []
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        events.append(("", {**chunk, "choices": [choice]}))
    last = {"index": 0, "delta": {}, "finish_reason": finish}
    events.append(("", {**chunk, "choices": [last], "usage": usage}))
    return document, events


def _write_responses(
    _model: str, text: str | None, calls: Sequence[ToolCall]
) -> tuple[Json, list[Event]]:
    item: Json = {"id": f"item_{uuid.uuid4().hex}", "status": "completed"}
    if text is not None:
        content = {"type": "output_text", "text": text, "annotations": []}
        item |= {"type": "message", "role": "assistant", "content": [content]}
    for call in calls:  # the hosts of this format get one at a time
        item |= {"call_id": call.call_id}
        if call.tool.name == "tool_search":  # arguments are a document here, not a text
            item |= {"type": "tool_search_call", "execution": "client"}
            item |= {"arguments": call.arguments}
        else:
            item |= {"type": "function_call", "name": call.tool.name}
            item |= {"arguments": json.dumps(call.arguments)}
        if call.tool.namespace:
            item |= {"namespace": call.tool.namespace}

    head = {"id": f"resp_{uuid.uuid4().hex}", "object": "response"}
    usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    document = {**head, "status": "completed", "output": [item], "usage": usage}
    begun = {**head, "status": "in_progress", "output": []}
    return document, [
        _event("response.created", response=begun),
        _event("response.output_item.added", output_index=0, item=item),
        _event("response.output_item.done", output_index=0, item=item),
        _event("response.completed", response=document),
    ]


def _write_messages(
    model: str, text: str | None, calls: Sequence[ToolCall]
) -> tuple[Json, list[Event]]:
    blocks: list[Json] = [] if text is None else [{"type": "text", "text": text}]
    for call in calls:
        block = {"type": "tool_use", "id": call.call_id, "name": call.tool.name}
        blocks.append({**block, "input": call.arguments})
    stop = "tool_use" if calls else "end_turn"
    usage = {"input_tokens": 100, "output_tokens": 10}
    # Claude Code joins messages with the same id.
    document: Json = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant"}
    document |= {"model": model, "content": blocks, "stop_reason": stop, "usage": usage}
    document |= {"stop_sequence": None}

    opening = {**document, "content": [], "stop_reason": None}
    events = [_event("message_start", message=opening)]
    for index, block in enumerate(blocks):
        begun: Json = {**block, "text": ""}
        delta: Json = {"type": "text_delta", "text": text}
        if calls:
            arguments = json.dumps(block["input"])
            begun = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": arguments}
        events += [
            _event("content_block_start", index=index, content_block=begun),
            _event("content_block_delta", index=index, delta=delta),
            _event("content_block_stop", index=index),
        ]
    ending = {"stop_reason": stop, "stop_sequence": None}
    events.append(_event("message_delta", delta=ending, usage=usage))
    events.append(_event("message_stop"))
    return document, events


def _write_contents(
    model: str, text: str | None, calls: Sequence[ToolCall]
) -> tuple[Json, list[Event]]:
    parts: list[Json] = [] if text is None else [{"text": text}]
    for call in calls:
        named = {"id": call.call_id, "name": call.tool.name, "args": call.arguments}
        parts.append({"functionCall": named})
    content = {"role": "model", "parts": parts}
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


# Where Anthropic, Google and OpenAI have the schema of a tool.
_SCHEMAS = ("input_schema", "parameters_json_schema", "parametersJsonSchema", "parameters")
_READERS: dict[str, tuple[str, Callable[[Json], Iterator[Json]]]] = {
    "chat": ("messages", _read_chat),
    "responses": ("input", _read_responses),
    "messages": ("messages", _read_messages),
    "contents": ("contents", _read_contents),
}
_WRITERS = {
    "chat": _write_chat,
    "responses": _write_responses,
    "messages": _write_messages,
    "contents": _write_contents,
}
