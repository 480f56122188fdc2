"""Searches stored outputs by words, without an index.

A search reads every record of its queries, and every result if it is told to. It keeps counts of
the words only, so memory holds one batch of results at a time. Nothing in the store changes.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common.errors import StoreError
from llm_common.pointers.pointer import ContextPointer, has_expired
from llm_common.pointers.reading import stored_text
from llm_common.pointers.records import (
    PointerRecords,
    QueryFiles,
    matches_digest,
    max_result_bytes,
    read_records,
)
from llm_common.ranking.lexical import StreamedScan, find_stem, folded
from llm_common.storage.blob import folder_of

_BATCH: Final = 16  # an object store fetches as many results at once
_CALL_WEIGHT: Final = 2.0  # a word of the call says more than one of a long result
_JSON_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)

SplitResult = Callable[[ContextPointer, bytes], Iterable[tuple[str, str]]]
"""Splits a stored result into documents: yields the JSON pointer and the text of each."""


class PointerMatch(BaseModel):
    """A stored output that shares a word with the request.

    Attributes:
        pointer: The output.
        score: How well it matches, 1 for the best. Scores compare within one search.
        path: JSON pointer to the matching document within the result, "" for the whole result.
        passage: The part of the document with most of the words. "" if results were not searched,
            or only the call has the words.
        start: Where the passage starts in the document, in characters.
        total_chars: Characters of the document.
    """

    model_config = ConfigDict(frozen=True)

    pointer: ContextPointer
    score: float
    path: str = ""
    passage: str = ""
    start: int = 0
    total_chars: int = 0


class PointerSearch(BaseModel):
    """The outcome of a search by words.

    Attributes:
        matches: The best matches, best first.
        total: Documents that share a word with the request.
        searched: Pointers that were searched.
        unreadable: Pointers that were not, because their record or result is damaged.
        unreadable_queries: Queries whose folder cannot be read to its end.
    """

    model_config = ConfigDict(frozen=True)

    matches: tuple[PointerMatch, ...]
    total: int
    searched: int
    unreadable: int = 0
    unreadable_queries: tuple[str, ...] = ()


def whole_result(_pointer: ContextPointer, payload: bytes) -> Iterator[tuple[str, str]]:
    """Yield a stored result as one document, in the text that a reader of it sees."""
    yield "", stored_text(payload).text


def search_pointers(
    records: PointerRecords,
    words: str,
    query_ids: Iterable[str],
    *,
    limit: int,
    now: datetime,
    in_results: bool,
    pointer_ids: Collection[str] | None = None,
    split: SplitResult = whole_result,
    max_passage_chars: int = 300,
    progress: Callable[[int], object] = lambda _: None,
) -> PointerSearch:
    """Search the stored outputs of some queries, by BM25.

    The same words over the same outputs give the same matches in the same order.

    Args:
        records: Where the outputs are.
        words: What to look for, in any form and case. A blank text matches nothing.
        query_ids: The queries to search.
        limit: Maximum number of matches.
        now: Leaves out what has expired by then.
        in_results: True searches each stored result too. False searches the records alone, whose
            description has the first 500 characters of a result.
        pointer_ids: Searches these pointers alone.
        split: Splits a result into the documents that are ranked. The words of the call count for
            a document that is the whole result.
        max_passage_chars: Maximum size of a passage.
        progress: Called with the number of pointers searched so far, after each few.
    """
    scan = StreamedScan(words)
    outputs = _Outputs(records, now, split if in_results else None)
    searched = unreadable = 0
    unreadable_queries: list[str] = []
    for query_id in query_ids:
        try:
            for output in outputs.read(query_id, pointer_ids):
                if output is None:
                    unreadable += 1
                    continue
                _count_words(scan, output)
                searched += 1
                if searched % _BATCH == 0:
                    progress(searched)
        except StoreError:
            unreadable_queries.append(query_id)
    progress(searched)

    hits, total = scan.best(limit)
    matches: list[PointerMatch] = []
    for hit in hits:
        query_id, pointer_id, _, path = hit.key.split("\n", maxsplit=3)
        # not `read`: listing the query again for each match takes seconds where it is large
        for output in outputs.read_listed(query_id, [pointer_id]):
            text = None if output is None else output.texts.get(path)
            if output is None or text is None:  # replaced or deleted since it was counted
                continue
            start, passage = _best_passage(text, scan.stems, max_passage_chars)
            match = PointerMatch(
                pointer=output.pointer,
                score=hit.score,
                path=path,
                passage=passage,
                start=start,
                total_chars=len(text),
            )
            matches.append(match)
    return PointerSearch(
        matches=tuple(matches),
        total=total,
        searched=searched,
        unreadable=unreadable,
        unreadable_queries=tuple(unreadable_queries),
    )


class _Output(NamedTuple):
    """A stored output, and the text of each document of its result by path."""

    pointer: ContextPointer
    texts: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Reads the outputs of a query in batches.

    Attributes:
        records: Where they are.
        now: Leaves out what has expired by then.
        split: Splits their results; None reads no result.
    """

    records: PointerRecords
    now: datetime
    split: SplitResult | None

    def read(self, query_id: str, pointer_ids: Collection[str] | None) -> Iterator[_Output | None]:
        """Yield the outputs of a query by id, None for each one that is damaged.

        Raises:
            StoreError: If the query's folder cannot be read.
        """
        files = QueryFiles.of(self.records.blobs, query_id)
        ids = sorted(files.recorded | files.unreadable)
        if pointer_ids is not None:
            ids = [pointer_id for pointer_id in ids if pointer_id in pointer_ids]
        yield from self.read_listed(query_id, ids)

    def read_listed(self, query_id: str, ids: Sequence[str]) -> Iterator[_Output | None]:
        """Yield the outputs of these pointers, None for each one that is damaged or gone."""
        for start in range(0, len(ids), _BATCH):
            batch: list[ContextPointer] = []
            for pointer in read_records(self.records.blobs, query_id, ids[start : start + _BATCH]):
                if pointer is None:
                    yield None
                elif not has_expired(pointer, self.now):
                    batch.append(pointer)
            if self.split is None:
                for pointer in batch:
                    yield _Output(pointer, {"": ""})
            elif batch:
                yield from self._read_results(query_id, batch, self.split)

    def _read_results(
        self, query_id: str, pointers: Sequence[ContextPointer], split: SplitResult
    ) -> Iterator[_Output | None]:
        names = [self.records.result_names(pointer)[0] for pointer in pointers]
        max_bytes = max(map(max_result_bytes, pointers))
        payloads = self.records.blobs.get_many(folder_of(query_id), names, max_bytes=max_bytes)
        for pointer, payload in zip(pointers, payloads, strict=True):
            current, data = pointer, payload
            try:
                if data is None or not matches_digest(pointer, data):
                    # damaged, under the name of an older version, or a writer is at work
                    current, data = self.records.load(query_id, pointer.pointer_id)
                texts = dict(split(current, data))
            except StoreError:
                yield None
            else:
                yield _Output(current, texts)


