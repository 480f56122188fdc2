"""`RecordDatabase`: one SELECT over records, in SQLite in memory.

A model writes the SELECT, so it can only read, and only these records. An authorizer refuses every
other statement and every function that is not listed here. A progress handler stops a query that
takes too much CPU time or memory, and SQLite limits the sizes of values, statements and patterns.
None of them acts within one step or while SQLite compiles, so `add_text_functions` and
`compiled_size` bound these.
SQLite's documentation "Defense Against The Dark Arts" (sqlite.org/security.html) lists these means.
"""

import math
import os
import re
import sqlite3
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from llm_common.errors import ToolArgumentsError
from llm_common.tables.sql.bounds import add_text_functions, compiled_size, plain_sql
from llm_common.tables.sql.columns import SqlColumn, sql_columns
from llm_common.tables.table import Table, quoted
from llm_common.tables.values import Cell, fits_64_bits, number_of
from llm_common.text.display import counted, one_line, printable

try:
    import resource
except ImportError:  # the system is not POSIX, and tells no peak of the memory
    resource = None  # type: ignore[assignment]

QUERY_NAME: Final = "query_context"
MAX_RESULT_ROWS: Final = 10_000
"""Maximum number of rows that a query returns. A query with more rows is told to aggregate."""

MAX_SQL_CHARS: Final = 20_000

_MAX_CPU_S: Final = 2.0
_MAX_GROWTH_BYTES: Final = 100_000_000  # of the process, while the query runs
_MAX_VALUE_BYTES: Final = 1_000_000
_MAX_SQL_BYTES: Final = 80_000
_MAX_COLUMNS: Final = 600
_MAX_COMPILED: Final = 500_000  # names, which take SQLite some 100 MB
_SQLITE_MAX_BYTES: Final = 1_000_000_000
# Operations of SQLite's machine between two checks, which a query's loops make.
_CHECK_EVERY: Final = 200
_MAX_ERROR_CHARS: Final = 300
_MAX_LISTED_CHARS: Final = 900

