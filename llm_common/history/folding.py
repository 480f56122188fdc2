"""Plans how a history fits a token limit: a pure function from messages to messages and parts.

The plan reads the history from its first message on, as it grew. When the next message does not
fit, one step of folding frees tokens for many more messages: first the earlier outputs of repeated
calls, then the largest outputs, then the oldest messages. Between two steps messages are only
added. So a longer history begins with the same bytes as a shorter one, as the prompt caches of
providers need, and no state is kept between calls.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field

from llm_common.core.tokens import TokenCounter, count_tokens
from llm_common.errors import TokenBudgetError
from llm_common.history.fold_note import NoteWriter, Segment
from llm_common.history.message_shapes import (
    HistoryMessage,
    Message,
    ToolCall,
    calls_of_outputs,
    in_units,
    user_message,
)
from llm_common.history.pins import pins_message, split_pins
from llm_common.history.references import ResultsInView, named_outputs
from llm_common.pointers.pointer import ContextPointer, describe_result, text_digest
from llm_common.pointers.prompt_forms import read_frame
from llm_common.pointers.reading import READER_NAME
from llm_common.text.canonical import stable_json
from llm_common.text.display import (
    excerpt_text,
    fair_shares,
    one_line,
    printable,
)

HISTORY_TOOL: Final = "history"
"""The tool name under which folded messages are stored."""
SEARCH_NAME: Final = "search_history"

_MIN_OUTPUT_TOKENS: Final = 100  # a shorter output is not worth a pointer
_MIN_CUT_SHARE: Final = 8  # a text is cut only if it takes an eighth of the limit
_LINE_CHARS: Final = 100
_DESCRIPTION_CHARS: Final = 240

Kind = Literal["messages", "output", "repeat", "text"]


class FoldPolicy(BaseModel):
    """When a history is folded, and how far.

    Attributes:
        max_tokens: Maximum tokens of the folded messages, with those around them.
        target_share: Share of the limit that remains after a step of folding. A smaller share
            means fewer steps, and shorter histories after each.
        note_share: Share of the limit for the note about folded messages.
        reader_name: The model's name for `read_context`.
        search_name: The model's name for `search_history`.
        drop_name: The model's name for the tool whose calls drop outputs, which leave the prompt
            at the next step of folding. None if there is none.
        restore_name: The model's name for the tool that shows a dropped output again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(default=8_000, ge=200)
    target_share: float = Field(default=0.6, ge=0.2, le=0.9)
    note_share: float = Field(default=0.35, ge=0.05, le=0.5)
    reader_name: str = READER_NAME
    search_name: str = SEARCH_NAME
    drop_name: str | None = None
    restore_name: str | None = None

    @classmethod
    def of_window(cls, window_tokens: int, *, share: float = 0.7) -> Self:
        """Return a policy whose limit is a share of the model's window.

        The remaining share is for the system message and the answer.

        Raises:
            ValueError: If the limit would be under 200 tokens.
        """
        return cls(max_tokens=int(window_tokens * share))


class FoldedPart(BaseModel):
    """A part of the history that is stored behind a pointer.

    Attributes:
        pointer_id: The id to read the part back.
        kind: `messages` for a range of messages, `output` for the output of a call, `repeat` for an
            earlier output of a repeated call, `text` for the middle of a long message.
        first: Number of the first message, from 1.
        last: Number of the last message.
        tokens: Tokens of the part before folding.
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    kind: Kind
    first: int
    last: int
    tokens: int


class ShownOutput(BaseModel):
    """An output that a folded prompt shows, and that the model may drop.

    Attributes:
        pointer_id: The id under which folding would store it.
        tool_name: The tool that returned it.
        position: Number of its message, from 1.
        tokens: Its tokens.
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    tool_name: str
    position: int
    tokens: int


class StoredPart(NamedTuple):
    """The arguments with which the store saves a part."""

    tool_name: str
    args: dict[str, Any]
    task_id: str
    result: Any


class FoldPlan(NamedTuple):
    """The messages to send, their tokens, and the folded parts in the order of folding.

    With a tool that drops outputs, also the outputs that can be dropped.
    """

    messages: tuple[HistoryMessage, ...]
    tokens: int
    parts: tuple[tuple[FoldedPart, StoredPart], ...]
    outputs: tuple[ShownOutput, ...]
    role_tokens: dict[str, int]


