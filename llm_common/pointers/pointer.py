"""`ContextPointer`: the record of a stored result, its ids, times and texts.

The description of a result holds its shape and its first 500 characters. With them, BM25 ranks the
right output of ten first in 90 % of cases, with the summary alone in 80 % (HotpotQA-style pools).
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from llm_common.errors import PointerNotFoundError, UnsafePathError
from llm_common.redaction.patterns import REDACTED
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.storage.blob import check_query_id
from llm_common.text.canonical import Json, embedded_json, encode_json, json_text, stable_json
from llm_common.text.display import one_line

# The shape, the numbers, and 500 characters of text.
MAX_DESCRIPTION_CHARS = 640

_SHAPE_CHARS = 120
# More than the line has room for, since runs of white space become one space.
_TEXT_CHARS = MAX_DESCRIPTION_CHARS + 100
# Redaction shortens the text too, and drops a possible beginning of a secret at its end.
_READ_CHARS = _TEXT_CHARS + 200
# A longer text of JSON is described as text, since parsing takes some 5 ms a megabyte.
_READ_JSON_CHARS = 2_000_000
# Limits of the work for one description, which then takes about a millisecond.
_READ_NODES = 400
_READ_LEVELS = 50
_READ_KEY_CHARS = 256
_READ_BITS = 4_096  # Python refuses to write integers of over 4,300 digits
_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})


def describe_result(
    value: object, *, size_bytes: int, redactor: Redactor = DEFAULT_REDACTOR
) -> str:
    """Describe a result in one line: its shape, its numbers, and the beginning of its text.

    The line has at most `MAX_DESCRIPTION_CHARS` and depends on the value only. The work is bounded,
    because only the head of the value is read. Values under secret names are left out,
    and secrets in texts are redacted. A str of JSON is described as its value.

    Args:
        value: Plain data. Tuples and enum members are read as in JSON, other objects are skipped.
        size_bytes: Size of the stored result, which the line contains.
        redactor: Finds the secrets.
    """
    value = _read_json(value)
    head = _Head(redactor).read(value)
    numbers: list[str] = []
    texts: list[str] = []
    # Redacted as a structure, because a key can mark its value as a secret.
    leaves: list[tuple[str, str | float]] = []
    _add_leaves(leaves, redactor.data(head))
    for key, item in leaves:
        if isinstance(item, int | float):
            numbers.append(f"{key} {item}")
        elif item != REDACTED:
            texts.append(item)

    # Redacted before the cut, since the beginning of a secret is no longer recognized as one.
    def line(text: str, max_chars: int, read_chars: int) -> str:
        return one_line(redactor.beginning(text, max_chars=read_chars), max_chars=max_chars)

    shape = line(f"{_shape(value)}, {size_bytes:,} bytes", _SHAPE_CHARS, 2 * _SHAPE_CHARS)
    number_line = line(", ".join(numbers), 60, 2 * _SHAPE_CHARS)
    front = "; ".join(filter(None, [shape, number_line]))
    text = line(" ".join(texts), MAX_DESCRIPTION_CHARS - len(front) - len("; "), _TEXT_CHARS)
    return f"{front}; {text}" if text else front


def _read_json(value: object) -> object:
    """Parse a str of JSON unless it is long."""
    is_long = isinstance(value, str) and len(value) > _READ_JSON_CHARS
    return value if is_long else embedded_json(value)


def _shape(value: object) -> str:
    if isinstance(value, Mapping):
        return f"object of {len(value):,}: {_keys(value)}"
    if isinstance(value, list | tuple):
        shape = f"list of {len(value):,}"
        if value and all(isinstance(item, Mapping) for item in value):
            shape += f" objects: {_keys(value[0])}"
        return shape
    if isinstance(value, str):
        return f"text of {len(value):,} characters"
    return "nothing" if value is None else "value"


def _keys(value: object) -> str:
    keys = islice(value, 12) if isinstance(value, Mapping) else ()
    return " ".join(map(str, keys))


@dataclass(slots=True)
class _Head:
    """Reads the head of a value as plain data, with the keys that mark secrets."""

    redactor: Redactor
    room_chars: int = _READ_CHARS
    nodes_left: int = _READ_NODES

    def read(self, value: object, key: str = "", depth: int = 0) -> Json:
        """Return the head of a value, None for objects under secret names and other skips."""
        # Exact types, since an enum member can be a str or int too.
        item: Any = value if type(value) in _PLAIN else _plain(value)
        kind = type(item)
        if kind is str:
            return self._text(item, key, depth)
        if kind is dict and depth < _READ_LEVELS and not self.redactor.is_secret_key(key):
            return self._object(item, depth)
        if kind is list and depth < _READ_LEVELS:
            return self._list(item, key, depth)
        is_too_large = kind is int and item.bit_length() > _READ_BITS
        return None if is_too_large or kind in (dict, list) else item

    def _object(self, item: dict[object, object], depth: int) -> dict[str, Json]:
        members: dict[str, Json] = {}
        # Copied first, because the tool may still change the dict in another thread.
        for key, value in list(islice(item.items(), _READ_NODES)):
            name = str(key)
            if len(name) <= _READ_KEY_CHARS:
                if not self._has_room():
                    break
                members[name] = self.read(value, name, depth + 1)
        return members

    def _list(self, item: list[object], key: str, depth: int) -> list[Json]:
        items: list[Json] = []
        for value in item[:_READ_NODES]:
            if not self._has_room():
                break
            items.append(self.read(value, key, depth + 1))
        return items

    def _has_room(self) -> bool:
        """Return whether to read one more value."""
        self.nodes_left -= 1
        return self.nodes_left >= 0 and self.room_chars > 0

    def _text(self, text: str, key: str, depth: int) -> str:
        """Return a text, cut to the room that remains. Long JSON is cut as a value."""
        if len(text) > self.room_chars and (inner := _read_json(text)) is not text:
            return encode_json(self.read(inner, key, depth + 1)).data.decode()
        if len(text) > self.room_chars:
            text = self.redactor.beginning(text, max_chars=self.room_chars)
            self.room_chars = 0
        self.room_chars -= len(text) + 1  # texts are joined by spaces
        return text


def _add_leaves(leaves: list[tuple[str, str | float]], value: Json, key: str = "") -> None:
    """Add the numbers and texts in document order, each with the nearest key above it."""
    if isinstance(value, dict):
        for name, item in value.items():
            _add_leaves(leaves, item, name)
    elif isinstance(value, list):
        for item in value:
            _add_leaves(leaves, item, key)
    elif value is not None and type(value) is not bool:
        leaves.append((key, value))


def _plain(item: Any) -> object:
    """Return the head of an object as JSON would hold it, None if it is skipped."""
    value = item.value if isinstance(item, Enum) else item
    if isinstance(value, Mapping):
        return dict(islice(value.items(), _READ_NODES))
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        return list(islice(value, _READ_NODES))
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None


KEY_ARGS = ("ticker", "query", "q", "symbol", "cusip", "isin", "period", "limit", "count", "url")
"""The most telling arguments of a call, in the order of a summary."""

MIN_ID_CHARS: Final = 12
"""The characters of an id. Only that of a repeat, or of a call whose id is taken, has more."""
_POINTER_ID = re.compile(r"[0-9a-f]{12,16}")
MAX_HEADING_CHARS = 80
_VALUE_CHARS = 120
_TICK: Final = timedelta(microseconds=1)
# Time synchronization makes smaller steps. A larger one means that the clock was wrong before.
_MAX_STEP_BACK: Final = timedelta(seconds=5)


class ContextPointer(BaseModel):
    """The record of a stored result, small enough to show to a model that selects results.

    Attributes:
        pointer_id: 12 to 16 lower-case hexadecimal digits, unique within its query.
        query_id: Id of the query, which names the folder.
        task_id: Task of the plan, if any.
        tool_name: Tool that returned the result.
        args: Arguments of the call as plain data, with secrets redacted. Cut if they exceed 8 KB or
            100 levels.
        created_at: Time of the last save: UTC, ISO 8601 with microseconds, so that text order is
            time order.
        summary: One line about the call. See `deterministic_summary`.
        result_path: Location of the result, for people. Loading uses the ids only.
        source_urls: Sources of the result, at most 50, http(s) only. Never fetched.
        result_bytes: Size of the stored result. None in files of older versions.
        result_sha256: SHA-256 of the stored result, verified on load. None in files of older
            versions.
        digest: One line about the result. See `describe_result`.
        args_sha256: SHA-256 of the `stable_json` of the unredacted arguments. It identifies a call,
            as the id does, so it covers secrets. A short secret can therefore be guessed by someone
            who knows the other arguments.
        expires_at: Time of expiry in the form of `created_at`. None for never. Of a pointer that a
            store returns, it includes the time that reads have added.
        renew_s: Seconds from a read to the new expiry, if that is later. None if reads do not
            extend the life of the result.
        pinned: True protects it from expiry and eviction.
        savers: Marks of the sessions that saved the result, if they share its query. An empty mark
            is for savers without one.
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    query_id: str
    task_id: str | None = None
    tool_name: str
    args: dict[str, Any] = Field(default_factory=dict)
    created_at: str
    summary: str
    result_path: str
    source_urls: list[str] = Field(default_factory=list)
    result_bytes: int | None = None
    result_sha256: str | None = None
    digest: str = ""
    args_sha256: str | None = None
    expires_at: str | None = None
    renew_s: float | None = None
    pinned: bool = False
    savers: list[str] = Field(default_factory=list)

    @property
    def heading(self) -> str:
        """Return the heading of the result in a prompt: tool name and pointer id."""
        # A line break in a name could forge another heading.
        name = one_line(self.tool_name, max_chars=MAX_HEADING_CHARS)
        return f"### {name} ({one_line(self.pointer_id, max_chars=MAX_HEADING_CHARS)})"


