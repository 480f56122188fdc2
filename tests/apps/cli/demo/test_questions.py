"""`llm-common demo`: eight questions over the package's data."""

import csv
import io
import json
import re
import socket
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from llm_common.agents import LexicalToolSelector, PlannedTask, ToolRegistry
from llm_common.apps.cli.demo import agent
from llm_common.apps.cli.demo.agent import QuestionResult, ask
from llm_common.apps.cli.demo.public_data import (
    QUESTIONS,
    Question,
    get_bird_strikes,
    get_earthquakes,
    public_tools,
)
from llm_common.apps.cli.demo.report import show_demo
from llm_common.apps.inspector.runs_page import RecordedRuns
from tests.apps.cli.running import run, run_json
from tests.conftest import exporter_of_spans
from tests.test_readme import blocks

DATA = Path(str(files("llm_common.apps.cli.demo"))) / "data"
QUAKE, RAIN, FEDEX, *_, QUAKES, STRIKES, DEAREST = QUESTIONS
MIN_PIECE_CHARS = 6  # a shorter piece can occur in a time or an id by chance
RESULT = QuestionResult(
    question=RAIN,
    trace=None,
    output_tokens={},
    tokens_returned=80_000,
    tokens_in_prompt=2_000,
    missing=(),
    in_prompt=True,
    in_first_tokens=False,
    in_best_records=True,
    problem="",
)


