"""Previews of tables with empty cells: none raises, and no matching record is lost."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from llm_common.agents import (
    InMemoryContextPointerStore,
    OffloadPolicy,
    Session,
    SessionConfig,
    format_selected_contexts,
)
from llm_common.parts.table_sketch import ResultSketch

CONDITIONS = ("refused orders", "orders that are paid", "orders of Lyon", "orders over 500")
ORDERS = ("highest amount", "lowest amount", "newest", "oldest", "longest wait_days")
EMPTY: tuple[Any, ...] = (None, "", "n/a", [], {})


def tables(count: int, seed: int) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Yield tables of which many cells are empty, and a question with a condition and an order."""
    random_ = random.Random(seed)
    for _ in range(count):
        gap = random_.choice(EMPTY)
        gaps = random_.choice((0.02, 0.3, 0.9, 1.0))
        rows = []
        for number in range(random_.choice((3, 40, 200))):
            is_refused = random_.random() < random_.choice((0.005, 0.1))
            row: dict[str, Any] = {
                "order": number,
                "status": "refused" if is_refused else "paid",
                "city": random_.choice(("Lyon", "Bergen", gap)),
                "amount": number * 7 % 1000,
                "created": f"2026-0{number % 9 + 1}-11",
                "wait_days": number % 13,
            }
            for name in ("amount", "created", "wait_days"):
                if is_refused or random_.random() < gaps:
                    row[name] = gap
            rows.append(row)
        yield rows, f"What is the {random_.choice(ORDERS)} of the {random_.choice(CONDITIONS)}?"


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.torture)])
async def test_previews_of_tables_with_gaps_never_fall_back(
    caplog: pytest.LogCaptureFixture, count: int
) -> None:
    config = SessionConfig(offload=OffloadPolicy(max_whole_tokens=0))
    for rows, question in tables(count, seed=count):
        session = Session(InMemoryContextPointerStore(), config=config, session_id="s")
        shown = await session.offload(rows, tool="orders", args={}, query=question)
        assert shown.pointer_id is not None
        pointers = session.store.list(query_id="s")
        format_selected_contexts(
            pointers=pointers, store=session.store, max_chars=900, query=question
        )
    assert caplog.messages == []


@pytest.mark.parametrize("gap", EMPTY)
async def test_a_matching_record_without_the_value_of_the_order_is_shown(gap: object) -> None:
    rows = [
        {"order": n, "status": "refused" if n == 7 else "paid", "amount": gap if n == 7 else n}
        for n in range(2_000)
    ]
    session = Session(InMemoryContextPointerStore(), session_id="s")
    question = "What is the highest amount of the refused orders?"
    text = str(await session.offload(rows, tool="orders", args={}, query=question))
    assert "\nstatus: refused\norder: 7\n" in text


async def test_a_result_that_cannot_be_sketched_is_shown_by_its_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: object) -> str:
        raise ZeroDivisionError("secret text")

    # No result is known whose sketch raises, so the fault is put in.
    monkeypatch.setattr(ResultSketch, "text", fail)
    monkeypatch.setattr(ResultSketch, "text_with_records", fail)
    rows = [{"order": n, "status": "paid"} for n in range(2_000)]
    store = InMemoryContextPointerStore()
    session = Session(store, session_id="s")
    shown = await session.offload(rows, tool="orders", args={}, query="order 7")
    assert '[{"order":0,"status":"paid"}' in shown.text
    assert '{"order":1999,"status":"paid"}]' in shown.text
    assert shown.pointer_id
    block = format_selected_contexts(
        pointers=store.list(query_id="s"), store=store, max_chars=900, query="order 7"
    )
    assert '"order":1999' in block
    assert "a result is shown by its ends: ZeroDivisionError" in caplog.messages
    assert "secret" not in caplog.text
