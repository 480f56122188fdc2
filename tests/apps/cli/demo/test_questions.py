"""`llm-common demo`: eight questions over the package's data."""

import csv
import gzip
import io
import json
import re
import socket
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console

from llm_common.agents import ToolRegistry
from llm_common.apps.cli.demo.evidence import Agent, QuestionResult, agent_from_env, ask_questions
from llm_common.apps.cli.demo.public_data import get_bird_strikes, get_earthquakes, public_tools
from llm_common.apps.cli.demo.questions import QUESTIONS, Question
from llm_common.apps.cli.demo.report import demo_document, show_demo
from llm_common.apps.inspector.recorded_runs import RecordedRuns
from llm_common.testing import ScriptedClient
from llm_common.trace import read_trace
from tests.apps.cli.running import run, run_json

DATA = Path(str(files("llm_common.apps.cli.demo"))) / "data"
RAIN = QUESTIONS[1]
MIN_PIECE_CHARS = 6  # a shorter piece can occur in a time or an id by chance


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Return the document of the command, which opened no connection."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was tried"))
        yield run_json("demo", "--output", folder / "pages")


def test_the_document_counts_what_each_way_found_within_the_budget(
    demo_output: dict[str, Any],
) -> None:
    document = demo_output
    questions = document["questions"]
    assert [question["question"] for question in questions] == [
        question.text for question in QUESTIONS
    ]
    found = 0
    for question in questions:
        assert (question["problem"], question["answer"]) == ("", None)
        assert 0 < question["tokens_with"] <= document["budget_tokens"]
        assert (
            question["tokens_without"]
            > question["tokens_returned"]
            == sum(output["tokens"] for output in question["outputs"])
        )
        found += not question["missing"] or {*question["known"]} <= {*question["cells"]}
    assert document["tokens_with"] * 20 < document["tokens_without"]
    assert document["evidence"] == found >= 7
    assert document["evidence"] > document["evidence_best_records"]
    assert document["evidence_best_records"] > document["evidence_first_tokens"] == 0
    assert "no endpoint is configured" in document["model"]


def test_a_count_and_a_maximum_are_computed_by_one_query(demo_output: dict[str, Any]) -> None:
    computed = {
        question["kind"]: question for question in demo_output["questions"] if question["sql"]
    }
    assert {*computed} == {"count", "maximum"}
    for question in computed.values():
        assert {*question["known"]} <= {*question["cells"]}
        assert 0 < question["query_tokens"] < 100


def test_each_question_has_a_page_and_a_trace_and_its_outputs_in_the_store(
    demo_output: dict[str, Any],
) -> None:
    for question in demo_output["questions"]:
        assert question["question"] in Path(question["page"]).read_text(encoding="utf-8")
        assert {"tools", "outputs"} & {
            getattr(line, "of", "") for line in read_trace(question["trace"]).lines
        }
    folder = Path(demo_output["folder"])
    index = (folder / "index.html").read_text(encoding="utf-8")
    first, *_, last = demo_output["questions"]
    assert first["question"] in index
    assert 'href="8.html"' in index
    page = Path(last["page"]).read_text(encoding="utf-8")
    assert 'href="7.html"' in page
    assert 'href="index.html"' in page
    assert "89,534" in page  # the tokens that the demo counted, not an estimate
    for output in last["outputs"]:
        assert f"{output['tokens'] - output['tokens_shown']:,} tokens of it" in page
    stored = {path.name for path in folder.joinpath("context").rglob("*.meta.json")}
    for question in demo_output["questions"]:
        for output in question["outputs"]:
            assert f"{output['pointer_id']}.meta.json" in stored
    _, runs = RecordedRuns(folder / "traces").rows(limit=1)
    assert runs == len(QUESTIONS)


def test_another_demo_in_the_same_folder_shows_the_same(tmp_path: Path) -> None:
    first = run_json("demo", "--output", tmp_path)
    # `--keep` of earlier versions is accepted, since outputs are always kept.
    second = run_json("demo", "--output", tmp_path, "--keep")
    for one, two in zip(first["questions"], second["questions"], strict=True):
        assert len(one["outputs"]) == len(two["outputs"])
        assert (one["missing"], one["cells"]) == (two["missing"], two["cells"])
    for document in (first, second):
        assert document["rule"]["in_folded"]
        assert "Identical" in document["re_run"]["same"]


