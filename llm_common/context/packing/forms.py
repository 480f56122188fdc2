"""The forms of an item where there is no room for all of it, with their tokens."""

from collections.abc import Sequence
from math import inf
from operator import attrgetter

from llm_common.context.bundle import Form
from llm_common.context.packing.candidate import Candidate, Placed
from llm_common.context.pool import ContextFile
from llm_common.core.tokens import TokenCounter, count_tokens
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking.passages import Growth, RankedPassages, State, next_chars
from llm_common.text.display import printable, without_headings

_MAX_CACHED_CHARS = 8_000_000
# S1: from this score on, the summary of a file that is too large goes in instead of it
_RELEVANT = 0.8


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
        """The tokens of the text, by the counter."""
        tokens = self._counts.get(text)
        if tokens is None:
            tokens = count_tokens(self._counter, text)
            self._cached_chars += len(text)
            if self._cached_chars > _MAX_CACHED_CHARS:
                self._counts, self._cached_chars = {}, len(text)
            self._counts[text] = tokens
        return tokens


class Forms:
    """Puts candidates into a form: whole, a part, a summary or one line.

    Args:
        meter: Counts the blocks.
        stems: The stems of the request; see `search_stems`.
        summary_first: Whether the summary of a relevant file goes in instead of parts, as in the
            strategy `spec`.
    """

    def __init__(self, meter: Meter, stems: Sequence[str], *, summary_first: bool) -> None:
        self._meter = meter
        self._stems = stems
        self._summary_first = summary_first
        self._grown: dict[Candidate, tuple[RankedPassages, Growth]] = {}

    def fuller(self, candidate: Candidate, now: Placed | None) -> Placed | None:
        """The form of the step that follows `now`, in more tokens; None when there is none."""
        shown, least = (now.chars, now.tokens) if now else (0, -inf)
        if self._is_undivided(candidate):
            summary = self.summary(candidate) if candidate.kind == "file" and now is None else None
            return summary or self._more(self._whole(candidate), least)
        size = len(candidate.text or "")
        while (shown := next_chars(size, shown)) < size:
            state = self._growth(candidate).upto(shown)
            if state is not None and state.tokens > least:
                return self._part(candidate, state)
        return self._more(self._whole(candidate), least)

    def lesser(self, step: Placed, now: Placed | None, *, room: int) -> Placed | None:
        """The fullest form between `now` and that of a step, of at most `room` tokens.

        None without one.
        """
        candidate = step.candidate
        found: list[Placed] = []
        if (
            step.form != "summary"
            and candidate.text is not None
            and not self._is_undivided(candidate)
        ):
            state = self._growth(candidate).within(min(room, step.tokens - 1))
            found += [self._part(candidate, state)] if state else []
        if now is None and step.form != "pointer" and candidate.kind in ("file", "output"):
            found.append(self.line(candidate))
        least = now.tokens if now else -inf
        able = [each for each in found if least < each.tokens <= room and each.tokens < step.tokens]
        return max(able, key=attrgetter("tokens"), default=None)

    def line(self, candidate: Candidate) -> Placed:
        """A line that names the item, how large it is, and how it is read."""
        unit = (
            "bytes, to be read by the id" if candidate.kind == "output" else "characters, not shown"
        )
        return self._placed(candidate, "pointer", "", f"{candidate.chars:,} {unit}")

    def summary(self, candidate: Candidate) -> Placed | None:
        """The summary of a file, or what is known of a stored output; None without one."""
        item = candidate.item
        text = (
            item.summary
            if isinstance(item, ContextFile)
            else item.digest
            if isinstance(item, ContextPointer)
            else ""
        )
        return self._placed(candidate, "summary", text, "summary") if text else None

    def _is_undivided(self, candidate: Candidate) -> bool:
        """Whether it has no parts: the project, and a file whose summary stands for it."""
        if candidate.kind == "project":
            return True
        item = candidate.item
        has_summary = isinstance(item, ContextFile) and bool(item.summary)
        return self._summary_first and has_summary and candidate.score.value > _RELEVANT

    def _more(self, placed: Placed, least: float) -> Placed | None:
        return placed if placed.tokens > least else None

    def _whole(self, candidate: Candidate) -> Placed:
        return self._placed(candidate, "whole", candidate.text or "")

    def _growth(self, candidate: Candidate) -> Growth:
        if candidate not in self._grown:
            text = candidate.text or ""
            passages = RankedPassages(text, self._stems)
            empty = candidate.block("", _note(candidate, len(text), len(text)))
            growth = Growth(
                passages,
                len(text),
                count=lambda piece: self._meter.count(without_headings(printable(piece))),
                overhead=self._meter.count(empty.text),
                whole=lambda: self._whole(candidate).tokens,
            )
            self._grown[candidate] = passages, growth
        return self._grown[candidate][1]

    def _part(self, candidate: Candidate, state: State) -> Placed:
        passages, _ = self._grown[candidate]
        part = passages.join(state.pieces)
        note = _note(candidate, part.chars_shown, len(passages.text))
        form: Form = "passages" if passages.matches else "excerpt"
        block = candidate.block(part.text, note)
        return Placed(candidate, block, part.text, form, state.tokens, part.chars_shown)

    def _placed(self, candidate: Candidate, form: Form, body: str, note: str = "") -> Placed:
        block = candidate.block(body, note)
        chars = candidate.chars if form == "whole" else 0
        return Placed(candidate, block, body, form, self._meter.count(block.text), chars)


def _note(candidate: Candidate, shown: int, size: int) -> str:
    """How much is shown, and that the rest has not been read.

    Nothing for a turn, whose marks say what is missing.
    """
    if candidate.kind == "turn":
        return ""
    way = ": read it by the id" if candidate.kind == "output" else ""
    return f"{shown:,} of {size:,} characters; the rest is unread{way}"
