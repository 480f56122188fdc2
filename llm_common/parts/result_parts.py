"""`ResultParts`: the parts of a stored result that help to answer a question, within a room."""

import logging
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import islice
from typing import Final, TypeVar

from llm_common.parts.fill import Parts, PartSize
from llm_common.parts.passages import COUNTED_WHOLE, RankedPassages
from llm_common.parts.table_sketch import UNNAMED, ResultSketch, TableSketch
from llm_common.parts.text_sketch import TextSketch
from llm_common.ranking.lexical import search_stems
from llm_common.tables.finding import Records, are_mostly_records, find_records
from llm_common.tables.forms.marked_up import TAG
from llm_common.text.canonical import Json, decode_json
from llm_common.text.display import (
    Excerpt,
    excerpt_text,
    one_line,
    to_json,
    without_headings,
)
from llm_common.text.unwrapping import unwrapped

MIN_PART_CHARS: Final = 80
"""A shorter part of a result says nothing."""

# Rooms in characters: the first, and how much larger each next one is. With larger steps, the last
# item of a bundle would leave more of the budget unused.
_FIRST_ROOM: Final = 200
_GROWTH: Final = 1.15
# A longer result is shown as text, since reading it takes seconds.
_MAX_TABLE_CHARS: Final = 20_000_000
_MAX_LINE_CHARS: Final = 1_000  # on average, of a few lines that are read by line
_MIN_LINES: Final = 20
_MAX_NAMED: Final = 3
_MAX_COLUMNS_CHARS: Final = 120
_ESCAPE_CHARS: Final = 6
_MAX_VALUES: Final = 100_000  # of data without records
_MAX_VALUE_CHARS: Final = 2_000
_TEXT_SHARE: Final = 0.7  # of the characters, from which data is a text
_PASSAGES_SHARE: Final = 0.6
_ENDS_LABEL: Final = "\nBeginning and end:\n"

_Part = TypeVar("_Part")

_log = logging.getLogger(__name__)


