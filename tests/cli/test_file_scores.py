"""What a file is worth to a question."""

from datetime import UTC, datetime, timedelta

import pytest

from llm_common.agents.context.pool import ContextFile, FileMetadata
from llm_common.cli.file_scores import rank_value, score_files

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def file(path: str, age: timedelta = timedelta(days=999)) -> ContextFile:
    return ContextFile(
        id=path, path=path, name=path, content="", language=None, metadata=FileMetadata(last_modified=NOW - age)
    )


@pytest.mark.parametrize(
    "path", ["tests/a.py", "src/__tests__/a.ts", "a_test.go", "x/test_a.py", "a.spec.ts", "conftest.py", "t/unit/a.py"]
)
def test_tests_count_less_unless_they_are_asked_for(path: str) -> None:
    assert rank_value(path, 1.0, "how") == pytest.approx(1.1)
    assert rank_value(path, 1.0, "which test covers this") == pytest.approx(1.2)


def test_code_counts_more_than_prose() -> None:
    assert rank_value("a.py", 0.5, "q") > rank_value("a.md", 0.5, "q")
    assert rank_value("contest.py", 0.5, "q") == rank_value("latest/a.py", 0.5, "q") == pytest.approx(0.7)


def test_the_nearly_best_are_pinned_and_the_mentioned_come_first() -> None:
    shares = {"a.py": 1.0, "b.py": 0.9, "c.py": 0.1, "tests/t.py": 1.0, "named.py": 0.0}
    scores = score_files([file(path) for path in shares], shares, "q", mentioned={"named.py"}, now=NOW)
    assert {key[1]: score.rule for key, score in scores.items()} == {
        "a.py": "pinned",
        "b.py": "pinned",
        "c.py": "ranked",
        "tests/t.py": "ranked",
        "named.py": "mentioned",
    }
    assert scores["file", "a.py"].parts == pytest.approx({"words": 1.0, "code": 0.2, "test": 0.0, "recent": 0.0})


def test_a_recent_change_counts_at_the_scale_of_a_week() -> None:
    files = [file("new.py", timedelta(0)), file("week.py", timedelta(days=7)), file("future.py", -timedelta(days=9))]
    scores = score_files(files, {}, "q", mentioned=frozenset(), now=NOW)
    recent = {key[1]: score.parts["recent"] for key, score in scores.items()}
    assert recent == pytest.approx({"new.py": 0.2, "week.py": 0.2 / 2.71828, "future.py": 0.2}, rel=1e-4)
