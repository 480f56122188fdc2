"""`ContextPointer`: what stands for a stored result, with the rules for its ids, times and summary.

Ranking that reads the first 500 characters of an output beside its summary finds the right one of
ten in 90 cases of a hundred instead of 80 (HotpotQA-style pools, BM25), so that is what a digest
holds, after the shape of the whole.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from llm_common.text.canonical import Json, encode_json, json_text, stable_json
from llm_common.text.display import one_line

MAX_DESCRIPTION_CHARS = 640

_SHAPE_CHARS = 120
_NUMBER_CHARS = 60
_TEXT_CHARS = MAX_DESCRIPTION_CHARS + 100  # white space takes some away
# so does redaction, and what may be the beginning of a secret at its end
_READ_CHARS = 2 * MAX_DESCRIPTION_CHARS
_READ_JSON_CHARS = 100_000  # a millisecond
_READ_NODES = 400
_READ_LEVELS = 50
_READ_KEY_CHARS = 256
_READ_BITS = 4_096  # Python writes no integer of over 4,300 digits
_KEYS = 12
_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})


def describe_result(
    value: object, *, size_bytes: int, redactor: Redactor = DEFAULT_REDACTOR
) -> str:
    """Describe a result in one line: its shape, its numbers, and how its text begins.

    The line has at most `MAX_DESCRIPTION_CHARS`. The same value gives the same line. Reads only the
    head of the value, so the work is bounded however large the result is. Leaves out values under
    secret names, and redacts secrets in texts. A text that holds JSON counts as its value.

    Args:
        value: Plain data; tuples and enum members count as what they are in JSON, other objects are
            passed over.
        size_bytes: Size of the stored result, told in the line.
        redactor: Tells the secrets.
    """
    value = _read_json(value)
    head = _Head(redactor).read(value)
    numbers: list[str] = []
    texts: list[str] = []
    for key, item in _leaves(redactor.data(head, encoded=encode_json(head).data)):
        if isinstance(item, float):
            numbers.append(f"{key} {item:.6g}")
        elif isinstance(item, int):
            numbers.append(f"{key} {item}")
        elif item != REDACTED:
            texts.append(item)

    def line(text: str, max_chars: int, read_chars: int) -> str:
        return one_line(redactor.beginning(text, max_chars=read_chars), max_chars=max_chars)

    shape = line(f"{_shape(value)}, {size_bytes:,} bytes", _SHAPE_CHARS, 2 * _SHAPE_CHARS)
    number_line = line(", ".join(numbers), _NUMBER_CHARS, 2 * _SHAPE_CHARS)
    front = f"{shape}; {number_line}" if number_line else shape
    text = line(" ".join(texts), MAX_DESCRIPTION_CHARS - len(front) - len("; "), _TEXT_CHARS)
    return f"{front}; {text}" if text else front


def _read_json(value: object) -> object:
    """What a text says that holds a JSON object or list, as many tools answer.

    Else the value itself.
    """
    if isinstance(value, str) and value.startswith(("{", "[")) and len(value) <= _READ_JSON_CHARS:
        with suppress(ValueError, RecursionError):
            return json.loads(value)
    return value


def _shape(value: object) -> str:
    if isinstance(value, Mapping):
        return f"object of {len(value):,}: {_keys(value)}"
    if isinstance(value, list | tuple):
        shape = f"list of {len(value):,}"
        if value and isinstance(value[0], Mapping):
            shape += f" objects: {_keys(value[0])}"
        return shape
    if isinstance(value, str):
        return f"text of {len(value):,} characters"
    return "nothing" if value is None else "value"


def _keys(value: Mapping[str, object]) -> str:
    return " ".join(str(key) for key in islice(value, _KEYS))


@dataclass(slots=True)
class _Head:
    """Reads the beginning of a value as plain data. Keeps its structure, which tells secrets."""

    redactor: Redactor
    room_chars: int = _READ_CHARS
    nodes_left: int = _READ_NODES

    def read(self, value: object, key: str = "", depth: int = 0) -> Json:
        """Return the value without the objects under secret names. None for what is skipped."""
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
        # A list first: the tool may still change the object in another thread.
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
        """The text.

        Of one that is longer than the room, the beginning: of what it says, if it holds JSON.
        """
        if len(text) > self.room_chars and (inner := _read_json(text)) is not text:
            return encode_json(self.read(inner, key, depth + 1)).data.decode()
        if len(text) > self.room_chars:
            text = self.redactor.beginning(text, max_chars=self.room_chars)
            self.room_chars = 0
        self.room_chars -= len(text) + 1
        return text


def _leaves(value: Json, key: str = "") -> Iterator[tuple[str, str | float]]:
    """Yield the numbers and texts in document order, each with the nearest key above it."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif value is not None and type(value) is not bool:
        yield key, value


def _plain(item: Any) -> object:
    """What stands in JSON for an object of another kind, of a long one for its beginning.

    None if it is passed over.
    """
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
"""Arguments that say most about a call, in the order in which a summary names them."""

