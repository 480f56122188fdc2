"""Model the items of a pool as candidates for a bundle, and the forms that each can take."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from llm_common.context.bundle import (
    KINDS,
    Block,
    Form,
    Item,
    ItemAccount,
    item_block,
)
from llm_common.context.request import (
    ContextFile,
    DataPoolSnapshot,
    Kind,
    Score,
    Scores,
)
from llm_common.core.tokens import TokenCounter
from llm_common.parts.fill import Parts, PartSize
from llm_common.parts.passages import RankedPassages
from llm_common.parts.result_parts import ResultParts
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking.lexical import search_stems
from llm_common.tables.table import result_name
from llm_common.text.display import printable, without_headings

REFUSED = frozenset({"excluded", "below_cut_off", "not_required", "unavailable"})
"""Rules that exclude an item from a bundle."""

# Rules whose items are placed before all others, in this order.
_TIERS = {"mentioned": 0, "pinned": 1}
_RANKED_TIER = len(_TIERS)

# With the score itself, many short items that touch on a request would displace the item that
# answers it. Of the powers from 1.0 to 3.0, bfcl_memory loses below 2.0 and qmsum above.
_POWER = 2.0
_MAX_SCORE = 1e6  # keeps sums of squares finite
_UNSCORED = Score(0.0)
# Characters of a turn or an output. A shorter one, such as "Yes.", may be repeated.
_MIN_REPEATED = 200


# Compared by identity, since candidates are keys of dicts and their fields change.
@dataclass(slots=True, eq=False)
class Candidate:
    """An item with its score.

    Attributes:
        kind: Kind of the item.
        id: Id of the item.
        item: The item.
        score: Its score.
        heading: Its source, in one line.
        group: The heading that it shares with its neighbours. For a turn of a conversation of
            several days, the day.
        text: The whole text, or None for an output that was not loaded.
        value: The value of the whole item.
        tier: 0 for a mentioned item, 1 for a pinned one, 2 for all others.
        reason: The reason for dropping it, unless its rule excludes it.
        same_as: A candidate with the same text that is shown, or None.
    """

    kind: Kind
    id: str
    item: Item
    score: Score
    heading: str
    group: str = ""
    text: str | None = None
    value: float = 0.0
    tier: int = _RANKED_TIER
    reason: str = "no_room"
    same_as: "Candidate | None" = None

    @property
    def chars(self) -> int:
        """Return the length of the text. For an output that was not loaded, return its bytes."""
        if self.text is not None:
            return len(self.text)
        if isinstance(self.item, ContextPointer):
            return self.item.result_bytes or 0
        return 0

    @property
    def duplicate_reason(self) -> str:
        """Return the reason that names the candidate with the same text, or ""."""
        return f"same as {self.same_as.kind} {self.same_as.id}" if self.same_as else ""

    def left_out(self) -> ItemAccount:
        """Return the account of the item as a dropped one."""
        value, parts, rule = self.score
        reason = rule if rule in REFUSED else self.duplicate_reason or self.reason
        return ItemAccount(
            self.kind, self.id, rule, reason, "left_out", 0, value, parts, self.chars
        )

    def block(self, body: str, note: str = "") -> Block:
        """Build its block from a body and a note after the heading."""
        return item_block(
            self.kind, self.id, heading=self.heading, body=body, note=note, group=self.group
        )


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate in the form in which the bundle shows it.

    Attributes:
        candidate: The candidate.
        block: Its block.
        text: The text that is shown.
        form: The form.
        tokens: Tokens of the block.
        chars: Number of characters of the item's text that are shown.
        reason: The reason for showing it.
    """

    candidate: Candidate
    block: Block
    text: str
    form: Form
    tokens: int
    chars: int
    reason: str = ""

    @property
    def account(self) -> ItemAccount:
        """Return the account of the item as a kept one."""
        candidate, score = self.candidate, self.candidate.score
        reason = self.reason
        if not self.chars:
            reason = candidate.duplicate_reason or reason
        return ItemAccount(
            candidate.kind,
            candidate.id,
            score.rule,
            reason,
            self.form,
            self.tokens,
            score.value,
            score.parts,
            candidate.chars,
            self.chars,
        )


def candidates_of(pool: DataPoolSnapshot, scores: Scores) -> list[Candidate]:
    """Return a candidate for every item of the pool, by section and in descending priority.

    Mentioned and pinned items come before all others of their section, and then the score decides.
    Turns of equal score come newest first. The order of the pool does not matter.
    """
    sections: dict[Kind, list[Candidate]] = {kind: [] for kind in KINDS}
    for candidate in _unscored(pool):
        score = candidate.score = scores.get((candidate.kind, candidate.id), _UNSCORED)
        if score.value > 0:  # neither negative nor NaN
            candidate.value = min(score.value, _MAX_SCORE) ** _POWER
        candidate.tier = _TIERS.get(score.rule, _RANKED_TIER)
        sections[candidate.kind].append(candidate)
    ordered: list[Candidate] = []
    for section in sections.values():
        # Sorts are stable, so equal values stay in the order in which `_unscored` yields them.
        section.sort(key=attrgetter("value"), reverse=True)
        section.sort(key=attrgetter("tier"))
        ordered += section
    return ordered


