"""From what a run chose and did to the lines of its trace: digests and ids, and texts where they are wanted."""

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeVar

import orjson

from llm_common.context.bundle import ContextBundle, ItemAccount
from llm_common.context.pool import (
    ContextFile,
    DataPoolSnapshot,
    MemorySnippet,
    ProjectState,
    TurnEntry,
)
from llm_common.context.request import BudgetAllocation, ContextSelectionRequest, Kind
from llm_common.core.models import LLMMessage
from llm_common.core.structured import Attempt
from llm_common.history.fold import Folded
from llm_common.plans import PlannedTask
from llm_common.pointers.pointer import ContextPointer
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.selection.results import RelevanceSelection, ToolSelection
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line, printable
from llm_common.tools.definitions import ToolDefinition
from llm_common.trace.lines import (
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
_MAX_LINE_CHARS: Final = 400_000  # of the texts of a line
_DIGEST_CHARS: Final = 16
_MAX_PREFIXES: Final = 64
_MIN_CHUNK_BYTES: Final = 256
_MAX_PROMPTS: Final = 8
_MAX_CLEAN: Final = 4_096
_MAX_PROMPT_BYTES: Final = 1_000_000

ValueT = TypeVar("ValueT")
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
    """Makes lines.

    Keeps the last eight prompts of up to 1 MB, to tell how much of the next one is the same.

    Args:
        texts: Whether lines hold texts.
        redactor: Takes secrets out of whatever others named or wrote. Not of digests and pointer
            ids.
    """

    def __init__(self, *, texts: bool, redactor: Redactor = DEFAULT_REDACTOR) -> None:
        self._texts, self._redactor = texts, redactor
        # The same names come again and again: of tools, items and models.
        self._clean = lru_cache(_MAX_CLEAN)(
            lambda text, chars: one_line(redactor.text(text), max_chars=chars)
        )
        self._room = 0
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
        """The line for the facts, without its number and time.

        Args:
            kind: What was recorded.
            facts: As the code hands them to `record`.
            place: The run and the number of the line, by which later prompts name this one.
        """
        self._room = _MAX_LINE_CHARS
        extra = {"place": place} if kind == "model_call" else {}
        return self._makers[kind](**facts, **extra)

    def _text(self, text: str) -> str | None:
        """As much of the text as the line has room for; None where texts are not wanted."""
        if not self._texts:
            return None
        shown = printable(self._redactor.beginning(text, max_chars=self._room))
        self._room -= len(shown)
        return shown

    def _short(self, text: str) -> str:
        return self._clean(text[: 2 * _MAX_ID_CHARS], _MAX_ID_CHARS)

    def _name(self, text: str) -> str:
        return self._clean(text[: 2 * _MAX_NAME_CHARS], _MAX_NAME_CHARS)

    def _line(self, text: str) -> str:
        return self._clean(text[: 2 * _MAX_PROBLEM_CHARS], _MAX_PROBLEM_CHARS)

    def _attempts(self, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
        return tuple(
            replace(
                each,
                model=self._name(each.model or ""),
                reason=each.reason and self._name(each.reason),
            )
            for each in attempts[:MAX_LISTED]
        )

    def _tools(
        self,
        *,
        selection: ToolSelection,
        offered: Sequence[ToolDefinition],
        shown: Sequence[str],
        task: PlannedTask,
        query: str | None,
    ) -> SelectionLine:
        called = dict.fromkeys(call.tool for call in selection.calls)
        refused = {call.tool for call in selection.dropped}
        weighed = {choice.tool: choice for choice in selection.choices}
        seen = {*shown}

        def candidate(tool: ToolDefinition) -> Candidate:
            choice = weighed.get(tool.name)
            reason = (
                "chosen"
                if tool.name in called
                else "dropped"
                if tool.name in refused
                else "not chosen"
            )
            if reason == "not chosen" and tool.name not in seen:
                reason = "not shown"
            return Candidate(
                id=self._short(tool.name),
                digest=digest(tool.text),
                size_bytes=len(tool.text),
                tokens=tool.signature_tokens,
                probability=choice.probability if choice else None,
                share=choice.share if choice else None,
                reason="over the cap" if choice and choice.reason == "over the cap" else reason,
                text=self._text(self._line(tool.signature)),
            )

        order = list(called)
        ranked = sorted(
            offered,
            key=lambda tool: (
                tool.name not in called,
                tool.name not in refused,
                tool.name not in seen,
            ),
        )
        asked = "\n".join(filter(None, (task.description, query)))
        return SelectionLine(
            of="tools",
            task=self._short(str(task.id)),
            chosen=tuple(map(self._short, order[:MAX_LISTED])),
            candidates=tuple(map(candidate, ranked[:MAX_LISTED])),
            unlisted=max(len(ranked) - MAX_LISTED, 0),
            dropped=tuple(
                Dropped(
                    id=self._short(call.tool),
                    reason=call.reason,
                    problems=tuple(self._line(str(problem)) for problem in call.problems[:5]),
                )
                for call in selection.dropped[:MAX_LISTED]
            ),
            query_digest=digest(asked),
            query=self._text(asked),
            status=selection.status,
            used=selection.used,
        ).model_copy(update=self._common(selection))

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
        order = {pointer.pointer_id: place for place, pointer in enumerate(selection.pointers)}
        scores = scores or {}
        choices = sorted(
            selection.choices,
            key=lambda choice: (
                order.get(choice.pointer_id, len(order)),
                choice.reason != "over the cap",
                -(choice.probability or 0.0),
                -scores.get(choice.pointer_id, 0.0),
            ),
        )

        def candidate(
            pointer_id: str, reason: str, probability: float | None, share: float | None
        ) -> Candidate:
            pointer = pointers[pointer_id]
            return Candidate(
                id=pointer_id,
                name=self._name(pointer.tool_name),
                digest=(pointer.result_sha256 or "")[:_DIGEST_CHARS],
                size_bytes=pointer.result_bytes,
                score=_finite(scores.get(pointer_id)),
                probability=probability,
                share=share,
                reason=reason,
                text=self._text(self._line(pointer.summary)),
            )

        return SelectionLine(
            of="outputs",
            chosen=tuple([*order][:MAX_LISTED]),
            candidates=tuple(
                candidate(each.pointer_id, each.reason, each.probability, each.share)
                for each in choices[:MAX_LISTED]
            ),
            unlisted=max(len(choices) - MAX_LISTED, 0),
            dropped=tuple(
                Dropped(id=self._short(each.id), reason=each.reason)
                for each in selection.dropped[:MAX_LISTED]
            ),
            query_digest=digest(query),
            query=self._text(query),
            limits=dict(limits),
            status=selection.status,
            used=selection.used,
        ).model_copy(update=self._common(selection))

    def _packing(
        self,
        *,
        request: ContextSelectionRequest,
        pool: DataPoolSnapshot,
        bundle: ContextBundle,
        allocation: BudgetAllocation,
        not_weighed: Mapping[str, int] = MappingProxyType({}),
    ) -> PackingLine:
        items = items_of(pool)
        others = sorted(bundle.dropped, key=lambda account: -(_finite(account.score) or 0.0))
        accounts = [*bundle.kept, *others]
        text = bundle.render()
        parts = {
            name: getattr(allocation, name)
            for name in allocation.__slots__
            if name != "total_budget"
        }
        return PackingLine(
            budget=allocation.total_budget,
            tokens=bundle.metadata.total_tokens,
            intent=request.intent.classification,
            strategy=self._short(request.strategy),
            allocation=parts,
            items=tuple(
                self._packed(account, items[account.kind, account.id])
                for account in accounts[:MAX_LISTED]
            ),
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
        name = item.path if isinstance(item, ContextFile) else ""
        if isinstance(item, ContextPointer):
            name = item.tool_name
        elif isinstance(item, TurnEntry):
            name = item.role
        return PackedItem(
            source=account.kind,
            id=self._short(account.id),
            name=self._name(name),
            rule=account.rule,
            reason=self._line(account.reason),
            form=account.form,
            tokens=account.tokens,
            score=_finite(account.score) or 0.0,
            parts={
                one_line(part, max_chars=_MAX_NAME_CHARS): value
                for part, value in account.parts.items()
                if isfinite(value)
            },
            chars=account.chars,
            chars_shown=account.chars_shown,
            digest=item_digest(item),
        )

    def _common(self, selection: ToolSelection | RelevanceSelection) -> dict[str, object]:
        return {
            "problem": self._line(selection.problem),
            "cached": selection.cached,
            "attempts": self._attempts(selection.attempts),
            "tokens_saved": selection.tokens_saved,
        }

    def _fold(self, *, folded: Folded, session_id: str, limit_tokens: int, given: int) -> FoldLine:
        return FoldLine(
            session_id=self._short(session_id),
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
        content = getattr(answer, "content", None)
        reply = content if isinstance(content, str) else None
        finish_reason = getattr(answer, "finish_reason", None)
        return ModelCallLine(
            attempt=self._attempts([attempt])[0],
            prompt=self._sent(prompt, attempt.model, place),
            finish_reason=self._name(finish_reason) if isinstance(finish_reason, str) else None,
            reply_digest=None if reply is None else digest(reply),
            reply_chars=len(reply or ""),
            reply=None if reply is None else self._text(reply),
        )

    def _sent(self, prompt: object, model: str | None, place: str) -> SentPrompt:
        messages = [*prompt] if isinstance(prompt, Sequence) else [prompt]
        encoded = [prompt_bytes(message) for message in messages]
        data = b"\n".join(encoded)
        best = max(
            (known for known in self._prompts if known.model == model),
            key=lambda known: same_bytes(known.data, data),
            default=None,
        )
        if len(data) <= _MAX_PROMPT_BYTES:
            self._prompts.append(_KnownPrompt(model, place, data))
        chunk, prefixes = _prefixes(data)
        return SentPrompt(
            digest=_hex(data),
            bytes=len(data),
            chunk_bytes=chunk,
            prefixes=prefixes,
            same_bytes=None if best is None else same_bytes(best.data, data),
            same_as=None if best is None else best.place,
            messages=tuple(
                SentMessage(role=_role(message), bytes=len(each), digest=_hex(each))
                for message, each in list(zip(messages, encoded, strict=True))[:MAX_LISTED]
            ),
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
        return ToolCallLine(
            tool=self._name(tool),
            task=None if task is None else self._short(str(task)),
            args_digest=digest(arguments),
            args=self._text(arguments),
            pointer_id=pointer.pointer_id if pointer else None,
            result_bytes=pointer.result_bytes if pointer else None,
            result_digest=item_digest(pointer) if pointer else None,
            failure=None if failure is None else self._name(failure),
            seconds=seconds,
        )

    def _answer(self, *, answer: Answered) -> AnswerLine:
        shown = answer.context.outputs if answer.context else ()
        return AnswerLine(
            status=self._name(answer.status),
            problem=self._line(answer.problem),
            prompt_tokens=answer.prompt_tokens,
            shown=tuple(output.pointer_id for output in shown[:MAX_LISTED]),
            attempts=self._attempts(answer.attempts),
            text_digest=None if answer.text is None else digest(answer.text),
            text_chars=len(answer.text or ""),
            text=None if answer.text is None else self._text(answer.text),
        )


def digest(text: str) -> str:
    """The first sixteen digits of the text's SHA-256."""
    return _hex(text.encode("utf-8", "surrogatepass"))


def items_of(pool: DataPoolSnapshot) -> dict[tuple[Kind, str], _Item]:
    """Every item of a pool, by its kind and id."""
    items: dict[tuple[Kind, str], _Item] = {("turn", turn.id): turn for turn in pool.session_log}
    items |= {("file", file.id): file for file in pool.context_files}
    items |= {("memory", memory.id): memory for memory in pool.memory_hits}
    items |= {("output", output.pointer_id): output for output in pool.tool_outputs}
    if pool.project_state is not None:
        items["project", pool.project_state.name] = pool.project_state
    return items


def item_digest(item: _Item) -> str:
    """The digest of an item's text; of an output that of its bytes."""
    if isinstance(item, ContextPointer):
        return (item.result_sha256 or "")[:_DIGEST_CHARS]
    if isinstance(item, ProjectState):
        return digest(item.model_dump_json())
    return digest(item.text if isinstance(item, MemorySnippet) else item.content)


def prompt_bytes(message: object) -> bytes:
    """The bytes of a message, by which prompts are compared."""
    plain = message.model_dump(exclude_none=True) if isinstance(message, LLMMessage) else message
    try:
        return orjson.dumps(plain, option=orjson.OPT_NON_STR_KEYS, default=repr)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number that JSON has no form for
        return printable(repr(plain)).encode()


def same_bytes(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _prefixes(data: bytes) -> tuple[int, tuple[str, ...]]:
    chunk = _MIN_CHUNK_BYTES
    while len(data) > chunk * _MAX_PREFIXES:
        chunk *= 2
    state = hashlib.sha256()
    found = []
    for start in range(0, len(data) - chunk + 1, chunk):
        state.update(data[start : start + chunk])
        found.append(state.copy().hexdigest()[:_DIGEST_CHARS])
    return chunk, tuple(found)


def _role(message: object) -> str:
    role = message.role if isinstance(message, LLMMessage) else "data"
    return one_line(str(role), max_chars=_MAX_NAME_CHARS)


def _hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARS]


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