@dataclass
class Demo:
    """What the command has done: its results, its document and the spans that it ended."""

    results: list[QuestionResult]
    document: dict[str, Any]
    spans: list[str]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """Run the command once, which opens no connection, in spite of a key."""
    folder = tmp_path_factory.mktemp("demo")
    results = []

    async def recorded(*arguments: Any) -> QuestionResult:
        results.append(await ask(*arguments))
        return results[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-mine")
        patch.setenv("LLM_COMMON_BASE_URL", "http://127.0.0.1:9/v1")
        patch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a connection was tried"))
        patch.setattr(agent, "ask", recorded)
        exporter = exporter_of_spans(patch)
        document = run_json("demo", "--output", folder / "pages")
    return Demo(results, document, [span.to_json() for span in exporter.get_finished_spans()])


@pytest.fixture
def demo_output(demo: Demo) -> dict[str, Any]:
    return demo.document


def test_the_document_has_what_each_way_found_within_the_budget(
    demo_output: dict[str, Any],
) -> None:
    results = demo_output["questions"]
    assert [result["question"]["text"] for result in results] == [
        question.text for question in QUESTIONS
    ]
    for result in results:
        assert result["problem"] == ""
        assert 0 < result["tokens_in_prompt"] <= demo_output["budget_tokens"]
        assert result["in_prompt"] == (not result["missing"])
    returned = sum(result["tokens_returned"] for result in results)
    assert sum(result["tokens_in_prompt"] for result in results) * 20 < returned
    assert [result["in_prompt"] for result in results] == [*[True] * 5, False, True, True]
    assert sum(result["in_best_records"] for result in results) == 5
    assert not any(result["in_first_tokens"] for result in results)


def test_each_question_has_a_page_and_a_trace_and_its_outputs_in_the_store(
    demo_output: dict[str, Any],
) -> None:
    folder = Path(demo_output["folder"])
    for number, result in enumerate(demo_output["questions"], start=1):
        page = (folder / f"{number}.html").read_text(encoding="utf-8")
        assert result["question"]["text"] in page
    assert (folder / ".gitignore").read_text() == "*\n"
    index = (folder / "index.html").read_text(encoding="utf-8")
    assert "7 of 8 prompts have all records of the answer" in index
    assert "have them for 0, and of their best records by BM25 for 5" in index
    assert index.count("Not found in it: ") == 1
    # The tokens that the demo counted, not an estimate.
    assert f"{result['tokens_returned']:,}" in page
    _, runs = RecordedRuns(Path(demo_output["traces"])).rows(limit=1)
    assert runs == len(QUESTIONS)
    stored = [*Path(demo_output["store"]).glob("*~q_*/*.meta.json")]
    assert len(stored) == sum(len(question.steps) for question in QUESTIONS)


async def test_another_demo_in_the_same_folder_finds_the_same(tmp_path: Path) -> None:
    for number, question in enumerate((RAIN, DEAREST)):
        first = await ask(question, number, tmp_path)
        second = await ask(question, number, tmp_path)
        assert first.tokens_returned == second.tokens_returned
        assert first.missing == second.missing


def test_spans_name_the_steps_and_contain_no_text(demo: Demo) -> None:
    kinds = {json.loads(span)["attributes"].get("gen_ai.operation.name") for span in demo.spans}
    assert {"invoke_agent", "execute_tool", "retrieval"} <= kinds
    exported_spans = "\n".join(demo.spans)
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
    for number, step in enumerate(question.steps, start=1):
        selection = await LexicalToolSelector().select_detailed(
            task=PlannedTask(id=number, description=step),
            tool_registry=registry,
            query=question.text,
        )
        results = [await registry.execute(call.tool, call.args) for call in selection.calls]
        texts += [value if isinstance(value, str) else json.dumps(value) for value in results]
    assert len(texts) == len(question.steps)
    assert question.missing_from(question.text) == question.evidence
    for piece in question.evidence:
        assert sum(piece not in question.missing_from(text) for text in texts) == 1


def test_the_list_the_count_and_the_maximum_follow_from_the_data() -> None:
    strong = []
    for feature in get_earthquakes("2018-02-02"):
        about = feature["properties"]
        if about["mag"] is not None and about["mag"] >= 5:
            strong.append(f"{about['place']} | {about['mag']:g}")
    assert sorted(strong) == sorted(QUAKES.evidence)
    strikes = [*csv.DictReader(get_bird_strikes(1999).splitlines())]
    counted = []
    for strike in strikes:
        damage, phase = strike["Effect Amount of damage"], strike["Phase of flight"]
        if (damage, phase) == ("Substantial", "Approach"):
            counted.append(f"{strike['Flight Date']} | {strike['Airport Name']} | {damage}")
    assert tuple(counted) == STRIKES.evidence
    dearest = max(strikes, key=lambda strike: int(strike["Cost Total $"]))
    assert DEAREST.evidence[0].endswith(f" | {dearest['Cost Total $']}")


@pytest.mark.parametrize(
    ("steps", "evidence"),
    [(RAIN.steps[1:], RAIN.evidence), (RAIN.steps, ("2012-08-03 | New York | 0.0",))],
    ids=["no tool returned it", "a tool returned it"],
)
async def test_evidence_outside_the_prompt_is_missing(
    tmp_path: Path, steps: tuple[str, ...], evidence: tuple[str, ...]
) -> None:
    result = await ask(replace(RAIN, steps=steps, evidence=evidence), 1, tmp_path)
    assert (result.missing, result.in_prompt, result.problem) == (evidence, False, "")


def test_a_failing_tool_is_a_problem_of_its_question_and_ends_the_command_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get_daily_weather(city: str) -> str:
        """The daily weather of a city."""
        raise OSError(f"no station in {city}")

    monkeypatch.setattr(agent, "public_tools", lambda: ToolRegistry([get_daily_weather]))
    rain = run_json("demo", "--output", tmp_path, code=1)["questions"][1]
    assert "OSError" in rain["problem"]
    assert rain["missing"]
    assert not rain["in_prompt"]
    shown = run("demo", "--output", tmp_path, code=1).stdout
    assert f"Question 2: {rain['problem']}" in " ".join(shown.split())


@pytest.mark.parametrize("is_terminal", [False, True])
def test_outputs_and_problems_cannot_drive_the_terminal(*, is_terminal: bool) -> None:
    hostile = "[bold]no[/bold] \x1b]0;title\x07 \x9b31m"
    results = [
        replace(RESULT, question=replace(RAIN, text=hostile, evidence=(hostile,))),
        replace(RESULT, missing=(hostile,), in_prompt=False),
        replace(RESULT, problem=hostile),
    ]
    console = Console(
        file=io.StringIO(), force_terminal=is_terminal, no_color=True, markup=False, width=200
    )
    show_demo(results, Path(hostile), console)
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    assert text.count("[bold]no[/bold]") == 7
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_people_see_the_same_in_plain_text(
    tmp_path: Path, demo: Demo, demo_output: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def same(question: Question, number: int, folder: Path) -> QuestionResult:
        return demo.results[number - 1]

    monkeypatch.setattr(agent, "ask", same)
    text = run("demo", "--output", tmp_path).stdout
    for result in demo_output["questions"]:
        assert f"{result['tokens_returned']:,}" in text
    assert re.search(r"0 of 8 +5 of 8 +7 of 8", text)
    assert re.search(r" no +no +yes\b", text)
    assert "2014-04-30 | New York | 118.9" in text
    assert "the prompt lacks 4 of 6 records" in text
    assert f"inspect --store {tmp_path / 'context'} --traces {tmp_path / 'traces'}" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_the_figures_of_the_readme_are_those_of_the_demo(demo_output: dict[str, Any]) -> None:
    questions = demo_output["questions"]
    rows = re.findall(r" (\d) of 8  █+ +([\d,]+)$", blocks("")[0], re.MULTILINE)
    found = [int(figure) for figure, _ in rows]
    tokens = [int(figure.replace(",", "")) for _, figure in rows]
    assert found == [
        len(questions),
        sum(question["in_first_tokens"] for question in questions),
        sum(question["in_best_records"] for question in questions),
        sum(question["in_prompt"] for question in questions),
    ]
    returned = sum(question["tokens_returned"] for question in questions)
    prompts = sum(question["tokens_in_prompt"] for question in questions)
    assert tokens == [returned, *[prompts] * 3]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    output = run("demo", "--output", tmp_path / "file" / "pages", code=2).output
    assert "--output" in output
    assert "pages" in output


def test_every_file_of_the_data_has_a_licence() -> None:
    notice = (DATA / "SOURCES.md").read_text(encoding="utf-8")
    rows = {*re.findall(r"^\| `([^`]+)`.*(?:public domain|MIT)", notice, re.MULTILINE)}
    assert rows == {path.name for path in DATA.iterdir()} - {"SOURCES.md"}
