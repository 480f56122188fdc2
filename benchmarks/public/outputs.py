"""Tool outputs: whether the preview of a real API response holds what a question asks for."""

import json
from collections.abc import Callable
from typing import Final

from benchmarks.preview_peers import PeerPreview, installed_previews
from benchmarks.public.bm25 import BM25, words
from benchmarks.public.inputs import Inputs
from benchmarks.public.tables import Cell, Row, Section, Share, Table
from benchmarks.quality_previews import (
    COUNTER,
    KINDS,
    PREVIEWS,
    Case,
    Preview,
    cut,
    measured,
    public_cases,
    records_of,
    text_of,
)

__all__ = ["previews"]

BUDGETS: Final = (400, 1_000)
OURS: Final = "llm-common"
CLAUDE_CODE: Final = "first 2,048 characters, as Claude Code (reported rule)"
# Of the previews that another benchmark makes, these owe nothing to the measured package.
HEADS: Final = ("head", "head and tail")
SETS: Final = {"filings": "SEC filings, never tuned on", "products": "product searches, tuned on"}


def _plain_bm25(case: Case, max_tokens: int) -> str:
    """Return the records that share most with the question, as many as fit, best first."""
    records = records_of(case.result)
    order = BM25.of_texts(records).ranked(words(case.question))
    shown: list[str] = []
    for index in order:
        if COUNTER.count("\n".join([*shown, records[index]])) > max_tokens:
            break
        shown.append(records[index])
    first = records[order[0]] if order else records[0]
    return "\n".join(shown) or cut(first, max_tokens)


def _once_a_result(preview: PeerPreview) -> Preview:
    """Return a preview that runs a framework once a result.

    None of the packages looks at the question, so the preview of a result is always the same.
    """
    made: dict[str, str] = {}

    def preview_of(case: Case, _: int) -> str:
        key = json.dumps(case.result)
        if key not in made:
            made[key] = preview(case.result, case.question)
        return made[key]

    return preview_of


def previews(inputs: Inputs, limit: int | None) -> Section:
    """Measure what previews hold."""
    tables = []
    for name, description in SETS.items():
        questions = inputs.json(f"{name}_questions")
        cases = [*public_cases(inputs.json(f"{name}_responses"), questions)]
        if limit is not None:
            cases = [case for kind in KINDS.values() for case in _first(cases, kind, limit)]
        tables.append(_table(description, cases))
    return Section("Tool outputs: previews that answer", ABOUT, tuple(tables))


def _first(cases: list[Case], kind: str, limit: int) -> list[Case]:
    return [case for case in cases if case.kind == kind][:limit]


def _table(description: str, cases: list[Case]) -> Table:
    rows: list[Row] = []
    of_any_size: dict[str, Preview] = {OURS: PREVIEWS[OURS]}
    of_any_size |= {label: PREVIEWS[label] for label in HEADS}
    of_any_size["BM25 over records"] = _plain_bm25
    for label, preview in of_any_size.items():
        cells: list[Cell] = []
        for budget in BUDGETS:
            cells += _cells(preview, cases, budget)
        rows.append(Row(label, tuple(cells), "ours" if label == OURS else "baseline"))
    of_one_size: dict[str, Callable[[Case, int], str]] = {
        CLAUDE_CODE: lambda case, _: text_of(case.result)[:2_048]
    }
    of_one_size |= {label: _once_a_result(peer) for label, peer in installed_previews().items()}
    for label, preview in of_one_size.items():
        cells = _cells(preview, cases, 0)
        rows.append(Row(label, (*cells, *[None] * len(cells)), "baseline"))
    counts = ", ".join(
        f"{sum(case.kind == kind for case in cases)} {kind}s" for kind in KINDS.values()
    )
    columns = []
    for budget in BUDGETS:
        columns += [f"{kind}, {budget:,}" for kind in KINDS.values()] + [f"tokens, {budget:,}"]
    return Table(f"{description}: {counts}", tuple(columns), tuple(rows))


def _cells(preview: Preview, cases: list[Case], budget: int) -> list[Cell]:
    shares, tokens = measured(preview, cases, budget)
    return [*map(Share, shares.values()), f"{tokens:,.0f}"]


ABOUT: Final = """\
Questions about 14 lists of SEC filings and five product searches, API responses of 19,000 to 32,000
tokens each (LongFuncEval/toolJSONprocessing). A look-up is held if the answer and the id of the
question are in the preview, a list by the share of its items, and a count if its number is within
40 characters of a value that the question names. Questions whose count is zero are left out. No
model reads the preview, so this is not the accuracy of answers.

The previews of packages are made by their installed code at their defaults, whatever their size, so
they stand in the columns of 400 tokens with the tokens that they take. Only the threshold of
deepagents is lowered, which else keeps these results whole. Our preview was tuned on the product
searches. The filings were held back from tuning. A count is stated only if every word of the
question that may restrict the records was understood. Until that rule our counts on the filings
were .600 at 400 tokens, and of the counts on other questions more than half were false."""
