"""The bundle's account of itself."""

import json

import pytest

from llm_common.context.pool import DataPoolSnapshot
from llm_common.context.request import Kind, Score
from tests.context.samples import PROJECT, file, memory, output, packed, request_of, turn

POOL = DataPoolSnapshot(
    session_log=(turn(1, "Does it rain?"),),
    context_files=(file("src/rain.py", "def rain(): ..."), file("secret.py", "TOKEN = 'a secret text'")),
    memory_hits=(memory(1, "It rained in spring."),),
    project_state=PROJECT,
    tool_outputs=(output(1),),
)
SCORES: dict[tuple[Kind, str], Score] = {
    ("turn", "t0001"): Score(0.5, {"recency": 0.3, "words": 0.2}),
    ("file", "src/rain.py"): Score(1.2, {"mention": 1.0, "words": 0.2}, "mentioned"),
    ("file", "secret.py"): Score(0.9, {}, "excluded"),
    ("memory", "m1"): Score(0.4),
    ("project", "weather"): Score(1.0),
    ("output", "000000000001"): Score(0.25),
}


def test_every_item_is_explained_as_plain_data_s1_11() -> None:
    bundle = packed(POOL, request_of(900), SCORES)
    data = json.loads(json.dumps(bundle.explain()))
    assert {(each["kind"], each["id"]) for each in data["kept"] + data["dropped"]} == SCORES.keys()
    rain = next(each for each in data["kept"] if each["id"] == "src/rain.py")
    assert rain["parts"] == {"mention": 1.0, "words": 0.2}
    assert (rain["rule"], rain["reason"], rain["form"], rain["score"]) == ("mentioned", "mentioned", "whole", 1.2)
    assert [(each["id"], each["reason"], each["tokens"]) for each in data["dropped"]] == [("secret.py", "excluded", 0)]


def test_a_degraded_item_keeps_a_part_of_its_worth() -> None:
    account = next(each for each in packed(POOL, request_of(900), SCORES).kept if each.kind == "output")
    assert account.form == "pointer"
    assert account.value == pytest.approx(0.25**2 * 0.1)


def test_the_figures_count_what_is_in() -> None:
    figures = packed(POOL, request_of(900), SCORES).metadata
    assert (figures.files_selected, figures.turns_selected, figures.memory_selected) == (1, 1, 1)
    assert (figures.outputs_selected, figures.budget) == (1, 900)
    assert figures.budget_utilization == figures.total_tokens / 900
    assert figures.selection_strategy == "intent:code_writing budget:900 strategy:measured"


def test_the_table_has_a_line_per_item_and_none_of_their_text() -> None:
    bundle = packed(POOL, request_of(900), SCORES)
    lines = bundle.explain_text().splitlines()
    assert len(lines) == 2 + len(SCORES)
    assert lines[0].endswith("intent:code_writing budget:900 strategy:measured")
    assert any(line.split()[:3] == ["file", "src/rain.py", "whole"] for line in lines)
    assert "secret text" not in bundle.explain_text() + repr(bundle.explain())


def test_what_is_in_stands_in_the_prompt() -> None:
    text = packed(POOL, request_of(900), SCORES).render()
    for shown in (
        "Does it rain?",
        "def rain(): ...",
        "It rained in spring.",
        "goals: be right; be quick",
        "000000000001",
    ):
        assert shown in text
    assert "a secret text" not in text