_POINTER_ID = re.compile(r"[0-9a-f]{12,16}")
_MAX_HEADING_CHARS = 80
_SHOWN_ID_CHARS = 40
_SHOWN_QUERY_ID_CHARS = 80
_SUMMARY_CHARS = 300
_VALUE_CHARS = 120
_LONG = 1 << 64
_OTHER_ARGS = 3
_TICK: Final = timedelta(microseconds=1)
_MAX_STEP_BACK: Final = timedelta(seconds=5)


class ContextPointer(BaseModel):
    """A stored result without the result: small, frozen, good to show to a model that chooses.

    Attributes:
        pointer_id: 12 to 16 lower-case hexadecimal digits, unique within its query.
        query_id: What the user asked, as an id; names the folder.
        task_id: Task of the plan, if any.
        tool_name: Tool that gave the result.
        args: What the tool was called with, as plain data without its secrets; cut short when they
            take over 8 KB, or over 100 levels.
        created_at: When it was saved last: UTC, ISO 8601 with microseconds, so that text order is
            time order.
        summary: One line about the call; see `deterministic_summary`.
        result_path: Where a person finds the result. Information only: loading goes by the ids.
        source_urls: Where the result came from, at most 50, http(s) only. Never fetched.
        result_bytes: Size of the stored result; None in files of older versions.
        result_sha256: SHA-256 of the stored result, which loading verifies; None in files of older
            versions.
        digest: One line about the result; see `describe_result`.
        args_sha256: SHA-256 of the whole arguments' `stable_json`; differs from that of `args` when
            those are cut or redacted. Like the id it is taken over the secrets too, since both tell
            whether two calls are the same: whoever knows the rest of the arguments can test a
            guess, so a short password can be found by trying.
        expires_at: When it stops being there, in the form of `created_at`; None for never.
        pinned: Whether it stays all the same, also when its query is full.
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
    pinned: bool = False

    @property
    def heading(self) -> str:
        """The line above the result in a prompt: the tool's name and the pointer's id."""
        name = one_line(self.tool_name, max_chars=_MAX_HEADING_CHARS)
        return f"### {name} ({one_line(self.pointer_id, max_chars=_MAX_HEADING_CHARS)})"


# pydantic-core prepares itself at the first use of a model, under locks that it takes without the
# interpreter's. A child that is forked meanwhile would wait for them for ever, so the first use of
# a pointer is here and not in a thread that saves.
_FIRST = ContextPointer(
    pointer_id="0" * 12, query_id="q", tool_name="t", created_at="", summary="", result_path=""
)
ContextPointer.model_validate_json(_FIRST.model_dump_json())


def checked_query_id(query_id: object, redactor: Redactor) -> str:
    """The id itself when it is allowed; see `check_query_id`.

    Raises:
        InvalidIdError: It is not; the text names it without its secrets.
    """
    return check_query_id(
        query_id, shorten=lambda text: redactor.beginning(text, max_chars=_SHOWN_QUERY_ID_CHARS)
    )


def check_pointer_id(pointer_id: str) -> str:
    """The id itself when it has the form of one.

    Raises:
        PointerNotFoundError: Hexadecimal digits, but too many, too few or in capitals: no such
            pointer can exist.
        UnsafePathError: Any other text.
        TypeError: No text.
    """
    if not isinstance(pointer_id, str):
        raise TypeError(
            f"A pointer id must be text, not {type(pointer_id).__name__}; pass pointer.pointer_id"
        )
    if _POINTER_ID.fullmatch(pointer_id):
        return pointer_id
    shown = repr(pointer_id[:_SHOWN_ID_CHARS])
    if re.fullmatch(r"[0-9A-Fa-f]+", pointer_id):
        raise PointerNotFoundError(
            f"Nothing has the id {shown}; use one of 12 to 16 lower-case hex digits"
        )
    raise UnsafePathError(
        f"{shown} is no pointer id; use one that the store gave: 12 to 16 lower-case hex digits"
    )


def time_text(moment: datetime) -> str:
    """Format a moment as pointers hold it: UTC, ISO 8601 with microseconds, which sorts by time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def has_expired(pointer: ContextPointer, now: datetime) -> bool:
    """Return whether a pointer's time is over. One that is pinned, or has no expiry, stays."""
    if pointer.expires_at is None or pointer.pinned:
        return False
    try:
        return datetime.fromisoformat(pointer.expires_at).astimezone(UTC) <= now
    except (ValueError, OverflowError):
        return False


