"""Passages of a text: where they begin and end, and which are nearest to a question."""

from dataclasses import dataclass

from llm_common.ranking.lexical import LexicalIndex

__all__ = ["Passage", "nearest_passages", "split_passages"]

_FEWEST_LINES = 6
_MOST_LINES = 28


@dataclass(frozen=True, slots=True)
class Passage:
    """Neighbouring lines of a text; the first line of a text is 1."""

    first_line: int
    lines: tuple[str, ...]

    @property
    def last_line(self) -> int:
        """Number of the last line."""
        return self.first_line + len(self.lines) - 1

    @property
    def text(self) -> str:
        """The lines as they stand in the text."""
        return "\n".join(self.lines)


def split_passages(text: str) -> list[Passage]:
    """The text in passages of 6 to 28 lines that begin, where there is such a line, at an unindented one.

    Together they are the whole text, in order; only the last may be shorter.
    """
    passages: list[Passage] = []
    lines = text.splitlines()
    start = 0
    for number in range(1, len(lines) + 1):
        long_enough = number - start >= _FEWEST_LINES
        after_gap = number < len(lines) and not lines[number - 1].strip() and not lines[number][:1].isspace()
        if number == len(lines) or number - start >= _MOST_LINES or (long_enough and after_gap and lines[number]):
            passages.append(Passage(start + 1, tuple(lines[start:number])))
            start = number
    return passages


def nearest_passages(text: str, question: str, *, max_chars: int) -> list[Passage]:
    """The passages that share most with the question, best first; what does not fit is passed over.

    Args:
        text: What to read.
        question: What to look for. Where no passage has a word of it, the text's beginning is taken.
        max_chars: Limit for the sum of their characters; only the best passage may exceed it.
    """
    passages = split_passages(text)
    with LexicalIndex({"text": 1.0}) as index:
        index.add_many((str(place), {"text": passage.text}) for place, passage in enumerate(passages))
        hits = index.search(question, limit=len(passages)) if passages else []
    ranked = [passages[int(hit.key)] for hit in hits] or passages[:1]
    chosen: list[Passage] = []
    room = max_chars
    for passage in ranked:
        if len(passage.text) <= room or not chosen:
            chosen.append(passage)
            room -= len(passage.text)
    return chosen
