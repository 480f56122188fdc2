"""Select the context of a prompt within a token budget."""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter
from typing import Literal

from llm_common._telemetry import operation, record, retrieval_attributes
from llm_common._threads import in_thread
from llm_common.context.bundle import ContextBundle
from llm_common.context.candidate import REFUSED
from llm_common.context.packer import pack
from llm_common.context.request import (
    BudgetAllocation,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Scores,
    UserIntent,
    allocate_budget,
    require_intent,
)
from llm_common.context.scoring import STRATEGIES, Strategy, score_pool
from llm_common.errors import StoreError, ToolFailedError
from llm_common.pointers.format import LoadsResults
from llm_common.pointers.pointer import ContextPointer
from llm_common.text.display import to_json
from llm_common.tools.tool import third_party_code

_EventName = Literal[
    "context.selection.start",
    "context.file.scored",
    "context.budget.exceeded",
    "context.selection.complete",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContextEvent:
    """A step of a selection (specification, "Observable Events").

    A selection emits these events, in this order:

    - `context.selection.start` with `intent` and the effective `budget`
    - `context.file.scored` for each file, by id, with `file` and `score`
    - `context.budget.exceeded`, if the budget is too small to select anything, with the `requested`
      tokens of the system part and the `available` tokens
    - `context.selection.complete` with `duration_ms`, `files_selected`, `turns_selected`,
      `tokens_used` and `budget_utilization`

    Attributes:
        name: The event.
        data: The data of the event, by name.
    """

    name: _EventName
    data: Mapping[str, str | int | float]


Listener = Callable[[ContextEvent], None]
"""Called during the selection, which waits for it. Its result and its errors are ignored."""


# Bounds the time of a selection. All other outputs are only named.
_MAX_LOADED = 12
_MAX_LOADED_BYTES = 2_000_000  # of an output. A larger one is named, so that the model can read it.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ContextSelector:
    """Packs turns, files, memories, project state and stored outputs under one hard budget.

    Selections may run concurrently.

    Args:
        store: The store or session that contains the outputs. Without it outputs can be named, but
            not shown.
        listeners: Called with each `ContextEvent`, on the caller's thread.
        strategies: The strategies that a request may name. None uses `measured`, without vectors,
            and `spec`. `MeasuredStrategy` describes how to use vectors.

    Raises:
        TypeError: If `store` cannot load results.
    """

    def __init__(
        self,
        *,
        store: LoadsResults | None = None,
        listeners: Iterable[Listener] = (),
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        # Checked here, since a packing would find a wrong store only when it loads an output.
        if store is not None and not callable(getattr(store, "load_result", None)):
            raise TypeError(
                f"store is a {type(store).__name__}; pass the store or the session that holds "
                f"the outputs"
            )
        self._store = store
        self._listeners = tuple(listeners)
        self._strategies = strategies or STRATEGIES

    async def select(
        self,
        request: ContextSelectionRequest,
        pool: DataPoolSnapshot,
    ) -> ContextBundle:
        """Select and pack the context for a request.

        Scoring, packing and the store run in a thread. Outputs are loaded only if they may fit, and
        at most the best twelve of up to 2 MB each.

        Args:
            request: The task and the budget. If its `now` is None, the current time is used.
            pool: The candidates, which are not changed.

        Returns:
            The bundle, never over the budget, and empty if the budget is too small. An output that
            the store cannot load is dropped as `unavailable`.

        Raises:
            ValueError: If the request names an unknown strategy.
            TypeError: If `request` is not a `ContextSelectionRequest`, if `pool` is not a
                `DataPoolSnapshot`, or if a counter returns no whole number.
        """
        # A caller without a type checker may pass anything.
        if not isinstance(request, ContextSelectionRequest):
            raise TypeError(
                f"request is a {type(request).__name__}; "
                "pass ContextSelectionRequest(intent=classify_intent(text), token_budget=…)"
            )
        if not isinstance(pool, DataPoolSnapshot):
            raise TypeError(
                f"pool is a {type(pool).__name__}; pass DataPoolSnapshot(session_log=…, "
                f"context_files=…)"
            )
        started = perf_counter()
        allocation = allocate_budget(request)
        intent = str(request.intent.classification)
        self._emit("context.selection.start", intent=intent, budget=allocation.total_budget)
        now = request.now or datetime.now(UTC)  # read once, so that all ages agree
        with operation("retrieval", "context", {"gen_ai.data_source.id": "context"}) as current:
            scores, bundle = await in_thread(self._select, request, pool, allocation, now=now)
            metadata = bundle.metadata
            current.set_attributes(
                {
                    "llm_common.context.tokens": metadata.total_tokens,
                    "llm_common.context.budget_tokens": metadata.budget,
                    **retrieval_attributes(
                        {f"{item.kind}:{item.id}": item.score for item in bundle.kept}
                    ),
                }
            )
            record(
                "packing",
                request=request,
                pool=pool,
                bundle=bundle,
                allocation=allocation,
            )
        self._emit_results(pool, scores, allocation, bundle, (perf_counter() - started) * 1_000)
        return bundle

    def _select(
        self,
        request: ContextSelectionRequest,
        pool: DataPoolSnapshot,
        allocation: BudgetAllocation,
        *,
        now: datetime,
    ) -> tuple[Scores, ContextBundle]:
        scores = score_pool(pool, request, now=now, strategies=self._strategies)
        texts = _StoredTexts(self._store, _best_outputs(pool, scores))
        return scores, pack(pool, scores, request, allocation, texts=texts)

    def _emit_results(
        self,
        pool: DataPoolSnapshot,
        scores: Scores,
        allocation: BudgetAllocation,
        bundle: ContextBundle,
        duration_ms: float,
    ) -> None:
        if not self._listeners:
            return
        # After the packing, since scoring runs in a thread, and listeners are called on this one.
        for file_id in sorted(file.id for file in pool.context_files):
            self._emit("context.file.scored", file=file_id, score=scores["file", file_id].value)
        if allocation.total_budget <= allocation.system:
            self._emit(
                "context.budget.exceeded",
                requested=allocation.system,
                available=allocation.total_budget,
            )
        metadata = bundle.metadata
        self._emit(
            "context.selection.complete",
            duration_ms=duration_ms,
            files_selected=metadata.files_selected,
            turns_selected=metadata.turns_selected,
            tokens_used=metadata.total_tokens,
            budget_utilization=metadata.budget_utilization,
        )

    def _emit(self, name: _EventName, **data: str | float) -> None:
        """Call every listener, in order. Log the error of a listener, and call the next one."""
        for listener in self._listeners:
            try:
                with third_party_code("a context listener"):
                    result: object = listener(ContextEvent(name, data))
                    if inspect.iscoroutine(result):
                        result.close()  # or Python would warn that it was never awaited
                        _log.warning(
                            "a context listener is async and was not run; pass a plain function"
                        )
            except ToolFailedError as exc:
                _log.warning(
                    "a context listener failed on %s: %s", name, type(exc.__cause__).__name__
                )


class _StoredTexts(dict[str, str]):
    """The texts of some outputs by pointer id, loaded on access. Empty without a store."""

    def __init__(self, store: LoadsResults | None, outputs: Iterable[ContextPointer]) -> None:
        super().__init__()
        self._store = store
        self._outputs = {output.pointer_id: output for output in outputs}

    def __missing__(self, pointer_id: str) -> str:
        if self._store is None:
            raise KeyError(pointer_id)
        try:
            value = self._store.load_result(pointer=self._outputs[pointer_id])
        except StoreError as exc:
            _log.warning("a stored output could not be loaded: %s", type(exc).__name__)
            raise
        return value if isinstance(value, str) else to_json(value)


def select_and_pack_context(
    pool: DataPoolSnapshot,
    allocation: BudgetAllocation,
    intent: UserIntent,
    *,
    request: ContextSelectionRequest | None = None,
    texts: Mapping[str, str] | None = None,
    strategies: Mapping[str, Strategy] = STRATEGIES,
) -> ContextBundle:
    """Select and pack the context for an intent within an allocation.

    Pure: uses no clock and no store, and emits no events.

    Args:
        pool: The candidates.
        allocation: The tokens of each part. See `allocate_budget`.
        intent: The classified request. See `classify_intent`.
        request: Strategy, hints, patterns, counter and time. None uses the defaults. Its intent and
            its budget are ignored. If its `now` is None, ages are measured from the newest item of
            the pool.
        texts: Texts of stored outputs by pointer id. Other outputs can only be named.
        strategies: The strategies that the request may name.

    Returns:
        The bundle, never over the budget of the allocation.

    Raises:
        ValueError: If the request names an unknown strategy.
        TypeError: If `intent` is a str, or if a counter returns no whole number.
    """
    require_intent(intent)
    # An allocation may have no tokens, but a request refuses a budget of 0.
    request = request or ContextSelectionRequest(
        intent=intent, token_budget=max(allocation.total_budget, 1)
    )
    request = request.model_copy(update={"intent": intent})
    now = request.now or _newest_moment(pool)
    scores = score_pool(pool, request, now=now, strategies=strategies)
    return pack(pool, scores, request, allocation, texts=texts or {})


def _best_outputs(pool: DataPoolSnapshot, scores: Scores) -> list[ContextPointer]:
    """Return the best outputs that may be packed and are small enough to load."""
    ranked: list[tuple[float, str, ContextPointer]] = []
    for output in pool.tool_outputs:
        score = scores["output", output.pointer_id]
        # A pointer of an older version has no size.
        if score.rule not in REFUSED and (output.result_bytes or 0) <= _MAX_LOADED_BYTES:
            ranked.append((-score.value, output.pointer_id, output))
    return [output for *_, output in sorted(ranked)[:_MAX_LOADED]]


def _newest_moment(pool: DataPoolSnapshot) -> datetime:
    moments = [_EPOCH]
    moments += [turn.timestamp for turn in pool.session_log]
    moments += [memory.timestamp for memory in pool.memory_hits]
    for file in pool.context_files:
        if file.metadata.last_modified:
            moments.append(file.metadata.last_modified)
    return max(moments)