_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MAX_VALUE_BYTES,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: _MAX_SQL_BYTES,
    sqlite3.SQLITE_LIMIT_COLUMN: _MAX_COLUMNS,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_VDBE_OP: 100_000,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 60,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_ALLOWED_ACTIONS: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
)
# Not here: printf, format, zeroblob, randomblob and the like, which make long values in one step,
# and whatever reads files, loads code or differs from call to call.
_ALLOWED_FUNCTIONS: Final = frozenset(
    (  # noqa: SIM905 - a list of so many words takes as many lines
        "avg count group_concat string_agg max min sum total row_number rank dense_rank"
        " percent_rank cume_dist ntile lag lead first_value last_value nth_value"
        " abs ceil ceiling coalesce exp floor glob hex ifnull iif instr length like ln log log10"
        " log2 lower ltrim mod nullif number pow power quote replace round rtrim sign sqrt substr"
        " substring trim trunc typeof unicode char upper concat concat_ws likely unlikely"
        " date datetime time julianday strftime unixepoch timediff current_date current_time"
        " current_timestamp"
        " json json_array json_array_length json_each json_extract json_group_array"
        " json_group_object json_object json_quote json_tree json_type json_valid -> ->>"
    ).split()
)
# SQLite's words, and what they mean here.
_CLEARER: Final = {
    "": "the query is too large",
    "not authorized": "only a SELECT is allowed",
    "user-defined function raised exception": (
        "instr, replace, trim, LIKE or GLOB took too long, or have a pattern that is too long; "
        "read fewer or shorter texts"
    ),
}
_LONG_LITERAL: Final = re.compile(r"(?:-|(?<![\w.]))\d{19,40}(?![\w.])")
_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"")
# Other functions change what is compared.
_EQUALITY: Final = re.compile(
    r"(?:(?:lower|upper)\(\s*(\w+|\"[^\"]+\")\s*\)|\b(\w+)|(\"[^\"]+\"))\s*==?\s*('(?:[^']|'')*+')",
    re.IGNORECASE,
)
_MAX_EQUALITIES: Final = 10
_COMPARISON: Final = re.compile(
    r"\b(?:where|having|on|using|case|order|group|max|min|sum|avg|total)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class NamedTable:
    """A table under the name by which queries use it.

    Attributes:
        name: A name that SQL takes without quotes.
        table: The records.
    """

    name: str
    table: Table


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The rows of a query.

    Attributes:
        columns: Names of the columns.
        rows: The rows, at most 10,000.
        is_cut: Whether the query has more rows.
        notes: What a reader has to know of columns that the query compares, in a sentence each.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    is_cut: bool
    notes: tuple[str, ...] = ()


class RecordDatabase:
    """Tables of records in the memory of this process, for one SELECT at a time.

    Only one thread at a time may use it.

    The values of a column are those of `type_of`: numbers, flags as 0 and 1, or moments in ISO
    8601, with NULL for a missing one. If their texts say more, they are in a column `NAME_text`.
    Lists are JSON. A column with an integer of over 64 bits is text, since SQLite would round it.

    Attributes:
        no_tables: What a refusal says if there are no tables.
    """

    def __init__(self) -> None:
        self.no_tables = "No stored result has records"
        self._columns: dict[str, tuple[str, ...]] = {}
        self._notes: dict[str, dict[str, str]] = {}
        self._connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=0
        )
        if sys.version_info >= (3, 12):
            # Without it, "misspelt" is a text and no missing column.
            self._connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, False)
        run = self._connection.execute
        run("PRAGMA temp_store = MEMORY")
        run("PRAGMA trusted_schema = OFF")
        self._connection.create_function("number", 1, _number, deterministic=True)
        # Creates what these two functions need, which the authorizer would refuse later.
        run("SELECT 1 FROM json_each('[]'), json_tree('[]')").fetchall()
        self._protect()

    @property
    def names(self) -> Collection[str]:
        """The names of the tables."""
        return self._columns.keys()

    def add(self, tables: Sequence[NamedTable]) -> None:
        """Add tables, whose names are new.

        Raises:
            ToolArgumentsError: If SQLite cannot hold a table.
        """
        inserted = {}
        with self._unprotected():
            try:
                self._connection.execute("BEGIN")
                for named in tables:
                    inserted[named.name] = self._insert(named)
                self._connection.execute("COMMIT")
            except (sqlite3.Error, ValueError, OverflowError) as exc:
                self._connection.execute("ROLLBACK")
                raise self._refusal(f"the records cannot be loaded ({exc})") from None
        for named in tables:
            name = named.name
            columns = inserted[name]
            self._columns[name] = tuple(column.name for column in columns)
            self._notes[name] = {column.name: column.note for column in columns if column.note}
            self._notes[name][""] = " ".join(_left_out_of(named))

    def drop(self, name: str) -> None:
        """Remove a table, if there is one."""
        with self._unprotected():
            self._connection.execute(f"DROP TABLE IF EXISTS {quoted(name)}")
        self._columns.pop(name, None)
        self._notes.pop(name, None)

    def query(self, sql: str, *, other_names: Sequence[str] = ()) -> QueryRows:
        """Return the rows of one SELECT.

        Runs in the caller's thread, for at most two seconds of its CPU time.

        Args:
            sql: The SELECT.
            other_names: Tables that could be loaded, which a refusal names too.

        Raises:
            ToolArgumentsError: If the query is not one SELECT, uses something that is missing or
                not allowed, or takes too much time or memory. The message has SQLite's own words
                and the columns that exist.
        """
        if not sql.strip():
            raise self._refusal("the query is empty", other_names)
        for literal in _LONG_LITERAL.findall(_QUOTED.sub("", sql)):
            if not fits_64_bits(int(literal)):  # SQLite would round it to a decimal
                raise self._refusal(
                    f"{literal} has over 64 bits, and such an integer is stored as text: compare "
                    f"with '{literal}', or write {literal}.0 to compare decimals",
                    other_names,
                )
        plain = plain_sql(sql)
        if compiled_size(plain) > _MAX_COMPILED:
            raise self._refusal(
                "its parts repeat one another too often; name each of them fewer times, or ask in "
                "several queries",
                other_names,
            )
        max_bytes = _max_value_bytes(plain)
        with closing(_Watch()) as watch:
            add_text_functions(self._connection, watch.exceeds, max_chars=max_bytes)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max_bytes)
            self._connection.set_progress_handler(watch.exceeds, _CHECK_EVERY)
            try:
                cursor = self._connection.execute(printable(sql))
                rows = tuple(cursor.fetchmany(MAX_RESULT_ROWS + 1))
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError, MemoryError) as exc:
                problem = watch.reason or str(exc)
                problem = _CLEARER.get(problem, problem)
                raise self._refusal(problem, other_names, sql=sql) from None
            finally:
                self._connection.set_progress_handler(None, 0)
            if cursor.description is None:
                raise self._refusal("the query is not a SELECT", other_names)
            columns = tuple(column[0] for column in cursor.description)
            cursor.close()
        is_cut = len(rows) > MAX_RESULT_ROWS
        kept = tuple(map(_readable, rows[:MAX_RESULT_ROWS]))
        return QueryRows(columns, kept, is_cut, self._notes_on(sql))

    def _insert(self, named: NamedTable) -> list[SqlColumn]:
        columns = sql_columns(named.table, max_columns=_MAX_COLUMNS)
        declared = [f"{quoted(column.name)} {column.affinity}" for column in columns]
        places = ", ".join("?" * len(columns))
        self._connection.execute(f"CREATE TABLE {quoted(named.name)} ({', '.join(declared)})")
        self._connection.executemany(
            f"INSERT INTO {quoted(named.name)} VALUES ({places})",  # noqa: S608
            zip(*(column.cells for column in columns), strict=True),
        )
        return columns

    def _notes_on(self, sql: str) -> tuple[str, ...]:
        """Return the notes on the tables of a query, and on the columns that it compares."""
        notes = []
        compares = _COMPARISON.search(sql) is not None
        for table, by_column in self._notes.items():
            if table not in sql:
                continue
            for column, note in by_column.items():
                name = rf"(?<!\w){re.escape(column)}(?!\w)"
                if not column or (compares and re.search(name, sql, re.IGNORECASE)):
                    notes.append(note)
            notes += self._notes_on_absent(sql, table)
        return tuple(dict.fromkeys(filter(None, notes)))

    def _notes_on_absent(self, sql: str, table: str) -> Iterator[str]:
        """Yield a note on each text of a condition that no cell of its column is.

        The text may be written otherwise in the source, such as the letter of a log's level.
        """
        for in_function, plain, in_quotes, literal in _EQUALITY.findall(printable(sql))[
            :_MAX_EQUALITIES
        ]:
            wanted = (in_function or plain or in_quotes).strip('"').lower()
            for column in self._columns[table]:
                if column.lower() != wanted:
                    continue
                cells = f"{quoted(table)} WHERE {quoted(column)}"
                has_it = f"SELECT 1 FROM {cells} = {literal} COLLATE NOCASE LIMIT 1"  # noqa: S608
                if not self._connection.execute(has_it).fetchone():
                    values = f"SELECT DISTINCT {_quoted_if_needed(column)}"
                    yield f"{column} is never {literal} in {table}: {values} lists its values."

    def _protect(self) -> None:
        self._connection.execute("PRAGMA query_only = ON")
        for limit, value in _LIMITS.items():
            self._connection.setlimit(limit, value)
        self._connection.set_authorizer(_authorize)

    @contextmanager
    def _unprotected(self) -> Iterator[None]:
        """Allow the library's own statements in a block."""
        self._connection.set_authorizer(None)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _SQLITE_MAX_BYTES)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, _SQLITE_MAX_BYTES)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, _MAX_COLUMNS)
        self._connection.execute("PRAGMA query_only = OFF")
        try:
            yield
        finally:
            self._protect()

    def _refusal(
        self, problem: str, other_names: Sequence[str] = (), *, sql: str = ""
    ) -> ToolArgumentsError:
        # SQLite quotes the model's own words, which may be long.
        reason = one_line(problem, max_chars=_MAX_ERROR_CHARS).rstrip(".")
        return ToolArgumentsError(
            f"{QUERY_NAME} returned nothing: {reason}. {self._listed(sql, other_names)}",
            tool=QUERY_NAME,
        )

    def _listed(self, sql: str, other_names: Sequence[str]) -> str:
        """Return the tables that exist, with their columns, those of the query first."""
        tables = []
        # Stable, so that the newest of the others come first.
        names = list(reversed(self._columns))
        names.sort(key=lambda name: name not in sql)
        for name in names:
            columns = self._columns[name]
            tables.append(f"{name}({', '.join(map(_quoted_if_needed, columns))})")
        tables += other_names
        if not tables:
            return self.no_tables
        return one_line(f"Tables: {'; '.join(tables)}", max_chars=_MAX_LISTED_CHARS)


