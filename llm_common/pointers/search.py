"""Searches stored outputs by words, without an index.

A search reads every record of its queries, and optionally every result. It stores only counts of
the words, so one batch of results is in memory at a time. The store is not changed.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from pydantic import BaseModel, ConfigDict

from llm_common.errors import StoreError
from llm_common.pointers.pointer import ContextPointer, checked_query_id, has_expired
from llm_common.pointers.reading import stored_text
from llm_common.pointers.records import (
    PointerRecords,
    QueryFiles,
    matches_digest,
    max_result_bytes,
    read_records,
)
from llm_common.pointers.store import ContextPointerStore
from llm_common.ranking.lexical import StreamedScan, find_stem, folded
from llm_common.storage.blob import folder_of, query_id_of
from llm_common.text.unwrapping import ReadLetters, is_json_text

_BATCH: Final = 16  # as many as an object store fetches in parallel
_CALL_WEIGHT: Final = 2.0  # a word of the call is more telling than one of a long result
_MIN_PLACE_CHARS: Final = 3
_MAX_PLACE_CHARS: Final = 300  # a longer text is no phrase, and would make a pattern of seconds
_MAX_BLANKS: Final = 40  # between two words, as in aligned columns
_BEFORE_PLACE: Final = 8  # this part of a passage stands before what was asked for

SplitResult = Callable[[ContextPointer, bytes], Iterable[tuple[str, str]]]
"""Splits a stored result into documents: yields the JSON pointer and the text of each."""


class PointerMatch(BaseModel):
    """A stored output that shares a word with the request.

    Attributes:
        pointer: Pointer of the output.
        score: Relevance, 1 for the best match. Comparable within one search only.
        path: JSON pointer to the matching document within the result, "" for the whole result.
        passage: The part of the document around the first place that has the words as they were
            asked for, or else with most of the words. "" if results were not searched, or only the
            call contains the words.
        places: Number of places that have the words as they were asked for, in any case.
        start: Offset of the passage in the document as it is read, without colours and escapes.
        total_chars: Size of the document as it is read, in characters.
    """

    model_config = ConfigDict(frozen=True)

    pointer: ContextPointer
    score: float
    path: str = ""
    passage: str = ""
    places: int = 0
    start: int = 0
    total_chars: int = 0


class PointerSearch(BaseModel):
    """The result of a search by words.

    Attributes:
        matches: The best matches, best first.
        total: Number of documents that share a word with the request.
        searched: Number of pointers searched.
        unreadable: Number of pointers skipped because their record or result is damaged.
        unreadable_queries: Queries whose folder cannot be read completely.
    """

    model_config = ConfigDict(frozen=True)

    matches: tuple[PointerMatch, ...]
    total: int
    searched: int
    unreadable: int = 0
    unreadable_queries: tuple[str, ...] = ()


def whole_result(_pointer: ContextPointer, payload: bytes) -> Iterator[tuple[str, str]]:
    """Yield a stored result as one document, in the form in which it is read back."""
    yield "", stored_text(payload).text


def find_pointers(
    store: ContextPointerStore,
    words: str,
    *,
    query_id: str | Collection[str] | None = None,
    pointer_ids: Collection[str] | None = None,
    limit: int = 20,
    in_results: bool = False,
    split: SplitResult = whole_result,
    max_passage_chars: int = 300,
    progress: Callable[[int], object] = lambda _: None,
) -> PointerSearch:
    """Find the outputs that share a word with a text, best match first by BM25.

    Reads every record, or every result, of the queries. A whole store of 100,000 pointers takes
    seconds. The order of matches is deterministic. Damaged outputs are skipped and counted.

    Args:
        store: The store with the outputs.
        words: The words to find, in any inflection and case. A blank text matches nothing.
        query_id: The query or queries to search. None searches all.
        pointer_ids: The pointers to search. None searches all.
        limit: Maximum number of matches.
        in_results: True also searches the stored results. False searches the calls and the
            descriptions, which contain the first 500 characters of a result.
        split: Splits a result into ranked documents with their JSON pointers. By default, a
            result is one document, for which the words of the call count too.
        max_passage_chars: Maximum size of a match's passage.
        progress: Called now and then with the number of pointers searched so far. An exception
            from it ends the search.

    Raises:
        InvalidIdError: If `query_id` is not allowed.
        StoreError: If the queries cannot be listed.
    """
    records = store.records
    query_ids: Iterable[str]
    if query_id is None:
        query_ids = map(query_id_of, records.blobs.folders())
    else:
        named_ids = [query_id] if isinstance(query_id, str) else query_id
        query_ids = [checked_query_id(named_id, store.redactor) for named_id in named_ids]
    scan = StreamedScan(words)
    outputs = _Outputs(records, store.now, split if in_results else None)
    searched = unreadable = 0
    unreadable_queries: list[str] = []
    for searched_id in query_ids:
        try:
            for output in outputs.read(searched_id, pointer_ids):
                if output is None:
                    unreadable += 1
                    continue
                _count_words(scan, output)
                searched += 1
                if searched % _BATCH == 0:
                    progress(searched)
        except StoreError:
            unreadable_queries.append(searched_id)
    progress(searched)

    hits, total = scan.best(limit)
    matches: list[PointerMatch] = []
    for hit in hits:
        # At most three splits, since a path may contain line breaks.
        found_id, pointer_id, _, path = hit.key.split("\n", maxsplit=3)  # see `_count_words`
        # Not `read`, which would scan the folder of a large query again for each match.
        for output in outputs.read_listed(found_id, [pointer_id]):
            text = None if output is None else output.texts.get(path)
            if output is None or text is None:  # replaced or deleted since the count
                continue
            read_text = _as_read(text)
            places = _places_of(words, read_text)
            start, passage = _passage(read_text, places, scan.stems, max_passage_chars)
            match = PointerMatch(
                pointer=output.pointer,
                score=hit.score,
                path=path,
                passage=passage,
                places=len(places),
                start=start,
                total_chars=len(read_text),
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
        records: Records of the outputs.
        now: Time by which pointers have expired.
        split: Splits results into documents. None reads no results.
    """

    records: PointerRecords
    now: datetime
    split: SplitResult | None

    def read(self, query_id: str, pointer_ids: Collection[str] | None) -> Iterator[_Output | None]:
        """Yield the outputs of a query in the order of their ids, None for a damaged output.

        Raises:
            StoreError: If the query's folder cannot be read.
        """
        files = QueryFiles.of(self.records.blobs, query_id)
        ids = sorted(files.recorded | files.unreadable)
        if pointer_ids is not None:
            ids = [pointer_id for pointer_id in ids if pointer_id in pointer_ids]
        yield from self.read_listed(query_id, ids)

    def read_listed(self, query_id: str, ids: Sequence[str]) -> Iterator[_Output | None]:
        """Yield the outputs of some pointers, None for a damaged or missing output."""
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
        # One limit for the batch. A result that exceeds its own record's size fails the digest.
        max_bytes = max(map(max_result_bytes, pointers))
        payloads = self.records.blobs.get_many(folder_of(query_id), names, max_bytes=max_bytes)
        for pointer, payload in zip(pointers, payloads, strict=True):
            current, data = pointer, payload
            try:
                if data is None or not matches_digest(pointer, data):
                    # Damaged, under the name of an older version, or being written.
                    current, data = self.records.load(query_id, pointer.pointer_id)
                texts = dict(split(current, data))
            except StoreError:
                yield None
            else:
                yield _Output(current, texts)


