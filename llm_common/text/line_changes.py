"""The lines that differ between two texts, by the greedy algorithm of Myers (1986).

`difflib` takes cubic time on texts of repeated lines. The steps of this algorithm are the lines
times the differences. Only few differences are worth showing, so it stops at a limit.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

_MAX_EDITS: Final = 200  # more lines do not fit the place of a preview
_MAX_STEPS: Final = 2_000_000  # about a second


def line_changes(old: str, new: str, *, max_chars: int) -> str | None:
    """Return the lines that went and came with their numbers, or None if they are too many.

    A line that went is `-` with its number in the old text, and a line that came is `+` with its
    number in the new text, each followed by `: ` and the line.

    Args:
        old: The old text.
        new: The new text, which differs.
        max_chars: Maximum characters of the answer.
    """
    old_lines, new_lines = old.split("\n"), new.split("\n")
    edits = _edits(old_lines, new_lines)
    if not edits:
        return None
    removed = sum(sign == "-" for sign, _ in edits)
    summary = (
        f"{len(old_lines):,} lines before, {len(new_lines):,} now: {removed:,} went (-), "
        f"{len(edits) - removed:,} came (+), the others are the same."
    )
    lines = [summary]
    chars = 0
    for sign, index in edits:
        content = old_lines[index] if sign == "-" else new_lines[index]
        chars += len(content) + 1
        if chars > max_chars:
            return None
        lines.append(f"{sign}{index + 1}: {content}")
    return "\n".join(lines)


def _edits(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int]] | None:
    """Return the indexes of the lines that went and came, or None if they are too many."""
    pairs = zip(old, new, strict=False)
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    max_end = min(len(old), len(new)) - start
    end = 0
    while end < max_end and old[-1 - end] == new[-1 - end]:
        end += 1
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    if abs(len(middle_old) - len(middle_new)) > _MAX_EDITS:
        return None
    trace = _search(middle_old, middle_new)
    if trace is None:
        return None
    return [(sign, index + start) for sign, index in _path(trace, middle_old, middle_new)]


def _search(old: Sequence[str], new: Sequence[str]) -> list[dict[int, int]] | None:
    """Return how far each diagonal reaches after 0, 1, 2 … edits, until one reaches the end."""
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    steps = 0
    for edits in range(min(len(old) + len(new), _MAX_EDITS) + 1):
        trace.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            x = _start_of(reach, diagonal, edits)
            first = x
            while x < len(old) and x - diagonal < len(new) and old[x] == new[x - diagonal]:
                x += 1
            reach[diagonal] = x
            if x >= len(old) and x - diagonal >= len(new):
                return trace
            steps += 1 + x - first
            if steps > _MAX_STEPS:
                return None
    return None


def _start_of(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Return where a path on a diagonal begins after its last edit."""
    if _is_insertion(reach, diagonal, edits):
        return reach[diagonal + 1]
    return reach[diagonal - 1] + 1


def _is_insertion(reach: dict[int, int], diagonal: int, edits: int) -> bool:
    if diagonal == -edits:
        return True
    return diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1]


def _path(
    trace: list[dict[int, int]], old: Sequence[str], new: Sequence[str]
) -> list[tuple[str, int]]:
    """Return the edits of the path that the search found, in the order of the lines."""
    path: list[tuple[str, int]] = []
    x, y = len(old), len(new)
    for edits in range(len(trace) - 1, 0, -1):
        reach = trace[edits]
        diagonal = x - y
        if _is_insertion(reach, diagonal, edits):
            x = reach[diagonal + 1]
            y = x - (diagonal + 1)
            path.append(("+", y))
        else:
            x = reach[diagonal - 1]
            y = x - (diagonal - 1)
            path.append(("-", x))
    return path[::-1]
