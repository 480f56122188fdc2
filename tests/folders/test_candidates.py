"""Which files are weighed for a question, and their scores."""

from datetime import UTC, datetime, timedelta

import pytest

from llm_common.context.pool import ContextFile, FileMetadata
from llm_common.folders.candidates import rank_value, score_files

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


def test_what_is_half_as_good_is_worth_a_quarter_and_the_mentioned_come_first() -> None:
    shares = {"a.md": 1.0, "b.md": 0.5, "named.py": 0.0}
    scores = score_files([file(path) for path in shares], shares, "q", mentioned={"named.py"}, now=NOW)
    assert {key[1]: score.rule for key, score in scores.items()} == {
        "a.md": "ranked",
        "b.md": "ranked",
        "named.py": "mentioned",
    }
    assert scores["file", "b.md"].value == pytest.approx(scores["file", "a.md"].value / 4)


def test_the_parts_of_a_score_sum_up_to_it() -> None:
    score = score_files([file("tests/a.py")], {"tests/a.py": 1.0}, "q", mentioned=frozenset(), now=NOW)[
        "file", "tests/a.py"
    ]
    assert sum(score.parts.values()) == pytest.approx(score.value) == pytest.approx((0.4 * 1.2) ** 2)
    assert score.parts == pytest.approx({"words": 0.48, "code": 0.096, "recent": 0.0, "test": -0.3456})


def test_a_test_gets_all_its_worth_where_tests_are_asked_for() -> None:
    shares = {"tests/a.py": 1.0, "a.py": 1.0}
    files = [file(path) for path in shares]
    scores = score_files(files, shares, "which test covers this", mentioned=frozenset(), now=NOW)
    assert len({score.value for score in scores.values()}) == 1


def test_a_recent_change_counts_at_the_scale_of_a_week() -> None:
    files = [file("new.md", timedelta(0)), file("week.md", timedelta(days=7)), file("future.md", -timedelta(days=9))]
    scores = score_files(files, {}, "q", mentioned=frozenset(), now=NOW)
    roots = {key[1]: score.value**0.5 for key, score in scores.items()}
    assert roots == pytest.approx({"new.md": 0.2, "week.md": 0.2 / 2.71828, "future.md": 0.2}, rel=1e-4)