def _count_words(scan: StreamedScan, output: _Output) -> None:
    pointer = output.pointer
    call = f"{pointer.summary} {pointer.args} {' '.join(pointer.source_urls)}"
    for index, (path, text) in enumerate(output.texts.items()):
        fields = [(folded(_as_read(text)), 1.0)]
        if path == "":  # else every part of a result would match the words of its call
            fields += [(folded(call), _CALL_WEIGHT), (folded(pointer.digest), 1.0)]
        # The index sorts documents of equal score by their order in the result.
        scan.add(f"{pointer.query_id}\n{pointer.pointer_id}\n{index:09}\n{path}", fields)


def _as_read(text: str) -> str:
    # A colour before a word, or the escape of a line end in JSON, would be a letter of it.
    return ReadLetters(text, is_json=is_json_text(text)).text


def _places_of(words: str, text: str) -> list[int]:
    """Return where a text has the words as they were asked for, in any case, however spaced."""
    asked = " ".join(words.split())
    if not _MIN_PLACE_CHARS <= len(asked) <= _MAX_PLACE_CHARS:
        return []
    # Words that were copied from JSON have its escapes.
    forms = (asked, ReadLetters(asked, is_json=True).text)
    for form in filter(str.strip, dict.fromkeys(forms)):
        pattern = rf"\s{{1,{_MAX_BLANKS}}}".join(map(re.escape, form.split()))
        # "art" is no place in "party".
        whole = r"(?<!\w)" * pattern[0].isalnum() + pattern + r"(?!\w)" * pattern[-1].isalnum()
        places = [match.start() for match in re.finditer(whole, text, re.IGNORECASE)]
        if places:
            return places
    return []


def _passage(text: str, places: Sequence[int], stems: Sequence[str], size: int) -> tuple[int, str]:
    """Return the passage around the first place, else that with the most words, and its offset."""
    if places:
        start = max(places[0] - size // _BEFORE_PLACE, 0)
        return start, text[start : start + size // 2]
    best_start, most = 0, 0
    # Windows overlap by half, so no word is cut in both.
    for start in range(0, len(text), max(size // 2, 1)):
        window = folded(text[start : start + size])
        count = sum(bool(find_stem(stem, (window,))) for stem in stems)
        if count > most:
            best_start, most = start, count
        if most == len(stems):
            break
    return best_start, text[best_start : best_start + size] if most else ""
