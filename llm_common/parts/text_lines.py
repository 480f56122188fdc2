"""`TextLines`: the lines of a text, and which of them contain a word, and `failures_in`.

A line tells of a failure by its form: a level such as `ERROR`, an error's name at the beginning, a
mark of a test runner or a compiler, or a phrase of a shell. "0 errors" and `error_handler.py` tell
of none. A block has the lines around it that belong to it, such as a stack trace.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Final

from llm_common.ranking.lexical import folded


class TextLines:
    """The lines of a text, found by their words in time that is linear in the text.

    Args:
        text: The text. Its lines end with line feeds.

    Attributes:
        lines: The lines.
        is_ascii: Whether no letter has an accent or is of another script.
    """

    def __init__(self, text: str) -> None:
        self._text = text.removesuffix("\n")  # which ends the last line, and begins no other
        self.lines = self._text.split("\n")
        self.is_ascii = text.isascii()

    @cached_property
    def _starts(self) -> list[int]:
        return _starts_of(self.lines)

    @cached_property
    def _folded(self) -> tuple[str, list[int]]:
        """The text in lower case without accents, and where its lines begin."""
        text = folded(self._text)
        starts = self._starts if len(text) == len(self._text) else _starts_of(text.split("\n"))
        return text, starts

    def as_written(self, word: str) -> frozenset[int]:
        """Return the indexes of the lines that contain a word as it is written."""
        return _lines_with(word, self._text, self._starts, is_word=True)

    def in_any_case(self, word: str, *, is_word: bool = True) -> frozenset[int]:
        """Return the indexes of the lines that contain a folded word, or letters of a word."""
        text, starts = self._folded
        if len(starts) != len(self.lines):  # a letter has become a line end
            return frozenset()
        return _lines_with(word, text, starts, is_word=is_word)


def _starts_of(lines: Sequence[str]) -> list[int]:
    return list(accumulate((len(line) + 1 for line in lines[:-1]), initial=0))


def _lines_with(word: str, text: str, starts: Sequence[int], *, is_word: bool) -> frozenset[int]:
    lines: set[int] = set()
    position = text.find(word)
    while position >= 0:
        end = position + len(word)
        if not is_word or (_is_edge(text, position) and _is_edge(text, end)):
            index = bisect_right(starts, position) - 1
            lines.add(index)
            end = starts[index + 1] if index + 1 < len(starts) else len(text)
        position = text.find(word, end)
    return frozenset(lines)


def _is_edge(text: str, index: int) -> bool:
    """Return whether a word may begin or end at an index."""
    if index in (0, len(text)):
        return True
    return not (_is_letter(text[index - 1]) and _is_letter(text[index]))


def _is_letter(char: str) -> bool:
    return char.isalnum() or char == "_"


_READ_CHARS: Final = 400  # of a line
MAX_FAILURES: Final = 2_000
"""Maximum blocks that are read."""

_MAX_BLOCK_LINES: Final = 14
_MAX_LINES_BEFORE: Final = 6

# Only lines with one of these letters are read.
_HINTS: Final = (
    *("error", "err!", "fail", "fatal", "panic", "exception", "traceback", "denied", "abort"),
    *("fault", "killed", "not found", "cannot find", "could not", "unable to", "undefined ref"),
    *("not ok", "critical", "severe", "refused", "timed out", "no such", "unhandled"),
    *("exit", "out of memory", "caused by", "core dumped", "terminated", "cannot connect"),
    *(
        "assert",
        "stopped",
        "unexpected",
        "\u25cf",
        "\u2715",
        "\u2716",
        "\u2717",
        "\u2718",
        "\u00d7",
    ),
)
_FAILED: Final = re.compile(
    # marks of runners, compilers and shells at the beginning
    r"^\s*(?:Traceback \(most recent call last\)|Caused by: |Exception in thread |panic: "
    r"|thread '.{0,80}' panicked|npm (?:ERR!|error) |not ok \d|--- FAIL|FAIL(?:ED)?\b"
    r"|E {3,}\S|[\u2715-\u2718\u00d7] |\u25cf .{1,200} \u203a |\d+:\d+ +error )"
    # the name of an error, which is indented in documentation
    r"|^(?:[\w.]+\.)?(?:[A-Z]\w*)?(?:Error|Exception)(?::|$| response)|^\s*\w*Error \[ERR_\w+\]:"
    # a level or the word `error` with its sign
    r"|(?:^|[\s\[(:|<])(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC)(?:[\s\]:|>]|$)"
    r"|(?:^|[\s\[:])(?i:(?:fatal |internal |syntax |compile |runtime )?error)"
    r"(?:\[\w{1,12}\]|\s(?:[A-Z]{1,6}|\#)?\d{1,6})?(?::| -)(?:\s|$)|\[(?:error|fatal)\](?:\s|$)"
    r"|\blevel=[\"']?(?i:error|fatal|critical|panic)\b|(?:^|\s)(?i:fatal): "
    # outcomes
    r"|\s(?:FAILED|FAIL)\b(?!\s*[=:]\s*0)|\b(?i:build|command|job|step|test|tests) (?i:failed)\b"
    r"|\bUNEXPECTED\b|BUILD FAILURE|build stopped|\*\*\* \[.{1,200}\] Error \d"
    r"|\b[1-9]\d* (?:failed|failing|failures?|errors?)\b(?![.\-/]\w)"
    r"|\bexit(?:ed)?(?: with| code| status){1,2}:? [1-9]\d{0,2}\b|\+ exit [1-9]"
    r"|(?i:segmentation fault|core dumped|bus error|out of memory|assertion failed)"
    r"|^\s*(?:Killed|Aborted|Terminated)\b"
)
# Phrases of programs. A line that says that it warns or informs tells of no failure by them.
_PHRASES: Final = re.compile(
    r"^(?:\w[\w./-]{0,40}: )?[Ff]ailed to |(?i:command not found|no such file or directory"
    r"|permission denied|connection refused|cannot connect"
    r"|undefined reference|unhandled (?:exception|rejection)|cannot find (?:module|symbol|name)"
    r"|timed out|(?:could not|unable to) (?:find|resolve|connect|open|read))"
)
_MILD: Final = re.compile(r"\b(?:(?i:warn(?:ing)?)|INFO|DEBUG|TRACE)\b")
_NONE: Final = re.compile(
    r"\b(?:0|no|zero|without|ignored)\s+(?:\w+\s+)?(?:errors?|failures?|failed|exceptions?)\b"
    r"|\b(?:errors?|failures?|failed|fail)\s*[:=]\s*0\b",
    re.IGNORECASE,
)
# A test that was skipped, or was expected to fail, did not. Its reason may speak of errors, as may
# the source of a program.
_PASSED: Final = re.compile(
    r"^\s*(?:[\u2713\u2714]|ok\b|PASS\b)|(?:\bok|\bPASS(?:ED)?|\bpassed|[\u2713\u2714])\s*(?:\[.{0,9}\])?$"
    r"|(?:^|\s)(?:XFAIL|SKIP(?:PED)?)\b|\.{3} (?:skipped|expected failure|ignored)\b"
    r"|\s\#\s(?i:todo|skip)\b|\u2716 \d+ problems? \(0 errors"
    # the format of a message in a program
    r"|[\"'`][^\"'`]*%[dfqrsvx+][^\"'`]*[\"'`]"
)
# What belongs to the line before it: a deeper line, a marked one, a further cause.
_GOES_ON: Final = re.compile(
    r"\s+\S|-->|[|^>]|at \S|Caused by|During handling|E {3}|\d+ +\||\.\.\."
)
# Go and pytest print the details before the verdict.
_VERDICTS: Final = ("---", "FAIL", "E ")
_NUMBERS: Final = re.compile(r"\d+|0x[0-9a-fA-F]+")


def failures_in(text: TextLines) -> list[range]:
    """Return the blocks that tell of a failure: one of each kind first, single lines before others.

    One failure may have several blocks, such as a traceback and its line in a summary.

    Args:
        text: The lines of the text.

    Returns:
        Ranges of indexes of lines, none of which overlap, at most `MAX_FAILURES`.
    """
    blocks: list[range] = []
    counts: Counter[str] = Counter()
    ranks: list[int] = []
    for index in failed_lines(text):
        end = blocks[-1].stop if blocks else 0
        if index < end:
            continue
        if len(blocks) == MAX_FAILURES:
            break
        blocks.append(_block(text.lines, index, after=end))
        kind = _NUMBERS.sub("0", text.lines[index][:_READ_CHARS])
        counts[kind] += 1
        ranks.append(counts[kind])

    def order(index: int) -> tuple[int, bool, int]:
        # The lines of a summary name all that failed in the room of one traceback.
        return ranks[index], len(blocks[index]) > 1, index

    return [blocks[index] for index in sorted(range(len(blocks)), key=order)]


def failed_lines(text: TextLines) -> Iterator[int]:
    """Yield the indexes of the lines that tell of a failure."""
    hinted: set[int] = set()
    for hint in _HINTS:
        hinted |= text.in_any_case(hint, is_word=False)
    for index in sorted(hinted):
        line = text.lines[index][:_READ_CHARS]
        if not _PASSED.search(line) and (
            _FAILED.search(_NONE.sub("", line))
            or (_PHRASES.search(line) and not _MILD.search(line))
        ):
            yield index


def _block(lines: Sequence[str], index: int, *, after: int) -> range:
    """Return the lines around a failed one that belong to it."""
    first = index
    if lines[index].lstrip().startswith(_VERDICTS):
        while first > max(after, index - _MAX_LINES_BEFORE) and lines[first - 1][:1].isspace():
            first -= 1
    last = index
    is_trace = lines[index].lstrip().startswith("Traceback")
    while last + 1 < len(lines) and last - first < _MAX_BLOCK_LINES:
        if not _GOES_ON.match(lines[last + 1]):
            # The line that ends a traceback of Python says what was raised.
            last += is_trace
            break
        last += 1
    return range(first, last + 1)
