"""The items of a pool on their way into a bundle, and the forms that each can take."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
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
from llm_common.context.request import (
    ContextFile,
    DataPoolSnapshot,
    Kind,
    MemorySnippet,
    ProjectState,
    Score,
    Scores,
    TurnEntry,
)
from llm_common.core.tokens import TokenCounter, count_tokens
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking.passages import PartSize, PartSizes, RankedPassages
from llm_common.text.display import printable, without_headings

REFUSED = frozenset({"excluded", "below_cut_off", "not_required", "unavailable"})
"""Rules that keep an item out."""

_Item = TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer

# Rules whose items are placed before the rest, in this order.
_TIERS = {"mentioned": 0, "pinned": 1}
_RANKED_TIER = len(_TIERS)

# By score per token, many short items that touch on a request would drive out the one that answers
# it. Of 1.0 to 3.0, bfcl_memory loses below 2.0 and qmsum above.
_POWER = 2.0
# Added to the value of an item of the previous bundle: what replaces it must score a fifth higher.
_HYSTERESIS = 0.5
_MAX_SCORE = 1e6  # keeps sums of squares finite
_UNSCORED = Score(0.0)
# Characters of a turn or an output. A short one, such as "Yes.", may be repeated.
_MIN_REPEATED = 200


@dataclass(slots=True, eq=False)
class Candidate:
    """An item with its score.

    Attributes:
        heading: Where it comes from, in one line.
        group: The heading that it shares with its neighbours: the day of a turn, where a
            conversation has several.
        text: Its whole text. None for an output that was not loaded.
        value: The value of all of it, by its score. Higher when the previous bundle had it.
        previous_place: Its place in the previous bundle, or None.
        tier: 0 for what the user mentioned, 1 for what is pinned, 2 for the rest.
        reason: Why it stays out, where its rule does not say so.
        same_as: A candidate that is shown and has the same text.
    """

    kind: Kind
    id: str
    item: _Item
    score: Score
    heading: str
    group: str = ""
    text: str | None = None
    value: float = 0.0
    previous_place: int | None = None
    tier: int = _RANKED_TIER
    reason: str = "no_room"
    same_as: "Candidate | None" = None

    @property
    def chars(self) -> int:
        """Characters there are to show, about: the bytes of an output that was not loaded."""
        if self.text is not None:
            return len(self.text)
        return (self.item.result_bytes or 0) if isinstance(self.item, ContextPointer) else 0

    @property
    def duplicate_reason(self) -> str:
        """The reason that names the candidate with the same text, or ""."""
        return f"same as {self.same_as.kind} {self.same_as.id}" if self.same_as else ""

    def left_out(self) -> ItemAccount:
        """Return the account of the item as left out."""
        value, parts, rule = self.score
        reason = rule if rule in REFUSED else self.duplicate_reason or self.reason
        return ItemAccount(
            self.kind, self.id, rule, reason, "left_out", 0, value, 0.0, parts, self.chars
        )

    def block(self, body: str, note: str = "") -> Block:
        """Return its block with that body, and a note behind the heading."""
        return item_block(
            self.kind, self.id, heading=self.heading, body=body, note=note, group=self.group
        )


@dataclass(frozen=True, slots=True)
class Placement:
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
            _value_of(score) * FRACTIONS[self.form],
            score.parts,
            candidate.chars,
            self.chars,
        )


def _value_of(score: Score) -> float:
    """Return the value of a whole item: 0 for a score that is negative or NaN."""
    return min(score.value, _MAX_SCORE) ** _POWER if score.value > 0 else 0.0


def candidates_of(
    pool: DataPoolSnapshot, scores: Scores, previous: ContextBundle | None
) -> list[Candidate]:
    """Return every item of the pool: by section, mentioned and pinned first, then by score.

    Turns of equal score are in the order of their age, newest first. The order of the pool does not
    matter.
    """
    previous_places: dict[tuple[Kind, str], int] = {}
    for place, account in enumerate(previous.kept if previous else ()):
        previous_places[account.kind, account.id] = place
    sections: dict[Kind, list[Candidate]] = {kind: [] for kind in KINDS}
    for candidate in _unscored(pool):
        key = (candidate.kind, candidate.id)
        candidate.score = scores.get(key, _UNSCORED)
        candidate.value = _value_of(candidate.score)
        candidate.tier = _TIERS.get(candidate.score.rule, _RANKED_TIER)
        if key in previous_places:
            candidate.previous_place = previous_places[key]
            candidate.value *= 1.0 + _HYSTERESIS
        sections[candidate.kind].append(candidate)
    ordered: list[Candidate] = []
    for section in sections.values():
        # Sorts are stable: equal values stay in the order in which `_unscored` yields them.
        section.sort(key=attrgetter("value"), reverse=True)
        section.sort(key=attrgetter("tier"))
        ordered += section
    return ordered


def _unscored(pool: DataPoolSnapshot) -> Iterator[Candidate]:
    """Yield every item: turns newest first, the others of a kind by id."""
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
                lines.append(f"{name}: {value if isinstance(value, str) else '; '.join(value)}")
        text = "\n".join(lines)
        yield Candidate("project", project.name, project, _UNSCORED, project.name, text=text)


class Duplicates:
    """Finds items that have the same text, so that it is packed once.

    Two files of one text are not the same, since their paths differ. Neither are two short turns,
    or two short outputs.
    """

    def __init__(self) -> None:
        self._first: dict[str, Candidate] = {}
        self._keys: dict[Candidate, list[str]] = {}

    def add(self, candidate: Candidate) -> None:
        """Note that the candidate is shown."""
        for key in self._keys_of(candidate):
            self._first.setdefault(key, candidate)

    def repeats(self, candidate: Candidate) -> bool:
        """Return whether one that is shown has the same text, but for white space and case.

        `same_as` is then that one.
        """
        keys = self._keys_of(candidate)
        first = next((self._first[key] for key in keys if key in self._first), None)
        if first is None or first is candidate or first.kind == candidate.kind == "file":
            return False
        if first.kind == candidate.kind in ("turn", "output") and candidate.chars < _MIN_REPEATED:
            return False
        candidate.same_as = first
        return True

    def _keys_of(self, candidate: Candidate) -> list[str]:
        """Return its text without white space and case, and the digest of a stored output."""
        keys = self._keys.get(candidate)
        if keys is not None:
            return keys
        keys = []
        if candidate.text and (folded := "".join(candidate.text.split()).casefold()):
            keys.append(folded)
        if isinstance(candidate.item, ContextPointer) and candidate.item.result_sha256:
            keys.append(f"sha256:{candidate.item.result_sha256}")
        if candidate.text is not None:  # an output that is not loaded has no text yet
            self._keys[candidate] = keys
        return keys


_MAX_CACHED_CHARS = 8_000_000
# S1: from this score on, the summary of a file that is too large goes in instead of it.
_RELEVANT = 0.8

FIRST_CHARS = 1_200
"""Characters of the first part of a long item. Each part after it shows twice as much."""

_ALMOST = 1.5  # a text that is longer than a part by less is shown whole


class Meter:
    """Caches the counts of another counter, for texts of up to 8 million characters.

    Assumes only that the counter counts equal texts alike. An estimate decides what to count, and
    replaces no count.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._counts: dict[str, int] = {}
        self._cached_chars = 0

    def count(self, text: str) -> int:
        """Return the tokens of the text, by the counter."""
        tokens = self._counts.get(text)
        if tokens is None:
            tokens = count_tokens(self._counter, text)
            self._cached_chars += len(text)
            if self._cached_chars > _MAX_CACHED_CHARS:
                self._counts, self._cached_chars = {}, len(text)
            self._counts[text] = tokens
        return tokens


