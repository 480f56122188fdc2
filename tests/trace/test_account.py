"""Reasons why items were left out, as the page gives them."""

import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore, LexicalRelevanceSelector
from llm_common.apps.inspector import render_html
from llm_common.trace import RecordedRun, read_trace
from llm_common.trace.account import Node, title, tree, unseen
from llm_common.trace.lines import ModelCallLine, SelectionLine, ToolCallLine
from tests.trace.runs import (
    QUERY,
    STORIES,
    long_story,
    no_data,
    outputs,
    pack,
    recorded,
)


def rows_of(page: str) -> list[str]:
    """Return the texts of the rows in a page's first table."""
    rows = page.partition("</table>")[0].split("<tr")
    return [unescape(re.sub(r"<[^>]*>", "", row)) for row in rows[1:]]


@pytest.mark.parametrize("name", STORIES)
async def test_the_page_says_why_an_item_was_left_out(name: str, tmp_path: Path) -> None:
    story, what, why = STORIES[name]
    rows = rows_of(render_html(await recorded(story, tmp_path)))
    assert [row for row in rows if what in row and why in row], rows


async def test_the_page_says_why_no_model_was_called(tmp_path: Path) -> None:
    page = render_html(await recorded(no_data, tmp_path))
    assert (
        "No model was called for an answer: tool &#39;track_parcel&#39; failed (TimeoutError)"
        in page
    )


async def test_the_last_choice_of_an_item_counts(tmp_path: Path) -> None:
    async def story(store: FileContextPointerStore) -> None:
        pointers = await outputs(store, "parcel Oslo arrive", "parcel")
        await LexicalRelevanceSelector(1).select(query=QUERY, pointers=pointers)
        await pack(store, 2_000, tool_outputs=tuple(pointers))

    assert unseen(await recorded(story, tmp_path)) == []


async def test_a_model_call_is_below_its_selection_in_the_tree(tmp_path: Path) -> None:
    run = await recorded(STORIES["not chosen"][0], tmp_path)
    [node] = tree(run)
    assert isinstance(node.line, SelectionLine)
    assert [type(child.line) for child in node.children] == [ModelCallLine]
    assert title(node.line) == "Chose 1 of 2 outputs by a model"


async def test_texts_are_in_the_trace_only_on_request(tmp_path: Path) -> None:
    short = await recorded(long_story, tmp_path / "short")
    long = await recorded(long_story, tmp_path / "long", texts=True)
    for words in (QUERY, "At noon.", "Answer.", "Parcel 1 to Oslo", '"town"', "message 7"):
        assert words not in short.path.read_text()
    for words in (QUERY, "At noon.", "Answer.", "Parcel 1 to Oslo"):
        assert words in long.path.read_text()
    assert QUERY in render_html(read_trace(long.path))


def nodes_in(nodes: Sequence[Node]) -> int:
    return sum(1 + nodes_in(node.children) for node in nodes)


def test_every_line_of_a_long_run_is_in_the_tree_once() -> None:
    lines = [
        ToolCallLine(tool="t", seq=number, step=number, parent=number // 10)
        for number in range(1, 3_000)
    ]
    assert nodes_in(tree(RecordedRun(Path("run.jsonl"), tuple(lines)))) == len(lines)


def test_equal_step_numbers_of_two_processes_make_no_circle() -> None:
    # A forked child wrote the last line, with a number that its parent used too.
    positions = [(2, 1, 0), (3, 2, 1), (2, 3, 2)]
    lines = tuple(
        ToolCallLine(tool="t", seq=seq, step=step, parent=parent) for seq, step, parent in positions
    )
    assert nodes_in(tree(RecordedRun(Path("run.jsonl"), lines))) == 3
