"""`pack`: scored items become a bundle under a hard budget.

The steps, each of which gets what the ones before it left:

1. The newest turns: the newest one always, cut where it is too long, then more while they fit a tenth of the budget.
2. What the user mentioned, best first, whole where the budget allows it.
3. Every kind in a room of its own (see `rooms`): what is pinned, then the choice that is worth most, of whole items
   and of the best passages of the best that are large.
4. What is left over goes to what was left out, best first: whole items, then parts, then summaries and pointer lines.
5. The text is rendered and counted. While it takes too much, what was placed last is given back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from math import inf
from operator import attrgetter

from llm_common.context.bundle import FRACTIONS, KINDS, BundleMetadata, ContextBundle, ItemAccount, frame, render_blocks
from llm_common.context.packing.candidate import FIRST, REFUSED, Candidate, LeftOut, Placed, candidates_of
from llm_common.context.packing.knapsack import choose, offers_of
from llm_common.context.packing.forms import LEAST_CUT, SAMPLE_CHARS, Ladder, Meter
from llm_common.context.pool import ContextFile, DataPoolSnapshot, MemorySnippet, ProjectState, TurnEntry
from llm_common.context.request import BudgetAllocation, ContextSelectionRequest, Kind, Scores
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import search_stems
from llm_common.text.excerpt import fair_shares

__all__ = ["assemble", "in_bundle_order", "pack", "rooms"]

_SECTION = {kind: number for number, kind in enumerate(KINDS)}


def in_bundle_order(placed: Iterable[Placed]) -> list[Placed]:
    """By section; turns by time, other items as the previous bundle had them, then the new ones by tier and score."""
    return sorted(placed, key=_place)


def assemble(
    placed: Sequence[Placed],
    dropped: Sequence[ItemAccount],
    *,
    request: ContextSelectionRequest,
    allocation: BudgetAllocation,
    total_tokens: int,
) -> ContextBundle:
    """The bundle of what was placed, in that order, with the accounts of what was not."""
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
            budget_utilization=total_tokens / budget,
            selection_strategy=f"intent:{request.intent.classification} budget:{budget} strategy:{request.strategy}",
            files_selected=len(files),
            turns_selected=len(turns),
            memory_selected=len(memory),
            outputs_selected=len(outputs),
            intent=request.intent.classification,
            strategy=request.strategy,
        ),
    )


def _as_shown(placed: Placed) -> TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer:
    """The item itself when it is shown whole; else with the text that is shown instead of it."""
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
    return section, True, 0.0, candidate.tier, -candidate.worth, candidate.id


def rooms(
    allocation: BudgetAllocation, wanted: Mapping[Kind, int], used: Mapping[Kind, int], left: int
) -> dict[Kind, int]:
    """Tokens for each kind that wants some, at most `left` together, nobody more than it wants.

    The ceilings are the allocation's, less what a kind has already used, all made smaller alike where the rest of the
    budget is too small for them. They are cumulative: what turns leave goes on to files and outputs, which share
    theirs fairly, then to memories, then to the project. What is left at the end, the share of the system text that the
    headings do not need included, is divided fairly among the kinds that still want more.

    Args:
        allocation: The ceilings.
        wanted: Tokens of all that is not yet in, by kind.
        used: Tokens of what is in, by kind.
        left: Tokens that remain of the budget.
    """
    stages: tuple[tuple[tuple[Kind, ...], int], ...] = (
        (("turn",), allocation.recent_turns),
        (("file", "output"), allocation.files),
        (("memory",), allocation.memory),
        (("project",), allocation.project),
    )
    ceilings = [max(ceiling - sum(used.get(kind, 0) for kind in kinds), 0) for kinds, ceiling in stages]
    whole = max(sum(ceilings), left, 1)
    given: dict[Kind, int] = {}
    unused = 0
    for (kinds, _), ceiling in zip(stages, ceilings, strict=True):
        have = unused + ceiling * left // whole
        shares = fair_shares([wanted.get(kind, 0) for kind in kinds], have)
        given.update(zip(kinds, shares, strict=True))
        unused = have - sum(shares)
    unmet = {kind: wanted.get(kind, 0) - share for kind, share in given.items()}
    extra = fair_shares(list(unmet.values()), left - sum(given.values()))
    return {kind: share + more for (kind, share), more in zip(given.items(), extra, strict=True)}


_NEWEST_SHARE = 10  # a tenth of the budget
_MAX_NEWEST = 20
_MAX_MEMORIES = 5
_PART, _OF = 2, 3  # of the room, for a mentioned or pinned item that is larger
_LINES_SHARE = 8  # an eighth of what is left over, for lines that name outputs
_MAX_LINES = 20
_MAX_LARGE = 3  # of the best items may have their passages chosen before small ones fill the room
_LARGE_SHARE = 3  # of the room, for each
_BEST_SHARES = (3, 4, 6, 9)  # of the room, for the very best, the first that leaves so much of the worth of all:
_NEXT_TO_ALL = 0.96
_UNDIVIDED = 300  # tokens left over that one item gets alone; more is halved, so that several are shown
_MAX_MISSES = 24
_MAX_PARTS = 12
_ROUNDS = 3
_FULL_ENOUGH = 0.97
_CERTAINLY_LARGER = 0.7  # an estimate above room / 0.7 needs no count
_COUNTED_ROOMS, _COUNTED_MORE = 1.25, 1_500  # tokens of candidates that are counted to choose among

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
    """The bundle that is worth most within the allocation's whole budget, by the request's counter on `render()`.

    The system part of the allocation pays for headings and fences; what they do not need goes to the items. Pure:
    nothing is changed, the order of the pool does not matter, the same values give the same bundle. Items of a kind
    are chosen nearly as an exact knapsack of their worth would be (see `choose`), the best large ones in passages; an
    item of the previous bundle
    gives way only to one that scores a fifth higher, and keeps its place.

    Args:
        pool: All items.
        scores: The score of each; an item without one counts as 0.0.
        request: What to look for, and the counter. Its budget is not read: the allocation's is.
        allocation: The ceilings, and the budget.
        texts: The text of stored outputs by pointer id, as far as loaded; others can only be named.
        previous: The bundle of the turn before, if any.
    """
    packer = _Packer(candidates_of(pool, scores, texts, previous), request, allocation)
    if allocation.total_budget > allocation.system:
        packer.run()
    return packer.bundle()


class _Packer:
    """The state of one packing: what is placed, in the order of its importance, and the tokens that are left."""

    def __init__(
        self, candidates: list[Candidate], request: ContextSelectionRequest, allocation: BudgetAllocation
    ) -> None:
        self._candidates = candidates
        self._request = request
        self._allocation = allocation
        self._open = [candidate for candidate in candidates if candidate.score.rule not in REFUSED]
        self._meter = Meter(request.counter)
        self._ladder = Ladder(self._meter, search_stems(request.intent.text), summary_first=request.strategy == "spec")
        kinds = _by_kind(self._open)
        self._density = {kind: self._meter.tokens_per_char(map(_beginning, found)) for kind, found in kinds.items()}
        self._largest = {kind: max((each.worth for each in found), default=0.0) for kind, found in kinds.items()}
        self._placed: dict[Candidate, Placed] = {}
        self._left = 0
        self._total = 0

    def run(self) -> None:
        """Places what fits."""
        budget = self._allocation.total_budget
        self._left = budget - self._meter.count(frame({candidate.kind for candidate in self._candidates}))
        self._place_newest()
        self._place_mentioned()
        self._place_by_kind()
        for _ in range(_ROUNDS):
            placed = dict(self._placed)
            self._place_left_over()
            self._settle()
            if placed == self._placed or self._total >= budget * _FULL_ENOUGH:
                break
            self._left = budget - self._total

    def bundle(self) -> ContextBundle:
        """The bundle of what is placed now."""
        reasons = {kind: "enough" if self._has_enough(kind) else "no_room" for kind in KINDS}
        out = [candidate for candidate in self._candidates if candidate not in self._placed]
        return assemble(
            in_bundle_order(self._placed.values()),
            LeftOut(out, reasons),
            request=self._request,
            allocation=self._allocation,
            total_tokens=self._total,
        )

    def _place_newest(self) -> None:
        turns = [
            candidate
            for candidate in self._candidates
            if candidate.kind == "turn" and candidate.score.rule != "excluded"
        ]
        reserve = self._left // _NEWEST_SHARE
        for number, turn in enumerate(_newest(turns)):
            if number == 0:
                used = self._place(turn, "newest", room=max(reserve, self._allocation.recent_turns), part=reserve)
            else:
                used = self._place(turn, "newest", room=reserve)
            if not used:
                break
            reserve -= used

    def _place_mentioned(self) -> None:
        for candidate in self._open:
            if candidate.tier == 0:
                self._place(candidate, "mentioned", room=self._left, part=self._left * _PART // _OF)

    def _place_by_kind(self) -> None:
        waiting = _by_kind(self._waiting())
        used: Counter[Kind] = Counter()
        for candidate, placed in self._placed.items():
            used[candidate.kind] += placed.tokens
        # About what all of a kind would take whole, rather too much than too little.
        wanted = {kind: int(sum(map(self._estimate, found)) / _CERTAINLY_LARGER) for kind, found in waiting.items()}
        for kind, room in rooms(self._allocation, wanted, used, self._left).items():
            self._place_in_room(kind, waiting[kind], room)

    def _place_in_room(self, kind: Kind, candidates: Sequence[Candidate], room: int) -> None:
        ranked = []
        for candidate in candidates:
            if candidate.tier == 1:
                room -= self._place(candidate, "pinned", room=room, part=room * _PART // _OF)
            elif kind in ("memory", "project"):  # few and small: the best first
                room -= self._place(candidate, "share", room=room)
            else:
                ranked.append(candidate)
        for placed in self._worth_most(ranked, room):
            self._put(placed)

    def _worth_most(self, candidates: Sequence[Candidate], room: int) -> Iterable[Placed]:
        """What is worth most together in the room: whole items, and passages of the best that would take much of it.

        The best of all is among them where that costs next to nothing, though small items were worth more per token:
        who asks wants the answer before what touches on it.
        """
        wholes = self._wholes(candidates, room)
        parts = self._passages(candidates[:_MAX_LARGE], room)
        chosen = _best_of(wholes, parts, room)
        best = parts[0] if parts and parts[0].candidate is candidates[0] else None
        worth = sum(map(_worth, chosen))
        if best is None or best.candidate in {placed.candidate for placed in chosen} or not chosen:
            return chosen
        if _worth(best) <= worth / len(chosen):
            return chosen
        others = [whole for whole in wholes if whole.candidate is not best.candidate]
        for share in _BEST_SHARES:
            part = self._ladder.cut(best.candidate, room // share, "share")
            if part is not None:
                with_best = [part, *_best_of(others, parts[1:], room - part.tokens)]
                if sum(map(_worth, with_best)) >= _NEXT_TO_ALL * worth:
                    return with_best
        return chosen

    def _passages(self, best: Sequence[Candidate], room: int) -> list[Placed]:
        """The passages of those that are far larger than their share of the room, in so much of it."""
        part = room // _LARGE_SHARE
        large = [each for each in best if self._estimate(each) * FRACTIONS["passages"] > part]
        found = [self._ladder.lesser(candidate, part, "share") for candidate in large]
        return [placed for placed in found if placed is not None and placed.form == "passages"]

    def _wholes(self, candidates: Sequence[Candidate], room: int) -> list[Placed]:
        """The items that may fit, worth most per token first, as many as there is any sense to choose among."""
        density = self._density[candidates[0].kind] if candidates else 0.0
        longest = room / (density * _CERTAINLY_LARGER) if density else inf
        able = [candidate for candidate in candidates if candidate.chars <= longest and candidate.text is not None]
        able.sort(key=lambda candidate: -candidate.worth / candidate.chars)
        counted, chars = 0, 0
        while counted < len(able) and chars * density <= _COUNTED_ROOMS * room + _COUNTED_MORE:
            chars += able[counted].chars
            counted += 1
        return list(filter(None, (self._ladder.whole(candidate, "share") for candidate in able[:counted])))

    def _place_left_over(self) -> None:
        waiting = self._by_worth(self._waiting())
        misses = 0
        for candidate in waiting:
            if misses == _MAX_MISSES or self._left < LEAST_CUT:
                break
            if self._may_take(candidate, self._left):
                misses += not self._place(candidate, "spare", room=self._left)
        waiting = [candidate for candidate in waiting if candidate not in self._placed]
        outputs = [candidate for candidate in waiting if candidate.kind == "output"]
        for_lines = self._left // _LINES_SHARE if outputs else 0
        self._left -= for_lines
        for candidate in waiting[:_MAX_PARTS]:
            if self._left < LEAST_CUT:
                break
            self._place(candidate, "spare", part=self._left if self._left < _UNDIVIDED else self._left // 2)
        self._left += for_lines
        for candidate in outputs[:_MAX_LINES]:
            if candidate not in self._placed:
                self._put(self._ladder.line(candidate, self._left, "spare"))
        self._widen_last_part()

    def _widen_last_part(self) -> None:
        """Gives what is left to the item that was cut last."""
        last = next((each for each in reversed(self._placed.values()) if each.form in ("passages", "excerpt")), None)
        if last is None or self._left < LEAST_CUT:
            return
        self._left += last.tokens
        wider = self._ladder.cut(last.candidate, self._left, last.reason) or last
        self._put(wider if wider.tokens >= last.tokens else last)

    def _settle(self) -> None:
        """Counts the text, and gives back what was placed last until it is within the budget."""
        budget = self._allocation.total_budget
        step = 1
        while self._placed:
            text = render_blocks([placed.block for placed in in_bundle_order(self._placed.values())])
            self._total = self._meter.count(text)
            if self._total <= budget:
                return
            freed = 0
            for number, candidate in enumerate(reversed(list(self._placed))):
                if number >= step and freed >= self._total - budget:
                    break
                freed += self._placed.pop(candidate).tokens
            step *= 2
        self._total = 0

    def _place(self, candidate: Candidate, reason: str, *, room: int = 0, part: int = 0) -> int:
        """Puts the item in, whole if it fits the room, else in a lesser form if one fits the part; its tokens."""
        if self._has_enough(candidate.kind):
            return 0
        room = min(room, self._left)
        if self._may_take(candidate, room):
            whole = self._ladder.whole(candidate, reason)
            if whole is not None and whole.tokens <= room:
                return self._put(whole)
        return self._put(self._ladder.lesser(candidate, min(part, self._left), reason)) if part > 0 else 0

    def _put(self, placed: Placed | None) -> int:
        if placed is None:
            return 0
        self._placed[placed.candidate] = placed
        self._left -= placed.tokens
        return placed.tokens

    def _waiting(self) -> Iterator[Candidate]:
        return (candidate for candidate in self._open if candidate not in self._placed)

    def _by_worth(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The candidates of all kinds, best first; worths of different kinds are made alike by their largest."""
        return sorted(
            candidates,
            key=lambda candidate: (candidate.tier, -candidate.worth / (self._largest[candidate.kind] or 1.0)),
        )

    def _may_take(self, candidate: Candidate, room: int) -> bool:
        """Whether the whole item may fit, by an estimate that only rules out what is certainly larger."""
        if candidate.text is None:
            return False
        return candidate.tier < len(FIRST) or self._estimate(candidate) * _CERTAINLY_LARGER <= room

    def _estimate(self, candidate: Candidate) -> float:
        return 0.0 if candidate.text is None else candidate.chars * self._density[candidate.kind]

    def _has_enough(self, kind: Kind) -> bool:
        return kind == "memory" and sum(each.kind == "memory" for each in self._placed) >= _MAX_MEMORIES


