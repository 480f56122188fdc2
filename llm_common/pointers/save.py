"""A save, from the call to the committed pair.

`Call` checks and redacts a call. `describe` creates the pointer of a result. `Saver` chooses the
id, commits the pair, and evicts older results by the rules of `Retention`.
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
    call_digest,
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
from llm_common.text.canonical import (
    Encoded,
    Json,
    encode_json,
    json_text,
    snapshot,
    stable_json,
    to_plain,
)

# A pointer stays small enough to list thousands of them, or to show dozens to a model.
MAX_ARGS_BYTES = 8_192
MAX_SOURCE_URLS = 50
# Addresses that differ in a secret alone are one after redaction, which takes 0.1 ms for each.
_MAX_REDACTED_URLS: Final = 500

_URL = re.compile(r"https?://[^\s<>\"\x00-\x1f\x7f\ud800-\udfff]{1,2000}", re.IGNORECASE)
_MAX_NAME_CHARS: Final = 100_000
# As many names and values of this length stay below `MAX_ARGS_BYTES` in ASCII.
_KEPT_ARGS: Final = 24
_KEPT_CHARS: Final = 120
# A repeat's id ends with its ordinal in four hexadecimal digits.
_MAX_REPEATS: Final = 0xFFFF

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """A checked call of a tool, with all fields of its pointer that precede the result.

    Attributes:
        query_id: Id of the query.
        task_id: Task of the plan, if any.
        tool_name: Name of the tool.
        redacted_task_id: The stored `task_id`, with secrets redacted.
        redacted_tool_name: The stored `tool_name`, with secrets redacted.
        args: Arguments as plain data, with secrets redacted. Cut if they exceed 8 KB or 100 levels.
        args_sha256: SHA-256 of the unredacted arguments.
        call_sha256: SHA-256 of the call. Its first digits are the pointer id.
        summary: One line about the call.
    """

    query_id: str
    task_id: str | None
    tool_name: str
    redacted_task_id: str | None
    redacted_tool_name: str
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
        args: Mapping[str, Json],
        redactor: Redactor,
    ) -> "Call":
        """Check and redact a call. Megabytes of arguments take a second, so call it in a thread.

        Args:
            query_id: Id of the query.
            task_id: Task of the plan, if any.
            tool_name: Name of the tool.
            args: The arguments, as `copied_args` returns them.
            redactor: Finds the secrets.

        Raises:
            InvalidIdError: If `query_id`, `task_id` or `tool_name` is not allowed.
            UnserialisableError: If the arguments cannot be represented in JSON.
        """
        query_id = checked_query_id(query_id, redactor)
        task = None
        if isinstance(task_id, int) and not isinstance(task_id, bool):  # a bool is an int
            task = str(task_id)
        elif task_id is not None:
            task = _checked_name(task_id, "task_id")
        tool_name = _checked_name(tool_name, "tool_name")
        plain = to_plain(dict(args))
        # Hashed before redaction, so that calls that differ only in a secret have different ids.
        stable = stable_json(args)
        redacted_args = _redacted(plain, redactor)
        assert isinstance(redacted_args, dict)
        stored_args = redacted_args
        if len(encode_json(redacted_args).data) > MAX_ARGS_BYTES or _is_deep(redacted_args):
            stored_args = {}
            for key, value in islice(redacted_args.items(), _KEPT_ARGS):
                stored_args[key[:_KEPT_CHARS]] = _beginning(value)
        redacted_name = redactor.text(tool_name)
        return cls(
            query_id=query_id,
            task_id=task,
            tool_name=tool_name,
            redacted_task_id=None if task is None else redactor.text(task),
            redacted_tool_name=redacted_name,
            args=stored_args,
            args_sha256=text_digest(stable),
            call_sha256=call_digest(stable, tool_name=tool_name, query_id=query_id, task_id=task),
            summary=summary_line(tool_name=redacted_name, args=redacted_args),
        )

    @property
    def short_id(self) -> str:
        """Return the 12-digit id of the call."""
        return self.call_sha256[:12]

    @property
    def long_id(self) -> str:
        """Return the 16-digit id, for a call whose short id belongs to another call."""
        return self.call_sha256[:16]

    def repeat_id(self, ordinal: int) -> str:
        """Return the id of a repeated result of the call."""
        return f"{self.short_id}{ordinal:04x}"

    def owns(self, pointer: ContextPointer) -> bool:
        """Return whether a pointer belongs to this call, whatever its id."""
        # Older versions stored names without redaction.
        return (
            pointer.query_id == self.query_id
            and pointer.tool_name in (self.tool_name, self.redacted_tool_name)
            and pointer.task_id in (self.task_id, self.redacted_task_id)
            and (pointer.args_sha256 or digest_of(pointer.args)) == self.args_sha256
        )


def copied_args(args: Mapping[str, Any]) -> dict[str, Json]:
    """Copy the arguments of a call, which the caller may change while the save waits.

    Raises:
        UnserialisableError: If they cannot be represented in JSON.
    """
    if not isinstance(args, Mapping):
        raise UnserialisableError(
            f"args must be a mapping, got {type(args).__name__}. Pass names and values"
        )
    copied = snapshot(dict(args))
    assert isinstance(copied, dict)
    return copied


def describe(
    call: Call,
    encoded: Encoded,
    *,
    source_urls: Iterable[str],
    redactor: Redactor,
    created_at: datetime,
    retention: "Retention",
) -> ContextPointer:
    """Create the pointer of a call and its result, with the short id of the call.

    Raises:
        UnserialisableError: If another thread changed the result, or an argument's name contains a
            lone surrogate.
    """
    try:
        digest = describe_result(encoded.value, size_bytes=len(encoded.data), redactor=redactor)
        urls = _web_urls(source_urls, encoded.value, redactor)
    except (IndexError, RuntimeError) as exc:  # another thread shrinks a list or resizes a dict
        raise UnserialisableError("The result changed during the save. Save a copy") from exc
    expires_at = retention.expires_at(created_at)
    renew_s = None
    if retention.renew_on_read and expires_at is not None:
        renew_s = retention.ttl_s
    try:
        return ContextPointer(
            pointer_id=call.short_id,
            query_id=call.query_id,
            task_id=call.redacted_task_id,
            tool_name=call.redacted_tool_name,
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
            renew_s=renew_s,
            savers=[] if retention.saver is None else [retention.saver],
        )
    except ValidationError as exc:
        raise UnserialisableError(
            "The name of an argument is not valid Unicode. Pass plain text"
        ) from exc


def redacted_result(result: object, redactor: Redactor, *, redact_results: bool) -> object:
    """Redact a result, or only its `error` if `redact_results` is False.

    Raises:
        UnserialisableError: If the result cannot be represented in JSON.
    """
    error = error_text(result)
    redacted_error = None if error is None else redactor.text(error)
    if redacted_error != error:
        result = to_plain(result)
        if isinstance(result, dict):
            result = result | {"error": redacted_error}
    if redact_results:
        return _redacted(to_plain(result), redactor)
    return result


@dataclass(frozen=True, slots=True)
class Retention:
    """The limits of a store on the age and total size of results.

    Each pointer records its own expiry, which all processes obey.

    Attributes:
        ttl_s: Seconds from the last save of a result to its expiry. None and infinity keep it.
        max_bytes_per_query: Maximum total size of the results of a query. None sets no limit.
        renew_on_read: Whether a read extends the life of a result, as a save does.
        saver: Mark of the session that keeps the result, if it shares the query.

    Raises:
        TypeError: If a limit is not a number or None.
        ValueError: If a limit is zero or negative.
    """

    ttl_s: float | None = None
    max_bytes_per_query: int | None = None
    renew_on_read: bool = False
    saver: str | None = None

    def __post_init__(self) -> None:
        for name, limit in (
            ("ttl_s", self.ttl_s),
            ("max_bytes_per_query", self.max_bytes_per_query),
        ):
            if limit is not None and not isinstance(limit, int | float):
                raise TypeError(
                    f"{name} must be a number, got {type(limit).__name__}. Pass None for no limit"
                )
        if self.ttl_s is not None and not self.ttl_s > 0:  # `<= 0` would let NaN pass
            raise ValueError(
                f"ttl_s must be above 0, got {self.ttl_s}. "
                "To remove a result immediately, call delete()"
            )
        if self.max_bytes_per_query is not None and self.max_bytes_per_query <= 0:
            raise ValueError(
                f"max_bytes_per_query must be above 0, got {self.max_bytes_per_query}. "
                "Pass None for no limit"
            )

    def expires_at(self, saved_at: datetime) -> str | None:
        """Return the expiry of a result saved at some time, None for never."""
        if self.ttl_s is None:
            return None
        try:
            return time_text(saved_at + timedelta(seconds=self.ttl_s))
        except OverflowError:  # beyond the year 9999
            return None

    def select_evictions(
        self, pointers: list[ContextPointer], *, new_bytes: int, now: datetime
    ) -> list[ContextPointer]:
        """Select the pointers of a query to evict for a new result.

        Expired pointers come first, then the oldest. Pinned ones are never evicted.

        Args:
            pointers: The other pointers of the query.
            new_bytes: Size of the new result.
            now: Current time, by which pointers have expired.

        Raises:
            ResultTooLargeError: If the new result alone exceeds the limit.
            StoreFullError: If the pinned results leave too little room.
        """
        limit = self.max_bytes_per_query
        if limit is None:
            return []
        if new_bytes > limit:
            raise ResultTooLargeError(
                f"The result exceeds the {limit:,} bytes that a query may have. "
                "Raise max_bytes_per_query or store less"
            )
        pointers.sort(key=lambda p: (not has_expired(p, now), p.created_at, p.pointer_id))
        excess = new_bytes + sum(pointer.result_bytes or 0 for pointer in pointers) - limit
        evicted: list[ContextPointer] = []
        for pointer in pointers:
            if excess > 0 and not pointer.pinned:
                evicted.append(pointer)
                excess -= pointer.result_bytes or 0
        if excess > 0:
            raise StoreFullError(
                f"Pinned results leave too little of the {limit:,} bytes that a query may have, "
                "and nothing was changed. Unpin or delete some, or raise max_bytes_per_query"
            )
        return evicted


class Saver:
    """Commits results under the ids of their calls, and evicts others afterwards.

    A save that fails therefore evicts nothing. If the process dies between the two steps, the query
    exceeds its limit until the next save.

    Args:
        records: The pairs of the store.
        tombstones: Records the evictions.
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
        """Commit a pair, and return its pointer with the final id and location.

        Args:
            transaction: Transaction of the query.
            call: The call.
            pointer: The pointer of the call's result.
            payload: The encoded result.
            keep_repeats: True stores a result that differs from the last one under a new id.
            retention: Limits of the save.
            now: Current time, by which pointers have expired.

        Raises:
            StoreFullError: If the pinned results leave too little room.
            StoreError: If the pair was not committed.
        """
        pointer = self._placed(pointer)
        files = None
        if retention.max_bytes_per_query is not None:
            files = QueryFiles.of(self._records.blobs, call.query_id)
        if not keep_repeats:
            # Most calls are saved once. The owner of an id is read only if the id is used.
            evicted = self._evictions(pointer, files, retention, now)
            if transaction.commit_new(pointer, payload):
                self._evict(transaction, evicted, now)
                return pointer
        pointer_id, owner = _choose_id(transaction, call)
        # Repeats extend the short id. A call with a long id does not own its short id.
        if keep_repeats and pointer_id == call.short_id:
            pointer_id, owner = self._choose_repeat(transaction, call, pointer, owner, files)
        pointer = self._placed(pointer.model_copy(update={"pointer_id": pointer_id}))
        if owner is not None:
            pointer = _replacing(owner, pointer, now)
        evicted = self._evictions(pointer, files, retention, now)
        transaction.commit(pointer, payload)
        self._evict(transaction, evicted, now)
        return pointer

    def _choose_repeat(
        self,
        transaction: Transaction,
        call: Call,
        pointer: ContextPointer,
        first: ContextPointer | None,
        files: QueryFiles | None,
    ) -> tuple[str, ContextPointer | None]:
        """Return the id of a call's next result, and the pointer with the same result, if any.

        An id that was removed is not used again, because a conversation may still name it.

        Args:
            transaction: Transaction of the query.
            call: The call.
            pointer: The pointer of the new result.
            first: The pointer under the call's short id, if any.
            files: The files of the query, if they are known.
        """
        was_removed = self._tombstones.removed(call.query_id)
        if first is not None:
            pointer_id, owner = _find_repeat(transaction, call, pointer, first)
            if owner is not None or not was_removed(pointer_id):
                return pointer_id, owner
        elif not was_removed(call.short_id) and not (files and _repeats(files, call)):
            return call.short_id, None

        # Removals have left gaps, in which the search above ends too early.
        if files is None:
            files = QueryFiles.of(self._records.blobs, call.query_id)
        newest, last = first, 0
        for ordinal in _repeats(files, call):
            repeat = transaction.current(call.repeat_id(ordinal))
            if repeat is not None and call.owns(repeat):
                newest, last = repeat, ordinal
                break
        if newest is not None and newest.result_sha256 == pointer.result_sha256:
            return newest.pointer_id, newest
        for ordinal in range(last + 1, _MAX_REPEATS + 1):
            pointer_id = call.repeat_id(ordinal)
            if not was_removed(pointer_id) and transaction.current(pointer_id) is None:
                return pointer_id, None
        raise _too_many_repeats()

    def _placed(self, pointer: ContextPointer) -> ContextPointer:
        """Return the pointer with the location of its result."""
        name = self._records.result_names(pointer)[0]
        location = self._records.blobs.location(blob_key(pointer.query_id, name))
        return pointer.model_copy(update={"result_path": location})

    def _evictions(
        self,
        pointer: ContextPointer,
        files: QueryFiles | None,
        retention: Retention,
        now: datetime,
    ) -> list[ContextPointer]:
        """Select the pointers to evict for a new one. Reads records only if the query is full."""
        limit, new_bytes = retention.max_bytes_per_query, pointer.result_bytes or 0
        if limit is None or files is None:
            return []
        # File sizes include the records, so they are an upper bound of the results' sizes.
        other_ids = files.by_pointer.keys() - {pointer.pointer_id}
        if new_bytes + sum(map(files.size, other_ids)) <= limit:
            return []
        candidates: list[ContextPointer] = []
        for candidate in read_pointers(self._records.blobs, files):
            if candidate.pointer_id in other_ids:
                candidates.append(candidate)
        return retention.select_evictions(candidates, new_bytes=new_bytes, now=now)

    def _evict(
        self, transaction: Transaction, evicted: list[ContextPointer], now: datetime
    ) -> None:
        """Remove the evicted pointers and record why. Leaves failed removals to the next save."""
        if not evicted:
            return
        query_id = evicted[0].query_id
        expired: list[str] = []
        erased: list[str] = []
        for pointer in evicted:
            (expired if has_expired(pointer, now) else erased).append(pointer.pointer_id)
        # Recorded before the removal. A tombstone of a pointer that still exists is never read.
        self._tombstones.mark(query_id, expired, "expired", now=now)
        self._tombstones.mark(query_id, erased, "erased", now=now)
        try:
            transaction.remove(*expired, *erased)
        except StoreError as exc:
            # The new result is committed. An error would tell the caller that it is not.
            _log.warning("a query exceeds its limit until the next save: %s", type(exc).__name__)


