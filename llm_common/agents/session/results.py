"""`ShownResults`: what a model sees of the results of a session.

A result is offloaded, which stores a long one and shows a preview. What is stored is read by its
id, found by words, and queried as tables.
"""

import errno
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from cachetools import LRUCache

from llm_common._telemetry import record
from llm_common._threads import ForkSafeLock, OwnThreads, PerProcess, computed_once, in_thread
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.offloading import (
    Offloaded,
    OffloadTurn,
    ShorterForm,
    text_of,
    unstored,
    whole,
)
from llm_common.agents.session.saved import SavedResults, View
from llm_common.agents.session.tables import SessionTables, StoredTable, answer_text
from llm_common.agents.session.trace import SessionTrace
from llm_common.errors import (
    PointerNotFoundError,
    StoreError,
    ToolArgumentsError,
    UnserialisableError,
)
from llm_common.history.message_shapes import Message, last_question, newest_first
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.pointer import MIN_ID_CHARS, ContextPointer
from llm_common.pointers.prompt_forms import framed_result, reference_line
from llm_common.pointers.reading import ContextReading
from llm_common.tables.changes import changes_between
from llm_common.tables.sql.database import QUERY_NAME, QueryRows
from llm_common.text.canonical import Json, decode_json
from llm_common.text.display import one_line, printable, without_headings
from llm_common.tools.read_back import read_context

_MAX_TURNS: Final = 64  # of one conversation at once: more than any framework runs side by side
_MAX_BYTES: Final = 5_000_000  # of a result that is compared, which takes half a second
_MAX_CHARS: Final = 20_000  # of the changes, far more than a preview has
_LINE_CHARS: Final = 200

_log = logging.getLogger(__name__)


