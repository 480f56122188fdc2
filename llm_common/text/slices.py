"""Large values as JSON, a slice at a time.

An encoder holds the interpreter's lock for as long as a call takes, in whatever thread it runs, so a large value would
stop the event loop. Slices of a millisecond or two, with a rest after each, let it breathe.

Others may change the value between two slices. So it is read twice: where both readings agree, they are what the value
was at the instant between them.
"""

import base64
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice, zip_longest
from typing import Any, NamedTuple

import orjson

from llm_common.errors import ResultTooLargeError, UnserialisableError
from llm_common.text.canonical import MAX_DEPTH, json_text, key_text, opened, to_plain

__all__ = ["changed", "encode_in_slices", "encode_whole", "inside", "too_large"]

_OURS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_SCALARS = frozenset({int, float, bool})
_COLLECTIONS: tuple[Any, ...] = (list, tuple, set, frozenset, deque)
_SLICE_ITEMS = 4_096
_SLICE_NODES = 20_000
_SLICE_CHARS = 400_000
_SPLIT = 16
_FOREIGN_NODES = 100  # what orjson refuses takes so much longer
_SLICE_BYTES = 3 << 18  # whole groups of three, so that the base64 of slices is that of the whole
_STINT_S = 0.002
_REST_S = 0.0002
_encoding = threading.Lock()  # one thread at a time: they could only take turns, and would hold their pieces meanwhile


def encode_whole(value: object) -> tuple[bytes, object, bool]:
    """The value as JSON in one step that no other thread can interrupt, what the JSON says, and whether orjson made it.

    orjson writes what it understands as `to_plain` does; `to_plain` and the standard library write the rest (longer
    integers, half surrogate pairs, foreign objects).

    Raises:
        UnserialisableError: JSON cannot stand for the value.
    """
    try:
        return orjson.dumps(value, option=_OURS), value, True
    except TypeError:
        plain = to_plain(value)
        return json_text(plain).encode("utf-8"), plain, False


def encode_in_slices(value: object, *, max_bytes: int | None) -> bytearray:
    """The value as JSON that says the same as that of `encode_whole`; for a thread beside the event loop.

    Raises:
        UnserialisableError: JSON cannot stand for the value, or it was changed meanwhile.
        ResultTooLargeError: More than `max_bytes`.
    """
    with _encoding:
        try:
            pieces = _read_twice(value, max_bytes=max_bytes)
        except RuntimeError as exc:  # of a mapping or a set that grows or shrinks
            raise changed() from exc
        whole, end = bytearray(sum(map(len, pieces))), 0
        for piece in pieces:
            whole[end : (end := end + len(piece))] = piece
        return whole


def _read_twice(value: object, *, max_bytes: int | None) -> list[bytes]:
    pieces: list[bytes] = []
    size = 0
    for piece in _rested(_slices(value)):
        size += len(piece)
        if max_bytes is not None and size > max_bytes:
            raise too_large(max_bytes)
        pieces.append(piece)
    for first, second in zip_longest(pieces, _rested(_slices(value))):
        if first != second:
            raise changed()
    return pieces


def inside(item: object, max_items: int) -> tuple[int, list[Any]]:
    """How many values or characters an object that is no plain data holds, and the first of the values.

    None of its methods is called.
    """
    if isinstance(item, str | bytes | bytearray):
        return len(item), []
    if isinstance(item, dict):
        return dict.__len__(item), list(islice(dict.values(item), max_items))
    for kind in _COLLECTIONS:
        if isinstance(item, kind):
            return kind.__len__(item), list(islice(kind.__iter__(item), max_items))
    attributes = {} if isinstance(item, type) else getattr(item, "__dict__", {})
    return len(attributes), list(islice(attributes.values(), max_items))


def too_large(max_bytes: int) -> ResultTooLargeError:
    """The error for a result of more bytes."""
    return ResultTooLargeError(f"The result takes more than {max_bytes:,} bytes; raise max_result_bytes or store less")


class _Inner(NamedTuple):
    """A value whose slices belong here."""

    value: Any
    depth: int


