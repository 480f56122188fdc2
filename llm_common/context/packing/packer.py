"""`pack`: scored items become a bundle under a hard budget.

`PackingSteps` orders everything that could be shown, without a look at the budget. The packer takes
the steps until one does not fit, and of that one the part that fits. So a larger budget shows of
each item what a smaller one shows, or more. Last the text is rendered and counted: while it takes
too many tokens, the last step is made smaller, or undone.

A step shows an item, or more of it. Within a kind the step of the highest value per character is
next. The first step of an item adds its value, and counts as at most 800 characters: among longer
items the score alone decides. Each later step adds `value * log(shown then / shown before)`: so the
long items that are shown get room in proportion to their values (Kelly 1997, proportional
fairness).

The kinds, and what is reserved beside them, are queues. The step is next that would end first if
each queue filled at a rate of its own (weighted fair queueing, Demers, Keshav and Shenker 1989).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heapify, heappop, heappush, nlargest
from math import log
from operator import attrgetter, itemgetter

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
    FIRST_CHARS,
    REFUSED,
    Candidate,
    Duplicates,
    Forms,
    Meter,
    Placement,
    candidates_of,
    next_chars,
)
from llm_common.context.request import (
    BudgetAllocation,
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    MemorySnippet,
    ProjectState,
    Scores,
    TurnEntry,
    shares_of,
)
from llm_common.errors import StoreError
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking.lexical import search_stems

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
    need go to the items. Pure: the same values give the same bundle, and the order of the pool does
    not matter. As the budget grows, with the shares of the kinds as they are, no item is shown less
    of. Items that say the same are shown once. An item of the previous bundle keeps its place, and
    is replaced only by one that scores a fifth higher.

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


# This and the rate of the newest turns were chosen on qmsum. bfcl_memory is the same with others.
_HEADING_CHARS = 10
# Of a first step. docs/benchmarks.md has what others from 100 to 1,000 give.
_MAX_COUNTED_CHARS = FIRST_CHARS * 2 // 3
_MAX_LINES = 20
_MIN_SHARE = 1e-9
# Rates of the queues beside the kinds, which share a rate of 1.
_RATES = {"newest": 0.05, "mentioned": 5.0, "pinned": 1.0, "named": 0.1}
# Kinds that share a rate. What a stage leaves over goes to the next one.
_STAGES: tuple[tuple[Kind, ...], ...] = (("turn",), ("file", "output"), ("memory",), ("project",))


@dataclass(slots=True)
class _Queue:
    """Candidates that wait for their next step, the best first.

    Attributes:
        reason: The reason in the account of an item that it shows.
        heap: Negated density, number, candidate, and the placement that the density is for.
        is_first_only: Whether it has only the first step of an item.
        tokens: Tokens of the steps that were taken from it.
    """

    reason: str
    heap: list[tuple[float, int, Candidate, Placement | None]]
    is_first_only: bool = False
    tokens: int = 0

    @classmethod
    def in_order(cls, reason: str, candidates: Iterable[Candidate]) -> "_Queue":
        """Return a queue of the first step of each candidate, in that order."""
        heap = [(0.0, number, candidate, None) for number, candidate in enumerate(candidates)]
        return cls(reason, [*heap], is_first_only=True)

    @classmethod
    def by_density(cls, reason: str, candidates: Iterable[Candidate]) -> "_Queue":
        """Return a queue of all steps of the candidates, by value per character."""
        queue = cls(reason, [])
        for number, candidate in enumerate(candidates):
            queue.heap.append((-_density(candidate, None), number, candidate, None))
        heapify(queue.heap)
        return queue


class PackingSteps:
    """The steps that lead from nothing to all items whole.

    Args:
        candidates: Those that may go in, the best of each kind first.
        newest: The newest turns, newest first. The newest one is the first step of all.
        forms: Makes the forms.
        texts: The texts of stored outputs by pointer id, each read at the item's first step. One
            without a text is only named. One whose reading raises `StoreError` is left out as
            `unavailable`.
        shares: The rates of turns, files with outputs, memories, and the project.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        newest: Sequence[Candidate],
        *,
        forms: Forms,
        texts: Mapping[str, str],
        shares: Sequence[float],
    ) -> None:
        self._forms = forms
        self._texts = texts
        self._shares = [max(share, _MIN_SHARE) for share in shares]
        self._duplicates = Duplicates()
        self._current: dict[Candidate, Placement] = {}
        self._next: dict[Candidate, Placement | None] = {}
        self._kind_tokens: Counter[Kind] = Counter()
        self._shared_tokens = 0

        outputs = [candidate for candidate in candidates if candidate.kind == "output"]
        unmentioned = [output for output in outputs if output.tier]
        tiers: list[list[Candidate]] = [[], [], []]
        for candidate in candidates:
            tiers[candidate.tier].append(candidate)
        mentioned, pinned, ranked = tiers
        self._newest = _Queue.in_order("newest", newest)
        self._reserved = (
            self._newest,
            _Queue.by_density("mentioned", mentioned),
            _Queue.by_density("pinned", pinned),
            _Queue.in_order("named", unmentioned[:_MAX_LINES]),
        )
        by_kind: dict[Kind, list[Candidate]] = {kind: [] for stage in _STAGES for kind in stage}
        for candidate in ranked:
            by_kind[candidate.kind].append(candidate)
        self._kinds = {
            kind: _Queue.by_density("share", of_kind) for kind, of_kind in by_kind.items()
        }

    def __iter__(self) -> Iterator[Placement]:
        """Yield each step as its candidate in a form of more tokens than the one before."""
        first = self._peek(self._newest)
        if first is not None:
            yield self._take(first, self._newest)
        while True:
            ends: list[tuple[float, _Queue, Placement]] = []
            for queue in self._reserved:
                step = self._peek(queue)
                if step is not None:
                    end = (queue.tokens + self._cost(step)) / _RATES[queue.reason]
                    ends.append((end, queue, step))
            step = self._step_of_kinds()
            if step is not None:
                end = float(self._shared_tokens + self._cost(step))
                ends.append((end, self._kinds[step.candidate.kind], step))
            if not ends:
                return
            _, queue, step = min(ends, key=itemgetter(0))
            yield self._take(step, queue)

    def _take(self, step: Placement, queue: _Queue) -> Placement:
        candidate, cost = step.candidate, self._cost(step)
        current = self._current.get(candidate)
        reason = queue.reason
        if current is not None and current.reason != "named":
            reason = current.reason
        step = self._current[candidate] = replace(step, reason=reason)
        self._next.pop(candidate, None)
        if step.chars:
            self._duplicates.add(candidate)
        queue.tokens += cost
        self._kind_tokens[candidate.kind] += cost
        if queue is self._kinds[candidate.kind]:
            self._shared_tokens += cost
        return step

    def _cost(self, step: Placement) -> int:
        current = self._current.get(step.candidate)
        return step.tokens - (current.tokens if current else 0)

    def _step_of_kinds(self) -> Placement | None:
        """Return the step of the stage that is furthest behind its share.

        The share of a stage that has no step goes to the next one that has: turns, files and
        outputs, memories, project.
        """
        steps = [self._step_of_stage(stage) for stage in _STAGES]
        ends: list[tuple[float, Placement]] = []
        for number, step in enumerate(steps):
            if step is None:
                continue
            tokens, share = self._cost(step), 0.0
            for back in range(len(_STAGES)):
                if back and steps[number - back] is not None:
                    break
                tokens += sum(self._kind_tokens[kind] for kind in _STAGES[number - back])
                share += self._shares[number - back]
            ends.append((tokens / share, step))
        return min(ends, key=itemgetter(0))[1] if ends else None

    def _step_of_stage(self, kinds: Iterable[Kind]) -> Placement | None:
        """Return the step of the kind that has the fewest tokens after it."""
        best: Placement | None = None
        fewest = 0
        for kind in kinds:
            step = self._peek(self._kinds[kind])
            if step is not None:
                tokens = self._kind_tokens[kind] + self._cost(step)
                if best is None or tokens < fewest:
                    best, fewest = step, tokens
        return best

    def _peek(self, queue: _Queue) -> Placement | None:
        """Return the next step of the queue, or None.

        Drops candidates that have none, and reorders those that got a step from another queue.
        """
        while queue.heap:
            _, number, candidate, queued_for = queue.heap[0]
            current = self._current.get(candidate)
            if queued_for is current:
                if queue.reason == "named":
                    step = self._line(candidate)
                else:
                    step = self._next_form(candidate)
                is_new = current is None or not current.chars
                if step is not None and not (is_new and self._duplicates.repeats(candidate)):
                    return step
            heappop(queue.heap)
            if queued_for is not current and not queue.is_first_only:
                heappush(queue.heap, (-_density(candidate, current), number, candidate, current))
        return None

    def _line(self, candidate: Candidate) -> Placement | None:
        """Return what names an output, or None if it cannot be read."""
        if candidate.score.rule == "unavailable":
            return None
        return self._forms.summary(candidate) or self._forms.line(candidate)

    def _next_form(self, candidate: Candidate) -> Placement | None:
        if candidate not in self._next:
            current = self._current.get(candidate)
            if candidate.text is None and candidate.kind == "output":
                self._read(candidate)
            if candidate.text is not None:
                step = self._forms.next_form(candidate, current)
            else:
                step = self._line(candidate) if current is None else None
            self._next[candidate] = step
        return self._next[candidate]

    def _read(self, candidate: Candidate) -> None:
        try:
            candidate.text = self._texts[candidate.id]
        except StoreError:
            candidate.score = candidate.score._replace(rule="unavailable")
        except KeyError:
            pass


def _density(candidate: Candidate, current: Placement | None) -> float:
    """Return the value that the next step adds, per character."""
    shown = current.chars if current else 0
    is_unknown = candidate.text is None and not candidate.chars
    end = FIRST_CHARS if is_unknown else next_chars(candidate.chars, shown)
    if 0 < shown < end:
        return candidate.value * log(end / shown) / (_HEADING_CHARS + end - shown)
    return candidate.value / (_HEADING_CHARS + min(end - shown, _MAX_COUNTED_CHARS))
