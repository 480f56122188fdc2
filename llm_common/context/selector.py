"""`ContextSelector`: chooses what a prompt holds, within a token budget."""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Literal

from llm_common._telemetry import Attribute, facts_of_found, measure, operation, record
from llm_common._threads import in_thread
from llm_common.context.bundle import ContextBundle, JudgeAccount
from llm_common.context.judging import judge_items
from llm_common.context.packing.candidate import REFUSED, Meter
from llm_common.context.packing.packer import pack
from llm_common.context.request import (
    BudgetAllocation,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Scores,
    UserIntent,
    allocate_budget,
    require_intent,
)
from llm_common.context.scoring import STRATEGIES, MeasuredStrategy, Strategy, score_pool
from llm_common.core.tokens import DefaultCounter, TokenCounter
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
    """One step of a selection (specification, "Observable Events").

    A selection emits `context.selection.start`, then `context.file.scored` once a file in the order
    of their ids, then `context.budget.exceeded` if the budget leaves nothing to select with, then
    `context.selection.complete`.

    Attributes:
        name: Which step.
        data: Its figures: `intent` and `budget` in effect; `file` and `score`; `requested` tokens
            of the system part and `available` ones; `duration_ms`, `files_selected`,
            `turns_selected`, `tokens_used` and `budget_utilization`.
    """

    name: _EventName
    data: Mapping[str, str | int | float]


Listener = Callable[[ContextEvent], None]
"""Called within the selection, which waits; its result and errors change nothing."""


_MAX_LOADED = 12
_MAX_LOADED_BYTES = 2_000_000  # of one output; a larger one is named, to be read in parts by its id
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ContextSelector:
    """Packs turns, files, memories, project state and stored outputs under one hard budget.

    Keeps nothing between selections but token counts and folded texts, which never change a result:
    selections may run at the same time.

    Args:
        store: Where the stored outputs are; without one they can be named but not shown.
        listeners: Called at every selection, in the order of `ContextEvent`, on the caller's
            thread.
        strategies: The strategies that a request may name. None takes `measured`, without vectors
            and with a cache, and `spec`; `MeasuredStrategy` shows how to use vectors.

    Raises:
        TypeError: `store` loads no results.
    """

    def __init__(
        self,
        *,
        store: LoadsResults | None = None,
        listeners: Iterable[Listener] = (),
        strategies: Mapping[str, Strategy] | None = None,
    ) -> None:
        if store is not None and not callable(getattr(store, "load_result", None)):
            raise TypeError(
                f"store is a {type(store).__name__}; pass the store or the session that holds "
                f"the outputs"
            )
        self._store = store
        self._listeners = tuple(listeners)
        self._strategies = strategies or {**STRATEGIES, "measured": MeasuredStrategy()}
        self._counts: tuple[object, Meter] = (DefaultCounter, Meter(DefaultCounter()))

    async def select(
        self,
        request: ContextSelectionRequest,
        pool: DataPoolSnapshot,
        *,
        previous: ContextBundle | None = None,
    ) -> ContextBundle:
        """The bundle for the request, never over its budget; empty if that is too small.

        Scoring, packing and the store run in a thread. The strategy's `judge`, if it has one, is
        asked once in between; without its answer the items are ranked by words. An output is loaded
        when there may be room for it: only the best twelve, of at most 2 MB each.

        Args:
            request: What to select for. Its `now`, where None, is the present moment.
            pool: The candidates; never changed.
            previous: The bundle of the turn before: what it held stays unless something is clearly
                better.

        Returns:
            The bundle. An output that the store cannot load is dropped as `unavailable`.

        Raises:
            ValueError: The request names no strategy that there is.
            TypeError: The request is no `ContextSelectionRequest` or the pool no
                `DataPoolSnapshot`, or a counter returned no whole number.
        """
        _check_given(request, pool)
        started = perf_counter()
        allocation = allocate_budget(request)
        intent = str(request.intent.classification)
        self._emit("context.selection.start", intent=intent, budget=allocation.total_budget)
        now = request.now or datetime.now(UTC)
        asked = request.model_copy(update={"counter": self._metered(request.counter)})
        with operation("retrieval", "context", {"gen_ai.data_source.id": "context"}) as current:
            scores = await in_thread(score_pool, pool, asked, now=now, strategies=self._strategies)
            strategy = self._strategies[request.strategy]
            account: JudgeAccount | None = None
            if isinstance(strategy, MeasuredStrategy) and strategy.judge is not None:
                timeout_s = strategy.judge_timeout_s
                scores, account = await judge_items(
                    strategy.judge, pool, asked, scores, timeout_s=timeout_s
                )
            texts, bundle = await in_thread(self._pack, asked, pool, allocation, scores, previous)
            if account is not None:
                bundle = replace(bundle, metadata=replace(bundle.metadata, judge=account))
                if account.note:
                    status, model = account.status, account.model or "not known"
                    _log.warning(
                        "no items were weighed: status %s, model %s: %s",
                        status,
                        model,
                        account.note,
                    )
            figures = bundle.metadata
            current.set_attributes(
                {
                    "llm_common.context.tokens": figures.total_tokens,
                    "llm_common.context.budget_tokens": figures.budget,
                    **texts.facts(),
                    **facts_of_found(
                        {f"{item.kind}:{item.id}": item.score for item in bundle.kept}
                    ),
                }
            )
            measure("llm_common.context.budget_use", figures.budget_utilization)
            record(
                "packing",
                request=request,
                pool=pool,
                bundle=bundle,
                allocation=allocation,
            )
        self._emit_figures(pool, scores, allocation, bundle, (perf_counter() - started) * 1_000)
        return bundle

    def _pack(
        self,
        request: ContextSelectionRequest,
        pool: DataPoolSnapshot,
        allocation: BudgetAllocation,
        scores: Scores,
        previous: ContextBundle | None,
    ) -> tuple["_StoredTexts", ContextBundle]:
        texts = _StoredTexts(self._store, _best_outputs(pool, scores)[:_MAX_LOADED])
        return texts, pack(pool, scores, request, allocation, texts=texts, previous=previous)

    def _metered(self, counter: TokenCounter) -> Meter:
        """Return the counter with the counts of earlier selections by an equal one."""
        # all of these count alike
        kind = DefaultCounter if type(counter) is DefaultCounter else counter
        counted_with, meter = self._counts
        if counted_with is not kind:
            meter = Meter(counter)
            self._counts = kind, meter
        return meter

    def _emit_figures(
        self,
        pool: DataPoolSnapshot,
        scores: Scores,
        allocation: BudgetAllocation,
        bundle: ContextBundle,
        duration_ms: float,
    ) -> None:
        if not self._listeners:
            return
        for file_id in sorted(file.id for file in pool.context_files):
            self._emit("context.file.scored", file=file_id, score=scores["file", file_id].value)
        if allocation.total_budget <= allocation.system:
            self._emit(
                "context.budget.exceeded",
                requested=allocation.system,
                available=allocation.total_budget,
            )
        figures = bundle.metadata
        self._emit(
            "context.selection.complete",
            duration_ms=duration_ms,
            files_selected=figures.files_selected,
            turns_selected=figures.turns_selected,
            tokens_used=figures.total_tokens,
            budget_utilization=figures.budget_utilization,
        )

    def _emit(self, name: _EventName, **data: str | float) -> None:
        """Calls every listener, in order.

        An error of one is logged, and the others are still called. A listener is not awaited: an
        async one never runs.
        """
        for listener in self._listeners:
            try:
                with third_party_code("a context listener"):
                    answer: object = listener(ContextEvent(name, data))
                    if inspect.iscoroutine(answer):
                        answer.close()
                        _log.warning(
                            "a context listener is async and was not run; give a plain function"
                        )
            except ToolFailedError as exc:
                _log.warning(
                    "a context listener failed on %s: %s", name, type(exc.__cause__).__name__
                )


