"""Parts of a stored result for a page: all of a small one in pages of lines, of a large one some bytes at a time."""

import os
import stat
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import orjson

from llm_common.errors import StoreError
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.records import blob_key
from llm_common.pointers.store import ContextPointerStore
from llm_common.storage import FileBlobStore
from llm_common.text.canonical import decode_json

View = Literal["pretty", "stored"]

MAX_WHOLE_BYTES: Final = 4_000_000
"""A larger result is never loaded whole."""

PART_CHARS: Final = 20_000
"""About so many characters are on a page."""

_MAX_LINE_CHARS: Final = 2 * PART_CHARS
_MAX_INDENT_CHARS: Final = 50_000_000  # 4 MB of lists of numbers at the 250th level would take 1 GB
_UTF8_TAIL: Final = 0b1000_0000, 0b1100_0000


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A part of a result.

    Attributes:
        text: What the page shows.
        number: Which part it is, from 1.
        count: How many there are.
        place: Where it lies, in words.
        form: What the text is, in words.
    """

    text: str
    number: int
    count: int
    place: str
    form: str


def read_part(
    store: ContextPointerStore,
    files: FileBlobStore,
    pointer: ContextPointer,
    *,
    view: View,
    number: int,
    line: int = 0,
) -> ShownPart:
    """A part of the pointer's result; the nearest one where there is none of this number.

    Args:
        store: Where it is.
        files: The store's blobs.
        pointer: Its pointer.
        view: `pretty` indents JSON, `stored` shows the bytes as they are.
        number: Which part, from 1.
        line: The part that holds this line, from 1; 0 goes by the number. Large results have no
            lines.

    Raises:
        PointerNotFoundError: There is no such result.
        CorruptPointerError: It is not what was saved.
        StoreError: It cannot be read.
    """
    if (pointer.result_bytes or 0) > MAX_WHOLE_BYTES:
        return _range(store, files, pointer, number)
    _, payload = store.load_payload(pointer.pointer_id, query_id=pointer.query_id)
    text, form = (
        (payload.decode("utf-8", "replace"), "as stored") if view == "stored" else _pretty(payload)
    )
    parts = _paged(text)
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + part.count("\n"))
    if line:
        number = next((place for place, end in enumerate(ends[1:], 1) if end >= line), len(parts))
    number = min(max(number, 1), len(parts))
    first, last, total = ends[number - 1] + 1, ends[number] + (number == len(parts)), ends[-1] + 1
    return ShownPart(
        parts[number - 1],
        number,
        len(parts),
        f"Lines {first:,} to {max(first, last):,} of {total:,}",
        form,
    )


def _pretty(payload: bytes) -> tuple[str, str]:
    value: object = decode_json(payload)
    form = "JSON, indented"
    if isinstance(value, str):
        inner = _embedded(value)
        if inner is None:
            return value, "a text"
        value, form = inner, "a text that holds JSON, indented"
    if _count_indent_chars(value) > _MAX_INDENT_CHARS:
        return payload.decode("utf-8", "replace"), "as stored: indented it would be too long"
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode(), form
    except TypeError:
        # a number over 64 bits, half a surrogate pair, or more levels than orjson takes
        return payload.decode("utf-8", "replace"), "as stored: it cannot be indented"


def _count_indent_chars(value: object) -> int:
    """How many spaces the value takes when each of its parts is on a line, by two for each level."""
    total, depth, level = 0, 0, [value]
    while level and total <= _MAX_INDENT_CHARS:
        total += 2 * depth * len(level)
        depth += 1
        inner = (
            part.values() if isinstance(part, dict) else part
            for part in level
            if isinstance(part, dict | list)
        )
        level = [*chain.from_iterable(inner)]
    return total


def _embedded(text: str) -> object:
    """The JSON object or list that a text holds; None if it holds none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value


def _paged(text: str) -> list[str]:
    """The text in parts that end at line ends, where lines are not far longer than a part."""
    parts, start = [], 0
    while len(text) - start > PART_CHARS:
        end = text.find("\n", start + PART_CHARS, start + _MAX_LINE_CHARS) + 1 or start + PART_CHARS
        parts.append(text[start:end])
        start = end
    return [*parts, text[start:]]


def _range(
    store: ContextPointerStore, files: FileBlobStore, pointer: ContextPointer, number: int
) -> ShownPart:
    """Some stored bytes, cut between characters; the rest of the result stays on the disk."""
    total = pointer.result_bytes or 0
    count = -(-total // PART_CHARS)
    number = min(max(number, 1), count)
    start = (number - 1) * PART_CHARS
    path = files.base_dir / blob_key(pointer.query_id, store.records.result_names(pointer)[0])
    data, found = _read_range(path, start=start, length=PART_CHARS + 3)
    if found != total:
        raise StoreError(
            f"The result of {pointer.pointer_id} has {found:,} bytes in place of {total:,}; "
            "check the store with `llm-common context verify`"
        )
    end = min(start + PART_CHARS, total)
    cut = data[_tail_bytes(data) if start else 0 : PART_CHARS + _tail_bytes(data[PART_CHARS:])]
    place = f"Bytes {start + 1:,} to {end:,} of {total:,}"
    return ShownPart(
        cut.decode("utf-8", "replace"),
        number,
        count,
        place,
        "as stored, not compared with its digest",
    )


def _read_range(path: Path, *, start: int, length: int) -> tuple[bytes, int]:
    """Some bytes of a regular file, and how many it has; follows no link.

    Raises:
        StoreError: There is no such file, or it cannot be read.
    """
    try:
        with ExitStack() as opened:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            opened.callback(os.close, folder)
            file = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            opened.callback(os.close, file)
            status = os.fstat(file)
            return (
                (os.pread(file, length, start), status.st_size)
                if stat.S_ISREG(status.st_mode)
                else (b"", 0)
            )
    except OSError as exc:
        raise StoreError(
            f"{path.name} cannot be read ({exc.strerror}); check the store with `llm-common context verify`"
        ) from exc


def _tail_bytes(data: bytes) -> int:
    """How many bytes at the beginning belong to a character before it."""
    marker, mask = _UTF8_TAIL
    return next(
        (place for place, byte in enumerate(data[:4]) if byte & mask != marker), min(len(data), 3)
    )
