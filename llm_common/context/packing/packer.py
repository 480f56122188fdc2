"""`pack`: scored items become a bundle under a hard budget.

`Steps` orders everything that could be shown, without a look at the budget. The packer takes its
steps until one does not fit; of that one it takes the part that fits. So a larger budget shows of
each item what a smaller one shows, or more. Last the text is rendered and counted: while it takes
too many tokens, the last step is made smaller, or undone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from llm_common.context.packing.candidate import REFUSED, Candidate, Placed, Said, candidates_of
from llm_common.context.packing.forms import Forms, Meter
from llm_common.context.packing.steps import Steps
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
    """The state of one packing: the items placed so far, and how each step changed them."""

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
        self._placed: dict[Candidate, Placed] = {}
        self._done: list[tuple[Candidate, Placed | None]] = []
        self._total = 0

    def run(self, texts: Mapping[str, str]) -> None:
        """Takes the steps that fit the budget."""
        able = [candidate for candidate in self._candidates if candidate.score.rule not in REFUSED]
        for candidate in _distinct(each for each in able if each.kind == "memory")[_MAX_MEMORIES:]:
            candidate.reason = "limit_reached"
        steps = Steps(
            [
                candidate
                for candidate in able
                if candidate.reason == "no_room" and not candidate.same_as
            ],
            self._newest(),
            forms=self._forms,
            texts=texts,
            shares=shares_of(self._request.intent.classification, self._allocation),
        )
        left = self._allocation.total_budget
        left -= self._meter.count(frame({candidate.kind for candidate in self._candidates}))
        groups = {""}
        for step in steps:
            candidate, before = step.candidate, self._placed.get(step.candidate)
            left -= (
                0 if candidate.group in groups else self._meter.count(group_line(candidate.group))
            )
            groups.add(candidate.group)
            had = before.tokens if before else 0
            if step.tokens - had > left:
                part = self._forms.lesser(step, before, room=left + had)
                if part is not None:
                    self._put(replace(part, reason="spare" if before is None else before.reason))
                break
            self._put(step)
            left -= step.tokens - had
        self._trim_to_budget()

    def _put(self, placed: Placed) -> None:
        self._done.append((placed.candidate, self._placed.get(placed.candidate)))
        self._placed[placed.candidate] = placed

    def _trim_to_budget(self) -> None:
        """Counts the text, and makes the last step smaller or undoes it until the text is within the budget."""
        for candidate in [
            each for each in self._placed if each.score.rule in REFUSED and each.kind == "output"
        ]:
            del self._placed[candidate]
        while self._placed:
            text = render_blocks(
                [placed.block for placed in _in_bundle_order(self._placed.values())]
            )
            self._total = self._meter.count(text)
            if self._total <= self._allocation.total_budget:
                return
            candidate, before = self._done[-1]
            placed = self._placed.pop(candidate, None)
            less = placed and self._forms.lesser(placed, before, room=placed.tokens - 1)
            if placed and less:
                self._placed[candidate] = replace(less, reason=placed.reason)
                continue
            self._done.pop()
            if placed and before:
                self._placed[candidate] = before
        self._total = 0

    def bundle(self) -> ContextBundle:
        """The bundle of the items placed so far."""
        for candidate in self._candidates:
            candidate.same_as = self._shown_first(candidate)
        dropped = tuple(each.left_out() for each in self._candidates if each not in self._placed)
        placed = _in_bundle_order(self._placed.values())
        return _assemble(placed, dropped, self._request, self._allocation, total_tokens=self._total)

    def _shown_first(self, candidate: Candidate) -> Candidate | None:
        """The one that says the same and is shown: its step may have been undone, or it repeats another itself."""
        first = candidate.same_as
        while first is not None and first.same_as is not None:
            first = first.same_as
        placed = self._placed.get(first) if first is not None else None
        return first if placed is not None and placed.chars else None

    def _newest(self) -> list[Candidate]:
        """The last turns, newest first, those of one moment by id."""
        # They go before a strategy's cut-off, but not before a minimum that the caller asked for.
        barred = REFUSED if self._request.min_relevance is not None else {"excluded"}
        turns = [
            each
            for each in self._candidates
            if each.kind == "turn" and each.score.rule not in barred
        ]
        first = min(nlargest(_MAX_NEWEST, map(_moment, turns)), default=None)
        last = [turn for turn in turns if first is not None and _moment(turn) >= first]
        return sorted(last, key=lambda turn: (_moment(turn), turn.id), reverse=True)[:_MAX_NEWEST]


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Those that repeat none before them."""
    said, found = Said(), []
    for candidate in candidates:
        if not said.repeats(candidate):
            said.add(candidate)
            found.append(candidate)
    return found


def _in_bundle_order(placed: Iterable[Placed]) -> list[Placed]:
    """By section.

    Turns by time, other items as the previous bundle had them, then the new ones by tier and score.
    """
    return sorted(placed, key=_place)


def _assemble(
    placed: Sequence[Placed],
    dropped: tuple[ItemAccount, ...],
    request: ContextSelectionRequest,
    allocation: BudgetAllocation,
    *,
    total_tokens: int,
) -> ContextBundle:
    """The bundle of the placed items, in that order."""
    shown = [_as_shown(each) for each in placed]
    turns = tuple(item for item in shown if isinstance(item, TurnEntry))
    files = tuple(item for item in shown if isinstance(item, ContextFile))
    memory = tuple(item for item in shown if isinstance(item, MemorySnippet))
    outputs = tuple(item for item in shown if isinstance(item, ContextPointer))
    budget = allocation.total_budget
    return ContextBundle(
        turns=turns,
        files=files,
        memory=memory,
        project=next((item for item in shown if isinstance(item, ProjectState)), None),
        outputs=outputs,
        blocks=tuple(each.block for each in placed),
        kept=tuple(each.account for each in placed),
        dropped=dropped,
        metadata=BundleMetadata(
            total_tokens=total_tokens,
            budget=budget,
            budget_utilization=total_tokens / max(budget, 1),
            selection_strategy=f"intent:{request.intent.classification} budget:{budget} strategy:{request.strategy}",
            files_selected=len(files),
            turns_selected=len(turns),
            memory_selected=len(memory),
            outputs_selected=len(outputs),
            intent=request.intent.classification,
            strategy=request.strategy,
        ),
    )


def _as_shown(
    placed: Placed,
) -> TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer:
    """The item; where it is not shown whole, with the text that is shown instead."""
    item = placed.candidate.item
    if placed.form == "whole" or isinstance(item, ProjectState | ContextPointer):
        return item
    text = "text" if isinstance(item, MemorySnippet) else "content"
    return item.model_copy(update={text: placed.shown, "tokens": placed.tokens})


def _place(placed: Placed) -> tuple[int, bool, float, int, float, str]:
    candidate = placed.candidate
    section = _SECTION[candidate.kind]
    if isinstance(candidate.item, TurnEntry):
        return section, False, candidate.item.timestamp.timestamp(), 0, 0.0, candidate.id
    if candidate.before is not None:
        return section, False, candidate.before, 0, 0.0, candidate.id
    return section, True, 0.0, candidate.tier, -candidate.value, candidate.id
