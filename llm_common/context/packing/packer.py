"""`pack`: scored items become a bundle under a hard budget.

The steps, each of which gets the tokens that the steps before it left:

1. The newest turns: the newest one always, cut if it is too long, then more while they fit a tenth of the budget.
2. The items that the user mentioned, best first, whole where the budget allows it.
3. Each kind within a quota (see `quotas`): the pinned items, then the choice of the highest value, of whole items and
   of the best passages of the best large ones.
4. The tokens left over go to the items left out, best first: whole items, then parts, then summaries and pointer lines.
5. The text is rendered and counted. While it takes too many tokens, the items placed last are taken out again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from math import inf
from operator import attrgetter

from llm_common.context.bundle import FRACTIONS, KINDS, BundleMetadata, ContextBundle, ItemAccount, frame, render_blocks
from llm_common.context.packing.candidate import FIRST, REFUSED, Candidate, Placed, candidates_of
from llm_common.context.packing.forms import MIN_CUT_TOKENS, SAMPLE_CHARS, Degradation, Meter
from llm_common.context.packing.knapsack import best_of
from llm_common.context.pool import ContextFile, DataPoolSnapshot, MemorySnippet, ProjectState, TurnEntry
from llm_common.context.request import BudgetAllocation, ContextSelectionRequest, Kind, Scores
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import search_stems
from llm_common.text.display import fair_shares

# "Room" is a number of tokens: what an item, or the items of a kind, may take.
_NEWEST_SHARE = 10  # a tenth of the budget
_MAX_NEWEST = 20
_MAX_MEMORIES = 5
_PART, _OF = 2, 3  # of the room, for a mentioned or pinned item that is larger
_LINES_SHARE = 8  # an eighth of the tokens left over, for lines that name outputs
_MAX_LINES = 20
_MAX_LARGE = 3  # of the best items, whose passages are chosen before small items fill the room
_LARGE_SHARE = 3  # of the room, for each of them
_BEST_SHARES = (3, 4, 6, 9)  # of the room, for the very best item: the first that keeps this much of the whole value
_MIN_KEPT_VALUE = 0.96
_UNDIVIDED = 300  # tokens left over that one item gets alone; more is halved among several
_MAX_MISSES = 24
_MAX_PARTS = 12
_MAX_ROUNDS = 3
_FULL = 0.97
_CERTAINLY_LARGER = 0.7  # an estimate above room / 0.7 needs no count
_COUNTED_ROOMS, _COUNTED_MORE = 1.25, 1_500  # tokens of candidates that are counted to choose among
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
    """The bundle of the highest value whose `render()` is within the budget.

    The system part of the allocation pays for headings and fences; the tokens that these do not need go to the items.
    Pure: the same values give the same bundle, and the order of the pool does not matter. Items of a kind are chosen
    nearly as by an exact knapsack (see `choose`), the best large ones in passages. An item of the previous bundle keeps
    its place, and is replaced only by one that scores a fifth higher.

    Args:
        pool: All items.
        scores: The score of each; an item without one counts as 0.0.
        request: What to look for, and the counter. Its budget is not read: the allocation's is.
        allocation: The ceilings, and the budget.
        texts: The texts of the stored outputs that were loaded, by pointer id; other outputs can only be named.
        previous: The bundle of the turn before, if any.
    """
    packer = _Packer(candidates_of(pool, scores, texts, previous), request, allocation)
    if allocation.total_budget > allocation.system:
        packer.run()
    return packer.bundle()


class _Packer:
    """The state of one packing: the items placed so far, the most important first, and the tokens left."""

    def __init__(
        self, candidates: list[Candidate], request: ContextSelectionRequest, allocation: BudgetAllocation
    ) -> None:
        self._candidates = candidates
        self._request = request
        self._allocation = allocation
        self._open = [candidate for candidate in candidates if candidate.score.rule not in REFUSED]
        self._meter = Meter(request.counter)
        stems = search_stems(request.intent.text)
        self._forms = Degradation(self._meter, stems, summary_first=request.strategy == "spec")
        kinds = _by_kind(self._open)
        self._density = {kind: self._meter.tokens_per_char(map(_beginning, found)) for kind, found in kinds.items()}
        self._largest = {kind: max((each.value for each in found), default=0.0) for kind, found in kinds.items()}
        self._placed: dict[Candidate, Placed] = {}
        self._left = 0
        self._total = 0

    def run(self) -> None:
        """Runs the five steps."""
        budget = self._allocation.total_budget
        self._left = budget - self._meter.count(frame({candidate.kind for candidate in self._candidates}))
        self._place_newest()
        self._place_mentioned()
        self._place_by_kind()
        for _ in range(_MAX_ROUNDS):
            placed = dict(self._placed)
            self._place_left_over()
            self._trim_to_budget()
            if placed == self._placed or self._total >= budget * _FULL:
                break
            self._left = budget - self._total

    def bundle(self) -> ContextBundle:
        """The bundle of the items placed so far."""
        reasons: dict[Kind, str] = {kind: "limit_reached" if self._limit_reached(kind) else "no_room" for kind in KINDS}
        dropped = tuple(each.left_out(reasons[each.kind]) for each in self._candidates if each not in self._placed)
        placed = _in_bundle_order(self._placed.values())
        return _assemble(placed, dropped, self._request, self._allocation, total_tokens=self._total)

    def _place_newest(self) -> None:
        # The reserve goes before a strategy's cut-off, but not before a minimum that the caller asked for.
        barred = REFUSED if self._request.min_relevance is not None else {"excluded"}
        turns = [each for each in self._candidates if each.kind == "turn" and each.score.rule not in barred]
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
        for kind, room in quotas(self._allocation, wanted, used, self._left).items():
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
        for placed in self._most_valuable(ranked, room):
            self._put(placed)

    def _most_valuable(self, candidates: Sequence[Candidate], room: int) -> Iterable[Placed]:
        """The choice of the highest value: whole items, and passages of the best that would take much of the room.

        Includes the very best item where that costs next to nothing, even if small items have more value per token: the
        answer to a request goes before what only touches on it.
        """
        wholes = self._wholes(candidates, room)
        parts = self._passages(candidates[:_MAX_LARGE], room)
        chosen = best_of(wholes, parts, room)
        best = parts[0] if parts and parts[0].candidate is candidates[0] else None
        value = sum(placed.value for placed in chosen)
        if best is None or not chosen or best.candidate in {placed.candidate for placed in chosen}:
            return chosen
        if best.value <= value / len(chosen):
            return chosen
        others = [whole for whole in wholes if whole.candidate is not best.candidate]
        for share in _BEST_SHARES:
            part = self._forms.cut(best.candidate, room // share, "share")
            if part is not None:
                with_best = [part, *best_of(others, parts[1:], room - part.tokens)]
                if sum(placed.value for placed in with_best) >= _MIN_KEPT_VALUE * value:
                    return with_best
        return chosen

    def _passages(self, best: Sequence[Candidate], room: int) -> list[Placed]:
        """The passages of the candidates that are far larger than a share of the room, each within that share."""
        part = room // _LARGE_SHARE
        large = [each for each in best if self._estimate(each) * FRACTIONS["passages"] > part]
        found = [self._forms.lesser(candidate, part, "share") for candidate in large]
        return [placed for placed in found if placed is not None and placed.form == "passages"]

    def _wholes(self, candidates: Sequence[Candidate], room: int) -> list[Placed]:
        """The items that may fit, by falling value per character, as many as are worth counting."""
        density = self._density[candidates[0].kind] if candidates else 0.0
        longest = room / (density * _CERTAINLY_LARGER) if density else inf
        able = [candidate for candidate in candidates if candidate.chars <= longest and candidate.text is not None]
        able.sort(key=lambda candidate: -candidate.value / candidate.chars)
        counted, chars = 0, 0
        while counted < len(able) and chars * density <= _COUNTED_ROOMS * room + _COUNTED_MORE:
            chars += able[counted].chars
            counted += 1
        return list(filter(None, (self._forms.whole(candidate, "share") for candidate in able[:counted])))

    def _place_left_over(self) -> None:
        waiting = self._by_value(self._waiting())
        misses = 0
        for candidate in waiting:
            if misses == _MAX_MISSES or self._left < MIN_CUT_TOKENS:
                break
            if self._may_take(candidate, self._left):
                misses += not self._place(candidate, "spare", room=self._left)
        waiting = [candidate for candidate in waiting if candidate not in self._placed]
        outputs = [candidate for candidate in waiting if candidate.kind == "output"]
        for_lines = self._left // _LINES_SHARE if outputs else 0
        self._left -= for_lines
        for candidate in waiting[:_MAX_PARTS]:
            if self._left < MIN_CUT_TOKENS:
                break
            self._place(candidate, "spare", part=self._left if self._left < _UNDIVIDED else self._left // 2)
        self._left += for_lines
        for candidate in outputs[:_MAX_LINES]:
            if candidate not in self._placed:
                self._put(self._forms.line(candidate, self._left, "spare"))
        self._widen_last_part()

    def _widen_last_part(self) -> None:
        """Gives the tokens that are left to the item that was cut last."""
        last = next((each for each in reversed(self._placed.values()) if each.form in ("passages", "excerpt")), None)
        if last is None or self._left < MIN_CUT_TOKENS:
            return
        self._left += last.tokens
        wider = self._forms.cut(last.candidate, self._left, last.reason) or last
        self._put(wider if wider.tokens >= last.tokens else last)

    def _trim_to_budget(self) -> None:
        """Counts the text, and takes out the items placed last until the text is within the budget."""
        budget = self._allocation.total_budget
        step = 1
        while self._placed:
            text = render_blocks([placed.block for placed in _in_bundle_order(self._placed.values())])
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
        """Places the item whole if it fits the room, else in a lesser form if one fits the part; returns its tokens."""
        if self._limit_reached(candidate.kind):
            return 0
        room = min(room, self._left)
        if self._may_take(candidate, room):
            whole = self._forms.whole(candidate, reason)
            if whole is not None and whole.tokens <= room:
                return self._put(whole)
        return self._put(self._forms.lesser(candidate, min(part, self._left), reason)) if part > 0 else 0

    def _put(self, placed: Placed | None) -> int:
        if placed is None:
            return 0
        self._placed[placed.candidate] = placed
        self._left -= placed.tokens
        return placed.tokens

    def _waiting(self) -> Iterator[Candidate]:
        return (candidate for candidate in self._open if candidate not in self._placed)

    def _by_value(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The candidates of all kinds, best first, by their value relative to the highest of their kind."""
        return sorted(
            candidates,
            key=lambda candidate: (candidate.tier, -candidate.value / (self._largest[candidate.kind] or 1.0)),
        )

    def _may_take(self, candidate: Candidate, room: int) -> bool:
        """Whether the whole item may fit, by an estimate that rules out only certainly larger ones."""
        if candidate.text is None:
            return False
        return candidate.tier < len(FIRST) or self._estimate(candidate) * _CERTAINLY_LARGER <= room

    def _estimate(self, candidate: Candidate) -> float:
        return 0.0 if candidate.text is None else candidate.chars * self._density[candidate.kind]

    def _limit_reached(self, kind: Kind) -> bool:
        return kind == "memory" and sum(each.kind == "memory" for each in self._placed) >= _MAX_MEMORIES


