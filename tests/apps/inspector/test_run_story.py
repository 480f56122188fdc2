"""What the page of a run says first: the answer, what was shown of each output, and the prompt."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llm_common.apps.inspector import IndexEntry, render_html, render_index
from llm_common.apps.inspector.run_page import (
    Marker,
    run_page,
    totals,
)
from llm_common.core.models import LLMUsage
from llm_common.core.structured import Attempt
from llm_common.text.display import to_json
from llm_common.trace import NO_MODEL, RecordedRun
from llm_common.trace.account import why_no_answer
from llm_common.trace.amounts import Flow, call_label, flows
from llm_common.trace.lines import (
    AnswerLine,
    Line,
    ModelCallLine,
    OffloadLine,
    PackedItem,
    RunBegin,
    RunEnd,
    SelectionLine,
    SentPrompt,
    ToolCallLine,
)
from tests.apps.inspector.test_values import call, packing, run_of
from tests.trace.runs import long_story, previewed, recorded

QUESTION = "How strong was the quake near Jarm on 2018-01-31?"


def output(pointer_id: str, form: str, tokens: int, chars_shown: int) -> PackedItem:
    return PackedItem.model_validate(
        {
            "source": "output",
            "id": pointer_id,
            "name": "get_quakes",
            "rule": "ranked",
            "reason": "share",
            "form": form,
            "tokens": tokens,
            "score": 1.0,
            "chars": 4_000,
            "chars_shown": chars_shown,
        }
    )


def tool_call(pointer_id: str, day: str | None = None) -> ToolCallLine:
    args = None if day is None else to_json({"day": day})
    return ToolCallLine(tool="get_quakes", args=args, pointer_id=pointer_id, result_bytes=4_000)


def prompt(text: str, **fields: Any) -> ModelCallLine:
    sent = SentPrompt(bytes=len(text), text=text)
    return call().model_copy(update={"prompt": sent, **fields})


def shown_fragments(text: str, query: str = "", *evidence: str) -> list[tuple[str, str]]:
    fragments = Marker(query, evidence).fragments(text)
    return [(piece.text, piece.mark) for piece in fragments if piece.mark]


def test_each_output_has_the_tokens_that_it_returned_and_that_are_shown() -> None:
    items = (
        output("a", "whole", 1_000, 4_000),
        output("b", "passages", 250, 1_000),
        output("c", "left_out", 0, 0),
    )
    calls = [tool_call(pointer_id, f"day {pointer_id}") for pointer_id in "abcd"]
    run = run_of(*calls, packing(items=items))
    assert flows(run).items == (
        Flow("get_quakes day=day a", "a", "output", 1_000, 1_000, "whole"),
        Flow("get_quakes day=day b", "b", "output", 1_000, 250, "in part"),
        Flow("get_quakes day=day c", "c", "output", 1_000, 0, "left out"),
        Flow("get_quakes day=day d", "d", "output", 1_000, 0, "left out"),
    )
    assert (flows(run).returned, flows(run).shown) == (4_000, 1_250)
    assert not flows(run).are_exact
    counted = flows(run, returned_tokens=dict.fromkeys("abcd", 900))
    assert (counted.returned, counted.are_exact) == (3_600, True)
    assert not flows(run_of(RunBegin(query_id="q"))).items


async def test_a_run_of_a_hook_shows_what_was_returned_and_previewed(tmp_path: Path) -> None:
    run = await recorded(previewed, tmp_path)
    [line] = run.of(OffloadLine)
    [flow] = flows(run).items
    assert (flow.returned, flow.form) == (round(line.total_chars / 4), "preview")
    assert flow.shown == round(line.shown_chars / 4)
    assert why_no_answer(run).startswith("Not recorded")


def test_a_label_is_the_tool_with_its_arguments() -> None:
    for args, label in (
        ('{"city":"Oslo","n":[1]}', "get city=Oslo n=[1]"),
        (None, "get"),
        ('{"cut', 'get {"cut'),
    ):
        assert call_label(ToolCallLine(tool="get", args=args)) == label
    long_call = ToolCallLine(tool="get", args=to_json({"q": "x" * 999}))
    assert len(call_label(long_call)) == 120


def test_the_packing_that_was_sent_is_the_last_before_the_last_call() -> None:
    first, second, later = packing(tokens=1), packing(tokens=2), packing(tokens=3)
    assert run_of(first, second, call(), later).sent_packing == second.model_copy(update={"seq": 2})
    assert run_of(first, second).sent_packing == second.model_copy(update={"seq": 2})
    assert run_of(call()).sent_packing is None
    selection = SelectionLine(of="outputs", status="ok", used="model", step=7)
    inside = call().model_copy(update={"parent": 7, "step": 8})
    run = run_of(first, inside, selection, second)
    assert run.sent_packing == second.model_copy(update={"seq": 4})


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "No model was asked. The run only chose what a model would see."),
        ([call()], "No model was asked for an answer. It was asked only what to choose."),
        (
            [AnswerLine(status="ok", text="x", is_without_model=True)],
            "No model was asked: no endpoint is configured. The prompt was ready to send.",
        ),
        (
            [AnswerLine(status="no_data", problem="the tool failed")],
            "No model was called for an answer: the tool failed",
        ),
        (
            [AnswerLine(status="timeout", problem="no reply in 5 s")],
            "There is no answer (timeout): no reply in 5 s",
        ),
        (
            [AnswerLine(status="ok", text_chars=1_234)],
            "A model answered with 1,234 characters. The trace was recorded without texts.",
        ),
    ],
)
def test_a_run_without_an_answer_says_why(lines: list[Line], reason: str) -> None:
    run = run_of(*lines)
    assert run.answer_text is None
    assert why_no_answer(run) == reason
    assert render_html(run).count(reason) == 1


def test_a_client_that_asks_no_model_has_no_calls_tokens_or_cost() -> None:
    usage = LLMUsage(prompt_tokens=900, completion_tokens=0)
    line = call().model_copy(update={"attempt": Attempt("no model", 1, usage=usage, cost_usd=0.0)})
    run = run_of(line, RunEnd(status="ok", seconds=1.0))
    assert [*totals(run)] == ["Ended", "Seconds"]
    assert "Asked no model: the prompt of 900 tokens was ready to send" in render_html(run)
    uncounted = call().model_copy(update={"attempt": Attempt("no model", 1)})
    assert "Asked no model: the prompt was ready to send" in render_html(run_of(uncounted))


def test_words_of_the_question_and_evidence_are_marked() -> None:
    text = "Quakes of 2018-01-31: M 6.1 near Jarm, not 16.1; strongly felt by 438"
    assert shown_fragments(text, QUESTION, "6.1", "438") == [
        ("Quakes", "word"),
        ("2018-01-31", "word"),
        ("6.1", "evidence"),
        ("near", "word"),
        ("Jarm", "word"),
        ("strongly", "word"),
        ("438", "evidence"),
    ]
    assert shown_fragments("nothing here", QUESTION) == []
    assert shown_fragments("a.b (c) $x", "a.b", "(c)") == [("a.b", "word"), ("(c)", "evidence")]
    plain = Marker(QUESTION, ()).fragments(text, are_marked=False)
    assert [piece.text for piece in plain] == [text]


def test_the_prompt_is_the_one_of_the_answer_and_values_of_the_answer_are_evidence() -> None:
    begin = RunBegin(query_id="q", query=QUESTION, texts=True)
    texts = [
        '{"role":"system","content":"Answer."}\n{"role":"user","content":"M 6.1 near Jarm"}',
        '{"role":"user","content":"which tool?"}',
    ]
    lines: list[Line] = [
        prompt(texts[0]),
        prompt(texts[1], parent=3, step=4),
        SelectionLine(of="tools", status="ok", used="model", step=3),
        AnswerLine(status="ok", text="It had 6.1 on 2018-01-31."),
    ]
    system, user = run_page(run_of(begin, *lines)).messages
    assert (system.is_context, user.is_context) == (False, True)
    marks = [(piece.text, piece.mark) for piece in user.fragments if piece.mark]
    assert marks == [("6.1", "evidence"), ("near", "word"), ("Jarm", "word")]
    packed = run_of(begin, packing(text="packed text"))
    assert [message.role for message in run_page(packed).messages] == ["packed"]
    assert run_page(run_of(begin, packing())).messages == ()
    assert "Record with <code>Trace(…, texts=True)</code>" in render_html(run_of(begin, packing()))


def test_only_measured_steps_have_a_time() -> None:
    lines: list[Line] = [
        RunBegin(query_id="q", at="2026-11-01T10:00:00+00:00"),
        ToolCallLine(tool="a", at="2026-11-01T10:00:02+00:00"),
        call().model_copy(update={"attempt": Attempt("m", 5_000), "parent": 3, "step": 4}),
        SelectionLine(
            of="tools", status="ok", used="model", step=3, at="2026-11-01T10:00:10+00:00"
        ),
    ]
    steps = render_html(run_of(*lines)).partition('<h2 id="steps">')[2].partition("</section>")[0]
    rows = re.findall(
        r'<li class="k-(\w+) depth-(\d)">.*?<summary>(.*?)</summary>', steps, re.DOTALL
    )
    times = []
    for kind, depth, summary in rows:
        times.append((kind, depth, re.findall(r'class="amount">(.*?)<', summary)))
    assert times == [
        ("tool_call", "0", []),
        ("selection", "0", []),
        ("model_call", "1", ["5.00 s"]),
    ]


def test_only_the_packing_that_was_sent_is_unfolded() -> None:
    run = run_of(packing(), packing(), call())
    page = render_html(run)
    assert page.count("this one was sent") == 1
    assert page.count("replaced by a later packing") == 1
    steps = page.partition('<h2 id="steps">')[2].partition("</section>")[0]
    assert re.findall(r"<li class=\"(k-\w+) depth-0\">\n<details( open)?", steps) == [
        ("k-packing", ""),
        ("k-packing", " open"),
        ("k-model_call", ""),
    ]
    assert page.count('id="line-') == 3


async def test_the_order_of_the_page_answers_first(tmp_path: Path) -> None:
    page = render_html(await recorded(long_story, tmp_path, texts=True))
    places = [
        page.index(text)
        for text in (
            "<h1><bdi>When does the parcel arrive in Oslo?",
            '<h2 id="answer">Answer',
            "<bdi>At noon.</bdi></p>",
            '<h2 id="flows">Outputs: returned → shown',
            '<h2 id="unseen"',
            '<h2 id="steps">',
            '<h2 id="prompt">',
        )
    ]
    assert places == sorted(places)


def test_a_long_question_leaves_room_for_the_answer() -> None:
    question = "why " * 500 + "end?"
    page = render_html(run_of(RunBegin(query_id="q", query=question)))
    [heading] = re.findall(r"<h1><bdi>(.*?)</bdi></h1>", page)
    assert len(heading) <= 245
    assert "The whole question: 2,004 characters" in page
    assert question in page


def test_the_page_of_a_run_links_its_index_and_no_other_site() -> None:
    run = run_of(RunBegin(query_id="q", query="<b>?"), packing())
    assert '<a href="index.html">Index</a>' in render_html(run, index="index.html")
    page = render_html(run, index="javascript:x()//e")
    assert 'href="javascript%3Ax%28%29%2F%2Fe"' in page
    assert "Pages of this set" not in render_html(run)


def test_an_index_lists_runs_with_their_answers_and_tokens() -> None:
    answered = run_of(
        RunBegin(query_id="q", query="<b>first?"),
        packing(items=(output("a", "passages", 250, 1_000),)),
        AnswerLine(status="ok", text="Because."),
    )
    bare = RecordedRun(Path("x.jsonl"), (ToolCallLine(tool="a", seq=2),))
    entries = [IndexEntry("1.html", answered, {"a": 777}), IndexEntry("2.html", bare)]
    page = render_index(entries, title="Two runs")
    assert "<h1><bdi>Two runs</bdi></h1>" in page
    assert '<a href="1.html"><bdi>&lt;b&gt;first?</bdi></a>' in page
    assert "777 → <strong>250</strong> tokens" in page
    assert "Because." in page
    assert '<a href="2.html"><bdi>Run x</bdi></a>' in page
    assert "<h1>" in render_index([])


def prompt_for_no_model(content: str) -> RecordedRun:
    line = prompt(to_json({"role": "user", "content": content}))
    attempt = replace(line.attempt, model=NO_MODEL)
    return run_of(line.model_copy(update={"attempt": attempt}))


def test_a_page_begins_with_the_evidence_that_its_prompt_has() -> None:
    run = prompt_for_no_model("place: Jarm | mag: 6.1 | day: 2018-01-31")
    page = render_html(run, evidence=["Jarm", "6.1", "438", "1", "201"])
    head = page.partition('<h2 id="unseen"')[0]
    found, missing = re.findall(r'<p class="found">(.*?)</p>', head)
    assert re.findall("<bdi>(.*?)</bdi>", found) == ["Jarm", "6.1"]
    assert re.findall("<bdi>(.*?)</bdi>", missing) == ["438", "201"]
    assert ">No answer<" not in head
    assert "The prompt as it would be sent" in page


def test_a_trace_without_texts_tells_nothing_about_evidence() -> None:
    run = run_of(RunBegin(query_id="q", query="?"), packing())
    assert 'class="found"' not in render_html(run, evidence=["6.1"])


def test_an_index_begins_with_its_lead_and_shows_evidence_instead_of_no_answer() -> None:
    entry = IndexEntry("1.html", prompt_for_no_model("mag 6.1"), {}, ["6.1", "438"])
    page = render_index([entry], lead="<1> of 1")
    assert '<p class="sum"><bdi>&lt;1&gt; of 1</bdi></p>' in page
    assert page.count('<p class="found">') == 2
    assert "No model was asked" not in page