# pydantic-core initializes a model on first use, under locks that it takes without the GIL. A child
# that is forked at that moment would deadlock, so the first use is here and not in a worker thread.
_FIRST = ContextPointer(
    pointer_id="0" * 12, query_id="q", tool_name="t", created_at="", summary="", result_path=""
)
ContextPointer.model_validate_json(_FIRST.model_dump_json())


def checked_query_id(query_id: object, redactor: Redactor, name: str = "query_id") -> str:
    """Check a query id, and return it unchanged. See `check_query_id`.

    Raises:
        InvalidIdError: If it is not an id. The text names it with secrets redacted.
    """
    return check_query_id(
        query_id, shorten=lambda text: redactor.beginning(text, max_chars=80), name=name
    )


def check_pointer_id(pointer_id: str) -> str:
    """Check the form of a pointer id, and return it unchanged.

    Raises:
        PointerNotFoundError: If it consists of hexadecimal digits, but of the wrong number or in
            capitals. A model that miscopies an id gets this error.
        UnsafePathError: If it is any other str.
        TypeError: If it is not a str.
    """
    if not isinstance(pointer_id, str):
        raise TypeError(
            f"pointer_id must be a str, got {type(pointer_id).__name__}. Pass pointer.pointer_id"
        )
    if _POINTER_ID.fullmatch(pointer_id):
        return pointer_id
    # A model may write any text as an id, so it is cut and control characters are escaped.
    quoted = repr(pointer_id[:40])
    if re.fullmatch(r"[0-9A-Fa-f]+", pointer_id):
        raise PointerNotFoundError(
            f"No pointer has the id {quoted}. Use an id of 12 to 16 lower-case hex digits"
        )
    raise UnsafePathError(
        f"{quoted} is not a pointer id. Use an id from the store: 12 to 16 lower-case hex digits"
    )


