"""`llm-common demo`: five questions over the package's data."""

import csv
import gzip
import io
import json
import re
import socket
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console

from llm_common.agents import ToolRegistry
from llm_common.apps.cli.demo.five_questions import (
    Agent,
    QuestionResult,
    agent_from_env,
    ask_questions,
    questions_document,
    show_questions,
)
from llm_common.apps.cli.demo.public_data import QUESTIONS, Question, get_earthquakes, public_tools
from llm_common.testing import ScriptedClient
from llm_common.trace import read_trace
from tests.apps.cli.running import run, run_json

DATA = Path(str(files("llm_common.apps.cli.demo"))) / "data"
RAIN = QUESTIONS[1]
MIN_PIECE_CHARS = 6  # a shorter piece can occur in a time or an id by chance


@pytest.fixture(scope="module")
def demo_output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Any], Path]]:
    """Return the document of the command, and the folder of its temporary files."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was tried"))
        yield run_json("demo", "--output", folder / "pages"), folder


def test_every_prompt_contains_the_evidence_within_the_budget(
    demo_output: tuple[dict[str, Any], Path],
) -> None:
    document, _ = demo_output
    assert [question["question"] for question in document["questions"]] == [
        question.text for question in QUESTIONS
    ]
    for question in document["questions"]:
        assert (question["missing"], question["problem"], question["answer"]) == ([], "", None)
        assert 0 < question["tokens_with"] <= document["budget_tokens"]
        assert (
            question["tokens_without"]
            > question["tokens_returned"]
            == sum(output["tokens"] for output in question["outputs"])
        )
    assert document["tokens_with"] * 20 < document["tokens_without"]
    assert document["evidence"] == len(QUESTIONS)
    assert "no endpoint is configured" in document["model"]


def test_each_question_has_a_page_and_a_trace(demo_output: tuple[dict[str, Any], Path]) -> None:
    document, folder = demo_output
    for question in document["questions"]:
        assert question["question"] in Path(question["page"]).read_text(encoding="utf-8")
        assert {"tools", "outputs"} & {
            getattr(line, "of", "") for line in read_trace(question["trace"]).lines
        }
    assert [path.name for path in folder.iterdir()] == ["pages"]


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
        assert any(value in piece for piece in question.evidence)


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


async def ask_all(
    *questions: Question, folder: Path, agent: Agent | None = None, registry: Any = None
) -> list[Any]:
    async with agent_from_env() as lexical:
        return await ask_questions(
            questions,
            agent or lexical,
            folder=folder / "pages",
            work_dir=folder / "work",
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
    [done] = await ask_all(Question(RAIN.text, steps, evidence, RAIN.known), folder=tmp_path)
    assert len(done.outputs) == len(steps)
    assert (done.missing, done.failed, done.problem) == (evidence, True, "")


async def test_a_failing_question_does_not_stop_the_next(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "1").write_text("no folder")
    first, second = await ask_all(RAIN, RAIN, folder=tmp_path)
    assert (first.failed, first.problem != "", second.failed) == (True, True, False)


def test_a_question_with_a_problem_has_failed_s0_36() -> None:
    assert QuestionResult("Does it rain?", problem="the choice of outputs failed").failed
    assert not QuestionResult("Does it rain?").failed


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
    document = questions_document(questions, model=hostile, folder=Path(hostile), store=None)
    console = Console(
        file=io.StringIO(), force_terminal=is_terminal, no_color=True, markup=False, width=200
    )
    show_questions(document, console)
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert text.count("[bold]no[/bold]") == 9
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "which does not name 1" in text


def test_people_see_the_same_in_plain_text(
    demo_output: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    text = run("demo", "--output", tmp_path / "file" / "pages").stdout
    for question in demo_output[0]["questions"]:
        assert f"{question['tokens_without']:,}" in text
        assert f"{question['tokens_with']:,}" in text
        assert f"found: {question['known'][0]}" in text
    assert "5 of 5" in text
    assert "No page could be written" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_every_file_of_the_data_has_a_licence() -> None:
    notice = (DATA / "SOURCES.md").read_text(encoding="utf-8")
    rows = {*re.findall(r"^\| `([^`]+)`.*(?:public domain|MIT)", notice, re.MULTILINE)}
    assert rows == {path.name for path in DATA.iterdir()} - {"SOURCES.md"}
