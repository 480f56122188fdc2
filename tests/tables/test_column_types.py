"""A column has one type, which all of its cells decide."""

import pytest

from llm_common.tables.column_types import ColumnType
from llm_common.tables.columns import Column
from llm_common.tables.table import table_of_records
from llm_common.tables.values import Cell


def typed(*cells: Cell, name: str = "amount") -> ColumnType:
    return Column(table_of_records("", [{name: cell} for cell in cells]), 0).type


def values(*cells: Cell, name: str = "amount") -> list[Cell]:
    column_type = typed(*cells, name=name)
    return [column_type.values.get(cell) for cell in cells]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (("1.5", "10", "100.125"), [1.5, 10, 100.125]),
        ((".091", "0.5", "1e-05", "2.5E+3"), [0.091, 0.5, 1e-05, 2_500]),
        (("1.5", "2.50", "3.125", "4.120"), [1.5, 2.5, 3.125, 4.12]),
        (("1,200", "950", "2,000,000"), [1_200, 950, 2_000_000]),
        (("1,234.50", "12.00"), [1_234.5, 12]),
        (("1.234,50", "2,5"), [1_234.5, 2.5]),
        (("0,125", "3,250"), [0.125, 3.25]),
        (("1 234,50", "2,00"), [1_234.5, 2]),
        (("1\u00a0234.50", "2.00"), [1_234.5, 2]),
        (("1'234.50", "2.00"), [1_234.5, 2]),
        (("$1,234", "$65,000"), [1_234, 65_000]),
        (("1.234 €", "65.000 €"), [1_234, 65_000]),
        (("-$5.00", "$-7.25", "\u22122.00"), None),
        (("-$5.00", "$-7.25", "\u2212$2.00"), [-5, -7.25, -2]),
        (("(1,200.50)", "300"), [-1_200.5, 300]),
        (("99%", "5%", "0"), [99, 5, 0]),
        (("17% off", "20% off"), [17, 20]),
        (("4.8/5", "3/5"), [4.8, 3]),
        (("512Mi", "2Gi"), [512 * 2**20, 2 * 2**30]),
        (("512 MB", "2.3 GB", "0"), [512 * 10**6, 2_300_000_000, 0]),
        (("4.0K", "1.5M", "2G"), [4_096, 1.5 * 2**20, 2**31]),
        (("1.2k", "3M", "950"), [1_200, 3_000_000, 950]),
        (("30ms", "2s", "1min"), [0.03, 2, 60]),
        (("30ms", "45ms"), [30, 45]),
        ((1, 2.5, "3"), [1, 2.5, 3]),
        ((2**62, 5), [2**62, 5]),
    ],
)
def test_numbers_are_read_by_the_whole_column_t_15(
    cells: tuple[Cell, ...], numbers: list[Cell] | None
) -> None:
    if numbers is None:
        assert typed(*cells).kind == "text"
    else:
        assert typed(*cells).kind == "number"
        assert values(*cells) == numbers


@pytest.mark.parametrize(
    ("cells", "name"),
    [
        (("1,234", "5,678"), "weight"),  # thousands, or three decimals
        (("1.200", "950"), "weight"),
        (("1,234", "1.234"), "weight"),
        (("1,5", "1.5"), "weight"),
        (("1.9", "1.10", "1.11"), "python"),
        (("2024.1", "2024.10"), "python"),
        (("3.9", "3.11"), "version"),
        (("1.2.3", "1.2.4"), "tag"),
        (("01234", "94107"), "zip"),
        (("+49301234567", "+49301234568"), "contact"),
        (("555 123 456", "555 987 654"), "contact"),
        (("5551234567", "5559876543"), "phone"),
        (("192.168.100.101", "192.168.100.102"), "host"),
        (("1234567890123456", "1234567890123457"), "card"),
        ((2**63, 5), "id"),
        (("$5", "€7"), "price"),
        (("5%", "7"), "share"),
        (("512K", "3M"), "size"),  # of 1,000 or of 1,024
        (("5m", "7"), "cpu"),
        (("3/4/2026", "5/6/2026"), "day"),
        (("13/4/2026", "4/13/2026"), "day"),
        (("2026-03-05T10:00:00+01:00", "2026-03-05T10:00:00-05:00"), "at"),
        (("2024.1", "2024.10", "2024.2.1"), "python"),
        (("Room 2026", "Room 2027"), "room"),
        ((True, 5), "mixed"),
        (("-", "N/A"), "gaps"),
        (("5\n6", "7"), "lines"),
        (("5 " + "x" * 50, "7"), "prose"),
        ((1, 2, 3, 4, 5, 6, 7, 8, "x", "y"), "most"),
    ],
)
def test_what_the_column_leaves_open_stays_text_t_15(cells: tuple[Cell, ...], name: str) -> None:
    assert typed(*cells, name=name).kind == "text"


