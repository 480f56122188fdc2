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


@pytest.mark.parametrize(
    "path",
    [
        "tests/a.py",
        "src/__tests__/a.ts",
        "a_test.go",
        "x/test_a.py",
        "a.spec.ts",
        "conftest.py",
        "t/unit/a.py",
    ],
)
def test_tests_score_less(tmp_path: Path, path: str) -> None:
    ranked = {path: 1.0, "zz.py": 0.95}
    assert list(weigh(tmp_path, ranked)) == ["zz.py", path]


def test_code_counts_more_than_prose(tmp_path: Path) -> None:
    ranked = {"a.md": 1.0, "contest.py": 0.9, "latest/b.py": 0.9}
    assert list(weigh(tmp_path, ranked)) == ["contest.py", "latest/b.py", "a.md"]


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


def test_a_test_loses_less_if_the_query_asks_for_a_change(tmp_path: Path) -> None:
    ranked = {"tests/a.py": 1.0, "a.py": 0.7}
    assert list(weigh(tmp_path, ranked, "Close the port twice")) == ["tests/a.py", "a.py"]
    for query in (
        "where is the port closed",
        "The port stays open\n\nTraceback (most recent call last):",
    ):
        assert list(weigh(tmp_path, ranked, query)) == ["a.py", "tests/a.py"]


def test_source_ranks_before_docs_examples_and_vendored_code(tmp_path: Path) -> None:
    elsewhere = ["docs/conf.py", "examples/a.py", "third_party/a.py", "a.html", "changelog.md"]
    assert (
        next(iter(weigh(tmp_path, {**dict.fromkeys(elsewhere, 1.0), "src/a.py": 0.8})))
        == "src/a.py"
    )


def test_code_is_weighed_even_behind_many_better_matches(tmp_path: Path) -> None:
    prose = {f"docs/{number}.md": 1.0 for number in range(300)}
    assert next(iter(weigh(tmp_path, {**prose, "src/a.py": 0.5}))) == "src/a.py"


def test_files_of_one_name_share_what_the_name_earns(tmp_path: Path) -> None:
    ranked = dict.fromkeys(["a/config.py", "b/config.py", "main.py"], 1.0)
    scores = weigh(tmp_path, ranked, "what do config.py and main.py do")
    named = {path: score.parts["named"] for path, score in scores.items()}
    assert named["a/config.py"] == named["b/config.py"] == named["main.py"] / 2 > 0
