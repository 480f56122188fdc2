"""The parts of a text that fit a request best, in their order, with marks that count what is missing."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import log
from typing import NamedTuple

from llm_common.ranking import folded

__all__ = ["Passages", "RankedPassages"]

_LONGEST = 600
_SHORTEST = 200
_BOUNDARIES = ("\n\n", "\n", "},", ", ", " ")
_MAX_MISSES = 4


class Passages(NamedTuple):
    """The text to show, and how many of its characters are the original's."""

    text: str
    chars_shown: int


class RankedPassages:
    """A text in passages, ranked once for a request, to be shown in as much room as there is.

    Args:
        text: What is too long.
        stems: What to look for; see `search_stems`.
    """

    def __init__(self, text: str, stems: Sequence[str]) -> None:
        self._text = text
        self._spans = list(_spans(text))
        self._order = _order(text, self._spans, stems)

    def best(self, *, room: int, count: Callable[[str], int]) -> Passages | None:
        """The passages that hold the rarest stems, then their neighbours, in about `room` tokens.

        Args:
            room: Tokens that the passages and the marks between them may take, by the sum of the parts.
            count: Counts the tokens of a text.

        Returns:
            The passages, or None when the text holds none of the stems or not even one passage fits.
        """
        text, spans = self._text, self._spans
        mark = count(_mark(len(text)))
        shown: dict[int, int] = {}  # number of a span -> where what is shown of it ends
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
    while len(text) - start > _LONGEST:
        end = _cut(text, start + _SHORTEST, start + _LONGEST)
        yield start, end
        start = end
    yield start, len(text)


def _cut(text: str, start: int, end: int) -> int:
    """The last good place to cut within the range, which is not empty; its end when there is none."""
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
