"""Public data of the package, the demo's tools over it, and five questions that it answers."""

import csv
import gzip
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from llm_common.plans import ExecutionPlan, PlannedTask, SubTask
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its plan, and what shows whether the data for its answer reached the prompt.

    Attributes:
        text: The question.
        steps: What to look up, one call each.
        evidence: What an answer rests on, as it stands in the tools' outputs and nowhere else;
            white space aside.
        known: What a right answer says.
    """

    text: str
    steps: tuple[str, ...]
    evidence: tuple[str, ...]
    known: tuple[str, ...]

    @property
    def plan(self) -> ExecutionPlan:
        """One task with a step for each call."""
        steps = [
            SubTask(id=number, description=step) for number, step in enumerate(self.steps, start=1)
        ]
        return ExecutionPlan(
            tasks=[PlannedTask(id=1, description="Gather the data", sub_tasks=steps)]
        )

    def missing_from(self, text: str) -> tuple[str, ...]:
        """The pieces of evidence that the text does not hold."""
        found = _without_spaces(text)
        return tuple(each for each in self.evidence if _without_spaces(each) not in found)

    def unnamed_in(self, answer: str) -> tuple[str, ...]:
        """What a right answer says and this one does not.

        "1.5" is not in "11.5", and "1,000" is 1000.
        """
        plain = answer.replace(",", "")
        return tuple(
            each
            for each in self.known
            if not re.search(rf"(?<![\d.]){re.escape(each)}(?!\.?\d)", plain)
        )


QUESTIONS = (
    Question(
        text="How strong was the earthquake south of Jarm in Afghanistan on 2018-01-31, "
        "and how many people felt it?",
        steps=tuple(
            f"Get the earthquakes of {day}" for day in ("2018-01-31", "2018-02-01", "2018-02-02")
        ),
        evidence=('"mag":6.1,"place":"35km S of Jarm, Afghanistan"', '"felt":438,'),
        known=("6.1", "438"),
    ),
    Question(
        text="How many millimetres of rain fell in New York on 2014-04-30?",
        steps=tuple(
            f'Get the daily weather of the city "{city}"' for city in ("New York", "Seattle")
        ),
        evidence=("New York,2014-04-30,118.9,",),
        known=("118.9",),
    ),
    Question(
        text="What did it cost when a B-727 of FedEx hit a bird on its climb out of "
        "Austin-Bergstrom in 1998?",
        steps=tuple(f"Get the bird strikes of the year {year}" for year in (1997, 1998, 1999)),
        evidence=(
            (
                "1998-02-24,FEDEX EXPRESS,Texas,Climb,Large,Unknown bird - large,Dawn,0,"
                "7043545,7043545"
            ),
        ),
        known=("7043545",),
    ),
    Question(
        text="What was the unemployment rate in construction in 2010-02, and in manufacturing?",
        steps=tuple(
            f'Get the unemployment of the industry "{industry}"'
            for industry in ("Construction", "Manufacturing", "Finance", "Agriculture")
        ),
        evidence=(
            '"industry":"Construction","month":"2010-02","count":2440,"rate":27.1}',
            '"industry":"Manufacturing","month":"2010-02","count":1814,"rate":12.1}',
        ),
        known=("27.1", "12.1"),
    ),
    Question(
        text="Which commit put a gateway before MCP servers, and on which day?",
        steps=("Get the log of the commits",),
        evidence=("2026-11-23  Put a gateway before MCP servers",),
        known=("2026-11-23",),
    ),
)


def public_tools() -> ToolRegistry:
    """Five tools over the data of the package, ready to be chosen from.

    Each output is what its source would give.
    """
    functions = (
        get_earthquakes,
        get_daily_weather,
        get_bird_strikes,
        get_unemployment,
        get_commits,
    )
    return ToolRegistry([Tool(function, read_only=True) for function in functions])


def get_earthquakes(day: str) -> list[dict[str, Any]]:
    """All earthquakes of a day as GeoJSON: magnitude, place, time, reports of people who felt them.

    Args:
        day: A date such as 2018-02-01.
    """
    return [
        each
        for each in _json("earthquakes.json")["features"]
        if _day(each["properties"]["time"]) == day
    ]


def get_daily_weather(city: str) -> str:
    """The daily weather of a city as a table: rain in millimetres, temperatures, wind.

    Args:
        city: A name such as "Seattle".
    """
    return _table("weather.csv", "location", city)


def get_bird_strikes(year: int) -> str:
    """The reports of bird strikes in a year as a table: airport, aircraft, airline, damage, cost.

    Args:
        year: A year such as 1990.
    """
    return _table("bird_strikes.csv", "Flight Date", f"{year}-")


def get_unemployment(industry: str) -> list[dict[str, Any]]:
    """The monthly unemployment of an industry: thousands of persons, and the rate in percent.

    Args:
        industry: A name such as "Information".
    """
    return [
        {
            "industry": each["series"],
            "month": f"{each['year']}-{each['month']:02}",
            "count": each["count"],
            "rate": each["rate"],
        }
        for each in _json("unemployment.json")
        if each["series"].casefold() == industry.casefold()
    ]


def get_commits() -> str:
    """The log of all commits of this library: date, subject and changed files."""
    return _text("commits.log")


def _table(name: str, column: str, beginning: str) -> str:
    """The head of a table, and its rows whose column begins so."""
    head, *rows = _text(name).splitlines()
    place = next(csv.reader([head])).index(column)
    return "\n".join([head, *_rows(rows, place, beginning)])


def _rows(rows: list[str], place: int, beginning: str) -> Iterable[str]:
    read = csv.reader(rows)
    return (
        row for row, cells in zip(rows, read, strict=True) if cells[place].startswith(beginning)
    )


def _json(name: str) -> Any:
    return orjson.loads(_text(name))


@cache
def _text(name: str) -> str:
    return gzip.decompress(
        (files("llm_common.apps.cli.demo") / "data" / f"{name}.gz").read_bytes()
    ).decode()


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).date().isoformat()


def _without_spaces(text: str) -> str:
    return "".join(text.split())
