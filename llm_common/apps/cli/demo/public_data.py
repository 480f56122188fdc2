"""The demo's public data, and tools that return it."""

import csv
import gzip
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from llm_common.tools import Tool, ToolRegistry


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
