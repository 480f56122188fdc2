"""The life of a result after a read, from the records alone."""

from datetime import UTC, datetime, timedelta

import pytest

from llm_common.agents import ContextPointer
from llm_common.pointers.renewal import is_due, read_bytes, renewed

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
    expires_at = renewed(pointer(), read_bytes(read_at)).expires_at
    assert expires_at is not None
    assert datetime.fromisoformat(expires_at) == read_at + timedelta(days=1)


@pytest.mark.parametrize("hours", [-5, 0])
def test_a_read_before_the_save_shortens_nothing(hours: float) -> None:
    saved = pointer()
    assert renewed(saved, read_bytes(START + timedelta(hours=hours))) is saved


@pytest.mark.parametrize(
    "last_read", [None, b"", b"{}", b"[]", b'{"read_at": "soon"}', b'{"read_at": "9999-12-31"}']
)
def test_a_read_that_is_missing_or_damaged_counts_as_none(last_read: bytes | None) -> None:
    saved = pointer()
    assert renewed(saved, last_read) is saved


def test_only_a_renewable_result_is_extended() -> None:
    read = read_bytes(START + timedelta(hours=5))
    for saved in (pointer(life_s=None), pointer(left_s=None)):
        assert renewed(saved, read) is saved
        assert not is_due(saved, START + timedelta(days=300))


@pytest.mark.parametrize(
    ("life_s", "due_s"), [(DAY_S, 3_600.0), (7_200.0, 3_600.0), (7_000.0, 3_500.0), (10.0, 5.0)]
)
def test_a_read_counts_after_an_hour_or_half_of_a_short_life(life_s: float, due_s: float) -> None:
    saved = pointer(life_s=life_s, left_s=life_s)
    assert is_due(saved, START + timedelta(seconds=due_s))
    assert not is_due(saved, START + timedelta(seconds=due_s, microseconds=-1))


def test_a_time_that_cannot_be_read_is_never_due() -> None:
    odd = pointer().model_copy(update={"expires_at": "tomorrow"})
    assert not is_due(odd, START)
    early = pointer(life_s=1e15)
    assert not is_due(early, START)
