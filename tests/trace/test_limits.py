"""How much of a run its lines hold, and what is counted instead."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llm_common._telemetry import record
from llm_common.agents import FileContextPointerStore, LexicalRelevanceSelector
from llm_common.core.structured import Attempt
from llm_common.trace import RecordedRun, Trace
from llm_common.trace.lines import (
    FoldLine,
    ModelCallLine,
    PackingLine,
    ReadBackLine,
    SelectionLine,
    ToolCallLine,
    ToolListLine,
)
from tests.context.samples import CharacterCounter
from tests.history.conversations import folded, said
from tests.trace.runs import QUERY, end_of, ended, memory, outputs, pack, recorded


def lines_of(
    folder: Path, *entries: tuple[str, dict[str, Any]], texts: bool = False
) -> RecordedRun:
    """Record entries in one run, and return it."""
    trace = Trace(folder, texts=texts)
    with trace.run("q") as run:
        for kind, fields in entries:
            record(kind, **fields)
    return ended(trace, run)


def prompt(text: str, model: str = "m") -> tuple[str, dict[str, Any]]:
    """Return a model call, whose prompt has the bytes of the text and two quotes."""
    return "model_call", {"prompt": [text], "attempt": Attempt(model, 5), "answer": None}


def test_a_run_of_many_lines_loses_none_while_the_disk_keeps_up(tmp_path: Path) -> None:
    trace = Trace(tmp_path)
    with trace.run("q") as run:
        for number in range(1_500):
            record("tool_call", tool="find", args={})
            if number % 500 == 0:
                assert trace.flush()
    assert len(ended(trace, run).of(ToolCallLine)) == 1_500
    assert end_of(trace, run).lost == 0


SPACE_AGAIN = """
import resource, sys
from llm_common._telemetry import record
from llm_common.trace import Trace, read_trace
trace = Trace(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))
with trace.run("q") as run:
    for _ in range(20):
        record("tool_call", tool="find", args={})
        if run.path.exists() and run.path.stat().st_size == 700:
            break
        trace.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    record("tool_call", tool="later", args={})
trace.flush()
print(run.path.stat().st_size, read_trace(run.path).notes)
"""


def test_nothing_follows_a_line_that_the_disk_cut(tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-c", SPACE_AGAIN, tmp_path], capture_output=True, text=True, check=True
    )
    assert completed.stdout == (
        "700 ('the last line is cut: the process was killed, or the disk was full',)\n"
    )


@pytest.mark.parametrize("texts", [False, True])
def test_a_question_is_recorded_by_its_beginning(texts: bool, tmp_path: Path) -> None:
    trace = Trace(tmp_path, texts=texts)
    question = "why " * 10_000
    with trace.run("q" * 500, query=question) as run:
        pass
    begin = ended(trace, run).begin
    assert begin is not None
    assert begin.query == (question[:20_000] if texts else None)
    assert begin.query_id == "q" * 199 + "…"


def test_a_line_lists_two_hundred_names_and_counts_the_rest(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(250)]
    fields = {"session_id": "s", "tokens": 1, "limit_tokens": 2}
    run = lines_of(tmp_path, ("tool_list", fields | {"shown": names, "hidden": names[:210]}))
    [line] = run.of(ToolListLine)
    assert (line.shown, line.hidden, line.unlisted) == (
        tuple(names[:200]),
        tuple(names[:200]),
        60,
    )


async def test_the_best_two_hundred_items_of_a_packing_are_listed(tmp_path: Path) -> None:
    async def story(_: FileContextPointerStore) -> None:
        await pack(None, 4_000, memory_hits=tuple(map(memory, range(203))))

    [line] = (await recorded(story, tmp_path)).of(PackingLine)
    assert (len(line.items), line.unlisted) == (200, 3)
    forms = [item.form for item in line.items]
    shown = len(forms) - forms.count("left_out")
    assert 0 < shown < 200
    assert "left_out" not in forms[:shown]
    scores = [item.score for item in line.items[shown:]]
    assert scores == sorted(scores, reverse=True)


async def test_chosen_outputs_are_listed_before_near_misses(tmp_path: Path) -> None:
    async def story(store: FileContextPointerStore) -> None:
        words = ["parcel", "parcel Oslo", "parcel Oslo arrive"]
        pointers = await outputs(store, *words)
        await LexicalRelevanceSelector(2).select(query=QUERY, pointers=pointers)

    [line] = (await recorded(story, tmp_path)).of(SelectionLine)
    assert [entry.reason for entry in line.candidates] == ["chosen", "chosen", "over the cap"]
    assert line.chosen == tuple(entry.id for entry in line.candidates[:2])
    scores = [entry.score or 0.0 for entry in line.candidates]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0.0


async def test_a_fold_has_its_limit_and_its_counts(tmp_path: Path) -> None:
    messages = [said("user", f"{number} " + "x" * 150) for number in range(20)]
    trace = Trace(tmp_path)
    with trace.run("q") as run:
        result = await folded(messages, 2_000, counter=CharacterCounter())
    [line] = ended(trace, run).of(FoldLine)
    assert line.model_dump(exclude={"seq", "at", "step", "parent", "kind"}) == {
        "session_id": "s",
        "limit_tokens": 2_000,
        "tokens": result.tokens,
        "messages_given": 20,
        "messages_sent": len(result.messages),
        "parts": tuple(part.model_dump() for part in result.parts),
        "unlisted": 0,
    }


def test_names_of_the_caller_and_of_models_are_cut(tmp_path: Path) -> None:
    run = lines_of(
        tmp_path,
        ("read_back", {"pointer_id": "p" * 500, "chars": 3}),
        ("read_back", {"tool": "t" * 500, "failure": "StoreError"}),
        prompt("hello", model="m" * 500),
    )
    reading, search = run.of(ReadBackLine)
    assert (reading.pointer_id, reading.tool) == ("p" * 199 + "…", None)
    assert (search.pointer_id, search.tool) == (None, "t" * 119 + "…")
    assert run.of(ModelCallLine)[0].attempt.model == "m" * 119 + "…"


class Reply:
    """An answer as an adapter may return it."""

    def __init__(self, content: object, finish_reason: object) -> None:
        self.content = content
        self.finish_reason = finish_reason


def test_the_texts_of_a_line_share_four_hundred_thousand_characters(tmp_path: Path) -> None:
    kind, fields = prompt("p" * 300_000)
    reply = Reply("r" * 200_000, "stop")
    [line] = lines_of(tmp_path, (kind, fields | {"answer": reply}), texts=True).of(ModelCallLine)
    assert line.prompt.text == '"' + "p" * 300_000 + '"'
    assert line.reply == "r" * (400_000 - 300_002)
    assert line.finish_reason == "stop"


def test_an_answer_without_a_text_or_a_reason_leaves_both_out(tmp_path: Path) -> None:
    kind, fields = prompt("hello")
    [line] = lines_of(tmp_path, (kind, fields | {"answer": Reply(["x"], 3)})).of(ModelCallLine)
    assert (line.finish_reason, line.reply) == (None, None)