def _left_out_of(named: NamedTable) -> Iterator[str]:
    """Yield a sentence on each part of a result that its table does not have."""
    name, table = named.name, named.table
    if (read := len(table.rows)) < table.total_rows:
        yield f"{name} has the first {read:,} of {table.total_rows:,} records."
    if (read := len(table.columns)) < table.total_columns:
        yield f"{name} has the first {read:,} of {table.total_columns:,} fields."
    if others := len(table.other_lines):
        yield f"{name} lacks {counted(others, 'other line')} of its text."


def _max_value_bytes(plain: str) -> int:
    """Return the maximum length of a value in a query.

    SQLite asks for memory only where its program jumps. Until then each operator, argument and
    column can hold a value, and all of them can be in memory at once.
    """
    values = sum(map(plain.count, ("||", "->", "(", ",")))
    if plain.count("*") > 1:  # "x.*, x.*" multiplies the columns
        values += _MAX_COLUMNS
    return min(_MAX_VALUE_BYTES, _MAX_GROWTH_BYTES // max(values, 1))


_STATM_CHARS: Final = 100


class _Watch:
    """Stops a query that takes too much CPU time or memory."""

    def __init__(self) -> None:
        self.reason = ""
        self._end_s = time.thread_time() + _MAX_CPU_S
        # Kept open, since a query reads it thousands of times.
        self._statm: int | None = None
        with suppress(OSError):  # only Linux has this file
            self._statm = os.open("/proc/self/statm", os.O_RDONLY)
        self._limit_bytes = self._resident_bytes() + _MAX_GROWTH_BYTES

    def close(self) -> None:
        if self._statm is not None:
            os.close(self._statm)

    def exceeds(self) -> bool:
        """Return whether the query has to stop, and keep the reason."""
        if self._resident_bytes() > self._limit_bytes:
            self.reason = "the query took too much memory; read fewer rows or shorter values"
        elif time.thread_time() > self._end_s:
            self.reason = f"the query took over {_MAX_CPU_S:g} s; read fewer rows, or join by a key"
        return bool(self.reason)

    def _resident_bytes(self) -> int:
        """Return the memory of this process, its peak, or 0 where the system says neither."""
        if resource is None:
            return 0
        if self._statm is None:
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # on macOS in bytes
        pages = int(os.pread(self._statm, _STATM_CHARS, 0).split()[1])
        return pages * resource.getpagesize()


def _authorize(
    action: int, _object: str | None, name: str | None, _database: str | None, _by: str | None
) -> int:
    if action in _ALLOWED_ACTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and (name or "").lower() in _ALLOWED_FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _quoted_if_needed(name: str) -> str:
    is_plain = _PLAIN_NAME.fullmatch(name) and name.upper() not in _KEYWORDS
    return name if is_plain else quoted(name)


_KEYWORDS: Final = frozenset(
    (  # noqa: SIM905
        "ALL AND AS BETWEEN BY CASE CHECK COLUMN DEFAULT DESC DISTINCT ELSE END EXISTS FROM GROUP"
        " HAVING IN INDEX INTO IS JOIN KEY LIKE LIMIT NOT NULL OF ON OR ORDER PRIMARY REFERENCES"
        " SELECT SET TABLE THEN TO UNION UNIQUE UPDATE USING VALUES WHEN WHERE WITH"
    ).split()
)


def _number(cell: object) -> float | None:
    number = number_of(cell) if isinstance(cell, (str, int, float)) else None
    return None if number is None or not math.isfinite(number) else number


def _readable(row: tuple[object, ...]) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for value in row:
        if isinstance(value, bytes):
            cells.append(value.hex())
        elif value is None or isinstance(value, (str, int, float)):
            cells.append(value)
    return tuple(cells)
