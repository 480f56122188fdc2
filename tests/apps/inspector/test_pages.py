"""The pages, requested by a browser with the token."""

import re
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.result_page import MAX_INDENTED_BYTES, PART_CHARS
from llm_common.trace import RecordedRun
from llm_common.trace.lines import ModelCallLine, PackingLine
from tests.apps.cli.running import files_of
from tests.trace.runs import long_story, memory, pack, recorded


def seen(page: str) -> str:
    """Return the text of a page on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page.partition("<body>")[2])).split())


@pytest.fixture
async def run(tmp_path: Path) -> RecordedRun:
    async def story(store: FileContextPointerStore) -> None:
        await long_story(store)
        await pack(store, 2_000, memory_hits=(memory(2),))

    return await recorded(story, tmp_path, texts=True)


async def save(
    store: FileContextPointerStore, query_id: str, result: object, **options: object
) -> str:
    args = {"query": "late parcels", **options}
    saved = await store.save(
        query_id=query_id, task_id="1", tool_name="search_orders", args=args, result=result
    )
    return f"/queries/{query_id}/{saved.pointer_id}"


async def test_queries_and_pointers_show_tool_size_shape_and_age(
    client: TestClient, store: FileContextPointerStore
) -> None:
    await save(store, "u-1", {"orders": [1, 2]})
    page = seen(client.get("/queries/u-1").text)
    assert re.search(r"u-1 1 \d+ bytes", seen(client.get("/queries").text))
    assert "search_orders query=late parcels" in page
    assert "16 bytes" in page
    assert "object of 1: orders" in page
    assert "object of 1: orders, 16 bytes" not in page  # the size has a column of its own
    assert re.search(r"\d seconds? ago", page)
    assert "Expires" not in page  # no output does


async def test_a_deeply_nested_result_is_shown_as_stored(
    client: TestClient, store: FileContextPointerStore
) -> None:
    def deep(items: int) -> object:
        value: object = [1] * items
        for _ in range(200):
            value = [value]
        return value

    assert "JSON, indented" in seen(client.get(await save(store, "u-10", deep(100))).text)
    assert "indented it would be too long" in seen(
        client.get(await save(store, "u-11", deep(130_000))).text
    )


async def test_expired_pointers_are_marked(
    client: TestClient, store: FileContextPointerStore
) -> None:
    await store.save(query_id="u-9", task_id="1", tool_name="a", args={}, result=1, ttl_s=1e-6)
    await store.save(query_id="u-9", task_id="1", tool_name="b", args={}, result=1, ttl_s=7200)
    page = seen(client.get("/queries/u-9").text)
    assert page.count("expired") == 1
    assert "in 1 hour" in page


async def test_long_lists_come_in_pages_of_fifty(
    client: TestClient, store: FileContextPointerStore
) -> None:
    for number in range(60):
        await save(store, "u-2", number, number=number)
    first, second = (client.get(f"/queries/u-2?page={number}").text for number in (1, 2))
    assert (first.count('class="id inline"'), second.count('class="id inline"')) == (50, 10)
    assert "Page 2 of 2" in second
    page = client.get("/search?words=late+parc&page=2").text
    assert "60 outputs share a word" in page
    assert page.count('class="id inline"') == 10


async def test_a_search_links_the_queries_whose_id_contains_the_words(
    client: TestClient, store: FileContextPointerStore
) -> None:
    await save(store, "user:7", "text")
    await save(store, "other", "text")
    assert 'href="/queries?words=R%3A7"' in client.get("/search?words=R:7").text
    page = client.get("/queries?words=R%3A7").text
    assert 'href="/queries/user%3B7"' in page
    assert 'href="/queries/other"' not in page


async def test_a_change_of_the_store_shows_on_the_next_page(
    client: TestClient, store: FileContextPointerStore
) -> None:
    assert "There are no queries" in client.get("/queries").text
    address = await save(store, "u-3", "old")
    assert "search_orders" in client.get("/queries/u-3").text
    assert "u-3" in client.get("/queries").text
    await save(store, "u-3", "new", page=2)
    assert client.get("/queries/u-3").text.count('class="id inline"') == 2
    store.delete(query_id="u-3")
    assert client.get("/queries/u-3").status_code == 404
    assert client.get(address).status_code == 404


@pytest.mark.parametrize(
    ("result", "view", "shown"),
    [
        ({"a": [1]}, "pretty", '{ "a": [ 1 ] } '),
        ({"a": [1]}, "stored", '{"a":[1]} '),
        ("one\ntwo", "pretty", "one two "),
        ('{"inner": [7]}', "pretty", '{ "inner": [ 7 ] } '),
        (2**70, "pretty", f"{2**70} "),
    ],
)
async def test_a_result_is_shown_indented_or_as_stored(
    client: TestClient, store: FileContextPointerStore, result: object, view: str, shown: str
) -> None:
    page = client.get(f"{await save(store, 'u-4', result)}?view={view}").text
    assert shown in seen(page)


def part_of(page: str) -> str:
    [text] = re.findall(r'<pre class="whole"[^>]*><bdi>(.*?)</bdi>', page, re.DOTALL)
    assert len(page) < 3 * PART_CHARS
    return str(text)


async def test_the_parts_of_a_result_make_up_the_whole(
    client: TestClient, store: FileContextPointerStore
) -> None:
    text = "".join(f"{number} æøå\n" for number in range(6_000))
    address = await save(store, "u-5", text)
    pages = [client.get(f"{address}?page={number}").text for number in (1, 2, 3)]
    assert "Page 3 of 3" in pages[2]
    assert "".join(map(part_of, pages)) == text
    assert "5999 æøå" in part_of(client.get(f"{address}?line=6000").text)


async def test_a_large_result_is_shown_as_stored_in_parts(
    client: TestClient, store: FileContextPointerStore
) -> None:
    characters = MAX_INDENTED_BYTES // 3 + PART_CHARS
    address = await save(store, "u-6", "€" * characters)
    pages = [client.get(f"{address}?page={number}").text for number in (1, 2, 99999)]
    assert "as stored: it is too long to be indented" in seen(pages[0])
    first, second, last = map(part_of, pages)
    assert first + second == "&#34;" + "€" * (2 * PART_CHARS - 1)
    assert last.endswith("€&#34;")


async def test_a_damaged_result_is_reported_beside_its_pointer(
    client: TestClient, store: FileContextPointerStore
) -> None:
    address = await save(store, "u-7", {"a": 1})
    [file] = (store.base_dir / "u-7").glob("*.result.json")
    file.write_text('{"a":2}')
    page = client.get(address)
    assert page.status_code == 200
    assert "differs from the saved one" in page.text
    assert "The result</h2>" not in page.text


def test_a_run_links_its_steps_which_show_the_exact_text(
    client: TestClient, run: RecordedRun
) -> None:
    assert "When does the parcel arrive in Oslo?" in client.get("/runs").text
    page = client.get(f"/runs/parcel/{run.run_id}").text
    assert "What was left out, and why" in page
    packing, call = run.of(PackingLine)[0], run.of(ModelCallLine)[-1]
    for line, text in (
        (packing, packing.text or ""),
        (call, "When does the parcel arrive in Oslo?"),
    ):
        address = f"/runs/parcel/{run.run_id}/{line.seq}"
        assert f'href="{address}"' in page
        shown = client.get(address).text
        assert seen(
            f"<body>{text}".replace("<<<", "&lt;&lt;&lt;").replace(">>>", "&gt;&gt;&gt;")
        ) in seen(shown)
    assert 'class="legend"' in client.get(f"/runs/parcel/{run.run_id}/{packing.seq}").text


def test_a_step_is_shown_despite_unreadable_runs(client: TestClient, run: RecordedRun) -> None:
    run.path.with_name("20990101T000000000000Z-00000000.jsonl").write_text("no trace")
    answer = client.get(f"/runs/parcel/{run.run_id}/{run.of(PackingLine)[0].seq}")
    assert answer.status_code == 200


def test_pages_change_nothing(client: TestClient, run: RecordedRun, tmp_path: Path) -> None:
    before = files_of(tmp_path)
    for address in (
        "/queries",
        "/queries/parcel",
        "/search?words=parcel",
        "/runs",
        f"/runs/parcel/{run.run_id}",
    ):
        assert client.get(address).status_code == 200
    assert client.post("/queries").status_code == 405
    assert files_of(tmp_path) == before


@pytest.mark.usefixtures("run")
def test_nothing_outside_the_folders_is_shown(client: TestClient, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "20261123T000000000000Z-00000000.jsonl").write_text(
        '{"kind": "run_begin", "query_id": "q"}\n'
    )
    for folder in ("store", "trace"):
        (tmp_path / folder / "linked").symlink_to(outside)
    for address in (
        "/queries/..%2f..%2fetc",
        "/queries/nothing",
        "/queries/parcel/..%2fx",
        "/queries/parcel/aaaaaaaaaaaa",
        "/queries/linked",
        "/runs/..%2ftrace/x",
        "/runs/linked/20261123T000000000000Z-00000000",
        "/runs/parcel/20261123T000000000000Z-00000000",
        "/runs/parcel/x/1",
        "/other",
    ):
        assert client.get(address).status_code == 404, address
