"""Offloading: replaces a long result by a pointer and a preview for the query."""

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import record
from llm_common._threads import SharedCache, computing, in_thread
from llm_common.agents.session.config import OffloadPolicy, SessionConfig
from llm_common.agents.session.saved import SavedResults, View
from llm_common.agents.session.trace import SessionTrace
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import StoreError, UnserialisableError
from llm_common.history.message_shapes import Message, last_question, newest_first
from llm_common.history.references import framed_result, reference_line
from llm_common.parts.fill import largest_room
from llm_common.parts.result_parts import MIN_PART_CHARS, ResultParts
from llm_common.pointers.pointer import MIN_ID_CHARS, ContextPointer
from llm_common.pointers.reading import ContextReading
from llm_common.tables.changes import changes_between
from llm_common.tables.table import result_name
from llm_common.text.canonical import Json, decode_json
from llm_common.text.display import one_line, printable, to_json, without_headings

_MAX_CHARS_PER_TOKEN = 16  # a longer text is too long without counting, which takes seconds for MBs
_LINE_CHARS = 200
_MIN_ROOM_CHARS = 2_000  # counts and names of a short result may be longer than the result
# A full disk ends no run. A longer result would not fit most prompts, with nothing to read it from.
MAX_UNSTORED_CHARS = 100_000
# A model that gets the changes alone has to know or read the rest, so they must save much. The
# result is the measure: without the changes, only reading all of it would tell what they say.
_SHORT_SHARE = 4
_MAX_TURNS: Final = 64  # of one conversation at once: more than any framework runs side by side
_MAX_BYTES: Final = 5_000_000  # of a result that is compared, which takes half a second
_MAX_CHANGES_CHARS: Final = 20_000  # of the changes, far more than a preview has

_log = logging.getLogger(__name__)

Form = Literal["whole", "preview", "identical", "changed", "not stored"]


