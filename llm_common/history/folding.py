"""`fold` a long history to a token limit, and search its folded messages.

`plan_fold` is a pure function from messages to messages and parts. The plan reads the history from
its first message on, as it grew. When the next message does not fit, one step of folding frees
tokens for many more messages: first the largest outputs, then the oldest messages. Between two
steps messages are only added. So a longer history begins with the same bytes as a shorter one, as
the prompt caches of providers need, and no state is kept between calls.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import record, span
from llm_common._threads import in_thread
from llm_common.core.tokens import CountedOnce, DefaultCounter, TokenCounter
from llm_common.errors import TokenBudgetError, UnserialisableError
from llm_common.history.fold_note import NoteWriter, Segment, numbers_of
from llm_common.history.message_shapes import (
    CalledOutput,
    HistoryMessage,
    Message,
    called_outputs,
    in_units,
    new_message,
    read_messages,
)
from llm_common.history.pins import pins_text, split_pins
from llm_common.history.policy import HISTORY_TOOL, FoldedPart, FoldPolicy, Kind
from llm_common.history.references import (
    FramedResult,
    has_references,
    named_results,
    with_true_references,
)
from llm_common.history.search import FoundMessage, search_messages
from llm_common.pointers.pointer import (
    ContextPointer,
    checked_query_id,
    compute_pointer_id,
    describe_result,
    text_digest,
    time_text,
)
from llm_common.pointers.store import ContextPointerStore
from llm_common.text.canonical import stable_json
from llm_common.text.display import excerpt_text, fair_shares, one_line, printable

_MIN_OUTPUT_TOKENS: Final = 100  # a shorter output is not worth a pointer
_MIN_CUT_SHARE: Final = 8  # a text is cut only if it takes an eighth of the limit
_LINE_CHARS: Final = 100
_DESCRIPTION_CHARS: Final = 240


class StoredPart(NamedTuple):
    """The arguments with which the store saves a part."""

    tool_name: str
    args: dict[str, Any]
    task_id: str
    result: Any


class FoldPlan(NamedTuple):
    """The messages to send, their tokens, and the folded parts in the order of folding."""

    messages: tuple[HistoryMessage, ...]
    tokens: int
    parts: dict[FoldedPart, StoredPart]
    role_tokens: dict[str, int]


@dataclass(slots=True, eq=False)
class _Unit:
    """Messages that are kept or folded together, as they were and as the model sees them."""

    originals: list[HistoryMessage]
    shown: list[HistoryMessage]
    tokens: int  # of the shown messages
    outputs: list["_Output"] = field(default_factory=list)  # whole, and worth a pointer


@dataclass(frozen=True, slots=True, eq=False)
class _Output:
    """An output that the model sees whole."""

    unit: _Unit
    called: CalledOutput
    tokens: int

    @property
    def stored(self) -> StoredPart:
        args = self.called.call.args
        if not isinstance(args, dict):
            args = {"arguments": args}
        # The digest as task id gives two outputs of the same call two pointers.
        output = self.called.output
        return StoredPart(self.called.call.name, args, text_digest(output.text)[:12], output.value)


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
        text = pins_text(texts, session_id=session_id)
        pins.append(new_message(text, like=messages[0].raw if messages else {}))
    once = CountedOnce(counter)  # a unit is counted at each step that shows it
    writer = NoteWriter(
        session_id=session_id,
        reader_name=policy.reader_name,
        search_name=policy.search_name,
        counter=once,
    )
    folder = _Folder(head, pins, policy, once, id_of, writer)
    for unit in units:
        folder.add(unit)
    folder.check_limit()
    prompt = folder.prompt()
    if pointers is not None:
        prompt = with_true_references(prompt, messages, pointers)
    role_tokens: Counter[str] = Counter()
    for message in prompt:
        role_tokens[message.role] += message.tokens(once)
    return FoldPlan(
        tuple(prompt),
        role_tokens.total(),
        folder.parts,
        dict(role_tokens),
    )


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
    live: list[_Unit] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    parts: dict[FoldedPart, StoredPart] = field(default_factory=dict)  # in the order of folding
    fixed_tokens: int = field(init=False)  # of the system messages and the pins
    note_tokens: int = 0
    live_tokens: int = 0
    noted_position: int = 0  # of the newest message at the last step that folded messages

    def __post_init__(self) -> None:
        fixed = (*self.head, *self.pins)
        self.fixed_tokens = sum(message.tokens(self.counter) for message in fixed)

    @property
    def tokens(self) -> int:
        return self.fixed_tokens + self.note_tokens + self.live_tokens

    @property
    def room(self) -> int:
        """Return what the limit leaves to the note and the live messages."""
        return self.policy.max_tokens - self.fixed_tokens

    def add(self, messages: list[HistoryMessage]) -> None:
        tokens = sum(message.tokens(self.counter) for message in messages)
        unit = _Unit(messages, [*messages], tokens)
        for called in called_outputs(messages):
            output_tokens = called.output.tokens(self.counter)
            if output_tokens >= _MIN_OUTPUT_TOKENS:
                unit.outputs.append(_Output(unit, called, output_tokens))
        self.live.append(unit)
        self.live_tokens += tokens
        if self.tokens > self.policy.max_tokens:
            self._make_room()

    def _make_room(self) -> None:
        """Fold until the target is met, or as far as anything can be folded."""
        limit = self.policy.max_tokens
        target = self.fixed_tokens + int(self.room * self.policy.target_share)
        self._replace_until(target, self.live[:-1])
        if self.tokens > target:
            self._fold_oldest(target)
        self._replace_until(limit, self.live[-1:])
        # What the user wrote last is cut only for half of the note, which has what he said before.
        self._shrink_note(self.note_tokens // 2)
        if self.tokens > limit:
            self._cut_texts(limit)
        self._shrink_note(0)

    def _shrink_note(self, min_tokens: int) -> None:
        """Leave less of the limit to the note, as far as the other messages need it."""
        if self.segments:
            room_tokens = self.policy.max_tokens - self.fixed_tokens - self.live_tokens
            room_tokens = max(room_tokens, min_tokens, self.writer.min_tokens)
            self.note_tokens = min(self.note_tokens, room_tokens)

    def _replace_until(self, max_tokens: int, units: Iterable[_Unit]) -> None:
        """Replace the outputs of some units, the largest first, as far as needed."""
        outputs = chain.from_iterable(unit.outputs for unit in units)
        for output in sorted(outputs, key=lambda output: -output.tokens):
            if self.tokens <= max_tokens:
                return
            self._replace(output)

    def _replace(self, output: _Output) -> None:
        """Replace an output by a line with its pointer, if the line is shorter."""
        pointer_id = self.id_of(output.stored)
        name = one_line(output.called.call.name, max_chars=_LINE_CHARS)
        # A lone surrogate has no UTF-8 form.
        size_bytes = len(output.called.output.text.encode(errors="replace"))
        description = describe_result(output.called.output.value, size_bytes=size_bytes)
        line = (
            f"[{output.tokens:,} tokens of {name} were here. They are stored under the id "
            f"{pointer_id} and not shown now: read them with {self.policy.reader_name} before you "
            f"rely on them. "
            f"What it was: {one_line(description, max_chars=_DESCRIPTION_CHARS)}]"
        )
        index = output.called.message_index
        message = output.unit.shown[index].with_output(output.called.number, line)
        if message.tokens(self.counter) < output.unit.shown[index].tokens(self.counter):
            self._show(output.unit, index, message)
            output.unit.outputs.remove(output)
            position = message.position
            self._keep("output", output.stored, position, position, output.tokens)

    def _keep(self, kind: Kind, stored: StoredPart, first: int, last: int, tokens: int) -> str:
        """Add a part, and return its id."""
        pointer_id = self.id_of(stored)
        part = FoldedPart(pointer_id=pointer_id, kind=kind, first=first, last=last, tokens=tokens)
        self.parts[part] = stored  # a later step may cut the same text again
        return pointer_id

    def _show(self, unit: _Unit, index: int, message: HistoryMessage) -> None:
        added_tokens = message.tokens(self.counter) - unit.shown[index].tokens(self.counter)
        unit.shown[index] = message
        unit.tokens += added_tokens
        self.live_tokens += added_tokens

    def _fold_oldest(self, target: int) -> None:
        """Put the oldest units behind one pointer. The last unit and question of the user stay."""
        kept = [self.live[-1]]
        for unit in self.live:
            if any(message.is_question for message in unit.originals):
                kept[1:] = [unit]
        note_tokens = max(int(self.room * self.policy.note_share), self.writer.min_tokens)
        excess = self.fixed_tokens + self.live_tokens + note_tokens - target
        folded: list[_Unit] = []
        live: list[_Unit] = []
        for unit in self.live:
            if excess > 0 and unit not in kept:
                folded.append(unit)
                excess -= unit.tokens
            else:
                live.append(unit)
        if not folded:
            return
        # An output is stored whole, not the line in its place.
        messages = [message for unit in folded for message in unit.originals]
        # By number, so that the model can read one message by a path such as /3.
        result = {str(message.position): message.data for message in messages}
        first, last = messages[0].position, messages[-1].position
        stored = StoredPart(
            HISTORY_TOOL,
            {"messages": numbers_of(messages)},
            text_digest(stable_json(result))[:12],
            result,
        )
        tokens = sum(message.tokens(self.counter) for message in messages)
        pointer_id = self._keep("messages", stored, first, last, tokens)
        self.segments.append(Segment(pointer_id, messages, tokens))
        self.live = live
        self.live_tokens -= sum(unit.tokens for unit in folded)
        self.note_tokens = note_tokens
        self.noted_position = live[-1].originals[-1].position

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
                    sizes.append(unit.shown[index].tokens(self.counter))
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
        line = (
            f"[This message has {tokens:,} tokens, of which the beginning and the end are shown; "
            f"the rest has not been read. Read it with {self.policy.reader_name} and the id "
            f"{self.id_of(stored)}.]"
        )
        # Tokens are not spread evenly over a text, so the first guess may be too long.
        chars = len(whole.text) * share // tokens
        while chars > _LINE_CHARS:
            message = whole.with_text(f"{line}\n{excerpt_text(whole.text, chars).text}")
            if message.tokens(self.counter) <= share:
                self._show(unit, index, message)
                self._keep("text", stored, whole.position, whole.position, tokens)
                return
            chars = chars * 9 // 10

    def check_limit(self) -> None:
        """Raise if the messages that cannot be folded exceed the limit."""
        needed_tokens = self.tokens
        if self.pins and self.live and not self.live[-1].originals[-1].outputs:
            # Pins must not shorten the newest message, apart from an output behind a pointer.
            newest = self.live[-1].originals[-1]
            needed_tokens = max(needed_tokens, self.fixed_tokens + newest.tokens(self.counter))
        limit = self.policy.max_tokens
        if needed_tokens <= limit:
            return
        media_tokens = sum(message.media_tokens for message in self.prompt())
        remedy = "raise max_tokens or shorten the system messages and pins"
        if needed_tokens - media_tokens <= limit:
            remedy = (
                f"their images, sounds and files count {media_tokens:,}; raise max_tokens or send "
                f"fewer"
            )
        raise TokenBudgetError(
            f"the messages that cannot be folded take {needed_tokens:,} tokens of {limit:,}; "
            f"{remedy}",
            needed_tokens=needed_tokens,
            limit_tokens=limit,
        )

    def prompt(self) -> list[HistoryMessage]:
        """Return the messages to send. The note is as of the last step that folded messages."""
        live = [message for unit in self.live for message in unit.shown]
        note: list[HistoryMessage] = []
        if self.segments:
            noted = [message for message in live if message.position <= self.noted_position]
            text = self.writer.write(self.segments, noted, max_tokens=self.note_tokens)
            note.append(new_message(text, like=self.segments[0].messages[0].raw))
        return [*self.head, *self.pins, *note, *live]


_MAX_MATCHES: Final = 20


class Folded(BaseModel):
    """A history within its limit.

    Attributes:
        messages: The messages to send, in the shape of the caller's: system messages, the pins,
            at most one note about folded messages, then the messages that stay.
        tokens: Tokens of these messages.
        parts: The stored parts, in the order of folding.
        role_tokens: Tokens of the messages by role.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    messages: tuple[Any, ...]
    tokens: int
    parts: tuple[FoldedPart, ...] = ()
    role_tokens: dict[str, int] = {}


