"""Test which files are weighed for a question, and their scores."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from llm_common.context import Score
from llm_common.folders.candidates import FolderQuestion, FolderSearch, candidate_files
from llm_common.folders.contained_file import ContainedFile
from tests.folders.tree import write


def weigh(tmp_path: Path, ranked: Mapping[str, float], query: str = "q") -> dict[str, Score]:
    """Return the scores of the candidates, in order, for these scores of a search."""
    write(tmp_path, dict.fromkeys(ranked, "text\n"))
    search = FolderSearch(
        files={path: ContainedFile(tmp_path, path) for path in ranked}, scores=dict(ranked)
    )
    files, scores = candidate_files(FolderQuestion(query), search, {})
    assert len(scores) == len(files)
    return {file.path: scores["file", file.path] for file in files}


TEST_OR_CODE = {"tests/a.py": 1.0, "a.py": 0.7}
ELSEWHERE = ["docs/conf.py", "examples/a.py", "third_party/a.py", "a.html", "changelog.md"]
BROKEN = "The port stays open\n\nTraceback (most recent call last):"


@pytest.mark.parametrize(
    ("ranked", "query", "first"),
    [
        pytest.param({"t/unit/a.py": 1.0, "zz.py": 0.95}, "q", ["zz.py"], id="a test scores less"),
        pytest.param(
            {"a.md": 1.0, "contest.py": 0.9, "latest/b.py": 0.9},
            "q",
            ["contest.py", "latest/b.py", "a.md"],
            id="code counts more than prose",
        ),
        pytest.param(TEST_OR_CODE, "Close the port twice", ["tests/a.py", "a.py"], id="a change"),
        pytest.param(TEST_OR_CODE, "where is the port closed", ["a.py"], id="a question"),
        pytest.param(TEST_OR_CODE, BROKEN, ["a.py"], id="a failure"),
        pytest.param(
            {**dict.fromkeys(ELSEWHERE, 1.0), "src/a.py": 0.8},
            "q",
            ["src/a.py"],
            id="source before docs, examples and vendored code",
        ),
        pytest.param(
            {**{f"docs/{number}.md": 1.0 for number in range(300)}, "src/a.py": 0.5},
            "q",
            ["src/a.py"],
            id="code behind many better matches",
        ),
    ],
)
def test_files_are_weighed_by_their_kind(
    tmp_path: Path, ranked: dict[str, float], query: str, first: list[str]
) -> None:
    assert list(weigh(tmp_path, ranked, query))[: len(first)] == first


def test_files_named_in_the_question_come_first(tmp_path: Path) -> None:
    scores = weigh(tmp_path, {"a.md": 1.0, "named.py": 0.1}, "what does named.py do")
    assert {path: score.rule for path, score in scores.items()} == {
        "named.py": "mentioned",
        "a.md": "ranked",
    }
    assert next(iter(scores)) == "named.py"


def test_the_parts_of_a_score_sum_up_to_it(tmp_path: Path) -> None:
    score = weigh(tmp_path, {"tests/a.py": 1.0})["tests/a.py"]
    assert sum(score.parts.values()) == pytest.approx(score.value)
    assert score.parts["words"] == 1.0
    assert score.parts["test"] < 0


def test_files_of_one_name_share_what_the_name_earns(tmp_path: Path) -> None:
    ranked = dict.fromkeys(["a/config.py", "b/config.py", "main.py"], 1.0)
    scores = weigh(tmp_path, ranked, "what do config.py and main.py do")
    named = {path: score.parts["named"] for path, score in scores.items()}
    assert named["a/config.py"] == named["b/config.py"] == named["main.py"] / 2 > 0