def time_text(moment: datetime) -> str:
    """Format a time as in a pointer: UTC, ISO 8601 with microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def has_expired(pointer: ContextPointer, now: datetime) -> bool:
    """Return whether a pointer has expired. Pinned pointers never expire."""
    if pointer.expires_at is None or pointer.pinned:
        return False
    try:
        return datetime.fromisoformat(pointer.expires_at).astimezone(UTC) <= now
    except (ValueError, OverflowError):  # edited by hand, or beyond the year 9999
        return False


class SteadyClock:
    """A UTC clock that smooths backward steps of up to 5 seconds.

    While the system corrects its clock, each time is one microsecond after the previous one, so an
    expired result stays expired. A larger step back is accepted, since the clock was wrong before,
    as after a virtual machine resumes. Two threads can get the same time.

    Args:
        read: The underlying clock. None uses the system's.
    """

    def __init__(self, read: Callable[[], datetime] | None = None) -> None:
        self._read = read or partial(datetime.now, UTC)
        self._last = datetime.min.replace(tzinfo=UTC)

    def now(self) -> datetime:
        """Return the current time in UTC."""
        # Without a lock, which a forked child could inherit locked.
        now = self.read()
        if timedelta(0) < self._last + _TICK - now <= _MAX_STEP_BACK:
            now = self._last + _TICK
        self._last = now
        return now

    def read(self) -> datetime:
        """Return the time of the underlying clock in UTC, with any backward step."""
        return self._read().astimezone(UTC)


def call_digest(args_json: str, *, tool_name: str, query_id: str, task_id: str | None) -> str:
    """Hash a call to 64 hexadecimal digits, whose first digits are the pointer id.

    The task ids None, "None" and "null" differ.

    Args:
        args_json: The `stable_json` of the arguments, in which the order of keys does not matter.
        tool_name: Name of the tool.
        query_id: Id of the query.
        task_id: Task of the plan, if any.
    """
    ids_json = stable_json({"query_id": query_id, "task_id": task_id, "tool_name": tool_name})
    # The same text as `stable_json` of all four, since "args" sorts first. Large arguments are thus
    # encoded once.
    return text_digest(f'{{"args":{args_json},{ids_json[1:]}')


def compute_pointer_id(
    *, tool_name: str, args: Mapping[str, Any], query_id: str, task_id: str | None
) -> str:
    """Return the 12-digit id of a call's result, used unless another call has it.

    The first digits of `sha256(stable_json({tool_name, args, query_id, task_id}))`. The formula
    never changes, because files outlive versions.

    Raises:
        UnserialisableError: If the arguments cannot be represented in JSON.
    """
    args_json = stable_json(args)
    return call_digest(args_json, tool_name=tool_name, query_id=query_id, task_id=task_id)[:12]


def digest_of(value: object) -> str:
    """Hash the `stable_json` of a value to the 64 hexadecimal digits of SHA-256.

    Raises:
        UnserialisableError: If the value cannot be represented in JSON.
    """
    return text_digest(stable_json(value))


def text_digest(text: str) -> str:
    """Hash a text, lone surrogates included, to the 64 hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def deterministic_summary(
    *,
    tool_name: str,
    args: Mapping[str, Any],
    key_args: Sequence[str] = KEY_ARGS,
    redactor: Redactor = DEFAULT_REDACTOR,
) -> str:
    """Summarize a call in at most 300 characters, such as `web_search query=foo count=3`.

    The tool's name is followed by `key=value` for each key argument. A call without key arguments
    shows its first three arguments by name. None is left out. A value has at most 120 characters.
    Lists and dicts are compact JSON, secrets are redacted, and control characters become spaces.

    Args:
        tool_name: Name of the tool.
        args: Arguments of the call.
        key_args: Names of the key arguments, in the order of the summary.
        redactor: Finds the secrets.

    Raises:
        UnserialisableError: If the arguments cannot be represented in JSON.
    """
    return summary_line(
        tool_name=redactor.text(tool_name), args=redactor.args(args), key_args=key_args
    )


