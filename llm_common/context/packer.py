"""Pack scored items into a bundle under a hard budget.

`PackingSteps` orders everything that could be shown, independently of the budget, and `fill` takes
these steps until one does not fit, and then the part of it that fits. So a larger budget shows each
item at least as far as a smaller one.

A step shows an item, or more of it. Within a kind, the step with the highest value per character
comes next. The first step of an item adds its value, and counts as at most 800 characters, so that
among longer items the score alone decides. A turn counts as at most 100, unless the request asks
for a summary or a discussion, about which many short turns say more than a few long ones. Each
later step adds `value * log(chars after / chars before)`. So the long items that are shown get
space in proportion to their values (proportional fairness, Kelly 1997).

Each kind and each reserve has a queue. Each reserve has a rate, and all kinds together have one.
The step that would finish first at these rates comes next (weighted fair queueing, Demers, Keshav
and Shenker 1989).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import heappop, heappush, nlargest
from itertools import chain
from math import log
from operator import attrgetter, itemgetter
from typing import NamedTuple

from llm_common.context.bundle import (
    KINDS,
    ContextBundle,
    Item,
    bundle_of,
    frame,
    group_line,
    render_blocks,
)
from llm_common.context.candidate import (
    FIRST_CHARS,
    REFUSED,
    Candidate,
    Duplicates,
    Forms,
    Placement,
    candidates_of,
    next_chars,
)
from llm_common.context.request import (
    BudgetAllocation,
    ContextSelectionRequest,
    DataPoolSnapshot,
    Kind,
    MemorySnippet,
    ProjectState,
    Scores,
    TurnEntry,
    shares_of,
)
from llm_common.core.tokens import CountedOnce
from llm_common.errors import StoreError
from llm_common.parts.fill import fill
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking.cues import surveys

_MAX_NEWEST = 20
_MAX_MEMORIES = 5  # from the specification
_SECTIONS = (*KINDS,)

_moment: Callable[[Candidate], datetime] = attrgetter("item.timestamp")


def pack(
    pool: DataPoolSnapshot,
    scores: Scores,
    request: ContextSelectionRequest,
    allocation: BudgetAllocation,
    *,
    texts: Mapping[str, str],
) -> ContextBundle:
    """Pack the items of the highest value into a bundle.

    Pure: the same values yield the same bundle, in any order of the pool. A larger budget with the
    same shares never shows less of an item. Items with the same text are shown once.

    Args:
        pool: The candidates.
        scores: The score of each item. An item without a score counts as 0.0.
        request: The task and the counter. Its budget is ignored.
        allocation: The shares of the kinds, and the budget. The system part pays for headings and
            fences, and the items get what these leave over.
        texts: The texts of stored outputs, by pointer id. An output without a text can only be
            named. A text is read only if it may fit. An output whose text raises `StoreError` is
            dropped as `unavailable`.

    Returns:
        The bundle, whose `render()` is never over the budget of the allocation.

    Raises:
        TypeError: If the counter returns no whole number.
    """
    packer = _Packer(candidates_of(pool, scores), request, allocation)
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
        # Steps count the same texts repeatedly, and a caller's counter need not cache.
        self._meter = CountedOnce(request.counter)
        self._forms = Forms(
            self._meter, request.intent.text, summary_first=request.strategy == "spec"
        )
        self._placed: dict[Candidate, Placement] = {}

    def run(self, texts: Mapping[str, str]) -> None:
        """Take the steps that fit the budget."""
        kinds = {candidate.kind for candidate in self._candidates}
        # The headings of all kinds are paid for, since a later step may be the first of its kind.
        frame_tokens = self._meter.count(frame(kinds))
        steps = fill(
            self._allocation.total_budget - frame_tokens,
            self._steps(texts),
            attrgetter("tokens"),
            part=self._part_of,
            # The exact count, since the blocks of a text may share tokens at their edges.
            whole=lambda taken: self._tokens_of(_shown_by(taken)) - frame_tokens,
        )
        self._placed = _shown_by(steps)

    def _steps(self, texts: Mapping[str, str]) -> Iterator["_Step"]:
        """Yield all steps in their order."""
        steps = PackingSteps(
            self._eligible(),
            self._newest(),
            forms=self._forms,
            texts=texts,
            shares=shares_of(self._request.intent.classification, self._allocation),
            is_survey=surveys(self._request.intent.text),
        )
        groups = {""}
        for step in steps:
            group = step.placement.candidate.group
            if group in groups:
                yield step
            else:
                # The line with the day of a turn is paid for once.
                groups.add(group)
                yield step._replace(line_tokens=self._meter.count(group_line(group)))

    def _part_of(self, step: "_Step", max_tokens: int) -> "_Step | None":
        """Return the step to the largest smaller form of its item, for at most `max_tokens`."""
        # Never smaller than the form before the step, which a smaller budget may show.
        form = self._forms.largest_within(
            step.placement,
            step.before,
            max_tokens=max_tokens + step.placement.tokens - step.tokens,
        )
        if form is None:
            return None
        reason = step.before.reason if step.before else "spare"
        return step._replace(placement=replace(form, reason=reason))

    def _tokens_of(self, placed: Mapping[Candidate, Placement]) -> int:
        blocks = [placement.block for placement in sorted(placed.values(), key=_position)]
        return self._meter.count(render_blocks(blocks)) if blocks else 0

    def _eligible(self) -> list[Candidate]:
        """Return the candidates that may be packed, with at most the best five memories."""
        eligible: list[Candidate] = []
        memories = Duplicates()
        memory_count = 0
        for candidate in self._candidates:
            if candidate.score.rule in REFUSED:
                continue
            if candidate.kind == "memory":
                # A repeated memory must not take the place of another one.
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
        """Return the newest turns, newest first. Ties in time are in descending order of id."""
        # They ignore the strategy's cut-off, but not a minimum that the caller requested.
        barred = REFUSED if self._request.min_relevance is not None else {"excluded"}
        turns: list[Candidate] = []
        for candidate in self._candidates:
            if candidate.kind == "turn" and candidate.score.rule not in barred:
                turns.append(candidate)
        return nlargest(_MAX_NEWEST, turns, key=lambda turn: (_moment(turn), turn.id))

    def bundle(self) -> ContextBundle:
        """Build the bundle of the items placed so far."""
        # After trimming, since the account of a duplicate may only name an item that is shown.
        for candidate in self._candidates:
            candidate.same_as = self._shown_duplicate(candidate)
        dropped = [item.left_out() for item in self._candidates if item not in self._placed]
        placed = sorted(self._placed.values(), key=_position)
        text = render_blocks([placement.block for placement in placed])
        return bundle_of(
            [(_shown_item(placement), placement.block, placement.account) for placement in placed],
            dropped,
            self._request,
            text=text,
            counter=self._meter,
            budget=self._allocation.total_budget,
        )

    def _shown_duplicate(self, candidate: Candidate) -> Candidate | None:
        """Return the first candidate with the same text, unless its step was undone."""
        first = candidate.same_as
        if first is None:
            return None
        # A memory may repeat a better memory, which in turn repeats a turn that is shown.
        while first.same_as is not None:
            first = first.same_as
        placed = self._placed.get(first)
        return first if placed is not None and placed.chars else None


class _Step(NamedTuple):
    """An item in a larger form than before.

    Attributes:
        placement: The item in its new form.
        before: The item in its form before, or None.
        line_tokens: Tokens of the line above it that its neighbours share.
    """

    placement: Placement
    before: Placement | None
    line_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that it adds."""
        tokens_before = self.before.tokens if self.before else 0
        return self.placement.tokens - tokens_before + self.line_tokens


