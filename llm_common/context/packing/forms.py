"""The forms of an item where there is no room for all of it, with their tokens."""

from collections.abc import Sequence
from math import inf
from operator import attrgetter

from llm_common.context.bundle import Form
from llm_common.context.packing.candidate import Candidate, Placement
from llm_common.context.pool import ContextFile
from llm_common.core.tokens import TokenCounter, count_tokens
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking.passages import PartSize, PartSizes, RankedPassages
from llm_common.text.display import printable, without_headings

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
