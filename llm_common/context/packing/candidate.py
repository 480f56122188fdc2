"""The items of a pool on their way into a bundle: scored, then placed or left out."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

from llm_common.context.bundle import (
    FRACTIONS,
    KINDS,
    Block,
    ContextBundle,
    Form,
    ItemAccount,
    item_block,
)
from llm_common.context.pool import (
    ContextFile,
    DataPoolSnapshot,
    MemorySnippet,
    ProjectState,
    TurnEntry,
)
from llm_common.context.request import Kind, Score, Scores
from llm_common.pointers.pointer import ContextPointer

REFUSED = frozenset({"excluded", "below_cut_off", "not_required", "unavailable"})
"""Rules that keep an item out."""

_Item = TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer

FIRST = {"mentioned": 0, "pinned": 1}
"""Rules that go before the rest, in this order."""

# By score per token, many short items that touch on a request would drive out the one that answers
# it. Of 1.0 to 3.0, bfcl_memory loses below 2.0 and qmsum above.
_POWER = 2.0
# added to the value of an item of the previous bundle: what replaces it must score a fifth higher
_HYSTERESIS = 0.5
_MAX_SCORE = 1e6  # keeps sums of squares finite
_UNSCORED = Score(0.0)
# characters of a turn or an output; a short one, such as "Yes.", is said anew each time
_MIN_REPEATED = 200


@dataclass(slots=True, eq=False)
class Candidate:
    """An item with its score.

    Attributes:
        heading: Where it comes from, in one line.
        group: The heading that it shares with its neighbours: the day of a turn, where a
            conversation has several.
        text: All there is to show of it; None for an output that was not loaded.
        value: The value of all of it, by its score; higher when the previous bundle had it.
        before: Its place in the previous bundle, None if it was not there.
        tier: 0 for what the user mentioned, 1 for what is pinned, 2 for the rest.
        reason: Why it stays out, where its rule does not say so.
        same_as: The shown one that says the same.
    """

    kind: Kind
    id: str
    item: _Item
    score: Score
    heading: str
    group: str
    text: str | None
    value: float
    before: int | None
    tier: int
    reason: str = "no_room"
    same_as: "Candidate | None" = None

    @property
    def chars(self) -> int:
        """About how many characters there are to show.

        Of an output that was not loaded, its bytes.
        """
        if self.text is not None:
            return len(self.text)
        return (self.item.result_bytes or 0) if isinstance(self.item, ContextPointer) else 0

    @property
    def repetition(self) -> str:
        """The reason that names the one that says the same; empty without one."""
        return f"same as {self.same_as.kind} {self.same_as.id}" if self.same_as else ""

    def left_out(self) -> ItemAccount:
        """The account of the item left out: for its rule, or else for its reason."""
        value, parts, rule = self.score
        reason = rule if rule in REFUSED else self.repetition or self.reason
        return ItemAccount(
            self.kind, self.id, rule, reason, "left_out", 0, value, 0.0, parts, self.chars
        )

    def block(self, body: str, note: str = "") -> Block:
        """Its block with that body and, where not all is shown, a note behind the heading."""
        return item_block(
            self.kind, self.id, heading=self.heading, body=body, note=note, group=self.group
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """A candidate in the form in which it goes into the bundle."""

    candidate: Candidate
    block: Block
    shown: str
    form: Form
    tokens: int
    chars: int
    reason: str = ""

    @property
    def account(self) -> ItemAccount:
        """The account of the item."""
        candidate, score = self.candidate, self.candidate.score
        return ItemAccount(
            candidate.kind,
            candidate.id,
            score.rule,
            self.reason if self.chars else candidate.repetition or self.reason,
            self.form,
            self.tokens,
            score.value,
            _value_of(score) * FRACTIONS[self.form],
            score.parts,
            candidate.chars,
            self.chars,
        )


def _value_of(score: Score) -> float:
    """The value of a whole item; 0 for a score that is negative or NaN."""
    return min(score.value, _MAX_SCORE) ** _POWER if score.value > 0 else 0.0


def candidates_of(
    pool: DataPoolSnapshot, scores: Scores, previous: ContextBundle | None
) -> list[Candidate]:
    """Every item of the pool: by section, mentioned and pinned first, then by score.

    Turns of equal score are in the order of their age, the newest first. The order of the pool does
    not matter.
    """
    before = (
        {(account.kind, account.id): place for place, account in enumerate(previous.kept)}
        if previous
        else {}
    )
    sections: dict[Kind, list[Candidate]] = {kind: [] for kind in KINDS}
    for kind, item_id, item, heading, group, text in _items(pool):
        score = scores.get((kind, item_id), _UNSCORED)
        place = before.get((kind, item_id)) if before else None
        value = _value_of(score) * (1.0 if place is None else 1.0 + _HYSTERESIS)
        tier = FIRST.get(score.rule, len(FIRST))
        sections[kind].append(
            Candidate(kind, item_id, item, score, heading, group, text, value, place, tier)
        )
    for found in sections.values():
        found.sort(key=attrgetter("value"), reverse=True)
        found.sort(key=attrgetter("tier"))
    return [*chain.from_iterable(sections.values())]


def _items(pool: DataPoolSnapshot) -> Iterator[tuple[Kind, str, _Item, str, str, str | None]]:
    """Kind, id, item, heading, group and text of every item: within a kind by id, but turns the newest first."""
    turns = sorted(
        sorted(pool.session_log, key=attrgetter("id")), key=attrgetter("timestamp"), reverse=True
    )
    days = [turn.timestamp.date() for turn in turns]
    named = {day: str(day) for day in set(days)}
    for day, turn in zip(days, turns, strict=True):
        yield "turn", turn.id, turn, turn.role, named[day] if len(named) > 1 else "", turn.content
    for file in sorted(pool.context_files, key=attrgetter("id")):
        yield "file", file.id, file, file.path, "", file.content
    for memory in sorted(pool.memory_hits, key=attrgetter("id")):
        day_of = str(memory.timestamp.date())
        heading = f"{memory.source}, {day_of}" if memory.source else day_of
        yield "memory", memory.id, memory, heading, "", memory.text
    for output in sorted(pool.tool_outputs, key=attrgetter("pointer_id")):
        yield "output", output.pointer_id, output, f"{output.pointer_id} {output.summary}", "", None
    if pool.project_state is not None:
        project = pool.project_state
        fields = [
            f"{name}: {value if isinstance(value, str) else '; '.join(value)}"
            for name, value in project
            if value
        ]
        yield "project", project.name, project, project.name, "", "\n".join(fields)


class Said:
    """What the items say, so that the same is packed once.

    Two files of one text are not the same, since their paths differ; nor are two short turns, or
    two short outputs.
    """

    def __init__(self) -> None:
        self._first: dict[str, Candidate] = {}
        self._folded: dict[Candidate, str] = {}

    def add(self, candidate: Candidate) -> None:
        """Notes that the candidate is shown."""
        for key in self._keys(candidate):
            self._first.setdefault(key, candidate)

    def repeats(self, candidate: Candidate) -> bool:
        """Whether one that is shown says the same, but for white space and case.

        `same_as` is then that one.
        """
        keys = self._keys(candidate)
        first = next((self._first[key] for key in keys if key in self._first), None)
        if first is None or first is candidate or first.kind == candidate.kind == "file":
            return False
        if first.kind == candidate.kind in ("turn", "output") and candidate.chars < _MIN_REPEATED:
            return False
        candidate.same_as = first
        return True

    def _keys(self, candidate: Candidate) -> list[str]:
        """Its text without white space and case, if it is known, and the digest of a stored output."""
        keys: list[str] = []
        if candidate.text:
            if candidate not in self._folded:
                self._folded[candidate] = "".join(candidate.text.split()).casefold()
            keys += filter(None, [self._folded[candidate]])
        if isinstance(candidate.item, ContextPointer) and candidate.item.result_sha256:
            keys.append(f"sha256:{candidate.item.result_sha256}")
        return keys