def _by_kind(candidates: Iterable[Candidate]) -> dict[Kind, list[Candidate]]:
    found: dict[Kind, list[Candidate]] = {kind: [] for kind in KINDS}
    for candidate in candidates:
        found[candidate.kind].append(candidate)
    return found


def _best_of(wholes: Sequence[Placed], parts: Sequence[Placed], room: int) -> list[Placed]:
    offers = offers_of(wholes, parts)
    chosen = [offers[position].placed for position in choose([offer.load for offer in offers], room)]
    return list({placed.candidate: placed for placed in chosen}.values())


def _worth(placed: Placed) -> float:
    return placed.candidate.worth * FRACTIONS[placed.form]


def _beginning(candidate: Candidate) -> str:
    return f"{candidate.heading}\n{(candidate.text or '')[:SAMPLE_CHARS]}"


def _newest(turns: Sequence[Candidate]) -> list[Candidate]:
    """The last turns, newest first, those of one moment by id."""
    moments = [*map(_moment, turns)]
    first = min(nlargest(_MAX_NEWEST, moments), default=None)
    last = [turn for turn, moment in zip(turns, moments, strict=True) if first is not None and moment >= first]
    return sorted(last, key=lambda turn: (_moment(turn), turn.id), reverse=True)[:_MAX_NEWEST]
