"""Can one SELECT answer questions that join several stored results?

The set: `records/records.json` in `LLM_COMMON_EVAL_DATA`, ten lists with 9,224 records, and 50
questions with answers. Each list is offloaded into one session, as the result of a tool `get_NAME`.
`record_queries.toml` has one SELECT for each question, as a model could write it. No model is
called, so this measures what the tables allow and what an answer costs, not how well a model
writes SQL.

An answer is right if its first row has the expected value. The mistake is one that the set's own
queries make here: they call the column `owner` `owner_id`. A refusal helps if it lists the columns
of every table of the query.

Then the ten lists are ranked for each question by their descriptions, as the results of one tool
whose arguments say nothing. Recall is the share of a SELECT's lists among the best.
"""

import asyncio
import hashlib
import json
import os
import re
import statistics
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, Session, SessionConfig
from llm_common.core import DefaultCounter
from llm_common.errors import ToolArgumentsError
from llm_common.selection.relevance_ranking import rank_pointers

DATA: Final = os.environ.get("LLM_COMMON_EVAL_DATA")
QUERIES: Final = Path(__file__).with_name("record_queries.toml")
COUNTER: Final = DefaultCounter()
TABLE: Final = re.compile(r"\{(\w+)\}")
COUNTS: Final = (3, 6)


@dataclass(frozen=True)
class Case:
    """One question.

    Attributes:
        question: The question.
        expected: The answer, a text or a number.
        sql: The SELECT, with `{pets}` for the name of the table of pets.
    """

    question: str
    expected: str
    sql: str


def cases(folder: Path) -> Iterator[Case]:
    """Yield the questions of the set, each with its SELECT."""
    yield from cases_with_a_query(folder.joinpath("questions.tune.jsonl").read_text("utf-8"))


def cases_with_a_query(questions: str) -> Iterator[Case]:
    """Yield the questions of lines of JSON that have a SELECT."""
    queries = tomllib.loads(QUERIES.read_text(encoding="utf-8"))
    for line in questions.splitlines():
        row = json.loads(line)
        question = row["input"]
        key = hashlib.sha256(question.encode()).hexdigest()[:8]
        if key in queries:
            yield Case(question, str(row["ground_truth"]), queries[key])


def is_right(expected: str, first_row: tuple[object, ...]) -> bool:
    """Return whether a row has the expected value, with amounts compared as numbers."""
    number = expected.removesuffix(" records").removeprefix("$").replace(",", "")
    for value in first_row:
        if isinstance(value, int | float) and re.fullmatch(r"[\d.]+", number):
            if abs(value - float(number)) < 0.005:
                return True
        elif value == expected:
            return True
    return False


async def names_of(session: Session) -> dict[str, str]:
    """Return the names of the tables, by the names of the lists."""
    names = {}
    for table in await session.tables():
        tool_name, _, _ = table.name.rpartition("_")
        names[tool_name.removeprefix("get_")] = table.name
    return names


async def refusal_of(session: Session, sql: str) -> str:
    try:
        await session.query(sql)
    except ToolArgumentsError as exc:
        return str(exc)
    return ""


def names_every_column(
    refusal: str, case: Case, names: Mapping[str, str], records: Mapping[str, list[dict[str, Any]]]
) -> bool:
    """Return whether a refusal lists the columns of every table of a query."""
    for name in set(TABLE.findall(case.sql)):
        columns = ", ".join(records[name][0])
        if f"{names[name]}({columns})" not in refusal:
            return False
    return True


async def rank_lists(folder: Path, records: Mapping[str, list[dict[str, Any]]]) -> None:
    """Print how many of the lists that a question needs are among the best."""
    store = InMemoryContextPointerStore()
    pointers = {}
    for number, (name, rows) in enumerate(records.items()):
        saved = await store.save(
            query_id="q",
            task_id=None,
            tool_name="read_file",
            args={"number": number},
            result={"status": "ok", "data": rows},
        )
        pointers[name] = saved
    recalls: dict[int, list[float]] = {count: [] for count in COUNTS}
    for case in cases(folder):
        needed = {pointers[name].pointer_id for name in TABLE.findall(case.sql)}
        ranked = rank_pointers(case.question, list(pointers.values()))
        ids = [entry.pointer.pointer_id for entry in ranked]
        for count, shares in recalls.items():
            shares.append(len(needed.intersection(ids[:count])) / len(needed))
    means = [f"{statistics.fmean(shares):.3f} of {count}" for count, shares in recalls.items()]
    print(f"recall of the needed lists among the best of ten: {', '.join(means)}")


async def session_with(records: Mapping[str, list[dict[str, Any]]]) -> Session:
    """Return a session with each list as the result of one tool."""
    policy = OffloadPolicy(max_turn_tokens=None)
    session = Session(InMemoryContextPointerStore(), config=SessionConfig(offload=policy))
    for name, rows in records.items():
        await session.offload(rows, tool=f"get_{name}", args={})
    return session


def select_of(case: Case, names: Mapping[str, str]) -> str:
    """Return the SELECT of a question with the names of the tables."""
    return TABLE.sub(lambda match: names[match[1]], case.sql)


async def measure(folder: Path) -> None:
    records = json.loads((folder / "records.json").read_text(encoding="utf-8"))
    start_s = time.process_time()
    session = await session_with(records)
    offload_ms = 1_000 * (time.process_time() - start_s)
    start_s = time.process_time()
    names = await names_of(session)
    load_ms = 1_000 * (time.process_time() - start_s)

    right = total = helpful = 0
    answer_tokens, refusal_tokens = [], []
    query_ms = []
    for case in cases(folder):
        sql = select_of(case, names)
        start_s = time.process_time()
        answer = await session.query(sql)
        query_ms.append(1_000 * (time.process_time() - start_s))
        answer_tokens.append(COUNTER.count(answer))
        [first_row, *_] = (await session.query_rows(sql)).rows
        total += 1
        if is_right(case.expected, first_row):
            right += 1
        else:
            print(f"differs: {case.question}\n  expected {case.expected}, found {first_row}")
        refusal = await refusal_of(session, re.sub(r"\bowner\b", "owner_id", sql))
        refusal_tokens.append(COUNTER.count(refusal))
        helpful += names_every_column(refusal, case, names, records)
    count = sum(map(len, records.values()))
    print(f"{right} of {total} answers are right, at most {max(answer_tokens)} tokens long")
    print(
        f"{count:,} records: {offload_ms:.0f} ms of CPU time to offload them with previews, "
        f"{load_ms:.0f} to load them into tables"
    )
    print(f"a query: {statistics.median(query_ms):.1f} ms of CPU time, {max(query_ms):.1f} at most")
    print(
        f"a wrong column: {helpful} of {total} refusals list all columns of the query's tables, "
        f"in at most {max(refusal_tokens)} tokens"
    )
    await rank_lists(folder, records)


def main() -> None:
    if DATA is None or not (Path(DATA) / "records").is_dir():
        print("set LLM_COMMON_EVAL_DATA to a folder with records/ to measure queries")
        return
    asyncio.run(measure(Path(DATA) / "records"))


if __name__ == "__main__":
    main()
