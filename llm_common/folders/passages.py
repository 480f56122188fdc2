"""`pack_passages`: the passages of files that answer a question, within a budget of tokens.

A file is divided where its definitions begin, so a passage is a function, a small class, or a part
of a long one. All passages of all files stand in one order, and as many of them are shown as fit.
The order does not depend on the budget: a larger budget shows the same passages and more. The order
is that of weighted fair queueing (Demers, Keshav and Shenker, "Analysis and simulation of a fair
queueing algorithm", 1989): at any budget, files have got characters in proportion to their shares.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from llm_common.context.bundle import (
    FRACTIONS,
    Block,
    BundleMetadata,
    ContextBundle,
    Form,
    ItemAccount,
    frame,
    item_block,
    render_blocks,
)
from llm_common.context.pool import ContextFile
from llm_common.context.request import ContextSelectionRequest, Score, Scores
from llm_common.core.tokens import TokenCounter, count_tokens
from llm_common.folders.folder_search import first_line
from llm_common.folders.symbols import Symbol, symbols_of
from llm_common.ranking.scan import folded, scan

# The longest passage, the steepness and the part of the title were chosen on the issues of the half
# `tune`, see "Finding files" in docs/benchmarks.md. The others are limits.
_MIN_CHARS = 200  # what is smaller belongs to the passage before it
_MAX_CHARS = 1_100  # about what one function has; a longer one is divided
_LINE_END = re.compile(r"\n")
_ABOVE = re.compile(r"[ \t]*(?:@|#|//|/?\*)")  # a decorator or a comment
_FIRST_WORD = re.compile(r"\S")
# up to eight lines, to the colon or brace
_OPENING = re.compile(r"(?:[^\n]{0,300}\n){1,8}?(?<=[:{]\n)|[^\n]{0,300}\n")
_MAX_PARSED_CHARS = 400_000  # 0.1 s of Python's own parser
_MAX_DIVIDED = 30  # files; those after them get no tokens
_STEEPNESS = 8.0  # a file with nine tenths of the best score gets two fifths of its tokens
_TITLE = 0.5  # of the match with the first line, added to that with the whole query
_NAMED_SHARE = 4.0  # of a file that the caller named; the best of the others has 1

Span = tuple[int, int]
"""The first character and the one behind the last."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a file, and the lines that say where it stands: the signatures of what encloses it."""

    span: Span
    context: tuple[Span, ...] = ()

    def __len__(self) -> int:
        return self.span[1] - self.span[0]


@dataclass(slots=True)
class _Candidate:
    """A file on its way into the bundle: its passages in the order in which they are shown, and those that are."""

    file: ContextFile
    score: Score
    share: float
    passages: list[Passage] = field(default_factory=list)
    shown: list[Passage] = field(default_factory=list)
    cost: int = 0

    def block(self) -> tuple[Block, Form, str]:
        """Its block, its form, and the text that is shown."""
        spans, text = _union(self.shown), self.file.content
        shown = sum(end - start for start, end in spans)
        if shown == len(text):
            return (
                item_block("file", self.file.id, heading=self.file.path, body=text),
                "whole",
                text,
            )
        body = _joined(text, spans)
        return (
            item_block(
                "file",
                self.file.id,
                heading=self.file.path,
                body=body,
                note=_note(self.file, shown),
            ),
            "passages",
            body,
        )

    def account(self, form: Form, tokens: int, reason: str) -> ItemAccount:
        """Its account in that form."""
        value, parts, rule = self.score
        worth, chars = value**2 * FRACTIONS[form], len(self.file.content)
        shown = sum(end - start for start, end in _union(self.shown))
        return ItemAccount(
            "file", self.file.id, rule, reason, form, tokens, value, worth, parts, chars, shown
        )


def pack_passages(
    files: Sequence[ContextFile],
    scores: Scores,
    request: ContextSelectionRequest,
    *,
    named: Collection[str] = (),
    max_files: int | None = None,
    min_score: float = 0.0,
) -> ContextBundle:
    """The bundle of the passages that answer the request, never over its budget.

    A file's share of the tokens is a power of its score over the best one. A larger budget never
    shows less of a file.

    Args:
        files: The files to choose from, best first; their lines end with line feeds.
        scores: The score of each; the rule `mentioned` becomes the reason.
        request: The question, the budget, and the counter.
        named: Ids of the files that the caller named: they go first, and get more than the best of
            the others.
        max_files: Most files to show; None for as many as fit.
        min_score: Files that score less are left out, unless the caller named them.
    """
    top = max(
        (scores["file", file.id].value for file in files if file.id not in named), default=0.0
    )
    candidates = [
        _Candidate(
            file,
            score,
            _NAMED_SHARE if file.id in named else (score.value / top) ** _STEEPNESS if top else 0.0,
        )
        for file in files
        for score in [scores["file", file.id]]
    ]
    # stable: those that the caller named stay in the caller's order
    candidates.sort(key=lambda each: -each.share)
    above = [each for each in candidates if each.file.id in named or each.score.value >= min_score]
    able = above[:max_files]
    _rank_passages(able[:_MAX_DIVIDED], request.intent.text)
    _show(able, request.counter, request.token_budget)
    reasons = dict.fromkeys([each.file.id for each in above], "limit_reached")
    reasons |= {each.file.id: "no_room" if each.file.content else "empty" for each in able}
    return _bundle(candidates, request, reasons)