def _shown_by(steps: Iterable[_Step]) -> dict[Candidate, Placement]:
    """Return each item in the last form that some steps lead to."""
    placed = {step.placement.candidate: step.placement for step in steps}
    # An output may have been named before loading it failed.
    return {item: placed[item] for item in placed if item.score.rule != "unavailable"}


def _shown_item(placement: Placement) -> Item:
    """Return the item, with only the part of its text that is shown."""
    item = placement.candidate.item
    if placement.form == "whole" or isinstance(item, ProjectState | ContextPointer):
        return item
    field = "text" if isinstance(item, MemorySnippet) else "content"
    # The application's count is that of the whole text.
    return item.model_copy(update={field: placement.text, "tokens": placement.tokens})


def _position(placement: Placement) -> tuple[int, float, float, str]:
    """Return the sort key of an item in the bundle.

    Items are sorted by section, turns then by time, and other items by tier and score.
    """
    candidate = placement.candidate
    section = _SECTIONS.index(candidate.kind)
    if isinstance(candidate.item, TurnEntry):
        return section, candidate.item.timestamp.timestamp(), 0.0, candidate.id
    return section, candidate.tier, -candidate.value, candidate.id


# This and the rate of the newest turns were chosen on qmsum. They do not change bfcl_memory.
_HEADING_CHARS = 10
_MAX_COUNTED_CHARS = FIRST_CHARS * 2 // 3  # of a first step
# Of a turn, unless the request surveys. With 100 for all requests, qmsum loses .03. With 800 for
# all, LoCoMo loses .048.
_MAX_TURN_CHARS = 100
_MAX_LINES = 20
_MIN_SHARE = 1e-9  # avoids a division by zero
# Rates of the reserves. All kinds together have a rate of 1. A mentioned file of up to 90 % of the
# budget is whole before the newest turns take its tokens (S1-09). It leaves the others a twentieth.
# At an infinite rate, a file that never fits would leave only the newest turn beside it, since a
# smaller budget must not show more than the one that fits the file whole.
_RATES = {"newest": 0.05, "mentioned": 20.0, "pinned": 1.0, "named": 0.1}
# The kinds of a stage have a common share. The next stage gets the share of a stage without steps.
_STAGES: tuple[tuple[Kind, ...], ...] = (("turn",), ("file", "output"), ("memory",), ("project",))


