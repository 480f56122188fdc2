"""Server-sent events of a chat completion, read as they arrive and joined to one reply.

The format of the events is https://html.spec.whatwg.org/multipage/server-sent-events.html, section
9.2.6, that of the chunks https://platform.openai.com/docs/api-reference/chat-streaming.
"""

import asyncio
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from typing import Any, Final

import httpx
import orjson

from llm_common.core.http.external_errors import reported_error
from llm_common.core.http.transport import (
    bad_encoding,
    deadline_at,
    raw_chunks,
    read_body,
    too_large,
)
from llm_common.core.http.wire import (
    dict_or_empty,
    first_choice,
    malformed_reply,
    read_payload,
    text_or_empty,
)
from llm_common.errors import LLMConnectionError, LLMError

_DONE: Final = b"[DONE]"
# A handshake with TLS takes about as long, so a longer wait for a body's end would save nothing.
_END_S: Final = 0.05
_TEXTS: Final = ("content", "refusal")


class EventReader:
    """A parser of server-sent events, whose borders need not be those of the chunks.

    The time is linear in the length of the body.

    Args:
        max_bytes: Maximum size of the whole body.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._read_bytes = 0
        self._line = bytearray()
        self._data: list[bytes] = []
        self._after_return = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that end in a chunk.

        Raises:
            MalformedReplyError: `too_large`.
        """
        self._read_bytes += len(chunk)
        if self._read_bytes > self._max_bytes:
            raise too_large(self._max_bytes)
        # A line feed that belongs to the carriage return at the end of the previous chunk.
        if self._after_return and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_return = False
        self._after_return = self._after_return or chunk.endswith(b"\r")
        lines = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = []
        for line in lines[:-1]:
            self._line += line
            events += self._end_line(bytes(self._line))
            self._line.clear()
        self._line += lines[-1]
        return events

    def _end_line(self, line: bytes) -> list[bytes]:
        if line:
            name, _, value = line.partition(b":")
            # The format allows a byte order mark before the first line.
            if name.removeprefix(BOM_UTF8) == b"data":
                self._data.append(value.removeprefix(b" "))
            # Other lines are comments, or fields that chat completions do not use.
            return []
        if not self._data:
            return []
        event = b"\n".join(self._data)
        self._data.clear()
        return [event]


