"""`pack`: scored items become a bundle under a hard budget.

`PackingSteps` orders everything that could be shown, without a look at the budget. The packer takes
the steps until one does not fit, and of that one the part that fits. So a larger budget shows of
each item what a smaller one shows, or more. Last the text is rendered and counted: while it takes
too many tokens, the last step is made smaller, or undone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import nlargest
from operator import attrgetter

from llm_common.context.bundle import (
    KINDS,
    BundleMetadata,
    ContextBundle,
    ItemAccount,
    frame,
    group_line,
    render_blocks,
)
from llm_common.context.packing.candidate import (
    REFUSED,
    Candidate,
    Duplicates,
    Placement,
    candidates_of,
)
from llm_common.context.packing.forms import Forms, Meter
from llm_common.context.packing.steps import PackingSteps
from llm_common.context.pool import (
    ContextFile,
    DataPoolSnapshot,
    MemorySnippet,
    ProjectState,
    TurnEntry,
)
from llm_common.context.request import BudgetAllocation, ContextSelectionRequest, Scores, shares_of
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import search_stems

_MAX_NEWEST = 20
_MAX_MEMORIES = 5
_SECTION = {kind: number for number, kind in enumerate(KINDS)}

_moment: Callable[[Candidate], datetime] = attrgetter("item.timestamp")


def pack(
    pool: DataPoolSnapshot,
    scores: Scores,
    request: ContextSelectionRequest,
    allocation: BudgetAllocation,
    *,
    texts: Mapping[str, str],
    previous: ContextBundle | None = None,
) -> ContextBundle:
    """The items of the highest value in a bundle whose `render()` is within the budget.

    The system part of the allocation pays for headings and fences; the tokens that these do not
    need go to the items.
    Pure: the same values give the same bundle, and the order of the pool does not matter. As the
    budget grows, with the
    shares of the kinds as they are, no item is shown less of. Items that say the same are shown
    once. An item of the previous bundle keeps its place, and is replaced only by one that scores a
    fifth higher.

    Args:
        pool: All items.
        scores: The score of each; an item without one counts as 0.0.
        request: What to look for, and the counter. Its budget is not read: the allocation's is.
        allocation: The shares of the kinds, and the budget.
        texts: The texts of stored outputs, by pointer id; an output without one can only be named.
            Each is read when there may be room for it. An output whose reading raises `StoreError`
            is left out as `unavailable`.
        previous: The bundle of the turn before, if any.
    """
    packer = _Packer(candidates_of(pool, scores, previous), request, allocation)
    if allocation.total_budget > allocation.system:
        packer.run(texts)
    return packer.bundle()


class _Packer:
    """The state of one packing: the items placed so far, and the steps that led to them."""

    def __init__(
        self,
        candidates: list[Candidate],
        request: ContextSelectionRequest,
        allocation: BudgetAllocation,
    ) -> None:
        self._candidates = candidates
        self._request = request
        self._allocation = allocation
        self._meter = Meter(request.counter)
        stems = search_stems(request.intent.text)
        self._forms = Forms(self._meter, stems, summary_first=request.strategy == "spec")
        self._placed: dict[Candidate, Placement] = {}
        self._steps: list[tuple[Candidate, Placement | None]] = []  # with what they replaced
        self._total = 0

    def run(self, texts: Mapping[str, str]) -> None:
        """Take the steps that fit the budget."""
        kinds = {candidate.kind for candidate in self._candidates}
        left = self._allocation.total_budget - self._meter.count(frame(kinds))
        groups = {""}
        steps = PackingSteps(
            self._eligible(),
            self._newest(),
            forms=self._forms,
            texts=texts,
            shares=shares_of(self._request.intent.classification, self._allocation),
        )
        for step in steps:
            group = step.candidate.group
            if group not in groups:
                groups.add(group)
                left -= self._meter.count(group_line(group))
            current = self._placed.get(step.candidate)
            current_tokens = current.tokens if current else 0
            if step.tokens - current_tokens > left:
                part = self._forms.largest_within(step, current, max_tokens=left + current_tokens)
                if part is not None:
                    self._place(replace(part, reason=current.reason if current else "spare"))
                break
            self._place(step)
            left -= step.tokens - current_tokens
        self._trim_to_budget()

    def _eligible(self) -> list[Candidate]:
        """Return the candidates that may go in, of the memories the best five."""
        eligible: list[Candidate] = []
        memories = Duplicates()
        memory_count = 0
        for candidate in self._candidates:
            if candidate.score.rule in REFUSED:
                continue
            if candidate.kind == "memory":
                if memories.repeats(candidate):
                    continue
                memories.add(candidate)
                memory_count += 1
                if memory_count > _MAX_MEMORIES:
                    candidate.reason = "limit_reached"
                    continue
            eligible.append(candidate)
        return eligible

    def _newest(self) -> list[Candidate]:
        """Return the last turns, newest first, those of one moment by id."""
        # They go before a strategy's cut-off, but not before a minimum that the caller asked for.
        barred = REFUSED if self._request.min_relevance is not None else {"excluded"}
        turns = [candidate for candidate in self._candidates if candidate.kind == "turn"]
        allowed = [turn for turn in turns if turn.score.rule not in barred]
        return nlargest(_MAX_NEWEST, allowed, key=lambda turn: (_moment(turn), turn.id))

    def _place(self, placement: Placement) -> None:
        candidate = placement.candidate
        self._steps.append((candidate, self._placed.get(candidate)))
        self._placed[candidate] = placement

    def _trim_to_budget(self) -> None:
        """Make the last step smaller, or undo it, until the counted text fits the budget."""
        for candidate in list(self._placed):
            # One that was named before its reading failed.
            if candidate.kind == "output" and candidate.score.rule in REFUSED:
                del self._placed[candidate]
        while self._placed:
            blocks = [placement.block for placement in sorted(self._placed.values(), key=_position)]
            self._total = self._meter.count(render_blocks(blocks))
            if self._total <= self._allocation.total_budget:
                return
            candidate, before = self._steps[-1]
            placement = self._placed.pop(candidate, None)
            smaller = None
            if placement is not None:
                max_tokens = placement.tokens - 1
                smaller = self._forms.largest_within(placement, before, max_tokens=max_tokens)
            if placement is not None and smaller is not None:
                self._placed[candidate] = replace(smaller, reason=placement.reason)
                continue
            self._steps.pop()
            if placement is not None and before is not None:
                self._placed[candidate] = before
        self._total = 0

    def bundle(self) -> ContextBundle:
        """Return the bundle of the items placed so far."""
        for candidate in self._candidates:
            candidate.same_as = self._shown_duplicate(candidate)
        dropped = [item.left_out() for item in self._candidates if item not in self._placed]
        placed = sorted(self._placed.values(), key=_position)
        return _assemble(
            placed, tuple(dropped), self._request, self._allocation, total_tokens=self._total
        )

    def _shown_duplicate(self, candidate: Candidate) -> Candidate | None:
        """Return the first one with the same text, if its step was not undone."""
        first = candidate.same_as
        while first is not None and first.same_as is not None:
            first = first.same_as
        placed = self._placed.get(first) if first is not None else None
        return first if placed is not None and placed.chars else None


def _assemble(
    placed: Sequence[Placement],
    dropped: tuple[ItemAccount, ...],
    request: ContextSelectionRequest,
    allocation: BudgetAllocation,
    *,
    total_tokens: int,
) -> ContextBundle:
    """Return the bundle of the placed items, in that order."""
    turns: list[TurnEntry] = []
    files: list[ContextFile] = []
    memory: list[MemorySnippet] = []
    outputs: list[ContextPointer] = []
    project = None
    for placement in placed:
        item = _as_shown(placement)
        if isinstance(item, TurnEntry):
            turns.append(item)
        elif isinstance(item, ContextFile):
            files.append(item)
        elif isinstance(item, MemorySnippet):
            memory.append(item)
        elif isinstance(item, ContextPointer):
            outputs.append(item)
        else:
            project = item
    budget, intent = allocation.total_budget, request.intent.classification
    return ContextBundle(
        turns=tuple(turns),
        files=tuple(files),
        memory=tuple(memory),
        project=project,
        outputs=tuple(outputs),
        blocks=tuple(placement.block for placement in placed),
        kept=tuple(placement.account for placement in placed),
        dropped=dropped,
        metadata=BundleMetadata(
            total_tokens=total_tokens,
            budget=budget,
            budget_utilization=total_tokens / max(budget, 1),
            selection_strategy=f"intent:{intent} budget:{budget} strategy:{request.strategy}",
            files_selected=len(files),
            turns_selected=len(turns),
            memory_selected=len(memory),
            outputs_selected=len(outputs),
            intent=intent,
            strategy=request.strategy,
        ),
    )


def _as_shown(
    placement: Placement,
) -> TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer:
    """Return the item, with the text that is shown where that is not all of it."""
    item = placement.candidate.item
    if placement.form == "whole" or isinstance(item, ProjectState | ContextPointer):
        return item
    text = "text" if isinstance(item, MemorySnippet) else "content"
    return item.model_copy(update={text: placement.shown, "tokens": placement.tokens})


def _position(placement: Placement) -> tuple[int, bool, float, int, float, str]:
    """Return where an item stands in the bundle, as a key to sort by.

    By section. Then turns by time, and other items as the previous bundle had them, before the new
    ones by tier and score.
    """
    candidate = placement.candidate
    section = _SECTION[candidate.kind]
    if isinstance(candidate.item, TurnEntry):
        return section, False, candidate.item.timestamp.timestamp(), 0, 0.0, candidate.id
    if candidate.previous_place is not None:
        return section, False, candidate.previous_place, 0, 0.0, candidate.id
    return section, True, 0.0, candidate.tier, -candidate.value, candidate.id
