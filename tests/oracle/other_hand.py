"""Questions worded independently of the reader.

Six tools return flights, employees, listings, loans, incidents and plants. Each template has
several wordings, the values that they mention, and a condition in plain Python that counts the
records. A template without a condition asks what a count of the records cannot answer.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from llm_common.text.canonical import Json

from .asked import Asked, Domain

Row: TypeAlias = dict[str, Any]
Values: TypeAlias = dict[str, Any]

_ROUNDS = 40


class Number(int):
    """Is written as digits, or as `k`, `word` or `ordinal`."""

    def __format__(self, style: str) -> str:
        if style == "k":
            return f"{self // 1000}k"
        if style == "word":
            return _WORDS[self]
        if style == "ordinal":
            return _ORDINALS[self]
        return int(self).__format__(style)


_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_ORDINALS = ("", "first", "second", "third", "fourth")


@dataclass(frozen=True, slots=True)
class Template:
    """Describes one question in several wordings.

    Attributes:
        kind: What is asked.
        wordings: Formats of the question.
        means: Whether a row is meant. None if the rows cannot answer.
        slots: Values to choose from, by the name that a wording gives them.
    """

    kind: str
    wordings: tuple[str, ...]
    means: Callable[[Row, Values], bool] | None
    slots: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """Describes a tool.

    Attributes:
        tool: Name of the tool.
        rows: Makes the rows, with times as datetimes and None for what is missing.
        notations: Formats of the times, by field.
        blanks: Fields that write a missing value as an empty text at times.
        templates: What is asked.
    """

    tool: str
    rows: Callable[[random.Random], list[Row]]
    notations: Mapping[str, str]
    blanks: frozenset[str]
    templates: tuple[Template, ...]


def domains(seed: int, *, questions: int) -> list[Domain]:
    """Return records of six tools, and questions about them.

    The same seed gives the same domains. Every template is asked equally often until its
    wordings and values run out.

    Args:
        seed: Seed of records and questions.
        questions: Maximum number of questions, over all domains.
    """
    draw = random.Random(seed)
    rows_by_tool: dict[str, list[Row]] = {}
    records_by_tool: dict[str, list[dict[str, Json]]] = {}
    for source in _SOURCES:
        rows = source.rows(draw)
        rows_by_tool[source.tool] = rows
        records_by_tool[source.tool] = [_written(draw, row, source) for row in rows]

    pairs = [(source, template) for source in _SOURCES for template in source.templates]
    draw.shuffle(pairs)

    asked_by_tool: dict[str, dict[str, Asked]] = {source.tool: {} for source in _SOURCES}
    remaining = questions
    for turn in range(_ROUNDS):
        for source, template in pairs:
            if remaining <= 0:
                break
            wording = template.wordings[turn % len(template.wordings)]
            values = _chosen_values(draw, template.slots)
            question = wording.format_map(values)
            asked = asked_by_tool[source.tool]
            if question not in asked:
                truth = _count(rows_by_tool[source.tool], template, values)
                asked[question] = Asked(template.kind, question, truth)
                remaining -= 1

    return [
        Domain(source.tool, records_by_tool[source.tool], list(asked_by_tool[source.tool].values()))
        for source in _SOURCES
    ]


def _count(rows: list[Row], template: Template, values: Values) -> int | None:
    if template.means is None:
        return None
    count = 0
    for row in rows:
        if template.means(row, values):
            count += 1
    return count


def _chosen_values(draw: random.Random, slots: Mapping[str, Sequence[Any]]) -> Values:
    """Choose a different value for each slot, with ends of ranges in order."""
    values: Values = {}
    for name, pool in slots.items():
        value = draw.choice(pool)
        while value in values.values():
            value = draw.choice(pool)
        values[name] = value
    for first, last in (("low", "high"), ("start", "end")):
        if first in values and values[first] > values[last]:
            values[first], values[last] = values[last], values[first]
    return values


def _written(draw: random.Random, row: Row, source: Source) -> dict[str, Json]:
    """Return a row as its tool writes it."""
    record: dict[str, Json] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            record[name] = _written(draw, value, source)
        elif isinstance(value, datetime):
            record[name] = value.strftime(source.notations[name])
        elif value is not None:
            record[name] = value
        else:
            way = draw.choice(("null", "absent", "blank"))
            if way == "null":
                record[name] = None
            elif way == "blank" and name in source.blanks:
                record[name] = ""
    return record


_ISO_DAY = "%Y-%m-%d"
_ISO_TIME = "%Y-%m-%dT%H:%M:%SZ"
_DAY_FIRST = "%-d %B %Y"
_MONTH_FIRST = "%B %-d, %Y"

_YEARS = (2023, 2024)
_QUARTERS = (Number(1), Number(2), Number(3), Number(4))
_MONTHS = tuple(datetime(year, month, 1, tzinfo=UTC) for year in _YEARS for month in range(1, 13))
_LATE_MONTHS = _MONTHS[6:20]
_DAYS = tuple(datetime(2023, 1, 4, tzinfo=UTC) + timedelta(days=5 * step) for step in range(140))
_SMALL = (Number(2), Number(3), Number(4), Number(5))

_NAMES = (
    "Ana Lopes",
    "Anna Berg",
    "Bruno Costa",
    "Chen Wei",
    "Fatima Khan",
    "Grace Young",
    "John Smith",
    "Johnny Smithson",
    "Maria Silva",
    "Noah Park",
    "Olga Petrova",
    "Priya Nair",
    "Sam West",
    "Will Short",
)


def _some_day(draw: random.Random, first: int, last: int) -> datetime:
    """Return a time in the years from `first` to `last`, on a full minute."""
    start = datetime(first, 1, 1, tzinfo=UTC)
    minutes = (datetime(last + 1, 1, 1, tzinfo=UTC) - start).days * 24 * 60
    return start + timedelta(minutes=draw.randrange(minutes))


def _some_amount(draw: random.Random, low: int, high: int) -> float:
    """Return an amount that is never a whole number."""
    return draw.randrange(low, high) + draw.choice((0.25, 0.5, 0.95, 0.99))


def _some_of(draw: random.Random, values: Sequence[str], most: int) -> list[str]:
    return draw.sample(values, draw.randint(0, most))


def _or_missing(draw: random.Random, value: object, share: float) -> Any:
    """Return a value, or None in a share of the calls."""
    if draw.random() < share:
        return None
    return value


def _in_month(day: datetime | None, month: datetime) -> bool:
    return day is not None and (day.year, day.month) == (month.year, month.month)


def _in_months(day: datetime | None, start: datetime, end: datetime) -> bool:
    """Return whether a day is in the months from `start` to `end`, both included."""
    if day is None:
        return False
    return (start.year, start.month) <= (day.year, day.month) <= (end.year, end.month)


def _in_quarter(day: datetime | None, year: int, quarter: int) -> bool:
    return day is not None and day.year == year and (day.month + 2) // 3 == quarter


def _in_year(day: datetime | None, year: int) -> bool:
    return day is not None and day.year == year


def _on_day(day: datetime | None, other: datetime) -> bool:
    return day is not None and day.date() == other.date()


def _since(day: datetime | None, start: datetime) -> bool:
    """Return whether a day is in the month or on the day that `start` begins, or later."""
    return day is not None and day >= start


def _before(day: datetime | None, end: datetime) -> bool:
    return day is not None and day < end


def _after_day(day: datetime | None, other: datetime) -> bool:
    return day is not None and day.date() > other.date()


def _after_month(day: datetime | None, month: datetime) -> bool:
    return day is not None and (day.year, day.month) > (month.year, month.month)


_AIRLINES = ("Skyline", "Skyline Express", "Blue Wing", "Meridian")
_AIRPORTS = (
    "Oslo",
    "Bergen",
    "York",
    "New York",
    "London",
    "East London",
    "Lisbon",
    "Mexico City",
    "San Juan",
)
_FLIGHT_STATES = ("scheduled", "boarding", "departed", "landed", "cancelled", "diverted")
# A landed flight has departed, so that these two mean more than their value.
_SINGLE_FLIGHT_STATES = ("scheduled", "boarding", "cancelled", "diverted")
_SERVICES = ("wifi", "meals", "extra legroom", "pets")
_FLIGHT_FLAGS = {"international": "is_international", "refundable": "refundable"}
_FARES = tuple(Number(fare) for fare in (150, 200, 250, 400, 500, 750, 900, 1000, 1200, 2000))
_DELAYS = tuple(Number(delay) for delay in (10, 15, 20, 30, 45, 60, 90))


def _flights(draw: random.Random) -> list[Row]:
    rows = []
    for number in range(900):
        origin, destination = draw.sample(_AIRPORTS, 2)
        status = draw.choice(_FLIGHT_STATES)
        fare = _some_amount(draw, 39, 1900)
        if draw.random() < 0.02:
            fare = 2024.0
        row: Row = {
            "flight_no": f"{number * 7:04}",
            "airline": draw.choice(_AIRLINES),
            "origin": origin,
            "destination": destination,
            "status": status,
            "departure": _some_day(draw, 2023, 2024),
            "delay_minutes": draw.randint(-20, 120),
            "fare_usd": fare,
            "seats_left": draw.randint(0, 40),
            "stops": draw.randint(0, 4),
            "is_international": draw.random() < 0.6,
            "refundable": draw.random() < 0.4,
            "services": _some_of(draw, _SERVICES, 4),
            "gate": _or_missing(draw, f"{draw.choice('ABC')}{draw.randint(1, 30)}", 0.2),
            "captain": {"name": draw.choice(_NAMES), "license": f"{draw.randrange(10000):05}"},
        }
        if status == "cancelled":
            row["delay_minutes"] = None
        rows.append(row)
    return rows


_FLIGHT_TEMPLATES = (
    Template(
        "single value",
        (
            "How many flights are operated by {airline}?",
            "How many {airline} flights are there?",
            "number of flights by {airline}",
            "Could you tell me how many flights {airline} operates?",
        ),
        lambda row, value: row["airline"] == value["airline"],
        {"airline": _AIRLINES},
    ),
    Template(
        "value of one of two columns",
        (
            "How many flights depart from {city}?",
            "flights from {city}",
            "Show me all flights leaving from {city}.",
            "How many of the flights take off from {city}?",
        ),
        lambda row, value: row["origin"] == value["city"],
        {"city": _AIRPORTS},
    ),
    Template(
        "value of one of two columns",
        (
            "How many flights go to {city}?",
            "flights to {city}",
            "List the flights bound for {city}.",
            "Which flights have {city} as their destination?",
        ),
        lambda row, value: row["destination"] == value["city"],
        {"city": _AIRPORTS},
    ),
    Template(
        "two conditions",
        (
            "How many flights go from {city} to {other}?",
            "flights from {city} to {other}",
            "Do we have any flights to {other} from {city}? How many?",
            "How many {city} to {other} flights are there?",
        ),
        lambda row, value: row["origin"] == value["city"] and row["destination"] == value["other"],
        {"city": _AIRPORTS, "other": _AIRPORTS},
    ),
    Template(
        "alternatives across columns",
        (
            "How many flights are either from {city} or to {city}?",
            "flights from or to {city}",
            "Count the flights that have {city} as origin or destination.",
        ),
        lambda row, value: value["city"] in {row["origin"], row["destination"]},
        {"city": _AIRPORTS},
    ),
    Template(
        "alternatives in a column",
        (
            "How many flights leave from {city} or {other}?",
            "flights departing from either {city} or {other}",
            "Show me the flights out of {city} or {other}, please.",
        ),
        lambda row, value: row["origin"] in {value["city"], value["other"]},
        {"city": _AIRPORTS, "other": _AIRPORTS},
    ),
    Template(
        "negation",
        (
            "How many flights do not go to {city}?",
            "How many flights have a destination other than {city}?",
            "Count all flights except those to {city}.",
            "How many flights aren't going to {city}?",
        ),
        lambda row, value: row["destination"] != value["city"],
        {"city": _AIRPORTS},
    ),
    Template(
        "neither nor",
        (
            "How many flights are neither {status} nor {other}?",
            "Which flights are neither {other} nor {status}?",
            "how many flights are not {status} and not {other}",
        ),
        lambda row, value: row["status"] not in {value["status"], value["other"]},
        {"status": _SINGLE_FLIGHT_STATES, "other": _SINGLE_FLIGHT_STATES},
    ),
    Template(
        "exception",
        (
            "How many flights from {city} were not {status}?",
            "flights from {city}, except the {status} ones",
            "How many flights left from {city} but weren't {status}?",
        ),
        lambda row, value: row["origin"] == value["city"] and row["status"] != value["status"],
        {"city": _AIRPORTS, "status": ("cancelled", "diverted")},
    ),
    Template(
        "number and unit",
        (
            "How many flights were more than {delay} minutes late?",
            "How many flights are delayed by more than {delay} minutes?",
            "flights with a delay over {delay} min",
            "Which flights have a delay of more than {delay} minutes?",
        ),
        lambda row, value: (
            row["delay_minutes"] is not None and row["delay_minutes"] > value["delay"]
        ),
        {"delay": _DELAYS},
    ),
    Template(
        "negative number",
        (
            "How many flights have a delay below {minutes}?",
            "How many flights have delay_minutes less than {minutes}?",
            "flights with delay_minutes < {minutes}",
        ),
        lambda row, value: (
            row["delay_minutes"] is not None and row["delay_minutes"] < value["minutes"]
        ),
        {"minutes": (-2, -5, -8, -10, -15)},
    ),
    Template(
        "number by words",
        (
            "How many flights cost less than ${fare:,}?",
            "flights under {fare} dollars",
            "How many flights are cheaper than {fare} USD?",
            "List the flights with a fare below ${fare}.",
        ),
        lambda row, value: row["fare_usd"] < value["fare"],
        {"fare": _FARES},
    ),
    Template(
        "number between",
        (
            "How many flights cost between ${low:,} and ${high:,}?",
            "flights with a fare between {low} and {high} dollars",
            "How many flights have a fare from {low} to {high} USD?",
        ),
        lambda row, value: value["low"] <= row["fare_usd"] <= value["high"],
        {"low": _FARES, "high": _FARES},
    ),
    Template(
        "amount that looks like a year",
        (
            "How many flights have a fare of {fare}?",
            "How many flights cost exactly {fare:,} dollars?",
            "flights with a fare of exactly ${fare}",
        ),
        lambda row, value: row["fare_usd"] == value["fare"],
        {"fare": (2024, 2023)},
    ),
    Template(
        "number of things left",
        (
            "How many flights have at least {seats} seats left?",
            "How many flights still have {seats} or more seats left?",
            "flights with no fewer than {seats} seats left",
        ),
        lambda row, value: row["seats_left"] >= value["seats"],
        {"seats": (2, 3, 5, 8, 10, 20, 24, 30)},
    ),
    Template(
        "word number",
        (
            "How many flights have {stops:word} stops?",
            "How many flights have exactly {stops:word} stops?",
            "Show me all flights with {stops:word} stops.",
        ),
        lambda row, value: row["stops"] == value["stops"],
        {"stops": (Number(2), Number(3), Number(4))},
    ),
    Template(
        "flag",
        (
            "How many flights are {flag_text}?",
            "How many {flag_text} flights are there?",
            "{flag_text} flights",
            "Which of the flights are {flag_text}?",
        ),
        lambda row, value: row[_FLIGHT_FLAGS[value["flag_text"]]],
        {"flag_text": ("international", "refundable")},
    ),
    Template(
        "negated flag",
        (
            "How many flights are not {flag_text}?",
            "How many flights aren't {flag_text}?",
            "Show me the flights that are not {flag_text}.",
        ),
        lambda row, value: not row[_FLIGHT_FLAGS[value["flag_text"]]],
        {"flag_text": ("international", "refundable")},
    ),
    Template(
        "list has a value",
        (
            "How many flights offer {service}?",
            "How many flights have {service}?",
            "Which flights come with {service}?",
        ),
        lambda row, value: value["service"] in row["services"],
        {"service": ("wifi", "meals", "extra legroom")},
    ),
    Template(
        "list has both",
        (
            "How many flights offer both {service} and {other}?",
            "flights with {service} and {other}",
            "Which flights have {service} as well as {other}?",
        ),
        lambda row, value: (
            value["service"] in row["services"] and value["other"] in row["services"]
        ),
        {"service": _SERVICES[:3], "other": _SERVICES[:3]},
    ),
    Template(
        "missing value",
        (
            "How many flights have no gate?",
            "How many flights are without a gate?",
            "Which flights don't have a gate yet?",
            "flights that have no gate assigned",
        ),
        lambda row, _: row["gate"] is None,
    ),
    Template(
        "missing value and another",
        (
            "How many flights from {city} have no gate?",
            "flights from {city} without a gate",
            "Which flights leaving {city} don't have a gate?",
        ),
        lambda row, value: row["gate"] is None and row["origin"] == value["city"],
        {"city": _AIRPORTS},
    ),
    Template(
        "day",
        (
            "How many flights are on {day:%B %-d, %Y}?",
            "flights on {day:%Y-%m-%d}",
            "How many flights are there on {day:%-d %B %Y}?",
            "Which flights have a departure on {day:%b %-d %Y}?",
        ),
        lambda row, value: _on_day(row["departure"], value["day"]),
        {"day": _DAYS},
    ),
    Template(
        "month and place",
        (
            "How many flights to {city} were there in {month:%B %Y}?",
            "flights to {city} in {month:%b %Y}",
            "In {month:%B %Y}, how many flights to {city} did we have?",
        ),
        lambda row, value: (
            row["destination"] == value["city"] and _in_month(row["departure"], value["month"])
        ),
        {"city": _AIRPORTS, "month": _MONTHS},
    ),
    Template(
        "code with leading zeros",
        (
            "How many flights have the flight number {code}?",
            "flights with flight_no {code}",
            "Show me flight number {code}.",
        ),
        lambda row, value: row["flight_no"] == value["code"],
        {"code": ("0007", "0014", "0042", "0063", "0700", "0707")},
    ),
    Template(
        "nested value",
        (
            "How many flights does Captain {name} fly?",
            "How many flights have {name} as captain?",
            "flights whose captain is {name}",
        ),
        lambda row, value: row["captain"]["name"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "three conditions",
        (
            "How many {status} flights from {city} cost more than ${fare:,}?",
            "{status} flights from {city} with a fare over {fare} dollars",
            "How many flights from {city} are {status} and have a fare above ${fare}?",
        ),
        lambda row, value: (
            row["status"] == value["status"]
            and row["origin"] == value["city"]
            and row["fare_usd"] > value["fare"]
        ),
        {"status": ("scheduled", "cancelled", "diverted"), "city": _AIRPORTS, "fare": _FARES[:7]},
    ),
    Template(
        "early or late",
        (
            "How many flights were early?",
            "flights that were ahead of schedule",
        ),
        lambda row, _: row["delay_minutes"] is not None and row["delay_minutes"] < 0,
    ),
    Template(
        "two exclusions",
        (
            "How many flights are from neither {city} nor {other}?",
            "flights that leave neither from {city} nor from {other}",
            "How many flights have an origin other than {city} and {other}?",
        ),
        lambda row, value: row["origin"] not in {value["city"], value["other"]},
        {"city": _AIRPORTS, "other": _AIRPORTS},
    ),
    Template(
        "quarter",
        (
            "How many {airline} flights are in Q{quarter} {year}?",
            "{airline} flights in the {quarter:ordinal} quarter of {year}",
            "In Q{quarter} of {year}, how many flights did {airline} have?",
        ),
        lambda row, value: (
            row["airline"] == value["airline"]
            and _in_quarter(row["departure"], value["year"], value["quarter"])
        ),
        {"airline": _AIRLINES, "quarter": _QUARTERS, "year": _YEARS},
    ),
    Template(
        "average",
        (
            "What is the average fare of flights to {city}?",
            "average fare from {city}",
            "How much does a flight to {city} cost on average?",
        ),
        None,
        {"city": _AIRPORTS},
    ),
    Template(
        "relative time",
        (
            "How many flights left {city} yesterday?",
            "flights from {city} in the last 7 days",
            "How many flights depart from {city} tomorrow morning?",
        ),
        None,
        {"city": _AIRPORTS},
    ),
    Template(
        "distinct count",
        (
            "How many different cities can I reach from {city}?",
            "How many airlines fly to {city}?",
            "How many distinct destinations are there from {city}?",
        ),
        None,
        {"city": _AIRPORTS},
    ),
    Template(
        "no such field",
        (
            "How many flights to {city} have a vegan menu?",
            "How many flights from {city} use an Airbus A320?",
            "flights from {city} with more than 10 crew members",
        ),
        None,
        {"city": _AIRPORTS},
    ),
    Template(
        "superlative in a count",
        (
            "How many of the {count:word} cheapest flights go to {city}?",
            "Of the {count} most delayed flights, how many were going to {city}?",
        ),
        None,
        {"count": _SMALL, "city": _AIRPORTS},
    ),
    Template(
        "vague word",
        (
            "How many cheap flights go to {city}?",
            "flights to {city} for around 300 dollars",
            "How many early morning flights leave from {city}?",
            "How many flights from {city} are almost full?",
        ),
        None,
        {"city": _AIRPORTS},
    ),
    Template(
        "duration that no field holds",
        (
            "How many flights to {city} take longer than {hours:word} hours?",
            "flights from {city} with a flight time under {hours} hours",
        ),
        None,
        {"city": _AIRPORTS, "hours": _SMALL},
    ),
)


_TITLES = ("manager", "senior manager", "engineer", "senior engineer", "analyst", "intern")
_DEPARTMENTS = ("Sales", "Sales Operations", "Finance", "Legal", "Customer Support", "Other")
_OFFICES = (
    ("Oslo", "Norway"),
    ("York", "United Kingdom"),
    ("New York", "United States"),
    ("San Diego", "United States"),
    ("Lisbon", "Portugal"),
)
_OFFICE_CITIES = tuple(city for city, _ in _OFFICES)
_SKILLS = ("Python", "SQL", "Java", "JavaScript", "Excel", "public speaking")
_SALARIES = tuple(Number(salary) for salary in range(2000, 9000, 500))
_AGES = (25, 30, 35, 40, 45, 50, 55, 60)


def _employees(draw: random.Random) -> list[Row]:
    rows = []
    for number in range(700):
        city, country = draw.choice(_OFFICES)
        hired = _some_day(draw, 2019, 2023)
        left = _or_missing(draw, _some_day(draw, 2024, 2024), 0.75)
        name = draw.choice(_NAMES)
        salary = draw.randrange(1800, 9000)
        if draw.random() < 0.03:
            salary = draw.choice((2023, 2024))
        rows.append(
            {
                "employee_id": f"{number * 3:05}",
                "name": name,
                "email": _or_missing(draw, f"{name.split()[0].lower()}{number}@example.org", 0.15),
                "title": draw.choice(_TITLES),
                "department": draw.choice(_DEPARTMENTS),
                "office": {"city": city, "country": country},
                "manager": _or_missing(draw, {"name": draw.choice(_NAMES)}, 0.12),
                "monthly_salary": salary,
                "age": draw.randint(19, 66),
                "children": draw.randint(0, 5),
                "hired": hired,
                "left": left,
                "is_active": left is None,
                "works_remotely": draw.random() < 0.35,
                "has_company_car": draw.random() < 0.2,
                "overtime_hours": round(draw.uniform(-40, 80), 1),
                "skills": _some_of(draw, _SKILLS, 5),
            }
        )
    return rows


_EMPLOYEE_TEMPLATES = (
    Template(
        "value within another",
        (
            'How many employees have the job title "{title}"?',
            "How many employees have {title} as their title?",
            "employees whose title is {title}",
            "Show me everyone whose job title is exactly {title}.",
        ),
        lambda row, value: row["title"] == value["title"],
        {"title": _TITLES},
    ),
    Template(
        "value within another",
        (
            "How many people work in the {department} department?",
            "employees in {department}",
            "How many employees belong to {department}?",
            "How many employees have {department} as their department?",
        ),
        lambda row, value: row["department"] == value["department"],
        {"department": _DEPARTMENTS[:5]},
    ),
    Template(
        "value that is a common word",
        (
            'How many employees are in the department "Other"?',
            "employees with department Other",
            "How many people have Other as their department?",
        ),
        lambda row, _: row["department"] == "Other",
    ),
    Template(
        "nested value",
        (
            "How many employees work in the {city} office?",
            "employees based in {city}",
            "How many people are in our office in {city}?",
            "List the employees that work in {city}.",
        ),
        lambda row, value: row["office"]["city"] == value["city"],
        {"city": _OFFICE_CITIES},
    ),
    Template(
        "nested value",
        (
            "How many employees work in {country}?",
            "How many of our employees are in {country}?",
            "Which employees are based in {country}?",
        ),
        lambda row, value: row["office"]["country"] == value["country"],
        {"country": ("Norway", "Portugal")},
    ),
    Template(
        "person in one of two columns",
        (
            "How many employees report to {name}?",
            "How many people does {name} manage?",
            "employees whose manager is {name}",
            "How many employees have {name} as their manager?",
        ),
        lambda row, value: row["manager"] is not None and row["manager"]["name"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "person in one of two columns",
        (
            "How many employees are called {name}?",
            "How many employees are named {name}?",
            "employees with the name {name}",
        ),
        lambda row, value: row["name"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "missing value",
        (
            "How many employees have no manager?",
            "employees without a manager",
            "How many people do not have a manager?",
            "Who doesn't have a manager?",
        ),
        lambda row, _: row["manager"] is None,
    ),
    Template(
        "missing value",
        (
            "How many employees have no email?",
            "How many employees are without an email address?",
            "Show me all employees whose email is missing.",
            "for how many employees do we not have an email?",
        ),
        lambda row, _: row["email"] is None,
    ),
    Template(
        "present value",
        (
            "How many employees have a manager?",
            "For how many employees is a manager recorded?",
            "employees with a manager",
        ),
        lambda row, _: row["manager"] is not None,
    ),
    Template(
        "missing value and another",
        (
            "How many employees in {department} have no email address?",
            "{department} employees without email",
            "Which people in {department} don't have an email?",
        ),
        lambda row, value: row["email"] is None and row["department"] == value["department"],
        {"department": _DEPARTMENTS[:5]},
    ),
    Template(
        "number by verb",
        (
            "How many employees earn more than {salary:,} a month?",
            "How many people make more than {salary:,} per month?",
            "employees earning over {salary} a month",
            "Which employees have a monthly salary above {salary:,}?",
        ),
        lambda row, value: row["monthly_salary"] > value["salary"],
        {"salary": _SALARIES},
    ),
    Template(
        "number at most",
        (
            "How many employees earn no more than {salary:,} a month?",
            "employees with a monthly salary of at most {salary}",
            "How many employees have a monthly salary of {salary:,} or less?",
            "How many employees are paid up to {salary:,} per month?",
        ),
        lambda row, value: row["monthly_salary"] <= value["salary"],
        {"salary": _SALARIES},
    ),
    Template(
        "amount that looks like a year",
        (
            "How many employees have a monthly salary of {salary}?",
            "How many employees earn exactly {salary:,} a month?",
            "employees with monthly_salary = {salary}",
        ),
        lambda row, value: row["monthly_salary"] == value["salary"],
        {"salary": (2023, 2024)},
    ),
    Template(
        "number by adjective",
        (
            "How many employees are older than {age}?",
            "employees over {age} years old",
            "How many of our people are older than {age} years?",
            "Which employees are over the age of {age}?",
        ),
        lambda row, value: row["age"] > value["age"],
        {"age": _AGES},
    ),
    Template(
        "number by adjective",
        (
            "How many employees are younger than {age}?",
            "employees under {age} years of age",
            "How many employees are under the age of {age}?",
        ),
        lambda row, value: row["age"] < value["age"],
        {"age": _AGES},
    ),
    Template(
        "word number",
        (
            "How many employees have {children:word} children?",
            "employees with exactly {children:word} kids",
            "Which employees have {children:word} children?",
        ),
        lambda row, value: row["children"] == value["children"],
        {"children": _SMALL},
    ),
    Template(
        "negative number",
        (
            "How many employees have a negative overtime balance?",
            "How many employees have fewer than 0 overtime hours?",
            "employees with overtime hours below zero",
        ),
        lambda row, _: row["overtime_hours"] < 0,
    ),
    Template(
        "negative number",
        (
            "How many employees have less than {hours} overtime hours?",
            "employees whose overtime hours are below {hours}",
        ),
        lambda row, value: row["overtime_hours"] < value["hours"],
        {"hours": (-30, -25, -20, -15, -5)},
    ),
    Template(
        "year of one of two dates",
        (
            "How many employees were hired in {year}?",
            "How many people did we hire in {year}?",
            "employees hired in {year}",
        ),
        lambda row, value: _in_year(row["hired"], value["year"]),
        {"year": (2019, 2020, 2021, 2022, 2023)},
    ),
    Template(
        "month of one of two dates",
        (
            "How many employees left in {month:%B %Y}?",
            "How many people left the company in {month:%B %Y}?",
            "employees who left in {month:%b %Y}",
        ),
        lambda row, value: _in_month(row["left"], value["month"]),
        {"month": _MONTHS[12:]},
    ),
    Template(
        "two dates",
        (
            "How many employees were hired before {year} and left in {month:%B %Y}?",
            "Who was hired before {year} and left in {month:%B %Y}?",
            "employees hired before {year} who left in {month:%B %Y}",
        ),
        lambda row, value: (
            row["hired"].year < value["year"] and _in_month(row["left"], value["month"])
        ),
        {"year": (2021, 2022, 2023), "month": _MONTHS[12:]},
    ),
    Template(
        "date after a day",
        (
            "How many employees were hired after {day:%-d %B %Y}?",
            "employees hired after {day:%B %-d, %Y}",
            "How many people have been hired after {day:%Y-%m-%d}?",
        ),
        lambda row, value: _after_day(row["hired"], value["day"]),
        {"day": _DAYS[:70]},
    ),
    Template(
        "flag",
        (
            "How many employees are active?",
            "How many active employees do we have?",
            "active employees",
            "Please list all active employees.",
        ),
        lambda row, _: row["is_active"],
    ),
    Template(
        "negated flag",
        (
            "How many employees do not work remotely?",
            "How many employees don't work remotely?",
            "Which employees are not working remotely?",
        ),
        lambda row, _: not row["works_remotely"],
    ),
    Template(
        "flag and another",
        (
            "How many {city} employees have a company car?",
            "employees in {city} with a company car",
            "How many people in the {city} office have a company car?",
        ),
        lambda row, value: row["has_company_car"] and row["office"]["city"] == value["city"],
        {"city": _OFFICE_CITIES},
    ),
    Template(
        "exception",
        (
            "How many employees work in {city} but are not active?",
            "How many people in {city} aren't active?",
            "employees in {city} who are not active",
        ),
        lambda row, value: row["office"]["city"] == value["city"] and not row["is_active"],
        {"city": _OFFICE_CITIES},
    ),
    Template(
        "list has both",
        (
            "How many employees know both {skill} and {other}?",
            "employees with {skill} and {other} skills",
            "Who has both {skill} and {other} as skills?",
            "How many people know {skill} as well as {other}?",
        ),
        lambda row, value: value["skill"] in row["skills"] and value["other"] in row["skills"],
        {"skill": _SKILLS[:5], "other": _SKILLS[:5]},
    ),
    Template(
        "list has either",
        (
            "How many employees know {skill} or {other}?",
            "How many people have either {skill} or {other} among their skills?",
            "employees who know {skill} or {other}",
        ),
        lambda row, value: value["skill"] in row["skills"] or value["other"] in row["skills"],
        {"skill": _SKILLS[:5], "other": _SKILLS[:5]},
    ),
    Template(
        "list has neither",
        (
            "How many employees know neither {skill} nor {other}?",
            "employees who know neither {skill} nor {other}",
            "How many people have neither {skill} nor {other} as a skill?",
        ),
        lambda row, value: (
            value["skill"] not in row["skills"] and value["other"] not in row["skills"]
        ),
        {"skill": _SKILLS[:5], "other": _SKILLS[:5]},
    ),
    Template(
        "list has one but not another",
        (
            "How many employees know {skill} but not {other}?",
            "Who knows {skill} but not {other}?",
            "employees with {skill} but without {other}",
        ),
        lambda row, value: value["skill"] in row["skills"] and value["other"] not in row["skills"],
        {"skill": _SKILLS[:5], "other": _SKILLS[:5]},
    ),
    Template(
        "length of a list",
        (
            "How many employees have exactly {count:word} skills?",
            "employees with exactly {count} skills",
            "Who has exactly {count:word} skills?",
        ),
        lambda row, value: len(row["skills"]) == value["count"],
        {"count": _SMALL},
    ),
    Template(
        "three conditions",
        (
            "How many active employees in {department} earn less than {salary:,} a month?",
            "active {department} employees with a monthly salary below {salary}",
            "How many people in {department} are active and earn under {salary:,} per month?",
        ),
        lambda row, value: (
            row["is_active"]
            and row["department"] == value["department"]
            and row["monthly_salary"] < value["salary"]
        ),
        {"department": _DEPARTMENTS[:5], "salary": _SALARIES},
    ),
    Template(
        "day of one of two dates",
        (
            "How many employees were hired on {day:%-d %B %Y}?",
            "employees hired on {day:%B %-d, %Y}",
            "Who was hired on {day:%Y-%m-%d}?",
        ),
        lambda row, value: _on_day(row["hired"], value["day"]),
        {"day": _DAYS[:70]},
    ),
    Template(
        "range of years",
        (
            "How many employees were hired from {start} to {end}?",
            "employees hired between {start} and {end}, both years included",
            "How many people were hired from {start} through {end}?",
        ),
        lambda row, value: value["start"] <= row["hired"].year <= value["end"],
        {"start": (2019, 2020, 2021, 2022, 2023), "end": (2019, 2020, 2021, 2022, 2023)},
    ),
    Template(
        "alternatives in a nested column",
        (
            "How many employees work in {city} or {other}?",
            "employees based in either {city} or {other}",
            "How many people are in the {city} office or the {other} office?",
        ),
        lambda row, value: row["office"]["city"] in {value["city"], value["other"]},
        {"city": _OFFICE_CITIES, "other": _OFFICE_CITIES},
    ),
    Template(
        "number between",
        (
            "How many employees are between {low} and {high} years old, inclusive?",
            "employees aged {low} to {high}",
            "How many people are aged from {low} to {high}?",
        ),
        lambda row, value: value["low"] <= row["age"] <= value["high"],
        {"low": _AGES, "high": _AGES},
    ),
    Template(
        "number and missing value",
        (
            "How many employees over {age} have no manager?",
            "employees older than {age} without a manager",
            "Which employees older than {age} don't have a manager?",
        ),
        lambda row, value: row["age"] > value["age"] and row["manager"] is None,
        {"age": _AGES},
    ),
    Template(
        "duration between two dates",
        (
            "How many employees stayed for more than {years:word} years?",
            "How many people left within {years} years of being hired?",
            "employees who have been with us for over {years} years",
        ),
        None,
        {"years": _SMALL},
    ),
    Template(
        "sum or average",
        (
            "What is the average age in {department}?",
            "What do we pay the {department} department in total each month?",
            "total monthly salary of {department}",
        ),
        None,
        {"department": _DEPARTMENTS[:5]},
    ),
    Template(
        "vague word",
        (
            "How many employees in {department} are overpaid?",
            "How many young people work in {department}?",
            "How many experienced employees does {department} have?",
        ),
        None,
        {"department": _DEPARTMENTS[:5]},
    ),
    Template(
        "group count",
        (
            "How many employees are there per department in {country}?",
            "headcount by title in {country}",
            "How many employees does each manager in {country} have?",
        ),
        None,
        {"country": ("Norway", "Portugal")},
    ),
    Template(
        "no such field",
        (
            "How many employees in {department} speak Spanish?",
            "How many women work in {department}?",
            "How many people in {department} are on sick leave?",
        ),
        None,
        {"department": _DEPARTMENTS[:5]},
    ),
    Template(
        "share",
        (
            "What percentage of employees in {city} work remotely?",
            "What share of our people in {city} is active?",
        ),
        None,
        {"city": _OFFICE_CITIES},
    ),
    Template(
        "relative time",
        (
            "How many people joined {department} last month?",
            "employees hired in {department} within the last two years",
            "Who left {department} this week?",
        ),
        None,
        {"department": _DEPARTMENTS[:5]},
    ),
    Template(
        "superlative in a count",
        (
            "How many of the {count:word} best paid employees work in {department}?",
            "Of our {count} oldest employees, how many are in {department}?",
        ),
        None,
        {"department": _DEPARTMENTS[:5], "count": _SMALL},
    ),
)


_TOWNS = ("York", "New York Mills", "Bath", "Bathgate", "Newport", "Newport Pagnell", "Ely")
_HOMES = ("house", "flat", "studio", "bungalow", "cottage")
_LISTING_STATES = ("open", "reserved", "sold", "withdrawn")
_FEATURES = ("balcony", "garage", "fireplace", "sea view", "lift")
_PRICES = tuple(Number(price) for price in range(150_000, 900_000, 50_000))
_AREAS = (50, 60, 75, 80, 100, 120, 150, 200)


def _listings(draw: random.Random) -> list[Row]:
    rows = []
    for number in range(1000):
        listed = _some_day(draw, 2023, 2024)
        status = draw.choice(_LISTING_STATES)
        sold = None
        if status == "sold":
            sold = listed + timedelta(days=draw.randint(5, 200))
        charge = _some_amount(draw, 900, 3000)
        if draw.random() < 0.03:
            charge = 2024.0
        rows.append(
            {
                "ref": f"{number * 11:06}",
                "type": draw.choice(_HOMES),
                "status": status,
                "address": {"city": draw.choice(_TOWNS), "postcode": f"{draw.randrange(90000):05}"},
                "price": draw.randrange(90_000, 900_000, 500) + 250,
                "service_charge": charge,
                "price_change_percent": round(draw.uniform(-15, 10), 1),
                "bedrooms": draw.randint(1, 6),
                "bathrooms": draw.randint(1, 4),
                "area_m2": round(draw.uniform(25, 240), 1),
                "year_built": draw.randint(1900, 2024),
                "listed_on": listed,
                "sold_on": sold,
                "has_garden": draw.random() < 0.4,
                "furnished": draw.random() < 0.3,
                "allows_pets": draw.random() < 0.5,
                "features": _some_of(draw, _FEATURES, 4),
                "energy_rating": _or_missing(draw, draw.choice("ABCDEFG"), 0.15),
                "agent": {
                    "name": draw.choice(_NAMES),
                    "phone": _or_missing(draw, f"0{draw.randrange(10**9):09}", 0.2),
                },
            }
        )
    return rows


_LISTING_TEMPLATES = (
    Template(
        "number by verb",
        (
            "How many listings cost less than {price:,}?",
            "number of listings under {price}",
            "Count the listings below {price:,} euros.",
            "How many of the listings are priced under {price:k}?",
            "Show me everything that costs less than €{price:,}.",
        ),
        lambda row, value: row["price"] < value["price"],
        {"price": _PRICES},
    ),
    Template(
        "number by verb",
        (
            "How many listings have a price above {price:,}?",
            "listings over {price:k}",
            "How many listings cost more than {price}?",
            "Which listings are more expensive than €{price:,}?",
        ),
        lambda row, value: row["price"] > value["price"],
        {"price": _PRICES},
    ),
    Template(
        "number between",
        (
            "How many listings cost between {low:,} and {high:,}?",
            "listings priced between {low:k} and {high:k}",
            "How many listings have a price from {low} to {high}?",
            "Show me listings between €{low:,} and €{high:,}.",
        ),
        lambda row, value: value["low"] <= row["price"] <= value["high"],
        {"low": _PRICES, "high": _PRICES},
    ),
    Template(
        "place within another",
        (
            "How many listings are in {city}?",
            "listings in {city}",
            "Which listings are located in {city}?",
            "How many properties do you have in {city}?",
        ),
        lambda row, value: row["address"]["city"] == value["city"],
        {"city": _TOWNS},
    ),
    Template(
        "value and place",
        (
            "How many {home}s are there in {city}?",
            "{home}s in {city}",
            "Show me all {home}s in {city}.",
            "I'm looking for a {home} in {city}, how many are there?",
        ),
        lambda row, value: row["type"] == value["home"] and row["address"]["city"] == value["city"],
        {"home": _HOMES, "city": _TOWNS},
    ),
    Template(
        "value that is a common word",
        (
            "How many listings are open?",
            "How many open listings are there?",
            "open listings",
            "How many listings have the status open?",
        ),
        lambda row, _: row["status"] == "open",
    ),
    Template(
        "value and its negation",
        (
            "How many {home}s are not {status}?",
            "How many {home}s have a status other than {status}?",
            "{home}s that aren't {status}",
        ),
        lambda row, value: row["type"] == value["home"] and row["status"] != value["status"],
        {"home": _HOMES, "status": ("sold", "withdrawn", "reserved")},
    ),
    Template(
        "alternatives in a column",
        (
            "How many listings are {home}s or {other}s?",
            "How many listings are either a {home} or a {other}?",
            "Show me the {home}s and the {other}s.",
        ),
        lambda row, value: row["type"] in {value["home"], value["other"]},
        {"home": _HOMES, "other": _HOMES},
    ),
    Template(
        "alternatives across columns",
        (
            "How many listings have either a garden or at least {rooms:word} bedrooms?",
            "listings with a garden or with {rooms} or more bedrooms",
            "How many listings have {rooms} or more bedrooms, or else a garden?",
        ),
        lambda row, value: row["has_garden"] or row["bedrooms"] >= value["rooms"],
        {"rooms": _SMALL},
    ),
    Template(
        "number at least",
        (
            "How many listings have at least {rooms:word} bedrooms?",
            "listings with {rooms}+ bedrooms",
            "How many listings have {rooms} or more bedrooms?",
            "Which listings have a minimum of {rooms} bedrooms?",
        ),
        lambda row, value: row["bedrooms"] >= value["rooms"],
        {"rooms": _SMALL},
    ),
    Template(
        "two numbers of two columns",
        (
            "How many listings have {rooms} bedrooms and {baths} bathrooms?",
            "listings with exactly {rooms:word} bedrooms and exactly {baths:word} bathrooms",
            "How many {rooms} bedroom listings with {baths} bathrooms are there?",
        ),
        lambda row, value: row["bedrooms"] == value["rooms"] and row["bathrooms"] == value["baths"],
        {"rooms": _SMALL, "baths": _SMALL[:3]},
    ),
    Template(
        "number from to",
        (
            "How many listings have {low} to {high} bedrooms?",
            "listings with between {low} and {high} bedrooms, inclusive",
            "How many listings have from {low:word} to {high:word} bedrooms?",
        ),
        lambda row, value: value["low"] <= row["bedrooms"] <= value["high"],
        {"low": _SMALL, "high": _SMALL},
    ),
    Template(
        "number and unit",
        (
            "How many listings are larger than {area} square metres?",
            "listings with an area over {area} m²",
            "How many listings have more than {area} sqm?",
            "Which listings are bigger than {area} m2?",
        ),
        lambda row, value: row["area_m2"] > value["area"],
        {"area": _AREAS},
    ),
    Template(
        "negative number",
        (
            "How many listings have a price change below {percent}%?",
            "listings with a price change of less than {percent} percent",
            "How many listings have a price_change_percent under {percent}?",
        ),
        lambda row, value: row["price_change_percent"] < value["percent"],
        {"percent": (-3, -5, -8, -10, -12)},
    ),
    Template(
        "year as a count",
        (
            "How many listings were built in {year}?",
            "listings built in {year}",
            "Which properties have {year} as their year of construction?",
        ),
        lambda row, value: row["year_built"] == value["year"],
        {"year": (1950, 1984, 1999, 2000, 2012, 2023, 2024)},
    ),
    Template(
        "year as a count",
        (
            "How many listings were built before {year}?",
            "How many properties here were built before {year}?",
            "homes built before {year}",
        ),
        lambda row, value: row["year_built"] < value["year"],
        {"year": (1920, 1945, 1980, 2000, 2010)},
    ),
    Template(
        "year of one of two dates",
        (
            "How many listings were listed in {year}?",
            "listings that were listed in {year}",
            "How many properties were put on the market in {year}, going by the listed_on date?",
        ),
        lambda row, value: _in_year(row["listed_on"], value["year"]),
        {"year": _YEARS},
    ),
    Template(
        "amount that looks like a year",
        (
            "How many listings have a service charge of {charge}?",
            "listings with a service charge of exactly {charge:,}",
            "How many listings have a service charge of {charge:,} euros?",
        ),
        lambda row, value: row["service_charge"] == value["charge"],
        {"charge": (2023, 2024)},
    ),
    Template(
        "quarter",
        (
            "How many listings were sold in the {quarter:ordinal} quarter of {year}?",
            "How many listings were sold in Q{quarter} {year}?",
            "listings sold in Q{quarter} of {year}",
        ),
        lambda row, value: _in_quarter(row["sold_on"], value["year"], value["quarter"]),
        {"quarter": _QUARTERS, "year": _YEARS},
    ),
    Template(
        "half of a year",
        (
            "How many listings were listed in the {half:ordinal} half of {year}?",
            "listings listed in the {half:ordinal} half of {year}",
            "How many listings have a listed_on date in H{half} {year}?",
        ),
        lambda row, value: (
            _in_year(row["listed_on"], value["year"])
            and (row["listed_on"].month > 6) == (value["half"] == 2)
        ),
        {"half": _QUARTERS[:2], "year": _YEARS},
    ),
    Template(
        "range of months",
        (
            "How many listings were sold between {start:%B %Y} and {end:%B %Y}, both months included?",
            "How many listings were sold from {start:%B %Y} to {end:%B %Y}?",
            "listings sold from {start:%b %Y} through {end:%b %Y}",
        ),
        lambda row, value: _in_months(row["sold_on"], value["start"], value["end"]),
        {"start": _MONTHS, "end": _MONTHS},
    ),
    Template(
        "date before",
        (
            "How many listings were listed before {month:%B %Y}?",
            "listings listed before {month:%B %Y}",
            "How many listings have been listed earlier than {month:%B %Y}?",
        ),
        lambda row, value: _before(row["listed_on"], value["month"]),
        {"month": _LATE_MONTHS},
    ),
    Template(
        "flag",
        (
            "How many listings have a garden?",
            "How many listings come with a garden?",
            "listings with a garden",
            "Which listings have got a garden?",
        ),
        lambda row, _: row["has_garden"],
    ),
    Template(
        "flag",
        (
            "How many listings in {city} allow pets?",
            "listings in {city} that allow pets",
            "How many of the listings in {city} have pets allowed?",
        ),
        lambda row, value: row["allows_pets"] and row["address"]["city"] == value["city"],
        {"city": _TOWNS},
    ),
    Template(
        "negated flag",
        (
            "How many {home}s are not furnished?",
            "How many unfurnished {home}s are there?",
            "{home}s that aren't furnished",
        ),
        lambda row, value: row["type"] == value["home"] and not row["furnished"],
        {"home": _HOMES},
    ),
    Template(
        "negated flag",
        (
            "How many listings in {city} don't have a garden?",
            "listings in {city} without a garden",
            "How many listings in {city} have no garden?",
        ),
        lambda row, value: row["address"]["city"] == value["city"] and not row["has_garden"],
        {"city": _TOWNS},
    ),
    Template(
        "list has a value",
        (
            "How many listings have a {feature}?",
            "How many listings come with a {feature}?",
            "listings with a {feature}",
            "Please show me all listings that have a {feature}.",
        ),
        lambda row, value: value["feature"] in row["features"],
        {"feature": _FEATURES},
    ),
    Template(
        "list has neither",
        (
            "How many listings have neither a {feature} nor a {other}?",
            "listings with neither a {feature} nor a {other}",
            "How many listings have no {feature} and no {other}?",
        ),
        lambda row, value: (
            value["feature"] not in row["features"] and value["other"] not in row["features"]
        ),
        {"feature": _FEATURES, "other": _FEATURES},
    ),
    Template(
        "empty list",
        (
            "How many listings have no features at all?",
            "listings without any features",
            "How many listings don't have a single feature?",
        ),
        lambda row, _: not row["features"],
    ),
    Template(
        "length of a list",
        (
            "How many listings have at least {count:word} features?",
            "listings with {count} or more features",
            "How many listings have at least {count} different features?",
        ),
        lambda row, value: len(row["features"]) >= value["count"],
        {"count": _SMALL[:3]},
    ),
    Template(
        "missing value",
        (
            "How many listings have no energy rating?",
            "listings without an energy rating",
            "Which listings are missing an energy rating?",
        ),
        lambda row, _: row["energy_rating"] is None,
    ),
    Template(
        "missing nested value",
        (
            "How many listings have an agent without a phone number?",
            "How many listings have no phone number for the agent?",
            "listings whose agent has no phone",
        ),
        lambda row, _: row["agent"]["phone"] is None,
    ),
    Template(
        "nested person",
        (
            "How many listings does {name} handle as the agent?",
            "listings with {name} as agent",
            "How many listings have the agent {name}?",
        ),
        lambda row, value: row["agent"]["name"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "three conditions",
        (
            "How many {home}s in {city} have at least {rooms:word} bedrooms?",
            "{home}s in {city} with {rooms} or more bedrooms",
            "Which {home}s in {city} have {rooms} bedrooms or more?",
        ),
        lambda row, value: (
            row["type"] == value["home"]
            and row["address"]["city"] == value["city"]
            and row["bedrooms"] >= value["rooms"]
        ),
        {"home": _HOMES, "city": _TOWNS, "rooms": _SMALL},
    ),
    Template(
        "state and price",
        (
            "How many open listings cost less than {price:,}?",
            "open listings under {price:k}",
            "Which open listings are below €{price:,}?",
        ),
        lambda row, value: row["status"] == "open" and row["price"] < value["price"],
        {"price": _PRICES},
    ),
    Template(
        "word number and place",
        (
            "How many listings in {city} have {rooms:word} bedrooms?",
            "{rooms:word} bedroom listings in {city}",
            "How many {rooms}-bedroom listings are there in {city}?",
        ),
        lambda row, value: (
            row["address"]["city"] == value["city"] and row["bedrooms"] == value["rooms"]
        ),
        {"city": _TOWNS, "rooms": _SMALL},
    ),
    Template(
        "no such field",
        (
            "How many listings in {city} have a pool?",
            "listings in {city} within walking distance of a school",
            "How many {home}s in {city} have underfloor heating?",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES},
    ),
    Template(
        "vague word",
        (
            "How many cheap {home}s are there in {city}?",
            "nice {home}s in {city} for a family",
            "How many {home}s in {city} cost about 300,000?",
            "affordable {home}s in {city}",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES},
    ),
    Template(
        "comparison of two fields",
        (
            "How many {home}s in {city} have more bathrooms than bedrooms?",
            "How many {home}s in {city} have as many bathrooms as bedrooms?",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES},
    ),
    Template(
        "best of",
        (
            "What is the best {home} in {city}?",
            "Which {home} in {city} is the cheapest?",
            "How many of the {count:word} most expensive {home}s are in {city}?",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES, "count": _SMALL},
    ),
    Template(
        "duration between two dates",
        (
            "How many {home}s in {city} were sold within {days} days of being listed?",
            "{home}s in {city} that took longer than {days} days to sell",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES, "days": (14, 30, 60, 90)},
    ),
    Template(
        "average",
        (
            "What does a {home} in {city} cost on average?",
            "average price per square metre of a {home} in {city}",
            "median price for {home}s in {city}",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES},
    ),
    Template(
        "relative time",
        (
            "How many {home}s in {city} were sold this year?",
            "{home}s in {city} listed in the last 30 days",
            "How many {home}s in {city} have come on the market recently?",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES},
    ),
    Template(
        "distinct count",
        (
            "How many different agents sell {home}s in {city}?",
            "number of distinct postcodes with a {home} in {city}",
        ),
        None,
        {"city": _TOWNS, "home": _HOMES},
    ),
)


_GENRES = ("fiction", "science fiction", "crime", "true crime", "history", "natural history")
_BRANCHES = ("Central", "Central Park", "Hill Street", "Harbour", "North Harbour")
_PLANS = ("free", "student", "premium")
_SUBJECTS = ("travel", "war", "love", "animals", "politics")
_TITLES_OF_BOOKS = (
    "The Open Door",
    "Before Sunrise",
    "Seven Years",
    "After the Rain",
    "No Manager Needed",
    "A Short History of Salt",
    "1984",
)
_LOAN_FLAGS = {"reserved": "reserved", "damaged": "is_damaged"}
_FINES = (2, 5, 8, 10, 15)
_PAGES = (150, 200, 300, 400, 500)


def _loans(draw: random.Random) -> list[Row]:
    rows = []
    for number in range(1200):
        borrowed = _some_day(draw, 2023, 2024)
        returned = _or_missing(draw, borrowed + timedelta(days=draw.randint(1, 60)), 0.3)
        rows.append(
            {
                "loan_id": f"{number:06}",
                "book": {"title": draw.choice(_TITLES_OF_BOOKS), "pages": draw.randint(90, 900)},
                "genre": draw.choice((*_GENRES, "other")),
                "branch": draw.choice(_BRANCHES),
                "borrower": {"name": draw.choice(_NAMES), "age": draw.randint(8, 90)},
                "plan": draw.choice(_PLANS),
                "borrowed": borrowed,
                "due": borrowed + timedelta(days=28),
                "returned": returned,
                "renewals": draw.randint(0, 6),
                "fine": _some_amount(draw, -5, 24),
                "reserved": draw.random() < 0.25,
                "is_damaged": draw.random() < 0.1,
                "reminder_sent": draw.random() < 0.4,
                "subjects": _some_of(draw, _SUBJECTS, 4),
                "note": _or_missing(draw, draw.choice(("torn cover", "call first")), 0.8),
            }
        )
    return rows


_LOAN_TEMPLATES = (
    Template(
        "value within another",
        (
            'How many loans are in the genre "{genre}"?',
            "loans with genre {genre}",
            "How many loans have the genre {genre}?",
            "Count the loans whose genre is {genre}.",
        ),
        lambda row, value: row["genre"] == value["genre"],
        {"genre": (*_GENRES, "other")},
    ),
    Template(
        "place within another",
        (
            "How many loans are from the {branch} branch?",
            "loans at the {branch} branch",
            "How many books were lent at the {branch} branch?",
        ),
        lambda row, value: row["branch"] == value["branch"],
        {"branch": _BRANCHES},
    ),
    Template(
        "value that is a common word",
        (
            "How many loans are on the {plan} plan?",
            "loans with the {plan} plan",
            "How many loans belong to the {plan} plan?",
        ),
        lambda row, value: row["plan"] == value["plan"],
        {"plan": _PLANS},
    ),
    Template(
        "value of another column too",
        (
            "How many loans of {title} are there?",
            'How many times was "{title}" borrowed?',
            'loans of "{title}"',
        ),
        lambda row, value: row["book"]["title"] == value["title"],
        {"title": _TITLES_OF_BOOKS[1:6]},
    ),
    Template(
        "nested person",
        (
            "How many loans has {name} taken out?",
            "loans to {name}",
            "How many loans does {name} have on record?",
            "Show me all loans where the borrower is {name}.",
        ),
        lambda row, value: row["borrower"]["name"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "nested number",
        (
            "How many loans are of books with more than {pages} pages?",
            "loans of books that have over {pages} pages",
            "How many loans are of books longer than {pages} pages?",
        ),
        lambda row, value: row["book"]["pages"] > value["pages"],
        {"pages": _PAGES},
    ),
    Template(
        "nested number",
        (
            "How many loans have a borrower aged {age} or older?",
            "loans by borrowers who are at least {age} years old",
            "How many loans are by people of {age} and over?",
        ),
        lambda row, value: row["borrower"]["age"] >= value["age"],
        {"age": (18, 30, 50, 60, 65)},
    ),
    Template(
        "amount above",
        (
            "How many loans have a fine of more than £{fine}?",
            "loans with a fine over {fine} pounds",
            "How many loans have a fine above {fine}?",
            "Which loans have a fine that exceeds {fine}?",
        ),
        lambda row, value: row["fine"] > value["fine"],
        {"fine": _FINES},
    ),
    Template(
        "amount between",
        (
            "How many loans have a fine between {low} and {high}?",
            "loans with a fine from £{low} to £{high}",
            "Count the loans with fines between {low} and {high} pounds.",
        ),
        lambda row, value: value["low"] <= row["fine"] <= value["high"],
        {"low": _FINES, "high": _FINES},
    ),
    Template(
        "negative number",
        (
            "How many loans have a negative fine?",
            "loans where the fine is below zero",
            "How many loans have a fine of less than 0?",
        ),
        lambda row, _: row["fine"] < 0,
    ),
    Template(
        "word number",
        (
            "How many loans were renewed {times:word} times?",
            "loans renewed exactly {times} times",
            "How many loans have {times:word} renewals?",
        ),
        lambda row, value: row["renewals"] == value["times"],
        {"times": _SMALL},
    ),
    Template(
        "number at most",
        (
            "How many loans have at most {times:word} renewals?",
            "loans with no more than {times} renewals",
            "How many loans have been renewed {times:word} times or fewer?",
        ),
        lambda row, value: row["renewals"] <= value["times"],
        {"times": _SMALL},
    ),
    Template(
        "zero",
        (
            "How many loans have no renewals?",
            "How many loans were never renewed?",
            "loans with zero renewals",
        ),
        lambda row, _: row["renewals"] == 0,
    ),
    Template(
        "missing date",
        (
            "How many loans have not been returned?",
            "How many books haven't been returned yet?",
            "loans without a return date",
            "Which loans have no returned date?",
        ),
        lambda row, _: row["returned"] is None,
    ),
    Template(
        "missing date and another",
        (
            "How many loans with genre {genre} haven't been returned?",
            "{genre} loans without a return date",
        ),
        lambda row, value: row["returned"] is None and row["genre"] == value["genre"],
        {"genre": _GENRES},
    ),
    Template(
        "month of one of three dates",
        (
            "How many books were borrowed in {month:%B %Y}?",
            "loans borrowed in {month:%B %Y}",
            "How many loans were taken out in {month:%b %Y}, by the borrowed date?",
        ),
        lambda row, value: _in_month(row["borrowed"], value["month"]),
        {"month": _MONTHS},
    ),
    Template(
        "month of one of three dates",
        (
            "How many loans were due in {month:%B %Y}?",
            "loans due in {month:%B %Y}",
            "Which loans have a due date in {month:%B %Y}?",
        ),
        lambda row, value: _in_month(row["due"], value["month"]),
        {"month": _MONTHS},
    ),
    Template(
        "two months",
        (
            "How many books were returned in {month:%B %Y} or {other:%B %Y}?",
            "loans returned in {month:%B %Y} or in {other:%B %Y}",
            "How many loans were returned in either {month:%B %Y} or {other:%B %Y}?",
        ),
        lambda row, value: (
            _in_month(row["returned"], value["month"]) or _in_month(row["returned"], value["other"])
        ),
        {"month": _MONTHS, "other": _MONTHS},
    ),
    Template(
        "date until",
        (
            "How many books were returned by the end of {month:%B %Y}?",
            "loans returned until the end of {month:%B %Y}",
            "How many loans were returned up to and including {month:%B %Y}?",
        ),
        lambda row, value: (
            row["returned"] is not None and not _after_month(row["returned"], value["month"])
        ),
        {"month": _MONTHS[3:]},
    ),
    Template(
        "date since",
        (
            "How many loans have been borrowed since {month:%B %Y}?",
            "How many books have been borrowed since {month:%-d %B %Y}?",
            "loans borrowed since {month:%B %-d, %Y}",
        ),
        lambda row, value: _since(row["borrowed"], value["month"]),
        {"month": _LATE_MONTHS},
    ),
    Template(
        "range of days",
        (
            "How many loans are due from {start:%B %-d, %Y} to {end:%B %-d, %Y}, both days included?",
            "loans due from {start:%-d %B %Y} through {end:%-d %B %Y}",
            "How many loans have a due date from {start:%Y-%m-%d} to {end:%Y-%m-%d} inclusive?",
        ),
        lambda row, value: value["start"].date() <= row["due"].date() <= value["end"].date(),
        {"start": _DAYS, "end": _DAYS},
    ),
    Template(
        "flag",
        (
            "How many loans are {flag}?",
            "How many {flag} loans are there?",
            "{flag} loans",
        ),
        lambda row, value: row[_LOAN_FLAGS[value["flag"]]],
        {"flag": ("reserved", "damaged")},
    ),
    Template(
        "negated flag and another",
        (
            "How many loans at the {branch} branch are not {flag}?",
            "loans of the {branch} branch that aren't {flag}",
        ),
        lambda row, value: row["branch"] == value["branch"] and not row[_LOAN_FLAGS[value["flag"]]],
        {"branch": _BRANCHES, "flag": ("reserved", "damaged")},
    ),
    Template(
        "flag with a verb",
        (
            "For how many loans was a reminder sent?",
            "How many loans had a reminder sent?",
            "loans where a reminder was sent",
        ),
        lambda row, _: row["reminder_sent"],
    ),
    Template(
        "list has a value",
        (
            "How many loans have {subject} among their subjects?",
            "loans with the subject {subject}",
            "How many loans are tagged with the subject {subject}?",
        ),
        lambda row, value: value["subject"] in row["subjects"],
        {"subject": _SUBJECTS},
    ),
    Template(
        "list has either",
        (
            "How many loans have the subject {subject} or {other}?",
            "loans with {subject} or {other} as a subject",
            "How many loans have either {subject} or {other} among their subjects?",
        ),
        lambda row, value: value["subject"] in row["subjects"] or value["other"] in row["subjects"],
        {"subject": _SUBJECTS, "other": _SUBJECTS},
    ),
    Template(
        "length of a list",
        (
            "How many loans have exactly {count:word} subjects?",
            "loans with exactly {count} subjects",
        ),
        lambda row, value: len(row["subjects"]) == value["count"],
        {"count": _SMALL[:3]},
    ),
    Template(
        "missing text",
        (
            "How many loans have no note?",
            "loans without a note",
            "How many loans don't have a note?",
        ),
        lambda row, _: row["note"] is None,
    ),
    Template(
        "exception",
        (
            "How many loans at the {branch} branch are not on the {plan} plan?",
            "loans at the {branch} branch, excluding those on the {plan} plan",
            "All loans at the {branch} branch except the ones on the {plan} plan: how many?",
        ),
        lambda row, value: row["branch"] == value["branch"] and row["plan"] != value["plan"],
        {"branch": _BRANCHES, "plan": _PLANS},
    ),
    Template(
        "three conditions",
        (
            "How many loans on the {plan} plan at the {branch} branch have a fine over {fine}?",
            "{plan} plan loans at the {branch} branch with a fine of more than £{fine}",
        ),
        lambda row, value: (
            row["plan"] == value["plan"]
            and row["branch"] == value["branch"]
            and row["fine"] > value["fine"]
        ),
        {"plan": _PLANS, "branch": _BRANCHES, "fine": _FINES},
    ),
    Template(
        "year with a place",
        (
            "How many books were borrowed at the {branch} branch in {year}?",
            "loans borrowed in {year} at the {branch} branch",
            "In {year}, how many loans were borrowed at the {branch} branch?",
        ),
        lambda row, value: (
            row["branch"] == value["branch"] and _in_year(row["borrowed"], value["year"])
        ),
        {"branch": _BRANCHES, "year": _YEARS},
    ),
    Template(
        "borrowed but not returned",
        (
            "How many loans borrowed in {month:%B %Y} have not been returned?",
            "loans borrowed in {month:%B %Y} without a return date",
            "How many of the books borrowed in {month:%B %Y} haven't been returned?",
        ),
        lambda row, value: row["returned"] is None and _in_month(row["borrowed"], value["month"]),
        {"month": _MONTHS},
    ),
    Template(
        "comparison of two fields",
        (
            "How many loans at the {branch} branch were returned after the due date?",
            "How many books from the {branch} branch came back late?",
            "loans of the {branch} branch returned on time",
        ),
        None,
        {"branch": _BRANCHES},
    ),
    Template(
        "sum",
        (
            "How much do borrowers owe the {branch} branch in total?",
            "sum of fines at the {branch} branch",
            "What is the total of all fines on the {plan} plan?",
        ),
        None,
        {"branch": _BRANCHES, "plan": _PLANS},
    ),
    Template(
        "relative time",
        (
            "How many books were borrowed at the {branch} branch last week?",
            "loans at {branch} that are due next month",
            "How many books did people return to the {branch} branch today?",
        ),
        None,
        {"branch": _BRANCHES},
    ),
    Template(
        "distinct count",
        (
            "How many different people borrowed from the {branch} branch?",
            "How many distinct titles were lent at the {branch} branch?",
            "number of unique borrowers at {branch}",
        ),
        None,
        {"branch": _BRANCHES},
    ),
    Template(
        "no such value",
        (
            "How many loans at the {branch} branch are poetry?",
            "How many loans on the gold plan are there at the {branch} branch?",
            "audiobook loans at the {branch} branch",
        ),
        None,
        {"branch": _BRANCHES},
    ),
    Template(
        "group count",
        (
            "How many loans are there per genre at the {branch} branch?",
            "loans by month at the {branch} branch",
            "Which genre is borrowed most at the {branch} branch?",
        ),
        None,
        {"branch": _BRANCHES},
    ),
    Template(
        "vague word",
        (
            "How many long books were borrowed at the {branch} branch?",
            "How many loans at the {branch} branch have a high fine?",
            "popular books at the {branch} branch",
        ),
        None,
        {"branch": _BRANCHES},
    ),
)


_SERVERS = ("billing", "billing-api", "search", "login", "checkout", "mail")
_SEVERITIES = ("low", "medium", "high", "critical")
_INCIDENT_STATES = ("open", "investigating", "resolved", "closed")
# A closed incident is resolved, so that this one means more than its value.
_SINGLE_INCIDENT_STATES = ("open", "investigating", "closed")
_ENVIRONMENTS = ("production", "staging", "test")
_REGIONS = ("us-east", "us-east-2", "eu-west", "ap-south")
_TEAMS = ("Platform", "Data Platform", "Network", "Security")
_TAGS = ("database", "network", "deploy", "dns", "memory")
_USERS = tuple(Number(users) for users in (100, 250, 500, 1000, 1500, 2000, 2500))
_COSTS = tuple(Number(cost) for cost in (500, 1000, 2500, 5000, 7500, 10_000))


def _incidents(draw: random.Random) -> list[Row]:
    rows = []
    for number in range(400):
        started = _some_day(draw, 2023, 2024)
        status = draw.choice(_INCIDENT_STATES)
        resolved = None
        if status in {"resolved", "closed"}:
            resolved = started + timedelta(minutes=draw.randint(10, 20_000))
        users = draw.randint(0, 3000)
        if draw.random() < 0.05:
            users = 2024
        rows.append(
            {
                "key": f"INC-{number * 9:05}",
                "service": draw.choice(_SERVERS),
                "severity": draw.choice(_SEVERITIES),
                "status": status,
                "environment": draw.choice(_ENVIRONMENTS),
                "region": draw.choice(_REGIONS),
                "started_at": started,
                "resolved_at": resolved,
                "assignee": _or_missing(draw, draw.choice(_NAMES), 0.15),
                "reported_by": draw.choice(_NAMES),
                "owner": {"team": draw.choice(_TEAMS), "on_call": draw.random() < 0.5},
                "affected_users": users,
                "cost_usd": _some_amount(draw, -2000, 12_000),
                "error_code": f"{draw.choice((7, 42, 404, 500, 503)):04}",
                "customer_visible": draw.random() < 0.5,
                "is_acknowledged": draw.random() < 0.7,
                "has_postmortem": draw.random() < 0.3,
                "tags": _some_of(draw, _TAGS, 4),
            }
        )
    return rows


_INCIDENT_TEMPLATES = (
    Template(
        "value that is a common word",
        (
            "How many incidents are {status}?",
            "{status} incidents",
            "How many incidents have the status {status}?",
            "Can you list all {status} incidents for me?",
        ),
        lambda row, value: row["status"] == value["status"],
        {"status": ("open", "closed")},
    ),
    Template(
        "value",
        (
            "How many {severity} severity incidents are there?",
            "How many incidents have a severity of {severity}?",
            "incidents with severity {severity}",
            "how many incidents with {severity} severity did we have",
        ),
        lambda row, value: row["severity"] == value["severity"],
        {"severity": _SEVERITIES},
    ),
    Template(
        "value within another",
        (
            "How many incidents affect the {service} service?",
            "incidents of the service {service}",
            "How many incidents did the {service} service have?",
        ),
        lambda row, value: row["service"] == value["service"],
        {"service": _SERVERS},
    ),
    Template(
        "value within another",
        (
            "How many incidents happened in the region {region}?",
            "incidents in region {region}",
            "How many incidents were there in {region}?",
        ),
        lambda row, value: row["region"] == value["region"],
        {"region": _REGIONS},
    ),
    Template(
        "nested value",
        (
            "How many incidents are owned by the {team} team?",
            "incidents of the {team} team",
            "How many incidents does the {team} team own?",
        ),
        lambda row, value: row["owner"]["team"] == value["team"],
        {"team": _TEAMS},
    ),
    Template(
        "person in one of two columns",
        (
            "How many incidents are assigned to {name}?",
            "incidents assigned to {name}",
            "Which incidents have {name} as the assignee?",
        ),
        lambda row, value: row["assignee"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "person in one of two columns",
        (
            "How many incidents did {name} report?",
            "incidents reported by {name}",
            "How many incidents were reported by {name}?",
        ),
        lambda row, value: row["reported_by"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "two people in two columns",
        (
            "How many incidents reported by {name} are assigned to {other}?",
            "incidents that {name} reported and that are assigned to {other}",
            "How many incidents assigned to {other} were reported by {name}?",
        ),
        lambda row, value: (
            row["reported_by"] == value["name"] and row["assignee"] == value["other"]
        ),
        {"name": _NAMES, "other": _NAMES},
    ),
    Template(
        "missing value",
        (
            "How many incidents have no assignee?",
            "How many incidents are not assigned to anyone?",
            "unassigned incidents",
            "Which incidents aren't assigned to anybody?",
        ),
        lambda row, _: row["assignee"] is None,
    ),
    Template(
        "missing value and another",
        (
            "How many {severity} severity incidents have no assignee?",
            "unassigned incidents with {severity} severity",
            "Which incidents of {severity} severity don't have an assignee?",
        ),
        lambda row, value: row["severity"] == value["severity"] and row["assignee"] is None,
        {"severity": _SEVERITIES},
    ),
    Template(
        "state and date since",
        (
            "open incidents since {month:%B %Y}",
            "How many open incidents have started since {month:%B %Y}?",
            "How many incidents that started since {month:%B %Y} are open?",
        ),
        lambda row, value: row["status"] == "open" and row["started_at"] >= value["month"],
        {"month": _LATE_MONTHS},
    ),
    Template(
        "date after a month",
        (
            "How many incidents started after {month:%B %Y}?",
            "incidents that started after {month:%B %Y}",
            "How many incidents began after {month:%b %Y}?",
        ),
        lambda row, value: _after_month(row["started_at"], value["month"]),
        {"month": _LATE_MONTHS},
    ),
    Template(
        "date before a day",
        (
            "How many incidents started before {day:%Y-%m-%d}?",
            "incidents that started before {day:%B %-d, %Y}",
            "How many incidents started earlier than {day:%-d %B %Y}?",
        ),
        lambda row, value: _before(row["started_at"], value["day"]),
        {"day": _DAYS},
    ),
    Template(
        "date since a day",
        (
            "How many incidents have started since {day:%-d %B %Y}?",
            "incidents started since {day:%Y-%m-%d}",
            "How many incidents started on or after {day:%B %-d, %Y}?",
        ),
        lambda row, value: _since(row["started_at"], value["day"]),
        {"day": _DAYS},
    ),
    Template(
        "month of one of two dates",
        (
            "How many incidents were resolved in {month:%B %Y}?",
            "incidents resolved in {month:%b %Y}",
            "How many incidents have a resolution date in {month:%B %Y}?",
        ),
        lambda row, value: _in_month(row["resolved_at"], value["month"]),
        {"month": _MONTHS},
    ),
    Template(
        "month with an exception",
        (
            "How many incidents started in {year} outside of {month:%B %Y}?",
            "How many incidents started in {year} but not in {month:%B %Y}?",
            "incidents that started in {year}, excluding {month:%B %Y}",
        ),
        lambda row, value: (
            row["started_at"].year == value["year"]
            and row["started_at"].month != value["month"].month
        ),
        {"year": (2024,), "month": _MONTHS[12:]},
    ),
    Template(
        "number by comparison",
        (
            "How many incidents affected more than {users:,} users?",
            "incidents with over {users} affected users",
            "Which incidents affected more than {users} users?",
        ),
        lambda row, value: row["affected_users"] > value["users"],
        {"users": _USERS},
    ),
    Template(
        "number that looks like a year",
        (
            "How many incidents affected exactly {users:,} users?",
            "incidents with {users} affected users",
            "How many incidents have affected_users equal to {users}?",
        ),
        lambda row, value: row["affected_users"] == value["users"],
        {"users": (2024, 2023)},
    ),
    Template(
        "amount above",
        (
            "How many incidents cost more than ${cost:,}?",
            "incidents with a cost above {cost} dollars",
            "How many incidents cost us over ${cost}?",
        ),
        lambda row, value: row["cost_usd"] > value["cost"],
        {"cost": _COSTS},
    ),
    Template(
        "negative number",
        (
            "How many incidents have a negative cost?",
            "incidents with a cost below $0",
            "How many incidents have a cost of less than zero?",
        ),
        lambda row, _: row["cost_usd"] < 0,
    ),
    Template(
        "alternatives in a column",
        (
            "How many incidents are of {severity} or {other} severity?",
            "incidents with a severity of either {severity} or {other}",
            "How many incidents have severity {severity} or {other}?",
        ),
        lambda row, value: row["severity"] in {value["severity"], value["other"]},
        {"severity": _SEVERITIES, "other": _SEVERITIES},
    ),
    Template(
        "alternatives across columns",
        (
            "How many incidents in {place} are either customer visible or of critical severity?",
            "How many {place} incidents are customer visible or have critical severity?",
        ),
        lambda row, value: (
            row["environment"] == value["place"]
            and (row["customer_visible"] or row["severity"] == "critical")
        ),
        {"place": _ENVIRONMENTS[:2]},
    ),
    Template(
        "neither nor",
        (
            "How many incidents are neither {status} nor {other}?",
            "incidents that are neither {status} nor {other}",
            "Which incidents are not {status} and not {other} either?",
        ),
        lambda row, value: row["status"] not in {value["status"], value["other"]},
        {"status": _SINGLE_INCIDENT_STATES, "other": _SINGLE_INCIDENT_STATES},
    ),
    Template(
        "exception",
        (
            "How many incidents in {place} are not {severity} severity?",
            "incidents in {place}, except those with {severity} severity",
            "How many {place} incidents have a severity other than {severity}?",
        ),
        lambda row, value: (
            row["environment"] == value["place"] and row["severity"] != value["severity"]
        ),
        {"place": _ENVIRONMENTS[:2], "severity": _SEVERITIES},
    ),
    Template(
        "flag",
        (
            "How many incidents were visible to customers?",
            "customer visible incidents",
            "How many incidents are customer-visible?",
        ),
        lambda row, _: row["customer_visible"],
    ),
    Template(
        "negated flag",
        (
            "How many incidents have not been acknowledged?",
            "How many incidents are not acknowledged?",
            "incidents that aren't acknowledged",
            "Which incidents are unacknowledged?",
        ),
        lambda row, _: not row["is_acknowledged"],
    ),
    Template(
        "flag and another",
        (
            "How many {severity} severity incidents have no postmortem?",
            "{severity} severity incidents without a postmortem",
            "Which {severity} severity incidents don't have a postmortem?",
        ),
        lambda row, value: row["severity"] == value["severity"] and not row["has_postmortem"],
        {"severity": _SEVERITIES},
    ),
    Template(
        "list has both",
        (
            "How many incidents have the tags {tag} and {other}?",
            "incidents tagged with both {tag} and {other}",
            "How many incidents are tagged {tag} as well as {other}?",
        ),
        lambda row, value: value["tag"] in row["tags"] and value["other"] in row["tags"],
        {"tag": _TAGS, "other": _TAGS},
    ),
    Template(
        "list lacks a value",
        (
            "How many incidents do not have the tag {tag}?",
            "incidents without the {tag} tag",
            "How many incidents aren't tagged with {tag}?",
        ),
        lambda row, value: value["tag"] not in row["tags"],
        {"tag": _TAGS},
    ),
    Template(
        "empty list",
        (
            "How many incidents have no tags at all?",
            "untagged incidents",
            "How many incidents don't have any tags?",
        ),
        lambda row, _: not row["tags"],
    ),
    Template(
        "code with leading zeros",
        (
            "How many incidents have the error code {code}?",
            "incidents with error code {code}",
            "Which incidents failed with error_code {code}?",
        ),
        lambda row, value: row["error_code"] == value["code"],
        {"code": ("0007", "0042", "0404", "0500", "0503")},
    ),
    Template(
        "three conditions",
        (
            "How many {status} {severity} severity incidents are there in {place}?",
            "{status} incidents in {place} with {severity} severity",
            "How many incidents in {place} are {status} and have {severity} severity?",
        ),
        lambda row, value: (
            row["status"] == value["status"]
            and row["severity"] == value["severity"]
            and row["environment"] == value["place"]
        ),
        {
            "status": ("open", "closed"),
            "severity": _SEVERITIES,
            "place": _ENVIRONMENTS[:2],
        },
    ),
    Template(
        "quarter",
        (
            "How many incidents started in Q{quarter} {year}?",
            "incidents that started in the {quarter:ordinal} quarter of {year}",
            "In the {quarter:ordinal} quarter of {year}, how many incidents started?",
        ),
        lambda row, value: _in_quarter(row["started_at"], value["year"], value["quarter"]),
        {"quarter": _QUARTERS, "year": _YEARS},
    ),
    Template(
        "missing date",
        (
            "How many incidents have no resolution date?",
            "incidents without a resolved_at",
            "How many incidents don't have a resolved_at date?",
        ),
        lambda row, _: row["resolved_at"] is None,
    ),
    Template(
        "no such value",
        (
            "How many urgent incidents does {service} have?",
            "How many {service} incidents are duplicates?",
            "blocked incidents of the {service} service",
        ),
        None,
        {"service": _SERVERS},
    ),
    Template(
        "relative time",
        (
            "How many {severity} severity incidents were there last week?",
            "{severity} severity incidents in the past 24 hours",
            "recent {severity} severity incidents",
            "How many {severity} severity incidents started this month?",
        ),
        None,
        {"severity": _SEVERITIES},
    ),
    Template(
        "duration between two dates",
        (
            "How many {service} incidents took longer than {hours} hours to resolve?",
            "incidents of {service} resolved within {hours} hours",
            "What is the mean time to resolve for {service}?",
        ),
        None,
        {"service": _SERVERS, "hours": (2, 4, 8, 24, 48)},
    ),
    Template(
        "comparison of two fields",
        (
            "How many {severity} severity incidents are assigned to the person who reported them?",
            "{severity} severity incidents whose assignee is also the reporter",
        ),
        None,
        {"severity": _SEVERITIES},
    ),
    Template(
        "sum",
        (
            "How much did the incidents of the {team} team cost in total?",
            "How many users were affected by incidents of the {team} team?",
            "total cost of incidents owned by the {team} team",
        ),
        None,
        {"team": _TEAMS},
    ),
    Template(
        "group count",
        (
            "How many incidents per service did the {team} team have?",
            "incidents of the {team} team by severity",
            "Which service had the most incidents in {year}?",
        ),
        None,
        {"team": _TEAMS, "year": _YEARS},
    ),
    Template(
        "vague word",
        (
            "How many expensive incidents did {service} have?",
            "major incidents of the {service} service",
            "How many {service} incidents affected roughly {users} users?",
        ),
        None,
        {"service": _SERVERS, "users": _USERS},
    ),
    Template(
        "share",
        (
            "What percentage of {severity} severity incidents has a postmortem?",
            "What proportion of the {severity} severity incidents was visible to customers?",
        ),
        None,
        {"severity": _SEVERITIES},
    ),
)


_PLANTS = ("lavender", "sea lavender", "sage", "Russian sage", "mint", "water mint", "fern")
_COLOURS = ("white", "pink", "blue", "yellow", "red")
_LIGHTS = ("full sun", "partial shade", "full shade")
_ORIGINS = ("Ireland", "Northern Ireland", "Guinea", "Papua New Guinea", "Chile", "China")
_SUPPLIER_CITIES = ("Dublin", "Cork", "Kew", "Kew Green")
_PLANT_FLAGS = {"evergreen": "evergreen", "edible": "is_edible"}
_HEIGHTS = (20, 30, 50, 80, 100, 150)
_PLANT_PRICES = (5, 8, 10, 12, 15, 20)


def _plants(draw: random.Random) -> list[Row]:
    rows = []
    for number in range(350):
        sown = _some_day(draw, 2022, 2023)
        rows.append(
            {
                "sku": f"{number * 13:05}",
                "name": draw.choice(_PLANTS),
                "light": draw.choice(_LIGHTS),
                "origin": draw.choice(_ORIGINS),
                "colours": _some_of(draw, _COLOURS, 4),
                "height_cm": draw.randint(8, 200),
                "min_temperature_c": draw.randint(-25, 12),
                "price_gbp": _some_amount(draw, 1, 30),
                "stock": draw.randint(0, 120),
                "evergreen": draw.random() < 0.4,
                "is_edible": draw.random() < 0.3,
                "needs_shelter": draw.random() < 0.35,
                "toxic_to_pets": draw.random() < 0.2,
                "sown": sown,
                "delivered": _or_missing(draw, sown + timedelta(days=draw.randint(200, 380)), 0.2),
                "supplier": {
                    "name": draw.choice(_NAMES),
                    "city": _or_missing(draw, draw.choice(_SUPPLIER_CITIES), 0.1),
                },
                "rating": _or_missing(draw, draw.randint(1, 5), 0.25),
            }
        )
    return rows


_PLANT_TEMPLATES = (
    Template(
        "value of two words",
        (
            "How many plants need {light}?",
            "plants for {light}",
            "How many plants like {light}?",
            "Which plants grow in {light}?",
        ),
        lambda row, value: row["light"] == value["light"],
        {"light": _LIGHTS},
    ),
    Template(
        "place within another",
        (
            "How many plants come from {origin}?",
            "plants with origin {origin}",
            "How many plants originate from {origin}?",
        ),
        lambda row, value: row["origin"] == value["origin"],
        {"origin": _ORIGINS},
    ),
    Template(
        "nested place within another",
        (
            "How many plants have a supplier in {city}?",
            "plants whose supplier is in {city}",
            "How many plants are from suppliers based in {city}?",
        ),
        lambda row, value: row["supplier"]["city"] == value["city"],
        {"city": _SUPPLIER_CITIES},
    ),
    Template(
        "missing nested value",
        (
            "How many plants have a supplier without a city?",
            "plants whose supplier has no city",
            "How many plants have no supplier city?",
        ),
        lambda row, _: row["supplier"]["city"] is None,
    ),
    Template(
        "nested person",
        (
            "How many plants does {name} supply?",
            "plants supplied by {name}",
            "How many plants have {name} as their supplier?",
        ),
        lambda row, value: row["supplier"]["name"] == value["name"],
        {"name": _NAMES},
    ),
    Template(
        "number by adjective",
        (
            "How many plants are taller than {height} cm?",
            "plants over {height} cm tall",
            "How many plants are taller than {height} centimetres?",
            "Which plants are more than {height}cm high?",
        ),
        lambda row, value: row["height_cm"] > value["height"],
        {"height": _HEIGHTS},
    ),
    Template(
        "number at most",
        (
            "How many plants have a height of at most {height} cm?",
            "plants up to {height} cm tall",
            "How many plants are no taller than {height} cm?",
        ),
        lambda row, value: row["height_cm"] <= value["height"],
        {"height": _HEIGHTS},
    ),
    Template(
        "number and unit below",
        (
            "How many plants cost less than £{price}?",
            "plants under {price} pounds",
            "How many plants are cheaper than £{price}?",
            "What plants cost less than £{price}.00?",
        ),
        lambda row, value: row["price_gbp"] < value["price"],
        {"price": _PLANT_PRICES},
    ),
    Template(
        "negative number",
        (
            "How many plants have a minimum temperature below {degrees}?",
            "plants with a min temperature of less than {degrees} degrees",
            "How many plants have a minimum temperature lower than {degrees} °C?",
        ),
        lambda row, value: row["min_temperature_c"] < value["degrees"],
        {"degrees": (-20, -15, -10, -5, 0, 5)},
    ),
    Template(
        "number at least",
        (
            "How many plants have {stock} or more in stock?",
            "plants with a stock of {stock} or more",
            "How many plants have a stock of at least {stock}?",
        ),
        lambda row, value: row["stock"] >= value["stock"],
        {"stock": (2, 10, 20, 50, 100)},
    ),
    Template(
        "zero",
        (
            "How many plants have zero stock?",
            "plants with a stock of 0",
            "How many plants have a stock of zero?",
        ),
        lambda row, _: row["stock"] == 0,
    ),
    Template(
        "word number",
        (
            "How many plants have a rating of {rating:word}?",
            "plants rated {rating}",
            "How many plants are rated {rating:word}?",
        ),
        lambda row, value: row["rating"] == value["rating"],
        {"rating": _SMALL},
    ),
    Template(
        "missing value",
        (
            "How many plants have no rating?",
            "unrated plants",
            "How many plants haven't been rated?",
            "plants without a rating",
        ),
        lambda row, _: row["rating"] is None,
    ),
    Template(
        "flag",
        (
            "How many plants are {flag}?",
            "How many {flag} plants are there?",
            "{flag} plants",
            "What {flag} plants do you sell?",
        ),
        lambda row, value: row[_PLANT_FLAGS[value["flag"]]],
        {"flag": ("evergreen", "edible")},
    ),
    Template(
        "negated flag",
        (
            "How many plants are not toxic to pets?",
            "plants that aren't toxic to pets",
            "Which plants are not toxic to pets?",
        ),
        lambda row, _: not row["toxic_to_pets"],
    ),
    Template(
        "negated flag and another",
        (
            "How many plants from {origin} don't need shelter?",
            "plants from {origin} that do not need shelter",
            "How many plants with origin {origin} need no shelter?",
        ),
        lambda row, value: row["origin"] == value["origin"] and not row["needs_shelter"],
        {"origin": _ORIGINS},
    ),
    Template(
        "two flags",
        (
            "How many plants are both evergreen and edible?",
            "plants that are evergreen and edible",
            "How many evergreen plants are edible?",
        ),
        lambda row, _: row["evergreen"] and row["is_edible"],
    ),
    Template(
        "flag but not another",
        (
            "How many plants are edible but not evergreen?",
            "edible plants that aren't evergreen",
            "Which edible plants are not evergreen?",
        ),
        lambda row, _: row["is_edible"] and not row["evergreen"],
    ),
    Template(
        "neither of two flags",
        (
            "How many plants are neither edible nor evergreen?",
            "plants that are neither evergreen nor edible",
        ),
        lambda row, _: not row["is_edible"] and not row["evergreen"],
    ),
    Template(
        "either of two flags",
        (
            "How many plants are edible or evergreen, or both?",
            "plants that are edible or evergreen",
        ),
        lambda row, _: row["is_edible"] or row["evergreen"],
    ),
    Template(
        "list has a value",
        (
            "How many plants come in {colour}?",
            "plants with the colour {colour}",
            "How many plants are available in {colour}?",
        ),
        lambda row, value: value["colour"] in row["colours"],
        {"colour": _COLOURS},
    ),
    Template(
        "list has either",
        (
            "How many plants come in {colour} or {other}?",
            "plants available in {colour} or {other}",
            "Which plants come in either {colour} or {other}?",
        ),
        lambda row, value: value["colour"] in row["colours"] or value["other"] in row["colours"],
        {"colour": _COLOURS, "other": _COLOURS},
    ),
    Template(
        "list has both",
        (
            "How many plants come in both {colour} and {other}?",
            "plants available in both {colour} and {other}",
            "How many plants have {colour} as well as {other} among their colours?",
        ),
        lambda row, value: value["colour"] in row["colours"] and value["other"] in row["colours"],
        {"colour": _COLOURS, "other": _COLOURS},
    ),
    Template(
        "length of a list",
        (
            "How many plants come in at least {count:word} colours?",
            "plants with {count} or more colours",
            "How many plants have no fewer than {count:word} colours?",
        ),
        lambda row, value: len(row["colours"]) >= value["count"],
        {"count": _SMALL[:3]},
    ),
    Template(
        "month of one of two dates",
        (
            "How many plants were sown in {month:%B %Y}?",
            "plants sown in {month:%b %Y}",
            "How many plants have a sown date in {month:%B %Y}?",
        ),
        lambda row, value: _in_month(row["sown"], value["month"]),
        {"month": _MONTHS[:12]},
    ),
    Template(
        "date after a month",
        (
            "How many plants were delivered after {month:%B %Y}?",
            "plants delivered after {month:%B %Y}",
        ),
        lambda row, value: _after_month(row["delivered"], value["month"]),
        {"month": _MONTHS[:18]},
    ),
    Template(
        "three conditions",
        (
            "How many evergreen plants for {light} cost less than £{price}?",
            "evergreen plants for {light} under {price} pounds",
            "Which evergreen plants grow in {light} and cost under £{price}?",
        ),
        lambda row, value: (
            row["evergreen"]
            and row["light"] == value["light"]
            and row["price_gbp"] < value["price"]
        ),
        {"light": _LIGHTS, "price": _PLANT_PRICES},
    ),
    Template(
        "exception",
        (
            "How many plants from {origin} are not for {light}?",
            "plants from {origin} except those for {light}",
            "How many plants from {origin} need a light other than {light}?",
        ),
        lambda row, value: row["origin"] == value["origin"] and row["light"] != value["light"],
        {"origin": _ORIGINS, "light": _LIGHTS},
    ),
    Template(
        "vague word",
        (
            "How many small plants come from {origin}?",
            "pretty plants from {origin}",
            "How many plants from {origin} are easy to grow?",
            "How many plants from {origin} are around {height} cm tall?",
        ),
        None,
        {"origin": _ORIGINS, "height": _HEIGHTS},
    ),
    Template(
        "no such field",
        (
            "How many plants from {origin} attract bees?",
            "plants from {origin} that flower in spring",
            "How many plants from {origin} need watering twice a week?",
        ),
        None,
        {"origin": _ORIGINS},
    ),
    Template(
        "superlative in a count",
        (
            "How many of the {count:word} tallest plants come from {origin}?",
            "Of the {count} cheapest plants, how many are from {origin}?",
        ),
        None,
        {"count": _SMALL, "origin": _ORIGINS},
    ),
    Template(
        "share or average",
        (
            "What share of plants from {origin} is evergreen?",
            "average height of plants from {origin}",
            "What fraction of the plants from {origin} is edible?",
        ),
        None,
        {"origin": _ORIGINS},
    ),
    Template(
        "comparison of two fields",
        (
            "How many plants from {origin} have a higher stock than height?",
            "How many plants from {origin} cost more pounds than they have stock?",
        ),
        None,
        {"origin": _ORIGINS},
    ),
    Template(
        "relative time",
        (
            "How many plants from {origin} were delivered last week?",
            "plants from {origin} sown in the past month",
            "How many plants from {origin} arrive tomorrow?",
        ),
        None,
        {"origin": _ORIGINS},
    ),
    Template(
        "distinct count",
        (
            "How many different suppliers send us plants from {origin}?",
            "number of distinct species from {origin}",
        ),
        None,
        {"origin": _ORIGINS},
    ),
)


_SOURCES = (
    Source(
        "list_flights",
        _flights,
        {"departure": _ISO_TIME},
        frozenset({"gate"}),
        _FLIGHT_TEMPLATES,
    ),
    Source(
        "search_employees",
        _employees,
        {"hired": _DAY_FIRST, "left": _DAY_FIRST},
        frozenset({"email", "left"}),
        _EMPLOYEE_TEMPLATES,
    ),
    Source(
        "find_listings",
        _listings,
        {"listed_on": _ISO_DAY, "sold_on": _ISO_DAY},
        frozenset({"energy_rating", "phone"}),
        _LISTING_TEMPLATES,
    ),
    Source(
        "library_loans",
        _loans,
        {"borrowed": _MONTH_FIRST, "due": _MONTH_FIRST, "returned": _MONTH_FIRST},
        frozenset({"note", "returned"}),
        _LOAN_TEMPLATES,
    ),
    Source(
        "get_incidents",
        _incidents,
        {"started_at": _ISO_TIME, "resolved_at": _ISO_TIME},
        frozenset({"assignee"}),
        _INCIDENT_TEMPLATES,
    ),
    Source(
        "nursery_stock",
        _plants,
        {"sown": _DAY_FIRST, "delivered": _ISO_DAY},
        frozenset({"city"}),
        _PLANT_TEMPLATES,
    ),
)
