"""`Recording`: makes the lines of a trace from what a run chose and did."""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

import orjson

from llm_common.context.bundle import ContextBundle, ItemAccount
from llm_common.context.request import (
    BudgetAllocation,
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    MemorySnippet,
    ProjectState,
    TurnEntry,
)
from llm_common.core.models import LLMMessage
from llm_common.core.structured import Attempt
from llm_common.history.fold import Folded
from llm_common.plans import PlannedTask
from llm_common.pointers.pointer import ContextPointer
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.selection.results import PointerChoice, RelevanceSelection, ToolSelection
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line, printable
from llm_common.tools.definitions import ToolDefinition
from llm_common.trace.lines import (
    OVER_THE_CAP,
    AnswerLine,
    Candidate,
    Dropped,
    FoldLine,
    Line,
    ModelCallLine,
    PackedItem,
    PackingLine,
    SelectionLine,
    SentMessage,
    SentPrompt,
    ToolCallLine,
)

MAX_LISTED: Final = 200
_MAX_ID_CHARS: Final = 200
_MAX_NAME_CHARS: Final = 120
_MAX_PROBLEM_CHARS: Final = 500
_MAX_PROBLEMS: Final = 5  # of one refused call
_MAX_LINE_CHARS: Final = 400_000  # of the texts of a line
_DIGEST_CHARS: Final = 16
_MAX_PREFIXES: Final = 64
_MIN_CHUNK_BYTES: Final = 256
_MAX_PROMPTS: Final = 8
_MAX_CLEAN: Final = 4_096
_MAX_PROMPT_BYTES: Final = 1_000_000

_Item = TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer


