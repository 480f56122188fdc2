"""The life of a result after a read, from the records alone."""

from datetime import UTC, datetime, timedelta

import pytest

from llm_common.agents import ContextPointer
from llm_common.pointers.renewal import renewed

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY_S = 86_400.0


def pointer(*, life_s: float | None = DAY_S, left_s: float | None = DAY_S) -> ContextPointer:
    """Return a pointer that expires some seconds after the start."""
    expires_at = None if left_s is None else (START + timedelta(seconds=left_s)).isoformat()
    return ContextPointer(
        pointer_id="0" * 12,
        query_id="q",
        tool_name="t",
        result_path="",
        created_at=START.isoformat(),
        summary="",
        expires_at=expires_at,
        renew_s=life_s,
    )


def test_a_read_extends_the_life_from_its_own_time() -> None:
    read_at = START + timedelta(hours=5)
    longer = renewed(pointer(), read_at)
    assert longer is not None
    assert datetime.fromisoformat(longer.expires_at or "") == read_at + timedelta(days=1)


@pytest.mark.parametrize("hours", [-5, 0])
def test_a_read_before_the_save_shortens_nothing(hours: float) -> None:
    assert renewed(pointer(), START + timedelta(hours=hours)) is None


def test_only_a_renewable_result_is_extended() -> None:
    for saved in (pointer(life_s=None), pointer(left_s=None)):
        assert renewed(saved, START + timedelta(days=300)) is None


@pytest.mark.parametrize(
    ("life_s", "due_s"), [(DAY_S, 3_600.0), (7_200.0, 3_600.0), (7_000.0, 3_500.0), (10.0, 5.0)]
)
def test_a_read_counts_after_an_hour_or_half_of_a_short_life(life_s: float, due_s: float) -> None:
    saved = pointer(life_s=life_s, left_s=life_s)
    assert renewed(saved, START + timedelta(seconds=due_s))
    assert not renewed(saved, START + timedelta(seconds=due_s, microseconds=-1))


def test_a_time_that_cannot_be_read_is_never_due() -> None:
    assert renewed(pointer().model_copy(update={"expires_at": "tomorrow"}), START) is None
    assert renewed(pointer(life_s=1e15), START) is None