def test_a_rule_of_the_first_message_is_in_view_200_turns_later(
    demo_output: dict[str, Any],
) -> None:
    rule = demo_output["rule"]
    assert (rule["turns"], rule["in_folded"], rule["in_newest"]) == (200, True, False)
    assert rule["tokens"] > 100_000
    assert 0 < rule["tokens_folded"] <= rule["max_tokens"]
    assert rule["max_tokens"] // 2 < rule["tokens_newest"] <= rule["max_tokens"]


def test_a_call_that_is_made_again_shows_only_what_changed(demo_output: dict[str, Any]) -> None:
    again = demo_output["re_run"]
    assert "27.1 → 26.9" in again["changed"]
    assert again["same_tokens"] < again["changed_tokens"] < again["first_tokens"] < again["tokens"]


def test_spans_name_the_steps_and_contain_no_text(
    tmp_path: Path, exported: InMemorySpanExporter
) -> None:
    run_json("demo", "--output", tmp_path)
    spans = exported.get_finished_spans()
    kinds = {str((span.attributes or {}).get("gen_ai.operation.name")) for span in spans}
    assert {"invoke_agent", "execute_tool", "retrieval"} <= kinds
    exported_spans = "\n".join(span.to_json() for span in spans)
    for question in QUESTIONS:
        assert question.text not in exported_spans
        assert all(
            piece not in exported_spans
            for piece in question.evidence
            if len(piece) > MIN_PIECE_CHARS
        )


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.steps[0])
async def test_evidence_occurs_once_in_the_outputs(question: Question) -> None:
    registry, texts = public_tools(), []
    async with agent_from_env() as agent:
        for task in question.plan.tasks:
            selection = await agent.selector.select_detailed(
                task=task, tool_registry=registry, query=question.text
            )
            results = [await registry.execute(call.tool, call.args) for call in selection.calls]
            texts += [value if isinstance(value, str) else json.dumps(value) for value in results]
    assert len(texts) == len(question.steps)
    assert question.missing_from(question.text) == question.evidence
    for piece in question.evidence:
        assert sum(piece not in question.missing_from(text) for text in texts) == 1
    for value in question.known:
        assert question.kind == "count" or any(value in piece for piece in question.evidence)


def test_known_answers_follow_from_the_data() -> None:
    [jarm] = [
        feature["properties"]
        for feature in get_earthquakes("2018-01-31")
        if "S of Jarm" in feature["properties"]["place"]
    ]
    assert (str(jarm["mag"]), str(jarm["felt"])) == QUESTIONS[0].known
    strikes = csv.DictReader(
        gzip.decompress((DATA / "bird_strikes.csv.gz").read_bytes()).decode().splitlines()
    )
    [fedex] = [
        strike
        for strike in strikes
        if strike["Airport Name"].startswith("AUSTIN-BERGSTROM")
        and strike["Aircraft Airline Operator"].startswith("FEDEX")
        and strike["Aircraft Make Model"].startswith("B-727")
        and strike["Flight Date"].startswith("1998")
    ]
    assert fedex["Cost Total $"] == QUESTIONS[2].known[0]


def test_the_list_the_count_and_the_maximum_follow_from_the_data() -> None:
    by_kind = {question.kind: question for question in QUESTIONS}
    strong = []
    for feature in get_earthquakes("2018-02-02"):
        about = feature["properties"]
        if about["mag"] is not None and about["mag"] >= 5:
            strong.append(f"{about['place']} | {about['mag']:g}")
    assert sorted(strong) == sorted(by_kind["list"].evidence)
    strikes = [*csv.DictReader(get_bird_strikes(1999).splitlines())]
    counted = []
    for strike in strikes:
        damage, phase = strike["Effect Amount of damage"], strike["Phase of flight"]
        if (damage, phase) == ("Substantial", "Approach"):
            counted.append(f"{strike['Flight Date']} | {strike['Airport Name']} | {damage}")
    assert tuple(counted) == by_kind["count"].evidence
    assert by_kind["count"].known == (str(len(counted)),)
    dearest = max(strikes, key=lambda strike: int(strike["Cost Total $"]))
    assert by_kind["maximum"].known == (dearest["Cost Total $"],)


async def ask_all(
    *questions: Question, folder: Path, agent: Agent | None = None, registry: Any = None
) -> list[Any]:
    async with agent_from_env() as lexical:
        return await ask_questions(
            questions,
            agent or lexical,
            folder=folder,
            progress=lambda *_: None,
            registry=registry,
        )


