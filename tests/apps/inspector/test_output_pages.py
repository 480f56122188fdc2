"""Lists of outputs and runs: sorted, filtered, searched, summed, and saved as files."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from llm_common.agents import ContextPointer, FileContextPointerStore
from llm_common.apps.inspector.application import Inspector
from llm_common.apps.inspector.output_list import OutputFilter, over_time, sums_by_tool
from llm_common.core import DefaultCounter
from llm_common.core.models import LLMUsage
from llm_common.text.display import to_json
from llm_common.trace.lines import OffloadLine, RunBegin, RunEnd
from tests.apps.inspector.hostile_data import browser
from tests.apps.inspector.test_pages import seen
from tests.apps.inspector.test_run_story import output
from tests.apps.inspector.test_values import BEGIN, END, call, packing, write

NOW = datetime.now(UTC)


def pointer(number: int, tool: str, size: int, hours_ago: float) -> ContextPointer:
    return ContextPointer(
        pointer_id=f"{number:012x}",
        query_id="q",
        task_id=None,
        tool_name=tool,
        args={},
        summary=f"{tool} {number}",
        digest=f"text of {size} characters, {size:,} bytes; x",
        created_at=(NOW - timedelta(hours=hours_ago)).isoformat(),
        result_bytes=size,
        result_path="",
    )


POINTERS = [  # newest first
    pointer(1, "small", 10, 0.5),
    pointer(2, "large", 200_000, 2),
    pointer(3, "small", 12_000, 30),
    pointer(4, "other", 12_000, 400),
]


def numbers(pointers: Iterable[ContextPointer]) -> list[int]:
    return [int(found.pointer_id, 16) for found in pointers]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (OutputFilter(), [1, 2, 3, 4]),
        (OutputFilter(sort="oldest"), [4, 3, 2, 1]),
        (OutputFilter(sort="largest"), [2, 3, 4, 1]),
        (OutputFilter(sort="smallest"), [1, 3, 4, 2]),
        (OutputFilter(sort="tool"), [2, 4, 1, 3]),
        (OutputFilter(tool="small"), [1, 3]),
        (OutputFilter(size="10000"), [2, 3, 4]),
        (OutputFilter(age="1"), [1]),
        (OutputFilter(age="168"), [1, 2, 3]),
        (OutputFilter(tool="small", size="10000", age="1"), []),
    ],
)
def test_outputs_are_sorted_and_filtered(choice: OutputFilter, expected: list[int]) -> None:
    assert numbers(choice.apply(POINTERS)) == expected


def test_plots_have_the_sums_by_tool_and_the_outputs_of_each_span() -> None:
    sums = [(tool.tool, tool.outputs, tool.bytes) for tool in sums_by_tool(POINTERS)]
    assert sums == [("large", 1, 200_000), ("small", 2, 12_010), ("other", 1, 12_000)]
    times = over_time(POINTERS)
    assert times is not None
    assert sum(span.outputs for span in times.bins) == 4
    assert (times.bins[0].start, times.bins[-1].start) == (0.0, 1 - times.width)
    assert over_time(POINTERS[:1]) is None
    assert over_time([POINTERS[0].model_copy(update={"created_at": "yesterday"})]) is None


@pytest.fixture
def store(tmp_path: Path) -> FileContextPointerStore:
    return FileContextPointerStore(tmp_path / "store", durability="rename")


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    return browser(Inspector(tmp_path / "store", tmp_path / "trace"))


async def save(store: FileContextPointerStore, tool: str, result: object, **args: object) -> str:
    saved = await store.save(query_id="q", tool_name=tool, args=args, result=result)
    return f"/queries/q/{saved.pointer_id}"


async def test_a_list_is_filtered_by_its_form_and_keeps_the_choice_on_its_pages(
    client: TestClient, store: FileContextPointerStore
) -> None:
    for number in range(60):
        await save(store, "many", "x" * 2_000, n=number)
    await save(store, "few", "y")
    page = client.get("/queries/q?tool=many&size=1000&sort=largest").text
    assert "60 match." in seen(page)
    assert '<option value="many" selected>' in page
    assert "?tool=many&amp;size=1000&amp;sort=largest&amp;page=2" in page
    assert "few" not in re.findall(r"<tbody>.*</tbody>", page, re.DOTALL)[0]
    assert 'aria-sort="descending"' in page
    assert "61 outputs" in seen(client.get("/queries/q?sort=wrong&size=x&age=-1").text)
    assert "No output matches." in client.get("/queries/q?tool=absent").text


async def test_no_column_repeats_another(
    client: TestClient, store: FileContextPointerStore
) -> None:
    await save(store, "get_prices", {"ticker": "MSFT"}, ticker="MSFT")
    page = client.get("/queries/q").text
    heads = re.findall(r'<th scope="col"[^>]*>(?:<a[^>]*>)?([^<]+)', page)
    assert heads == ["Output", "Shape", "Bytes", "Saved"]  # no output expires
    row = re.findall(r"<tbody>.*</tbody>", page, re.DOTALL)[0]
    assert row.count("get_prices") == 1
    assert row.count("MSFT") == 1
    assert row.count("bytes") == 1


async def test_queries_are_sorted_by_size_and_number(
    client: TestClient, store: FileContextPointerStore
) -> None:
    await store.save(query_id="big", tool_name="t", args={}, result="x" * 9_000)
    for number in range(3):
        await store.save(query_id="many", tool_name="t", args={"n": number}, result="x")
    by_size = client.get("/queries?sort=bytes").text
    assert by_size.index("/queries/big") < by_size.index("/queries/many")
    by_number = client.get("/queries?sort=pointers").text
    assert by_number.index("/queries/many") < by_number.index("/queries/big")


async def test_a_search_marks_the_words_and_shows_the_text_around_them(
    client: TestClient, store: FileContextPointerStore
) -> None:
    await save(store, "read_log", "calm " * 400 + "a storm in the harbour", path="storm.log")
    page = client.get("/search?words=storms").text
    assert "path=<mark>storm</mark>.log" in page
    assert 'class="excerpt"><bdi></bdi>' in page  # the beginning of the result has no such word
    page = client.get("/search?words=harbour&in=results").text
    assert "in the <mark>harbour</mark>" in page


@pytest.mark.parametrize(
    ("result", "ending", "content"),
    [
        ({"a": ["é"]}, "json", '{"a":["é"]}'.encode()),
        ("<script>alert(1)</script>\n", "txt", b"<script>alert(1)</script>\n"),
        ('"quoted"', "txt", b'"quoted"'),
    ],
)
async def test_a_result_is_downloaded_as_a_file_that_no_browser_runs(
    client: TestClient, store: FileContextPointerStore, result: object, ending: str, content: bytes
) -> None:
    address = await save(store, "../ge t\r\nx: y", result)
    assert f'href="{address}/download"' in client.get(address).text
    answer = client.get(f"{address}/download")
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["x-content-type-options"] == "nosniff"
    disposition = answer.headers["content-disposition"]
    assert re.fullmatch(rf'attachment; filename="[\w-]+-[0-9a-f]{{12}}\.{ending}"', disposition)
    assert client.get("/queries/q/aaaaaaaaaaaa/download").status_code == 404


async def test_a_text_can_be_copied_without_a_script(
    client: TestClient, store: FileContextPointerStore
) -> None:
    page = client.get(await save(store, "t", "</textarea><b>\nline")).text
    [text] = re.findall(r"<textarea readonly[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert text == "&lt;/textarea&gt;&lt;b&gt;\nline"


def test_runs_are_listed_with_tokens_model_and_cost(client: TestClient, tmp_path: Path) -> None:
    usage = LLMUsage(prompt_tokens=9, completion_tokens=1)
    packed = packing(items=(output("a", "passages", 250, 1_000),))
    begin = RunBegin(query_id="q", query="How much?")
    run_end = RunEnd(status="error", seconds=2.5)
    folder = tmp_path / "trace" / "q"
    write(folder / "2.jsonl", begin, packed, call(usage, 0.25), call(usage, 0.5), run_end)
    write(folder / "1.jsonl", BEGIN, call(usage, 0.25), call(), END)
    page = seen(client.get("/runs").text)
    assert "How much? error q 1,000 250 m $0.7500 2.50" in page
    assert "1 q 0 0 m - 1.00" in page  # a call without a price makes the sum unknown


async def test_the_tokens_of_stored_outputs_are_counted_not_estimated(
    client: TestClient, store: FileContextPointerStore, tmp_path: Path
) -> None:
    numbers = [{"at": n * 1.37, "by": n * n} for n in range(900)]
    pointer_id = (await save(store, "get_numbers", numbers)).rpartition("/")[2]
    tokens = DefaultCounter().count(to_json(numbers))
    line = OffloadLine(
        session_id="q",
        tool="get_numbers",
        outcome="preview",
        pointer_id=pointer_id,
        total_chars=len(to_json(numbers)),
        shown_chars=400,
    )
    write(tmp_path / "trace" / "q" / "1.jsonl", BEGIN, line, END)
    assert f" {tokens:,} 100 " in seen(client.get("/runs").text)
    assert f"Returned → shown {tokens:,} → 100 tokens" in seen(client.get("/runs/q/1").text)
    store.delete(query_id="q")
    assert "Returned → shown About " in seen(client.get("/runs/q/1").text)


def test_files_under_any_name_and_in_any_folder_are_runs_if_they_are_traces(
    client: TestClient, tmp_path: Path
) -> None:
    folder = tmp_path / "trace"
    write(folder / "1.jsonl", BEGIN, END)
    write(folder / "demo" / "traces" / "q" / "20260101T000000000000Z-00000000.jsonl", BEGIN, END)
    files = {
        "notes.jsonl": b'{"a": 1}\n',
        "text.jsonl": b"hello\n",
        "empty.jsonl": b"",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    page = seen(client.get("/runs").text)
    assert "2 runs in" in page
    assert "notes.jsonl begins with JSON that is not a line of a trace" in page
    assert "text.jsonl does not begin with a line of JSON" in page
    assert "empty.jsonl is empty" in page
    assert client.get("/runs/trace/1").status_code == 200
    assert client.get("/runs/q/20260101T000000000000Z-00000000").status_code == 200


def test_a_folder_without_runs_names_the_files_that_it_has(
    client: TestClient, tmp_path: Path
) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "<b>.jsonl").write_text("[]\n")
    page = client.get("/runs").text
    assert "There are no runs." in page
    assert "&lt;b&gt;.jsonl begins with JSON that is not a line of a trace" in page
