"""`LexicalIndex`: full-text ranking in memory, on SQLite FTS5."""

import re
import sqlite3
import threading
import unicodedata
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from types import TracebackType
from typing import Final, Self

from llm_common.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Hit:
    """A key and its score; higher is better, and compares within one ranking only."""

    key: str
    score: float


def best_first(hits: Iterable[Hit]) -> list[Hit]:
    """The hits by falling score; equal scores in the order of their keys."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.key))


STOP_WORDS = frozenset(  # one paragraph, since a list would take a page
    """
    a an the this that these those some any such
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
    am is are was were be been being do does did doing done have has had having
    can could shall should will would may might must
    and or but nor not no if then than so because as while until though
    of at by for with about into onto to from in on off out over under up down between through during
    who whom whose which what when where why how
    there here all both each either neither more most other own same too very just also only again further once
    please want need help let give tell know like
    s t d ll m re ve don isn aren wasn doesn didn won couldn wouldn
    """.split()  # noqa: SIM905
)


MAX_QUERY_TERMS = 64
"""Most distinct words of a query that are looked up; time grows with them."""

_MAX_IDENTIFIER_CHARS = 64  # a longer word is encoded data, whose parts would be noise
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003fffd"
_SEAM = re.compile(
    r"_+"
    r"|(?<=[^\W\dA-Z_])(?=[A-Z])"  # user|Name
    r"|(?<=[A-Z])(?=[A-Z][a-z])"  # HTTP|Server
    r"|(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])"  # Server|2
)


def split_identifiers(text: str) -> str:
    """The words of the text, spaced, each identifier followed by its parts.

    `getUserName`, `get_user_name` and `HTTPServer2` are split at a change of case, at underscores and between letters
    and digits. The whole word without underscores comes before its parts, so one spelling finds another. Chinese,
    Japanese and Korean text becomes single characters and overlapping pairs. Punctuation is dropped.
    """
    return " ".join(identifier_words(text))


def fts5_is_missing() -> ConfigError:
    """The error to raise where SQLite was built without full-text search."""
    return ConfigError(
        f"SQLite {sqlite3.sqlite_version} has no FTS5; use a Python whose SQLite has it",
        variable="sqlite3",
        value=sqlite3.sqlite_version,
    )


def query_terms(query: str) -> list[str]:
    """The first 64 distinct words of a query, in lower case, without stop words."""
    terms = dict.fromkeys(word.lower() for word in identifier_words(query))
    return [term for term in terms if term not in STOP_WORDS][:MAX_QUERY_TERMS]


@cache
def _words_and_cjk() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """The pattern of a word, and that of scripts without spaces; cached, since they take milliseconds to compile."""
    return re.compile(rf"[{_CJK}]+|[^\W{_CJK}]+"), re.compile(rf"[{_CJK}]")


def identifier_words(text: str) -> list[str]:
    """The words of `split_identifiers` as a list."""
    words: list[str] = []
    word_pattern, cjk = _words_and_cjk()
    for word in word_pattern.findall(unicodedata.normalize("NFKC", text)):
        if (word.isalpha() and (word[1:].islower() or word.isupper())) or len(word) > _MAX_IDENTIFIER_CHARS:
            words.append(word)
        elif cjk.match(word):
            words += [*word, *map("".join, pairwise(word))]
        else:
            parts = [part for part in _SEAM.split(word) if part]
            words += parts if len(parts) == 1 else ["".join(parts), *parts]
    return words


class LexicalIndex:
    """Rows of text under a key, ranked against a query by BM25 over weighted fields.

    English is stemmed (Porter), accents and case do not count, identifiers are found by their parts (see
    `split_identifiers`). A row matches when it shares a word with the query. There is no query syntax: any text may be
    a query. The order of insertion does not matter. Threads may share an index. Its memory is freed by `close`, at the
    end of a `with` block, or with the last reference.

    Args:
        fields: The name of each field and the weight of a word in it, such as `{"name": 3, "text": 1}`.

    Raises:
        ConfigError: SQLite was built without FTS5.
        ValueError: There are no fields.
    """

    def __init__(self, fields: Mapping[str, float]) -> None:
        if not fields:
            raise ValueError("an index needs at least one field")
        self._fields = tuple(fields)
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._close = weakref.finalize(self, self._connection.close)
        columns = [f"f{number}" for number in range(len(fields))]
        try:
            self._connection.execute(
                f"CREATE VIRTUAL TABLE texts USING fts5(key UNINDEXED, {', '.join(columns)}, "
                "tokenize = 'porter unicode61 remove_diacritics 2')"
            )
        except sqlite3.OperationalError as exc:
            self.close()
            raise fts5_is_missing() from exc
        weights = ", ".join(str(float(weight)) for weight in (0, *fields.values()))
        marks = ", ".join("?" * len(columns))
        self._insert = f"INSERT INTO texts (key, {', '.join(columns)}) VALUES (?, {marks})"  # noqa: S608 - numbered names
        self._select = (
            f"SELECT key, -bm25(texts, {weights}) AS score FROM texts "  # noqa: S608 - floats
            "WHERE texts MATCH ? ORDER BY score DESC, key LIMIT ?"
        )

    def add_many(self, rows: Iterable[tuple[str, Mapping[str, str]]]) -> None:
        """Adds many rows, all or none; a missing field is empty.

        Args:
            rows: Pairs of a key that the index does not have, and the texts by field. The last row of a repeated key
                counts.

        Raises:
            ValueError: A field that the index does not have.
        """
        columns = {key: self._columns(texts) for key, texts in rows}
        with self._lock:
            self._connection.execute("BEGIN")
            self._connection.executemany(self._insert, ((_stored(key), *texts) for key, texts in columns.items()))
            self._connection.execute("COMMIT")

    def search(self, query: str, *, limit: int) -> list[Hit]:
        """The rows that share a word with the query, best first, ties in the order of their keys.

        Only the first 64 distinct words of the query count, without stop words (`query_terms`).

        Args:
            query: Any text.
            limit: Most rows to return.

        Returns:
            At most `limit` hits with positive scores (BM25); none when the query has no words to look up.
        """
        terms = query_terms(query)
        if not terms or limit <= 0:
            return []
        match = " OR ".join(f'"{term}"' for term in terms)
        with self._lock:
            found = self._connection.execute(self._select, (match, limit)).fetchall()
        return [Hit(key.decode("utf-8", "surrogatepass"), score) for key, score in found]

    def close(self) -> None:
        """Frees the index, which cannot be used afterwards; safe to call twice."""
        self._close()

    def _columns(self, texts: Mapping[str, str]) -> list[str]:
        if unknown := texts.keys() - set(self._fields):
            raise ValueError(f"unknown fields {sorted(unknown)}; the index has {list(self._fields)}")
        return [split_identifiers(texts.get(field, "")) for field in self._fields]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _stored(key: str) -> bytes:
    """The key as bytes that SQLite can hold and sort, lone surrogates included."""
    return key.encode("utf-8", "surrogatepass")


_MAX_PARTS: Final = 4
"""Most parts of a request; a text with more parts is prose."""

_MIN_TERMS: Final = 2
_PART_SEAM: Final = re.compile(
    r"(?<=[.!?;])\s+|(?<=[。！？；])|\n+"  # noqa: RUF001 - the sentence ends of Chinese and Japanese
    r"|,?\s+(?:and\s+then|then|and\s+also|as\s+well\s+as)\s+",
    re.IGNORECASE,
)


def split_request(text: str) -> tuple[str, ...]:
    """The two to four sentences, lines or "and then" parts of a request, if any.

    Each part is searched for separately, since the words of one wish drown those of another. A piece with fewer than
    two words to look up, such as "Thanks!", is no part.
    """
    parts = [part.strip() for part in _PART_SEAM.split(text) if len(query_terms(part)) >= _MIN_TERMS]
    return tuple(parts) if len(parts) in range(2, _MAX_PARTS + 1) else ()
