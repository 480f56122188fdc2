"""`Candidate`: an item of the pool on its way into the bundle, and `candidates_of`, all of them in one order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter, itemgetter
from typing import overload

from llm_common.context.bundle import FRACTIONS, KINDS, Block, ContextBundle, Form, ItemAccount, item_block
from llm_common.context.pool import ContextFile, DataPoolSnapshot, MemorySnippet, ProjectState, TurnEntry
from llm_common.context.request import Kind, Score, Scores
from llm_common.pointers.pointer import ContextPointer

__all__ = ["FIRST", "HYSTERESIS", "REFUSED", "Candidate", "Item", "LeftOut", "Placed", "account_of", "candidates_of"]

HYSTERESIS = 0.5
"""An item of the previous bundle is worth so much more: what replaces it must score a fifth higher."""

REFUSED = frozenset({"excluded", "below_cut_off", "not_required", "unavailable"})
"""Rules that keep an item out."""

Item = TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer

FIRST = {"mentioned": 0, "pinned": 1}
"""Rules that go before the rest, in this order."""

_FRAME_CHARS = len("### \n\n\n")
_LARGEST = 1e6  # keeps sums of squares finite
_UNSCORED = Score(0.0)


@dataclass(slots=True, eq=False)
class Candidate:
    """An item with its score.

    Attributes:
        heading: Where it comes from, in one line.
        text: All there is to show of it; None for an output that was not loaded.
        worth: What having it whole is worth (see `worth_of`), more when the previous bundle had it.
        before: Its place in the previous bundle, None if it was not there.
        tier: 0 for what the user mentioned, 1 for what is pinned, 2 for the rest.
        chars: About how many characters its whole block has.
    """

    kind: Kind
    id: str
    item: Item
    score: Score
    heading: str
    text: str | None
    worth: float
    before: int | None
    tier: int
    chars: int

    def whole(self) -> Block:
        """Its block with all of its text."""
        return self.block(self.text or "")

    def block(self, body: str, note: str = "") -> Block:
        """Its block with that body and, where not all is shown, a note behind the heading."""
        return item_block(self.kind, self.id, heading=self.heading + (f" ({note})" if note else ""), body=body)


@dataclass(frozen=True, slots=True)
class Placed:
    """A candidate in the form in which it goes into the bundle."""

    candidate: Candidate
    block: Block
    shown: str
    form: Form
    tokens: int
    reason: str

    @property
    def account(self) -> ItemAccount:
        """The account of the item."""
        return account_of(self.candidate, self.reason, self.form, self.tokens)


def worth_of(score: Score) -> float:
    """What an item is worth whole: the square of its score, nothing for a score that is negative or no number.

    Chosen by score alone per token, many short items that touch on a request would drive out the one that answers it.
    Share of the gold turns within 1,000 exact tokens, by the score's power 1, 2 and 3: bfcl_memory .94, .96, .97,
    qmsum .29, .26, .24.
    """
    value = score.value
    if not value > 0:
        return 0.0
    return value * value if value < _LARGEST else _LARGEST * _LARGEST


def account_of(candidate: Candidate, reason: str, form: Form, tokens: int) -> ItemAccount:
    """What became of a candidate that is in."""
    score = candidate.score
    worth = worth_of(score) * FRACTIONS[form] if tokens else 0.0
    return ItemAccount(candidate.kind, candidate.id, score.rule, reason, form, tokens, score.value, worth, score.parts)


class LeftOut(Sequence[ItemAccount]):
    """The accounts of candidates that are not in, made when somebody asks: few do, and there are thousands.

    Args:
        candidates: These, in their order.
        reasons: Why one stays out that its rule would let in, by kind.
    """

    __slots__ = ("_candidates", "_reasons")

    def __init__(self, candidates: Sequence[Candidate], reasons: Mapping[Kind, str]) -> None:
        self._candidates = candidates
        self._reasons = reasons

    def __len__(self) -> int:
        return len(self._candidates)

    @overload
    def __getitem__(self, index: int) -> ItemAccount: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ItemAccount, ...]: ...
    def __getitem__(self, index: int | slice) -> ItemAccount | tuple[ItemAccount, ...]:
        if isinstance(index, slice):
            return tuple(map(self._account, self._candidates[index]))
        return self._account(self._candidates[index])

    def __iter__(self) -> Iterator[ItemAccount]:
        return map(self._account, self._candidates)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeftOut | tuple) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as of any tuple with a dict in it

    def __repr__(self) -> str:
        return repr(tuple(self))

    def _account(self, candidate: Candidate) -> ItemAccount:
        value, parts, rule = candidate.score
        reason = rule if rule in REFUSED else self._reasons[candidate.kind]
        return ItemAccount(candidate.kind, candidate.id, rule, reason, "left_out", 0, value, 0.0, parts)


def candidates_of(
    pool: DataPoolSnapshot, scores: Scores, texts: Mapping[str, str], previous: ContextBundle | None
) -> list[Candidate]:
    """Every item of the pool: by section, the mentioned and the pinned first, then by score; ties by id.

    Turns of equal score are in the order of their age, the newest first. The order of the pool does not matter.
    """
    before = {(account.kind, account.id): place for place, account in enumerate(previous.kept)} if previous else {}
    sections: dict[Kind, list[Candidate]] = {kind: [] for kind in KINDS}
    for kind, item_id, item, heading, text in _items(pool, texts):
        score = scores.get((kind, item_id), _UNSCORED)
        place = before.get((kind, item_id)) if before else None
        worth = worth_of(score) * (1.0 if place is None else 1.0 + HYSTERESIS)
        tier = FIRST.get(score.rule, len(FIRST))
        chars = len(heading) + len(text or "") + _FRAME_CHARS
        sections[kind].append(Candidate(kind, item_id, item, score, heading, text, worth, place, tier, chars))
    for found in sections.values():
        found.sort(key=attrgetter("worth"), reverse=True)
        found.sort(key=attrgetter("tier"))
    return [*chain.from_iterable(sections.values())]


def _items(pool: DataPoolSnapshot, texts: Mapping[str, str]) -> Iterator[tuple[Kind, str, Item, str, str | None]]:
    """Kind, id, item, heading and text of every item: within a kind by id, but turns the newest first."""
    turns = sorted(sorted(pool.session_log, key=attrgetter("id")), key=attrgetter("timestamp"), reverse=True)
    days = [turn.timestamp.date() for turn in turns]
    several = days.count(days[0]) < len(days) if days else False
    for day, of_day in groupby(zip(days, turns, strict=True), key=itemgetter(0)):
        named = str(day)
        for _, turn in of_day:
            yield "turn", turn.id, turn, _with_date(turn.role, named) if several else turn.role, turn.content
    for file in sorted(pool.context_files, key=attrgetter("id")):
        yield "file", file.id, file, file.path, file.content
    for memory in sorted(pool.memory_hits, key=attrgetter("id")):
        yield "memory", memory.id, memory, _with_date(memory.source, str(memory.timestamp.date())), memory.text
    for output in sorted(pool.tool_outputs, key=attrgetter("pointer_id")):
        heading = f"{output.pointer_id} {output.summary}"
        yield "output", output.pointer_id, output, heading, texts.get(output.pointer_id)
    if pool.project_state is not None:
        project = pool.project_state
        yield "project", project.name, project, project.name, _project_text(project)


def _with_date(source: str, day: str) -> str:
    return f"{source}, {day}" if source else day


def _project_text(project: ProjectState) -> str:
    """One line per field that is known."""
    return "\n".join(
        f"{name}: {value if isinstance(value, str) else '; '.join(value)}" for name, value in project if value
    )
