"""The examples of the page "What llm-common reads" are read as it says."""

import re
from pathlib import Path

import pytest

from llm_common.parts.table_sketch import ResultSketch
from llm_common.tables.finding import find_records
from tests.tables.reading import database_of, only_table

PAGE = Path(__file__).parents[2] / "docs" / "what_is_read.md"
EXAMPLES = re.findall(
    r"^### (.+)\n(?:(?!```).*\n)*```text\n([\s\S]*?)```\n\nColumns: (.+)$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE,
)


def test_each_form_of_the_page_has_an_example_t_03() -> None:
    assert len(EXAMPLES) == PAGE.read_text(encoding="utf-8").count("\n### ")


@pytest.mark.parametrize(
    ("text", "columns"), [example[1:] for example in EXAMPLES], ids=[name for name, *_ in EXAMPLES]
)
def test_an_example_of_the_page_is_read_t_03(text: str, columns: str) -> None:
    table = only_table(text)
    assert {f"`{column}`" for column in table.columns} == set(columns.split(", "))
    assert table.total_rows >= (1 if "|---" in text else 2)


@pytest.mark.parametrize("text", [example[1] for example in EXAMPLES])
def test_the_query_of_each_preview_runs_t_03(text: str) -> None:
    sketch = ResultSketch(find_records(text), "", name="get_3ac5").text(1_600)
    sql = sketch.splitlines()[-1].removeprefix("sql: ")
    result = database_of(get_3ac5=text).query(sql)
    assert len(result.rows) == only_table(text).total_rows
    assert set(result.columns) <= set(only_table(text).columns)


def test_a_preview_without_room_has_no_query() -> None:
    records = find_records([{"order id": n, "state": "open"} for n in range(90)])
    assert "sql: " not in ResultSketch(records, "", name="get_3ac5").text(62)
    assert "sql: " not in ResultSketch(records, "", name="records").text(900)