def _check_given(request: object, pool: object) -> None:
    # A caller without a type checker passes anything.
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


class _StoredTexts(Mapping[str, str]):
    """The texts of some outputs by pointer id, each loaded when it is asked for.

    None without a store.
    """

    def __init__(self, store: LoadsResults | None, outputs: Iterable[ContextPointer]) -> None:
        self._store = store
        self._outputs = {output.pointer_id: output for output in outputs} if store else {}
        self._loaded = 0
        self._load_s = 0.0

    def __getitem__(self, pointer_id: str) -> str:
        if self._store is None:
            raise KeyError(pointer_id)
        started = perf_counter()
        try:
            value = self._store.load_result(pointer=self._outputs[pointer_id])
        except StoreError as exc:
            _log.warning("a stored output could not be loaded: %s", type(exc).__name__)
            raise
        finally:
            self._loaded += 1
            self._load_s += perf_counter() - started
        return value if isinstance(value, str) else to_json(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._outputs)

    def __len__(self) -> int:
        return len(self._outputs)

    def facts(self) -> dict[str, Attribute]:
        """Return how many were loaded, and in how many seconds.

        A span for each would cost more than the load of a small output.
        """
        return {
            "llm_common.context.loaded": self._loaded,
            "llm_common.context.load_s": self._load_s,
        }


def select_and_pack_context(
    pool: DataPoolSnapshot,
    allocation: BudgetAllocation,
    intent: UserIntent,
    *,
    request: ContextSelectionRequest | None = None,
    texts: Mapping[str, str] | None = None,
    previous: ContextBundle | None = None,
    strategies: Mapping[str, Strategy] = STRATEGIES,
) -> ContextBundle:
    """The bundle for an intent within an allocation; pure: no clock, no store, no events.

    Args:
        pool: The candidates.
        allocation: How the tokens are shared; see `allocate_budget`.
        intent: What to select for; see `classify_intent`.
        request: Strategy, hints, patterns, counter and moment; None takes the defaults. Its intent
            and budget are not read. Without a moment, ages are measured from the newest item of the
            pool.
        texts: Texts of stored outputs by pointer id; other outputs can only be named.
        previous: The bundle of the turn before.
        strategies: The strategies that the request may name.
    """
    require_intent(intent)
    request = request or ContextSelectionRequest(
        intent=intent, token_budget=max(allocation.total_budget, 1)
    )
    request = request.model_copy(update={"intent": intent})
    scores = score_pool(
        pool, request, now=request.now or _newest_moment(pool), strategies=strategies
    )
    return pack(pool, scores, request, allocation, texts=texts or {}, previous=previous)


def _best_outputs(pool: DataPoolSnapshot, scores: Scores) -> list[ContextPointer]:
    """The outputs that may go in and are small enough to load, best first."""
    able = [
        output
        for output in pool.tool_outputs
        if scores["output", output.pointer_id].rule not in REFUSED
        and (output.result_bytes or 0) <= _MAX_LOADED_BYTES
    ]
    return sorted(
        able, key=lambda output: (-scores["output", output.pointer_id].value, output.pointer_id)
    )


def _newest_moment(pool: DataPoolSnapshot) -> datetime:
    moments = [turn.timestamp for turn in pool.session_log]
    moments += [memory.timestamp for memory in pool.memory_hits]
    moments += [
        file.metadata.last_modified for file in pool.context_files if file.metadata.last_modified
    ]
    return max(moments, default=_EPOCH)
