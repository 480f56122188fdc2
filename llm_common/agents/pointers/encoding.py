"""Results as the bytes of a strict JSON file, and back."""

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson

from llm_common.agents.pointers.canonical import Json, json_text, to_plain
from llm_common.errors import CorruptPointerError, ResultTooLargeError

__all__ = ["Encoded", "decode_json", "encode_json", "is_small"]

_OURS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_TEXTS = frozenset({str, bytes, bytearray})
_SCALARS = frozenset({int, float, bool, type(None)})
_SEQUENCES = frozenset({list, tuple, set, frozenset})
_SMALL_NODES = 2_000
_SMALL_CHARS = 200_000
_GLANCED_NODES = 300


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as `data`, the bytes of a JSON file, beside `value`, what they say as plain data."""

    data: bytes
    value: object


def encode_json(value: object, *, max_bytes: int | None = None) -> Encoded:
    """The value as compact JSON, keys in their own order.

    orjson writes what it understands as `to_plain` does, in one step that no other thread can interrupt, so the bytes
    are the value at one instant; `to_plain` and the standard library write the rest (longer integers, half surrogate
    pairs, foreign objects).

    Args:
        value: Anything that `to_plain` accepts.
        max_bytes: Refuse more; a value that is plainly too large is refused before it is encoded.

    Raises:
        UnserialisableError: JSON cannot stand for the value.
        ResultTooLargeError: More than `max_bytes`.
    """
    if max_bytes is not None and _weigh(value, max_nodes=_GLANCED_NODES)[1] > max_bytes:
        raise _too_large(max_bytes)
    try:
        encoded = Encoded(orjson.dumps(value, option=_OURS), value)
    except TypeError:
        plain = to_plain(value)
        encoded = Encoded(json_text(plain).encode("utf-8"), plain)
    if max_bytes is not None and len(encoded.data) > max_bytes:
        raise _too_large(max_bytes)
    return encoded


def decode_json(data: bytes) -> Json:
    """What the bytes of a JSON file say; NaN and infinities, which older files may hold, as None.

    Raises:
        CorruptPointerError: The bytes are not JSON.
    """
    try:
        value: Json = _DECODER.decode(data.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        raise CorruptPointerError("A stored file is not JSON; restore it from a copy") from exc
    return value


def is_small(value: object) -> bool:
    """Whether encoding the value takes so little (2,000 values, 200,000 characters) that no event loop would notice."""
    nodes, chars = _weigh(value, max_nodes=_SMALL_NODES)
    return nodes < _SMALL_NODES and chars <= _SMALL_CHARS


def _weigh(value: object, *, max_nodes: int) -> tuple[int, int]:
    """How many values and how much text are in the value, as far as `max_nodes` values show it."""
    nodes = chars = 0
    waiting: list[Any] = [value]
    while waiting and nodes < max_nodes:
        item = waiting.pop()
        nodes += 1
        kind = type(item)
        if kind in _TEXTS:
            chars += len(item)
        elif kind is dict:
            waiting.extend(islice(item.values(), max_nodes))
        elif kind in _SEQUENCES:
            waiting.extend(islice(item, max_nodes))
        elif kind not in _SCALARS and not isinstance(item, type):
            waiting.extend(getattr(item, "__dict__", {}).values())
    return (max_nodes if waiting else nodes), chars


def _too_large(max_bytes: int) -> ResultTooLargeError:
    return ResultTooLargeError(f"The result takes more than {max_bytes:,} bytes; raise max_result_bytes or store less")
