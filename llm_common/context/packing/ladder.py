"""The forms that an item can take where there is no room for all of it, from the fullest down."""

from collections.abc import Callable, Sequence

from llm_common.context.bundle import Form
from llm_common.context.packing.candidate import Candidate, Placed
from llm_common.context.packing.meter import Meter
from llm_common.context.packing.passages import Passages, RankedPassages
from llm_common.context.pool import ContextFile
from llm_common.pointers.pointer import ContextPointer
from llm_common.text.excerpt import excerpt_text

__all__ = ["LEAST_CUT", "Ladder"]

LEAST_CUT = 24
"""Tokens below which a part of an item tells nothing."""

_CUTTABLE = frozenset({"turn", "file", "memory", "output"})
_TRIES = 3
_FULL_ENOUGH = 0.97
_RELEVANT = 0.8  # S1: from this score on, the summary of a file that is too big goes in instead of it


class Ladder:
    """Makes the forms of candidates, measured.

    Args:
        meter: Counts the blocks.
        stems: What the request looks for; see `search_stems`.
        summary_first: Whether the summary of a relevant file comes before its passages, as the strategy `spec` wants.
    """

    def __init__(self, meter: Meter, stems: Sequence[str], *, summary_first: bool) -> None:
        self._meter = meter
        self._stems = stems
        self._summary_first = summary_first
        self._ranked: dict[str, RankedPassages] = {}

    def whole(self, candidate: Candidate, reason: str) -> Placed | None:
        """All of the item; None when there is no text of it."""
        if candidate.text is None:
            return None
        block = candidate.whole()
        return Placed(candidate, block, candidate.text, "whole", self._meter.count(block.text), reason)

    def lesser(self, candidate: Candidate, room: int, reason: str) -> Placed | None:
        """The fullest form below the whole that fits the room, None when none does."""
        forms: list[Callable[[Candidate, int, str], Placed | None]] = [self.cut, self.line]
        if self._summary_first and isinstance(candidate.item, ContextFile) and candidate.score.value > _RELEVANT:
            forms.reverse()
        return next(filter(None, (form(candidate, room, reason) for form in forms)), None)

    def cut(self, candidate: Candidate, room: int, reason: str) -> Placed | None:
        """The passages that fit the request, or head and tail, in the room; None when it is too small for either."""
        text = candidate.text
        if not text or room < LEAST_CUT or candidate.kind not in _CUTTABLE:
            return None
        best = None
        inner = room - self._meter.count(candidate.block("", _note(Passages("", len(text)), text)).text)
        density = self._meter.tokens_per_char([text]) or 1.0
        for _ in range(_TRIES):
            if inner <= 0:
                break
            form, part = self._part(text, inner, density)
            if part.chars_shown == len(text):
                form, note = "whole", ""
            else:
                note = _note(part, text)
            placed = self._placed(candidate, form, part.text, note, reason)
            if placed.tokens <= room and (best is None or placed.tokens > best.tokens):
                best = placed
            if room * _FULL_ENOUGH <= placed.tokens <= room:
                break
            inner = inner * room // max(placed.tokens, 1) - (placed.tokens > room)
        return best

    def line(self, candidate: Candidate, room: int, reason: str) -> Placed | None:
        """The summary, else one line that names the item, whichever is there and fits; only files and outputs."""
        item = candidate.item
        if isinstance(item, ContextFile):
            note, summary = f"{len(item.content):,} characters, not shown", item.summary or ""
        elif isinstance(item, ContextPointer):
            note, summary = f"{item.result_bytes or 0:,} bytes, to be read by the id", item.digest
        else:
            return None
        placed = None
        if summary:
            placed = self._placed(candidate, "summary", summary, "summary", reason)
        if placed is None or not placed.tokens <= room:
            placed = self._placed(candidate, "pointer", "", note, reason)
        return placed if placed.tokens <= room else None

    def _part(self, text: str, inner: int, density: float) -> tuple[Form, Passages]:
        ranked = self._ranked.get(text)
        if ranked is None:
            ranked = self._ranked[text] = RankedPassages(text, self._stems)
        passages = ranked.best(room=inner, count=self._meter.count)
        if passages is not None:
            return "passages", passages
        part = excerpt_text(text, int(inner / density))
        return "excerpt", Passages(part.text, part.chars_shown)

    def _placed(self, candidate: Candidate, form: Form, body: str, note: str, reason: str) -> Placed:
        block = candidate.block(body, note)
        return Placed(candidate, block, body, form, self._meter.count(block.text), reason)


def _note(part: Passages, text: str) -> str:
    return f"{part.chars_shown:,} of {len(text):,} characters"