async def fold(
    messages: Sequence[Message],
    *,
    store: ContextPointerStore,
    session_id: str,
    policy: FoldPolicy | None = None,
    counter: TokenCounter | None = None,
    ttl_s: float | None = None,
    pinned: Sequence[str | Message] = (),
) -> Folded:
    """Return a history within `policy.max_tokens`, and store the messages that it leaves out.

    The model can read every folded message back word for word. Pass the whole history each time:
    equal histories give equal messages. A longer history begins with the bytes of a shorter one,
    except at the few turns with a step of folding.

    Folding takes, in this order and only as far as needed, the largest outputs and the oldest
    messages. Calls and their outputs stay together. The leading
    system messages, the user's newest message and the newest message stay. A text that takes most
    of the limit by itself is cut in its middle, which is stored and marked.

    An output "Identical to the result above" of `Session.offload` is replaced by a line that names
    the pointer, once that result is no longer among the messages.

    A note lists the folded messages, within its share of the limit. It has what the user said for
    the conversation, word for word, his latest task, his consents with the calls that followed, the
    values that the next call may need, and where to read the rest. Only pins are called rules.

    What `pinned` has, and each message with the true key `pinned`, is in every prompt word for
    word, in one message behind the system messages. The key itself is not returned. What `fold`
    returned can be folded again and keeps its pins and what the user said.

    Args:
        messages: Oldest first: `LLMMessage`s, or dicts in the shape of OpenAI's chat completions or
            of Anthropic's messages. Calls and blocks may be the SDK's own objects. Never changed.
        store: Keeps the folded messages.
        session_id: The conversation, as a query id of the store.
        policy: Limits, and the names of the tools that read back. None takes the defaults.
        counter: Counts tokens. None takes `DefaultCounter`.
        ttl_s: Seconds that a folded message lives after it was last saved or read. Each fold saves
            those again that have lost half of it. None keeps them as long as the store does.
        pinned: Texts, or messages with a text, that every prompt has word for word.

    Raises:
        TokenBudgetError: If the messages that are never folded exceed the limit, or the pins with
            the newest message. `.needed_tokens` is their size.
        TypeError: If `messages` or `pinned` is not a list, a message is neither an `LLMMessage` nor
            a dict with a known role, pinned content has no text, `store` is not a
            `ContextPointerStore`, or the counter does not return an int.
        UnserialisableError: If a message cannot be written as JSON.
        InvalidIdError: If `session_id` is not allowed.
        StoreError: If the folded messages could not be stored. Do not send anything then.
    """
    _check_store(store, session_id)
    policy = policy or FoldPolicy()
    history = read_messages(messages)
    pointers = None
    if await in_thread(has_references, history):
        listed = await in_thread(store.list, query_id=session_id)
        pointers = {pointer.pointer_id: pointer for pointer in listed}
    with span("llm_common.fold", {"llm_common.fold.messages": len(history)}) as current:
        plan_for = partial(
            plan_fold,
            history,
            session_id=session_id,
            policy=policy,
            counter=counter or DefaultCounter(),
            pinned=pinned,
            pointers=pointers,
        )
        plan = await _stored_plan(plan_for, store, session_id=session_id, ttl_s=ttl_s)
        current.set_attributes(
            {
                "gen_ai.conversation.compacted": bool(plan.parts),
                "llm_common.fold.sent": len(plan.messages),
                "llm_common.fold.parts": len(plan.parts),
                "llm_common.context.tokens": plan.tokens,
                "llm_common.context.budget_tokens": policy.max_tokens,
            }
        )
    folded = Folded(
        messages=tuple(message.raw for message in plan.messages),
        tokens=plan.tokens,
        parts=tuple(plan.parts),
        role_tokens=plan.role_tokens,
    )
    record(
        "fold",
        folded=folded,
        session_id=session_id,
        limit_tokens=policy.max_tokens,
        message_count=len(history),
    )
    return folded


