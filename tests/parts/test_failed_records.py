"""Records that tell of a failure are shown first where nothing else is asked."""

import json

import pytest

from llm_common.parts.result_parts import ResultParts
from llm_common.parts.table_sketch import ResultSketch
from llm_common.tables.finding import find_records
from llm_common.text.canonical import Json

_CASES = 40
_REASON = "expected 12 but was 7"


def _junit(failed: int) -> str:
    lines = ['<testsuite name="orders" tests="40">']
    for n in range(_CASES):
        body = f'<failure message="{_REASON}" type="AssertionError">at row {n}</failure>'
        end = f">{body}</testcase>" if n == failed else "/>"
        lines.append(
            f'<testcase name="counts_orders_of_city_{n}" classname="Orders" time="0.{n}"{end}'
        )
    return "\n".join([*lines, "</testsuite>"])


def _nested(failed: int) -> str:
    """Return a report in which most characters belong to no record."""
    checks = []
    for n in range(_CASES):
        outcome = "failed" if n == failed else "passed"
        checks.append({"title": f"sends the mail {n}", "outcome": outcome, "note": None})
        if n == failed:
            checks[-1]["note"] = _REASON
    environment = {f"variable_{n}": {"set": "x" * 300} for n in range(2)}
    return json.dumps({"environment": environment, "run": {"checks": checks}}, indent=1)


def _preview(result: str, question: str = "", chars: int = 1_600) -> str:
    return ResultParts(result, result, question, table_name="run_3ac5").excerpt(chars).text


@pytest.mark.parametrize("question", ["", "Run the tests", "why does this fail?", "Fix the build"])
def test_the_record_that_failed_is_shown_with_its_name_and_reason(question: str) -> None:
    preview = _preview(_junit(failed=23), question)
    assert "Records that may tell of failures, with failure: 1 of 40" in preview
    assert "counts_orders_of_city_23" in preview
    assert _REASON in preview
    preview = _preview(_nested(failed=23), question)
    assert "outcome = failed: 1 of 40" in preview
    assert "sends the mail 23" in preview
    assert _REASON in preview


@pytest.mark.parametrize("result", [_junit(failed=-1), _nested(failed=-1)])
def test_no_record_tells_of_failures_where_none_failed(result: str) -> None:
    assert "failures" not in _preview(result)
    assert "failures" not in _preview(result, "why does this fail?")


@pytest.mark.parametrize(
    "question", ["How many checks are there?", "Which checks have no note?", "checks that passed"]
)
def test_a_question_for_other_records_is_not_answered_by_failures(question: str) -> None:
    checks = json.loads(_nested(failed=3))["run"]["checks"]
    sketch = ResultSketch(find_records(checks), question, name="run_3ac5")
    assert "failures" not in sketch.text(1_600)


@pytest.mark.parametrize(
    ("field", "cells"),
    [("errors", [0, 2, 0, 1]), ("error", [False, True, False, True]), ("err", [{}, {}, {}, {}])],
)
def test_numbers_flags_and_empty_objects_tell_of_no_failure(field: str, cells: list[Json]) -> None:
    records: list[Json] = [{"name": f"step {n}", field: cell} for n, cell in enumerate(cells)]
    assert "may tell" not in ResultSketch(find_records(records), "", name="run_3ac5").text(900)


def test_the_tests_that_failed_come_before_their_suites() -> None:
    tests: list[Json] = [{"name": f"case {n}", "result": "Failed"} for n in range(5)]
    suites: list[Json] = [
        {"suite": f"unit {n}", "result": "Failed", "note": "x" * 50} for n in range(2)
    ]
    text = ResultSketch(find_records({"suites": suites, "tests": tests}), "", name="run").text(900)
    assert text.index("case 0") < text.index("suites")
