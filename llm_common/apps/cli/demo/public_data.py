"""The demo's public data: tools that return it, and eight questions about it.

Each question says what a text must contain to answer it.
"""

import csv
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any, Final

import orjson

from llm_common.tools import Tool, ToolRegistry

_NEAR_CHARS: Final = 300  # about a record, before and behind one of its values


def public_tools() -> ToolRegistry:
    """Return a registry of five tools over the package's data.

    Each tool returns data in the format of its source.
    """
    # A selector reads their docstrings as the descriptions of the tools.
    functions = (
        get_earthquakes,
        get_daily_weather,
        get_bird_strikes,
        get_unemployment,
        get_commits,
    )
    # Word ranking calls no tool that may write, and judges unmarked ones by their names.
    return ToolRegistry([Tool(function, read_only=True) for function in functions])


def get_earthquakes(day: str) -> list[dict[str, Any]]:
    """All earthquakes of a day as GeoJSON: magnitude, place, time, reports of people who felt them.

    Args:
        day: A date such as 2018-02-01.
    """
    features = []
    for feature in orjson.loads(_read_text("earthquakes.json"))["features"]:
        # The U.S. Geological Survey gives times in milliseconds.
        moment = datetime.fromtimestamp(feature["properties"]["time"] / 1_000, UTC)
        if moment.date().isoformat() == day:
            features.append(feature)
    return features


def get_daily_weather(city: str) -> str:
    """The daily weather of a city as a table: rain in millimetres, temperatures, wind.

    Args:
        city: A name such as "Seattle".
    """
    return _filter_table("weather.csv", "location", city)


def get_bird_strikes(year: int) -> str:
    """The reports of bird strikes in a year as a table: airport, aircraft, airline, damage, cost.

    Args:
        year: A year such as 1990.
    """
    return _filter_table("bird_strikes.csv", "Flight Date", f"{year}-")


def get_unemployment(industry: str) -> list[dict[str, Any]]:
    """The monthly unemployment of an industry: thousands of persons, and the rate in percent.

    Args:
        industry: A name such as "Information".
    """
    rows = []
    for row in orjson.loads(_read_text("unemployment.json")):
        if row["series"].casefold() == industry.casefold():
            month = f"{row['year']}-{row['month']:02}"
            rows.append(
                {
                    "industry": row["series"],
                    "month": month,
                    "count": row["count"],
                    "rate": row["rate"],
                }
            )
    return rows


def get_commits() -> str:
    """The log of all commits of this library: date, subject and changed files."""
    return _read_text("commits.log")


def _filter_table(name: str, column: str, prefix: str) -> str:
    """Return the header of a table, and the rows whose column begins with a prefix."""
    header, *lines = _read_text(name).splitlines()
    index = next(csv.reader([header])).index(column)
    matches = [header]
    # `strict` notices a cell with a line end, after which rows would not match lines.
    for line, cells in zip(lines, csv.reader(lines), strict=True):
        if cells[index].startswith(prefix):
            matches.append(line)
    return "\n".join(matches)


