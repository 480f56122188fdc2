"""Which stored results the messages of a prompt show, and which lines refer to them.

Only the output of a call counts, and only for its own tool: a text that looks like a preview or a
reference says nothing elsewhere.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from llm_common.history.message_shapes import HistoryMessage, ToolOutput
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.prompt_forms import (
    FramedResult,
    Reference,
    heading_name,
    read_frame,
    read_reference,
)

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})


class NamedOutput(NamedTuple):
    """An output with its text, and the name of the tool that was called.

    Attributes:
        output: The output.
        number: Its place among the outputs of its message, from 0.
        text: Its text. That of an output in one block of text is the text of this block.
        tool_name: The tool, as headings have it. None if no message has the call, and "" if calls
            of several tools share its id.
    """

    output: ToolOutput
    number: int
    text: str
    tool_name: str | None

    @property
    def reference(self) -> Reference | None:
        """Return what the output refers to, or None."""
        reference = read_reference(self.text)
        if reference is None or self.tool_name not in (reference.tool_name, None):
            return None
        return reference

    @property
    def frame(self) -> FramedResult | None:
        """Return the result of which the output shows a part, or None."""
        frame = read_frame(self.text)
        if frame is None or self.tool_name not in (frame.tool_name, None):
            return None
        return frame


def named_outputs(messages: Iterable[HistoryMessage]) -> Iterator[tuple[int, NamedOutput]]:
    """Yield each output of the messages with the index of its message."""
    names: dict[str, set[str]] = {}
    for index, message in enumerate(messages):
        for call_id in {call.call_id for call in message.calls}:
            names.pop(call_id, None)  # some servers use an id again in the next message
        for call in message.calls:
            names.setdefault(call.call_id, set()).add(heading_name(call.name))
        for number, output in enumerate(message.outputs):
            tools = names.get(output.call_id)
            tool_name = None
            if tools is not None:
                tool_name = next(iter(tools)) if len(tools) == 1 else ""
            yield index, NamedOutput(output, number, _text_of(output), tool_name)


def _text_of(output: ToolOutput) -> str:
    value = output.value
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        block = value[0]
        if isinstance(block, Mapping) and block.get("type") in _TEXT_TYPES:
            return str(block.get("text"))
    # Text alone is read. Writing other values as JSON would take time for nothing.
    return value if isinstance(value, str) else ""


def has_references(messages: Iterable[HistoryMessage]) -> bool:
    """Return whether an output refers to a result further up."""
    return any(output.reference is not None for _, output in named_outputs(messages))


class ResultsInView:
    """The ids of the results that the messages so far show.

    A preview shows its result. Changes show theirs if the result with which they are compared is in
    view before them.

    Args:
        pointers: The stored pointers by id, which tell whether a preview was changed since.
        has_all: Whether a result without a pointer here counts as changed. False takes the preview
            of such a result as it is, since it may have expired.
    """

    def __init__(self, pointers: Mapping[str, ContextPointer], *, has_all: bool) -> None:
        self._pointers = pointers
        self._has_all = has_all
        self.ids: set[str] = set()

    def add(self, output: NamedOutput) -> str | None:
        """Read one more output, in the order of the prompt, and return the id that it shows."""
        frame = output.frame
        if frame is None or (frame.earlier_id is not None and frame.earlier_id not in self.ids):
            return None
        pointer = self._pointers.get(frame.pointer_id)
        is_shown = not self._has_all if pointer is None else frame.is_of(pointer)
        if not is_shown:
            return None
        self.ids.add(frame.pointer_id)
        return frame.pointer_id
