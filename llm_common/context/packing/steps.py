"""Every step of a packing, in an order that no budget decides: a larger budget only takes more of the steps.

A step shows an item, or more of it. Within a kind the step of the highest value per character is
next. The first step of an item adds its value, and counts as at most 800 characters: among longer
items the score alone decides. Each later step adds `value * log(shown then / shown before)`: so the
long items that are shown get room in proportion to their values (Kelly 1997, proportional
fairness).

Among the kinds, and what is reserved beside them, the step is next that would end first if each
filled at a rate of its own (weighted fair queueing; Demers, Keshav and Shenker 1989).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import log
from operator import itemgetter

from llm_common.context.packing.candidate import Candidate, Placed, Said
from llm_common.context.packing.forms import Forms
from llm_common.context.request import Kind
from llm_common.errors import StoreError
from llm_common.ranking.passages import FIRST_CHARS, next_chars

# this and the rate of the newest turns: chosen on qmsum; bfcl_memory is the same with others
_HEADING_CHARS = 10
# of a first step; docs/benchmarks.md has what others from 100 to 1,000 give
_MAX_COUNTED_CHARS = FIRST_CHARS * 2 // 3
_MAX_LINES = 20
_MIN_SHARE = 1e-9
# Rates of what goes beside the kinds, which share a rate of 1.
_RATES = {"newest": 0.05, "mentioned": 5.0, "pinned": 1.0, "named": 0.1}
_STAGES: tuple[tuple[Kind, ...], ...] = (("turn",), ("file", "output"), ("memory",), ("project",))


@dataclass(slots=True)
class _Lane:
    """Candidates that wait for their next step, the best first.

    Attributes:
        is_first_only: Whether it gives only the first step of an item.
        used: Tokens of the steps that it gave.
    """

    heap: list[tuple[float, int, Candidate, Placed | None]]
    is_first_only: bool = False
    used: int = 0


class Steps:
    """The steps that lead from nothing to all items whole.

    Args:
        candidates: Those that may go in, the best of each kind first.
        newest: The newest turns, the newest first: it is the first step of all.
        forms: Makes the forms.
        texts: The texts of stored outputs by pointer id, each read at the item's first step. One
            without a text is only named; one whose reading raises `StoreError` is left out as
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
        self._said = Said()
        self._used: Counter[Kind] = Counter()
        self._now: dict[Candidate, Placed] = {}
        self._fuller: dict[Candidate, Placed | None] = {}
        self._newest = newest
        self._shares = [max(share, _MIN_SHARE) for share in shares]
        outputs = [each for each in candidates if each.kind == "output" and each.tier]
        self._lanes = {
            "newest": _in_order(newest),
            "mentioned": _by_density(each for each in candidates if each.tier == 0),
            "pinned": _by_density(each for each in candidates if each.tier == 1),
            "named": _in_order(outputs[:_MAX_LINES]),
        }
        ranked = [each for each in candidates if each.tier > 1]
        self._kinds = {
            kind: _by_density(each for each in ranked if each.kind == kind)
            for stage in _STAGES
            for kind in stage
        }
        self._share_used = 0

    def __iter__(self) -> Iterator[Placed]:
        """Each step as its candidate in a form of more tokens than the one before."""
        if self._newest and (first := self._peek("newest", self._lanes["newest"])) is not None:
            yield self._taken(first, "newest", self._lanes["newest"])
        while True:
            ends: list[tuple[float, str, _Lane, Placed]] = []
            for name, lane in self._lanes.items():
                if (step := self._peek(name, lane)) is not None:
                    ends.append(((lane.used + self._cost(step)) / _RATES[name], name, lane, step))
            if (step := self._step_of_kinds()) is not None:
                used = self._share_used + self._cost(step)
                ends.append((float(used), "share", self._kinds[step.candidate.kind], step))
            if not ends:
                return
            _, name, lane, step = min(ends, key=itemgetter(0))
            yield self._taken(step, name, lane)

    def _taken(self, step: Placed, name: str, lane: _Lane) -> Placed:
        candidate, cost = step.candidate, self._cost(step)
        before = self._now.get(candidate)
        if before is not None and before.reason != "named":
            name = before.reason
        step = self._now[candidate] = replace(step, reason=name)
        self._fuller.pop(candidate, None)
        if step.chars:
            self._said.add(candidate)
        lane.used += cost
        self._used[candidate.kind] += cost
        self._share_used += cost if lane is self._kinds[candidate.kind] else 0
        return step

    def _cost(self, step: Placed) -> int:
        before = self._now.get(step.candidate)
        return step.tokens - (before.tokens if before else 0)

    def _step_of_kinds(self) -> Placed | None:
        """The step of the kind that is furthest behind its share.

        The share of a kind that has nothing left goes to the next one: turns, files and outputs,
        memories, project.
        """
        steps: list[Placed | None] = []
        for stage in _STAGES:
            found = [
                step
                for kind in stage
                if (step := self._peek("share", self._kinds[kind])) is not None
            ]
            found.sort(key=lambda step: self._used[step.candidate.kind] + self._cost(step))
            steps.append(found[0] if found else None)
        ends: list[tuple[float, Placed]] = []
        for number, step in enumerate(steps):
            if step is None:
                continue
            used, share = self._cost(step), 0.0
            for back in range(len(_STAGES)):
                if back and steps[number - back] is not None:
                    break
                used += sum(self._used[kind] for kind in _STAGES[number - back])
                share += self._shares[number - back]
            ends.append((used / share, step))
        return min(ends, key=itemgetter(0))[1] if ends else None

    def _peek(self, name: str, lane: _Lane) -> Placed | None:
        """The next step of the lane.

        Drops what has none, and reorders what another lane gave a step.
        """
        while lane.heap:
            _, number, candidate, seen = lane.heap[0]
            now = self._now.get(candidate)
            if seen is now:
                step = self._line(candidate) if name == "named" else self._next_form(candidate)
                is_new = now is None or not now.chars
                if step is not None and not (is_new and self._said.repeats(candidate)):
                    return step
            heappop(lane.heap)
            if seen is not now and not lane.is_first_only:
                heappush(lane.heap, (-_density(candidate, now), number, candidate, now))
        return None

    def _line(self, candidate: Candidate) -> Placed | None:
        """What names an output; None when it is not there."""
        if candidate.score.rule == "unavailable":
            return None
        return self._forms.summary(candidate) or self._forms.line(candidate)

    def _next_form(self, candidate: Candidate) -> Placed | None:
        """The next form of the candidate, in more tokens; None if it has none."""
        if candidate not in self._fuller:
            self._fuller[candidate] = self._formed(candidate)
        return self._fuller[candidate]

    def _formed(self, candidate: Candidate) -> Placed | None:
        now = self._now.get(candidate)
        if candidate.text is None and candidate.kind == "output":
            self._read(candidate)
        if candidate.text is None:
            return self._line(candidate) if now is None else None
        return self._forms.fuller(candidate, now)

    def _read(self, candidate: Candidate) -> None:
        try:
            candidate.text = self._texts[candidate.id]
        except StoreError:
            candidate.score = candidate.score._replace(rule="unavailable")
        except KeyError:
            pass


def _in_order(candidates: Iterable[Candidate]) -> _Lane:
    """Gives each candidate its first step, in that order."""
    return _Lane(
        [(0.0, number, candidate, None) for number, candidate in enumerate(candidates)],
        is_first_only=True,
    )


def _by_density(candidates: Iterable[Candidate]) -> _Lane:
    lane = _Lane(
        [(-_density(each, None), number, each, None) for number, each in enumerate(candidates)]
    )
    heapify(lane.heap)
    return lane


def _density(candidate: Candidate, now: Placed | None) -> float:
    """The value that the next step adds, per character."""
    shown = now.chars if now else 0
    is_unknown = candidate.text is None and not candidate.chars
    end = FIRST_CHARS if is_unknown else next_chars(candidate.chars, shown)
    if 0 < shown < end:
        return candidate.value * log(end / shown) / (_HEADING_CHARS + end - shown)
    return candidate.value / (_HEADING_CHARS + min(end - shown, _MAX_COUNTED_CHARS))
