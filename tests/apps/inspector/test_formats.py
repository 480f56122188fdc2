"""Formats of sizes and times."""

from datetime import UTC, datetime, timedelta

import pytest

from llm_common.apps.inspector import rendering


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 KB"),
        (9_949, "9.9 KB"),
        (9_950, "10 KB"),
        (999_499, "999 KB"),
        (999_500, "1.0 MB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_a_size_has_a_unit_and_at_most_three_digits(count: int | None, text: str) -> None:
    assert rendering.size(count) == text


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(0), "0 seconds ago"),
        (timedelta(seconds=61), "1 minute ago"),
        (timedelta(hours=5), "5 hours ago"),
        (timedelta(days=1_200), "1,200 days ago"),
        (timedelta(hours=-2, seconds=-5), "in 2 hours"),
    ],
)
def test_a_time_is_shown_as_its_distance_from_now(ago: timedelta, text: str) -> None:
    assert rendering.distance(datetime.now(UTC) - ago) == text


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00:00+23:59"])
def test_an_invalid_time_is_not_parsed(text: str) -> None:
    assert rendering.time(text) is None
