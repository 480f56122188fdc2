"""The sentences about lines, items and runs, word for word."""

from pathlib import Path
from typing import Any

import pytest

from llm_common.context.request import FOLDER_STRATEGY
from llm_common.core.models import LLMUsage
from llm_common.core.structured import Attempt
from llm_common.history.policy import FoldedPart
from llm_common.trace import RecordedRun
from llm_common.trace.account import (
    near_misses,
    title,
    unseen,
    verdicts,
    why_in,
    why_not_chosen,
    why_out,
)
from llm_common.trace.amounts import missing_tokens, shares
from llm_common.trace.lines import (
    AnswerLine,
    Candidate,
    Dropped,
    FoldLine,
    Line,
    ModelCallLine,
    OffloadLine,
    PackedItem,
    PackingLine,
    ReadBackLine,
    RunBegin,
    RunEnd,
    SelectionLine,
    SentPrompt,
    ToolCallLine,
    ToolListLine,
)

PROMPT = SentPrompt(bytes=10)
SESSION: dict[str, Any] = {"session_id": "s"}


def item(name: str, form: str, **fields: Any) -> PackedItem:
    """Return an item of 400 characters, of which a left out one shows none."""
    chars_shown = {"whole": 400, "left_out": 0}.get(form, 100)
    reason = "no_room" if form == "left_out" else "share"
    values = {
        "source": "file",
        "rule": "ranked",
        "reason": reason,
        "tokens": chars_shown // 2,
        "score": 0.5,
        "chars": 400,
        "chars_shown": chars_shown,
    }
    return PackedItem.model_validate(values | {"id": name, "form": form} | fields)


def packing(*items: PackedItem, **fields: Any) -> PackingLine:
    values = {"budget": 1_000, "tokens": 900, "intent": "code_edit", "strategy": "ranked"}
    shares = {"allocation": {"files": 700, "memory": 50}}
    return PackingLine.model_validate(values | shares | {"items": items} | fields)


def selection(**fields: Any) -> SelectionLine:
    return SelectionLine.model_validate({"of": "outputs", "status": "ok", "used": "model"} | fields)


def call(model: str | None, finish_reason: str | None = None, **fields: Any) -> ModelCallLine:
    attempt = Attempt(model, 5, **fields)
    return ModelCallLine(attempt=attempt, prompt=PROMPT, finish_reason=finish_reason)


def part(first: int, last: int) -> FoldedPart:
    return FoldedPart(pointer_id=f"p{first}", kind="messages", first=first, last=last, tokens=2_000)


def offload(outcome: str, pointer_id: str | None = None) -> OffloadLine:
    fields = {"tool": "find", "outcome": outcome, "total_chars": 9_000, "shown_chars": 2_000}
    return OffloadLine.model_validate(SESSION | fields | {"pointer_id": pointer_id})


