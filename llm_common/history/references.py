"""Which stored results the messages of a prompt show, and which lines refer to them.

Only the output of a call counts, and only for its own tool: a text that looks like a preview or a
reference says nothing elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from llm_common.history.message_shapes import HistoryMessage, ToolOutput, called_outputs
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.prompt_forms import (
    FramedResult,
    Reference,
    heading_name,
    read_frame,
    read_reference,
)

_TEXT_TYPES: Final = frozenset({"text", "input_text", "output_text"})


class NamedResult(NamedTuple):
    """An output that shows a stored result in part, or refers to one.

    Attributes:
        message_index: Index of its message.
        number: Its place among the outputs of its message, from 0.
        form: The part of the result, or the line that refers to it.
        is_in_view: Whether the prompt shows the result up to here, without any change.
    """

    message_index: int
    number: int
    form: FramedResult | Reference
    is_in_view: bool


def named_results(
    messages: Sequence[HistoryMessage],
    pointers: Mapping[str, ContextPointer],
    *,
    trusts_unknown: bool = False,
) -> Iterator[NamedResult]:
    """Yield the outputs that show stored results or refer to them, in the order of the prompt.

    Args:
        messages: The messages of a prompt.
        pointers: The stored results by id, which tell whether a preview was changed since.
        trusts_unknown: Whether the preview of a result without a pointer here is taken as it is,
            since the result may have expired.
    """
    in_view: set[str] = set()
    for output in called_outputs(messages):
        text = _text_of(output.output)
        form = read_frame(text) or read_reference(text)
        # An output without its call may be of any tool.
        if form is None or any(heading_name(call.name) != form.tool_name for call in output.calls):
            continue
        is_in_view = form.pointer_id in in_view
        if isinstance(form, FramedResult):
            pointer = pointers.get(form.pointer_id)
            is_in_view = trusts_unknown
            if pointer is not None:
                is_in_view = form.is_of(pointer)
            # Changes say nothing without the result with which they are compared.
            if form.earlier_id is not None and form.earlier_id not in in_view:
                is_in_view = False
            if is_in_view:
                in_view.add(form.pointer_id)
        yield NamedResult(output.message_index, output.number, form, is_in_view)


def has_references(messages: Sequence[HistoryMessage]) -> bool:
    """Return whether an output refers to a result further up."""
    return any(isinstance(result.form, Reference) for result in named_results(messages, {}))


def with_true_references(
    messages: Sequence[HistoryMessage],
    history: Sequence[HistoryMessage],
    pointers: Mapping[str, ContextPointer],
) -> list[HistoryMessage]:
    """Replace the lines of a prompt that refer to a result which is not in view any more.

    Args:
        messages: The messages of the prompt.
        history: The whole history.
        pointers: The stored results, by id.
    """
    # A text that only looks like a reference names no result of this conversation.
    known_ids = {*pointers}
    for result in named_results(history, pointers):
        if isinstance(result.form, FramedResult):
            known_ids.add(result.form.pointer_id)
    corrected = [*messages]
    for result in named_results(messages, pointers, trusts_unknown=True):
        form = result.form
        if isinstance(form, Reference) and not result.is_in_view and form.pointer_id in known_ids:
            message = corrected[result.message_index]
            corrected[result.message_index] = message.with_output(
                result.number, form.without_result
            )
    return corrected


def _text_of(output: ToolOutput) -> str:
    """Return an output that is a text, or one block of text. Others become an empty text."""
    value = output.value
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 1:
        block = value[0]
        if isinstance(block, Mapping) and block.get("type") in _TEXT_TYPES:
            return str(block.get("text"))
    return value if isinstance(value, str) else ""
