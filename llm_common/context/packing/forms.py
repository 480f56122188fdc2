"""The forms of an item where there is no room for all of it, with their tokens."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

from llm_common.context.bundle import Form
from llm_common.context.packing.candidate import Candidate, Placed
from llm_common.context.pool import ContextFile
from llm_common.core.tokens import TokenCounter, count_tokens
from llm_common.pointers.pointer import ContextPointer
from llm_common.ranking import folded
from llm_common.text.display import excerpt_text

MIN_CUT_TOKENS = 24
"""Tokens below which a part of an item says nothing."""

SAMPLE_CHARS = 600
"""Characters of a text that an estimate is made from."""

_SAMPLES = 4
_MAX_CACHED_CHARS = 8_000_000

_CUTTABLE = frozenset({"turn", "file", "memory", "output"})
_MAX_TRIES = 3
_FULL = 0.97  # a part that takes so much of its room is not cut again
_RELEVANT = 0.8  # S1: from this score on, the summary of a file that is too large goes in instead of it

_MAX_PASSAGE_CHARS = 600
_MIN_PASSAGE_CHARS = 200
_BOUNDARIES = ("\n\n", "\n", "},", ", ", " ")
_MAX_MISSES = 4


class Meter:
    """Caches the counts of another counter, for texts of up to 8 million characters.

    Assumes only that the counter counts equal texts alike. An estimate decides what to count, and replaces no count.
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

    def tokens_per_char(self, texts: Iterable[str]) -> float:
        """Tokens per character in the beginnings of the first few texts; 0.0 without any."""
        sample = "\n".join(text[:SAMPLE_CHARS] for text, _ in zip(texts, range(_SAMPLES), strict=False))
        return self.count(sample) / len(sample) if sample else 0.0


class Passages(NamedTuple):
    """The text to show, and how many of its characters are from the original."""

    text: str
    chars_shown: int


