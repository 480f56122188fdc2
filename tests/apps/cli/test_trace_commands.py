"""`llm-common trace`, in this process."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_common.trace import RecordedRun
from tests.apps.cli.running import run
from tests.folders.tree import PROGRAM
from tests.trace.runs import QUERY, not_chosen, recorded

HOSTILE = "x\x1b]0;title\x07\x9b2J\u202eevil"


@pytest.fixture
async def trace(tmp_path: Path) -> RecordedRun:
    return await recorded(not_chosen, tmp_path, texts=True)


def test_show_says_why(trace: RecordedRun) -> None:
    output = run("trace", "show", trace.path).stdout
    assert QUERY in output
    assert "Chose 1 of 2 outputs by a model" in output
    assert "The model saw it and did not choose it." in output
    document = json.loads(run("trace", "show", trace.path, "--json").stdout)
    assert document["unseen"][0]["why"] == "The model saw it and did not choose it."
    assert [line["kind"] for line in document["lines"]] == [
        "run_begin",
        "model_call",
        "selection",
        "run_end",
    ]


def test_export_writes_a_page_for_the_newest_run_of_a_folder(
    trace: RecordedRun, tmp_path: Path
) -> None:
    result = run("trace", "export", trace.path.parent, tmp_path / "run.html")
    assert result.stdout == ""
    assert "did not choose it." in (tmp_path / "run.html").read_text(encoding="utf-8")
    assert (
        "cannot be written"
        in run("trace", "export", trace.path, tmp_path / "no" / "x.html", code=2).stderr
    )


@pytest.mark.parametrize("command", [["show"], ["export"]])
@pytest.mark.parametrize(
    ("is_there", "message"), [(True, "contains no line"), (False, "does not exist")]
)
def test_a_path_that_is_not_a_trace_is_a_wrong_argument_and_quoted_inert(
    command: list[str], is_there: bool, message: str, tmp_path: Path
) -> None:
    path = tmp_path / HOSTILE
    if is_there:
        path.write_text("no trace\n")
    arguments: list[str | Path] = [command[0], path, *([path] if command[0] != "show" else [])]
    result = run("trace", *arguments, code=2)
    assert message in " ".join(result.stderr.split())
    assert "\x1b" not in result.stderr
    assert "\u202e" not in result.stderr


def test_a_process_shows_replacements_where_the_terminal_lacks_characters(tmp_path: Path) -> None:
    trace = asyncio.run(recorded(not_chosen, tmp_path, texts=True, query="caf\xe9 escape"))
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, "trace", "show", str(trace.path)],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "caf? escape" in result.stdout
    assert result.stderr == ""
