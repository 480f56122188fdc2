"""Pack the passages of files that answer a question within a token budget: `pack_passages`.

A file is divided where its definitions begin, so a passage is a function, a small class, or a part
of a long one. `parts/passages.py` divides stored outputs, which have no definitions. A file of
records is shown like a stored output of records: by ever larger parts, each in place of the one
before.

All passages of all files have one common order, and as many as fit are packed. The order does not
depend on the budget, so a larger budget keeps all passages and adds more. It is the order of
weighted fair queueing (Demers, Keshav and Shenker, "Analysis and simulation of a fair queueing
algorithm", 1989): at any budget, files have got characters in proportion to their shares.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import merge
from math import exp, sqrt
from operator import attrgetter, itemgetter
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from llm_common.context.bundle import (
    Block,
    ContextBundle,
    Form,
    ItemAccount,
    bundle_of,
    item_block,
)
from llm_common.context.request import ContextFile, ContextSelectionRequest, Score, Scores
from llm_common.core.tokens import CountedOnce
from llm_common.folders.candidates import Definition, FolderQuestion
from llm_common.folders.pack_text import NumberedLines, PackFormat
from llm_common.folders.symbols import Symbol, symbols_of
from llm_common.parts.fill import Cached, Parts, PartSize, fill
from llm_common.parts.passages import gap_mark, join_spans
from llm_common.parts.result_parts import ResultParts
from llm_common.ranking.lexical import folded, scan_stems

# `_MAX_CHARS`, `_STEEPNESS`, `_MIN_MATCH`, `_ALWAYS_SHOWN` and `_TITLE` were chosen on the half
# `tune`, see "Finding files" in docs/benchmarks.md. The others are limits.
_MIN_CHARS = 200  # a shorter definition belongs to the passage before it
_MAX_CHARS = 1_100  # about the size of one function; a longer passage is divided
_LINE_END = re.compile(r"\n")
_ABOVE = re.compile(r"[ \t]*(?:@|#|//|/?\*)")  # a decorator or a comment
# A file that scores .2 less than the best one gets 37 % of its tokens. By the difference, since a
# score is a sum: a folder without code has no scores of code, and its files differ no less for it.
_STEEPNESS = 5.0
# Of the best passage's match, times the square root of its file's share. What is below is noise,
# even if the budget has room for it.
_MIN_MATCH = 0.18
_ALWAYS_SHOWN = 3  # files that keep their best passage
_TITLE = 0.5  # the weight of the match with the query's title
# The share of a file that the caller named, and of the definitions that the query names. The best
# other file has 1.
_NAMED_SHARE = 4.0
_TREE_SHARE = 0.1  # of the budget, for the file tree
_MAX_NAMED_CHARS = 6_000  # about a fifth of the default budget; a longer definition is divided
_RECORD_SUFFIXES: Final = frozenset({".csv", ".tsv", ".json", ".jsonl", ".ndjson"})
# About 1,000 tokens. A smaller file is packed like any other, and mostly whole.
_MIN_RECORD_CHARS = 4_000
_RECORDS_MATCH = 1.0  # that of the best passage by words, since the parts have what is asked first

_FILES_ONLY = PackFormat()

Span = tuple[int, int]
"""The index of the first character, and the index after the last."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a file.

    Attributes:
        span: Its span. For a part of records, the characters that it adds to the part before it.
        size: The size of a part of records.
    """

    span: Span
    size: PartSize | None = None

    def __len__(self) -> int:
        return self.span[1] - self.span[0]


class _Shown(NamedTuple):
    """The packed passages of a file: their text, a note for the heading, and the form."""

    body: str
    note: str
    form: Form


class _Records:
    """A file that is packed as parts of its records, which have what the question names first.

    Args:
        file: The file.
        result: Its records.
        count: Counts the tokens of a text.
    """

    def __init__(self, file: ContextFile, result: ResultParts, count: Callable[[str], int]) -> None:
        self._text = file.content
        self._note = f"parts of {len(self._text):,} characters"
        # Counted on demand, since few files are ever shown whole.
        self._whole_tokens: Callable[[], int] = lambda: count(_block(file, self._text).text)
        self._parts: Parts = result.parts(
            lambda part: count(_block(file, part, self._note).text),
            overhead=0,
            whole_tokens=self._whole_tokens,
        )

    def passages(self) -> Iterator[Passage]:
        """Yield the parts, each larger than the one before it, and then the whole file."""
        chars = 0
        for size in self._parts:
            yield Passage((chars, size.chars), size=size)
            chars = size.chars
        total = len(self._text)
        yield Passage((chars, total), size=PartSize(total, total, self._whole_tokens()))

    def shown(self, packed: Sequence[Passage]) -> _Shown:
        """Return the largest packed part."""
        size = packed[-1].size
        if size is None or size.chars == len(self._text):
            return _Shown(self._text, "", "whole")
        return _Shown(self._parts.text(size).text, self._note, "passages")


@dataclass(slots=True)
class _Candidate:
    """A file that may go into the bundle.

    Attributes:
        share: The share of the tokens, relative to the shares of the other files.
        records: Its records, if it is packed by them.
        numbered: Its text with line numbers, or None to show it without.
        of_named: The passages of definitions that the query names.
        passages: The other passages, in the order in which they are packed. Parts of records are
            made on demand.
        reason: Why it is left out, if it is.
    """

    file: ContextFile
    score: Score
    share: float
    records: _Records | None = None
    numbered: NumberedLines | None = None
    of_named: Sequence[Passage] = ()
    passages: Iterable[Passage] = ()
    reason: str = "limit_reached"

    def shown(self, packed: Sequence[Passage]) -> _Shown:
        """Return the packed passages, with a mark for each gap."""
        if self.records is not None:
            return self.records.shown(packed)
        total = len(self.file.content)
        spans = _union(packed)
        chars = sum(end - start for start, end in spans)
        if chars == total:
            return _Shown(self.part(0, chars), "", "whole")
        body = join_spans(self.file.content, spans, part=self.part)
        return _Shown(body, _note(chars, total), "passages")

    def part(self, start: int, end: int) -> str:
        """Return a part of the text as it is shown."""
        if self.numbered is None:
            return self.file.content[start:end]
        return self.numbered.part(start, end)

    def account(
        self, packed: Sequence[Passage], form: Form, tokens: int, reason: str
    ) -> ItemAccount:
        """Return the file's account."""
        value, parts, rule = self.score
        chars_shown = sum(end - start for start, end in _union(packed))
        return ItemAccount(
            kind="file",
            id=self.file.id,
            rule=rule,
            reason=reason,
            form=form,
            tokens=tokens,
            score=value,
            parts=parts,
            chars=len(self.file.content),
            chars_shown=chars_shown,
        )