class RankedPassages:
    """A text in passages, ranked once for a request.

    Args:
        text: The text that is too long.
        stems: The stems of the request; see `search_stems`.
    """

    def __init__(self, text: str, stems: Sequence[str]) -> None:
        self._text = text
        self._spans = list(_spans(text))
        self._order = _order(text, self._spans, stems)

    def best(self, *, room: int, count: Callable[[str], int]) -> Passages | None:
        """The passages that hold the rarest stems, then their neighbours, in about `room` tokens.

        Args:
            room: Most tokens of the passages and of the marks between them, each counted by itself.
            count: Counts the tokens of a text.

        Returns:
            The passages, or None when the text holds none of the stems, or when no passage fits.
        """
        text, spans = self._text, self._spans
        mark = count(_mark(len(text)))
        shown: dict[int, int] = {}  # number of a span -> the end of the part that is shown
        left, misses = room - mark, 0
        for number in self._order:
            start, end = spans[number]
            gaps = (number > 0 and number - 1 not in shown) + (number + 1 < len(spans) and number + 1 not in shown) - 1
            size = count(text[start:end])
            cost = size + gaps * mark
            if cost <= left:
                shown[number] = end
                left -= cost
                continue
            room_for_part = left - max(gaps + 1, 1) * mark
            cut = start + (end - start) * room_for_part // max(size, 1)
            if cut > start:
                shown[number] = _cut(text, (start + cut) // 2, cut)
                break
            misses += 1
            if misses > _MAX_MISSES:
                break
        return _join(text, [(spans[number][0], shown[number]) for number in sorted(shown)]) if shown else None


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """The text in passages of 200 to 600 characters that end at a paragraph, a line, an item or a word."""
    start = 0
    while len(text) - start > _MAX_PASSAGE_CHARS:
        end = _cut(text, start + _MIN_PASSAGE_CHARS, start + _MAX_PASSAGE_CHARS)
        yield start, end
        start = end
    yield start, len(text)


def _cut(text: str, start: int, end: int) -> int:
    """The last good place to cut within the range, which is not empty; its end without one."""
    for boundary in _BOUNDARIES:
        found = text.rfind(boundary, start, end)
        if found >= 0:
            return found + len(boundary)
    return end


def _order(text: str, spans: Sequence[tuple[int, int]], stems: Sequence[str]) -> list[int]:
    """The numbers of the spans, the best first; none when no span holds a stem."""
    texts = [folded(text[start:end]) for start, end in spans]
    held = {stem: [number for number, span in enumerate(texts) if stem in span] for stem in stems}
    scores = [0.0] * len(spans)
    for found in held.values():
        for number in found:
            scores[number] += log(1 + len(spans) / len(found))
    hits = [number for number, score in enumerate(scores) if score]
    if not hits:
        return []
    distance = _distances(hits, len(spans))
    return sorted(range(len(spans)), key=lambda number: (-scores[number], distance[number], number))


def _distances(hits: Sequence[int], size: int) -> list[int]:
    """How far each number is from the nearest hit, of which there is at least one."""
    distance: list[int] = []
    for hit, following in pairwise([-size, *hits, 2 * size]):
        distance += [min(number - hit, following - number) for number in range(max(hit, 0), min(following, size))]
    return distance


def _join(text: str, parts: Sequence[tuple[int, int]]) -> Passages:
    pieces: list[str] = []
    at = 0
    for start, end in parts:
        if start > at:
            pieces.append(_mark(start - at, after=pieces))
        pieces.append(text[start:end])
        at = end
    if at < len(text):
        pieces.append(_mark(len(text) - at, after=pieces).rstrip("\n"))
    return Passages("".join(pieces), sum(end - start for start, end in parts))


def _mark(count: int, after: Sequence[str] = ()) -> str:
    begins_line = not after or after[-1].endswith("\n")
    return f"{'' if begins_line else chr(10)}[… {count:,} characters left out …]\n"


class Degradation:
    """Puts candidates into a form that fits: whole, a part, a summary or one line.

    Args:
        meter: Counts the blocks.
        stems: The stems of the request; see `search_stems`.
        summary_first: Whether the summary of a relevant file comes before its passages, as in the strategy `spec`.
    """

    def __init__(self, meter: Meter, stems: Sequence[str], *, summary_first: bool) -> None:
        self._meter = meter
        self._stems = stems
        self._summary_first = summary_first
        self._ranked: dict[str, RankedPassages] = {}

    def whole(self, candidate: Candidate, reason: str) -> Placed | None:
        """All of the item; None when its text was not loaded."""
        return None if candidate.text is None else self._placed(candidate, "whole", candidate.text, "", reason)

    def lesser(self, candidate: Candidate, room: int, reason: str) -> Placed | None:
        """The fullest form below the whole within `room` tokens; None when no form fits."""
        forms: list[Callable[[Candidate, int, str], Placed | None]] = [self.cut, self.line]
        if self._summary_first and isinstance(candidate.item, ContextFile) and candidate.score.value > _RELEVANT:
            forms.reverse()
        return next(filter(None, (form(candidate, room, reason) for form in forms)), None)

    def cut(self, candidate: Candidate, room: int, reason: str) -> Placed | None:
        """The passages that match the request, or head and tail; None when neither fits."""
        text = candidate.text
        if not text or room < MIN_CUT_TOKENS or candidate.kind not in _CUTTABLE:
            return None
        best = None
        inner = room - self._meter.count(candidate.block("", _note(Passages("", len(text)), text)).text)
        density = self._meter.tokens_per_char([text]) or 1.0
        for _ in range(_MAX_TRIES):
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
            if room * _FULL <= placed.tokens <= room:
                break
            inner = inner * room // max(placed.tokens, 1) - (placed.tokens > room)
        return best

    def line(self, candidate: Candidate, room: int, reason: str) -> Placed | None:
        """The summary or a line that names a file or output; None when neither fits."""
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
