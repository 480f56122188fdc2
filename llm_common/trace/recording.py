"""`Recording`: builds the lines of a trace from the objects that the library records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import Final

import orjson

from llm_common.context.bundle import ContextBundle, ItemAccount
from llm_common.context.request import (
    BudgetAllocation,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
)
from llm_common.core.models import LLMMessage
from llm_common.core.structured import Attempt
from llm_common.history.folding import Folded
from llm_common.plans import PlannedTask
from llm_common.pointers.pointer import ContextPointer
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.selection.relevance import PointerChoice, RelevanceSelection
from llm_common.selection.results import ToolSelection
from llm_common.text.canonical import stable_json
from llm_common.text.display import one_line, printable
from llm_common.tools.definitions import ToolDefinition
from llm_common.trace.lines import (
    NO_MODEL,
    OVER_THE_CAP,
    AnswerLine,
    Candidate,
    Dropped,
    FoldLine,
    Line,
    ModelCallLine,
    OffloadLine,
    OffloadOutcome,
    PackedItem,
    PackingLine,
    ReadBackLine,
    SelectionLine,
    SentMessage,
    SentPrompt,
    ToolCallLine,
    ToolListLine,
)

# Limits of a line. Longer texts are cut, and further entries are counted.
MAX_LISTED: Final = 200
_MAX_ID_CHARS: Final = 200
_MAX_NAME_CHARS: Final = 120
_MAX_PROBLEM_CHARS: Final = 500
_MAX_PROBLEMS: Final = 5  # of one refused call
_MAX_LINE_CHARS: Final = 400_000  # of all texts of a line

# Of a tool's candidate, in the order in which candidates are listed.
_TOOL_REASONS: Final = ("chosen", "dropped", "not chosen", "not shown")
_MAX_CLEANED: Final = 4_096  # names in the cache


class Recording:
    """Builds the lines of a trace. For one thread.

    Args:
        texts: Whether lines contain texts.
        redactor: Redacts names and texts. Pointer ids are not redacted.
    """

    def __init__(self, *, texts: bool, redactor: Redactor = DEFAULT_REDACTOR) -> None:
        self._texts = texts
        self._redactor = redactor
        # Names of tools, items and models recur in nearly every line, and redaction is slow.
        self._cleaned = lru_cache(_MAX_CLEANED)(
            lambda text, chars: one_line(redactor.text(text), max_chars=chars)
        )
        self._chars_left = 0
        self._builders: dict[str, Callable[..., Line]] = {
            "tools": self._tools,
            "outputs": self._outputs,
            "packing": self._packing,
            "fold": self._fold,
            "offload": self._offload,
            "tool_list": self._tool_list,
            "read_back": self._read_back,
            "model_call": self._model_call,
            "tool_call": self._tool_call,
            "answer": self._answer,
        }

    def line(self, kind: str, fields: Mapping[str, object]) -> Line:
        """Build a line without its number and time.

        Args:
            kind: The kind of the line.
            fields: The arguments of `record`.

        Raises:
            KeyError: If the kind is unknown.
            TypeError: If the fields do not match the kind.
        """
        # One limit for all texts of the line, which `_text` uses up.
        self._chars_left = _MAX_LINE_CHARS
        return self._builders[kind](**fields)

    def _text(self, text: str) -> str | None:
        """Return as much of a text as still fits the line, or None without `texts`."""
        if not self._texts:
            return None
        beginning = printable(self._redactor.beginning(text, max_chars=self._chars_left))
        self._chars_left -= len(beginning)
        return beginning

    def _one_line(self, text: str, max_chars: int) -> str:
        # Twice the limit, so that the redactor sees a whole secret at the cut.
        return self._cleaned(text[: 2 * max_chars], max_chars)

    def _tools(
        self,
        *,
        selection: ToolSelection,
        offered: Sequence[ToolDefinition],
        shown: Sequence[str],
        task: PlannedTask,
        query: str | None,
    ) -> SelectionLine:
        reasons = dict.fromkeys((tool.name for tool in offered), "not shown")
        reasons |= dict.fromkeys(shown, "not chosen")
        reasons |= {call.tool: "dropped" for call in selection.dropped}
        called = dict.fromkeys((call.tool for call in selection.calls), "chosen")
        reasons |= called
        candidates = []
        ranked = sorted(offered, key=lambda tool: _TOOL_REASONS.index(reasons[tool.name]))
        for tool in ranked[:MAX_LISTED]:
            candidate = Candidate(
                id=self._one_line(tool.name, _MAX_ID_CHARS),
                size_bytes=len(tool.text),
                tokens=tool.signature_tokens,
                reason=reasons[tool.name],
                text=self._text(self._one_line(tool.signature, _MAX_PROBLEM_CHARS)),
            )
            candidates.append(candidate)
        dropped = []
        for call in selection.dropped[:MAX_LISTED]:
            dropped.append(self._dropped(call.tool, call.reason, call.problems))
        request = "\n".join(filter(None, (task.description, query)))
        return SelectionLine(
            of="tools",
            task=self._one_line(str(task.id), _MAX_ID_CHARS),
            chosen=self._names([*called]),
            candidates=tuple(candidates),
            unlisted=max(len(ranked) - MAX_LISTED, 0),
            dropped=tuple(dropped),
            query=self._text(request),
            status=selection.status,
            used=selection.used,
            problem=self._one_line(selection.problem, _MAX_PROBLEM_CHARS),
        )

    def _outputs(
        self,
        *,
        selection: RelevanceSelection,
        candidates: Sequence[ContextPointer],
        query: str,
        scores: Mapping[str, float] | None = None,
    ) -> SelectionLine:
        pointers = {pointer.pointer_id: pointer for pointer in candidates}
        chosen = [pointer.pointer_id for pointer in selection.pointers]
        ranks = {pointer_id: rank for rank, pointer_id in enumerate(chosen)}
        scores = scores or {}

        def rank(choice: PointerChoice) -> tuple[float, ...]:
            return (
                ranks.get(choice.pointer_id, len(ranks)),
                choice.reason != OVER_THE_CAP,  # near misses must be among those listed
                -scores.get(choice.pointer_id, 0.0),
            )

        listed = []
        for choice in sorted(selection.choices, key=rank)[:MAX_LISTED]:
            pointer = pointers[choice.pointer_id]
            candidate = Candidate(
                id=pointer.pointer_id,
                name=self._one_line(pointer.tool_name, _MAX_NAME_CHARS),
                size_bytes=pointer.result_bytes,
                score=_finite(scores.get(pointer.pointer_id)),
                reason=choice.reason,
                text=self._text(self._one_line(pointer.summary, _MAX_PROBLEM_CHARS)),
            )
            listed.append(candidate)
        dropped = []
        for entry in selection.dropped[:MAX_LISTED]:
            dropped.append(self._dropped(entry.id, entry.reason))
        return SelectionLine(
            of="outputs",
            chosen=tuple(chosen[:MAX_LISTED]),
            candidates=tuple(listed),
            unlisted=max(len(selection.choices) - MAX_LISTED, 0),
            dropped=tuple(dropped),
            query=self._text(query),
            status=selection.status,
            used=selection.used,
            problem=self._one_line(selection.problem, _MAX_PROBLEM_CHARS),
        )

    def _dropped(self, name: str, reason: str, problems: Sequence[object] = ()) -> Dropped:
        lines = []
        for problem in problems[:_MAX_PROBLEMS]:
            lines.append(self._one_line(str(problem), _MAX_PROBLEM_CHARS))
        return Dropped(id=self._one_line(name, _MAX_ID_CHARS), reason=reason, problems=tuple(lines))

    def _packing(
        self,
        *,
        request: ContextSelectionRequest,
        pool: DataPoolSnapshot,
        bundle: ContextBundle,
        allocation: BudgetAllocation,
        not_weighed: Mapping[str, int] = MappingProxyType({}),
    ) -> PackingLine:
        names = _names_of_items(pool)
        # A NaN compares false with every score, which would leave the order undefined.
        dropped = sorted(bundle.dropped, key=lambda account: -(_finite(account.score) or 0.0))
        # Kept items first, so that the limit leaves out the worst of the dropped ones.
        accounts = [*bundle.kept, *dropped]
        items = []
        for account in accounts[:MAX_LISTED]:
            items.append(self._packed_item(account, names.get((account.kind, account.id), "")))
        shares = asdict(allocation)
        return PackingLine(
            budget=shares.pop("total_budget"),
            tokens=bundle.metadata.total_tokens,
            intent=request.intent.classification,
            strategy=self._one_line(request.strategy, _MAX_ID_CHARS),
            allocation=shares,
            items=tuple(items),
            unlisted=max(len(accounts) - MAX_LISTED, 0),
            not_weighed=dict(not_weighed),
            query=self._text(request.intent.text),
            text=self._text(bundle.render()),
        )

    def _packed_item(self, account: ItemAccount, name: str) -> PackedItem:
        parts = {}
        for part, value in account.parts.items():
            if isfinite(value):  # JSON has no infinity and no NaN
                parts[one_line(part, max_chars=_MAX_NAME_CHARS)] = value
        return PackedItem(
            source=account.kind,
            id=self._one_line(account.id, _MAX_ID_CHARS),
            name=self._one_line(name, _MAX_NAME_CHARS),
            reason=self._one_line(account.reason, _MAX_PROBLEM_CHARS),
            form=account.form,
            tokens=account.tokens,
            score=_finite(account.score) or 0.0,
            parts=parts,
            chars=account.chars,
            chars_shown=account.chars_shown,
        )

    def _fold(
        self, *, folded: Folded, session_id: str, limit_tokens: int, message_count: int
    ) -> FoldLine:
        return FoldLine(
            session_id=self._one_line(session_id, _MAX_ID_CHARS),
            limit_tokens=limit_tokens,
            tokens=folded.tokens,
            messages_given=message_count,
            messages_sent=len(folded.messages),
            parts=folded.parts[:MAX_LISTED],
            unlisted=max(len(folded.parts) - MAX_LISTED, 0),
        )

    def _offload(
        self,
        *,
        session_id: str,
        tool: str,
        outcome: OffloadOutcome,
        pointer_id: str | None,
        total_chars: int,
        shown_chars: int,
    ) -> OffloadLine:
        return OffloadLine(
            session_id=self._one_line(session_id, _MAX_ID_CHARS),
            tool=self._one_line(tool, _MAX_NAME_CHARS),
            outcome=outcome,
            pointer_id=pointer_id,
            total_chars=total_chars,
            shown_chars=shown_chars,
        )

    def _tool_list(
        self,
        *,
        session_id: str,
        shown: Sequence[str],
        hidden: Sequence[str],
        tokens: int,
        limit_tokens: int,
    ) -> ToolListLine:
        return ToolListLine(
            session_id=self._one_line(session_id, _MAX_ID_CHARS),
            shown=self._names(shown),
            hidden=self._names(hidden),
            unlisted=max(len(shown) - MAX_LISTED, 0) + max(len(hidden) - MAX_LISTED, 0),
            tokens=tokens,
            limit_tokens=limit_tokens,
        )

    def _names(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._one_line(name, _MAX_ID_CHARS) for name in [*names][:MAX_LISTED])

    def _read_back(
        self,
        *,
        tool: str | None = None,
        pointer_id: str | None = None,
        parts: Sequence[str] = (),
        chars: int = 0,
        failure: str | None = None,
    ) -> ReadBackLine:
        # A model may have made the id up.
        return ReadBackLine(
            tool=tool and self._one_line(tool, _MAX_NAME_CHARS),
            pointer_id=pointer_id and self._one_line(pointer_id, _MAX_ID_CHARS),
            parts=tuple(parts),
            chars=chars,
            failure=failure,
        )

    def _model_call(
        self, *, prompt: Sequence[object], attempt: Attempt, answer: object
    ) -> ModelCallLine:
        sent = self._sent_prompt(prompt)
        attempt = replace(
            attempt,
            model=self._one_line(attempt.model or "", _MAX_NAME_CHARS),
            reason=attempt.reason and self._one_line(attempt.reason, _MAX_NAME_CHARS),
        )
        line = ModelCallLine(attempt=attempt, prompt=sent)
        changes: dict[str, object] = {}
        # A failed call has no answer, and an adapter's answer may lack either field.
        finish_reason = getattr(answer, "finish_reason", None)
        if isinstance(finish_reason, str):
            changes["finish_reason"] = self._one_line(finish_reason, _MAX_NAME_CHARS)
        reply = getattr(answer, "content", None)
        if isinstance(reply, str):
            changes["reply"] = self._text(reply)
        return line.model_copy(update=changes)

    def _sent_prompt(self, prompt: Sequence[object]) -> SentPrompt:
        encoded: list[bytes] = []
        sent: list[SentMessage] = []
        for message in prompt:
            text = _prompt_bytes(message)
            # Definitions of tools have no role.
            role = message.role if isinstance(message, LLMMessage) else "data"
            role = one_line(str(role), max_chars=_MAX_NAME_CHARS)
            encoded.append(text)
            sent.append(SentMessage(role=role, bytes=len(text)))
        data = b"\n".join(encoded)
        return SentPrompt(
            bytes=len(data),
            messages=tuple(sent[:MAX_LISTED]),
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
    ) -> ToolCallLine:
        return ToolCallLine(
            tool=self._one_line(tool, _MAX_NAME_CHARS),
            task=None if task is None else self._one_line(str(task), _MAX_ID_CHARS),
            args=self._text(stable_json(args)),
            failure=None if failure is None else self._one_line(failure, _MAX_NAME_CHARS),
            pointer_id=None if pointer is None else pointer.pointer_id,
            result_bytes=None if pointer is None else pointer.result_bytes,
        )

    def _answer(
        self,
        *,
        text: str | None,
        status: str,
        problem: str,
        prompt_tokens: int,
        shown: Sequence[ContextPointer],
        attempts: Sequence[Attempt],
    ) -> AnswerLine:
        return AnswerLine(
            status=self._one_line(status, _MAX_NAME_CHARS),
            problem=self._one_line(problem, _MAX_PROBLEM_CHARS),
            prompt_tokens=prompt_tokens,
            shown=tuple(output.pointer_id for output in shown[:MAX_LISTED]),
            is_without_model={attempt.model for attempt in attempts} == {NO_MODEL},
            text_chars=len(text or ""),
            text=None if text is None else self._text(text),
        )


def _names_of_items(pool: DataPoolSnapshot) -> dict[tuple[Kind, str], str]:
    """Return the names of a pool's items, by kind and id."""
    # By kind too, since items of two kinds can have the same id.
    names: dict[tuple[Kind, str], str] = {}
    for turn in pool.session_log:
        names["turn", turn.id] = turn.role
    for file in pool.context_files:
        names["file", file.id] = file.path
    for output in pool.tool_outputs:
        names["output", output.pointer_id] = output.tool_name
    return names


def _prompt_bytes(message: object) -> bytes:
    """Return a message as a line of JSON, the form of a prompt in a trace."""
    plain = message.model_dump(exclude_none=True) if isinstance(message, LLMMessage) else message
    try:
        return orjson.dumps(plain, option=orjson.OPT_NON_STR_KEYS, default=repr)
    except orjson.JSONEncodeError:  # a lone surrogate, or a number that JSON has no form for
        return printable(repr(plain)).encode()


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None