@dataclass(slots=True)
class _Unit:
    """Messages that are kept or folded together, as they were and as the model sees them."""

    originals: list[HistoryMessage]
    current: list[HistoryMessage]
    calls: list[list[ToolCall]]  # of each output, by message
    original_tokens: int
    tokens: int


class _Output(NamedTuple):
    """An output that the model sees whole."""

    unit: _Unit
    message: int
    number: int  # among the outputs of the message
    call: ToolCall
    value: object
    text: str
    tokens: int
    is_repeat: bool = False


def plan_fold(
    messages: Sequence[HistoryMessage],
    *,
    session_id: str,
    policy: FoldPolicy,
    counter: TokenCounter,
    id_of: Callable[[StoredPart], str],
    pinned: Sequence[str | Message] = (),
    pointers: Mapping[str, ContextPointer] | None = None,
) -> FoldPlan:
    """Return the messages within the limit, and the parts to store.

    The same arguments give the same plan.

    Args:
        messages: The history.
        session_id: The conversation.
        policy: The limits.
        counter: Counts tokens.
        id_of: Returns the id under which a part is stored.
        pinned: Texts, or messages with a text, that every prompt has.
        pointers: The stored results by id. Outputs that refer to one which the messages no longer
            show are changed. None leaves all as they are.

    Raises:
        TokenBudgetError: If the system messages, the pins, a call or the note exceed the limit.
        TypeError: If pinned content has no text.
        UnserialisableError: If a message cannot be written as JSON.
    """
    texts, remaining = split_pins(messages, pinned, session_id=session_id)
    head, units = in_units(remaining)
    pins: list[HistoryMessage] = []
    if texts:
        like = messages[0].raw if messages else {}
        pins.append(pins_message(texts, session_id=session_id, like=like))
    once = _CountedOnce(counter)
    writer = NoteWriter(
        session_id=session_id,
        reader_name=policy.reader_name,
        search_name=policy.search_name,
        counter=once,
    )
    folder = _Folder(head, pins, policy, once, id_of, writer, pointers)
    for unit in units:
        folder.add(unit)
    return folder.plan()


class _CountedOnce:
    """Counts each text once, since a unit is counted at each step that shows it."""

    def __init__(self, counter: TokenCounter) -> None:
        self.count = cache(partial(count_tokens, counter))