def _rank_passages(candidates: Sequence[_Candidate], query: str) -> None:
    """Divides the files, and orders the passages of each: the best match first, then those nearest to it."""
    parsed = 0
    for each in candidates:
        path, text = each.file.path, each.file.content
        parsed += len(text) if each.file.language == "python" else 0
        each.passages = list(
            _passages(text, symbols_of(path, text, parse=parsed <= _MAX_PARSED_CHARS))
        )
    texts = [
        (folded(each.file.content[slice(*passage.span)]),)
        for each in candidates
        for passage in each.passages
    ]
    whole, title = (scan(view, texts, weights=(1.0,)) for view in (query, first_line(query)))
    values = (value + _TITLE * more for value, more in zip(whole, title, strict=True))
    for each in candidates:
        found = [next(values) for _ in each.passages]
        best = max(range(len(found)), key=found.__getitem__, default=0)
        order = sorted(
            range(len(found)), key=lambda number: (-found[number], abs(number - best), number)
        )
        each.passages = [each.passages[number] for number in order]


def _passages(text: str, symbols: Sequence[Symbol]) -> Iterator[Passage]:
    """The text in passages of at least 200 characters that begin at definitions, or at blank lines in a long one."""
    lines = [0, *(match.end() for match in _LINE_END.finditer(text))]
    starts = [lines[line] for line in _first_lines(text, lines, symbols)]
    parents = _parents(symbols)
    begin = 0
    for end in [*(start for start in starts if len(text) - start >= _MIN_CHARS), len(text)]:
        if end - begin < _MIN_CHARS and end < len(text):
            continue
        while end - begin > _MAX_CHARS:
            cut = _cut(text, begin + _MIN_CHARS, min(begin + _MAX_CHARS, end - _MIN_CHARS))
            yield Passage((begin, cut), tuple(_signatures(text, begin, lines, symbols, parents)))
            begin = cut
        if end > begin:
            yield Passage((begin, end), tuple(_signatures(text, begin, lines, symbols, parents)))
            begin = end


def _first_lines(text: str, lines: Sequence[int], symbols: Sequence[Symbol]) -> Iterator[int]:
    """The line where the comments and decorators above each definition begin.

    Each line is read once.
    """
    firsts: dict[int, int] = {}
    for symbol in symbols:
        line = symbol.line - 1
        while line and line not in firsts and _ABOVE.match(text, lines[line - 1]):
            line -= 1
        # a heading is a definition and looks like a comment
        firsts[symbol.line - 1] = line = firsts.get(line, line)
        yield line


def _parents(symbols: Sequence[Symbol]) -> list[int]:
    """The number of the last definition before each that is indented less; -1 without one."""
    parents: list[int] = []
    for number, symbol in enumerate(symbols):
        parent = number - 1
        while parent >= 0 and symbols[parent].indent >= symbol.indent:
            parent = parents[parent]
        parents.append(parent)
    return parents


def _cut(text: str, start: int, end: int) -> int:
    """The end of the last paragraph within the range, else of the last line, else the end of the range."""
    for boundary in ("\n\n", "\n"):
        found = text.rfind(boundary, start, end)
        if found >= 0:
            return found + len(boundary)
    return end


def _signatures(
    text: str, start: int, lines: Sequence[int], symbols: Sequence[Symbol], parents: Sequence[int]
) -> Iterator[Span]:
    """The lines that open the definitions around a place, found by their indentation.

    Innermost first.
    """
    first = _FIRST_WORD.search(text, start)
    level = first.start() - text.rfind("\n", 0, first.start()) - 1 if first else 0
    number = bisect_left(symbols, start, key=lambda symbol: lines[symbol.line - 1]) - 1
    while number >= 0 and level:
        symbol, number = symbols[number], parents[number]
        if symbol.indent < level:
            level = symbol.indent
            opened = _OPENING.match(text, lines[symbol.line - 1])
            if opened and opened.end() <= start:
                yield opened.span()


