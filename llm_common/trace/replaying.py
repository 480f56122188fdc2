"""`replay`: the choices of a run done again from its trace, and what has changed since."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal

from llm_common.context.bundle import ContextBundle
from llm_common.context.intent import classify_intent
from llm_common.context.pool import (
    ContextFile,
    DataPoolSnapshot,
    MemorySnippet,
    ProjectState,
    TurnEntry,
)
from llm_common.context.request import FOLDER_STRATEGY, ContextSelectionRequest, IntentType
from llm_common.context.scoring import STRATEGIES
from llm_common.context.selector import ContextSelector
from llm_common.core.models import LLMMessage, MessageRole
from llm_common.core.tokens import DefaultCounter, TokenCounter, UpperBoundCounter
from llm_common.pointers.pointer import ContextPointer
from llm_common.pointers.store import ContextPointerStore
from llm_common.selection.relevance import ContextRelevanceSelector, LexicalRelevanceSelector
from llm_common.trace.lines import ModelCallLine, PackedItem, PackingLine, SelectionLine
from llm_common.trace.recording import digest, item_digest, prompt_bytes
from llm_common.trace.trace_file import RecordedRun, read_trace

_COUNTERS: Final[Mapping[str, type[TokenCounter]]] = {
    "DefaultCounter": DefaultCounter,
    "UpperBoundCounter": UpperBoundCounter,
}
_MODELS: Final[Mapping[str, Any]] = {
    "turn": TurnEntry,
    "file": ContextFile,
    "memory": MemorySnippet,
    "project": ProjectState,
}


@dataclass(frozen=True, slots=True)
class Replayed:
    """One choice done again.

    Attributes:
        seq: The line of the trace.
        status: `same`; `changed`; `not_replayed`: the trace or the store lacks what it takes.
        changes: What differs, or is missing, in sentences.
    """

    seq: int
    status: Literal["same", "changed", "not_replayed"]
    changes: tuple[str, ...] = ()


class _NotReplayableError(Exception):
    """The trace or the store lacks something; its text says what."""


async def replay(
    path: str | Path | RecordedRun, store: ContextPointerStore, *, query: str | None = None
) -> tuple[Replayed, ...]:
    """Each choice of outputs and each packing of a run, done again; no model is asked.

    A choice by words is made anew. For one that a model made, the prompt is built anew and
    compared, and the model's reply is taken from the trace. Choices of tools need their registry
    and are not done again.

    Args:
        path: A trace; see `read_trace`.
        store: Where the run's outputs are; nothing is written.
        query: The question, for a trace without texts; one with another digest than the run's is
            not used.

    Raises:
        StoreError: The trace cannot be read.
    """
    run = path if isinstance(path, RecordedRun) else read_trace(path)
    query_id = run.begin.query_id if run.begin else ""
    pointers = {pointer.pointer_id: pointer for pointer in store.list(query_id=query_id)}
    done = []
    for line in run.lines:
        if isinstance(line, SelectionLine | PackingLine):
            try:
                changes = await _done_again(line, run, store, pointers, query)
                done.append(Replayed(line.seq, "changed" if changes else "same", tuple(changes)))
            except _NotReplayableError as exc:
                done.append(Replayed(line.seq, "not_replayed", (str(exc),)))
    return tuple(done)


async def _done_again(
    line: SelectionLine | PackingLine,
    run: RecordedRun,
    store: ContextPointerStore,
    pointers: Mapping[str, ContextPointer],
    query: str | None,
) -> list[str]:
    if isinstance(line, SelectionLine) and line.of == "tools":
        raise _NotReplayableError("choosing tools needs their registry, which is not in the store")
    asked = next(
        (
            text
            for text in (line.query, query)
            if text is not None and digest(text) == line.query_digest
        ),
        None,
    )
    if asked is None:
        raise _NotReplayableError(
            "the trace does not hold the question; pass it, or record with texts=True"
        )
    if line.unlisted:
        raise _NotReplayableError(f"{line.unlisted:,} of its candidates are not in the trace")
    if isinstance(line, SelectionLine):
        return await _selection(line, run, pointers, asked)
    return await _packing(line, store, pointers, asked)


async def _selection(
    line: SelectionLine, run: RecordedRun, pointers: Mapping[str, ContextPointer], query: str
) -> list[str]:
    changes = _missing({one.id: one.digest for one in line.candidates}, pointers)
    given = sorted(line.candidates, key=lambda one: one.place)
    found = [pointers[one.id] for one in given if one.id in pointers]
    limit = int(line.limits.get("max_selected", 6))
    if line.status not in {"ok", "empty"}:
        return changes  # nothing was chosen, or words chose in place of the model
    if line.limits.get("embedder"):
        raise _NotReplayableError("it was made with vectors, which the trace does not hold")
    if any(one.probability is not None for one in line.candidates):
        return changes + _by_probabilities(line, limit)
    if line.used == "lexical":
        chosen = await LexicalRelevanceSelector(limit).select(query=query, pointers=found)
    else:
        replier = _Replier(
            [one.id for one in line.candidates if one.reason in {"chosen", "over the cap"}]
        )
        selector = ContextRelevanceSelector(
            replier, "", limit, include_digest=bool(line.limits.get("include_digest"))
        )
        chosen = await selector.select(query=query, pointers=found)
        changes += _prompt_changes(line, run, replier)
    ids = tuple(pointer.pointer_id for pointer in chosen)
    return (
        changes
        if ids == line.chosen
        else [*changes, f"chosen were {_list(line.chosen)}, now {_list(ids)}"]
    )


class _Replier:
    """A client that gives the model's recorded choice and keeps what it was sent."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = ids
        self.sent: list[str] = []

    async def chat_completion(self, *, messages: list[Any], **_: object) -> object:
        self.sent = [message.content for message in messages]
        return SimpleNamespace(content=json.dumps({"pointer_ids": self._ids}), finish_reason="stop")