def _slices(value: object) -> Iterator[bytes]:
    """The JSON of the value; what is nested is on a stack of its own, since Python's is too small for it."""
    waiting = [_steps(value, 0)]
    while waiting:
        for step in waiting[-1]:
            if isinstance(step, _Inner):
                waiting.append(_steps(step.value, step.depth))
                break
            yield step
        else:
            waiting.pop()


def _steps(value: Any, depth: int) -> Iterator[bytes | _Inner]:
    if _is_light(value):
        yield encode_whole(value)[0]
    elif depth == MAX_DEPTH:
        raise UnserialisableError(f"A value is nested deeper than {MAX_DEPTH} levels or contains itself; flatten it")
    elif type(value) is str:
        yield from _quoted(encode_whole(part)[0][1:-1] for part in _parts_of(value, _SLICE_CHARS))
    elif isinstance(value, bytes | bytearray):
        yield b'{"base64":'
        yield from _quoted(map(base64.b64encode, _parts_of(value, _SLICE_BYTES)))
        yield b"}"
    elif type(value) is dict:
        yield b"{"
        yield from _members(_items(value), dict, depth + 1)
        yield b"}"
    elif type(value) in (list, tuple):
        yield b"["
        yield from _members(iter(value), list, depth + 1)
        yield b"]"
    else:
        yield _Inner(opened(value), depth + 1)


def _members(
    members: Iterator[Any], kind: type[list[Any]] | type[dict[str, Any]], depth: int
) -> Iterator[bytes | _Inner]:
    """Items, or keys with their values, with commas between them: as many at once as are light together."""
    comma = b""
    while part := list(islice(members, _SLICE_ITEMS)):
        parts = [part]
        while parts:
            part = parts.pop()
            if _is_light(part):
                yield comma + encode_whole(kind(part))[0][1:-1]
                comma = b","
            elif len(part) > 1:
                length = -(-len(part) // _SPLIT)
                parts.extend(part[start : start + length] for start in reversed(range(0, len(part), length)))
            elif kind is dict:
                key, item = part[0]
                yield comma + encode_whole(key)[0] + b":"
                yield _Inner(item, depth)
                comma = b","
            else:
                yield comma
                yield _Inner(part[0], depth)
                comma = b","


def _items(value: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """The entries with their keys as text.

    Raises:
        UnserialisableError: Two keys are the same text.
    """
    if not all(type(key) is str for key in value):
        plain = {key_text(key): item for key, item in value.items()}
        if len(plain) != len(value):
            raise UnserialisableError("Two keys of a mapping are the same text in JSON; rename one")
        value = plain
    yield from value.items()


def _is_light(value: object) -> bool:
    """Whether the value is at most 20,000 values and 400,000 characters."""
    nodes = chars = 0
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        nodes += 1
        if kind is str:
            chars += len(item)
        elif kind is dict:
            waiting.extend(islice(item.values(), _SLICE_NODES))
        elif kind is list or kind is tuple:
            waiting.extend(islice(item, _SLICE_NODES))
        elif item is not None and kind not in _SCALARS:
            count, items = inside(item, _SLICE_NODES)
            nodes += _FOREIGN_NODES
            chars += count
            waiting.extend(items)
        if nodes + len(waiting) > _SLICE_NODES or chars > _SLICE_CHARS:
            return False
    return True


def _parts_of(value: Any, length: int) -> Iterator[Any]:
    return (value[start : start + length] for start in range(0, len(value), length))


def _quoted(pieces: Iterator[bytes]) -> Iterator[bytes]:
    yield b'"'
    yield from pieces
    yield b'"'


def _rested(pieces: Iterator[bytes]) -> Iterator[bytes]:
    began = time.perf_counter()
    for piece in pieces:
        yield piece
        if time.perf_counter() - began > _STINT_S:
            time.sleep(_REST_S)
            began = time.perf_counter()


def changed() -> UnserialisableError:
    """The error for a value that others have changed meanwhile."""
    return UnserialisableError("The result was changed while being saved; save a copy, or change it afterwards")