def _show(candidates: Sequence[_Candidate], counter: TokenCounter, budget: int) -> None:
    """Shows passages in their common order until one does not fit."""
    queue: list[tuple[float, int, int]] = []
    for place, each in enumerate(candidates):
        chars = 0
        for number, passage in enumerate(each.passages):
            chars += len(passage)
            queue.append((chars / each.share if each.share else inf, place, number))
    sizes = _Sizes(counter)
    left = budget - sizes.count(frame(["file"]))
    shown: list[_Candidate] = []
    for _, place, number in sorted(queue):
        each, passage = candidates[place], candidates[place].passages[number]
        cost = sizes.cost(each, passage)
        while cost - each.cost > left and not shown and len(passage) > _MIN_CHARS:
            # The first of all is cut: a small budget shows something.
            start = passage.span[0]
            passage = Passage(
                (
                    start,
                    _cut(each.file.content, start + len(passage) // 4, start + len(passage) // 2),
                )
            )
            cost = sizes.cost(each, passage)
        if cost - each.cost > left:
            break
        left -= cost - each.cost
        each.cost = cost
        each.shown.append(passage)
        shown.append(each)
        if passage is not each.passages[number]:
            break
    # The sum of the parts is hardly ever less than the count of the whole, but a caller's counter
    # may differ.
    while (
        shown
        and count_tokens(
            counter, render_blocks([each.block()[0] for each in candidates if each.shown])
        )
        > budget
    ):
        shown.pop().shown.pop()


class _Sizes:
    """Counts what is shown of a file as the sum of its parts, each of which is counted once."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._counts: dict[str, int] = {}

    def count(self, text: str) -> int:
        if text not in self._counts:
            self._counts[text] = count_tokens(self._counter, text)
        return self._counts[text]

    def cost(self, candidate: _Candidate, further: Passage) -> int:
        """Tokens of the file with the passages that are shown and a further one."""
        text, size = candidate.file.content, len(candidate.file.content)
        passages = [*candidate.shown, further]
        parts = {span for each in passages for span in (each.span, *each.context)}
        gaps = len(_union(passages)) + 1
        file = candidate.file
        heading = item_block("file", "", heading=file.path, body="", note=_note(file, size)).text
        return (
            self.count(heading)
            + gaps * self.count(_mark(size))
            + sum(self.count(text[start:end]) for start, end in parts)
        )


def _union(passages: Sequence[Passage]) -> list[Span]:
    """What the passages show, in the order of the text, joined where it touches."""
    joined: list[Span] = []
    for start, end in sorted({span for each in passages for span in (each.span, *each.context)}):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _note(file: ContextFile, shown: int) -> str:
    return f"{shown:,} of {len(file.content):,} characters"


def _joined(text: str, spans: Sequence[Span]) -> str:
    """The spans with a mark in the place of what is between them."""
    pieces: list[str] = []
    for (_, before), (start, end) in pairwise([(0, 0), *spans, (len(text), len(text))]):
        if start > before:
            pieces.append(
                ("" if not pieces or pieces[-1].endswith("\n") else "\n") + _mark(start - before)
            )
        pieces.append(text[start:end])
    return "".join(pieces)


def _mark(count: int) -> str:
    return f"[… {count:,} characters left out …]\n"


def _bundle(
    candidates: Sequence[_Candidate], request: ContextSelectionRequest, reasons: Mapping[str, str]
) -> ContextBundle:
    intent = request.intent.classification
    kept = [each for each in candidates if each.shown]
    shown = [each.block() for each in kept]
    blocks = tuple(block for block, _, _ in shown)
    tokens = [count_tokens(request.counter, block.text) for block in blocks]
    total = count_tokens(request.counter, render_blocks(blocks)) if blocks else 0
    return ContextBundle(
        turns=(),
        files=tuple(
            each.file
            if form == "whole"
            else each.file.model_copy(update={"content": text, "tokens": size})
            for each, (_, form, text), size in zip(kept, shown, tokens, strict=True)
        ),
        memory=(),
        project=None,
        outputs=(),
        blocks=blocks,
        kept=tuple(
            each.account(form, size, "mentioned" if each.score.rule == "mentioned" else "share")
            for each, (_, form, _), size in zip(kept, shown, tokens, strict=True)
        ),
        dropped=tuple(
            each.account("left_out", 0, reasons.get(each.file.id, "below_cut_off"))
            for each in candidates
            if not each.shown
        ),
        metadata=BundleMetadata(
            total_tokens=total,
            budget=request.token_budget,
            budget_utilization=total / request.token_budget,
            selection_strategy=f"intent:{intent} budget:{request.token_budget} strategy:{request.strategy}",
            files_selected=len(kept),
            turns_selected=0,
            memory_selected=0,
            outputs_selected=0,
            intent=intent,
            strategy=request.strategy,
        ),
    )
