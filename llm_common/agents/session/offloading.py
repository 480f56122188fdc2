"""Offloading: replaces a long result by a pointer and a preview for the query."""

from collections.abc import Callable
from functools import cache, partial
from typing import Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common._threads import computing, in_thread
from llm_common.agents.session.config import OffloadPolicy
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.parts.fill import largest_room
from llm_common.parts.result_parts import MIN_PART_CHARS, ResultParts
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.prompt_forms import framed_result
from llm_common.tables.table import result_name
from llm_common.text.display import one_line, printable, to_json

_MAX_CHARS_PER_TOKEN = 16  # a longer text is too long without counting, which takes seconds for MBs
_LINE_CHARS = 200
_MIN_ROOM_CHARS = 2_000  # counts and names of a short result may be longer than the result
# A full disk ends no run. A longer result would not fit most prompts, with nothing to read it from.
MAX_UNSTORED_CHARS = 100_000
# A model that gets the changes alone has to know or read the rest, so they must save much. The
# result is the measure: without the changes, only reading all of it would tell what they say.
_SHORT_SHARE = 4

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

    @property
    def reader_name(self) -> str:
        """Return the model's name for the tool that reads back."""
        return self._policy.reader_name

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
        count, reader = self._counter.count, self._policy.reader_name
        if shorter is not None:
            tokens = count(shorter.text)
            fits = tokens <= max_tokens and self._is_short(tokens, text)
            has_answer = shorter.is_asked_again and self._parts(pointer, result, text).has_matches
            if fits and not has_answer:
                return _offloaded(pointer, text, shorter.text, shorter.form), tokens
        parts = self._parts(pointer, result, text)
        # The records are counted in the body, so their outermost shape would only take room.
        shape = "" if parts.has_records else pointer.digest.partition("; ")[0]
        framed = partial(framed_result, pointer, total_chars=len(text), reader_name=reader)

        @cache
        def preview_of(chars: int) -> tuple[str, int]:
            text = framed(_content(pointer, shape, parts.excerpt(chars).text))
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

    def _is_short(self, tokens: int, text: str) -> bool:
        """Return whether some tokens are at most a quarter of those of a result."""
        # The beginning decides: a result may have megabytes.
        beginning = text[: _SHORT_SHARE * tokens * _MAX_CHARS_PER_TOKEN]
        return self._counter.count(beginning) >= _SHORT_SHARE * tokens


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
    missing = max(len(text) - max_chars, 0)
    shown = text
    if missing:
        half = max_chars // 2
        shown = (
            f"{text[:half]}\n[{missing:,} characters were not kept: the store failed. The "
            f"beginning and the end of the output are shown.]\n{text[len(text) - half :]}"
        )
    is_whole = not missing and not is_changed
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


def _content(pointer: ContextPointer, shape: str, body: str) -> str:
    """Return the text in the fence of a preview."""
    summary = one_line(pointer.summary, max_chars=_LINE_CHARS)
    return "\n".join(filter(None, [summary, one_line(shape, max_chars=_LINE_CHARS), body]))
