"""Records in Python's notation, XML, YAML and typed values, within bounds of time and size."""

import sys
import time
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from llm_common.tables.finding import find_records
from llm_common.tables.table import Table

SERVICES = "items:\n- name: web\n  port: 80\n- name: db\n  port: 5432\n"


def only_table(value: Any) -> Table:
    [table] = find_records(value).tables
    return table


def test_records_in_pythons_notation_are_read_t_03() -> None:
    records = [{"id": n, "note": "a \"b\"\n'c'", "ok": True, "none": None} for n in range(3)]
    assert only_table(str(records)).rows[2] == (2, "a \"b\"\n'c'", True, None)


def test_tuples_of_a_query_have_no_heading_t_03() -> None:
    rows = [("Ann", "Oslo"), ("Bob", "Rome")]
    table = only_table(str(rows))
    assert table.columns == ("column_1", "column_2")
    assert table.rows == tuple(rows)
    row = (Decimal("1.50"), date(2024, 1, 2), datetime(2024, 1, 2, 3, 4), "x")  # noqa: DTZ001
    assert only_table(str([row, row])).rows[0] == ("1.50", "2024-01-02", "2024-01-02 03:04:00", "x")


@pytest.mark.parametrize("text", ["[{'id': open('x')}, {'id': 1}]", "[{'a': 1}, {'a': 2}", "[a]"])
def test_programs_and_halves_are_no_data_t_03(text: str) -> None:
    assert find_records(text).tables == ()


def test_elements_of_xml_are_records_t_03() -> None:
    feed = (
        '<?xml version="1.0"?>\n<feed xmlns="urn:x"><title>T</title>'
        '<entry id="1"><name>A</name><link/></entry><entry id="2"><name>B</name></entry></feed>'
    )
    records = find_records(feed)
    assert records.tables[0].path == "entry"
    assert records.tables[0].columns == ("id", "name", "link")
    assert records.tables[0].rows == (("1", "A", None), ("2", "B", None))
    assert records.fields == (("title", "T"),)


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE a [<!ENTITY x "y">]><a><b c="1"/><b c="&x;"/></a>',
        "<article><p>Some <b>bold</b> text</p><p>More</p></article>",
        "<ul><li><a>1</a><b>2</b></li><li><a>3</a><b>4</b></li></ul>",
        "<a><b>1</b>",
    ],
    ids=["entities", "document", "html", "half"],
)
def test_other_markup_is_a_text_t_03(text: str) -> None:
    assert find_records(text).tables == ()


def test_records_in_yaml_keep_their_texts_t_03() -> None:
    text = (
        "# note\nkind: List\nitems:\n- {code: 012, on: no, at: ~}\n- {code: 1_0, on: yes, at: x}\n"
    )
    records = find_records(text)
    assert records.tables[0].path == "items"
    assert records.tables[0].rows == (("012", "no", "~"), ("1_0", "yes", "x"))
    assert records.fields == (("kind", "List"),)
    assert only_table("a: 1\nb: 2\n---\na: 3\nb: 4\n").rows == (("1", "2"), ("3", "4"))


def test_without_its_package_yaml_is_a_text_t_03(monkeypatch: pytest.MonkeyPatch) -> None:
    assert only_table(SERVICES).rows[1] == ("db", "5432")
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert find_records(SERVICES).tables == ()


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        "- &a {b: *a}\n- {b: 1}\n",
        "name: x\nport: 80\n",
        "Note: this is it.\nWe met: it rained, and rained.\nBye: Ann\n",
    ],
    ids=["laughs", "circle", "no-records", "prose"],
)
def test_other_texts_with_colons_have_no_records_t_03(text: str) -> None:
    assert find_records(text).tables == ()


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (
            [
                {
                    "id": {"S": "a"},
                    "n": {"N": "1"},
                    "at": {"NULL": True},
                    "in": {"M": {"x": {"N": "2"}}},
                }
            ]
            * 2,
            ("a", "1", None, "2"),
        ),
        (
            [
                {
                    "name": "d",
                    "fields": {
                        "a": {"stringValue": "x"},
                        "b": {"arrayValue": {"values": [{"integerValue": "3"}]}},
                    },
                }
            ]
            * 2,
            ("d", "x", '["3"]'),
        ),
        (
            [
                {
                    "s": {"type": "uri", "value": "u"},
                    "o": {"type": "literal", "value": "3", "xml:lang": "x"},
                }
            ]
            * 2,
            ("u", "3"),
        ),
        ([{"_id": {"$oid": "1"}, "name": "x"}] * 2, ("1", "x")),
        # Fields of these names are no types.
        ([{"size": {"S": 3}, "name": "x"}] * 2, (3, "x")),
        ([{"size": {"S": "small"}, "name": "x"}] * 2, ("small", "x")),
        ([{"a": {"type": "t", "value": 1}, "name": "x"}] * 2, ("t", 1, "x")),
    ],
    ids=["dynamodb", "firestore", "sparql", "mongodb", "number", "one-field", "type-field"],
)
def test_values_are_read_within_the_names_of_their_types_t_03(value: Any, row: Any) -> None:
    table = only_table(value)
    assert table.rows[0] == row


def test_names_of_types_are_no_columns_t_03() -> None:
    table = only_table([{"id": {"S": "a"}, "price": {"N": "1"}}] * 2)
    assert table.columns == ("id", "price")
    assert only_table([{"size": {"S": "small"}, "name": "x"}] * 2).columns == ("S", "name")


@pytest.mark.parametrize(
    "part",
    ["[", "a: [", "<a>", "('a',", "'", "[\\", "[datetime.date(", "- ", "a: b\n", "- &x [*x]\n"],
)
def test_hostile_documents_take_linear_time_t_03(part: str) -> None:
    text = part * (400_000 // len(part))
    begin = time.process_time()
    find_records(text)
    find_records("- a: b\n" * 10 + text)
    assert time.process_time() - begin < 20


def test_an_element_that_stands_alone_is_counted_with_those_of_others() -> None:
    suites = (
        '<suites><suite name="a"><case n="1"/></suite>'
        '<suite name="b"><case n="2"/><case n="3"/><case n="4"/></suite>'
        '<suite name="c"><case n="5"/></suite></suites>'
    )
    [suite, case] = find_records(suites).tables
    assert (suite.columns, suite.total_rows) == (("name", "case"), 3)
    assert case.column(1) == ["1", "2", "3", "4", "5"]


def test_one_object_in_place_of_a_list_is_counted_with_those_in_lists() -> None:
    orders: Any = [
        {"id": 1, "items": {"sku": "a"}},
        {"id": 2, "items": [{"sku": "b"}, {"sku": "c"}]},
        {"id": 3, "items": [None, {"sku": "d"}]},
    ]
    assert find_records(orders).tables[1].column(1) == ["a", "b", "c", "d"]


def test_a_log_with_its_times_in_brackets_is_not_parsed_as_python(
    recwarn: pytest.WarningsRecorder,
) -> None:
    entries = "".join(f"[2016-12-20 00:0{n}] INFO Rolled 'x' in 1ms. ({n}if)\n" for n in range(9))
    find_records(entries)
    assert not recwarn.list
