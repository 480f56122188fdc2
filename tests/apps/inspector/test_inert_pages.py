"""Hostile texts in a store or a trace change no page."""

import re
from collections import Counter
from pathlib import Path

from llm_common.apps.inspector.application import Inspector
from tests.apps.inspector.hostile_data import browser, fill, pages
from tests.apps.inspector.test_run_page import CONTROLS, HOSTILE, Shape


async def shapes(folder: Path, texts: list[str]) -> dict[str, Counter[tuple[str, ...]]]:
    """Return the tags of every kind of page, by address without ids."""
    await fill(folder, texts)
    tags: dict[str, Counter[tuple[str, ...]]] = {}
    inspector = Inspector(folder / "store", folder / "trace")
    client = browser(inspector)
    [row], _ = inspector.runs.rows(limit=1)
    run = f"/runs/parcel/{row.run_id}"
    packing = 4 + 2 * len(texts)
    steps = [f"{run}/{seq}" for seq in (2, 3, 4, 5, packing)]
    places = ["/queries", "/queries/q", "/runs", "/search?words=tool"]
    for kind, page in pages(client, *places, run, *steps):
        shape = Shape(page)
        # A plot has a bar for each span of time in which an output was saved.
        own_tags = [tag for tag in shape.tags if tag[0] != "rect"]
        tags[kind] = tags.get(kind, Counter()) + Counter(own_tags)
        assert not CONTROLS.search(page), kind
        for address in shape.addresses:
            assert re.match(r"#[\w-]+\Z|/(?![/\\])", address), kind
    return tags


async def test_hostile_texts_change_no_page(tmp_path: Path) -> None:
    hostile = await shapes(tmp_path / "hostile", HOSTILE)
    harmless = await shapes(
        tmp_path / "harmless", [f"{n:02}".ljust(len(text), "x") for n, text in enumerate(HOSTILE)]
    )
    assert {*hostile} == {*harmless}
    for kind, shape in hostile.items():
        assert shape == harmless[kind], kind


def test_a_hostile_search_changes_no_page(tmp_path: Path) -> None:
    client = browser(Inspector(tmp_path / "store"))
    for address, texts in (("/search", HOSTILE), ("/queries", HOSTILE[::5])):
        shape = Shape(client.get(address, params={"words": "zzz"}).text).tags
        for text in texts:
            words = text.encode("utf-8", "replace").decode()
            page = client.get(address, params={"words": words}).raise_for_status().text
            assert Shape(page).tags == shape, text
            assert not CONTROLS.search(page)
