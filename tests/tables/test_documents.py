"""Records in Python's notation, XML, YAML and typed values, within bounds of time and size."""

import sys
import time
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from llm_common.tables.finding import find_records
from tests.tables.reading import only_table

SERVICES = "items:\n- name: web\n  port: 80\n- name: db\n  port: 5432\n"
RECORDS = [{"id": n, "note": "a \"b\"\n'c'", "ok": True, "none": None} for n in range(3)]
TYPED = (Decimal("1.50"), date(2024, 1, 2), datetime(2024, 1, 2, 3, 4), "x")  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "columns", "last"),
    [
        pytest.param(
            str(RECORDS),
            ("id", "note", "ok", "none"),
            (2, "a \"b\"\n'c'", True, None),
            id="Python's notation",
        ),
        pytest.param(
            str([("Ann", "Oslo"), ("Bob", "Rome")]),
            ("column_1", "column_2"),
            ("Bob", "Rome"),
            id="tuples of a query",
        ),
        pytest.param(
            str([TYPED, TYPED]),
            ("column_1", "column_2", "column_3", "column_4"),
            ("1.50", "2024-01-02", "2024-01-02 03:04:00", "x"),
            id="numbers and times of a query",
        ),
        pytest.param("a: 1\nb: 2\n---\na: 3\nb: 4\n", ("a", "b"), ("3", "4"), id="YAML"),
    ],
)
def test_records_in_the_notation_of_programs_are_read_t_03(
    text: str, columns: tuple[str, ...], last: tuple[object, ...]
) -> None:
    table = only_table(text)
    assert (table.columns, table.rows[-1]) == (columns, last)


FEED = (
    '<?xml version="1.0"?>\n<feed xmlns="urn:x"><title>T</title>'
    '<entry id="1"><name>A</name><link/></entry><entry id="2"><name>B</name></entry></feed>'
)
LIST = "# note\nkind: List\nitems:\n- {code: 012, on: no, at: ~}\n- {code: 1_0, on: yes, at: x}\n"


@pytest.mark.parametrize(
    ("text", "path", "rows", "field"),
    [
        pytest.param(FEED, "entry", (("1", "A", None), ("2", "B", None)), ("title", "T"), id="XML"),
        pytest.param(
            LIST, "items", (("012", "no", "~"), ("1_0", "yes", "x")), ("kind", "List"), id="YAML"
        ),
    ],
)
def test_records_of_a_document_keep_their_texts_t_03(
    text: str, path: str, rows: tuple[tuple[str | None, ...], ...], field: tuple[str, str]
) -> None:
    records = find_records(text)
    [table] = records.tables
    assert (table.path, table.rows, records.fields) == (path, rows, (field,))


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
        pytest.param("[{'id': open('x')}, {'id': 1}]", id="program"),
        pytest.param("[{'a': 1}, {'a': 2}", id="half of Python"),
        pytest.param("[a]", id="name"),
        pytest.param('<!DOCTYPE a [<!ENTITY x "y">]><a><b c="1"/><b c="&x;"/></a>', id="entities"),
        pytest.param("<article><p>Some <b>bold</b> text</p><p>More</p></article>", id="document"),
        pytest.param("<ul><li><a>1</a><b>2</b></li><li><a>3</a><b>4</b></li></ul>", id="html"),
        pytest.param("<a><b>1</b>", id="half of XML"),
        pytest.param(LAUGHS, id="laughs"),
        pytest.param("- &a {b: *a}\n- {b: 1}\n", id="circle"),
        pytest.param("name: x\nport: 80\n", id="no records"),
        pytest.param("Note: this is it.\nWe met: it rained, and rained.\nBye: Ann\n", id="prose"),
    ],
)
def test_other_texts_of_such_notations_have_no_records_t_03(text: str) -> None:
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
    assert only_table(value).rows[0] == row


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


SUITES = (
    '<suites><suite name="a"><case n="1"/></suite>'
    '<suite name="b"><case n="2"/><case n="3"/><case n="4"/></suite>'
    '<suite name="c"><case n="5"/></suite></suites>'
)
ORDERS: Any = [
    {"id": 1, "items": {"sku": "a"}},
    {"id": 2, "items": [{"sku": "b"}, {"sku": "c"}]},
    {"id": 3, "items": [None, {"sku": "d"}]},
]


@pytest.mark.parametrize(
    ("value", "columns", "inner"),
    [
        pytest.param(SUITES, ("name", "case"), ["1", "2", "3", "4", "5"], id="elements"),
        pytest.param(ORDERS, ("id", "sku", "items"), ["a", "b", "c", "d"], id="objects"),
    ],
)
def test_one_that_stands_alone_is_counted_with_those_in_lists(
    value: Any, columns: tuple[str, ...], inner: list[str]
) -> None:
    outer_table, inner_table = find_records(value).tables
    assert (outer_table.columns, outer_table.total_rows) == (columns, 3)
    assert inner_table.column(1) == inner


def test_a_log_with_its_times_in_brackets_is_not_parsed_as_python(
    recwarn: pytest.WarningsRecorder,
) -> None:
    entries = "".join(f"[2016-12-20 00:0{n}] INFO Rolled 'x' in 1ms. ({n}if)\n" for n in range(9))
    find_records(entries)
    assert not recwarn.list