class ShownResults:
    """Offloads, reads, finds and queries the results of one session.

    Args:
        saved: The results of the session.
        config: The limits and policies.
        trace: Records what a model sees.

    Attributes:
        saved: The results of the session.
        reads: How often each result was read, by pointer id.
    """

    def __init__(self, saved: SavedResults, config: SessionConfig, trace: SessionTrace) -> None:
        self.saved: Final = saved
        self.reads: Final = Counter[str]()
        self._config = config
        self._trace = trace
        # A framework does not say when a turn ends, so only the oldest turns are dropped.
        self._turns: LRUCache[str, OffloadTurn] = LRUCache(_MAX_TURNS)
        self._lock = ForkSafeLock(self._forget_turns)
        # The session's own, so that a long query delays no work of another session.
        self._query_thread = PerProcess(partial(OwnThreads, 1, "query", daemon=False))

    async def offload(
        self,
        result: Any,
        *,
        tool: str,
        args: Mapping[str, Any],
        query: str,
        turn: str | OffloadTurn | None,
        messages: Sequence[Message] | None,
        pointer: ContextPointer | None,
        view: View | None,
    ) -> Offloaded:
        """Return a result as the model sees it. See `Session.offload`.

        Args:
            result: The tool's result.
            tool: The tool's name.
            args: The arguments of the call.
            query: The question of the preview.
            turn: The turn, or its name.
            messages: The conversation up to the call.
            pointer: The pointer of a result that is stored already.
            view: Tells which results the messages show. None without messages.
        """
        for name, value, kind, hint in (
            ("tool", tool, str, "the tool's name as a str"),
            ("args", args, Mapping, "the arguments of the call as a dict"),
            ("query", query, str, "a str"),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be {hint}, got {type(value).__name__}")
        if not isinstance(turn, OffloadTurn):
            turn = self._turn(turn, query, messages or ())
        if isinstance(result, bytes) and pointer is None:
            # The output of a subprocess is a text. What is not stays bytes.
            with suppress(UnicodeDecodeError):
                result = result.decode()
        with self._trace.recorded(lambda: query or last_question(messages or ())):
            # The session's tools limit their outputs already. The trace has them as readings.
            is_own = pointer is None and tool in self._config.tool_names
            if isinstance(result, ContextReading) or is_own:
                return await self._own_result(result, turn, tool)
            # An application may store results that no model has seen, such as those of its own run.
            may_repeat = messages is not None or pointer is None
            offloaded = await self._offload(
                result, tool, args, turn, pointer=pointer, may_repeat=may_repeat, view=view
            )
            record(
                "offload",
                session_id=self.saved.session_id,
                tool=offloaded.tool_name,
                outcome=offloaded.form,
                pointer_id=offloaded.pointer_id,
                total_chars=offloaded.total_chars,
                shown_chars=len(offloaded.text),
            )
        if offloaded.pointer_id is not None:
            _log.info(
                "a result of %d characters is stored as %s, and the model sees %d",
                offloaded.total_chars,
                offloaded.pointer_id,
                len(offloaded.text),
            )
        return offloaded

    async def _own_result(self, result: Any, turn: OffloadTurn, tool: str) -> Offloaded:
        """Return the answer of one of the session's tools, which stays whole."""
        if isinstance(result, ContextReading):
            text = str(result)
            await turn.take(text)
            return whole(tool, text)
        return whole(tool, await in_thread(text_of, result))

    async def _offload(
        self,
        result: Any,
        tool: str,
        args: Mapping[str, Any],
        turn: OffloadTurn,
        *,
        pointer: ContextPointer | None,
        may_repeat: bool,
        view: View | None,
    ) -> Offloaded:
        text, is_whole = await turn.read(tool, result)
        if is_whole:
            return whole(tool, text)
        is_stored = pointer is not None
        if pointer is None:
            try:
                pointer = await self.saved.save(result, tool=tool, args=dict(args))
            except UnserialisableError:
                raise  # a fault of the result, which the caller can replace
            except StoreError as exc:
                return await self._unstored(result, turn, tool, text, exc)
        # A model must not see a secret that the store removes.
        redacted = await self.saved.store.as_stored(result)
        shorter = None
        if may_repeat:
            shorter = partial(
                shorter_form,
                self.saved,
                pointer,
                is_text=isinstance(redacted, str),
                view=view,
                reader_name=turn.reader_name,
            )
        same_text = text if redacted is result else None
        preview = await turn.preview(pointer, redacted, text=same_text, shorter=shorter)
        # If the turn has no tokens left, a model needs the id at least to read the result.
        return preview if preview.text or is_stored else turn.stored_line(preview)

    async def _unstored(
        self, result: Any, turn: OffloadTurn, tool: str, text: str, error: StoreError
    ) -> Offloaded:
        """Return a result that could not be stored as the model sees it, and log a warning."""
        # Only the class and the system's code, because the message may contain a path of the user.
        reason = type(error).__name__
        if isinstance(error.__cause__, OSError):
            reason += f", {errno.errorcode.get(error.__cause__.errno or 0, 'unknown error')}"
        _log.warning("a result was not stored, and the run goes on: %s", reason)
        # A model must not see a secret that the store removes.
        redacted = await self.saved.store.as_stored(result)
        is_changed = redacted is not result
        max_tokens = self._config.fold.max_tokens if self._config.fold is not None else None

        def cut() -> Offloaded:
            shown = text_of(redacted) if is_changed else text
            max_chars = turn.unstored_chars(shown, max_tokens)
            return unstored(tool, shown, max_chars=max_chars, is_changed=is_changed)

        return await in_thread(cut)

    @computed_once
    def _tables(self) -> SessionTables:
        return SessionTables(self.saved)

    async def tables(self) -> tuple[StoredTable, ...]:
        """Return the stored records as tables. See `Session.tables`."""
        return await self._query_thread.get().run(self._tables.tables)

    async def query_rows(self, sql: str) -> QueryRows:
        """Return the rows of one SELECT as values. See `Session.query_rows`."""
        return await self._query_thread.get().run(self._tables.query, sql)

    async def query(self, sql: str, cursor: str | None) -> str:
        """Return the rows of one SELECT as a text for a model. See `Session.query`."""
        return await self._query_thread.get().run(self._answer, sql, cursor)

    def _answer(self, sql: str, cursor: str | None) -> str:
        max_tokens, counter = self._config.max_read_tokens, self._config.counter
        try:
            rows = self._tables.query(sql)
            return answer_text(sql, rows, cursor=cursor, max_tokens=max_tokens, counter=counter)
        except ToolArgumentsError as exc:
            message = exc.message
            while counter.count(message) > max_tokens:
                message = one_line(message, max_chars=len(message) * 3 // 4)
            raise ToolArgumentsError(message, tool=QUERY_NAME) from exc

    def _forget_turns(self) -> None:
        self._turns = LRUCache(_MAX_TURNS)

    def _turn(self, name: str | None, query: str, messages: Sequence[Message]) -> OffloadTurn:
        """Return the turn of a name, or a new one."""
        # Frameworks run the calls of a turn in threads too, and they must share one budget.
        with self._lock:
            if name is not None and name in self._turns:
                return self._turns[name]
            calls = 1
            if messages:
                query = query or last_question(messages)
                newest = (len(message.calls) for message in newest_first(messages))
                calls = next(filter(None, newest), 1)
            turn = OffloadTurn(
                self._config.offload, query=query, calls=calls, counter=self._config.counter
            )
            if name is not None:
                self._turns[name] = turn
            return turn

    def load_payload(self, pointer_id: str) -> tuple[ContextPointer, bytes]:
        """Return a stored result for a reader, and count the reading."""
        loaded = self.saved.load_payload(pointer_id)
        self.reads[pointer_id] += 1
        return loaded

    async def read(
        self,
        pointer_id: str | None,
        *,
        path: str | None,
        lines: tuple[int, int] | None,
        chars: tuple[int, int] | None,
        pattern: str | None,
        cursor: str | None,
    ) -> ContextReading:
        """Return a piece of a stored result. See `Session.read`."""
        if not isinstance(pointer_id, str | None):
            raise TypeError(
                f"pointer_id must be a str, got {type(pointer_id).__name__}; pass its pointer_id"
            )
        if pointer_id is None:
            raise PointerNotFoundError(
                "this result has no pointer: it is whole in the text that offload returned, or it "
                "could not be stored. Use that text"
            )
        part = {"path": path, "lines": lines, "chars": chars, "regex": pattern}
        selected = {name: value for name, value in part.items() if value is not None}
        with self._trace.recorded():
            return await read_context(
                pointer_id,
                load=self.load_payload,
                select=selected or None,
                cursor=cursor,
                max_tokens=self._config.max_read_tokens,
                counter=self._config.counter,
            )

    def search(self, words: str, *, limit: int) -> tuple[FoundMessage, ...]:
        """Return the results and folded messages that share words with a query, best first."""
        # Sessions without a name may share query ids, so the pointers are named as well.
        pointers = self.saved.list_all()
        return search_messages(
            words,
            self.saved.store,
            query_ids={pointer.query_id for pointer in pointers},
            pointer_ids={pointer.pointer_id for pointer in pointers},
            limit=limit,
        )


def shorter_form(
    results: SavedResults,
    pointer: ContextPointer,
    text: str,
    *,
    is_text: bool,
    view: View | None,
    reader_name: str,
) -> ShorterForm | None:
    """Return what may take the place of the preview of a result, or None.

    That is a line, if a preview of the same result is in the prompt. If the last result of the same
    call was another one, it is what changed since. If the prompt is known, the last result must be
    in it.

    Args:
        results: The results of the session. The call may read them.
        pointer: The pointer of the new result.
        text: The new result as text, without secrets that the store removes.
        is_text: Whether the result is a text. Otherwise it is data, which the text has as JSON.
        view: Tells which results the prompt up to the call shows. None if it is not known.
        reader_name: The tool that reads results.
    """
    is_repeat = len(pointer.pointer_id) > MIN_ID_CHARS
    if view is None and not is_repeat:
        return None
    try:
        pointers = results.results_of_call(pointer) if is_repeat else [pointer]
        in_view: Mapping[str, bool] | None = None
        if view is not None:
            in_view = view(pointers)
            if pointer.pointer_id in in_view:
                line = reference_line(pointer, total_chars=len(text), reader_name=reader_name)
                return ShorterForm("identical", line, is_asked_again=in_view[pointer.pointer_id])
        earlier = _newest_before(pointer, pointers)
        if earlier is None or (in_view is not None and earlier.pointer_id not in in_view):
            return None
        changes = _changes(results, earlier, pointer, text, is_text=is_text)
    # A preview takes its place, so a call never fails because of it.
    except Exception as exc:  # noqa: BLE001
        # An earlier result may have expired, or be damaged. Anything else is a fault.
        level = logging.INFO if isinstance(exc, StoreError) else logging.WARNING
        _log.log(level, "a result was not compared with an earlier one: %s", type(exc).__name__)
        return None
    if changes is None:
        return None
    content = without_headings(printable(changes))
    summary = one_line(pointer.summary, max_chars=_LINE_CHARS)
    framed = framed_result(
        pointer,
        f"{summary}\n{content}",
        total_chars=len(text),
        reader_name=reader_name,
        earlier_id=earlier.pointer_id,
    )
    is_asked_again = in_view is not None and in_view[earlier.pointer_id]
    return ShorterForm("changed", framed, is_asked_again=is_asked_again)


def _newest_before(
    pointer: ContextPointer, pointers: Sequence[ContextPointer]
) -> ContextPointer | None:
    """Return the newest other pointer that was saved before a pointer, of pointers in order."""
    newest = None
    for other in pointers:
        if other.pointer_id != pointer.pointer_id and other.created_at <= pointer.created_at:
            newest = other
    return newest


def _changes(
    results: SavedResults,
    earlier: ContextPointer,
    pointer: ContextPointer,
    text: str,
    *,
    is_text: bool,
) -> str | None:
    """Return what differs between a stored result and a new one, or None."""
    sizes = (earlier.result_bytes, pointer.result_bytes)
    # Older versions recorded no size.
    if any(size is None or size > _MAX_BYTES for size in sizes):
        return None
    old: Json = decode_json(results.load_payload(earlier.pointer_id)[1])
    if isinstance(old, str):
        old = printable(old)
    new: Json = text if is_text else decode_json(text.encode())
    return changes_between(old, new, max_chars=_MAX_CHARS)
