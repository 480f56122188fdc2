"""Lists of outputs and runs: searched, summed, and saved as files."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.application import Inspector
from llm_common.core.models import LLMUsage
from llm_common.storage import folder_of
from llm_common.trace.lines import RunBegin, RunEnd
from tests.apps.inspector.hostile_data import browser
from tests.apps.inspector.test_pages import seen
from tests.apps.inspector.test_run_story import output
from tests.apps.inspector.test_values import BEGIN, END, call, packing, write


async def save(store: FileContextPointerStore, tool: str, result: object, **args: object) -> str:
    saved = await store.save(query_id="q", tool_name=tool, args=args, result=result)
    return f"/queries/q/{saved.pointer_id}"


async def test_a_search_marks_the_words_and_shows_the_text_around_them(
    client: TestClient, store: FileContextPointerStore
) -> None:
    address = await save(
        store, "read_log", "calm " * 400 + "a storm in the harbour", path="storm.log"
    )
    page = client.get("/search?words=storms").text
    assert "path=<mark>storm</mark>.log" in page
    assert 'class="excerpt"><bdi></bdi>' in page  # the beginning of the result has no such word
    calls_only = client.get("/search?words=harbour").text
    assert "0 outputs share a word" in calls_only
    assert "words=harbour&amp;in=results" in calls_only
    page = client.get("/search?words=harbour&in=results").text
    assert f'href="{address}"' in page
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


async def test_a_query_has_the_question_of_its_newest_run_beside_it(
    client: TestClient, store: FileContextPointerStore, tmp_path: Path
) -> None:
    await save(store, "get_numbers", [1, 2, 3])
    [query] = store.newest_queries(limit=1).queries
    folder = tmp_path / "trace" / folder_of(query.query_id)
    for name, text in (("1", "an old question?"), ("2", "a <new> question?")):
        write(folder / f"{name}.jsonl", BEGIN.model_copy(update={"query": text}), END)
    page = client.get("/queries").text
    assert "a &lt;new&gt; question?" in page
    assert "an old question?" not in page


def test_files_under_any_name_and_in_any_folder_are_runs_if_they_are_traces(
    client: TestClient, tmp_path: Path
) -> None:
    folder = tmp_path / "trace"
    write(folder / "copy 1.jsonl", BEGIN, packing(), END)
    write(folder / "demo" / "traces" / "q" / "20260101T000000000000Z-00000000.jsonl", BEGIN, END)
    files = {
        "<b>.jsonl": b'{"a": 1}\n',
        "text.jsonl": b"hello\n",
        "empty.jsonl": b"",
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    page = client.get("/runs").text
    assert "2 runs in" in seen(page)
    strangers = seen(page).partition("Files that are not runs")[2]
    assert [strangers.count(name) for name in files] == [1, 1, 1]
    assert 'href="/runs/trace/copy%201"' in page
    assert 'href="/runs/trace/copy%201/2"' in client.get("/runs/trace/copy%201").text
    assert client.get("/runs/trace/copy%201/2").status_code == 200
    assert client.get("/runs/q/20260101T000000000000Z-00000000").status_code == 200


def test_the_address_opens_the_runs_or_without_traces_the_queries(tmp_path: Path) -> None:
    for traces, place in ((tmp_path / "trace", "/runs"), (None, "/queries")):
        answer = browser(Inspector(tmp_path / "store", traces)).get("/", follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, place)
