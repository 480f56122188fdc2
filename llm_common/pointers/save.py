"""A save, from the call to the committed pair.

`Call` checks and redacts what the tool was called with, `describe` makes the pointer of a result,
and `Saver` commits the two: it finds the id, makes room, and hands finished bytes to the records.
"""

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from pydantic import ValidationError

from llm_common.errors import (
    InvalidIdError,
    ResultTooLargeError,
    StoreError,
    StoreFullError,
    UnserialisableError,
)
from llm_common.pointers.pointer import (
    ContextPointer,
    call_digest_of,
    checked_query_id,
    describe_result,
    digest_of,
    has_expired,
    summary_line,
    text_digest,
    time_text,
)
from llm_common.pointers.records import (
    PointerRecords,
    QueryFiles,
    Transaction,
    blob_key,
    read_pointers,
)
from llm_common.pointers.tombstones import Tombstones
from llm_common.redaction.redactor import Redactor
from llm_common.text.canonical import Encoded, Json, encode_json, json_text, stable_json, to_plain

MAX_ARGS_BYTES = 8_192
MAX_SOURCE_URLS = 50

_URL = re.compile(r"https?://[^\s<>\"\x00-\x1f\x7f\ud800-\udfff]{1,2000}", re.IGNORECASE)
_MAX_NAME_CHARS: Final = 100_000
_MAX_ARGS_LEVELS: Final = 100
_KEPT_ARGS: Final = 24
_KEPT_CHARS: Final = 120
_MAX_REPEATS: Final = 0xFFFF

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, checked: everything of a pointer that does not depend on the result.

    Attributes:
        query_id: What the user asked, as an id.
        task_id: Task of the plan, if any.
        tool_name: Tool that was called.
        shown_task_id: The task's id without secrets, as it is stored.
        shown_tool_name: The tool's name without secrets, as it is stored.
        args: Its arguments as plain data without their secrets, cut when they take over 8 KB or 100
            levels.
        args_sha256: Of the whole arguments.
        call_sha256: Of the call; its id is the beginning.
        summary: One line about it.
    """

    query_id: str
    task_id: str | None
    tool_name: str
    shown_task_id: str | None
    shown_tool_name: str
    args: dict[str, Json]
    args_sha256: str
    call_sha256: str
    summary: str

    @classmethod
    def checked(
        cls,
        *,
        query_id: str,
        task_id: str | int | None,
        tool_name: str,
        args: Mapping[str, Any],
        redactor: Redactor,
    ) -> "Call":
        """The call, a snapshot that later changes of the arguments do not reach.

        Raises:
            InvalidIdError: `query_id`, `task_id` or `tool_name` is not allowed.
            UnserialisableError: JSON cannot stand for the arguments.
        """
        query_id = checked_query_id(query_id, redactor)
        task = None
        if isinstance(task_id, int) and not isinstance(task_id, bool):
            task = str(task_id)
        elif task_id is not None:
            task = _checked_name(task_id, "task_id")
        tool_name = _checked_name(tool_name, "tool_name")
        if not isinstance(args, Mapping):
            raise UnserialisableError(
                f"args must be a mapping of names to values, not {type(args).__name__}"
            )
        plain = to_plain(dict(args))
        stable = stable_json(args)
        redacted_args = _redacted(plain, redactor)
        assert isinstance(redacted_args, dict)
        shown_name = redactor.text(tool_name)
        return cls(
            query_id=query_id,
            task_id=task,
            tool_name=tool_name,
            shown_task_id=None if task is None else redactor.text(task),
            shown_tool_name=shown_name,
            args=_shortened(redacted_args),
            args_sha256=text_digest(stable),
            call_sha256=call_digest_of(
                stable, tool_name=tool_name, query_id=query_id, task_id=task
            ),
            summary=summary_line(tool_name=shown_name, args=redacted_args),
        )

    @property
    def short_id(self) -> str:
        """The id of the call: 12 digits."""
        return self.call_sha256[:12]

    @property
    def long_id(self) -> str:
        """The id of the call when another call owns the short one: 16 digits."""
        return self.call_sha256[:16]

    def repeat_id(self, ordinal: int) -> str:
        """The id of a further result of the call."""
        return f"{self.short_id}{ordinal:04x}"

    def owns(self, pointer: ContextPointer) -> bool:
        """Whether the pointer stands for this very call, whatever its id.

        Older versions stored names with secrets.
        """
        return (
            pointer.query_id == self.query_id
            and pointer.tool_name in (self.tool_name, self.shown_tool_name)
            and pointer.task_id in (self.task_id, self.shown_task_id)
            and (pointer.args_sha256 or digest_of(pointer.args)) == self.args_sha256
        )


def describe(
    call: Call,
    encoded: Encoded,
    *,
    source_urls: Iterable[str],
    redactor: Redactor,
    created_at: datetime,
    expires_at: str | None,
) -> ContextPointer:
    """The pointer of a call and its result, under the call's short id.

    Raises:
        UnserialisableError: The result was changed meanwhile, or a key is half a surrogate pair.
    """
    try:
        digest = describe_result(encoded.value, size_bytes=len(encoded.data), redactor=redactor)
        urls = _web_urls(source_urls, encoded.value, redactor)
    except (IndexError, RuntimeError) as exc:  # of a container that another thread shrinks or grows
        raise UnserialisableError("The result was changed while being saved; save a copy") from exc
    try:
        return ContextPointer(
            pointer_id=call.short_id,
            query_id=call.query_id,
            task_id=call.shown_task_id,
            tool_name=call.shown_tool_name,
            args=call.args,
            created_at=time_text(created_at),
            summary=call.summary,
            result_path="",
            source_urls=urls,
            result_bytes=len(encoded.data),
            result_sha256=hashlib.sha256(encoded.data).hexdigest(),
            digest=digest,
            args_sha256=call.args_sha256,
            expires_at=expires_at,
        )
    except ValidationError as exc:
        raise UnserialisableError(
            "A name among the arguments is no valid Unicode; pass plain text"
        ) from exc


def redacted_result(result: object, redactor: Redactor, *, redact_results: bool) -> object:
    """Redact a result, or only the `error` of a failed tool where results are stored as they are.

    Raises:
        UnserialisableError: JSON cannot stand for the result.
    """
    if redact_results:
        plain = to_plain(_without_secret_error(result, redactor))
        return _redacted(plain, redactor)
    return _without_secret_error(result, redactor)


@dataclass(frozen=True, slots=True)
class Retention:
    """The rules of one store; each pointer carries its own expiry, which every process obeys.

    Attributes:
        ttl_s: Seconds from its last save after which a result is gone; None and infinity keep it.
        max_bytes_per_query: Most bytes of the results of one query together; None sets no limit.

    Raises:
        ValueError: A number that is not above zero.
    """

    ttl_s: float | None = None
    max_bytes_per_query: int | None = None

    def __post_init__(self) -> None:
        for name, limit in (
            ("ttl_s", self.ttl_s),
            ("max_bytes_per_query", self.max_bytes_per_query),
        ):
            if limit is not None and not isinstance(limit, int | float):
                raise TypeError(
                    f"{name} is a {type(limit).__name__}; pass a number, or None for no limit"
                )
        if self.ttl_s is not None and not self.ttl_s > 0:  # `<= 0` would let NaN pass
            raise ValueError(
                f"ttl_s is {self.ttl_s}; "
                "pass more than 0 seconds, or use delete() for what must go now"
            )
        if self.max_bytes_per_query is not None and self.max_bytes_per_query <= 0:
            raise ValueError(
                f"max_bytes_per_query is {self.max_bytes_per_query}; "
                "pass more than 0, or None for no limit"
            )

    def expires_at(self, saved_at: datetime) -> str | None:
        """Return when a result saved at a moment expires, None for never."""
        if self.ttl_s is None:
            return None
        try:
            return time_text(saved_at + timedelta(seconds=self.ttl_s))
        except OverflowError:  # beyond the year 9999
            return None

    def select_evictions(
        self, others: Iterable[ContextPointer], *, new_bytes: int, now: datetime
    ) -> list[ContextPointer]:
        """Select the pointers of a query to evict for a new result: expired ones, then the oldest.

        Pinned ones stay.

        Args:
            others: The pointers that would remain beside it.
            new_bytes: Size of the result.
            now: Tells which have expired.

        Raises:
            ResultTooLargeError: The result alone is over the limit.
            StoreFullError: What is pinned leaves no room for it.
        """
        limit = self.max_bytes_per_query
        if limit is None:
            return []
        if new_bytes > limit:
            raise ResultTooLargeError(
                f"The result takes more than the {limit:,} bytes that a query may hold; "
                "raise max_bytes_per_query or store less"
            )
        pointers = list(others)
        pointers.sort(key=lambda p: (not has_expired(p, now), p.created_at, p.pointer_id))
        excess = new_bytes + sum(pointer.result_bytes or 0 for pointer in pointers) - limit
        evicted: list[ContextPointer] = []
        for pointer in pointers:
            if excess > 0 and not pointer.pinned:
                evicted.append(pointer)
                excess -= pointer.result_bytes or 0
        if excess > 0:
            raise StoreFullError(
                f"Pinned results leave no room for this one in the {limit:,} bytes that a query "
                "may hold; unpin or delete some, or raise max_bytes_per_query. Nothing was changed"
            )
        return evicted


class Saver:
    """Commits results under the ids of their calls.

    What must be evicted for a result goes after it is committed: a save that fails costs nothing. A
    process that dies in between leaves a query over its limit until the next save.

    Args:
        records: The store's pairs.
        tombstones: Where the evicted are noted.
    """

    def __init__(self, records: PointerRecords, tombstones: Tombstones) -> None:
        self._records = records
        self._tombstones = tombstones

    def commit(
        self,
        transaction: Transaction,
        call: Call,
        pointer: ContextPointer,
        payload: bytes,
        *,
        keep_repeats: bool,
        retention: Retention,
        now: datetime,
    ) -> ContextPointer:
        """The pointer under the id that it now has.

        Args:
            transaction: Changes the call's query.
            call: What the pointer stands for.
            pointer: The pointer, described.
            payload: Its result.
            keep_repeats: Whether a result that differs from the call's last gets an id of its own.
            retention: Tells what must go.
            now: Tells what has expired.

        Raises:
            StoreFullError: What is pinned leaves no room.
            StoreError: Not committed.
        """
        pointer = self._placed(pointer)
        evicted: list[ContextPointer] = []
        is_committed = False
        if not keep_repeats:
            # Most calls are saved once: only if something has the id is its owner read.
            evicted = self._evictions(pointer, retention, now)
            is_committed = transaction.commit_new(pointer, payload)
        if not is_committed:
            pointer_id, owner = _choose_id(transaction, call, pointer, keep_repeats=keep_repeats)
            pinned = owner is not None and owner.pinned
            pointer = self._placed(
                pointer.model_copy(update={"pointer_id": pointer_id, "pinned": pinned})
            )
            evicted = self._evictions(pointer, retention, now)
            transaction.commit(pointer, payload)
        if evicted:
            self._evict(transaction, evicted, now)
        return pointer

    def _placed(self, pointer: ContextPointer) -> ContextPointer:
        """The pointer with the place of its result."""
        name = self._records.result_names(pointer)[0]
        location = self._records.blobs.location(blob_key(pointer.query_id, name))
        return pointer.model_copy(update={"result_path": location})

    def _evictions(
        self, pointer: ContextPointer, retention: Retention, now: datetime
    ) -> list[ContextPointer]:
        """Select others of the query that must go for this one. Reads records only if any must."""
        limit, new_bytes = retention.max_bytes_per_query, pointer.result_bytes or 0
        if limit is None:
            return []
        files = QueryFiles.of(self._records.blobs, pointer.query_id)
        other_ids = files.by_pointer.keys() - {pointer.pointer_id}
        if new_bytes + sum(map(files.size, other_ids)) <= limit:
            return []
        others: list[ContextPointer] = []
        for other in read_pointers(self._records.blobs, files):
            if other.pointer_id in other_ids:
                others.append(other)
        return retention.select_evictions(others, new_bytes=new_bytes, now=now)

    def _evict(
        self, transaction: Transaction, evicted: list[ContextPointer], now: datetime
    ) -> None:
        """Remove the evicted, and note why.

        The new result is committed, so those that cannot be removed are left to the next save.
        """
        query_id = evicted[0].query_id
        expired: list[str] = []
        erased: list[str] = []
        for pointer in evicted:
            (expired if has_expired(pointer, now) else erased).append(pointer.pointer_id)
        self._tombstones.mark(query_id, expired, "expired", now=now)
        self._tombstones.mark(query_id, erased, "erased", now=now)
        try:
            transaction.remove(*expired, *erased)
        except StoreError as exc:
            _log.warning("a query stays over its limit for now: %s", type(exc).__name__)


def _choose_id(
    transaction: Transaction, call: Call, pointer: ContextPointer, *, keep_repeats: bool
) -> tuple[str, ContextPointer | None]:
    """The id to save under, and the pointer that this replaces."""
    for pointer_id in (call.short_id, call.long_id):
        owner = transaction.current(pointer_id)
        if owner is None or call.owns(owner):
            break
    else:
        raise StoreError(
            "Two other calls own both ids of this call; save it under another query_id"
        )
    if not keep_repeats or owner is None or pointer_id == call.long_id:
        return pointer_id, owner
    return _choose_repeat(transaction, call, pointer, owner)


def _choose_repeat(
    transaction: Transaction, call: Call, pointer: ContextPointer, first: ContextPointer
) -> tuple[str, ContextPointer | None]:
    """Return the id of the call's next result, or of its last if that is the same.

    Ordinals have no gaps, so the last one is found by bisection.
    """
    newest = first
    last, beyond = 0, 1
    while (repeat := transaction.current(call.repeat_id(beyond))) is not None:
        newest, last, beyond = repeat, beyond, beyond * 2
    while beyond - last > 1:
        middle = (last + beyond) // 2
        repeat = transaction.current(call.repeat_id(middle))
        if repeat is None:
            beyond = middle
        else:
            newest, last = repeat, middle
    if call.owns(newest) and newest.result_sha256 == pointer.result_sha256:
        return newest.pointer_id, newest
    if beyond > _MAX_REPEATS:
        raise StoreError(f"One call has been saved {_MAX_REPEATS:,} times; use another query_id")
    return call.repeat_id(beyond), None


def _checked_name(name: object, what: str) -> str:
    if isinstance(name, str) and len(name) <= _MAX_NAME_CHARS:
        return name
    got = f"{len(name):,} characters" if isinstance(name, str) else type(name).__name__
    raise InvalidIdError(
        f"{what} must be text of at most {_MAX_NAME_CHARS:,} characters, not {got}"
    )


def _redacted(plain: Json, redactor: Redactor) -> Json:
    try:
        return redactor.data(plain, encoded=encode_json(plain).data)
    except RecursionError as exc:
        raise UnserialisableError(
            "A value is nested too deeply for its secrets to be found; flatten it"
        ) from exc


def _shortened(args: dict[str, Json]) -> dict[str, Json]:
    """Return the arguments, or the beginnings of 24 if they are over 8 KB or 100 levels."""
    if len(encode_json(args).data) <= MAX_ARGS_BYTES and not _is_deep(args):
        return args
    return {key[:_KEPT_CHARS]: _beginning(value) for key, value in islice(args.items(), _KEPT_ARGS)}


def _is_deep(value: Json) -> bool:
    """Return whether the data is so deep that a copy of a pointer, which recurses, might fail."""
    level = [value]
    for _ in range(_MAX_ARGS_LEVELS + 1):
        inner: list[Json] = []
        for item in level:
            if isinstance(item, dict):
                inner += item.values()
            elif isinstance(item, list):
                inner += item
        if not inner:
            return False
        level = inner
    return True


def _beginning(value: Json) -> Json:
    text = value if isinstance(value, str) else json_text(value)
    if len(text) <= _KEPT_CHARS:
        return value
    return text[: _KEPT_CHARS - 1] + "…"


def _without_secret_error(result: object, redactor: Redactor) -> object:
    """Redact the `error` of a failed tool's result. Returns any other result itself."""
    error = getattr(result, "__dict__", {}).get("error")
    if not isinstance(error, str) or redactor.text(error) == error:
        return result
    plain = to_plain(result)
    if isinstance(plain, dict):
        plain = plain | {"error": redactor.text(error)}
    return plain


def _web_urls(named: Iterable[object], result: object, redactor: Redactor) -> list[str]:
    """Return the web addresses that the caller names, then those of the result, each once."""
    urls = list(named)
    if isinstance(result, dict) and isinstance(result.get("source_urls"), list | tuple):
        urls += result["source_urls"]
    web_urls: dict[str, None] = {}  # each once, in order
    for url in urls:
        if len(web_urls) == MAX_SOURCE_URLS:
            break
        if isinstance(url, str) and _URL.fullmatch(url):
            web_urls[redactor.text(url)] = None
    return list(web_urls)
