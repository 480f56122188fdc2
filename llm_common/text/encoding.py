"""Results as the bytes of a strict JSON file, and back."""

import json
from collections import deque
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, cast

import orjson

from llm_common.errors import CorruptPointerError
from llm_common.text.canonical import MAX_DEPTH, Json, opened
from llm_common.text.slices import encode_in_slices, encode_whole, inside, too_large

__all__ = ["Encoded", "decode_json", "encode_json", "is_small"]

_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_DIGITS = bytes(ord("0" if byte in b"0123456789" else " ") for byte in range(256))
_LONG = 19  # digits from which on an integer may be too long for 64 bits
_SMALL_BYTES = 200_000
_WHOLE_BYTES = 2_500_000  # five milliseconds at worst
_GLANCED_NODES = 48
_GLANCED_ITEMS = 12
_NODE_BYTES = 6
_SCALARS = frozenset({int, float, bool, type(None)})
_FOREIGN_BYTES = 600  # what orjson refuses takes a hundred times as long


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as `data`, the bytes of a JSON file, beside `value`, what they say as plain data.

    Of a large foreign object only the first level is plain. `fits_64_bits` tells what `decode_json` may be told.
    """

    data: bytes
    value: object
    fits_64_bits: bool = False


def encode_json(value: object, *, max_bytes: int | None = None, small: bool = False) -> Encoded:
    """The value as compact JSON, keys in their own order.

    A value of up to some 2.5 MB is encoded in one step, so that the bytes are the value at one instant. A larger one
    takes slices, and time to rest between them: call it from a thread.

    Args:
        value: Anything that `to_plain` accepts.
        max_bytes: Refuse more.
        small: True spares the look at its size, for a value that is known to be small.

    Raises:
        UnserialisableError: JSON cannot stand for the value, or a large one was changed meanwhile.
        ResultTooLargeError: More than `max_bytes`.
    """
    if not small and _estimate(value) > _WHOLE_BYTES:
        sliced = encode_in_slices(value, max_bytes=max_bytes)
        data = cast("bytes", sliced)  # nobody changes it, and a copy would hold the interpreter's lock for long
        return Encoded(data, value if type(value) in (dict, list, tuple, str) else opened(value))
    data, plain, fits_64_bits = encode_whole(value)  # a longer integer is more than orjson would write
    if max_bytes is not None and len(data) > max_bytes:
        raise too_large(max_bytes)
    return Encoded(data, plain, fits_64_bits)


def decode_json(data: bytes, *, fits_64_bits: bool = False) -> Json:
    """What the bytes of a JSON file say; NaN and infinities, which older files may hold, as None.

    orjson reads the same values as the standard library, or refuses, with one exception: it makes floats of integers
    over 64 bits. The standard library reads what may hold one, and what orjson refuses.

    Args:
        data: What to read.
        fits_64_bits: True spares the look for such integers, which takes a third of the time, where there is none.

    Raises:
        CorruptPointerError: The bytes are not JSON.
    """
    if fits_64_bits or not _may_hold_long_integer(data):
        try:
            value: Json = orjson.loads(data)
        except orjson.JSONDecodeError:
            pass
        else:
            return value
    try:
        value = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise CorruptPointerError("A stored file is not JSON; restore it from a copy") from exc
    return value


def is_small(value: object) -> bool:
    """Whether encoding the value takes so little, some 200 KB, that no event loop would notice."""
    return _estimate(value) <= _SMALL_BYTES


def _estimate(value: object) -> float:
    """How many bytes of JSON the value takes, judged by up to 12 evenly spread items of each of its outer containers.

    It costs as much for a large value as for a small one. One that changes meanwhile may be of any size.
    """
    try:
        return _glanced(value)
    except RuntimeError:  # another thread has changed it
        return inf


def _glanced(value: object) -> float:
    total = seen = 0.0
    left = _GLANCED_NODES
    waiting: deque[tuple[Any, float]] = deque([((value,), 1.0)])
    while waiting and left > 0:
        container, weight = waiting.popleft()
        count = len(container)
        if type(container) is dict:
            items = [*islice(container.values(), _GLANCED_ITEMS)]
        else:
            items = container[:: -(-count // _GLANCED_ITEMS) or 1]
        nodes, chars = len(items), 0
        weight *= count / (nodes or 1)
        for item in items:
            kind = type(item)
            if kind is str:
                chars += len(item)
            elif kind is dict or kind is list or kind is tuple:
                if item:
                    waiting.append((item, weight))
            elif kind not in _SCALARS:
                held, inner = inside(item, _GLANCED_ITEMS)
                chars += held + _FOREIGN_BYTES
                if inner:
                    waiting.append((inner, weight * max(1.0, held / _GLANCED_ITEMS)))
        left -= nodes
        seen += weight * nodes
        total += weight * (chars + nodes * _NODE_BYTES)
    return total * (1 + _unseen(waiting) / (seen or 1))


def _unseen(waiting: "deque[tuple[Any, float]]") -> float:
    """How many values the containers hold that were not looked into."""
    if not waiting:
        return 0.0
    unseen = sum([weight * len(container) for container, weight in waiting])
    container = waiting[-1][0]
    for _ in range(MAX_DEPTH):  # down one branch, for what is small at the top and multiplies below
        container = next(iter(container.values() if type(container) is dict else container), None)
        if type(container) not in (dict, list, tuple) or not container:
            break
        unseen *= len(container)
    return unseen


def _may_hold_long_integer(data: bytes) -> bool:
    """Whether 19 digits stand in a row that are no decimal places."""
    if b"00" not in data[:: _LONG // 2].translate(_DIGITS):  # two of any 19 digits in a row are looked at
        return False
    digits = data.translate(_DIGITS)
    start = digits.find(b"0" * _LONG)
    while start >= 0:
        if data[start - 1 : start] != b".":
            return True
        start = digits.find(b"0" * _LONG, digits.find(b" ", start))
    return False