def pack_passages(
    files: Sequence[ContextFile],
    scores: Scores,
    request: ContextSelectionRequest,
    question: FolderQuestion,
    *,
    named: Collection[str] = (),
    max_files: int | None = None,
    pack_format: PackFormat = _FILES_ONLY,
) -> ContextBundle:
    """Return the bundle of the passages that answer the request, never over its budget.

    A file's share of the tokens falls exponentially as its score falls below the best one.
    Definitions that the query names come first. Passages that match far less than the best one are
    left out, even if there is room. A larger budget never has less of a file.

    Args:
        files: The files to choose from, best first. Their lines end with line feeds.
        scores: The score of each file. The rule `mentioned` becomes the reason.
        request: The budget and the counter.
        question: The question.
        named: Ids of the files that the caller named. They come first and have the largest share.
        max_files: Maximum number of files in the bundle. None for as many as fit.
        pack_format: What the text has beside the files, within the budget.
    """
    unnamed = [file for file in files if file.id not in named]
    top = max((scores["file", file.id].value for file in unnamed), default=0.0)
    candidates: list[_Candidate] = []
    for file in files:
        score = scores["file", file.id]
        share = exp(_STEEPNESS * (score.value - top))
        if file.id in named:
            share = _NAMED_SHARE
        candidates.append(_Candidate(file, score, share))
    # The sort is stable, so named files keep the caller's order.
    candidates.sort(key=attrgetter("share"), reverse=True)

    eligible = candidates[:max_files]
    sizes = CountedOnce(request.counter)
    _rank_passages(eligible, question, sizes)
    for candidate in eligible:
        if not candidate.file.content:
            candidate.reason = "empty"
        elif candidate.of_named or candidate.passages:
            candidate.reason = "no_room"
        else:
            candidate.reason = "poor_match"
        if pack_format.line_numbers and candidate.records is None:
            candidate.numbered = NumberedLines(candidate.file.content)
    return _pack(candidates, eligible, sizes, request, pack_format)