def _replacing(owner: ContextPointer, pointer: ContextPointer, now: datetime) -> ContextPointer:
    """Return a pointer that keeps the pin of the one that it replaces.

    The same result also lives at least as long. A hook, another session and their application save
    the same calls, and none of them may take away what another one keeps.
    """
    update: dict[str, object] = {"pinned": owner.pinned}
    is_same = owner.result_sha256 == pointer.result_sha256 and not has_expired(owner, now)
    if is_same and owner.savers != pointer.savers:
        update["savers"] = sorted({*(owner.savers or [""]), *(pointer.savers or [""])})
    if is_same and owner.expires_at is None and pointer.renew_s is not None:
        update |= {"expires_at": None, "renew_s": None}
    elif is_same and owner.expires_at is not None and pointer.expires_at is not None:
        # Both are in the form of `created_at`, whose text order is time order.
        update["expires_at"] = max(owner.expires_at, pointer.expires_at)
        update["renew_s"] = max(owner.renew_s or 0, pointer.renew_s or 0) or None
    return pointer.model_copy(update=update)


def _choose_id(transaction: Transaction, call: Call) -> tuple[str, ContextPointer | None]:
    """Return the id of a call's first result, and the pointer that has it already."""
    # A short id has 48 bits, so another call may have it already.
    for pointer_id in (call.short_id, call.long_id):
        owner = transaction.current(pointer_id)
        if owner is None or call.owns(owner):
            return pointer_id, owner
    raise StoreError("Two other calls have both ids of this call. Save it under another query_id")


