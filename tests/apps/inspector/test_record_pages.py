"""The page of a pointer shows records as tables, in which every value is inert."""

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.application import Inspector
from tests.apps.inspector.hostile_data import browser
from tests.apps.inspector.test_run_page import CONTROLS, HOSTILE, Shape

ORDERS = [
    {"no": f"W{n:04}", "city": ("Bern", "Oslo")[n % 2], "note": "x" * (500 if n == 3 else 3)}
    for n in range(120)
]


async def page_of(folder: Path, result: Any) -> Callable[..., str]:
    """Store a result, and return a function that gets its page."""
    store = FileContextPointerStore(folder, durability="rename")
    saved = await store.save(query_id="q", task_id=None, tool_name="t", args={}, result=result)
    client = browser(Inspector(folder))

    def get(**parameters: str | int) -> str:
        path = f"/queries/q/{saved.pointer_id}"
        return client.get(path, params=parameters).raise_for_status().text

    return get


async def test_records_are_a_table_of_their_first_rows(tmp_path: Path) -> None:
    page = await page_of(tmp_path, {"orders": ORDERS, "page": 1})
    first = page()
    assert "Records 1 to 50 of 120, at <bdi>orders</bdi>." in first
    assert '<th scope="col">no</th><th scope="col">city</th><th scope="col">note</th>' in first
    assert first.count('<td data-name="no">') == 50
    assert '<td data-name="no"><bdi>W0049</bdi></td>' in first
    last = page(view="records", page=9)
    assert "Records 101 to 120 of 120" in last
    assert "W0119" in last
    assert "W0099" not in last


async def test_the_stored_text_is_one_click_away(tmp_path: Path) -> None:
    page = await page_of(tmp_path, ORDERS)
    views = [link for link in Shape(page()).addresses if "view=" in link]
    assert {link.partition("?")[2] for link in views} >= {"view=pretty", "view=stored"}
    assert '{"no":"W0000"' in page(view="stored").replace("&#34;", '"')
    assert "Show as a table" in page(view="pretty")
    assert "Lines 1 to" in page(line=7)


async def test_long_cells_are_clipped_and_say_so(tmp_path: Path) -> None:
    text = (await page_of(tmp_path, ORDERS))()
    cell = f'<td data-name="note"><bdi>{"x" * 199}…</bdi><small>of 500 characters</small></td>'
    assert cell in text


async def test_missing_empty_and_quoted_cells_differ_and_forge_no_cell(tmp_path: Path) -> None:
    cells = [None, "", "null", "7 | 8", 7, "7", "cut … of 500 characters"]
    page = await page_of(tmp_path, [{"n": n, "cell": cell} for n, cell in enumerate(cells)])
    shown = re.findall(r'<td data-name="cell"><bdi>(.*?)</bdi></td>', page(view="records"))
    assert [unescape(text) for text in shown] == [
        "null",
        '""',
        '"null"',
        '"7 | 8"',
        "7",
        '"7"',
        '"cut … of 500 characters"',
    ]


async def test_several_tables_have_their_names_and_counts(tmp_path: Path) -> None:
    cities = [{"city": "Bern", "people": 130_000}, {"city": "Oslo", "people": 700_000}]
    page = await page_of(tmp_path, {"orders": ORDERS, "cities": cities})
    first = page()
    assert "<bdi>orders</bdi>: 120 records" in first
    assert "<bdi>cities</bdi></a>: 2 records" in first
    second = page(view="records", table=2)
    assert "Records 1 to 2 of 2, at <bdi>cities</bdi>." in second
    assert second.count('<td data-name="people">') == 2
    assert page(view="records", table=99) == page(view="records", table=2)


async def test_wide_records_show_their_first_fields_and_say_so(tmp_path: Path) -> None:
    rows = [{f"field {n}": n for n in range(2_000)}] * 3
    text = (await page_of(tmp_path, rows))()
    assert "1,960 more fields are in the indented view." in text
    assert text.count('<td data-name="field 0">') == 3
    assert "field 40" not in text


async def test_a_document_with_a_small_table_opens_as_text(tmp_path: Path) -> None:
    page = await page_of(tmp_path, {"text": "prose " * 400, "rows": ORDERS[:3]})
    assert "Lines 1 to" in page()
    assert "Records 1 to 3 of 3" in page(view="records")


async def test_results_without_records_have_no_table(tmp_path: Path) -> None:
    page = await page_of(tmp_path, {"text": "prose " * 400})
    assert "Show as a table" not in page()
    assert "Lines 1 to" in page(view="records")


async def test_hostile_fields_and_cells_change_no_table(tmp_path: Path) -> None:
    shapes = []
    for number, text in enumerate(["harmless", *HOSTILE]):
        rows = [{text: text[:200], "b": n} for n in range(9)]
        page = (await page_of(tmp_path / str(number), rows))(view="records")
        assert not CONTROLS.search(page), text
        shapes.append(Shape(page).tags)
    assert [
        text for text, shape in zip(HOSTILE, shapes[1:], strict=True) if shape != shapes[0]
    ] == []