class Offloaded(BaseModel):
    """A result as the model sees it: whole, or as a preview with its pointer.

    Its `str()` is for the prompt.

    Attributes:
        pointer_id: The id to read the result back. None if the result is whole or not stored.
        tool_name: The tool that returned the result.
        total_chars: Characters of the whole result.
        text: The text for the model. A preview has shape and counts, lines or passages that match
            the query, head and tail, in a fence. Empty if an `OffloadTurn` has no tokens left.
        is_whole: Whether the text is the result as the tool returned it. A result that could not be
            stored has no pointer, but it may be cut.
        form: `whole`, `preview`, or `not stored` for a result that is cut because the store failed.
            For the same call again also `identical`, a line that names the result above, and
            `changed`, what differs from the earlier result.
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str | None
    tool_name: str
    total_chars: int
    text: str
    is_whole: bool = False
    form: Form = "preview"

    def __str__(self) -> str:
        return self.text


class ShorterForm(NamedTuple):
    """A text that may take the place of a preview, since the model saw the result before.

    Attributes:
        form: What the text is.
        text: The text.
        is_asked_again: Whether the user has written anything since. If the result has an answer
            to it, a preview shows it, and the one in the prompt may not.
    """

    form: Form
    text: str
    is_asked_again: bool


class OffloadTurn:
    """The token budget of one turn, shared by its concurrent calls.

    The turn reserves a preview for every unfinished call. All results and previews together stay
    within the policy's `max_turn_tokens`. Only parts that the model reads back may exceed it: they
    stay whole, within the reader's limit. A turn belongs to one event loop.

    Args:
        policy: Thresholds and budgets. None takes the defaults.
        query: The question that decides what the previews show.
        calls: Number of calls in the turn.
        counter: Counts tokens. None takes `DefaultCounter`.
        query_name: What previews call the origin of their words, such as "call" for a query of the
            call's own arguments.

    Attributes:
        calls: Number of calls in the turn.
        reader_name: The model's name for the tool that reads back.
    """

    def __init__(
        self,
        policy: OffloadPolicy | None = None,
        *,
        query: str = "",
        calls: int = 1,
        counter: TokenCounter | None = None,
        query_name: str = "question",
    ) -> None:
        self._policy = policy or OffloadPolicy()
        self.reader_name: Final = self._policy.reader_name
        self._query = query
        self._query_name = query_name
        self._counter = counter or DefaultCounter()
        self._tokens_left = self._policy.max_turn_tokens
        self.calls: Final = max(calls, 1)
        self._calls_left = calls
        self._reserve = self._policy.max_preview_tokens
        if self._tokens_left is not None:
            # If many calls share a small budget, each reserves no more than its equal part.
            self._reserve = min(self._reserve, self._tokens_left // max(calls, 1))

    async def read(self, tool_name: str, result: object) -> tuple[str, bool]:
        """Return a result as text and whether it stays whole, which takes its tokens.

        Raises:
            UnserialisableError: If the result cannot be written as JSON.
        """
        # Counting stops at the smaller limit: a result may have megabytes.
        limits = [self._policy.threshold(tool_name), self._available()]
        max_tokens = min((limit for limit in limits if limit is not None), default=None)
        text, tokens = await in_thread(_read, result, max_tokens, self._counter)
        available = self._available()  # other calls may have spent tokens during the await
        if tokens is None or (available is not None and tokens > available):
            return text, False
        self._spend(tokens)
        return text, True

    async def take(self, text: str) -> None:
        """Take the tokens of a text that stays whole in any case, such as that of a reading."""
        self._spend(await in_thread(self._counter.count, text))

    async def preview(
        self,
        pointer: ContextPointer,
        result: object,
        *,
        text: str | None = None,
        shorter: Callable[[str], ShorterForm | None] | None = None,
    ) -> Offloaded:
        """Return the preview of a stored result, and take its tokens from the budget.

        Args:
            pointer: The pointer of the result.
            result: The result without its secrets. See `ContextPointerStore.as_stored`.
            text: The result's `text_of`. None computes it.
            shorter: Returns from the text what replaces the preview, if that takes no more tokens
                than a preview may, and at most a quarter of the tokens of the whole result. It may
                read files.
        """
        granted = self._policy.max_preview_tokens
        available = self._available()
        if available is not None:
            granted = min(granted, available)
        self._spend(granted)  # before the await, so that no other call takes these tokens

        def write() -> tuple[Offloaded, int]:
            whole_text = text_of(result) if text is None else text
            form = shorter(whole_text) if shorter is not None else None
            return self._write(pointer, result, whole_text, granted, form)

        preview, tokens = await in_thread(write)
        if self._tokens_left is not None:
            self._tokens_left += granted - tokens
        return preview

    def unstored_chars(self, text: str, max_prompt_tokens: int | None) -> int:
        """Return how many characters of a result that is not stored fit half of a prompt.

        Folding it would store it, which fails again.

        Args:
            text: The result.
            max_prompt_tokens: The limit of the prompt. None if the prompt is not folded.
        """
        beginning = text[:MAX_UNSTORED_CHARS]
        if max_prompt_tokens is None:
            return len(beginning)
        max_tokens = max_prompt_tokens // 2 // self.calls
        return len(beginning) * max_tokens // max(self._counter.count(beginning), max_tokens)

    def stored_line(self, preview: Offloaded) -> Offloaded:
        """Return a preview without text as one line with its pointer."""
        line = (
            f"{preview.total_chars:,} characters are stored, none has been read; read them with "
            f"{self.reader_name} and the id {preview.pointer_id}"
        )
        return preview.model_copy(update={"text": line})

    def _available(self) -> int | None:
        """Return the tokens of this call, without the reserve of later ones. None sets no limit."""
        if self._tokens_left is None:
            return None
        return max(self._tokens_left - self._reserve * max(self._calls_left - 1, 0), 0)

    def _spend(self, tokens: int) -> None:
        self._calls_left -= 1
        if self._tokens_left is not None:
            self._tokens_left -= tokens

    @computing()
    def _write(
        self,
        pointer: ContextPointer,
        result: object,
        text: str,
        max_tokens: int,
        shorter: ShorterForm | None,
    ) -> tuple[Offloaded, int]:
        """Return the preview of a result or its shorter form, and the tokens."""
        count, reader = self._counter.count, self.reader_name
        if shorter is not None:
            tokens = count(shorter.text)
            # The beginning decides: a result may have megabytes.
            beginning = text[: _SHORT_SHARE * tokens * _MAX_CHARS_PER_TOKEN]
            fits = tokens <= max_tokens and count(beginning) >= _SHORT_SHARE * tokens
            has_answer = shorter.is_asked_again and self._parts(pointer, result, text).has_matches
            if fits and not has_answer:
                return _offloaded(pointer, text, shorter.text, shorter.form), tokens
        parts = self._parts(pointer, result, text)
        # The records are counted in the body, so their outermost shape would only take room.
        shape = "" if parts.has_records else pointer.digest.partition("; ")[0]
        heads = [one_line(text, max_chars=_LINE_CHARS) for text in (pointer.summary, shape)]
        framed = partial(framed_result, pointer, total_chars=len(text), reader_name=reader)

        @cache
        def preview_of(chars: int) -> tuple[str, int]:
            lines = [*heads, parts.excerpt(chars).text]
            text = framed("\n".join(filter(None, lines)))
            return text, count(text)

        chars = largest_room(
            max(len(text), _MIN_ROOM_CHARS),
            lambda chars: preview_of(chars)[1] <= max_tokens,
            likely=2 * max_tokens,
        )
        preview, tokens = "", max_tokens + 1
        if chars >= MIN_PART_CHARS:
            preview, tokens = preview_of(chars)
        # If no part of the result fits, the first of these lines that fits, or nothing.
        stored = f"{pointer.heading}: {len(text):,} characters are stored, none has been read; "
        way_out = f"read them with {reader} and the id {pointer.pointer_id}"
        for line in (f"{stored}{way_out}", f"{stored}no room here", ""):
            if tokens <= max_tokens:
                break
            preview, tokens = line, count(line) if line else 0
        return _offloaded(pointer, text, preview, "preview"), tokens

    def _parts(self, pointer: ContextPointer, result: object, text: str) -> "ResultParts":
        return ResultParts(
            text,
            result,
            self._query,
            query_name=self._query_name,
            table_name=result_name(pointer.tool_name, pointer.pointer_id),
        )


class Offloading:
    """Offloads the results of one session, turn by turn.

    Args:
        saved: The results of the session.
        config: The limits and policies.
        trace: Records what a model sees.
    """

    def __init__(self, saved: SavedResults, config: SessionConfig, trace: SessionTrace) -> None:
        self._saved = saved
        self._config = config
        self._trace = trace
        # A framework does not say when a turn ends, so only the oldest turns are dropped. It may
        # run the calls of a turn in threads, and they must share one budget.
        self._turns: SharedCache[str, OffloadTurn] = SharedCache(_MAX_TURNS)

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
            if isinstance(result, ContextReading):
                text = str(result)
                await turn.take(text)
                return whole(tool, text)
            if pointer is None and tool in self._config.tool_names:
                return whole(tool, await in_thread(text_of, result))
            # An application may store results that no model has seen, such as those of its own run.
            may_repeat = messages is not None or pointer is None
            offloaded = await self._offload(
                result, tool, args, turn, pointer=pointer, may_repeat=may_repeat, view=view
            )
            record(
                "offload",
                session_id=self._saved.session_id,
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
                pointer = await self._saved.save(result, tool=tool, args=dict(args))
            except UnserialisableError:
                raise  # a fault of the result, which the caller can replace
            except StoreError as exc:
                return await self._unstored(result, turn, tool, text, exc)
        # A model must not see a secret that the store removes.
        redacted = await self._saved.store.as_stored(result)
        shorter = None
        if may_repeat:
            shorter = partial(
                shorter_form,
                self._saved,
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
        redacted = await self._saved.store.as_stored(result)
        is_changed = redacted is not result
        max_tokens = self._config.fold.max_tokens if self._config.fold is not None else None

        def cut() -> Offloaded:
            shown = text_of(redacted) if is_changed else text
            max_chars = turn.unstored_chars(shown, max_tokens)
            return unstored(tool, shown, max_chars=max_chars, is_changed=is_changed)

        return await in_thread(cut)

    def _turn(self, name: str | None, query: str, messages: Sequence[Message]) -> OffloadTurn:
        """Return the turn of a name, or a new one."""
        if name is not None:
            make = partial(self._turn, None, query, messages)
            return self._turns.get_or_make(name, make)
        calls = 1
        if messages:
            query = query or last_question(messages)
            newest = (len(message.calls) for message in newest_first(messages))
            calls = next(filter(None, newest), 1)
        return OffloadTurn(
            self._config.offload, query=query, calls=calls, counter=self._config.counter
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
        earlier = None
        for other in pointers:  # oldest first
            if other.pointer_id != pointer.pointer_id and other.created_at <= pointer.created_at:
                earlier = other
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
    return changes_between(old, new, max_chars=_MAX_CHANGES_CHARS)


def _offloaded(pointer: ContextPointer, whole_text: str, text: str, form: Form) -> Offloaded:
    return Offloaded(
        pointer_id=pointer.pointer_id,
        tool_name=pointer.tool_name,
        total_chars=len(whole_text),
        text=text,
        form=form,
    )


def whole(tool_name: str, text: str) -> Offloaded:
    """Return a result that the model sees whole."""
    return Offloaded(
        pointer_id=None,
        tool_name=tool_name,
        total_chars=len(text),
        text=text,
        is_whole=True,
        form="whole",
    )


def unstored(
    tool_name: str,
    text: str,
    *,
    max_chars: int = MAX_UNSTORED_CHARS,
    is_changed: bool = False,
) -> Offloaded:
    """Return a result that could not be stored: whole, or its beginning and end if it is long.

    Args:
        tool_name: The tool that returned the result.
        text: The result as text.
        max_chars: Maximum characters of the result.
        is_changed: Whether the text differs from what the tool returned.
    """
    shown = text
    if len(text) > max_chars:
        half = max_chars // 2
        missing = len(text) - 2 * half
        shown = (
            f"{text[:half]}\n[{missing:,} characters were not kept: the store failed. The "
            f"beginning and the end of the output are shown.]\n{text[len(text) - half :]}"
        )
    is_whole = shown is text and not is_changed
    return Offloaded(
        pointer_id=None,
        tool_name=tool_name,
        total_chars=len(text),
        text=shown,
        is_whole=is_whole,
        form="whole" if is_whole else "not stored",
    )


def text_of(result: object) -> str:
    """Return a result as text for a model."""
    return printable(result) if isinstance(result, str) else to_json(result)


def _read(result: object, max_tokens: int | None, counter: TokenCounter) -> tuple[str, int | None]:
    """Return a result as text, and its tokens, or None if they exceed the limit."""
    text = text_of(result)
    if max_tokens is None:
        return text, 0  # without limits, no tokens are counted
    if len(text) > max_tokens * _MAX_CHARS_PER_TOKEN:
        return text, None
    tokens = counter.count(text)
    return text, tokens if tokens <= max_tokens else None