async def _stored_plan(
    plan_for: Callable[..., FoldPlan],
    store: ContextPointerStore,
    *,
    session_id: str,
    ttl_s: float | None,
) -> FoldPlan:
    """Return the plan of a fold after its parts were stored."""
    longer_ids: dict[str, str] = {}  # of parts whose short id another call has

    def id_of(part: StoredPart) -> str:
        pointer_id = _pointer_id(part, session_id)
        return longer_ids.get(pointer_id, pointer_id)

    # The messages name the ids of their parts, so the plan needs the ids before anything is saved.
    while True:
        plan = await in_thread(plan_for, id_of=id_of)
        parts = {part.pointer_id: stored for part, stored in plan.parts.items()}
        if parts:
            for pointer in await in_thread(store.list, query_id=session_id):
                part = parts.get(pointer.pointer_id)
                if part is not None and _has(pointer, part, ttl_s):
                    del parts[pointer.pointer_id]
        saves = [_save(store, session_id, part, ttl_s) for part in parts.values()]
        is_final = True
        for pointer_id, pointer in zip(parts, await asyncio.gather(*saves), strict=True):
            if pointer_id != pointer.pointer_id:
                longer_ids[pointer_id] = pointer.pointer_id
                is_final = False
        if is_final:
            return plan


def _pointer_id(part: StoredPart, session_id: str) -> str:
    return compute_pointer_id(
        tool_name=part.tool_name, args=part.args, query_id=session_id, task_id=part.task_id
    )


