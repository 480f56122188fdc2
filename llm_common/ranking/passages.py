"""Passages of a text around the words of a request, as many as a room allows.

A part of a text grows piece by piece, in an order that no room decides: what a smaller room shows,
a larger one shows too.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from math import inf, log
from typing import NamedTuple

from llm_common.ranking.scan import folded, places_of

# times the characters of a part: only a text that is shorter may take fewer tokens whole
_COUNTED_WHOLE = 4

FIRST_CHARS = 1_200
"""Characters of the first part of a long item; each part after it shows twice as much."""

_ALMOST = 1.5  # a text that is longer than a part by less is shown whole

_SPAN_CHARS = (200, 600)
_PIECE_CHARS = (40, 100)
_BOUNDARIES = ("\n\n", "\n", "},", ", ", " ")


class Passages(NamedTuple):
    """The text to show, and how many of its characters are from the original."""

    text: str
    chars_shown: int


class State(NamedTuple):
    """A part of a text: its first so many pieces, with their characters and tokens."""

    pieces: int
    chars: int
    tokens: int


class RankedPassages:
    """A text in passages, ranked once for a request.

    Args:
        text: The text that is too long.
        stems: The stems of the request; see `search_stems`.
    """

    def __init__(self, text: str, stems: Sequence[str]) -> None:
        self.text = text
        self._spans = list(_spans(text, 0, len(text), _SPAN_CHARS))
        texts = [folded(text[start:end]) for start, end in self._spans]
        self._stems = _Stems(stems, texts)
        self._order = _order(self._stems.weigh(texts))
        self.matches = bool(self._order)
        """Whether the text holds one of the stems."""
        self._pieces: list[tuple[int, int]] = []
        self._waiting = self._revealed()

    def best(self, *, room: int, count: Callable[[str], int]) -> Passages | None:
        """The passages that hold the rarest stems, then their neighbours, in about `room` tokens.

        A passage that is longer than the room is cut around its stems. A larger room shows the same
        and more.

        Args:
            room: Most tokens of the passages and of the marks between them, each counted by itself.
            count: Counts the tokens of a text.

        Returns:
            The passages, or None when the text holds none of the stems, or when no passage fits.
        """
        state = (
            Growth(self, len(self.text), count=count, overhead=0).within(room)
            if self.matches
            else None
        )
        return self.join(state.pieces) if state else None

    def piece(self, number: int) -> tuple[int, int] | None:
        """Start and end of the piece that is shown after so many others.

        None when all of them are shown.
        """
        if number == len(self._pieces):
            self._pieces.extend(islice(self._waiting, 1))
        return self._pieces[number] if number < len(self._pieces) else None

    def _revealed(self) -> Iterator[tuple[int, int]]:
        text, spans = self.text, self._spans
        shown: set[int] = set()
        for number in self._order or _from_both_ends(len(spans)):
            pieces = list(_spans(text, *spans[number], _PIECE_CHARS))
            matches = self._stems.weigh([folded(text[start:end]) for start, end in pieces])
            at = matches.index(max(matches))
            if (
                not matches[at]
                and number - 1 not in shown
                and (number + 1 in shown or 0 < number == len(spans) - 1)
            ):
                at = len(pieces) - 1  # beside what follows
            shown.add(number)
            for place in sorted(
                range(len(pieces)), key=lambda place: (abs(place - at), place < at)
            ):
                yield pieces[place]

    def join(self, size: int) -> Passages:
        """The first so many revealed pieces in the order of the text, with marks for what is missing."""
        text, at = self.text, 0
        found: list[str] = []
        for start, end in sorted(self._pieces[:size]):
            if start > at:
                found.append(_mark(start - at, after=found))
            found.append(text[start:end])
            at = end
        if at < len(text):
            found.append(_mark(len(text) - at, after=found).rstrip("\n"))
        return Passages("".join(found), sum(end - start for start, end in self._pieces[:size]))


def next_chars(size: int, shown: int) -> int:
    """How many of a text's characters are shown after the step that follows `shown` of them."""
    target = FIRST_CHARS
    while target <= shown:
        target *= 2
    return size if size < target * _ALMOST else target