def _count_words(scan: StreamedScan, output: _Output) -> None:
    pointer = output.pointer
    call = f"{pointer.summary} {pointer.args} {' '.join(pointer.source_urls)}"
    for number, (path, text) in enumerate(output.texts.items()):
        fields = [(_comparable(text, is_json=_is_json(text)), 1.0)]
        if path == "":
            fields += [(folded(call), _CALL_WEIGHT), (folded(pointer.digest), 1.0)]
        # The number keeps documents of equal score in the order of their result.
        scan.add(f"{pointer.query_id}\n{pointer.pointer_id}\n{number:09}\n{path}", fields)


def _is_json(text: str) -> bool:
    return text.lstrip().startswith(("{", "["))


def _comparable(text: str, *, is_json: bool) -> str:
    r"""Return a text as it is compared: folded, and without the escapes of JSON.

    The word after an escape would otherwise begin with its letter, as in `first\nsecond`.
    """
    return folded(_JSON_ESCAPE.sub(_unescape, text) if is_json and "\\" in text else text)


def _unescape(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else " "


def _best_passage(text: str, stems: Sequence[str], size: int) -> tuple[int, str]:
    """Return the first passage of a text with the most words, and where it starts."""
    is_json = _is_json(text)
    best_start, most = 0, 0
    for start in range(0, len(text), max(size // 2, 1)):  # half a step: no word is cut in both
        window = _comparable(text[start : start + size], is_json=is_json)
        count = sum(bool(find_stem(stem, (window,))) for stem in stems)
        if count > most:
            best_start, most = start, count
        if most == len(stems):
            break
    return best_start, text[best_start : best_start + size] if most else ""