class StreamedReply:
    """A reply that arrives in pieces.

    Attributes:
        is_done: Whether the end of the stream was received.
        whole: The reply of an endpoint that does not stream, or None.
    """

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish_reason: str | None = None
        self.is_done = False
        self.whole: dict[str, Any] | None = None

    @property
    def has_begun(self) -> bool:
        """Return whether any part of an answer was received."""
        return bool(self._message or self._calls)

    def add(self, event: bytes) -> str:
        """Add an event, and return its text, or "" for none.

        Raises:
            LLMStatusError: If the endpoint reports an error in the middle of its answer.
            MalformedReplyError: `bad_json`, `not_an_object` or `bad_tool_calls`.
        """
        if event == _DONE:
            self.is_done = True
            return ""
        try:
            chunk = orjson.loads(event)
        except orjson.JSONDecodeError as exc:
            raise malformed_reply("contains an event that is not JSON", "bad_json") from exc
        if not isinstance(chunk, dict):
            raise malformed_reply("contains an event that is not a JSON object", "not_an_object")
        if chunk.get("error"):
            raise reported_error(chunk["error"])
        # OpenAI reports the usage in the last chunk, which has no choices.
        for name in ("id", "model", "usage"):
            if chunk.get(name):
                self._fields[name] = chunk[name]
        choice = first_choice(chunk)
        if choice.get("index", 0) != 0:  # a second answer, for a request with `n`
            return ""
        if isinstance(choice.get("finish_reason"), str):
            self._finish_reason = choice["finish_reason"]
        return self._add_delta(dict_or_empty(choice.get("delta")))

    def _add_delta(self, delta: Mapping[str, Any]) -> str:
        for name in _TEXTS:
            if isinstance(piece := delta.get(name), str):
                # Joined at the end, since a str that grows with each piece takes quadratic time.
                self._message.setdefault(name, []).append(piece)
        pieces = delta.get("tool_calls") or []
        if not isinstance(pieces, list):
            raise malformed_reply("contains tool calls that are not a list", "bad_tool_calls")
        for piece in pieces:
            if isinstance(piece, dict):
                self._add_call(piece)
        return text_or_empty(delta.get("content"))

    def _add_call(self, piece: Mapping[str, Any]) -> None:
        piece_of_function = dict_or_empty(piece.get("function"))
        index = self._index_of(piece, starts_call=bool(piece_of_function.get("name")))
        call = self._calls.setdefault(index, {"type": "function"})
        if call_id := text_or_empty(piece.get("id")):
            call["id"] = call_id
        function = call.setdefault("function", {"name": "", "arguments": []})
        function["name"] = function["name"] or str(piece_of_function.get("name") or "")
        function["arguments"].append(str(piece_of_function.get("arguments") or ""))

    def _index_of(self, piece: Mapping[str, Any], *, starts_call: bool) -> int:
        """Return the index of the call that a piece belongs to."""
        # Some endpoints send no index, or the same one for every call.
        index = piece.get("index")
        next_index = max(self._calls, default=-1) + 1
        if not isinstance(index, int):
            if starts_call or not self._calls:
                return next_index
            return next_index - 1
        call_id, piece_id = self._calls.get(index, {}).get("id"), text_or_empty(piece.get("id"))
        if call_id and piece_id and piece_id != call_id:
            return next_index
        return index

    def payload(self) -> dict[str, Any]:
        """Return the reply that the endpoint would have sent without a stream.

        Raises:
            LLMConnectionError: If the stream ended before the answer did.
        """
        if self.whole is not None:
            return self.whole
        # Some endpoints close the stream after the finish reason, without `[DONE]`.
        if not (self.is_done or self._finish_reason):
            raise LLMConnectionError("the stream ended before the answer was whole; try again")
        message: dict[str, Any] = {name: "".join(pieces) for name, pieces in self._message.items()}
        if self._calls:
            message["tool_calls"] = []
            for _, call in sorted(self._calls.items()):
                arguments = "".join(call["function"]["arguments"])
                function = call["function"] | {"arguments": arguments}
                message["tool_calls"].append(call | {"function": function})
        choice = {"message": message, "finish_reason": self._finish_reason}
        return {**self._fields, "choices": [choice]}

    def set_whole(self, payload: Mapping[str, Any]) -> str:
        """Set the reply of an endpoint that does not stream, and return its text."""
        if payload.get("error"):
            raise reported_error(payload["error"])
        self.whole = dict(payload)
        message = dict_or_empty(first_choice(payload).get("message"))
        return text_or_empty(message.get("content"))


async def read_stream(
    reply: httpx.Response,
    parts: StreamedReply,
    *,
    max_bytes: int,
    deadline: float,
    timeout_s: float,
) -> AsyncGenerator[str, None]:
    """Yield the texts of an answer as they arrive.

    At the end `parts` contains the whole reply.

    Args:
        reply: An open reply with status 200. A body of plain JSON is an answer in one piece.
        parts: Reply that every event is added to.
        max_bytes: Maximum size of the body.
        deadline: Time in seconds on the loop's clock.
        timeout_s: The caller's deadline in seconds, for the text of an error.

    Raises:
        LLMTimeoutError: If the deadline passed.
        LLMConnectionError: If the connection broke.
        LLMStatusError: If the endpoint reports an error in its stream.
        MalformedReplyError: `too_large`, `bad_encoding`, or as from `StreamedReply.add` and
            `read_payload`.
    """
    content_type = reply.headers.get("content-type", "")
    if not content_type.lower().startswith("text/event-stream"):
        async with deadline_at(deadline, timeout_s=timeout_s):
            body = await read_body(reply, max_bytes=max_bytes)
        if text := parts.set_whole(read_payload(body, content_type=content_type)):
            yield text
        return
    if reply.headers.get("content-encoding", "identity").strip().lower() not in {"identity", ""}:
        raise bad_encoding("the stream has a content encoding that was not requested")
    reader, chunks = EventReader(max_bytes=max_bytes), raw_chunks(reply)
    while not parts.is_done:
        # Around one chunk at a time: a cancel scope must not span the yield below.
        async with deadline_at(deadline, timeout_s=timeout_s):
            chunk = await anext(chunks, None)
        if chunk is None:
            return
        for event in reader.feed(chunk):
            if text := parts.add(event):
                yield text
    # The body ends a moment after its last event. Only then can the connection be used again.
    with suppress(LLMError):
        end = min(deadline, asyncio.get_running_loop().time() + _END_S)
        async with deadline_at(end, timeout_s=timeout_s):
            await anext(chunks, None)