class Growth:
    """How a part of a text grows: each state shows what the state before it shows, in more tokens.

    Args:
        passages: The text.
        size: Its characters.
        count: Counts the tokens of a piece and of a mark.
        overhead: Tokens around the text.
        whole: Gives the tokens of the whole text, which every part takes fewer of.
    """

    def __init__(
        self,
        passages: RankedPassages,
        size: int,
        *,
        count: Callable[[str], int],
        overhead: int,
        whole: Callable[[], float] = lambda: inf,
    ) -> None:
        self._passages = passages
        self._size = size
        self._count = count
        self._overhead = overhead
        self._whole = whole
        self._mark = count(_mark(size))
        self._states: list[State] = []
        self._pieces = self._chars = self._tokens = 0
        self._gaps = 1
        self._edges = {0, size}

    def upto(self, chars: int) -> State | None:
        """The first state that shows so many characters; None when there is no such part."""
        return next((state for state in self._all() if state.chars >= chars), None)

    def within(self, room: int) -> State | None:
        """The last state before the first that takes more than the room."""
        last = None
        for state in self._all():
            if state.tokens > room:
                break
            last = state
        return last

    def _all(self) -> Iterator[State]:
        yield from self._states
        while state := self._next():
            yield state

    def _next(self) -> State | None:
        """The next state, with as many pieces more as it takes for more tokens."""
        while piece := self._passages.piece(self._pieces):
            self._pieces += 1
            start, end = piece
            self._gaps += 1 - (start in self._edges) - (end in self._edges)
            self._edges.update(piece)
            self._chars += end - start
            self._tokens += self._count(self._passages.text[start:end])
            state = State(
                self._pieces, self._chars, self._overhead + self._tokens + self._gaps * self._mark
            )
            is_more = state.tokens > (self._states[-1].tokens if self._states else 0)
            if self._chars < self._size and is_more and not self._takes_more_than_whole(state):
                self._states.append(state)
                return state
        return None

    def _takes_more_than_whole(self, state: State) -> bool:
        return state.chars * _COUNTED_WHOLE >= self._size and state.tokens >= self._whole()


def _spans(text: str, start: int, stop: int, sizes: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """That part of a text in spans of a smallest to a largest size, which end at a paragraph, a line or a word.

    The last one may be as much larger as the smallest.
    """
    least, most = sizes
    while stop - start > most:
        end = _cut(text, start + least, start + most)
        if stop - end < least:
            break  # the note of what is missing would be longer than the rest
        yield start, end
        start = end
    yield start, stop


def _cut(text: str, start: int, end: int) -> int:
    """The last good place to cut within the range, which is not empty; its end without one."""
    for boundary in _BOUNDARIES:
        found = text.rfind(boundary, start, end)
        if found >= 0:
            # a space begins a word: so tokenizers count, too
            return found + len(boundary.rstrip(" "))
    return end


class _Stems:
    """Weighs texts by the stems that they hold, the rarer the more.

    Words count as in the ranking. Only where no text holds one, letters within other words do:
    `user` in `getUser`.

    Args:
        stems: The stems of the request.
        texts: The folded texts that tell how rare a stem is.
    """

    def __init__(self, stems: Sequence[str], texts: Sequence[str]) -> None:
        for self._find in (places_of, _places_within):
            counts = {stem: len(self._find(stem, texts)) for stem in stems}
            if any(counts.values()):
                break
        self._weights = {
            stem: log(1 + len(texts) / count) for stem, count in counts.items() if count
        }

    def weigh(self, texts: Sequence[str]) -> list[float]:
        """The weight of each folded text, 0 for one without a stem."""
        weights = [0.0] * len(texts)
        for stem, weight in self._weights.items():
            for place in self._find(stem, texts):
                weights[place] += weight
        return weights


def _places_within(stem: str, texts: Sequence[str]) -> list[int]:
    return [place for place, text in enumerate(texts) if stem in text]


def _order(scores: Sequence[float]) -> list[int]:
    """The numbers of the spans, the best first; none when no span holds a stem."""
    hits = [number for number, score in enumerate(scores) if score]
    if not hits:
        return []
    distance = _distances(hits, len(scores))
    return sorted(
        range(len(scores)), key=lambda number: (-scores[number], distance[number], number)
    )


def _distances(hits: Sequence[int], size: int) -> list[int]:
    """How far each number is from the nearest hit, of which there is at least one."""
    distance: list[int] = []
    for hit, following in pairwise([-size, *hits, 2 * size]):
        distance += [
            min(number - hit, following - number)
            for number in range(max(hit, 0), min(following, size))
        ]
    return distance


def _from_both_ends(size: int) -> list[int]:
    """The numbers below a size: two from the beginning, then one from the end."""
    return sorted(range(size), key=lambda number: (min(number / 2, size - 1 - number), number))


def _mark(count: int, after: Sequence[str] = ()) -> str:
    begins_line = not after or after[-1].endswith("\n")
    return f"{'' if begins_line else chr(10)}[… {count:,} characters left out …]\n"