FOLD = FoldLine(
    session_id="s",
    limit_tokens=8_000,
    tokens=4_800,
    messages_given=1_200,
    messages_sent=30,
    parts=(part(1, 1), part(2, 9)),
    unlisted=3,
)
TITLES: list[tuple[Line, str]] = [
    (
        packing(item("a", "whole"), item("b", "passages"), item("c", "left_out"), unlisted=2),
        "Packed 900 of 1,000 tokens: 1 whole, 1 in part, 3 out",
    ),
    (
        FOLD,
        "Folded a history to 30 of 1,200 messages, 4,800 tokens: 5 parts are behind pointers",
    ),
    (offload("whole"), "Showed all 9,000 characters of find"),
    (offload("preview", "abc"), "Stored 9,000 characters of find as abc, showed 2,000"),
    (offload("not stored"), "Could not store 9,000 characters of find, showed 2,000"),
    (
        ToolListLine(
            session_id="s",
            shown=("a", "b"),
            hidden=("c",),
            unlisted=4,
            tokens=3_000,
            limit_tokens=4_000,
        ),
        "Showed 2 of 7 tools, 3,000 of 4,000 tokens",
    ),
    (ReadBackLine(pointer_id="abc", chars=1_500), "Read abc: 1,500 characters"),
    (
        ReadBackLine(pointer_id="abc", parts=("path", "lines"), chars=5),
        "Read abc by path, lines: 5 characters",
    ),
    (ReadBackLine(tool="search_context", chars=12), "Called search_context: 12 characters"),
    (
        ReadBackLine(tool="search_context", failure="StoreError"),
        "Called search_context: failed: StoreError",
    ),
    (ToolCallLine(tool="find", result_bytes=1_234), "Called find: 1,234 bytes"),
    (
        ToolCallLine(tool="find", args='{"city":"Oslo"}', result_bytes=5),
        "Called find city=Oslo: 5 bytes",
    ),
    (ToolCallLine(tool="find", failure="TimeoutError"), "Called find: failed: TimeoutError"),
    (AnswerLine(status="ok", prompt_tokens=2_000), "Answered from 2,000 tokens"),
    (
        AnswerLine(status="timeout", problem="The model was late.", prompt_tokens=20),
        "Answered from 20 tokens: timeout. The model was late.",
    ),
    (
        selection(candidates=(Candidate(id="a", reason="chosen"),), chosen=("a",), unlisted=9),
        "Chose 1 of 10 outputs by a model",
    ),
    (
        selection(used="lexical"),
        "Chose 0 of 0 outputs by word ranking",
    ),
    (selection(used="votes"), "Chose 0 of 0 outputs by votes"),
    (
        selection(of="tools", status="invalid", problem="no JSON"),
        "Choosing tools failed (invalid): no JSON",
    ),
    (
        call("m", "stop", usage=LLMUsage(prompt_tokens=1_000, completion_tokens=20)),
        "Called m: 1,000 tokens in, 20 out, finish reason stop",
    ),
    (call(None), "Called the default model: finish reason unknown"),
    (
        call("m", error="status", reason="503"),
        "Called m: failed (status, 503)",
    ),
    (RunBegin(query_id="q"), "run begin"),
]


@pytest.mark.parametrize(("line", "sentence"), TITLES)
def test_a_line_has_a_title(line: Line, sentence: str) -> None:
    assert title(line) == sentence


def test_an_output_is_named_by_its_label() -> None:
    labels = {"abc": "find city=Oslo"}
    sentence = "Stored 9,000 characters of find city=Oslo as abc, showed 2,000"
    assert title(offload("preview", "abc"), labels) == sentence
    assert title(offload("whole"), labels) == "Showed all 9,000 characters of find"


def test_shown_items_tell_how_many_tokens_are_missing() -> None:
    absent = item("c", "left_out")
    # 400 characters of the whole one are 200 tokens, and those of a part do not count.
    whole = packing(item("a", "whole"), item("b", "passages", tokens=1), absent)
    assert missing_tokens(absent, whole) == 200
    # Without a whole one, 100 characters of the part are 50 tokens.
    assert missing_tokens(absent, packing(item("b", "passages", tokens=25), absent)) == 100
    # Nothing was shown: four characters a token.
    assert missing_tokens(absent, packing(absent)) == 100
    assert missing_tokens(item("d", "passages"), packing(item("a", "whole"))) == 150


def test_tokens_of_sources_marks_and_free_ones_sum_to_the_budget() -> None:
    line = packing(
        item("a", "whole", tokens=300),
        item("b", "whole", tokens=200, source="turn"),
        item("c", "whole", tokens=100),
    )
    assert [(share.source, share.tokens) for share in shares(line, 60)] == [
        ("file", 400),
        ("turn", 200),
        ("marks", 300),
        ("free", 100),
    ]
    over = line.model_copy(update={"budget": 500, "tokens": 400})
    assert [share.source for share in shares(over, 60)] == ["file", "turn"]


