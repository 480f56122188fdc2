"""The page of a pointer shows records as tables, in which every value is inert."""

import re
from html import unescape
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.application import Inspector
from tests.apps.inspector.hostile_data import Links, browser
from tests.apps.inspector.test_run_page import CONTROLS, HOSTILE, Shape

ORDERS = [
    {"no": f"W{n:04}", "city": ("Bern", "Oslo")[n % 2], "note": "x" * (500 if n == 3 else 3)}
    for n in range(120)
]


class Page:
    """The pages of one stored result."""

    def __init__(self, client: TestClient, path: str) -> None:
        self._client = client
        self._path = path

    def get(self, **parameters: str | int) -> str:
        return self._client.get(self._path, params=parameters).raise_for_status().text


async def page_of(folder: Path, result: Any) -> Page:
    store = FileContextPointerStore(folder, durability="rename")
    saved = await store.save(query_id="q", task_id=None, tool_name="t", args={}, result=result)
    return Page(browser(Inspector(folder)), f"/queries/q/{saved.pointer_id}")


async def test_records_are_a_table_of_their_first_rows(tmp_path: Path) -> None:
    page = await page_of(tmp_path, {"orders": ORDERS, "page": 1})
    first = page.get()
    assert "Records 1 to 50 of 120, at <bdi>orders</bdi>." in first
    assert '<th scope="col">no</th><th scope="col">city</th><th scope="col">note</th>' in first
    assert first.count('<td data-name="no">') == 50
    assert '<td data-name="no"><bdi>W0049</bdi></td>' in first
    last = page.get(view="records", page=9)
    assert "Records 101 to 120 of 120" in last
    assert "W0119" in last
    assert "W0099" not in last


async def test_the_stored_text_is_one_click_away(tmp_path: Path) -> None:
    page = await page_of(tmp_path, ORDERS)
    views = [link for link in Links(page.get()).addresses if "view=" in link]
    assert {link.partition("?")[2] for link in views} >= {"view=pretty", "view=stored"}
    assert '{"no":"W0000"' in page.get(view="stored").replace("&#34;", '"')
    assert "Show as a table" in page.get(view="pretty")
    assert "Lines 1 to" in page.get(line=7)


async def test_long_cells_are_clipped_and_say_so(tmp_path: Path) -> None:
    text = (await page_of(tmp_path, ORDERS)).get()
    cell = f'<td data-name="note"><bdi>{"x" * 199}…</bdi><small>of 500 characters</small></td>'
    assert cell in text


async def test_missing_empty_and_quoted_cells_differ_and_forge_no_cell(tmp_path: Path) -> None:
    cells = [None, "", "null", "7 | 8", 7, "7", "cut … of 500 characters"]
    page = await page_of(tmp_path, [{"n": n, "cell": cell} for n, cell in enumerate(cells)])
    shown = re.findall(r'<td data-name="cell"><bdi>(.*?)</bdi></td>', page.get(view="records"))
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
    first = page.get()
    assert "<bdi>orders</bdi>: 120 records" in first
    assert "<bdi>cities</bdi></a>: 2 records" in first
    second = page.get(view="records", table=2)
    assert "Records 1 to 2 of 2, at <bdi>cities</bdi>." in second
    assert second.count('<td data-name="people">') == 2
    assert page.get(view="records", table=99) == page.get(view="records", table=2)


async def test_wide_records_show_their_first_fields_and_say_so(tmp_path: Path) -> None:
    rows = [{f"field {n}": n for n in range(2_000)}] * 3
    text = (await page_of(tmp_path, rows)).get()
    assert "1,960 more fields are in the indented view." in text
    assert text.count('<td data-name="field 0">') == 3
    assert "field 40" not in text


async def test_a_document_with_a_small_table_opens_as_text(tmp_path: Path) -> None:
    page = await page_of(tmp_path, {"text": "prose " * 400, "rows": ORDERS[:3]})
    assert "Lines 1 to" in page.get()
    assert "Records 1 to 3 of 3" in page.get(view="records")


async def test_results_without_records_have_no_table(tmp_path: Path) -> None:
    page = await page_of(tmp_path, {"text": "prose " * 400})
    assert "Show as a table" not in page.get()
    assert "Lines 1 to" in page.get(view="records")


async def test_hostile_records_change_no_table(tmp_path: Path) -> None:
    harmless = [f"{n:02}".ljust(min(len(text), 200), "x") for n, text in enumerate(HOSTILE)]
    shapes = []
    for name, texts in (("hostile", HOSTILE), ("harmless", harmless)):
        rows = [{"n": n, "text": text[:200]} for n, text in enumerate(texts)]
        page = (await page_of(tmp_path / name, {"rows": rows})).get()
        assert f"of {len(texts)}, at <bdi>rows</bdi>" in page
        assert not CONTROLS.search(page)
        shapes.append(Shape(page).tags)
    assert shapes[0] == shapes[1]


async def test_hostile_fields_change_no_table(tmp_path: Path) -> None:
    for number, name in enumerate(HOSTILE):
        rows = [{name: 1, "b": n} for n in range(9)]
        page = (await page_of(tmp_path / str(number), rows)).get(view="records")
        assert page.count('<td data-name="b">') == 9, name
        assert Shape(page).tags.count(("td", "data-name")) == 18, name
        assert not CONTROLS.search(page)