def _rank_passages(
    candidates: Sequence[_Candidate], question: FolderQuestion, sizes: CountedOnce
) -> None:
    """Divide the files, and sort the passages of each by match.

    Passages of named definitions come first. Those that match far less than the best passage of
    all files are dropped, unless the file is named or one of the three best.
    """
    definitions = _divide(candidates, question, sizes)
    named: defaultdict[str, list[Span]] = defaultdict(list)
    for definition in question.named(definitions):
        start, end = definition.span
        if end - start <= _MAX_NAMED_CHARS:
            named[definition.path].append(definition.span)
    matches_by_file = _matches(candidates, question)
    min_value = 0.0
    for candidate, matches in zip(candidates, matches_by_file, strict=True):
        value = sqrt(candidate.share) * max(matches, default=0.0)
        min_value = max(min_value, _MIN_MATCH * value)
    for rank, (candidate, matches) in enumerate(zip(candidates, matches_by_file, strict=True)):
        min_match = 0.0
        if candidate.score.rule != "mentioned":
            min_match = min_value / sqrt(candidate.share)
        if rank < _ALWAYS_SHOWN:
            min_match = min(min_match, max(matches, default=0.0))
        if candidate.records is None:
            _sort_passages(candidate, matches, named[candidate.file.path], min_match)
        elif min_match > _RECORDS_MATCH:
            candidate.passages = ()


def _divide(
    candidates: Sequence[_Candidate], question: FolderQuestion, sizes: CountedOnce
) -> list[Definition]:
    """Divide the files into passages, and return their definitions."""
    definitions: list[Definition] = []
    for candidate in candidates:
        path, text = candidate.file.path, candidate.file.content
        suffix = PurePosixPath(path).suffix.lower()
        if suffix in _RECORD_SUFFIXES and len(text) >= _MIN_RECORD_CHARS:
            result = ResultParts(text, text, question.text)
            if result.has_records:
                candidate.records = _Records(candidate.file, result, sizes.count)
                candidate.passages = Cached(candidate.records.passages())
                continue
        outline = _Outline(text, symbols_of(path, text))
        candidate.passages = list(_passages(outline))
        definitions += _definitions(path, outline)
    return definitions


def _matches(candidates: Sequence[_Candidate], question: FolderQuestion) -> list[list[float]]:
    """Return the match of each passage with the query and its title, by file."""
    texts: list[str] = []
    for candidate in candidates:
        if candidate.records is None:
            for passage in candidate.passages:
                texts.append(folded(candidate.file.content[slice(*passage.span)]))
    by_query = scan_stems(question.stems, [texts], weights=(1.0,))
    by_title = scan_stems(question.title_stems, [texts], weights=(1.0,))
    rest = zip(by_query, by_title, strict=True)
    matches: list[list[float]] = []
    for candidate in candidates:
        if candidate.records is None:
            of_file = zip(candidate.passages, rest, strict=False)
            matches.append([whole + _TITLE * title for _, (whole, title) in of_file])
        else:
            matches.append([_RECORDS_MATCH])
    return matches


def _sort_passages(
    candidate: _Candidate, matches: Sequence[float], named: Collection[Span], min_match: float
) -> None:
    """Sort the passages of a file by match, and drop poor matches, unless they are named."""
    of_named: list[Passage] = []
    others: list[Passage] = []
    by_match = sorted(zip(matches, candidate.passages, strict=True), key=lambda pair: -pair[0])
    for match, passage in by_match:
        start, end = passage.span
        if any(start < named_end and named_start < end for named_start, named_end in named):
            of_named.append(passage)
        elif match >= min_match:
            others.append(passage)
    candidate.of_named = of_named
    candidate.passages = others


class _Outline:
    """A text with its definitions, and the place of each among the lines, which is found once.

    Attributes:
        text: The text.
        symbols: The definitions.
        lines: Where each line begins, and the end of the text.
        firsts: The first line of each definition, from 0, with what belongs to it above.
        parents: The index of the definition that encloses each, or -1.
    """

    def __init__(self, text: str, symbols: Sequence[Symbol]) -> None:
        self.text = text
        self.symbols = symbols
        self.lines = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
        self.firsts = list(_first_lines(text, self.lines, symbols))
        self.parents = _parents(symbols)


