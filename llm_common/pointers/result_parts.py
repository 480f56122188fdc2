"""`ResultParts`: the parts of a stored result that help to answer a question, within a room."""

from functools import cached_property
from typing import Final

from llm_common.ranking.lexical import search_stems
from llm_common.ranking.passages import RankedPassages
from llm_common.tables.finding import find_records
from llm_common.tables.sketch import ResultSketch, chars_in
from llm_common.text.canonical import Json, decode_json
from llm_common.text.display import excerpt_json, excerpt_text, printable, without_headings
from llm_common.text.outline import outline

MIN_PART_CHARS: Final = 80
"""A shorter part of a result says nothing."""

_READ_CHARS: Final = 2_000_000  # a longer result is searched only this far
# A longer result is shown as text, since reading it takes seconds.
_MAX_TABLE_CHARS: Final = 20_000_000
_RECORDS_SHARE: Final = 0.5  # of the characters, from which a result is records and no document
_PASSAGES_SHARE: Final = 0.6
_OUTLINE_SHARE: Final = 0.35
_ENDS_LABEL: Final = "Beginning and end:"


class ResultParts:
    """Parts of a result that is too long, for the query at hand.

    Of records, the counts, values and rows that the query asks for. Of other results, passages that
    match the query, or headings, and then head and tail.

    Args:
        text: The result as text. As one line of JSON if it is no str.
        result: The result.
        query: The question that the parts should help to answer.
        query_name: The origin of the query's words. See `OffloadTurn`.
        table_name: The name of the records in queries.
    """

    def __init__(
        self,
        text: str,
        result: object,
        query: str,
        *,
        query_name: str = "question",
        table_name: str = "records",
    ) -> None:
        self._text = text
        self._query = query
        # Plain data, since the result may be a model or another object.
        self._value: Json = text if isinstance(result, str) else decode_json(text.encode())
        self._sketch: ResultSketch | None = None
        if len(text) <= _MAX_TABLE_CHARS:
            records = find_records(self._value)
            if records.tables and chars_in(records.tables) >= _RECORDS_SHARE * len(text):
                self._sketch = ResultSketch(
                    records, query, name=table_name, question_name=query_name
                )
        self._passages_label = f"Passages that hold words of the {query_name}:"

    @cached_property
    def _passages(self) -> RankedPassages:
        return RankedPassages(self._text[:_READ_CHARS], search_stems(self._query))

    @property
    def has_records(self) -> bool:
        """Whether the result is records for the most part, which `body` counts and names."""
        return self._sketch is not None

    def body(self, max_chars: int) -> str:
        """Return the parts in about `max_chars` characters."""
        if self._sketch is not None:
            return without_headings(printable(self._sketch.text(max_chars)))
        middle = self._middle(max_chars)
        if middle:
            middle += f"\n{_ENDS_LABEL}\n"
        ends_chars = max(max_chars - len(middle), MIN_PART_CHARS)
        # A text, and data that would take seconds to cut by its structure.
        if self._value is self._text or len(self._text) > _READ_CHARS:
            ends = excerpt_text(self._text, ends_chars)
        else:
            ends = excerpt_json(self._value, ends_chars)
        return without_headings(middle + ends.text)

    def _middle(self, max_chars: int) -> str:
        """Return passages, else headings, else ""."""
        # Passages get the larger share, or everything if no passage fits their share.
        best = self._passages.best(max_size=int(max_chars * _PASSAGES_SHARE), count=len)
        best = best or self._passages.best(max_size=max_chars, count=len)
        if best:
            return f"{self._passages_label}\n{best.text}"
        if self._value is self._text:
            return outline(self._text[:_READ_CHARS], int(max_chars * _OUTLINE_SHARE))
        return ""
