"""The items of a pool on their way into a bundle: scored, then placed or left out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter, itemgetter

from llm_common.context.bundle import FRACTIONS, KINDS, Block, ContextBundle, Form, ItemAccount, item_block
from llm_common.context.pool import ContextFile, DataPoolSnapshot, MemorySnippet, ProjectState, TurnEntry
from llm_common.context.request import Kind, Score, Scores
from llm_common.pointers.pointer import ContextPointer

_HYSTERESIS = 0.5  # added to the value of an item of the previous bundle: what replaces it must score a fifth higher

REFUSED = frozenset({"excluded", "below_cut_off", "not_required", "unavailable"})
"""Rules that keep an item out."""

_Item = TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer

FIRST = {"mentioned": 0, "pinned": 1}
"""Rules that go before the rest, in this order."""

_FRAME_CHARS = len("### \n\n\n")
_MAX_SCORE = 1e6  # keeps sums of squares finite
_UNSCORED = Score(0.0)


@dataclass(slots=True, eq=False)
class Candidate:
    """An item with its score.

    Attributes:
        heading: Where it comes from, in one line.
        text: All there is to show of it; None for an output that was not loaded.
        value: The value of all of it, by its score; higher when the previous bundle had it.
        before: Its place in the previous bundle, None if it was not there.
        tier: 0 for what the user mentioned, 1 for what is pinned, 2 for the rest.
        chars: About how many characters its whole block has.
    """

    kind: Kind
    id: str
    item: _Item
    score: Score
    heading: str
    text: str | None
    value: float
    before: int | None
    tier: int
    chars: int

    def left_out(self, reason: str) -> ItemAccount:
        """The account of the item left out: for its rule, or else for that reason."""
        value, parts, rule = self.score
        reason = rule if rule in REFUSED else reason
        return ItemAccount(self.kind, self.id, rule, reason, "left_out", 0, value, 0.0, parts)

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
    def value(self) -> float:
        """The value of the candidate in this form."""
        return self.candidate.value * FRACTIONS[self.form]

    @property
    def account(self) -> ItemAccount:
        """The account of the item."""
        candidate, score = self.candidate, self.candidate.score
        return ItemAccount(
            candidate.kind,
            candidate.id,
            score.rule,
            self.reason,
            self.form,
            self.tokens,
            score.value,
            _value_of(score) * FRACTIONS[self.form],
            score.parts,
        )


def _value_of(score: Score) -> float:
    """The value of a whole item: the square of its score; 0 if negative or NaN.

    By score per token, many short items that touch on a request would drive out the one that answers it.
    """
    return min(score.value, _MAX_SCORE) ** 2 if score.value > 0 else 0.0


def candidates_of(
    pool: DataPoolSnapshot, scores: Scores, texts: Mapping[str, str], previous: ContextBundle | None
) -> list[Candidate]:
    """Every item of the pool: by section, mentioned and pinned first, then by score.

    Turns of equal score are in the order of their age, the newest first. The order of the pool does not matter.
    """
    before = {(account.kind, account.id): place for place, account in enumerate(previous.kept)} if previous else {}
    sections: dict[Kind, list[Candidate]] = {kind: [] for kind in KINDS}
    for kind, item_id, item, heading, text in _items(pool, texts):
        score = scores.get((kind, item_id), _UNSCORED)
        place = before.get((kind, item_id)) if before else None
        value = _value_of(score) * (1.0 if place is None else 1.0 + _HYSTERESIS)
        tier = FIRST.get(score.rule, len(FIRST))
        chars = len(heading) + len(text or "") + _FRAME_CHARS
        sections[kind].append(Candidate(kind, item_id, item, score, heading, text, value, place, tier, chars))
    for found in sections.values():
        found.sort(key=attrgetter("value"), reverse=True)
        found.sort(key=attrgetter("tier"))
    return [*chain.from_iterable(sections.values())]


def _items(pool: DataPoolSnapshot, texts: Mapping[str, str]) -> Iterator[tuple[Kind, str, _Item, str, str | None]]:
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
