"""`shorter_form`: what a model sees instead of a preview when a call is made again.

A result that is stored already keeps its pointer. A result that differs from the last one of its
call gets a longer id. So the pointer of a saved result tells what there is to compare it with.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from llm_common.agents.session.offloading import ShorterForm
from llm_common.agents.session.saved import SavedResults, View
from llm_common.errors import StoreError
from llm_common.pointers.pointer import MIN_ID_CHARS, ContextPointer
from llm_common.pointers.prompt_forms import framed_result, reference_line
from llm_common.tables.changes import changes_between
from llm_common.text.canonical import Json, decode_json
from llm_common.text.display import one_line, printable, without_headings

_MAX_BYTES: Final = 5_000_000  # of a result that is compared, which takes half a second
_MAX_CHARS: Final = 20_000  # of the changes, far more than a preview has
_LINE_CHARS: Final = 200

_log = logging.getLogger(__name__)


def shorter_form(
    results: SavedResults,
    pointer: ContextPointer,
    text: str,
    *,
    is_text: bool,
    view: View | None,
    reader_name: str,
) -> ShorterForm | None:
    """Return what may take the place of the preview of a result, or None.

    That is a line, if a preview of the same result is in the prompt. If the last result of the same
    call was another one, it is what changed since. If the prompt is known, the last result must be
    in it.

    Args:
        results: The results of the session. The call may read them.
        pointer: The pointer of the new result.
        text: The new result as text, without secrets that the store removes.
        is_text: Whether the result is a text. Otherwise it is data, which the text has as JSON.
        view: Tells which results the prompt up to the call shows. None if it is not known.
        reader_name: The tool that reads results.
    """
    is_repeat = len(pointer.pointer_id) > MIN_ID_CHARS
    if view is None and not is_repeat:
        return None
    try:
        pointers = results.results_of_call(pointer) if is_repeat else [pointer]
        in_view: Mapping[str, bool] | None = None
        if view is not None:
            in_view = view(pointers)
            if pointer.pointer_id in in_view:
                line = reference_line(pointer, total_chars=len(text), reader_name=reader_name)
                return ShorterForm("identical", line, is_asked_again=in_view[pointer.pointer_id])
        earlier = _newest_before(pointer, pointers)
        if earlier is None or (in_view is not None and earlier.pointer_id not in in_view):
            return None
        changes = _changes(results, earlier, pointer, text, is_text=is_text)
    except StoreError as exc:
        # Such as an earlier result that has expired or is damaged. A preview needs none.
        _log.info("a result was not compared with an earlier one: %s", type(exc).__name__)
        return None
    if changes is None:
        return None
    content = without_headings(printable(changes))
    summary = one_line(pointer.summary, max_chars=_LINE_CHARS)
    framed = framed_result(
        pointer,
        f"{summary}\n{content}",
        total_chars=len(text),
        reader_name=reader_name,
        earlier_id=earlier.pointer_id,
    )
    is_asked_again = in_view is not None and in_view[earlier.pointer_id]
    return ShorterForm("changed", framed, is_asked_again=is_asked_again)


def _newest_before(
    pointer: ContextPointer, pointers: Sequence[ContextPointer]
) -> ContextPointer | None:
    """Return the newest other pointer that was saved before a pointer, of pointers in order."""
    newest = None
    for other in pointers:
        if other.pointer_id != pointer.pointer_id and other.created_at <= pointer.created_at:
            newest = other
    return newest


def _changes(
    results: SavedResults,
    earlier: ContextPointer,
    pointer: ContextPointer,
    text: str,
    *,
    is_text: bool,
) -> str | None:
    """Return what differs between a stored result and a new one, or None."""
    sizes = (earlier.result_bytes, pointer.result_bytes)
    # Older versions recorded no size.
    if any(size is None or size > _MAX_BYTES for size in sizes):
        return None
    old: Json = decode_json(results.load_payload(earlier.pointer_id)[1])
    if isinstance(old, str):
        old = printable(old)
    new: Json = text if is_text else decode_json(text.encode())
    return changes_between(old, new, max_chars=_MAX_CHARS)