def test_near_misses_are_the_five_best_that_only_the_limits_left_out() -> None:
    names = [f"n{number}" for number in range(7)]
    items = [item(name, "left_out", score=number / 10) for number, name in enumerate(names)]
    others = [
        item("rule", "left_out", score=0.9, reason="excluded"),
        item("shown", "passages", score=0.9),
        item("limit", "left_out", score=0.35, reason="limit_reached"),
    ]
    near = near_misses(packing(*items, *others))
    assert [missed.id for missed in near] == ["n6", "n5", "n4", "limit", "n3"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"reason": "same as turn t1"}, "It has the same text as turn t1, which is shown."),
        ({"reason": "below_cut_off"}, "Its score of 0.50 is below the minimum."),
        ({"reason": "later_reason"}, "later reason."),
        (
            {"form": "passages", "chars_shown": 100},
            "A part is shown. The rest did not fit.",
        ),
        (
            {"form": "pointer", "chars_shown": 0},
            "One line names it. The rest did not fit.",
        ),
        (
            {"reason": "no_room"},
            (
                "It does not fit: it needs about 200 tokens, and 100 of 1,000 are free. A request "
                "of the type 'code edit' reserves 700 tokens for files and outputs, plus what other "
                "kinds leave. "
                "Items with more score for their tokens used them. The lowest of these scored 0.60, "
                "and this one 0.50."
            ),
        ),
        (
            {"reason": "no_room", "source": "memory"},
            (
                "It does not fit: it needs about 200 tokens, and 100 of 1,000 are free. A request "
                "of the type 'code edit' reserves 50 tokens for memories, plus what other kinds "
                "leave."
            ),
        ),
    ],
)
def test_why_an_item_is_out(fields: dict[str, Any], sentence: str) -> None:
    form = fields.pop("form", "left_out")
    out = item("out", form, **fields)
    line = packing(item("best", "whole", score=0.9), item("last", "whole", score=0.6), out)
    assert why_out(out, line) == sentence


def test_why_an_item_is_out_when_nothing_is_in() -> None:
    out = item("out", "left_out")
    assert why_out(out, packing(out, tokens=0, budget=30)) == (
        "It does not fit: it needs about 100 tokens, and 30 of 30 are free."
    )
    folder = packing(item("best", "passages", score=0.9), out, strategy=FOLDER_STRATEGY)
    assert why_out(out, folder).startswith("No passage of it fits: 100 of 1,000 tokens are free.")
    assert why_out(out, folder).endswith("It scores 0.50, the best file 0.90.")


def test_why_an_item_is_in() -> None:
    assert why_in(item("a", "whole", reason="pinned")) == "It is pinned."
    assert why_in(item("a", "whole", reason="later_reason")) == "later reason."


def candidate(reason: str, **fields: Any) -> Candidate:
    return Candidate.model_validate({"id": "a", "reason": reason} | fields)


@pytest.mark.parametrize(
    ("fields", "entry", "sentence"),
    [
        (
            {"dropped": (Dropped(id="b", reason="tie"), Dropped(id="a", reason="writes"))},
            candidate("dropped"),
            "Its call was refused: the tool is not marked read-only.",
        ),
        (
            {"dropped": (Dropped(id="a", reason="later", problems=("x is missing", "y too")),)},
            candidate("dropped"),
            "Its call was refused: later: x is missing; y too.",
        ),
        (
            {"status": "error"},
            candidate("not chosen"),
            "Choosing failed (error), so nothing was chosen: no reason was recorded.",
        ),
        (
            {"status": "error", "chosen": ("b",), "used": "lexical"},
            candidate("not chosen"),
            "It has no word of the question.",
        ),
        (
            {"chosen": ("b", "c")},
            candidate("over the cap"),
            "It matches, but better candidates filled the limit of 2.",
        ),
        ({}, candidate("not chosen"), "The model saw it and did not choose it."),
        (
            {"of": "tools", "used": "lexical"},
            candidate("not chosen"),
            "Another tool matches the words of the task better.",
        ),
    ],
)
def test_why_a_candidate_was_not_chosen(
    fields: dict[str, Any], entry: Candidate, sentence: str
) -> None:
    assert why_not_chosen(entry, selection(**fields)) == sentence


