"""What SQL says of stored records is compared with the truth, in every notation of a column.

An answer is false if its first cell is not the truth and no line above it says why. Where a column
is text because its notation is open, the answer has to say so.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from llm_common.agents import InMemoryContextPointerStore, OffloadPolicy, Session, SessionConfig
from llm_common.errors import ToolArgumentsError
from tests.oracle.claims import claimed_count, claims_in
from tests.oracle.notations import (
    CONTAINERS,
    DAYS,
    FLAGS,
    MARKERS,
    NUMBERS,
    TEXTS,
    Query,
    Written,
    written,
)

_TOLERANCE = 1e-9


@dataclass
class Verdict:
    """How the answers of many queries compare with the truth."""

    false: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def share_right(self) -> float:
        """Share of the queries with a truth that were answered with it."""
        return self.outcomes["right"] / (self.outcomes["right"] + self.outcomes["told"])

    def add(self, query: Query, answer: object, note: str) -> None:
        if query.truth is not None and is_same(answer, query.truth):
            self.outcomes["right"] += 1
        elif "by letters" in note:
            self.outcomes["rightly told" if query.truth is None else "told"] += 1
        elif query.truth is not None or isinstance(answer, (int, float)):
            self.false.append(f"{query.notation}: {query.sql}: {answer!r}, true {query.truth!r}")


def is_same(answer: object, truth: object) -> bool:
    if isinstance(truth, (int, float)) and isinstance(answer, (int, float)):
        return abs(answer - truth) <= _TOLERANCE * max(abs(truth), 1)
    return answer == truth


def new_session() -> Session:
    config = SessionConfig(offload=OffloadPolicy(max_whole_tokens=20))
    return Session(InMemoryContextPointerStore(), session_id="oracle", config=config)


async def verdict_of(tables: list[Written]) -> Verdict:
    verdict = Verdict()
    session = new_session()
    for number, table in enumerate(tables):
        offloaded = await session.offload(table.text, tool="list", args={"number": number})
        assert offloaded.pointer_id is not None
        name = f"list_{offloaded.pointer_id[:6]}"
        for query in table.queries:
            sql = query.sql.replace("$T", name)
            try:
                answer = (await session.query_rows(sql)).rows[0][0]
                note = (await session.query(sql)).partition("\n")[0]
            except ToolArgumentsError as exc:
                answer, note = str(exc), ""
            verdict.add(query, answer, note)
    return verdict


def tables_of(seed: int, *, containers: int) -> list[Written]:
    """Return a table for each notation with and without gaps, in some containers."""
    chance = random.Random(seed)
    tables = []
    for notation in (*NUMBERS, *DAYS, *FLAGS, *TEXTS):
        for container in chance.sample(CONTAINERS, containers):
            for marker in (None, chance.choice(MARKERS)):
                if marker is None or notation not in TEXTS:
                    tables.append(written(chance, notation, container, marker=marker))
    return tables


@pytest.mark.parametrize(
    ("seed", "containers"),
    [
        (1, 1),
        *(pytest.param(seed, len(CONTAINERS), marks=pytest.mark.torture) for seed in range(2, 12)),
    ],
)
async def test_no_answer_of_sql_is_false_in_any_notation_t_15(seed: int, containers: int) -> None:
    verdict = await verdict_of(tables_of(seed, containers=containers))
    assert verdict.false == []
    assert verdict.share_right >= 0.95
    assert verdict.outcomes["rightly told"] > 0


async def test_a_preview_claims_the_numbers_that_sql_has_t_15() -> None:
    session = new_session()
    outcomes: Counter[str] = Counter()
    for table in tables_of(1, containers=1):
        for query in table.queries:
            number = query.sql.rpartition(" amount > ")[2]
            if number == query.sql:
                continue
            question = f"How many items have an amount of more than {number}?"
            offloaded = await session.offload(table.text, tool="list", args={}, query=question)
            claim = claimed_count(claims_in(str(offloaded)))
            assert claim in (None, query.truth), (query.notation, question, str(offloaded))
            outcomes["silent" if claim is None else "right"] += 1
    assert outcomes["right"] > outcomes["silent"]