def next_chars(size: int, shown: int) -> int:
    """Return how many characters of a text the step shows that follows `shown` of them."""
    target = FIRST_CHARS
    while target <= shown:
        target *= 2
    return size if size < target * _ALMOST else target


class Forms:
    """Puts candidates into a form: whole, a part, a summary or one line.

    Args:
        meter: Counts the blocks.
        stems: The stems of the request. See `search_stems`.
        summary_first: Whether the summary of a relevant file goes in instead of parts, as in the
            strategy `spec`.
    """

    def __init__(self, meter: Meter, stems: Sequence[str], *, summary_first: bool) -> None:
        self._meter = meter
        self._stems = stems
        self._summary_first = summary_first
        self._parts: dict[Candidate, tuple[RankedPassages, PartSizes]] = {}

    def next_form(self, candidate: Candidate, current: Placement | None) -> Placement | None:
        """Return the form of the step that follows the current one, or None after the last.

        It takes more tokens.
        """
        chars = current.chars if current else 0
        tokens = current.tokens if current else -inf
        if self._is_undivided(candidate):
            if candidate.kind == "file" and current is None:
                return self.summary(candidate)
        else:
            while (chars := next_chars(candidate.chars, chars)) < candidate.chars:
                size = self._parts_of(candidate)[1].smallest_with(chars)
                if size is not None and size.tokens > tokens:
                    return self._part(candidate, size)
        whole = self._whole(candidate)
        return whole if whole.tokens > tokens else None

    def largest_within(
        self, step: Placement, current: Placement | None, *, max_tokens: int
    ) -> Placement | None:
        """Return the largest form between the current one and that of a step, or None.

        It takes at most `max_tokens`.
        """
        candidate = step.candidate
        max_tokens = min(max_tokens, step.tokens - 1)
        forms: list[Placement] = []
        has_text = candidate.text is not None
        if has_text and step.form != "summary" and not self._is_undivided(candidate):
            size = self._parts_of(candidate)[1].largest_within(max_tokens)
            if size is not None:
                forms.append(self._part(candidate, size))
        if current is None and step.form != "pointer" and candidate.kind in ("file", "output"):
            forms.append(self.line(candidate))
        tokens = current.tokens if current else -inf
        fitting = [form for form in forms if tokens < form.tokens <= max_tokens]
        return max(fitting, key=attrgetter("tokens"), default=None)

    def line(self, candidate: Candidate) -> Placement:
        """Return a line that names the item, how large it is, and how it is read."""
        unit = "characters, not shown"
        if candidate.kind == "output":
            unit = "bytes, to be read by the id"
        return self._placement(candidate, "pointer", "", f"{candidate.chars:,} {unit}")

    def summary(self, candidate: Candidate) -> Placement | None:
        """Return the summary of a file, or the description of a stored output. None without one."""
        text: str | None = ""
        if isinstance(candidate.item, ContextFile):
            text = candidate.item.summary
        elif isinstance(candidate.item, ContextPointer):
            text = candidate.item.digest
        return self._placement(candidate, "summary", text, "summary") if text else None

    def _is_undivided(self, candidate: Candidate) -> bool:
        """Return whether it has no parts: the project, and a file whose summary stands for it."""
        if candidate.kind == "project":
            return True
        has_summary = isinstance(candidate.item, ContextFile) and bool(candidate.item.summary)
        return self._summary_first and has_summary and candidate.score.value > _RELEVANT

    def _whole(self, candidate: Candidate) -> Placement:
        return self._placement(candidate, "whole", candidate.text or "")

    def _parts_of(self, candidate: Candidate) -> tuple[RankedPassages, PartSizes]:
        if candidate not in self._parts:
            text = candidate.text or ""
            passages = RankedPassages(text, self._stems)
            empty = candidate.block("", _part_note(candidate, len(text), len(text)))
            sizes = PartSizes(
                passages,
                count=lambda piece: self._meter.count(without_headings(printable(piece))),
                overhead=self._meter.count(empty.text),
                whole_tokens=lambda: self._whole(candidate).tokens,
            )
            self._parts[candidate] = passages, sizes
        return self._parts[candidate]

    def _part(self, candidate: Candidate, size: PartSize) -> Placement:
        passages, _ = self._parts_of(candidate)
        part = passages.join(size.pieces)
        note = _part_note(candidate, part.chars_shown, len(passages.text))
        form: Form = "passages" if passages.matches else "excerpt"
        block = candidate.block(part.text, note)
        return Placement(candidate, block, part.text, form, size.tokens, part.chars_shown)

    def _placement(self, candidate: Candidate, form: Form, body: str, note: str = "") -> Placement:
        block = candidate.block(body, note)
        chars = candidate.chars if form == "whole" else 0
        return Placement(candidate, block, body, form, self._meter.count(block.text), chars)


def _part_note(candidate: Candidate, shown: int, size: int) -> str:
    """Return how much is shown, and that the rest has not been read.

    Nothing for a turn, whose marks say what is missing.
    """
    if candidate.kind == "turn":
        return ""
    note = f"{shown:,} of {size:,} characters; the rest is unread"
    return f"{note}: read it by the id" if candidate.kind == "output" else note
