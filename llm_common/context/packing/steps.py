"""`PackingSteps`: every step of a packing, in an order that no budget decides.

A larger budget only takes more of the steps.

A step shows an item, or more of it. Within a kind the step of the highest value per character is
next. The first step of an item adds its value, and counts as at most 800 characters: among longer
items the score alone decides. Each later step adds `value * log(shown then / shown before)`: so the
long items that are shown get room in proportion to their values (Kelly 1997, proportional
fairness).

The kinds, and what is reserved beside them, are queues. The step is next that would end first if
each queue filled at a rate of its own (weighted fair queueing, Demers, Keshav and Shenker 1989).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import log
from operator import itemgetter

from llm_common.context.packing.candidate import Candidate, Duplicates, Placement
from llm_common.context.packing.forms import FIRST_CHARS, Forms, next_chars
from llm_common.context.request import Kind
from llm_common.errors import StoreError

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
