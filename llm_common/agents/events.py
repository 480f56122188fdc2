"""The events of a run: typed for the caller, and small for a browser."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from llm_common.agents.answering import Answer
from llm_common.agents.session.offloading import Offloaded, text_of
from llm_common.errors import UnserialisableError
from llm_common.pointers.reading import ContextReading
from llm_common.redaction.redactor import DEFAULT_REDACTOR
from llm_common.text.canonical import Json
from llm_common.text.display import printable

_MAX_PREVIEW_BYTES: Final = 4_096


class _Unchecked:
    """Makes pydantic keep a value as it is: the same object, neither checked nor copied."""

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.any_schema()


_UNCHECKED = _Unchecked()


class ToolCallData(TypedDict):
    """A chosen call, and the id of its task."""

    tool: str
    args: dict[str, Any]
    task: int


class ToolResultData(ToolCallData):
    """The output of a successful call.

    Attributes:
        output: What the tool returned, or an `Offloaded` with its preview.
        saved: Whether the output is stored.
        pointer_id: The id that reads the output back. Missing if it was not saved.
        save_error: Why the output was not saved.
        resumed: Set if a resumed run did not repeat the call.
    """

    output: Any
    saved: NotRequired[bool]
    pointer_id: NotRequired[str]
    save_error: NotRequired[str]
    resumed: NotRequired[bool]


class ErrorData(TypedDict):
    """A failed call, save or choice, a refused call, or a limit that ends the run.

    Attributes:
        error: What went wrong, without secrets.
        task: The id of the task.
        tool: The tool of the call.
        args: The arguments of a failed call.
        reason: The reason of a refused call, as in its `DroppedCall`.
        status: The status of a choice that failed.
        limit: Set if a limit ends the run.
        output: The `ToolResult` of a tool that returned a failure.
        saved: Whether that result is stored.
        pointer_id: The id that reads that result back.
        save_error: Why that result was not saved.
    """

    error: str
    task: int
    tool: NotRequired[str]
    args: NotRequired[dict[str, Any]]
    reason: NotRequired[str]
    status: NotRequired[str]
    limit: NotRequired[bool]
    output: NotRequired[Any]
    saved: NotRequired[bool]
    pointer_id: NotRequired[str]
    save_error: NotRequired[str]


class StreamEvent(BaseModel):
    """An event of a run.

    A stream yields the subclasses, so a type checker knows `data` after `event.type` was compared.

    The data of each type:

    - `thinking`: the text of a task that begins, or whose calls are chosen again.
    - `tool_call`: `tool`, `args` and `task` of a chosen call. A task's calls come before its first
      result.
    - `tool_result`: `tool`, `args`, `task`, `output`, `saved` and `pointer_id` of a successful
      call. `resumed` is set if a resumed run did not repeat the call.
    - `text`: a sentence about a task that needs no tools.
    - `error`: `error`, a text, and `task`. A failed call adds `tool` and `args`, and a failed save
      adds `tool`. A refused call adds the `tool` and `reason` of its `DroppedCall`. A limit that
      ends the run adds `limit`.
    - `sources`: the list of sources, if it is not empty, after the last task.
    - `answer_delta`: the new text of the answer.
    - `answer`: the `Answer`, at the end of `answer_stream`.

    Attributes:
        type: The type of the event.
        data: The data of that type.
    """

    model_config = ConfigDict(frozen=True)

    type: Literal[
        "thinking", "tool_call", "tool_result", "text", "sources", "error", "answer_delta", "answer"
    ]
    data: Any

    def to_sse(self) -> str:
        """Return the event for a browser, as one server-sent event with JSON as its data.

        An output is sent as its `pointer_id`, its `total_chars` and a `preview` of at most 4 KB,
        redacted like a stored output. The text of an answer is whole, without the outputs that it
        rests on. Never raises, whatever a tool returned.
        """
        send = _SENDS.get(self.type)
        data = self.data if send is None else send(self.data)
        # JSON escapes line breaks, which would end the event.
        line = printable(json.dumps(data, ensure_ascii=False, default=str))
        return f"event: {self.type}\ndata: {line}\n\n"


class ThinkingEvent(StreamEvent):
    """A task begins, or chooses its calls again."""

    type: Literal["thinking"] = "thinking"
    data: str


class ToolCallEvent(StreamEvent):
    """A call was chosen."""

    type: Literal["tool_call"] = "tool_call"
    data: Annotated[ToolCallData, _UNCHECKED]


class ToolResultEvent(StreamEvent):
    """A call succeeded."""

    type: Literal["tool_result"] = "tool_result"
    data: Annotated[ToolResultData, _UNCHECKED]


class TextEvent(StreamEvent):
    """A task needs no tools."""

    type: Literal["text"] = "text"
    data: str


class SourcesEvent(StreamEvent):
    """The sources of the outputs."""

    type: Literal["sources"] = "sources"
    data: Annotated[list[dict[str, str]], _UNCHECKED]


class ErrorEvent(StreamEvent):
    """Something failed, and the run continues or ends."""

    type: Literal["error"] = "error"
    data: Annotated[ErrorData, _UNCHECKED]


class AnswerDeltaEvent(StreamEvent):
    """A new text of the answer."""

    type: Literal["answer_delta"] = "answer_delta"
    data: str


class AnswerEvent(StreamEvent):
    """The answer."""

    type: Literal["answer"] = "answer"
    data: Annotated[Answer, _UNCHECKED]


RunEvent = (
    ThinkingEvent
    | ToolCallEvent
    | ToolResultEvent
    | TextEvent
    | SourcesEvent
    | ErrorEvent
    | AnswerDeltaEvent
    | AnswerEvent
)
"""Every event of a run, discriminated by `type`."""


def _sent_call(data: Mapping[str, Any]) -> dict[str, object]:
    """Return the data of a call for a browser, with a preview in place of the output."""
    sent = {name: value for name, value in data.items() if name != "output"}
    if "args" in sent:
        sent["args"] = _redacted_args(data["args"])
    if "output" in data:
        text, sent["total_chars"] = _text_and_size(data["output"])
        redacted = DEFAULT_REDACTOR.beginning(text, max_chars=_MAX_PREVIEW_BYTES)
        # A character may have four bytes.
        preview = printable(redacted).encode()[:_MAX_PREVIEW_BYTES]
        sent["preview"] = preview.decode(errors="ignore")
    return sent


def _redacted_args(args: Mapping[str, Any]) -> Json:
    try:
        return DEFAULT_REDACTOR.args(args)
    except UnserialisableError:  # from a subclass, since a model can only write JSON
        return {name: type(value).__name__ for name, value in args.items()}


def _text_and_size(output: object) -> tuple[str, int]:
    """Return the text of an output, and the characters of the whole output."""
    if isinstance(output, Offloaded | ContextReading):
        return output.text, output.total_chars
    try:
        text = text_of(output)
    except UnserialisableError:  # the store refused it as well, and `save_error` says so
        return f"a {type(output).__name__} without a JSON form", 0
    return text, len(text)


def _sent_answer(answer: Answer) -> dict[str, object]:
    """Return an answer for a browser, without the outputs and the context of its prompt."""
    return {
        "text": answer.text,
        "status": answer.status,
        "problem": answer.problem,
        "notes": answer.notes,
        "failures": answer.failures,
        "reads": [read.pointer_id for read in answer.reads],
        "prompt_tokens": answer.prompt_tokens,
        "total_tokens": answer.usage.total_tokens,
        "cost_usd": answer.cost_usd,
    }


_SENDS: Final[Mapping[str, Callable[[Any], object]]] = {
    "tool_call": _sent_call,
    "tool_result": _sent_call,
    "error": _sent_call,
    "answer": _sent_answer,
}