@pytest.mark.parametrize(
    ("cells", "moments"),
    [
        (("2026-03-05", "2026-04-01"), None),
        (("2026-03-05T10:11:12Z", "2026-03-06T00:00:00Z"), None),
        (("2026/3/5", "2026/12/31"), ["2026-03-05", "2026-12-31"]),
        (("2026-03", "2026-04"), ["2026-03", "2026-04"]),
        (("5 March 2026", "1st April 2026"), ["2026-03-05", "2026-04-01"]),
        (("Mar 5, 2026", "Apr. 1, 2026"), ["2026-03-05", "2026-04-01"]),
        (("March 2026", "April 2026"), ["2026-03", "2026-04"]),
        (("Thu, 05 Mar 2026 10:00:00 GMT", "05 Mar 2026 11:00"), "2026-03-05 10:00:00"),
        (("10/Oct/2026:13:55:36 +0000",), ["2026-10-10 13:55:36"]),
        (("2026-03-05T10:11:12+02:00",), ["2026-03-05 10:11:12"]),
        (("2026-03-05 10:11:12,345",), ["2026-03-05 10:11:12.345"]),
        (("3/4/2026", "3/15/2026"), ["2026-03-04", "2026-03-15"]),
        (("3/4/2026", "15/3/2026"), ["2026-04-03", "2026-03-15"]),
        (("3.4.2026", "5.6.2026"), ["2026-04-03", "2026-06-05"]),
        (("3/15/2026 1:05 PM", "3/15/2026 12:00 am"), ["2026-03-15 13:05", "2026-03-15 00:00"]),
    ],
)
def test_moments_are_iso_t_15(cells: tuple[str, ...], moments: list[str] | str | None) -> None:
    column_type = typed(*cells)
    assert column_type.kind == "moment"
    assert column_type.has_texts == (values(*cells) != list(cells))
    if isinstance(moments, str):
        assert values(*cells)[0] == moments
    else:
        assert values(*cells) == (moments or list(cells))


@pytest.mark.parametrize(
    "cells", [("True", "False"), ("yes", "NO"), ("Y", "N"), (True, False), (True, "false")]
)
def test_flags_are_read_from_words_t_15(cells: tuple[Cell, ...]) -> None:
    assert typed(*cells).kind == "flag"
    assert values(*cells) == [True, False]


def test_markers_and_a_tenth_of_other_texts_have_no_value_t_15() -> None:
    numbers = [str(number) for number in range(9)]
    column_type = typed(*numbers, "N/A", "-", "unknown")
    assert (column_type.kind, column_type.unread, column_type.has_texts) == ("number", 1, True)
    assert values("N/A", "unknown", "5", *numbers) == [None, None, 5, *range(9)]
    assert typed(*numbers, "unknown", "lost").kind == "text"


def test_plain_notations_say_no_more_than_their_values() -> None:
    assert not typed("1.50", "2.25").has_texts
    assert not typed("7", None, "").has_texts
    assert typed("$7", "$8").has_texts
    assert typed("$7", "$8").unit == "$"
    assert (typed("1Gi", "1Mi").unit, typed("1s", "1min").unit) == ("bytes", "seconds")
    assert typed("1Gi", "1Mi").is_scaled
