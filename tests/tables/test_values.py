"""Cells are read as numbers and lists, as people and programs write them."""

import math

import pytest

from llm_common.tables.values import (
    Cell,
    cell_text,
    elements_of,
    format_number,
    number_of,
)


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        (5, 5.0),
        (2.5, 2.5),
        ("1,234.50", 1234.5),
        ("-$1,234", -1234.0),
        ("$-7", -7.0),
        ("17% off", 17.0),
        ("4.8/5", 4.8),
        ("30ms", 30.0),
        ("EUR 9.99", 9.99),
        ("0.5", 0.5),
        ("0", 0.0),
        ("01234", None),
        ("1,23", None),
        ("1.2.3", None),
        ("2026-01-02", None),
        ("8 1/2", None),
        ("", None),
        ("about 5", None),
        (True, None),
        (None, None),
        (10**400, None),
        ("9" * 41, None),
    ],
)
def test_numbers_are_read_as_people_write_them(cell: Cell, number: float | None) -> None:
    assert number_of(cell) == number


@pytest.mark.parametrize(
    ("cell", "elements"),
    [
        ("a, b,c", ("a", "b", "c")),
        ('["a", 1]', ("a", "1")),
        ('[{"a": 1}]', ()),
        ("[half", ("[half",)),
        ("[" * 5_000, ("[" * 5_000,)),
        ("1,234", ("1,234",)),
        (f"{'long ' * 10}, and more", (f"{'long ' * 10}, and more",)),
        ("one", ("one",)),
        (7, ("7",)),
        (True, ("true",)),
        (None, ()),
    ],
)
def test_lists_are_read_from_json_and_commas(cell: Cell, elements: tuple[str, ...]) -> None:
    assert elements_of(cell) == elements


def test_texts_of_cells() -> None:
    assert [cell_text(cell) for cell in (None, True, False, "x", 3, 2.0)] == [
        *("", "true", "false"),
        *("x", "3", "2"),
    ]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2.50, "2.5"),
        (1 / 3, "0.333333"),
        (100 / 3, "33.333333"),
        (1e20, "1e+20"),
        (-4.0, "-4"),
        (-0.0, "0"),
        (3.2e-8, "3.2e-08"),
        (-2.5e-6, "-2.5e-06"),
        (0.0640368, "0.064037"),
        (0.000123456, "0.000123456"),
        (5e-324, "4.94066e-324"),
        (math.inf, "inf"),
        (math.nan, "nan"),
    ],
)
def test_numbers_keep_the_digits_that_count(number: float, text: str) -> None:
    assert format_number(number) == text


def test_an_integer_that_python_does_not_write_has_a_text() -> None:
    assert format_number(10**5000) == "a long number"