def _unscored(pool: DataPoolSnapshot) -> Iterator[Candidate]:
    """Yield a candidate for every item: turns newest first, the items of other kinds by id."""
    by_id = sorted(pool.session_log, key=attrgetter("id"))
    turns = sorted(by_id, key=attrgetter("timestamp"), reverse=True)
    days = [turn.timestamp.date() for turn in turns]
    has_several_days = len(set(days)) > 1
    for day, turn in zip(days, turns, strict=True):
        group = str(day) if has_several_days else ""
        yield Candidate("turn", turn.id, turn, _UNSCORED, turn.role, group, turn.content)
    for file in sorted(pool.context_files, key=attrgetter("id")):
        yield Candidate("file", file.id, file, _UNSCORED, file.path, text=file.content)
    for memory in sorted(pool.memory_hits, key=attrgetter("id")):
        heading = str(memory.timestamp.date())
        if memory.source:
            heading = f"{memory.source}, {heading}"
        yield Candidate("memory", memory.id, memory, _UNSCORED, heading, text=memory.text)
    for output in sorted(pool.tool_outputs, key=attrgetter("pointer_id")):
        heading = f"{output.pointer_id} {output.summary}"
        yield Candidate("output", output.pointer_id, output, _UNSCORED, heading)
    if pool.project_state is not None:
        project = pool.project_state
        lines: list[str] = []
        for name, value in project:
            if value:
                text = "; ".join(value) if isinstance(value, tuple) else value
                lines.append(f"{name}: {text}")
        text = "\n".join(lines)
        yield Candidate("project", project.name, project, _UNSCORED, project.name, text=text)


class Duplicates:
    """Finds items with the same text, so that the text is packed once.

    Two files with the same text are not duplicates, since their paths differ. Neither are two short
    turns or two short outputs.
    """

    def __init__(self) -> None:
        self._first: dict[str, Candidate] = {}

    def add(self, candidate: Candidate) -> None:
        """Record that the candidate is shown."""
        for key in _keys_of(candidate):
            self._first.setdefault(key, candidate)

    def repeats(self, candidate: Candidate) -> bool:
        """Return whether a shown candidate has the same text, and set `same_as` to it."""
        first = None
        for key in _keys_of(candidate):
            first = first or self._first.get(key)
        if first is None or first is candidate or first.kind == candidate.kind == "file":
            return False
        if first.kind == candidate.kind in ("turn", "output") and candidate.chars < _MIN_REPEATED:
            return False
        candidate.same_as = first
        return True


def _keys_of(candidate: Candidate) -> list[str]:
    """Return the text, and the digest that identifies a stored output without loading it."""
    keys: list[str] = []
    if candidate.text:
        keys.append(candidate.text)
    if isinstance(candidate.item, ContextPointer) and candidate.item.result_sha256:
        keys.append(f"sha256:{candidate.item.result_sha256}")
    return keys


# From the specification: above this score, the summary of a large file replaces its text.
_RELEVANT = 0.8

FIRST_CHARS = 1_200
"""Characters of the first part of a long item. Each later part shows twice as much."""

_ALMOST = 1.5  # a text of less than 1.5 parts is shown whole


def next_chars(size: int, chars: int) -> int:
    """Return how many characters of a text the next step shows, after one of `chars`."""
    target = FIRST_CHARS
    while target <= chars:
        target *= 2
    return size if size < target * _ALMOST else target