def _definitions(path: str, outline: _Outline) -> Iterator[Definition]:
    """Yield the definitions of a file."""
    lines, symbols = outline.lines, outline.symbols
    for index, symbol in enumerate(symbols):
        first, end = outline.firsts[index], len(lines) - 1
        for later in range(index + 1, len(symbols)):
            if symbols[later].indent <= symbol.indent:
                end = outline.firsts[later]
                break
        parent = outline.parents[index]
        parent_name = symbols[parent].name if parent >= 0 else ""
        yield Definition(path, symbol.name, parent_name, (lines[first], lines[end]))


def _passages(outline: _Outline) -> Iterator[Passage]:
    """Yield passages that begin at definitions, or at blank lines in a long definition."""
    text = outline.text
    for start, end in _spans_of_definitions(outline):
        begin = start
        while end - begin > _MAX_CHARS:
            cut = _cut(text, begin + _MIN_CHARS, min(begin + _MAX_CHARS, end - _MIN_CHARS))
            yield Passage((begin, cut))
            begin = cut
        if end > begin:
            yield Passage((begin, end))


def _spans_of_definitions(outline: _Outline) -> Iterator[Span]:
    """Yield spans that cover the text and begin at definitions, none of them short.

    A short definition belongs to the span before it, and so does a short end of the text.
    """
    begin, end_of_text = 0, len(outline.text)
    for line in outline.firsts:
        start = outline.lines[line]
        if start - begin >= _MIN_CHARS and end_of_text - start >= _MIN_CHARS:
            yield begin, start
            begin = start
    yield begin, end_of_text


def _first_lines(text: str, lines: Sequence[int], symbols: Sequence[Symbol]) -> Iterator[int]:
    """Yield the first line of each definition, including decorators and comments above it.

    Each line is matched once, so a long run of comments takes linear time.
    """
    firsts: dict[int, int] = {}
    for symbol in symbols:
        line = symbol.line - 1
        while line and line not in firsts and _ABOVE.match(text, lines[line - 1]):
            line -= 1
        if line in firsts:  # a Markdown heading, which is a definition that looks like a comment
            line = firsts[line]
        firsts[symbol.line - 1] = line
        yield line


def _parents(symbols: Sequence[Symbol]) -> list[int]:
    """Return for each definition the index of the one that encloses it, or -1."""
    parents: list[int] = []
    for index, symbol in enumerate(symbols):
        parent = index - 1
        while parent >= 0 and symbols[parent].indent >= symbol.indent:
            parent = parents[parent]
        parents.append(parent)
    return parents


def _cut(text: str, start: int, end: int) -> int:
    """Return the end of the last paragraph in the range, of its last line, or of the range."""
    for boundary in ("\n\n", "\n"):
        position = text.rfind(boundary, start, end)
        if position >= 0:
            return position + len(boundary)
    return end


def _pack(
    candidates: Sequence[_Candidate],
    eligible: Sequence[_Candidate],
    sizes: CountedOnce,
    request: ContextSelectionRequest,
    pack_format: PackFormat,
) -> ContextBundle:
    """Return the bundle of as many passages as fit, in the common order of the eligible files."""
    budget = request.token_budget
    # Set aside before a file is packed, so that they do not depend on which files are.
    tree_tokens = int(budget * _TREE_SHARE) if pack_format.tree else 0
    reserved = sizes.count(pack_format.frame()) + tree_tokens

    def text_of(steps: Sequence[_Step]) -> str:
        packed = _by_file(steps)
        blocks: list[Block] = []
        paths: list[str] = []
        for candidate in eligible:
            if candidate.file.id in packed:
                body, note, _ = candidate.shown(packed[candidate.file.id])
                blocks.append(_block(candidate.file, body, note))
                paths.append(candidate.file.path)
        tree_lines = pack_format.tree_lines(paths, max_tokens=tree_tokens, count=sizes.count)
        return pack_format.render(blocks, tree_lines)

    steps = fill(
        budget - reserved,
        _steps(eligible, sizes),
        attrgetter("tokens"),
        part=partial(_cut_to_fit, sizes),
        # The parts' sum is rarely less than the count of the whole, but a counter may differ.
        whole=lambda steps: sizes.count(text_of(steps)) - reserved,
    )
    packed = _by_file(steps)
    entries: list[tuple[ContextFile, Block, ItemAccount]] = []
    dropped: list[ItemAccount] = []
    for candidate in candidates:
        file, passages = candidate.file, packed.get(candidate.file.id)
        if passages is None:
            dropped.append(candidate.account((), "left_out", 0, candidate.reason))
            continue
        body, note, form = candidate.shown(passages)
        block = _block(file, body, note)
        tokens = sizes.count(block.text)
        if form != "whole":
            file = file.model_copy(update={"content": body, "tokens": tokens})
        reason = "mentioned" if candidate.score.rule == "mentioned" else "share"
        entries.append((file, block, candidate.account(passages, form, tokens, reason)))
    return bundle_of(entries, dropped, request, text=text_of(steps), counter=sizes, budget=budget)


