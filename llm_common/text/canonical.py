"""Convert values to plain JSON data, the same in every process, and to the bytes of a JSON file.

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
| table or array of pandas, polars, Arrow, numpy, PyTorch | records or lists, see `tabular` |
| a missing value of pandas | None |
| an object with a list `source_urls`, or whose class defines no text form | its public attributes |
| anything else | its text, as with `default=str` |

The rules are never applied in reverse: loaded data stays plain data, whatever it looks like.
"""

import base64
import dataclasses
import io
import json
import math
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import repeat
from pathlib import PurePath
from typing import Any, TypeAlias, TypeGuard, cast
from uuid import UUID

import orjson
from pydantic import BaseModel

from llm_common.errors import CorruptPointerError, ResultTooLargeError, UnserialisableError
from llm_common.text.tabular import is_tabular, tabular_data

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_DEPTH = 250
"""Maximum levels of nesting of a value that is stored. orjson itself stops at 254."""
MAX_READ_DEPTH = 1_000
"""Maximum levels of nesting of a value that is shown. Earlier versions stored as many."""

# pandas' NaT is a datetime, and would become the text "NaT".
_MISSING = frozenset({"NaTType", "NAType"})
_DEFAULT_REPR = re.compile(r"<(?>[^<>]*? object at 0x[0-9a-f])[^<>]*+>", re.IGNORECASE)
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
_Level: TypeAlias = "tuple[Iterator[tuple[object, object]], Any]"

DECODER = json.JSONDecoder(parse_constant=lambda _: None)
"""Reads JSON with NaN and the infinities as None."""

_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_DIGITS = b"0" * 19  # an integer with 19 digits or more may exceed 64 bits


def to_plain(value: object) -> Json:
    """Copy a value as plain JSON data, by the table at the top of this module.

    Equal values become equal data in every process. The value is not changed, and iterators are not
    consumed.

    Raises:
        UnserialisableError: If the value contains itself or is nested deeper than `MAX_DEPTH`, if
            two of its keys become the same text, if one of its methods raises, or if it contains
            something without a JSON form: a generator, a coroutine, a file, a lock, or another
            object whose text contains its address.
    """
    return dict(value) if _is_flat(value) else _canonical(value, _as_null, MAX_DEPTH)


def snapshot(value: object) -> Json:
    """Copy a value, so that a thread can read it while its owner changes the original.

    `to_plain` and `stable_json` of the copy equal those of the value. Unlike `to_plain`, it keeps
    NaN and the infinities.

    Raises:
        UnserialisableError: As for `to_plain`.
    """
    return dict(value) if _is_flat(value) else _canonical(value, float, MAX_DEPTH)


def stable_json(value: object) -> str:
    """Return the same JSON text for all values that are the same data.

    Keys are sorted, without spaces and without escapes for non-ASCII characters. Unlike stored
    data, the text distinguishes NaN and the infinities. A lone surrogate is written as its escape,
    so the text always encodes to UTF-8. The ids of stored files derive from this text, so it must
    never change.

    Raises:
        UnserialisableError: As for `to_plain`.
    """
    if _is_flat(value):
        with suppress(TypeError):
            # orjson is twenty times as fast, and writes the same text unless it refuses.
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    return json_text(_canonical(value, _as_name, MAX_DEPTH), sort_keys=True)