@dataclass(slots=True)
class _Folder:
    """The history so far: the messages that the model sees, and the folded parts.

    The note is written once, at the end. Until then its share of the limit counts as used, so that
    a step does not depend on what the note says.
    """

    head: list[HistoryMessage]
    pins: list[HistoryMessage]
    policy: FoldPolicy
    counter: TokenCounter
    id_of: Callable[[StoredPart], str]
    writer: NoteWriter
    pointers: Mapping[str, ContextPointer] | None
    framed_ids: set[str] = field(default_factory=set)
    live: list[_Unit] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    parts: dict[FoldedPart, StoredPart] = field(default_factory=dict)  # in the order of folding
    fixed_tokens: int = field(init=False)
    room: int = field(init=False)  # what the limit leaves to the note and the live messages
    note_tokens: int = 0
    noted_position: int = 0  # of the newest message at the last step that folded messages
    live_tokens: int = 0
    dropped: set[str] = field(default_factory=set)  # ids of outputs that the model dropped

    def __post_init__(self) -> None:
        fixed = (*self.head, *self.pins)
        self.fixed_tokens = sum(message.tokens(self.counter) for message in fixed)
        self.room = self.policy.max_tokens - self.fixed_tokens

    def add(self, unit: list[HistoryMessage]) -> None:
        self._read_drops(unit)
        # Both lists are the same until a message changes. See `_show`.
        tokens = sum(message.tokens(self.counter) for message in unit)
        self.live.append(_Unit(unit, unit, calls_of_outputs(unit), tokens, tokens))
        self.live_tokens += tokens
        if self.tokens > self.policy.max_tokens:
            self._make_room()
        if self.pointers is not None:
            self._correct_references(unit, self.pointers)

    def _correct_references(
        self, added: list[HistoryMessage], pointers: Mapping[str, ContextPointer]
    ) -> None:
        """Replace the lines that refer to a result which is not in view any more."""
        for _, output in named_outputs(added):
            if output.frame is not None:
                self.framed_ids.add(output.frame.pointer_id)
        in_view = ResultsInView(pointers, has_all=False)
        for unit in self.live:
            for index, output in named_outputs(unit.current):
                reference = output.reference
                if reference is None or reference.pointer_id in in_view.ids:
                    in_view.add(output)
                    continue
                # A text that only looks like a reference names no result of this conversation.
                if reference.pointer_id in pointers or reference.pointer_id in self.framed_ids:
                    message = unit.current[index]
                    message = message.with_output(output.number, reference.without_result)
                    self._show(unit, index, message)

    @property
    def tokens(self) -> int:
        return self.fixed_tokens + self.note_tokens + self.live_tokens

    def plan(self) -> FoldPlan:
        needed_tokens = max(self.tokens, self._unfoldable_tokens())
        if needed_tokens > self.policy.max_tokens:
            raise self._over(needed_tokens)
        messages = [*self.head, *self.pins]
        tokens = self.fixed_tokens + self.live_tokens
        if self.segments:
            note = self._note()
            messages.append(note)
            tokens += note.tokens(self.counter)
        for unit in self.live:
            messages += unit.current
        role_tokens: Counter[str] = Counter()
        for message in messages:
            role_tokens[message.role] += message.tokens(self.counter)
        return FoldPlan(
            tuple(messages),
            tokens,
            tuple(self.parts.items()),
            self._shown_outputs(),
            dict(role_tokens),
        )

    def _over(self, needed_tokens: int) -> TokenBudgetError:
        limit = self.policy.max_tokens
        media_tokens = 0
        for message in chain(self.head, *(unit.current for unit in self.live)):
            media_tokens += message.media_tokens
        if needed_tokens - media_tokens <= limit:
            remedy = (
                f"their images, sounds and files count {media_tokens:,}; raise max_tokens or send "
                f"fewer"
            )
        else:
            remedy = "raise max_tokens or shorten the system messages and pins"
        return TokenBudgetError(
            f"the messages that cannot be folded take {needed_tokens:,} tokens of {limit:,}; "
            f"{remedy}",
            needed_tokens=needed_tokens,
            limit_tokens=limit,
        )

    def _shown_outputs(self) -> tuple[ShownOutput, ...]:
        """Return the outputs that the model may drop, in the order of the messages."""
        if self.policy.drop_name is None:
            return ()
        outputs = []
        for output in self._outputs(self.live):
            outputs.append(
                ShownOutput(
                    pointer_id=self.id_of(_stored_part(output)),
                    tool_name=output.call.name,
                    position=output.unit.originals[output.message].position,
                    tokens=output.tokens,
                )
            )
        return tuple(outputs)

    def _unfoldable_tokens(self) -> int:
        """Return the tokens of the pins and the newest message, which pins must not shorten."""
        if not self.pins or not self.live:
            return self.fixed_tokens
        newest = self.live[-1].originals[-1]
        if newest.outputs:
            return self.fixed_tokens  # it may go behind a pointer
        return self.fixed_tokens + newest.tokens(self.counter)

    def _note(self) -> HistoryMessage:
        """Return the note as of the last step that folded messages."""
        shown: list[HistoryMessage] = []
        for unit in self.live:
            for message in unit.current:
                if message.position <= self.noted_position:
                    shown.append(message)
        text = self.writer.write(
            self.segments, shown, max_tokens=self.note_tokens - self._message_tokens()
        )
        raw = user_message(text, like=self.segments[0].messages[0].raw)
        # Position 0, since the messages of the history are numbered from 1.
        return HistoryMessage(raw, {"role": "user", "content": text}, 0)

    def _message_tokens(self) -> int:
        """Return the tokens around the text of a message."""
        return HistoryMessage({}, {"role": "user", "content": ""}, 0).tokens(self.counter)

    def _make_room(self) -> None:
        """Fold until the target is met, or as far as anything can be folded."""
        target = self.fixed_tokens + int(self.room * self.policy.target_share)
        for output in self._dropped_outputs():
            self._replace(output)
        # The largest outputs are looked up after the repeats are replaced.
        for ordered in (self._repeats, lambda: self._largest(self.live[:-1])):
            for output in ordered():
                if self.tokens <= target:
                    return
                self._replace(output)
        if self.tokens > target:
            self._fold_oldest(target)
        limit = self.policy.max_tokens
        # The newest unit is what the model has to answer, so half of the note gives way first.
        self._shrink_note(int(self.note_tokens / 2))
        for output in self._largest(self.live[-1:]):
            if self.tokens <= limit:
                return
            self._replace(output)
        if self.tokens > limit:
            self._cut_texts(limit)
        self._shrink_note(0)

    def _shrink_note(self, min_tokens: int) -> None:
        """Leave less of the limit to the note, as far as the other messages need it."""
        if self.segments:
            excess = max(self.tokens - self.policy.max_tokens, 0)
            self.note_tokens = max(self.note_tokens - excess, min_tokens, self._min_note_tokens())

    def _min_note_tokens(self) -> int:
        return self.counter.count(self.writer.short_text) + self._message_tokens()

    def _outputs(self, units: Sequence[_Unit]) -> Iterator[_Output]:
        """Yield the outputs that the model sees whole and that are worth a pointer."""
        for unit in units:
            pairs = zip(unit.current, unit.originals, strict=True)
            for index, (message, original) in enumerate(pairs):
                outputs = zip(message.outputs, original.outputs, unit.calls[index], strict=True)
                for number, (output, whole, call) in enumerate(outputs):
                    if output.value != whole.value:
                        continue  # a line is in its place already
                    text = output.text
                    tokens = output.tokens(self.counter)
                    if tokens >= _MIN_OUTPUT_TOKENS:
                        yield _Output(unit, index, number, call, output.value, text, tokens)

    def _repeats(self) -> list[_Output]:
        """Return the outputs of calls that are repeated later, oldest first."""
        newest: dict[str, list[_Output]] = {}
        repeats = []
        for output in self._outputs(self.live):
            # Canonical, so that the order of the arguments does not matter.
            call = f"{output.call.name} {stable_json(output.call.args)}"
            frame = read_frame(output.text)
            outputs = newest.setdefault(call, [])
            # What changed says nothing without the output before it, so that one stays.
            if frame is None or frame.earlier_id is None:
                for earlier in outputs:
                    # One call may have two outputs, which do not repeat each other. Nor do
                    # those whose call is unknown.
                    if earlier.call is not output.call:
                        repeats.append(earlier._replace(is_repeat=True))
                outputs.clear()
            outputs.append(output)
        return repeats

    def _largest(self, units: Sequence[_Unit]) -> list[_Output]:
        """Return the outputs, the largest first, and what the model restored last."""
        return sorted(
            self._outputs(units),
            key=lambda output: (output.call.name == self.policy.restore_name, -output.tokens),
        )

    def _read_drops(self, unit: Sequence[HistoryMessage]) -> None:
        """Note which outputs the calls of a unit drop and restore."""
        if self.policy.drop_name is None:
            return
        for message in unit:
            for call in message.calls:
                if call.name == self.policy.drop_name:
                    ids = call.arguments.get("ids")
                    self.dropped.update(map(str, ids if isinstance(ids, list) else ()))
                elif call.name == self.policy.restore_name:
                    self.dropped.discard(str(call.arguments.get("id")))

    def _dropped_outputs(self) -> list[_Output]:
        if not self.dropped:
            return []
        outputs = []
        for output in self._outputs(self.live):
            if self.id_of(_stored_part(output)) in self.dropped:
                outputs.append(output)
        return outputs

    def _replace(self, output: _Output) -> None:
        """Replace an output by a line with its pointer, if the line is shorter."""
        stored = _stored_part(output)
        pointer_id = self.id_of(stored)
        again = " The same call was made again later." if output.is_repeat else ""
        name = one_line(output.call.name, max_chars=_LINE_CHARS)
        # A lone surrogate has no UTF-8 form.
        size_bytes = len(output.text.encode(errors="replace"))
        description = describe_result(output.value, size_bytes=size_bytes)
        line = (
            f"[{output.tokens:,} tokens of {name} were here. They are stored under the id "
            f"{pointer_id} and not shown now: read them with {self.policy.reader_name} before you "
            f"rely on them.{again} "
            f"What it was: {one_line(description, max_chars=_DESCRIPTION_CHARS)}]"
        )
        current = output.unit.current[output.message]
        message = current.with_output(output.number, line)
        if message.tokens(self.counter) >= current.tokens(self.counter):
            return
        self._show(output.unit, output.message, message)
        self._keep(output, stored, pointer_id)

    def _keep(self, output: _Output, stored: StoredPart, pointer_id: str) -> None:
        """Add the part of an output."""
        position = output.unit.originals[output.message].position
        part = FoldedPart(
            pointer_id=pointer_id,
            kind="repeat" if output.is_repeat else "output",
            first=position,
            last=position,
            tokens=output.tokens,
        )
        self.parts[part] = stored

    def _show(self, unit: _Unit, index: int, message: HistoryMessage) -> None:
        added_tokens = message.tokens(self.counter) - unit.current[index].tokens(self.counter)
        unit.tokens += added_tokens
        self.live_tokens += added_tokens
        # A copy: `current` begins as the list of the originals.
        unit.current = [*unit.current[:index], message, *unit.current[index + 1 :]]

    def _fold_oldest(self, target: int) -> bool:
        """Put the oldest units behind one pointer, and return whether there were any.

        The last unit and the user's last question stay.
        """
        last_question = self.live[-1]
        for unit in self.live:
            if any(message.is_question for message in unit.originals):
                last_question = unit
        note_tokens = max(int(self.room * self.policy.note_share), self._min_note_tokens())
        tokens_after = self.fixed_tokens + self.live_tokens + note_tokens
        folded: list[_Unit] = []
        live: list[_Unit] = []
        messages: list[HistoryMessage] = []
        for unit in self.live:
            if tokens_after > target and unit is not last_question and unit is not self.live[-1]:
                folded.append(unit)
                messages += unit.originals  # an output is stored whole, not the line in its place
                tokens_after -= unit.tokens
            else:
                live.append(unit)
        if not folded:
            return False
        if self.policy.drop_name is not None:
            # The model has seen their ids, and may restore each of them.
            for output in self._outputs(folded):
                stored = _stored_part(output)
                self._keep(output, stored, self.id_of(stored))
        # By number, so that the model can read one message by a path such as /3.
        result = {str(message.position): message.data for message in messages}
        numbers = f"{messages[0].position}-{messages[-1].position}"
        stored = StoredPart(
            HISTORY_TOOL, {"messages": numbers}, text_digest(stable_json(result))[:12], result
        )
        pointer_id, tokens = self.id_of(stored), sum(unit.original_tokens for unit in folded)
        self.live = live
        self.live_tokens -= sum(unit.tokens for unit in folded)
        self.segments.append(Segment(pointer_id, messages, tokens))
        part = FoldedPart(
            pointer_id=pointer_id,
            kind="messages",
            first=messages[0].position,
            last=messages[-1].position,
            tokens=tokens,
        )
        self.parts[part] = stored
        self.note_tokens = note_tokens
        self.noted_position = self.live[-1].originals[-1].position
        return True

    def _cut_texts(self, limit: int) -> None:
        """Cut long texts in their middles. The texts share the tokens that remain."""
        long: list[tuple[_Unit, int]] = []
        sizes: list[int] = []
        for unit in self.live:
            for index, message in enumerate(unit.originals):
                tokens = self.counter.count(printable(message.text))
                is_long = tokens * _MIN_CUT_SHARE >= limit
                if is_long and not message.calls and not message.outputs:
                    long.append((unit, index))
                    sizes.append(unit.current[index].tokens(self.counter))
        shares = fair_shares(sizes, limit - self.tokens + sum(sizes))
        for (unit, index), size, share in zip(long, sizes, shares, strict=True):
            if size > share:
                self._cut_text(unit, index, share)

    def _cut_text(self, unit: _Unit, index: int, share: int) -> None:
        # From the original, because a second cut would otherwise store an excerpt.
        whole = unit.originals[index]
        tokens = self.counter.count(printable(whole.text))
        stored = StoredPart(
            HISTORY_TOOL, {"message": whole.position}, text_digest(whole.text)[:12], whole.text
        )
        pointer_id = self.id_of(stored)
        line = (
            f"[This message has {tokens:,} tokens, of which the beginning and the end are shown; "
            f"the rest has not been read. Read it with {self.policy.reader_name} and the id "
            f"{pointer_id}.]"
        )
        # Tokens are not spread evenly over a text, so the first guess may be too long.
        chars = len(whole.text) * share // tokens
        while chars > _LINE_CHARS:
            message = whole.with_text(f"{line}\n{excerpt_text(whole.text, chars).text}")
            if message.tokens(self.counter) <= share:
                break
            chars = chars * 9 // 10
        else:
            return
        self._show(unit, index, message)
        position = whole.position
        part = FoldedPart(
            pointer_id=pointer_id, kind="text", first=position, last=position, tokens=tokens
        )
        self.parts[part] = stored  # a later step may cut the same text again


def _stored_part(output: _Output) -> StoredPart:
    args = output.call.args
    if not isinstance(args, dict):
        args = {"arguments": args}
    # The digest as task id gives two outputs of the same call two pointers.
    return StoredPart(output.call.name, args, text_digest(output.text)[:12], output.value)