def _by_kind(candidates: Iterable[Candidate]) -> dict[Kind, list[Candidate]]:
    found: dict[Kind, list[Candidate]] = {kind: [] for kind in KINDS}
    for candidate in candidates:
        found[candidate.kind].append(candidate)
    return found


def _beginning(candidate: Candidate) -> str:
    return f"{candidate.heading}\n{(candidate.text or '')[:SAMPLE_CHARS]}"


def _newest(turns: Sequence[Candidate]) -> list[Candidate]:
    """The last turns, newest first, those of one moment by id."""
    moments = [*map(_moment, turns)]
    first = min(nlargest(_MAX_NEWEST, moments), default=None)
    last = [turn for turn, moment in zip(turns, moments, strict=True) if first is not None and moment >= first]
    return sorted(last, key=lambda turn: (_moment(turn), turn.id), reverse=True)[:_MAX_NEWEST]


def _in_bundle_order(placed: Iterable[Placed]) -> list[Placed]:
    """By section; turns by time, other items as the previous bundle had them, then the new ones by tier and score."""
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


def quotas(
    allocation: BudgetAllocation, wanted: Mapping[Kind, int], used: Mapping[Kind, int], left: int
) -> dict[Kind, int]:
    """Tokens for each kind: at most `left` together, and none more than it wants.

    The ceilings are the allocation's, less the tokens that a kind has used, scaled down where the rest of the budget is
    too small for them. They are cumulative: tokens that turns leave go on to files and outputs, which share theirs
    fairly, then to memories, then to the project. The rest is divided fairly among the kinds that want more; it holds
    the tokens of the system part that the headings do not need.

    Args:
        allocation: The ceilings.
        wanted: Tokens of the items that are not yet placed, by kind.
        used: Tokens of the items that are placed, by kind.
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