def _has(pointer: ContextPointer, part: StoredPart, ttl_s: float | None) -> bool:
    """Return whether an earlier fold stored a part that need not be saved again."""
    # Another call can have the same short id. Equal task ids have equal content, since they
    # contain a digest of it.
    if (pointer.tool_name, pointer.task_id) != (part.tool_name, part.task_id):
        return False
    if ttl_s is None or pointer.expires_at is None or pointer.pinned:
        return True
    return pointer.expires_at > time_text(datetime.now(UTC) + timedelta(seconds=ttl_s / 2))


async def _save(
    store: ContextPointerStore, session_id: str, part: StoredPart, ttl_s: float | None
) -> ContextPointer:
    return await store.save(
        query_id=session_id,
        task_id=part.task_id,
        tool_name=part.tool_name,
        args=part.args,
        result=part.result,
        ttl_s=ttl_s,
        renew_on_read=ttl_s is not None,
    )


def results_in_view(
    messages: Sequence[Message],
    pointers: Sequence[ContextPointer],
    *,
    session_id: str,
    policy: FoldPolicy | None,
    counter: TokenCounter,
    pinned: Sequence[str | Message] = (),
) -> dict[str, bool]:
    """Return the ids of the stored results that `fold` leaves in view, unchanged. Stores nothing.

    The value of an id is whether the user has written anything after that result.

    Args:
        messages: The whole history, as `fold` gets it.
        pointers: The results in question.
        session_id: The conversation.
        policy: The limits of `fold`. None if the history is not folded.
        counter: Counts tokens.
        pinned: As for `fold`.
    """
    try:
        history = read_messages(messages)
        in_view = _in_view(history, pointers)
        if in_view and policy is not None:
            # Most histories show none of them, so few are planned twice.
            plan = plan_fold(
                history,
                session_id=session_id,
                policy=policy,
                counter=counter,
                pinned=pinned,
                id_of=lambda part: _pointer_id(part, session_id),
            )
            in_view = _in_view(plan.messages, pointers)
    except (TypeError, UnserialisableError, TokenBudgetError):
        # `fold` raises it for the caller. Here it only means that nothing is known to be in view.
        return {}
    return in_view


