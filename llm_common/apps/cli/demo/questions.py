"""Eight questions about the demo's data, and what a text must contain to answer them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from llm_common.agents import ExecutionPlan, PlannedTask, SubTask

Kind = Literal["other words", "own words", "list", "count", "maximum"]

_NEAR_CHARS: Final = 300  # about a record, before and behind one of its values


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its plan, and the evidence that its answer needs.

    Attributes:
        text: The question.
        kind: How it asks. "other words" are not the words of the record, "own words" are.
        steps: Descriptions of the calls to make.
        evidence: Values of a record that occur near each other only in the outputs of the right
            calls, separated by ` | `. A count needs every record that it counts.
        known: Values that a correct answer contains.
        sql: A SELECT over the records, as a model would write it, whose rows are evidence too if
            they contain `known`. `{table}` stands for the table of `table_args`. "" asks nothing.
        table_args: The arguments of the call that returned these records.
    """

    text: str
    kind: Kind
    steps: tuple[str, ...]
    evidence: tuple[str, ...]
    known: tuple[str, ...]
    sql: str = ""
    table_args: tuple[tuple[str, object], ...] = ()

    @property
    def plan(self) -> ExecutionPlan:
        """Return a plan of one task with a step for each call."""
        steps = [
            SubTask(id=number, description=step) for number, step in enumerate(self.steps, start=1)
        ]
        return ExecutionPlan(
            tasks=[PlannedTask(id=1, description="Gather the data", sub_tasks=steps)]
        )

    def missing_from(self, text: str) -> tuple[str, ...]:
        """Return the pieces of evidence that a text does not contain."""
        return tuple(piece for piece in self.evidence if not _has_record(text, piece.split(" | ")))

    def unnamed_in(self, answer: str) -> tuple[str, ...]:
        """Return the known values that an answer does not contain.

        Numbers are compared whole, so "11.5" does not contain "1.5". "1,000" contains "1000".
        """
        plain = answer.replace(",", "")
        missing = []
        for value in self.known:
            if not re.search(rf"(?<![\d.]){re.escape(value)}(?!\.?\d)", plain):
                missing.append(value)
        return tuple(missing)


# Some steps fetch data that the answer does not need, which the prompt should leave out.
QUESTIONS: Final = (
    Question(
        text="What magnitude had the Afghan quake of 31 January 2018, and how many people "
        "reported it?",
        kind="other words",
        steps=(
            "Get the earthquakes of 2018-01-31",
            "Get the earthquakes of 2018-02-01",
            "Get the earthquakes of 2018-02-02",
        ),
        evidence=("35km S of Jarm, Afghanistan | 6.1 | 438",),
        known=("6.1", "438"),
    ),
    Question(
        text="How much did it rain in New York on the last day of April 2014?",
        kind="other words",
        steps=(
            'Get the daily weather of the city "New York"',
            'Get the daily weather of the city "Seattle"',
        ),
        evidence=("2014-04-30 | New York | 118.9",),
        known=("118.9",),
    ),
    Question(
        text="What was the bill when a Federal Express jet struck a bird after leaving Austin in "
        "February 1998?",
        kind="other words",
        steps=(
            "Get the bird strikes of the year 1997",
            "Get the bird strikes of the year 1998",
            "Get the bird strikes of the year 1999",
        ),
        evidence=("1998-02-24 | FEDEX EXPRESS | 7043545",),
        known=("7043545",),
    ),
    Question(
        text="What was the unemployment rate in construction in 2010-02, and in manufacturing?",
        kind="own words",
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
        known=("27.1", "12.1"),
    ),
    Question(
        text="Which commit put a gateway before MCP servers, and on which day?",
        kind="own words",
        steps=("Get the log of the commits",),
        evidence=("Put a gateway before MCP servers | 2026-11-23",),
        known=("2026-11-23",),
    ),
    Question(
        text="Which earthquakes of 2018-02-02 had a magnitude of 5 or more?",
        kind="list",
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
        known=("6", "5.5", "5.2", "5.1"),
    ),
    Question(
        text="How many bird strikes of 1999 did substantial damage on approach?",
        kind="count",
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
        known=("7",),
        sql="SELECT count(*) AS strikes FROM {table} WHERE \"Phase of flight\" = 'Approach' "
        "AND \"Effect Amount of damage\" = 'Substantial'",
        table_args=(("year", 1999),),
    ),
    Question(
        text="Which bird strike of 1999 was the most expensive, and what did it cost?",
        kind="maximum",
        steps=(
            "Get the bird strikes of the year 1998",
            "Get the bird strikes of the year 1999",
        ),
        evidence=("1999-04-05 | UNITED AIRLINES | 1715077",),
        known=("1715077",),
        sql='SELECT "Flight Date", "Aircraft Airline Operator", "Cost Total $" FROM {table} '
        'ORDER BY "Cost Total $" DESC LIMIT 1',
        table_args=(("year", 1999),),
    ),
)


def _has_record(text: str, values: Sequence[str]) -> bool:
    """Return whether a text has values near each other, as JSON, CSV and rows of a table do."""
    first, *others = values
    start = text.find(first)
    while start >= 0:
        window = text[max(start - _NEAR_CHARS, 0) : start + len(first) + _NEAR_CHARS]
        if all(re.search(rf"(?<![\d.]){re.escape(value)}(?![\d])", window) for value in others):
            return True
        start = text.find(first, start + 1)
    return False