class _Step(NamedTuple):
    """One more passage of a file.

    Attributes:
        candidate: The file.
        passage: The passage.
        tokens: Tokens that it adds.
        is_first: Whether it is the first of the pack.
    """

    candidate: _Candidate
    passage: Passage
    tokens: int
    is_first: bool


def _steps(candidates: Sequence[_Candidate], sizes: CountedOnce) -> Iterator[_Step]:
    """Yield all passages in their common order."""
    packed: defaultdict[str, list[Passage]] = defaultdict(list)
    tokens_before: Counter[str] = Counter()
    for candidate, passage in _in_common_order(candidates):
        file_id = candidate.file.id
        is_first = not packed
        packed[file_id].append(passage)
        tokens = _tokens_of(candidate, packed[file_id], sizes)
        yield _Step(candidate, passage, tokens - tokens_before[file_id], is_first)
        tokens_before[file_id] = tokens


def _by_file(steps: Iterable[_Step]) -> Mapping[str, Sequence[Passage]]:
    """Return the passages of some steps by the ids of their files."""
    packed: dict[str, list[Passage]] = {}
    for step in steps:
        packed.setdefault(step.candidate.file.id, []).append(step.passage)
    return packed


def _in_common_order(candidates: Sequence[_Candidate]) -> Iterator[tuple[_Candidate, Passage]]:
    """Yield the passages of all files by finish time, with files served by their shares."""
    queues: list[Iterator[tuple[float, int, _Candidate, Passage]]] = []
    for order, candidate in enumerate(candidates):
        queues.append(_finished(order, candidate, candidate.of_named, _NAMED_SHARE))
        queues.append(_finished(order, candidate, candidate.passages, candidate.share))
    # On demand, since the parts of records are made when they are taken.
    for _, _, candidate, passage in merge(*queues, key=itemgetter(0, 1)):
        yield candidate, passage


def _finished(
    order: int, candidate: _Candidate, passages: Iterable[Passage], share: float
) -> Iterator[tuple[float, int, _Candidate, Passage]]:
    """Yield passages of a file with their finish times."""
    chars = 0
    for passage in passages:
        chars += len(passage)
        yield chars / share, order, candidate, passage


def _cut_to_fit(sizes: CountedOnce, step: _Step, max_tokens: int) -> _Step | None:
    """Return the longest tried beginning of the first passage that fits, or None.

    Each try is a quarter to a half as long as the one before. Only the first passage of a pack is
    cut, so that a small budget still has an answer.
    """
    candidate, passage = step.candidate, step.passage
    if not step.is_first or candidate.records is not None:
        return None
    tokens = step.tokens
    while tokens > max_tokens and len(passage) > _MIN_CHARS:
        start = passage.span[0]
        quarter, half = start + len(passage) // 4, start + len(passage) // 2
        passage = Passage((start, _cut(candidate.file.content, quarter, half)))
        tokens = _tokens_of(candidate, [passage], sizes)
    return step._replace(passage=passage, tokens=tokens) if tokens <= max_tokens else None


def _tokens_of(candidate: _Candidate, packed: Sequence[Passage], sizes: CountedOnce) -> int:
    """Return the tokens of a file with its packed passages, as the sum of its parts."""
    size = packed[-1].size
    if size is not None:
        return size.tokens
    total = len(candidate.file.content)
    # With the longest note, so that no passage takes more tokens than counted.
    tokens = sizes.count(_block(candidate.file, "", _note(total, total)).text)
    tokens += (len(_union(packed)) + 1) * sizes.count(gap_mark(total))
    for passage in packed:
        tokens += sizes.count(candidate.part(*passage.span))
    return tokens


def _union(passages: Iterable[Passage]) -> list[Span]:
    """Return the spans of the passages in the order of the text, joined where they touch."""
    joined: list[Span] = []
    for start, end in sorted(passage.span for passage in passages):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _block(file: ContextFile, body: str, note: str = "") -> Block:
    return item_block("file", file.id, heading=file.path, body=body, note=note)


def _note(chars: int, total_chars: int) -> str:
    return f"{chars:,} of {total_chars:,} characters"
