"""What `llm-common trace` and `gateway` print with `--json` fits the published schema."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.apps.cli.running import check, run, run_json
from tests.trace.runs import not_chosen, recorded


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    asyncio.run(recorded(not_chosen, tmp_path, texts=True))
    return tmp_path


def test_a_shown_trace_fits_its_schema(traced: Path) -> None:
    document = run_json("trace show", traced / "trace")
    assert document["unseen"]
    assert document["lines"]


def test_compared_traces_fit_their_schema(traced: Path) -> None:
    assert run_json("trace diff", traced / "trace", traced / "trace")["steps"]


def test_gateways_that_never_ran_are_an_empty_list(tmp_path: Path) -> None:
    result = run("gateway", "status", "--folder", tmp_path, "--json", code=3)
    document = json.loads(result.stdout)
    assert result.stderr == "No gateway has run.\n"
    check("gateway status", document)
    assert document == []