class Answered(Protocol):
    """What is recorded of an answer."""

    @property
    def text(self) -> str | None:
        """The answer; None for a failure."""

    @property
    def status(self) -> str:
        """How it ended."""

    @property
    def problem(self) -> str:
        """What went wrong."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""

    @property
    def context(self) -> ContextBundle | None:
        """What the model was shown."""

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """One a model call."""


class _KnownPrompt(NamedTuple):
    model: str | None
    place: str
    data: bytes


class Recording:
    """Makes the lines of traces.

    Keeps the last eight prompts of up to 1 MB, to tell how much of the next one is the same.

    Args:
        texts: Whether lines contain texts.
        redactor: Takes secrets out of names and texts of others. Digests and pointer ids stay.
    """

    def __init__(self, *, texts: bool, redactor: Redactor = DEFAULT_REDACTOR) -> None:
        self._texts, self._redactor = texts, redactor
        # The same names come again and again: of tools, items and models.
        self._cleaned = lru_cache(_MAX_CLEAN)(
            lambda text, chars: one_line(redactor.text(text), max_chars=chars)
        )
        self._chars_left = 0
        self._prompts: deque[_KnownPrompt] = deque(maxlen=_MAX_PROMPTS)
        self._makers: dict[str, Callable[..., Line]] = {
            "tools": self._tools,
            "outputs": self._outputs,
            "packing": self._packing,
            "fold": self._fold,
            "model_call": self._model_call,
            "tool_call": self._tool_call,
            "answer": self._answer,
        }

    def line(self, kind: str, facts: Mapping[str, object], *, place: str) -> Line:
        """Make the line for what was recorded, without its number and time.

        Args:
            kind: What was recorded.
            facts: As the code hands them to `record`.
            place: The run and the number of the line, by which later prompts name this one.
        """
        self._chars_left = _MAX_LINE_CHARS
        extra = {"place": place} if kind == "model_call" else {}
        return self._makers[kind](**facts, **extra)

    def _text(self, text: str) -> str | None:
        """Return as much of a text as the line has room for, None where texts are not wanted."""
        if not self._texts:
            return None
        beginning = printable(self._redactor.beginning(text, max_chars=self._chars_left))
        self._chars_left -= len(beginning)
        return beginning

    def _one_line(self, text: str, max_chars: int) -> str:
        # Twice what is kept: the redactor sees a secret whole that stands at the cut.
        return self._cleaned(text[: 2 * max_chars], max_chars)

    def _attempts(self, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
        cleaned = []
        for attempt in attempts[:MAX_LISTED]:
            model = self._one_line(attempt.model or "", _MAX_NAME_CHARS)
            reason = attempt.reason and self._one_line(attempt.reason, _MAX_NAME_CHARS)
            cleaned.append(replace(attempt, model=model, reason=reason))
        return tuple(cleaned)

    def _tools(
        self,
        *,
        selection: ToolSelection,
        offered: Sequence[ToolDefinition],
        shown: Sequence[str],
        task: PlannedTask,
        query: str | None,
    ) -> SelectionLine:
        outcomes = _ToolOutcomes(selection, shown)
        choices = {choice.tool: choice for choice in selection.choices}
        candidates = []
        ranked = sorted(offered, key=lambda tool: outcomes.rank(tool.name))
        for tool in ranked[:MAX_LISTED]:
            choice = choices.get(tool.name)
            candidate = Candidate(
                id=self._one_line(tool.name, _MAX_ID_CHARS),
                digest=digest(tool.text),
                size_bytes=len(tool.text),
                tokens=tool.signature_tokens,
                probability=choice.probability if choice else None,
                share=choice.share if choice else None,
                reason=outcomes.of(tool.name),
                text=self._text(self._one_line(tool.signature, _MAX_PROBLEM_CHARS)),
            )
            candidates.append(candidate)
        dropped = []
        for call in selection.dropped[:MAX_LISTED]:
            problems = [
                self._one_line(str(problem), _MAX_PROBLEM_CHARS)
                for problem in call.problems[:_MAX_PROBLEMS]
            ]
            name = self._one_line(call.tool, _MAX_ID_CHARS)
            dropped.append(Dropped(id=name, reason=call.reason, problems=tuple(problems)))
        request = "\n".join(filter(None, (task.description, query)))
        chosen = [self._one_line(name, _MAX_ID_CHARS) for name in [*outcomes.called][:MAX_LISTED]]
        return SelectionLine(
            of="tools",
            task=self._one_line(str(task.id), _MAX_ID_CHARS),
            chosen=tuple(chosen),
            candidates=tuple(candidates),
            unlisted=max(len(ranked) - MAX_LISTED, 0),
            dropped=tuple(dropped),
            query_digest=digest(request),
            query=self._text(request),
            status=selection.status,
            used=selection.used,
            problem=self._one_line(selection.problem, _MAX_PROBLEM_CHARS),
            cached=selection.cached,
            attempts=self._attempts(selection.attempts),
            tokens_saved=selection.tokens_saved,
        )

    def _outputs(
        self,
        *,
        selection: RelevanceSelection,
        candidates: Sequence[ContextPointer],
        query: str,
        limits: Mapping[str, float],
        scores: Mapping[str, float] | None = None,
    ) -> SelectionLine:
        pointers = {pointer.pointer_id: pointer for pointer in candidates}
        chosen = [pointer.pointer_id for pointer in selection.pointers]
        ranks = {pointer_id: rank for rank, pointer_id in enumerate(chosen)}
        scores = scores or {}

        def rank(choice: PointerChoice) -> tuple[float, ...]:
            return (
                ranks.get(choice.pointer_id, len(ranks)),
                choice.reason != OVER_THE_CAP,
                -(choice.probability or 0.0),
                -scores.get(choice.pointer_id, 0.0),
            )

        listed = []
        for choice in sorted(selection.choices, key=rank)[:MAX_LISTED]:
            pointer = pointers[choice.pointer_id]
            candidate = Candidate(
                id=pointer.pointer_id,
                name=self._one_line(pointer.tool_name, _MAX_NAME_CHARS),
                digest=item_digest(pointer),
                size_bytes=pointer.result_bytes,
                score=_finite(scores.get(pointer.pointer_id)),
                probability=choice.probability,
                share=choice.share,
                reason=choice.reason,
                text=self._text(self._one_line(pointer.summary, _MAX_PROBLEM_CHARS)),
            )
            listed.append(candidate)
        dropped = [
            Dropped(id=self._one_line(entry.id, _MAX_ID_CHARS), reason=entry.reason)
            for entry in selection.dropped[:MAX_LISTED]
        ]
        return SelectionLine(
            of="outputs",
            chosen=tuple(chosen[:MAX_LISTED]),
            candidates=tuple(listed),
            unlisted=max(len(selection.choices) - MAX_LISTED, 0),
            dropped=tuple(dropped),
            query_digest=digest(query),
            query=self._text(query),
            limits=dict(limits),
            status=selection.status,
            used=selection.used,
            problem=self._one_line(selection.problem, _MAX_PROBLEM_CHARS),
            cached=selection.cached,
            attempts=self._attempts(selection.attempts),
            tokens_saved=selection.tokens_saved,
        )

    def _packing(
        self,
        *,
        request: ContextSelectionRequest,
        pool: DataPoolSnapshot,
        bundle: ContextBundle,
        allocation: BudgetAllocation,
        not_weighed: Mapping[str, int] = MappingProxyType({}),
    ) -> PackingLine:
        pool_items = _items_of(pool)
        others = sorted(bundle.dropped, key=lambda account: -(_finite(account.score) or 0.0))
        accounts = [*bundle.kept, *others]
        items = [
            self._packed(account, pool_items[account.kind, account.id])
            for account in accounts[:MAX_LISTED]
        ]
        shares = asdict(allocation)
        text = bundle.render()
        return PackingLine(
            budget=shares.pop("total_budget"),
            tokens=bundle.metadata.total_tokens,
            intent=request.intent.classification,
            strategy=self._one_line(request.strategy, _MAX_ID_CHARS),
            allocation=shares,
            items=tuple(items),
            unlisted=max(len(accounts) - MAX_LISTED, 0),
            counter=type(request.counter).__name__,
            judge=bundle.metadata.judge,
            not_weighed=dict(not_weighed),
            query_digest=digest(request.intent.text),
            query=self._text(request.intent.text),
            text_digest=digest(text),
            text=self._text(text),
        )

    def _packed(self, account: ItemAccount, item: _Item) -> PackedItem:
        match item:
            case ContextFile():
                name = item.path
            case ContextPointer():
                name = item.tool_name
            case TurnEntry():
                name = item.role
            case _:
                name = ""
        parts = {}
        for part, value in account.parts.items():
            if isfinite(value):  # JSON has no other numbers
                parts[one_line(part, max_chars=_MAX_NAME_CHARS)] = value
        return PackedItem(
            source=account.kind,
            id=self._one_line(account.id, _MAX_ID_CHARS),
            name=self._one_line(name, _MAX_NAME_CHARS),
            rule=account.rule,
            reason=self._one_line(account.reason, _MAX_PROBLEM_CHARS),
            form=account.form,
            tokens=account.tokens,
            score=_finite(account.score) or 0.0,
            parts=parts,
            chars=account.chars,
            chars_shown=account.chars_shown,
            digest=item_digest(item),
        )

    def _fold(self, *, folded: Folded, session_id: str, limit_tokens: int, given: int) -> FoldLine:
        return FoldLine(
            session_id=self._one_line(session_id, _MAX_ID_CHARS),
            limit_tokens=limit_tokens,
            tokens=folded.tokens,
            messages_given=given,
            messages_sent=len(folded.messages),
            parts=folded.parts[:MAX_LISTED],
            unlisted=max(len(folded.parts) - MAX_LISTED, 0),
        )

    def _model_call(
        self, *, prompt: object, attempt: Attempt, answer: object, place: str
    ) -> ModelCallLine:
        sent = self._sent(prompt, attempt.model, place)  # by the model's own name, not the cleaned
        line = ModelCallLine(attempt=self._attempts([attempt])[0], prompt=sent)
        changes: dict[str, object] = {}
        # A failed call has no answer, and an adapter's may lack either field.
        finish_reason = getattr(answer, "finish_reason", None)
        if isinstance(finish_reason, str):
            changes["finish_reason"] = self._one_line(finish_reason, _MAX_NAME_CHARS)
        reply = getattr(answer, "content", None)
        if isinstance(reply, str):
            changes["reply_digest"] = digest(reply)
            changes["reply_chars"] = len(reply)
            changes["reply"] = self._text(reply)
        return line.model_copy(update=changes)

    def _sent(self, prompt: object, model: str | None, place: str) -> SentPrompt:
        messages = [*prompt] if isinstance(prompt, Sequence) else [prompt]
        encoded = [_prompt_bytes(message) for message in messages]
        data = b"\n".join(encoded)
        most, same_as = None, None
        for known in self._prompts:
            if known.model == model:
                same = same_bytes(known.data, data)
                if most is None or same > most:
                    most, same_as = same, known.place
        if len(data) <= _MAX_PROMPT_BYTES:
            self._prompts.append(_KnownPrompt(model, place, data))
        chunk_bytes, prefixes = _prefixes(data)
        sent = [
            SentMessage(role=_role(message), bytes=len(text), digest=_hex(text))
            for message, text in zip(messages[:MAX_LISTED], encoded, strict=False)
        ]
        return SentPrompt(
            digest=_hex(data),
            bytes=len(data),
            chunk_bytes=chunk_bytes,
            prefixes=prefixes,
            same_bytes=most,
            same_as=same_as,
            messages=tuple(sent),
            text=self._text(data.decode("utf-8", "replace")),
        )

    def _tool_call(
        self,
        *,
        tool: str,
        args: Mapping[str, object],
        task: int | str | None = None,
        pointer: ContextPointer | None = None,
        failure: str | None = None,
        seconds: float | None = None,
    ) -> ToolCallLine:
        arguments = stable_json(args)
        line = ToolCallLine(
            tool=self._one_line(tool, _MAX_NAME_CHARS),
            task=None if task is None else self._one_line(str(task), _MAX_ID_CHARS),
            args_digest=digest(arguments),
            args=self._text(arguments),
            failure=None if failure is None else self._one_line(failure, _MAX_NAME_CHARS),
            seconds=seconds,
        )
        if pointer is None:
            return line
        output = {
            "pointer_id": pointer.pointer_id,
            "result_bytes": pointer.result_bytes,
            "result_digest": item_digest(pointer),
        }
        return line.model_copy(update=output)

    def _answer(self, *, answer: Answered) -> AnswerLine:
        outputs = answer.context.outputs if answer.context else ()
        line = AnswerLine(
            status=self._one_line(answer.status, _MAX_NAME_CHARS),
            problem=self._one_line(answer.problem, _MAX_PROBLEM_CHARS),
            prompt_tokens=answer.prompt_tokens,
            shown=tuple(output.pointer_id for output in outputs[:MAX_LISTED]),
            attempts=self._attempts(answer.attempts),
        )
        text = answer.text
        if text is None:
            return line
        content = {
            "text_digest": digest(text),
            "text_chars": len(text),
            "text": self._text(text),
        }
        return line.model_copy(update=content)


class _ToolOutcomes:
    """What became of the tools that a selection was offered."""

    def __init__(self, selection: ToolSelection, shown: Sequence[str]) -> None:
        self.called = dict.fromkeys(call.tool for call in selection.calls)
        self._refused = {call.tool for call in selection.dropped}
        self._capped = {
            choice.tool for choice in selection.choices if choice.reason == OVER_THE_CAP
        }
        self._shown = {*shown}

    def of(self, name: str) -> str:
        """Return the reason of a tool's candidate."""
        if name in self._capped:
            return OVER_THE_CAP
        if name in self.called:
            return "chosen"
        if name in self._refused:
            return "dropped"
        return "not chosen" if name in self._shown else "not shown"

    def rank(self, name: str) -> tuple[bool, ...]:
        """Sort called tools first, then refused ones, then those that were shown."""
        return name not in self.called, name not in self._refused, name not in self._shown