class ResultParts:
    """Parts of a result that is too long, for the query at hand.

    Of records, the counts, values and rows that the query asks for. Of a text, lines that tell of a
    failure or match the query, headings, and both ends. Of other data, values with their paths. Of
    a text in few long lines, passages that match the query, head and tail. Never raises: of a
    result that cannot be read so, both ends of the text, with a warning in the log.

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
        table_name: str = UNNAMED,
    ) -> None:
        self._text = text = without_headings(text)
        self._query = query
        # Plain data, since the result may be a model or another object.
        self._value: Json = text if isinstance(result, str) else decode_json(text.encode())
        self._name = table_name
        self._query_name = query_name
        self._is_readable = True

    @cached_property
    def _records(self) -> Records | None:
        return find_records(self._value) if len(self._text) <= _MAX_TABLE_CHARS else None

    @cached_property
    def _sketch(self) -> ResultSketch | None:
        records = self._records
        if records is None:
            return None
        # An escaped letter of JSON is one character of a cell.
        total_chars = len(self._text) - (_ESCAPE_CHARS - 1) * self._text.count("\\u")
        if any(table.path.startswith("table ") for table in records.tables):
            total_chars -= sum(map(len, TAG.findall(self._text)))
        if not records.tables:
            return None
        sketch = ResultSketch(records, self._query, name=self._name, question_name=self._query_name)
        if not are_mostly_records(records.tables, total_chars):
            text_chars = sum(len(text) for _, text in records.texts)
            is_data = text_chars < _TEXT_SHARE * len(self._text)
            return sketch if is_data and sketch.first.tells_of_failures else None
        is_log = records.tables[0].is_log
        # The lines of a log say what its columns do not, unless these are all that is asked for.
        return sketch if sketch.first.is_answer or not is_log else None

    @cached_property
    def _text_sketch(self) -> TextSketch | None:
        """The sketch of a text, as of a command, or of the values of other data."""
        if self._records is None:
            return None
        path, text = "", self._text
        fields = dict(self._records.fields)
        if self._value is not text:
            texts = {name: cell for name, cell in fields.items() if isinstance(cell, str)}
            texts |= dict(self._records.texts)
            path = max(texts, key=lambda name: len(texts[name]), default="")
            text = texts.get(path, "")
            fields.pop(path, None)
            if len(text) < _TEXT_SHARE * len(self._text):
                values = list(islice(_values_in(self._value, ""), _MAX_VALUES + 1))
                # Of a part of the values, no count would be true of all.
                if len(values) > _MAX_VALUES:
                    return None
                return TextSketch("\n".join(values), self._query, are_values=True)
        text = unwrapped(text)
        lines = text.count("\n") + 1
        # Prose in a few long lines, or a program that was packed into one.
        if lines < _MIN_LINES and len(text) > _MAX_LINE_CHARS * lines:
            return None
        name, tables = self._names_in_sql(self._records, path)
        beside = fields if path else {}
        return TextSketch(text, self._query, path=path, beside=beside, name=name, tables=tables)

    def _names_in_sql(self, records: Records, path: str) -> tuple[str, list[str]]:
        """Return the name of a text's lines or entries, and a line for each table in it."""
        if self._name == UNNAMED:
            return "", []
        names = records.names(self._name)
        tables = records.tables
        if tables and tables[0].is_log and not tables[0].path:
            return names[0], []
        headlines = []
        for name, table in zip(names, tables[:_MAX_NAMED], strict=False):
            columns = one_line(", ".join(table.columns), max_chars=_MAX_COLUMNS_CHARS)
            sketch = TableSketch(table, "", name=name, question_name="")
            headlines.append(f"{sketch.headline}: {columns}")
        # The lines of texts are behind the tables.
        by_path = dict(zip(dict(records.texts), names[len(tables) :], strict=False))
        return (f"{by_path[path]} (line, text)" if path in by_path else ""), headlines

    @cached_property
    def _passages(self) -> RankedPassages:
        return RankedPassages(self._text, search_stems(self._query))

    @property
    def has_records(self) -> bool:
        """Whether the result is records for the most part, which the excerpt counts and names."""
        return self._read(lambda: self._sketch is not None, otherwise=False)

    @property
    def has_matches(self) -> bool:
        """Whether the excerpt has records or passages that the query names."""
        return self._read(self._find_matches, otherwise=False)

    def excerpt(self, max_chars: int, *, fill: bool = False) -> Excerpt:
        """Return the parts in at most `max_chars` characters.

        Of records, the characters shown are those of the whole text, in which keys stand once. Of
        other results, they are those of the result.

        Args:
            max_chars: Maximum characters of the text.
            fill: Whether whole records take the characters that answers and counts leave.
        """
        excerpt = self._read(partial(self._answer, max_chars, fill=fill), otherwise=None)
        return excerpt or excerpt_text(self._text, max_chars)

    def parts(
        self, count: Callable[[str], int], *, overhead: int, whole_tokens: Callable[[], float]
    ) -> Parts:
        """Return the parts of the result in rooms of ever more characters.

        Args:
            count: Counts the tokens of a text.
            overhead: Tokens around the text.
            whole_tokens: Returns the tokens of the whole result. Every part takes fewer.
        """
        sizes = self._sizes(count, overhead, whole_tokens)
        return Parts(sizes, partial(self.excerpt, fill=True), matches=self.has_matches)

    def _sizes(
        self, count: Callable[[str], int], overhead: int, whole_tokens: Callable[[], float]
    ) -> Iterator[PartSize]:
        """Yield parts that show more characters in more tokens than the one before."""
        room, before = _FIRST_ROOM, PartSize(0, 0, 0)
        while room < len(self._text):
            excerpt = self.excerpt(room, fill=True)
            tokens = overhead + count(excerpt.text)
            if room * COUNTED_WHOLE >= len(self._text) and tokens >= whole_tokens():
                return
            if excerpt.chars_shown > before.chars and tokens > before.tokens:
                before = PartSize(room, excerpt.chars_shown, tokens)
                yield before
            room = int(room * _GROWTH)

    def _read(self, read: Callable[[], _Part], *, otherwise: _Part) -> _Part:
        """Return what a reading of the result finds, and `otherwise` if one has failed."""
        if not self._is_readable:
            return otherwise
        try:
            return read()
        # Results have any shape, and a tool call that succeeded must not fail by its preview.
        except Exception as exc:  # noqa: BLE001
            # Without the message, which may have text of the result.
            _log.warning("a result is shown by its ends: %s", type(exc).__name__)
            self._is_readable = False
            return otherwise

    def _find_matches(self) -> bool:
        if self._sketch is not None:
            return self._sketch.has_matches
        if self._text_sketch is not None:
            return self._text_sketch.has_matches
        return self._passages.matches

    def _answer(self, max_chars: int, *, fill: bool) -> Excerpt:
        if self._sketch is not None:
            text_of = self._sketch.text_with_records if fill else self._sketch.text
            text = text_of(max_chars)
            return Excerpt(text, min(len(text), len(self._text)))
        if self._text_sketch is not None:
            text = self._text_sketch.text(max_chars)
            return Excerpt(text, min(len(text), len(self._text)))
        middle = self._middle(max_chars)
        ends_chars = max_chars - len(middle.text) - len(_ENDS_LABEL)
        if not middle.text or ends_chars < MIN_PART_CHARS:
            return middle if middle.text else excerpt_text(self._text, max_chars)
        ends = excerpt_text(self._text, ends_chars)
        chars_shown = min(middle.chars_shown + ends.chars_shown, len(self._text))
        return Excerpt(f"{middle.text}{_ENDS_LABEL}{ends.text}", chars_shown)

    def _middle(self, max_chars: int) -> Excerpt:
        """Return passages that match the query, or an empty excerpt."""
        label = f"Passages that hold words of the {self._query_name}:\n"
        # Passages get the larger share, or everything if no passage fits their share.
        for room in (int(max_chars * _PASSAGES_SHARE), max_chars - len(label)):
            # A piece of the result may begin like a heading.
            best = self._passages.best(
                max_size=room, count=lambda piece: len(without_headings(piece))
            )
            if best:
                return Excerpt(f"{label}{without_headings(best.text)}", best.chars_shown)
        return Excerpt("", 0)


def _values_in(data: Json, path: str) -> Iterator[str]:
    """Yield each value of data in one line, behind its JSON pointer (RFC 6901)."""
    if isinstance(data, dict) and data:
        for name, value in data.items():
            yield from _values_in(value, f"{path}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(data, list) and data:
        for index, value in enumerate(data):
            yield from _values_in(value, f"{path}/{index}")
    else:
        text = data if isinstance(data, str) else to_json(data)
        # A name may have line ends too.
        yield one_line(f"{path}: {text}", max_chars=_MAX_VALUE_CHARS)
