"""Test the table of frameworks in `docs/frameworks.md`."""

from tests.integrations.measured import FUNCTIONS, HOOKS, LOOPS, PAGE, pins, row, rows_of, with_row


def test_the_table_has_the_versions_that_the_tests_install() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert [*rows] == [*HOOKS, *FUNCTIONS, *LOOPS]
    for name, pin in pins().items():
        assert f"| {pin} |" in rows[name]


def test_every_page_of_a_framework_is_in_the_table() -> None:
    pages = {path.stem for path in (PAGE.parent / "integrations").glob("*.md")}
    assert pages == {*HOOKS, *FUNCTIONS, *LOOPS}


def test_a_framework_replaces_only_its_own_row() -> None:
    page = PAGE.read_text(encoding="utf-8")
    line = row("agno", {"holds": {"a": True, "b": False}, "largest": 12_345, "shown": 7})
    changed = with_row(page, "agno", line)
    assert "| 1 of 2 | 12,000 characters | 7 |" in line
    assert rows_of(changed) == {**rows_of(page), "agno": line}
    assert with_row(changed, "agno", rows_of(page)["agno"]) == page