def _in_view(
    messages: Sequence[HistoryMessage], pointers: Sequence[ContextPointer]
) -> dict[str, bool]:
    by_id = {pointer.pointer_id: pointer for pointer in pointers}
    last_text = -1
    for index, message in enumerate(messages):
        if message.role == "user" and message.text:
            last_text = index
    in_view: dict[str, bool] = {}
    for result in named_results(messages, by_id):
        if result.is_in_view and isinstance(result.form, FramedResult):
            in_view[result.form.pointer_id] = result.message_index < last_text
    return in_view


def refers_to_results(messages: Sequence[Message]) -> bool:
    """Return whether an output of the messages refers to a result further up."""
    try:
        return has_references(read_messages(messages))
    except (TypeError, UnserialisableError):
        return False  # a session that does not fold takes any messages


async def search_history(
    query: str, *, store: ContextPointerStore, session_id: str, limit: int = 5
) -> tuple[FoundMessage, ...]:
    """Find the folded messages and outputs of a session that share words with a query, best first.

    A damaged output is skipped.

    Args:
        query: The words to find.
        store: The store with the folded messages.
        session_id: The conversation.
        limit: Maximum number of matches, up to 20.

    Raises:
        InvalidIdError: If `session_id` is not allowed.
        StoreError: If the store cannot be read.
        TypeError: If `query` is not a str, or `store` not a `ContextPointerStore`.
    """
    _check_store(store, session_id)
    limit = min(max(limit, 0), _MAX_MATCHES)
    return await in_thread(search_messages, query, store, query_ids=[session_id], limit=limit)


def _check_store(store: object, session_id: str) -> None:
    # A short history needs neither, and the mistake would appear only when it has grown.
    if not isinstance(store, ContextPointerStore):
        raise TypeError(
            f"store is a {type(store).__name__}; pass a store, such as "
            f"FileContextPointerStore(folder)"
        )
    checked_query_id(session_id, store.redactor)