def json_text(plain: Json, *, sort_keys: bool = False) -> str:
    """Write plain data as strict, compact JSON with the standard library.

    A lone surrogate becomes its escape.

    Raises:
        UnserialisableError: If a number is NaN or infinite, or an integer with more digits than
            Python writes (4,300), or if the data and the call stack together exceed Python's
            recursion limit.
    """
    try:
        text = json.dumps(
            plain, sort_keys=sort_keys, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except ValueError as exc:
        raise UnserialisableError(
            "A number is NaN, infinite or too long for JSON; pass it as text"
        ) from exc
    except RecursionError as exc:
        raise UnserialisableError("A value is nested too deeply to be written; flatten it") from exc
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


@dataclass(frozen=True, slots=True)
class Encoded:
    """The bytes of a JSON file, and the value itself or its copy as plain data."""

    data: bytes
    value: object


def encode_json(
    value: object, *, max_bytes: int | None = None, max_depth: int = MAX_DEPTH
) -> Encoded:
    """Encode a value as compact JSON, with its keys in their original order.

    orjson writes what it accepts just as `to_plain` would. Its one call holds the interpreter's
    lock, so the bytes are the value at one instant, at about 1.2 ms a megabyte. A value that orjson
    refuses is first copied by `to_plain`.

    Args:
        value: Anything that `to_plain` accepts.
        max_bytes: Limit for the bytes. None sets no limit.
        max_depth: Limit for the levels of nesting.

    Raises:
        UnserialisableError: If the value has no JSON form, or is nested too deeply.
        ResultTooLargeError: If the bytes exceed `max_bytes`.
    """
    if isinstance(value, str | bytes | bytearray):
        _check_size(len(value), max_bytes)  # before it is copied
    elif isinstance(value, tuple):
        # orjson does not count tuples as levels, and some thousands of them corrupt its memory.
        value = _canonical(value, _as_null, max_depth)
    try:
        # orjson refuses the 255th level. Four lists around the value make that its 251st.
        wrapped = orjson.dumps([[[[value]]]], option=_ORJSON_OPTIONS)
    except TypeError:
        value = _canonical(value, _as_null, max_depth)
        try:
            data = orjson.dumps(value)
        except TypeError:  # an integer over 64 bits, a lone surrogate, or over 254 levels
            data = json_text(value).encode("utf-8")
    else:
        _check_size(len(wrapped) - 8, max_bytes)  # before it is copied
        data = wrapped[4:-4]
    _check_size(len(data), max_bytes)
    return Encoded(data, value)


def _check_size(size_bytes: int, max_bytes: int | None) -> None:
    if max_bytes is not None and size_bytes > max_bytes:
        raise ResultTooLargeError(
            f"The result exceeds {max_bytes:,} bytes; raise max_result_bytes or store less"
        )


def decode_json(data: bytes) -> Json:
    """Decode the bytes of a JSON file. NaN and the infinities of older files become None.

    orjson reads the same values as the standard library or refuses, with one exception: it turns
    integers over 64 bits into floats. The standard library therefore reads data that may contain
    such an integer, and data that orjson refuses.

    Raises:
        CorruptPointerError: If the bytes are not JSON.
    """
    if _LONG_DIGITS not in data.translate(_DIGITS):
        with suppress(orjson.JSONDecodeError):
            return cast(Json, orjson.loads(data))
    try:
        text = data.decode("utf-8")
        try:
            value: Json = DECODER.decode(text)
        except RecursionError:
            # orjson reads 1,024 levels, and so verifies that the text is JSON.
            orjson.loads(_SURROGATE_ESCAPE.sub(rb"\\u0041", data))
            value = _deep_value(text)
    except ValueError as exc:
        raise CorruptPointerError("A stored file is not JSON; restore it from a copy") from exc
    return value


def embedded_json(value: Any) -> Any:
    """Parse a str of a JSON object or list, which many tools return. Returns others unchanged."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(CorruptPointerError):
            return decode_json(value.encode("utf-8", "surrogatepass"))
    return value


def _deep_value(text: str) -> Json:
    """Read valid JSON without recursion, since earlier versions stored up to 1,000 levels."""
    root: list[Json] = []
    levels: list[Any] = [root]
    key = None
    for part in _PARTS.findall(text):
        if part in ("}", "]"):
            levels.pop()
            continue
        if part == "{":
            value: Any = {}
        elif part == "[":
            value = []
        else:
            value = DECODER.decode(part)
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
    """Return a mapping's key as the text of a JSON key."""
    if isinstance(key, str) and not isinstance(key, Enum):
        return str.__str__(key)
    plain = _canonical(key, _as_name, MAX_DEPTH)
    return plain if isinstance(plain, str) else json_text(plain, sort_keys=True)


def _is_flat(value: object) -> TypeGuard[dict[str, Json]]:
    """Return whether a value is a dict of scalars other than floats, as most arguments are."""
    return (
        type(value) is dict
        and _TEXTS.issuperset(map(type, value))
        and _SIMPLE.issuperset(map(type, value.values()))
    )


def _is_flat_list(value: object) -> TypeGuard[list[Json]]:
    """Return whether a value is a list of scalars other than floats."""
    return type(value) is list and _SIMPLE.issuperset(map(type, value))


def _canonical(value: object, non_finite: Callable[[float], Json], max_depth: int) -> Json:
    """Copy a value as plain data, and translate what its methods raise."""
    try:
        return _plain(value, non_finite, max_depth)
    except UnserialisableError:
        raise
    except Exception as exc:  # the methods of a caller's object may raise anything
        raise UnserialisableError(
            f"A value of type {type(value).__name__} cannot be read ({type(exc).__name__}); "
            "pass plain data"
        ) from exc


def _plain(value: object, non_finite: Callable[[float], Json], max_depth: int) -> Json:
    """Copy a value without recursion, so that the caller's own call depth does not count."""
    root: list[Json] = []
    levels: list[_Level] = [(iter([(None, value)]), root)]
    while levels:
        members, container = levels[-1]
        for key, member in members:
            item = _unwrapped(member)
            plain: Any = item
            if isinstance(item, dict | list | tuple):
                level = _level_of(item)
                plain = level[1]
                levels.append(level)
            elif type(item) is float and not math.isfinite(item):
                plain = non_finite(item)
            if type(container) is list:
                container.append(plain)
            elif (name := _key_text(key)) in container:
                raise UnserialisableError(
                    "Two keys of a mapping are the same text in JSON; rename one"
                )
            else:
                container[name] = plain
            if levels[-1][1] is plain:
                break  # the members of the new level come first
        else:
            levels.pop()
        if len(levels) - 1 > max_depth:
            raise _too_deep(max_depth)
    return root[0]


def _level_of(value: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> _Level:
    """Return the members that are still to be copied, and the copy of the others."""
    if _is_flat(value) or _is_flat_list(value):
        # In one step, which takes a tenth of the time of a step for each scalar.
        return iter(()), value.copy()
    if isinstance(value, dict):
        return iter(value.items()), {}
    return zip(repeat(None), value), []


def _unwrapped(value: object) -> object:
    """Convert a value step by step to a dict, a list, a tuple or a plain scalar."""
    for _ in range(MAX_DEPTH):
        if value is None or type(value) in _SCALARS or isinstance(value, dict | list | tuple):
            return value
        value = _simplified(value)
    raise _too_deep(MAX_DEPTH)


def _too_deep(max_depth: int) -> UnserialisableError:
    return UnserialisableError(
        f"A value is nested deeper than {max_depth:,} levels or contains itself; flatten it"
    )


def _simplified(value: object) -> object:
    """Convert a value one step closer to plain data."""
    if isinstance(value, io.IOBase):
        raise _without_form(value)
    if type(value).__name__ in _MISSING:
        return None
    for kinds, step in _STEPS:
        if isinstance(value, kinds):
            return step(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kind = type(value)
    has_text = kind.__str__ is not object.__str__ or kind.__repr__ is not object.__repr__
    if isinstance(getattr(value, "source_urls", None), list | tuple) or not has_text:
        attributes: dict[str, object] = getattr(value, "__dict__", {})
        public = {name: item for name, item in attributes.items() if not name.startswith("_")}
        if not public:
            raise _without_form(value)
        return public
    if is_tabular(value):
        return tabular_data(value)
    text = str(value)
    # An address differs in every process, so a text with one identifies nothing.
    if _DEFAULT_REPR.search(text) or f"{id(value):x}" in text.lower():
        raise _without_form(value)
    return text


def _without_form(value: object) -> UnserialisableError:
    way_out = "await it" if isinstance(value, Awaitable) else "pass its data instead of the object"
    return UnserialisableError(
        f"A value of type {type(value).__name__} has no JSON form; {way_out}"
    )


# The order matters: a member of an Enum may also be a str or an int.
_STEPS: tuple[tuple[type | tuple[type, ...], Callable[[Any], object]], ...] = (
    (Enum, lambda member: member.value),
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    ((datetime, date, time), lambda moment: moment.isoformat()),
    (timedelta, timedelta.total_seconds),
    ((Decimal, UUID, PurePath), str),
    (
        (bytes, bytearray, memoryview),
        lambda value: {"base64": base64.b64encode(value).decode("ascii")},
    ),
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


def _as_null(_: float) -> None:
    return None


def _as_name(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