@cache
def _read_text(name: str) -> str:
    data = files("llm_common.apps.cli.demo") / "data" / f"{name}.gz"
    # Not opened by a path, which it does not have inside a zip archive.
    return gzip.decompress(data.read_bytes()).decode()


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its plan, and the evidence that its answer needs.

    Attributes:
        text: The question.
        steps: Descriptions of the calls to make.
        evidence: Values of a record that occur near each other only in the outputs of the right
            calls, separated by ` | `. A count needs every record that it counts.
    """

    text: str
    steps: tuple[str, ...]
    evidence: tuple[str, ...]

    @property
    def values(self) -> tuple[str, ...]:
        """Return the values of all pieces of evidence."""
        return tuple(value for piece in self.evidence for value in piece.split(" | "))

    def missing_from(self, text: str) -> tuple[str, ...]:
        """Return the pieces of evidence that a text does not contain."""
        return tuple(piece for piece in self.evidence if not _has_record(text, piece.split(" | ")))


# Some steps fetch data that the answer does not need, which the prompt should leave out. The first
# three questions use other words than the data, the next two its own. Then come a list, a count and
# a maximum.
QUESTIONS: Final = (
    Question(
        text="What magnitude had the Afghan quake of 31 January 2018, and how many people "
        "reported it?",
        steps=(
            "Get the earthquakes of 2018-01-31",
            "Get the earthquakes of 2018-02-01",
            "Get the earthquakes of 2018-02-02",
        ),
        evidence=("35km S of Jarm, Afghanistan | 6.1 | 438",),
    ),
    Question(
        text="How much did it rain in New York on the last day of April 2014?",
        steps=(
            'Get the daily weather of the city "New York"',
            'Get the daily weather of the city "Seattle"',
        ),
        evidence=("2014-04-30 | New York | 118.9",),
    ),
    Question(
        text="What was the bill when a Federal Express jet struck a bird after leaving Austin in "
        "February 1998?",
        steps=(
            "Get the bird strikes of the year 1997",
            "Get the bird strikes of the year 1998",
            "Get the bird strikes of the year 1999",
        ),
        evidence=("1998-02-24 | FEDEX EXPRESS | 7043545",),
    ),
    Question(
        text="What was the unemployment rate in construction in 2010-02, and in manufacturing?",
        steps=(
            'Get the unemployment of the industry "Construction"',
            'Get the unemployment of the industry "Manufacturing"',
            'Get the unemployment of the industry "Finance"',
            'Get the unemployment of the industry "Agriculture"',
        ),
        evidence=(
            "2010-02 | Construction | 27.1",
            "2010-02 | Manufacturing | 12.1",
        ),
    ),
    Question(
        text="Which commit put a gateway before MCP servers, and on which day?",
        steps=("Get the log of the commits",),
        evidence=("Put a gateway before MCP servers | 2026-11-23",),
    ),
    Question(
        text="Which earthquakes of 2018-02-02 had a magnitude of 5 or more?",
        steps=(
            "Get the earthquakes of 2018-02-01",
            "Get the earthquakes of 2018-02-02",
            "Get the earthquakes of 2018-02-03",
        ),
        evidence=(
            "265km NE of Scott Island Bank, Antarctica | 6",
            "138km SE of Modayag, Indonesia | 5.5",
            "260km NE of Scott Island Bank, Antarctica | 5.2",
            "28km WSW of Dadali, Solomon Islands | 5.1",
            "Southeast Indian Ridge | 5.1",
            "Reykjanes Ridge | 5.1",
        ),
    ),
    Question(
        text="How many bird strikes of 1999 did substantial damage on approach?",
        steps=(
            "Get the bird strikes of the year 1998",
            "Get the bird strikes of the year 1999",
        ),
        evidence=(
            "1999-01-04 | NEW ORLEANS INTL | Substantial",
            "1999-02-04 | TETERBORO AIRPORT | Substantial",
            "1999-02-24 | PORTLAND INTL (OR) | Substantial",
            "1999-03-15 | GREATER PITTSBURGH | Substantial",
            "1999-04-26 | DETROIT METRO WAYNE COUNTY ARPT | Substantial",
            "1999-07-07 | LAGUARDIA NY | Substantial",
            "1999-10-14 | LOGAN INTL | Substantial",
        ),
    ),
    Question(
        text="Which bird strike of 1999 was the most expensive, and what did it cost?",
        steps=(
            "Get the bird strikes of the year 1998",
            "Get the bird strikes of the year 1999",
        ),
        evidence=("1999-04-05 | UNITED AIRLINES | 1715077",),
    ),
)


def _has_record(text: str, values: Sequence[str]) -> bool:
    """Return whether a text has values near each other, as JSON, CSV and rows of a table do."""
    first, *others = values
    for match in re.finditer(re.escape(first), text):
        window = text[max(match.start() - _NEAR_CHARS, 0) : match.end() + _NEAR_CHARS]
        if all(re.search(rf"(?<![\d.]){re.escape(value)}(?![\d])", window) for value in others):
            return True
    return False