@pytest.mark.parametrize(
    ("steps", "evidence"),
    [(RAIN.steps[1:], RAIN.evidence), (RAIN.steps, ("2012-08-03 | New York | 0.0",))],
    ids=["no tool returned it", "a tool returned it"],
)
async def test_evidence_outside_every_prompt_is_missing(
    tmp_path: Path, steps: tuple[str, ...], evidence: tuple[str, ...]
) -> None:
    [done] = await ask_all(replace(RAIN, steps=steps, evidence=evidence), folder=tmp_path)
    assert len(done.outputs) == len(steps)
    assert (done.missing, done.failed, done.problem) == (evidence, True, "")


async def test_a_failing_question_does_not_stop_the_next(tmp_path: Path) -> None:
    wrong = replace(RAIN, sql="SELECT nothing FROM {table}", table_args=(("city", "New York"),))
    first, second = await ask_all(wrong, RAIN, folder=tmp_path)
    assert "nothing" in first.problem
    assert (first.failed, first.found_in, second.failed) == (True, "", False)


def test_a_question_with_a_problem_has_failed_s0_36() -> None:
    assert QuestionResult("Does it rain?", problem="the choice of outputs failed").failed
    assert not QuestionResult("Does it rain?").failed


@pytest.mark.parametrize(
    ("cells", "found_in"),
    [(("438", "6.1"), "query"), (("6.1",), ""), (("6.1", "4381"), ""), ((), "")],
)
def test_evidence_is_found_by_a_query_only_if_its_rows_have_all_values(
    cells: tuple[str, ...], found_in: str
) -> None:
    result = QuestionResult("How?", missing=("a | b",), known=("6.1", "438"), cells=cells)
    assert (result.found_in, result.failed) == (found_in, not found_in)


async def test_a_failing_tool_is_a_problem_of_its_question(tmp_path: Path) -> None:
    registry = ToolRegistry()

    @registry.tool
    def get_daily_weather(city: str) -> str:
        """The daily weather of a city."""
        raise OSError(f"no station in {city}")

    [done] = await ask_all(RAIN, folder=tmp_path, registry=registry)
    assert "OSError" in done.problem
    assert done.missing == RAIN.evidence


@pytest.mark.parametrize(
    ("answer", "unnamed"),
    [
        ("118.9 mm.", ()),
        ("Rain: 118.9", ()),
        ("It did not rain.", RAIN.known),
        ("2118.9 or 118.95", RAIN.known),
    ],
)
async def test_an_answer_is_compared_with_the_known_values(
    tmp_path: Path, answer: str, unnamed: tuple[str, ...]
) -> None:
    async with agent_from_env() as lexical:
        client = ScriptedClient([], default=answer)
        [done] = await ask_all(
            RAIN, folder=tmp_path, agent=Agent(lexical.selector, client, "scripted")
        )
    assert (done.answer, done.unnamed, done.missing) == (answer, unnamed, ())


@pytest.mark.parametrize("is_terminal", [False, True])
def test_answers_and_problems_cannot_drive_the_terminal(*, is_terminal: bool) -> None:
    hostile = "[bold]no[/bold] \x1b]0;title\x07 \x9b31m"
    questions = [
        QuestionResult(hostile, answer=hostile, known=("1",), unnamed=("1",)),
        QuestionResult(hostile, missing=(hostile,), page=hostile, trace=hostile),
        QuestionResult(hostile, problem=hostile),
    ]
    document = demo_document(questions, model=hostile, folder=Path(hostile))
    console = Console(
        file=io.StringIO(), force_terminal=is_terminal, no_color=True, markup=False, width=200
    )
    show_demo(document, console)
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert text.count("[bold]no[/bold]") == 9
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "which does not name 1" in text


def test_people_see_the_same_in_plain_text(tmp_path: Path, demo_output: dict[str, Any]) -> None:
    text = run("demo", "--output", tmp_path).stdout
    for question in demo_output["questions"]:
        assert f"{question['tokens_returned']:,}" in text
    assert f"0 of 8  {demo_output['evidence_best_records']} of 8" in text
    assert f"{demo_output['evidence']} of 8" in text
    assert "by a query" in text
    assert "the prompt does not contain" in text
    assert "In the newest messages that fit it is gone." in text
    assert "in which the change is named" in text
    assert f"inspect --store {tmp_path / 'context'} --traces {tmp_path / 'traces'}" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    output = run("demo", "--output", tmp_path / "file" / "pages", code=2).output
    assert "--output" in output
    assert "pages" in output


def test_every_file_of_the_data_has_a_licence() -> None:
    notice = (DATA / "SOURCES.md").read_text(encoding="utf-8")
    rows = {*re.findall(r"^\| `([^`]+)`.*(?:public domain|MIT)", notice, re.MULTILINE)}
    assert rows == {path.name for path in DATA.iterdir()} - {"SOURCES.md"}