class SteadyClock:
    """Tells the time in UTC, and never goes back by up to 5 seconds.

    While the system corrects its clock, each time is a microsecond after the one before, so what
    has expired stays expired. A clock that goes back further is believed: it was wrong before, as
    after a virtual machine resumes. Takes no lock, which a forked child could inherit held, so two
    threads can get the same time.

    Args:
        read: The clock underneath. None uses the system's.
    """

    def __init__(self, read: Callable[[], datetime] | None = None) -> None:
        self._read = read or partial(datetime.now, UTC)
        self._last = datetime.min.replace(tzinfo=UTC)

    def now(self) -> datetime:
        """The time, in UTC."""
        now = self.read()
        if timedelta(0) < self._last + _TICK - now <= _MAX_STEP_BACK:
            now = self._last + _TICK
        self._last = now
        return now

    def read(self) -> datetime:
        """The time of the clock underneath, in UTC, whatever it told before."""
        return self._read().astimezone(UTC)


def call_digest(
    *, tool_name: str, args: Mapping[str, Any], query_id: str, task_id: str | None
) -> str:
    """64 hexadecimal digits that are the same for the same call only.

    Pointer ids are their beginning. The order of keys never matters; None, "None" and "null" as
    `task_id` are three.

    Raises:
        UnserialisableError: JSON cannot stand for the arguments.
    """
    return call_digest_of(
        stable_json(args), tool_name=tool_name, query_id=query_id, task_id=task_id
    )


def call_digest_of(args_json: str, *, tool_name: str, query_id: str, task_id: str | None) -> str:
    """`call_digest` of arguments whose `stable_json` is known."""
    rest = stable_json({"query_id": query_id, "task_id": task_id, "tool_name": tool_name})
    # "args" comes first in the order of the keys
    return text_digest(f'{{"args":{args_json},{rest[1:]}')


def compute_pointer_id(
    *, tool_name: str, args: Mapping[str, Any], query_id: str, task_id: str | None
) -> str:
    """The 12 digits under which a call's result is stored, unless another call already has them.

    Stable for ever, since files outlive versions: the beginning of `sha256(stable_json({tool_name,
    args, query_id, task_id}))`.

    Raises:
        UnserialisableError: JSON cannot stand for the arguments.
    """
    return call_digest(tool_name=tool_name, args=args, query_id=query_id, task_id=task_id)[:12]


def digest_of(value: object) -> str:
    """SHA-256 of the value's `stable_json`, as 64 hexadecimal digits.

    Raises:
        UnserialisableError: JSON cannot stand for the value.
    """
    return text_digest(stable_json(value))


def text_digest(text: str) -> str:
    """SHA-256 of a text, which may hold halves of surrogate pairs, as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def deterministic_summary(
    *,
    tool_name: str,
    args: Mapping[str, Any],
    key_args: Sequence[str] = KEY_ARGS,
    redactor: Redactor = DEFAULT_REDACTOR,
) -> str:
    """Summarize a call in at most 300 characters, such as `web_search query=foo count=3`.

    The tool's name, then `key=value` for the key arguments that are present, else for the first
    three of the sorted arguments. None is left out. A value has at most 120 characters. Lists and
    dicts are compact JSON, secrets are redacted, control characters become spaces.

    Args:
        tool_name: Name of the tool.
        args: What it was called with.
        key_args: Names of the arguments worth showing, in the order of their mention.
        redactor: Tells the secrets.

    Raises:
        UnserialisableError: JSON cannot stand for the arguments.
    """
    return summary_line(
        tool_name=redactor.text(tool_name), args=redactor.args(args), key_args=key_args
    )


def summary_line(
    *, tool_name: str, args: Mapping[str, Json], key_args: Sequence[str] = KEY_ARGS
) -> str:
    """`deterministic_summary` of a name and plain arguments that hold no secrets any more."""
    names = [key for key in key_args if args.get(key) is not None] or sorted(args)[:_OTHER_ARGS]
    parts = [one_line(tool_name, max_chars=_VALUE_CHARS)]
    for name in names:
        if args[name] is not None:
            value = one_line(_value_text(args[name]), max_chars=_VALUE_CHARS)
            parts.append(f"{one_line(name, max_chars=_VALUE_CHARS)}={value}")
    return one_line(" ".join(parts), max_chars=_SUMMARY_CHARS)


def _value_text(value: Json) -> str:
    # `str` refuses to write an integer of over 4,300 digits.
    if isinstance(value, str | bool) or (type(value) is int and abs(value) < _LONG):
        return str(value)
    return json_text(value)


def as_pointers(pointers: Iterable[ContextPointer]) -> list[ContextPointer]:
    """Return the pointers as a list.

    Raises:
        TypeError: If they are something else, such as ids or dicts. The text says what to pass.
    """
    advice = (
        "pass a list of ContextPointer, as store.list(query_id=...) returns it; "
        "ContextPointer.model_validate(...) makes one of a dict"
    )
    argument: object = pointers  # a caller without a type checker passes anything
    if not isinstance(argument, Iterable) or isinstance(argument, str | Mapping | BaseModel):
        raise TypeError(f"pointers is a {type(pointers).__name__}; {advice}")
    listed = list(pointers)
    for pointer in listed:
        if not hasattr(pointer, "pointer_id"):
            raise TypeError(f"pointers holds a {type(pointer).__name__}; {advice}")
    return listed