def _prompt_changes(line: SelectionLine, run: RecordedRun, replier: _Replier) -> list[str]:
    call = next((each for each in run.of(ModelCallLine) if each.parent == line.step), None)
    if call is None:
        return [] if line.cached else ["the model's call is not in the trace"]
    recorded = [message.digest for message in call.prompt.messages]
    now = [digest(text) for text in _as_recorded(replier.sent)]
    return (
        []
        if recorded == now
        else ["the prompt is another one now: the candidates' summaries or the code changed"]
    )


def _as_recorded(texts: list[str]) -> list[str]:
    roles = (MessageRole.SYSTEM, MessageRole.USER)
    messages = [
        LLMMessage(role=role, content=text) for role, text in zip(roles, texts, strict=False)
    ]
    return [prompt_bytes(message).decode() for message in messages]


def _by_probabilities(line: SelectionLine, limit: int) -> list[str]:
    """Whether the model's probabilities still lead to the choice."""
    above = line.limits.get("min_probability", 0.5)
    fitting = [one for one in line.candidates if (one.probability or 0.0) > above]
    fitting.sort(key=lambda one: (-(one.probability or 0.0), -(one.share or 0.0)))
    ids = {one.id for one in fitting[:limit]}
    return (
        []
        if ids == {*line.chosen}
        else [f"chosen were {_list(line.chosen)}, now {_list(tuple(ids))}"]
    )


async def _packing(
    line: PackingLine,
    store: ContextPointerStore,
    pointers: Mapping[str, ContextPointer],
    query: str,
) -> list[str]:
    if line.strategy == FOLDER_STRATEGY:
        raise _NotReplayableError(
            "it packed a folder, whose files are in no store; pack the folder again"
        )
    if line.counter not in _COUNTERS:
        raise _NotReplayableError(
            f"tokens were counted by {line.counter}, which is not part of the library"
        )
    if line.strategy not in STRATEGIES:
        raise _NotReplayableError(f"the strategy {line.strategy} is not part of the library")
    if any(item.parts.get("vectors") for item in line.items):
        raise _NotReplayableError("items were scored by vectors, which the trace does not hold")
    if line.judge is not None:
        raise _NotReplayableError("a decision model weighed the items")
    outputs = {item.id: item.digest for item in line.items if item.source == "output"}
    changes = _missing(outputs, pointers)
    pool = DataPoolSnapshot(
        session_log=tuple(_items(line, "turn")),
        context_files=tuple(_items(line, "file")),
        memory_hits=tuple(_items(line, "memory")),
        project_state=next(iter(_items(line, "project")), None),
        tool_outputs=tuple(pointers[each] for each in outputs if each in pointers),
    )
    bundle = await ContextSelector(store=store).select(_request(line, query), pool)
    if not line.first:
        changes.append("there was a bundle before it, which is not in the trace: places may differ")
    return changes + _bundle_changes(line, bundle)


def _request(line: PackingLine, query: str) -> ContextSelectionRequest:
    settings = dict(line.settings)
    try:
        intent = classify_intent(query).model_copy(
            update={"classification": IntentType(line.intent)}
        )
        return ContextSelectionRequest(
            intent=intent,
            token_budget=int(settings.pop("requested_tokens")),
            counter=_COUNTERS[line.counter](),
            now=datetime.fromisoformat(line.now),
            **settings,
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise _NotReplayableError("its settings are of another version of the library") from exc


def _items(line: PackingLine, source: str) -> list[Any]:
    found = []
    for item in line.items:
        if item.source == source:
            if item.item is None:
                raise _NotReplayableError(
                    f"the trace does not hold the text of {source} {item.id}; use texts=True"
                )
            found.append(_read_item(item))
    return found


def _read_item(item: PackedItem) -> Any:
    try:
        read = _MODELS[item.source].model_validate(json.loads(item.item or ""))
    except ValueError as exc:
        raise _NotReplayableError(
            f"the text of {item.source} {item.id} is cut in the trace"
        ) from exc
    if item_digest(read) != item.digest:
        raise _NotReplayableError(f"the text of {item.source} {item.id} was redacted in the trace")
    return read


def _bundle_changes(line: PackingLine, bundle: ContextBundle) -> list[str]:
    now = {(account.kind, account.id): account for account in (*bundle.kept, *bundle.dropped)}
    changes = []
    for item in line.items:
        account = now.get((item.source, item.id))
        if account is not None and (account.form, account.tokens) != (item.form, item.tokens):
            was = f"{item.form}, {item.tokens:,} tokens"
            changes.append(
                f"{item.source} {item.id} was {was}; now {account.form}, {account.tokens:,}"
            )
    if not changes and digest(bundle.render()) != line.text_digest:
        changes.append("the items are the same, and their text is not")
    return changes


def _missing(wanted: Mapping[str, str], pointers: Mapping[str, ContextPointer]) -> list[str]:
    gone = [
        f"output {each} is not in the store any more" for each in wanted if each not in pointers
    ]
    known = {each: item_digest(pointers[each]) for each in wanted if each in pointers}
    return gone + [
        f"output {each} has other bytes now" for each, now in known.items() if wanted[each] != now
    ]


def _list(ids: tuple[str, ...]) -> str:
    return ", ".join(ids) or "none"
