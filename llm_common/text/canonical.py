"""Turns values into plain JSON data, equal in every process, and into the bytes of a JSON file.

| value | becomes |
|---|---|
| None, bool, int, str, list, dict with text keys | itself, copied, of the plain kind |
| float | itself |
| NaN, the infinities | None in data; `"NaN"`, `"Infinity"`, `"-Infinity"` in identities |
| tuple, deque | list |
| set, frozenset and other sets | list in the order of the elements' `stable_json` |
| other mapping keys | as json.dumps (`1`, `true`, `null`), else the plain key's text or JSON |
| Enum | its value |
| datetime, date, time | ISO 8601 |
| timedelta | seconds |
| Decimal, UUID, Path | text |
| bytes, bytearray, memoryview | `{"base64": "..."}`, a form that nothing here ever decodes |
| pydantic model, dataclass | its fields by name |
| an object with a list `source_urls`, or without a text form of its own | its public attributes |
| anything else with a text form of its own | that text, as with `default=str` |

No rule is ever applied backwards: what is loaded is data, whatever it looks like.
"""

import base64
import dataclasses
import io
import json
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import repeat
from pathlib import PurePath
from typing import Any, TypeAlias, TypeGuard
from uuid import UUID

import orjson
from pydantic import BaseModel

from llm_common.errors import CorruptPointerError, ResultTooLargeError, UnserialisableError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 250
"""Levels of nesting that a value may have to be stored."""
MAX_READ_DEPTH = 1_000
"""Levels of nesting that are written again for a reader: earlier versions stored as many."""

_DEFAULT_REPR = re.compile(r"<[^<>]* object at 0x[0-9a-f]+[^<>]*>", re.IGNORECASE)
_PARTS = re.compile(r'[{}\[\]]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\s{}\[\]:,"]+')
_TEXTS = frozenset({str})
_SIMPLE = frozenset({str, int, bool, type(None)})
_SCALARS = frozenset({str, int, bool, float})
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_ORJSON_OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_DIGITS = bytes(ord("0" if byte in b"0123456789" else " ") for byte in range(256))
_LONG_DIGITS = b"0" * 19  # from so many digits on, an integer may be too long for 64 bits


def to_plain(value: object) -> Json:
    """A copy of the value as plain JSON data, by the table at the top of this module.

    Equal values give equal data in every process. The value is not changed, and iterators are not
    consumed.

    Raises:
        UnserialisableError: The value contains itself or is nested deeper than `MAX_DEPTH`, two of
            its keys become the same text, one of its methods raises, or it holds something that
            JSON cannot stand for: a generator, a coroutine, a file, a lock, or another object whose
            text holds its address.
    """
    return dict(value) if _is_flat(value) else _canonical(value, _no_number, MAX_DEPTH)


def stable_json(value: object) -> str:
    """Return one JSON text for all values that are the same data.

    Keys are sorted, and there are no spaces and no escapes for ASCII.

    Unlike stored data it keeps NaN and the infinities apart. Half a surrogate pair is written as
    its escape, so the text always encodes to UTF-8. Ids of stored files are made of this text: it
    never changes.

    Raises:
        UnserialisableError: As for `to_plain`.
    """
    if _is_flat(value):
        try:  # twenty times as quick; the same text, but for what it refuses
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        except TypeError:
            pass
    return json_text(_canonical(value, _name_of_number, MAX_DEPTH), sort_keys=True)