def summary_line(
    *, tool_name: str, args: Mapping[str, Json], key_args: Sequence[str] = KEY_ARGS
) -> str:
    """Summarize a call as `deterministic_summary` does, from redacted plain arguments."""
    # Sorted, since equal calls may have their arguments in any order.
    names = [key for key in key_args if args.get(key) is not None] or sorted(args)[:3]
    parts = [one_line(tool_name, max_chars=_VALUE_CHARS)]
    for name in names:
        if args[name] is not None:
            value = one_line(_value_text(args[name]), max_chars=_VALUE_CHARS)
            parts.append(f"{one_line(name, max_chars=_VALUE_CHARS)}={value}")
    return one_line(" ".join(parts), max_chars=300)


def _value_text(value: Json) -> str:
    # `str` refuses to write integers of over 4,300 digits.
    if isinstance(value, str | bool) or (type(value) is int and abs(value) < 1 << 64):
        return str(value)
    return json_text(value)


def as_pointers(pointers: Iterable[ContextPointer]) -> list[ContextPointer]:
    """Return the pointers as a list.

    Raises:
        TypeError: If they are not pointers, for example ids or dicts.
    """
    advice = (
        "Pass a list of ContextPointer, as store.list(query_id=...) returns it. "
        "ContextPointer.model_validate(...) turns a dict into a pointer"
    )
    argument: object = pointers  # a caller without a type checker passes anything
    if not isinstance(argument, Iterable) or isinstance(argument, str | Mapping | BaseModel):
        raise TypeError(f"pointers must be a list, got {type(pointers).__name__}. {advice}")
    listed = list(pointers)
    for pointer in listed:
        if not hasattr(pointer, "pointer_id"):
            raise TypeError(f"pointers contains a {type(pointer).__name__}. {advice}")
    return listed