def digest(text: str) -> str:
    """Return the first sixteen digits of the text's SHA-256."""
    return _hex(text.encode("utf-8", "surrogatepass"))


def _items_of(pool: DataPoolSnapshot) -> dict[tuple[Kind, str], _Item]:
    """Return every item of a pool, by its kind and id."""
    items: dict[tuple[Kind, str], _Item] = {("turn", turn.id): turn for turn in pool.session_log}
    items |= {("file", file.id): file for file in pool.context_files}
    items |= {("memory", memory.id): memory for memory in pool.memory_hits}
    items |= {("output", output.pointer_id): output for output in pool.tool_outputs}
    if pool.project_state is not None:
        items["project", pool.project_state.name] = pool.project_state
    return items


def item_digest(item: _Item) -> str:
    """Return the digest of an item's text, of an output that of its bytes."""
    match item:
        case ContextPointer():
            return (item.result_sha256 or "")[:_DIGEST_CHARS]
        case ProjectState():
            return digest(item.model_dump_json())
        case MemorySnippet():
            return digest(item.text)
    return digest(item.content)


def _prompt_bytes(message: object) -> bytes:
    """Return the bytes of a message, by which prompts are compared."""
    plain = message.model_dump(exclude_none=True) if isinstance(message, LLMMessage) else message
    try:
        return orjson.dumps(plain, option=orjson.OPT_NON_STR_KEYS, default=repr)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number that JSON has no form for
        return printable(repr(plain)).encode()


def same_bytes(before: bytes, after: bytes) -> int:
    """Return with how many equal bytes both begin, by bisection."""
    low, high = 0, min(len(before), len(after))
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == after[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _prefixes(data: bytes) -> tuple[int, tuple[str, ...]]:
    """Return the size of a chunk, and the digests of the first chunk, the first two, and so on."""
    chunk_bytes = _MIN_CHUNK_BYTES
    while len(data) > chunk_bytes * _MAX_PREFIXES:
        chunk_bytes *= 2
    state = hashlib.sha256()
    digests = []
    for start in range(0, len(data) - chunk_bytes + 1, chunk_bytes):
        state.update(data[start : start + chunk_bytes])
        digests.append(state.copy().hexdigest()[:_DIGEST_CHARS])
    return chunk_bytes, tuple(digests)


def _role(message: object) -> str:
    role = message.role if isinstance(message, LLMMessage) else "data"
    return one_line(str(role), max_chars=_MAX_NAME_CHARS)


def _hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARS]


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