def _find_repeat(
    transaction: Transaction, call: Call, pointer: ContextPointer, first: ContextPointer
) -> tuple[str, ContextPointer | None]:
    """Return the id of the call's next result, or of its last one if the result is the same."""
    # Only removals leave gaps, so doubling and bisection find the last ordinal in a few reads.
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
    # The id of a repeat may also be the long id of another call.
    if call.owns(newest) and newest.result_sha256 == pointer.result_sha256:
        return newest.pointer_id, newest
    if beyond > _MAX_REPEATS:
        raise _too_many_repeats()
    return call.repeat_id(beyond), None


def _repeats(files: QueryFiles, call: Call) -> list[int]:
    """Return the ordinals of ids that a repeat of the call may have, the highest first."""
    ordinals: list[int] = []
    for pointer_id in files.by_pointer:
        if len(pointer_id) == len(call.long_id) and pointer_id.startswith(call.short_id):
            ordinals.append(int(pointer_id[len(call.short_id) :], 16))
    return sorted(ordinals, reverse=True)


def _too_many_repeats() -> StoreError:
    return StoreError(f"The call has {_MAX_REPEATS:,} results already. Use another query_id")


def _checked_name(name: object, what: str) -> str:
    if isinstance(name, str) and len(name) <= _MAX_NAME_CHARS:
        return name
    got = f"{len(name):,} characters" if isinstance(name, str) else type(name).__name__
    raise InvalidIdError(
        f"{what} must be a str of at most {_MAX_NAME_CHARS:,} characters, got {got}"
    )


