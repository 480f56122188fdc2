"""Letta's filesystem benchmark: whether one SELECT over stored results answers a question."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any, Final

from benchmarks.public.inputs import Inputs
from benchmarks.public.tables import Row, Section, Share, Table, reported_rows
from benchmarks.quality_queries import (
    COUNTER,
    Case,
    cases_with_a_query,
    is_right,
    names_of,
    select_of,
    session_with,
)

__all__ = ["queries", "records_of_text"]

NAMES: Final = (
    "addresses",
    "bank_accounts",
    "credit_cards",
    "employments",
    "insurance_policies",
    "internet_accounts",
    "medical_records",
    "people",
    "pets",
    "vehicles",
)
NUMBERS: Final = {"balance": float, "salary": float, "year": int}
MAX_ANSWER_TOKENS: Final = 400
_HEADING: Final = re.compile(r"(?P<title>.+) \((?P<key>ID|owner): (?P<id>[\w-]+)\)")


def records_of_text(text: str) -> Iterator[dict[str, Any]]:
    """Yield the records of a file, whose fields are lines or parts of a line."""
    for block in re.split(r"(?m)^### ", text)[1:]:
        heading, _, body = block.partition("\n")
        match = _HEADING.fullmatch(heading)
        if match is None:
            raise ValueError(f"a heading without an id: {heading}")
        record: dict[str, Any] = {"owner": match["id"]}
        if match["key"] == "ID":
            record = {"full_name": match["title"], "person_id": match["id"]}
        for part in body.replace(" | ", "\n").splitlines():
            name, colon, value = part.partition(": ")
            if colon:
                record[name] = NUMBERS.get(name, str)(value)
        yield record


def queries(inputs: Inputs, limit: int | None) -> Section:
    """Measure which questions one SELECT answers."""
    records = {name: [*records_of_text(inputs.text(f"letta_{name}"))] for name in NAMES}
    questions = inputs.text("letta_questions")
    cases = [*cases_with_a_query(questions)][:limit]
    answered, longest = asyncio.run(_answered(records, cases))
    total = len(questions.splitlines())
    columns = ("right in one query", "longest answer, tokens")
    ours = Row(
        f"llm-common, SELECTs by hand, {len(cases)} of {total} questions",
        (Share(answered / len(cases)), str(longest)),
        "ours",
    )
    count = sum(map(len, records.values()))
    return Section(
        title="Stored records: one SELECT over ten results",
        about=ABOUT,
        tables=(
            Table(
                f"Letta's filesystem questions, {count:,} records",
                columns,
                (ours, *reported_rows("letta", columns)),
            ),
        ),
        notes=(f"{total - len(cases)} of {total} questions have no query here.",),
    )


async def _answered(records: dict[str, list[dict[str, Any]]], cases: list[Case]) -> tuple[int, int]:
    """Return how many questions have the right first row in a short answer, and the longest."""
    session = await session_with(records)
    names = await names_of(session)
    answered = longest = 0
    for case in cases:
        sql = select_of(case, names)
        tokens = COUNTER.count(await session.query(sql))
        rows = (await session.query_rows(sql)).rows
        is_short = tokens <= MAX_ANSWER_TOKENS
        answered += is_short and bool(rows) and is_right(case.expected, rows[0])
        longest = max(longest, tokens)
    return answered, longest


ABOUT: Final = f"""\
Ten files with records of people, pets, cars and accounts are offloaded as the results of ten calls.
A question counts as answered if the first row of one SELECT has the expected answer, in at most
{MAX_ANSWER_TOKENS} tokens. The SELECTs were written by hand in `benchmarks/record_queries.toml`,
with questions and records in view, so this shows what the tables allow and what an answer costs. It
does not show whether a model writes the SELECT. The benchmark has no queries of its own. The
questions with a SELECT are the half that was worked on, and the others were left alone.

The leaderboard reports agents with models that read the files with tools, judged by a model on all
100 questions. These rows measure models, ours measures none."""
