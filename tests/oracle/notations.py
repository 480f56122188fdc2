"""One table of amounts, days and flags in every notation, and what SQL should say of it."""

import csv
import io
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Final

Value = float | bool | datetime | None
Units = dict[str, float]
Container = Callable[[Sequence[str], Sequence[Sequence[Any]]], str]


@dataclass(frozen=True, slots=True)
class Notation:
    """How a column is written.

    Attributes:
        name: Name for a failure, such as "decimal comma".
        make: Draws a value.
        write: Writes a value as a cell.
        mean: Returns the value that a cell means, such as a rounded one.
        column: Name of the column.
    """

    name: str
    make: Callable[[random.Random], Any]
    write: Callable[[Any], Any]
    mean: Callable[[Any], Value]
    column: str = "amount"


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT over a table and the first cell that is true."""

    notation: str
    sql: str
    truth: object


# --- how numbers are written


def _amount(chance: random.Random) -> float:
    return round(10 ** chance.uniform(0, 6.4), 2)


def _signed(chance: random.Random) -> float:
    return _amount(chance) * chance.choice((1, 1, -1))


def _whole(chance: random.Random) -> int:
    return int(10 ** chance.uniform(0, 6.6))


def _small(chance: random.Random) -> float:
    return round(chance.uniform(0, 100), chance.choice((0, 1, 2, 3)))


def _european(number: float) -> str:
    return f"{number:,.2f}".translate(str.maketrans(",.", ".,"))


def _parenthesised(number: float) -> str:
    return f"({-number:,.2f})" if number < 0 else f"{number:,.2f}"


_SIZES: Final[Units] = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_DECIMAL_SIZES: Final[Units] = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
_TIMES: Final[Units] = {"ms": 0.001, "s": 1, "min": 60, "h": 3600}


def _with_unit(units: Units) -> Callable[[random.Random], tuple[int, str]]:
    def make(chance: random.Random) -> tuple[int, str]:
        return chance.randint(1, 999), chance.choice([*units])

    return make


def _joined(amount: tuple[int, str]) -> str:
    return f"{amount[0]}{amount[1]}"


def _spaced(amount: tuple[int, str]) -> str:
    return f"{amount[0]} {amount[1]}"


def _scaled(units: Units) -> Callable[[tuple[int, str]], float]:
    return lambda amount: round(amount[0] * units[amount[1]], 6)


NUMBERS: Final = (
    Notation("plain decimals", _small, lambda n: f"{n:g}", float),
    Notation("exponents", lambda c: c.uniform(0, 1) ** 30, repr, float),
    Notation("thousands", _whole, lambda n: f"{n:,}", float),
    Notation("thousands and decimals", _signed, lambda n: f"{n:,.2f}", float),
    Notation("decimal comma", _signed, _european, float),
    Notation("decimal comma alone", _small, lambda n: f"{n:g}".replace(".", ","), float),
    Notation("blank thousands", _signed, lambda n: f"{n:,.2f}".replace(",", "\u00a0"), float),
    Notation("apostrophes", _signed, lambda n: f"{n:,.2f}".replace(",", "'"), float),
    Notation("percent", _small, lambda n: f"{n:g}%", float),
    Notation("percent with a blank", _small, lambda n: f"{n:g} %", float),
    Notation("dollars", _amount, lambda n: f"${n:,.2f}", float),
    Notation("whole dollars", _whole, lambda n: f"${n:,}", float),
    Notation("negative dollars", _signed, lambda n: f"{'-' * (n < 0)}${abs(n):,.2f}", float),
    Notation("euros", _signed, lambda n: f"{_european(n)} €", float),
    Notation("currency code", _amount, lambda n: f"USD {n:,.2f}", float),
    Notation("parentheses", _signed, _parenthesised, float),
    Notation("binary sizes", _with_unit(_SIZES), _joined, _scaled(_SIZES)),
    Notation("decimal sizes", _with_unit(_DECIMAL_SIZES), _spaced, _scaled(_DECIMAL_SIZES)),
    Notation("times", _with_unit(_TIMES), _joined, _scaled(_TIMES)),
    Notation("one unit", _small, lambda n: f"{n:g}ms", float),
)


# --- how days and flags are written


def _moment(chance: random.Random) -> datetime:
    return datetime(2023, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(63_000_000))


def _day(moment: datetime) -> datetime:
    return datetime(moment.year, moment.month, moment.day, tzinfo=UTC)


def _same(value: Any) -> Any:
    return value


DAYS: Final = (
    Notation("ISO day", _moment, lambda t: f"{t:%Y-%m-%d}", _day, "day"),
    Notation("ISO time", _moment, lambda t: f"{t:%Y-%m-%dT%H:%M:%SZ}", _same, "day"),
    Notation("offset", _moment, lambda t: f"{t:%Y-%m-%dT%H:%M:%S}+02:00", _same, "day"),
    Notation("slashes", _moment, lambda t: f"{t:%Y/%m/%d %H:%M:%S}", _same, "day"),
    Notation("American", _moment, lambda t: f"{t.month}/{t.day}/{t.year}", _day, "day"),
    Notation("British", _moment, lambda t: f"{t:%d/%m/%Y}", _day, "day"),
    Notation("German", _moment, lambda t: f"{t.day}.{t.month}.{t.year}", _day, "day"),
    Notation("day in English", _moment, lambda t: f"{t.day} {t:%B %Y}", _day, "day"),
    Notation("month in English", _moment, lambda t: f"{t:%b} {t.day}, {t.year}", _day, "day"),
    Notation("access log", _moment, lambda t: f"{t:%d/%b/%Y:%H:%M:%S} +0000", _same, "day"),
    Notation("mail", _moment, format_datetime, _same, "day"),
)


def _flag(chance: random.Random) -> bool:
    return chance.random() < 0.4


FLAGS: Final = (
    Notation("True", _flag, str, _same, "active"),
    Notation("yes", _flag, lambda f: "yes" if f else "no", _same, "active"),
    Notation("Y", _flag, lambda f: "Y" if f else "N", _same, "active"),
)

TEXTS: Final = (
    Notation("leading zeros", lambda c: c.randrange(9_999), lambda n: f"{n:04}", _same, "code"),
    Notation(
        "versions",
        lambda c: c.randrange(30),
        lambda n: f"3.{n}" if n % 3 else f"3.{n}.1",
        _same,
        "version",
    ),
    Notation(
        "telephone",
        lambda c: c.randrange(10**6, 10**7),
        lambda n: f"+49 30 {n}",
        _same,
        "phone",
    ),
    Notation("ids", lambda c: c.randrange(10**6, 10**7), lambda n: f"A-{n}", _same, "ref"),
    Notation(
        "open commas",
        lambda c: c.randrange(1_000, 10**6),
        lambda n: f"{n:,}",
        _same,
        "weight",
    ),
)
"""Cells that stay texts: their order as numbers says nothing, or is not known."""


# --- tables in their containers


def as_csv(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *rows])
    return text.getvalue()


def as_tabs(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return "\n".join("\t".join(map(str, row)) for row in [names, *rows])


def as_markdown(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [names, *rows]]
    return "\n".join([lines[0], "|---" * len(names) + "|", *lines[1:]])


def as_json(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    return json.dumps([dict(zip(names, row, strict=True)) for row in rows])


CONTAINERS: Final = (as_csv, as_tabs, as_markdown, as_json)
MARKERS: Final = ("N/A", "-", "null", "", "n/a", "None")


@dataclass(frozen=True, slots=True)
class Written:
    """A table as a tool writes it, with the queries that its values answer."""

    text: str
    queries: list[Query]


def written(
    chance: random.Random, notation: Notation, container: Container, *, marker: str | None
) -> Written:
    """Return a table of three columns, of which one has a notation and perhaps gaps."""
    count = chance.randint(40, 120)
    names = [f"item-{number:03}" for number in range(count)]
    cells, values = [], []
    for _ in names:
        drawn = notation.make(chance)
        is_missing = marker is not None and chance.random() < 0.15
        cells.append(marker if is_missing else notation.write(drawn))
        values.append(None if is_missing else notation.mean(drawn))
    rows = list(zip(names, cells, range(count), strict=True))
    text = container(["name", notation.column, "n"], rows)
    return Written(text, _queries(chance, notation, names, cells, values))


def _queries(
    chance: random.Random,
    notation: Notation,
    names: Sequence[str],
    cells: Sequence[Any],
    values: Sequence[Any],
) -> list[Query]:
    column = notation.column
    asked: dict[str, object]
    if notation in TEXTS:
        cell = chance.choice(cells)
        asked = {f"SELECT count(*) FROM $T WHERE {column} = '{cell}'": cells.count(cell)}
        # By letters it would be another one.
        asked[f"SELECT max({column}) FROM $T"] = None
    elif notation in FLAGS:
        asked = _of_flags(column, values)
    elif notation in DAYS:
        asked = _of_days(chance, column, names, values)
    else:
        asked = _of_numbers(chance, column, names, values)
    asked[f"SELECT count(*) FROM $T WHERE {column} IS NULL"] = values.count(None)
    asked[f"SELECT count({column}) FROM $T"] = len(values) - values.count(None)
    return [Query(notation.name, sql, truth) for sql, truth in asked.items()]


def _of_numbers(
    chance: random.Random, column: str, names: Sequence[str], values: Sequence[Any]
) -> dict[str, object]:
    present = [value for value in values if value is not None]
    low, high = sorted(chance.sample(present, 2))
    highest = max(present)
    return {
        f"SELECT sum({column}) FROM $T": sum(present),
        f"SELECT avg({column}) FROM $T": sum(present) / len(present),
        f"SELECT min({column}) FROM $T": min(present),
        f"SELECT max({column}) FROM $T": highest,
        f"SELECT count(*) FROM $T WHERE {column} > {low!r}": sum(v > low for v in present),
        f"SELECT count(*) FROM $T WHERE {column} BETWEEN {low!r} AND {high!r}": sum(
            low <= value <= high for value in present
        ),
        f"SELECT {column} FROM $T WHERE {column} IS NOT NULL ORDER BY {column} LIMIT 1 OFFSET 5": (
            sorted(present)[5]
        ),
        f"SELECT name FROM $T ORDER BY {column} DESC, n LIMIT 1": names[values.index(highest)],
        f"SELECT count(*) FROM $T WHERE {column} < (SELECT avg({column}) FROM $T)": sum(
            value < sum(present) / len(present) for value in present
        ),
    }


def _of_days(
    chance: random.Random, column: str, names: Sequence[str], values: Sequence[Any]
) -> dict[str, object]:
    present = [value for value in values if value is not None]
    low, high = sorted(chance.sample(present, 2))
    month = f"{low:%Y-%m}"
    return {
        f"SELECT count(*) FROM $T WHERE date({column}) = '{low:%Y-%m-%d}'": sum(
            value.date() == low.date() for value in present
        ),
        f"SELECT count(*) FROM $T WHERE {column} >= '{low:%Y-%m-%d}'": sum(
            value.date() >= low.date() for value in present
        ),
        f"SELECT count(*) FROM $T WHERE date({column}) BETWEEN '{low:%Y-%m-%d}' AND "
        f"'{high:%Y-%m-%d}'": sum(low.date() <= value.date() <= high.date() for value in present),
        f"SELECT count(*) FROM $T WHERE strftime('%Y-%m', {column}) = '{month}'": sum(
            f"{value:%Y-%m}" == month for value in present
        ),
        f"SELECT count(*) FROM $T WHERE {column} LIKE '{month}%'": sum(
            f"{value:%Y-%m}" == month for value in present
        ),
        f"SELECT date(max({column})) FROM $T": f"{max(present):%Y-%m-%d}",
        f"SELECT date(min({column})) FROM $T": f"{min(present):%Y-%m-%d}",
    }


def _of_flags(column: str, values: Sequence[Any]) -> dict[str, object]:
    return {
        f"SELECT count(*) FROM $T WHERE {column}": values.count(True),
        f"SELECT count(*) FROM $T WHERE NOT {column}": values.count(False),
        f"SELECT count(*) FROM $T WHERE {column} = 1": values.count(True),
        f"SELECT sum({column}) FROM $T": values.count(True),
    }