def run_of(*lines: Line) -> RecordedRun:
    numbered = [line.model_copy(update={"seq": seq}) for seq, line in enumerate(lines, 1)]
    return RecordedRun(Path("run.jsonl"), tuple(numbered))


def test_what_the_model_did_not_see_has_near_misses_first_and_tools_last() -> None:
    run = run_of(
        ToolListLine(session_id="s", shown=("a",), hidden=("b",), tokens=9, limit_tokens=10),
        ToolCallLine(tool="find", failure="TimeoutError"),
        selection(
            candidates=(
                candidate("not chosen", id="p1", name="find", size_bytes=1_000, score=0.2),
                candidate("not chosen", id="p2", score=0.4),
                candidate("over the cap", id="p3", score=0.1),
                candidate("chosen", id="p4"),
            ),
            dropped=(Dropped(id="p1", reason="repeat"), Dropped(id="p9", reason="unknown")),
        ),
        packing(
            item("whole", "whole"),
            item("covered", "passages", chars_shown=400),
            item("part", "passages", score=0.3),
            item("empty", "passages", chars=0, chars_shown=0, score=0.25),
        ),
        FOLD,
        offload("preview", "p5"),
        offload("not stored"),
        offload("whole", "p2"),
    )
    assert [(missed.source, missed.id, missed.missing, missed.seq) for missed in unseen(run)] == [
        ("output", "p3", "0 bytes", 3),
        ("file", "part", "about 150 tokens of it", 4),
        ("file", "empty", "about 0 tokens of it", 4),
        ("output", "p1", "1,000 bytes", 3),
        ("output", "find", "its output", 2),
        ("output", "p9", "it does not exist", 3),
        ("messages", "p1", "2,000 tokens", 5),
        ("messages", "p2", "2,000 tokens", 5),
        ("output", "p5", "7,000 characters", 6),
        ("output", "find", "7,000 characters", 7),
        ("tool", "b", "its definition", 1),
    ]
    reasons = {(missed.source, missed.id): missed.why for missed in unseen(run)}
    assert reasons["messages", "p1"].endswith(": message 1 moved behind this pointer.")
    assert reasons["messages", "p2"].endswith(": messages 2 to 9 moved behind this pointer.")
    assert reasons["output", "p9"] == "The model named it, but no candidate has this id."


def test_a_later_step_that_shows_an_item_counts() -> None:
    hidden = ToolListLine(session_id="s", hidden=("a",), tokens=9, limit_tokens=10)
    shown = ToolListLine(session_id="s", shown=("a",), tokens=9, limit_tokens=10)
    assert unseen(run_of(hidden, shown)) == []
    assert [missed.seq for missed in unseen(run_of(hidden, shown, hidden))] == [3]


def test_the_verdicts_tell_how_a_run_ended_and_what_is_missing() -> None:
    fine = run_of(AnswerLine(status="ok"), RunEnd(status="ok", seconds=1.0))
    assert verdicts(fine) == []
    assert verdicts(run_of(AnswerLine(status="ok"))) == [
        "The trace has no end: the run is not over, or its process was killed."
    ]
    bad = run_of(
        AnswerLine(status="no_data", problem="find failed"),
        AnswerLine(status="timeout", problem="late"),
        selection(status="error", problem="no model"),
        packing(unlisted=3, not_weighed={"too_large": 1_000, "binary": 2}),
        RunEnd(status="error", seconds=1.0, lost=1_200),
    )
    assert verdicts(bad) == [
        "The run ended with the status error.",
        "No model was called for an answer: find failed",
        "There is no answer (timeout): late",
        "Step 3: Choosing outputs failed (error): no model",
        "3 more items of step 4 are not listed.",
        "Step 4 skipped 2 binary, 1,000 too_large files.",
        "1,200 lines are missing: the file was full, or they could not be encoded.",
    ]