def json_text(plain: Json, *, sort_keys: bool = False) -> str:
    """Strict, compact JSON of plain data, by the standard library.

    Half a surrogate pair becomes its escape.

    Raises:
        UnserialisableError: An integer has more digits than Python writes (4,300), or the data and
            the calls around this one are together deeper than Python recurses.
    """
    try:
        text = json.dumps(
            plain, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except ValueError as exc:
        raise UnserialisableError("An integer is too long for JSON; pass it as text") from exc
    except RecursionError as exc:
        raise UnserialisableError("A value is nested too deeply to be written; flatten it") from exc
    return _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of a JSON file, and the value itself or its copy as plain data."""

    data: bytes
    value: object


def encode_json(
    value: object, *, max_bytes: int | None = None, max_depth: int = MAX_DEPTH
) -> Encoded:
    """The value as compact JSON, keys in their own order.

    orjson writes what it understands as `to_plain` does, in one call that holds the interpreter's
    lock: the bytes are the value at one instant, at about 1.2 ms a megabyte. What it refuses is
    copied by `to_plain` first.

    Args:
        value: Anything that `to_plain` accepts.
        max_bytes: Refuse more.
        max_depth: Refuse more levels of nesting.

    Raises:
        UnserialisableError: JSON cannot stand for the value, or it is nested too deeply.
        ResultTooLargeError: More than `max_bytes`.
    """
    if isinstance(value, str | bytes | bytearray):
        _check_size(len(value), max_bytes)  # before a copy of it is made
    elif isinstance(value, tuple):
        # orjson counts no tuple as a level, and some thousands of them corrupt its memory.
        value = _canonical(value, _no_number, max_depth)
    try:
        # orjson refuses the 255th level: with four lists around the value, its 251st.
        wrapped = orjson.dumps([[[[value]]]], option=_ORJSON_OPTIONS)
    except TypeError:
        value = _canonical(value, _no_number, max_depth)
        try:
            data = orjson.dumps(value)
        except TypeError:  # an integer over 64 bits, half a surrogate pair, over 254 levels
            data = json_text(value).encode("utf-8")
    else:
        _check_size(len(wrapped) - 8, max_bytes)  # before a copy of it is made
        data = wrapped[4:-4]
    _check_size(len(data), max_bytes)
    return Encoded(data, value)


def _check_size(size_bytes: int, max_bytes: int | None) -> None:
    if max_bytes is not None and size_bytes > max_bytes:
        raise ResultTooLargeError(
            f"The result takes more than {max_bytes:,} bytes; raise max_result_bytes or store less"
        )


def decode_json(data: bytes) -> Json:
    """What the bytes of a JSON file say; NaN and infinities, which older files may hold, as None.

    orjson reads the same values as the standard library, or refuses, with one exception: it makes
    floats of integers over 64 bits. The standard library reads what may hold one, and what orjson
    refuses.

    Raises:
        CorruptPointerError: The bytes are not JSON.
    """
    if _LONG_DIGITS not in data.translate(_DIGITS):
        try:
            value: Json = orjson.loads(data)
        except orjson.JSONDecodeError:
            pass
        else:
            return value
    try:
        text = data.decode("utf-8")
        try:
            value = _DECODER.decode(text)
        except RecursionError:
            # reads 1,024 levels, and refuses what is not JSON
            orjson.loads(_SURROGATE_ESCAPE.sub(rb"\\u0041", data))
            value = _deep_value(text)
    except ValueError as exc:
        raise CorruptPointerError("A stored file is not JSON; restore it from a copy") from exc
    return value


def _deep_value(text: str) -> Json:
    """Read valid JSON without recursion: earlier versions stored up to 1,000 levels."""
    root: list[Json] = []
    levels: list[Any] = [root]
    key = None
    for part in _PARTS.findall(text):
        if part in ("}", "]"):
            levels.pop()
            continue
        value: Any = {} if part == "{" else [] if part == "[" else _DECODER.decode(part)
        if type(levels[-1]) is list:
            levels[-1].append(value)
        elif key is None:
            key = value
            continue
        else:
            levels[-1][key] = value
            key = None
        if part in ("{", "["):
            levels.append(value)
    return root[0]


def _key_text(key: object) -> str:
    """The text that a mapping's key is in JSON.

    Raises:
        UnserialisableError: As for `to_plain`.
    """
    if isinstance(key, str) and not isinstance(key, Enum):
        return str.__str__(key)
    plain = _canonical(key, _name_of_number, MAX_DEPTH)
    return plain if isinstance(plain, str) else json_text(plain, sort_keys=True)


def _is_flat(value: object) -> TypeGuard[dict[str, Json]]:
    """Return whether a value is a dict of texts and other plain scalars, as most arguments are."""
    return (
        type(value) is dict
        and _TEXTS.issuperset(map(type, value))
        and _SIMPLE.issuperset(map(type, value.values()))
    )


def _canonical(value: object, non_finite: Callable[[float], Json], max_depth: int) -> Json:
    """Copy a value as plain data, with whatever its own methods raise as our error."""
    try:
        return _plain(value, non_finite, max_depth)
    except UnserialisableError:
        raise
    except Exception as exc:  # what the methods of a caller's object raise is unknown
        raise UnserialisableError(
            f"A value of type {type(value).__name__} cannot be read ({type(exc).__name__}); "
            "pass plain data"
        ) from exc


def _plain(value: object, non_finite: Callable[[float], Json], max_depth: int) -> Json:
    """The copy; without recursion, so that the depth of the caller's own calls does not count."""
    root: list[Json] = []
    levels: list[tuple[Iterator[tuple[object, object]], Any]] = [(iter([(None, value)]), root)]
    while levels:
        members, made = levels[-1]
        for key, member in members:
            item = _unwrapped(member)
            inner: list[Json] | dict[str, Json] | None = None
            if isinstance(item, dict):
                inner = {}
                levels.append((iter(item.items()), inner))
            elif isinstance(item, list | tuple):
                inner = []
                levels.append((zip(repeat(None), item), inner))
            plain = _scalar(item, non_finite) if inner is None else inner
            if type(made) is list:
                made.append(plain)
            elif (name := _key_text(key)) in made:
                raise UnserialisableError(
                    "Two keys of a mapping are the same text in JSON; rename one"
                )
            else:
                made[name] = plain
            if inner is not None:
                break
        else:
            levels.pop()
        if len(levels) - 1 > max_depth:
            raise _too_deep(max_depth)
    return root[0]


def _unwrapped(value: object) -> object:
    """A dict, list, tuple, or a plain kind of scalar."""
    for _ in range(MAX_DEPTH):
        if value is None or type(value) in _SCALARS or isinstance(value, dict | list | tuple):
            return value
        value = _opened(value)
    raise _too_deep(MAX_DEPTH)


def _scalar(value: Any, non_finite: Callable[[float], Json]) -> Json:
    return non_finite(value) if type(value) is float and not math.isfinite(value) else value


def _too_deep(max_depth: int) -> UnserialisableError:
    return UnserialisableError(
        f"A value is nested deeper than {max_depth:,} levels or contains itself; flatten it"
    )


def _opened(value: object) -> object:
    """The value one step nearer to plain data."""
    if isinstance(value, io.IOBase):
        raise _without_form(value)
    for kinds, step in _STEPS:
        if isinstance(value, kinds):
            return step(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(getattr(value, "source_urls", None), list | tuple) or _has_no_text(type(value)):
        return _public_attributes(value)
    text = str(value)
    # an address differs in every process
    if _DEFAULT_REPR.search(text) or f"{id(value):x}" in text.lower():
        raise _without_form(value)
    return text


def _public_attributes(value: object) -> dict[str, object]:
    attributes: dict[str, object] = getattr(value, "__dict__", {})
    public = {name: item for name, item in attributes.items() if not name.startswith("_")}
    if not public:
        raise _without_form(value)
    return public


def _has_no_text(kind: type) -> bool:
    return not any(
        "__str__" in vars(parent) or "__repr__" in vars(parent) for parent in kind.__mro__[:-1]
    )


def _without_form(value: object) -> UnserialisableError:
    return UnserialisableError(
        f"JSON cannot stand for a value of type {type(value).__name__}; "
        "pass what it holds instead of the object"
    )


def _base64(value: bytes | bytearray | memoryview) -> dict[str, str]:
    return {"base64": base64.b64encode(value).decode("ascii")}


_STEPS: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (Enum, lambda member: member.value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((datetime, date, time), lambda moment: moment.isoformat()),
    (timedelta, timedelta.total_seconds),
    ((Decimal, UUID, PurePath), str),
    ((bytes, bytearray, memoryview), _base64),
    (BaseModel, lambda model: model.model_dump()),
    (Mapping, dict),
    (
        AbstractSet,
        lambda elements: sorted(
            [_plain(element, float, MAX_DEPTH) for element in elements], key=stable_json
        ),
    ),
    (deque, list),
)


def _no_number(_: float) -> None:
    return None


def _name_of_number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