class Forms:
    """Renders candidates in their forms: whole, a part, a summary or one line.

    Args:
        meter: Counts the blocks.
        query: The request.
        summary_first: Whether the summary of a relevant file replaces its parts, as in the strategy
            `spec`.
    """

    def __init__(self, meter: TokenCounter, query: str, *, summary_first: bool) -> None:
        self._meter = meter
        self._query = query
        self._stems = search_stems(query)
        self._summary_first = summary_first
        self._parts: dict[Candidate, Parts] = {}

    def next_form(self, candidate: Candidate, current: Placement | None) -> Placement | None:
        """Return the form after the current one, which takes more tokens, or None after the last.

        A current form of None asks for the first one.
        """
        # A counter may return 0 for a first form, and 0 must exceed the tokens of no form.
        chars, tokens = (current.chars, current.tokens) if current else (0, -1)
        if self._is_undivided(candidate):
            if candidate.kind == "file" and current is None:
                return self.summary(candidate)
        else:
            while (chars := next_chars(candidate.chars, chars)) < candidate.chars:
                # A part may take no more tokens than the summary that is shown already.
                size = self._parts_of(candidate).smallest_with(chars)
                if size is not None and size.tokens > tokens:
                    return self._part(candidate, size)
        whole = self._whole(candidate)
        return whole if whole.tokens > tokens else None

    def largest_within(
        self, step: Placement, current: Placement | None, *, max_tokens: int
    ) -> Placement | None:
        """Return the largest form between the current one and a step, of at most `max_tokens`."""
        candidate = step.candidate
        max_tokens = min(max_tokens, step.tokens - 1)
        forms: list[Placement] = []
        has_text = candidate.text is not None
        if has_text and step.form != "summary" and not self._is_undivided(candidate):
            size = self._parts_of(candidate).largest_within(max_tokens)
            if size is not None:
                forms.append(self._part(candidate, size))
        if current is None and step.form != "pointer" and candidate.kind in ("file", "output"):
            forms.append(self.line(candidate))
        min_tokens = current.tokens + 1 if current else 0
        fitting = [form for form in forms if min_tokens <= form.tokens <= max_tokens]
        return max(fitting, key=attrgetter("tokens"), default=None)

    def line(self, candidate: Candidate) -> Placement:
        """Return a line with the name of the item, its size, and how to read it."""
        unit = "characters, not shown"
        if candidate.kind == "output":
            unit = "bytes, to be read by the id"
        return self._placement(candidate, "pointer", "", f"{candidate.chars:,} {unit}")

    def summary(self, candidate: Candidate) -> Placement | None:
        """Return the summary of a file or the description of a stored output, or None."""
        text: str | None = ""
        if isinstance(candidate.item, ContextFile):
            text = candidate.item.summary
        elif isinstance(candidate.item, ContextPointer):
            text = candidate.item.digest
        return self._placement(candidate, "summary", text, "summary") if text else None

    def _is_undivided(self, candidate: Candidate) -> bool:
        """Return whether it has no parts: the project, and a file that its summary replaces."""
        if candidate.kind == "project":
            return True
        has_summary = isinstance(candidate.item, ContextFile) and bool(candidate.item.summary)
        return self._summary_first and has_summary and candidate.score.value > _RELEVANT

    def _whole(self, candidate: Candidate) -> Placement:
        return self._placement(candidate, "whole", candidate.text or "")

    def _parts_of(self, candidate: Candidate) -> Parts:
        if candidate not in self._parts:
            self._parts[candidate] = self._divided(candidate)
        return self._parts[candidate]

    def _divided(self, candidate: Candidate) -> Parts:
        text = candidate.text or ""
        # With the longest note, so that no part takes more tokens than counted.
        empty = candidate.block("", _part_note(candidate, len(text), len(text)))
        overhead = self._meter.count(empty.text)

        # As `item_block` shows the piece, which may be longer than the original.
        def count(piece: str) -> int:
            return self._meter.count(without_headings(printable(piece)))

        # Counted on demand, since few items are ever shown nearly whole.
        def whole_tokens() -> int:
            return self._whole(candidate).tokens

        divided: ResultParts | RankedPassages = RankedPassages(text, self._stems)
        if isinstance(candidate.item, ContextPointer):
            name = result_name(candidate.item.tool_name, candidate.item.pointer_id)
            divided = ResultParts(text, text, self._query, table_name=name)
        return divided.parts(count, overhead=overhead, whole_tokens=whole_tokens)

    def _part(self, candidate: Candidate, size: PartSize) -> Placement:
        parts = self._parts_of(candidate)
        part = parts.text(size)
        note = _part_note(candidate, part.chars_shown, candidate.chars)
        form: Form = "passages" if parts.matches else "excerpt"
        block = candidate.block(part.text, note)
        return Placement(candidate, block, part.text, form, size.tokens, part.chars_shown)

    def _placement(self, candidate: Candidate, form: Form, body: str, note: str = "") -> Placement:
        block = candidate.block(body, note)
        chars = candidate.chars if form == "whole" else 0
        return Placement(candidate, block, body, form, self._meter.count(block.text), chars)


def _part_note(candidate: Candidate, chars: int, size: int) -> str:
    """Return the note that the rest of an item is unread. A turn has only marks in its text."""
    if candidate.kind == "turn":
        return ""
    if candidate.kind == "output":
        # Its parts are told in lines of their own, so their characters are not those of the output.
        return f"parts of {size:,} characters; the rest is unread: read it by the id"
    return f"{chars:,} of {size:,} characters; the rest is unread"