def _redacted(plain: Json, redactor: Redactor) -> Json:
    try:
        return redactor.data(plain)
    except RecursionError as exc:
        raise UnserialisableError(
            "A value is nested too deeply to redact its secrets. Flatten it"
        ) from exc


def _is_deep(value: Json) -> bool:
    """Return whether data has over 100 levels, which a recursive copy might not survive."""
    level = [value]
    for _ in range(101):
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


def error_text(result: object) -> str | None:
    """Return the `error` of a failed tool's result. Any other result has none."""
    error = getattr(result, "__dict__", {}).get("error")
    return error if isinstance(error, str) else None


def _web_urls(source_urls: Iterable[object], result: object, redactor: Redactor) -> list[str]:
    """Return the caller's web addresses, then the result's, without duplicates."""
    urls = list(source_urls)
    if isinstance(result, dict) and isinstance(result.get("source_urls"), list | tuple):
        urls += result["source_urls"]
    # Compared before redaction, which takes longer.
    distinct = dict.fromkeys(url for url in urls if isinstance(url, str) and _URL.fullmatch(url))
    # The query string of an address can hold a key.
    redacted: dict[str, None] = {}
    for url in islice(distinct, _MAX_REDACTED_URLS):
        if len(redacted) == MAX_SOURCE_URLS:
            break
        redacted[redactor.text(url)] = None
    return list(redacted)