@dataclass(slots=True)
class _Queue:
    """A priority queue of candidates, by the value per character of their next step.

    Attributes:
        reason: The reason in the account of an item that is shown from this queue.
        heap: The negated density, a tie-breaker, the candidate, and its placement when the density
            was computed.
        is_first_only: Whether it contains only the first step of each item.
        tokens: Tokens of the steps that were taken from it.
    """

    reason: str
    heap: list[tuple[float, int, Candidate, Placement | None]]
    is_first_only: bool = False
    tokens: int = 0


class PackingSteps:
    """The steps from an empty bundle to one that shows all items whole.

    Args:
        candidates: The candidates that may be packed, the best of each kind first.
        newest: The newest turns, newest first. The newest one is always the first step.
        forms: Renders the forms.
        texts: The texts of stored outputs by pointer id, each read before the item's first step. An
            output without a text is only named. An output whose text raises `StoreError` is dropped
            as `unavailable`.
        shares: The shares of turns, files with outputs, memories, and the project.
        is_survey: Whether many short turns serve the request better than the best ones.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        newest: Sequence[Candidate],
        *,
        forms: Forms,
        texts: Mapping[str, str],
        shares: Sequence[float],
        is_survey: bool = False,
    ) -> None:
        self._forms = forms
        self._texts = texts
        self._shares = [max(share, _MIN_SHARE) for share in shares]
        self._turn_chars = _MAX_COUNTED_CHARS if is_survey else _MAX_TURN_CHARS
        self._duplicates = Duplicates()
        self._current: dict[Candidate, Placement] = {}
        # Cached, since every step peeks at all queues, and rendering a form is slow.
        self._next: dict[Candidate, Placement | None] = {}
        self._kind_tokens: Counter[Kind] = Counter()
        self._shared_tokens = 0

        unmentioned: list[Candidate] = []
        tiers: list[list[Candidate]] = [[], [], []]
        for candidate in candidates:
            tiers[candidate.tier].append(candidate)
            if candidate.kind == "output" and candidate.tier:
                unmentioned.append(candidate)
        mentioned, pinned, ranked = tiers
        self._newest = self._queue("newest", newest, is_first_only=True)
        self._reserved = (
            self._newest,
            self._queue("mentioned", mentioned),
            self._queue("pinned", pinned),
            self._queue("named", unmentioned[:_MAX_LINES], is_first_only=True),
        )
        self._kinds: dict[Kind, _Queue] = {}
        for kind in chain.from_iterable(_STAGES):
            candidates_of_kind = [candidate for candidate in ranked if candidate.kind == kind]
            self._kinds[kind] = self._queue("share", candidates_of_kind)

    def _queue(
        self, reason: str, candidates: Iterable[Candidate], *, is_first_only: bool = False
    ) -> _Queue:
        """Build a queue of all steps by value per character, or of first steps in their order."""
        queue = _Queue(reason, [], is_first_only)
        for index, candidate in enumerate(candidates):
            density = 0.0 if is_first_only else self._density(candidate, None)
            heappush(queue.heap, (-density, index, candidate, None))
        return queue

    def __iter__(self) -> Iterator[_Step]:
        """Yield the steps in their order."""
        first = self._peek(self._newest)
        if first is not None:
            # First, however low its rate, since the model answers the newest turn.
            yield self._take(first, self._newest)
        while True:
            # No budget takes part in the order, so a larger budget only adds steps.
            ends: list[tuple[float, _Queue, _Step]] = []
            for queue in self._reserved:
                step = self._peek(queue)
                if step is not None:
                    end = (queue.tokens + step.tokens) / _RATES[queue.reason]
                    ends.append((end, queue, step))
            step = self._step_of_kinds()
            if step is not None:
                end = float(self._shared_tokens + step.tokens)
                ends.append((end, self._kinds[step.placement.candidate.kind], step))
            if not ends:
                return
            # By the end alone, since queues have no order. Of equal ends, the first queue wins.
            _, queue, step = min(ends, key=itemgetter(0))
            yield self._take(step, queue)

    def _take(self, step: _Step, queue: _Queue) -> _Step:
        candidate = step.placement.candidate
        # The first reason stays, but the line of a named output is only a preview of the item.
        reason = queue.reason
        if step.before is not None and step.before.reason != "named":
            reason = step.before.reason
        placement = self._current[candidate] = replace(step.placement, reason=reason)
        self._next.pop(candidate, None)
        if placement.chars:
            self._duplicates.add(candidate)
        queue.tokens += step.tokens
        # Tokens from a reserve count towards the share of the kind too.
        self._kind_tokens[candidate.kind] += step.tokens
        if queue is self._kinds[candidate.kind]:
            self._shared_tokens += step.tokens
        return step._replace(placement=placement)

    def _step_of_kinds(self) -> _Step | None:
        """Return the step of the stage that is furthest behind its share.

        The share of a stage without a step goes to the next stage with a step, in the order of
        `_STAGES`. After the last stage comes the first one.
        """
        steps = [*map(self._step_of_stage, _STAGES)]
        ends: list[tuple[float, _Step]] = []
        for index, step in enumerate(steps):
            if step is None:
                continue
            tokens, share = step.tokens, 0.0
            for back in range(len(_STAGES)):
                if back and steps[index - back] is not None:
                    break
                tokens += sum(map(self._kind_tokens.__getitem__, _STAGES[index - back]))
                share += self._shares[index - back]
            ends.append((tokens / share, step))
        _, first = min(ends, key=itemgetter(0), default=(0.0, None))
        return first

    def _step_of_stage(self, kinds: Iterable[Kind]) -> _Step | None:
        """Return the step of the kind that would have the fewest tokens after it."""
        steps = filter(None, [self._peek(self._kinds[kind]) for kind in kinds])

        def tokens_after(step: _Step) -> int:
            return self._kind_tokens[step.placement.candidate.kind] + step.tokens

        return min(steps, key=tokens_after, default=None)

    def _peek(self, queue: _Queue) -> _Step | None:
        """Return the next step of the queue, or None.

        Removes candidates without a further step. A candidate that took a step from another queue
        moves to the position of its new density.
        """
        while queue.heap:
            _, index, candidate, queued_for = queue.heap[0]
            current = self._current.get(candidate)
            if queued_for is current:
                if queue.reason == "named":
                    form = self._line(candidate)
                else:
                    form = self._next_form(candidate)
                is_new = current is None or not current.chars
                if form is not None and not (is_new and self._duplicates.repeats(candidate)):
                    return _Step(form, current)
            heappop(queue.heap)
            # Another queue has shown the candidate since, so its density is out of date.
            if queued_for is not current and not queue.is_first_only:
                density = self._density(candidate, current)
                heappush(queue.heap, (-density, index, candidate, current))
        return None

    def _line(self, candidate: Candidate) -> Placement | None:
        """Return the form that names an output, or None if it cannot be loaded."""
        if candidate.score.rule == "unavailable":
            return None
        return self._forms.summary(candidate) or self._forms.line(candidate)

    def _next_form(self, candidate: Candidate) -> Placement | None:
        if candidate not in self._next:
            current = self._current.get(candidate)
            if candidate.text is None and candidate.kind == "output":
                self._read(candidate)
            step = None
            if candidate.text is not None:
                step = self._forms.next_form(candidate, current)
            elif current is None:
                step = self._line(candidate)
            self._next[candidate] = step
        return self._next[candidate]

    def _read(self, candidate: Candidate) -> None:
        try:
            candidate.text = self._texts[candidate.id]
        except StoreError:
            # The rule is in REFUSED, so the trimming also removes a line that named the output.
            candidate.score = candidate.score._replace(rule="unavailable")
        except KeyError:
            pass  # no text was given for it, so it is only named

    def _density(self, candidate: Candidate, current: Placement | None) -> float:
        """Return the value that the next step adds, per character."""
        start = current.chars if current else 0
        end = next_chars(candidate.chars, start)
        if candidate.text is None and not candidate.chars:
            end = FIRST_CHARS  # the size is unknown
        if 0 < start < end:
            # The logarithm makes each doubling of the text worth the same.
            return candidate.value * log(end / start) / (_HEADING_CHARS + end - start)
        counted_chars = self._turn_chars if candidate.kind == "turn" else _MAX_COUNTED_CHARS
        return candidate.value / (_HEADING_CHARS + min(end - start, counted_chars))
