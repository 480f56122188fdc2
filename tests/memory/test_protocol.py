"""Events as every store can hold them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from llm_common.core.models import MessageRole
from llm_common.memory import Event

WEST = timezone(timedelta(hours=-5))


def test_an_event_is_the_users_and_of_now_unless_told_s3_04() -> None:
    event = Event(text="x")
    assert (event.role, event.metadata) == (MessageRole.USER, {})
    assert abs(datetime.now(UTC) - event.timestamp) < timedelta(minutes=1)


@given(st.text(alphabet=st.characters()))
def test_texts_are_what_every_store_can_hold_s3_05(text: str) -> None:
    event = Event(text=text, metadata={text: text})
    event.text.encode()
    assert "\0" not in event.text
    assert Event.model_validate(event.model_dump()) == event
    assert event.metadata == {event.text: event.text}


@pytest.mark.parametrize(
    ("given_time", "kept"),
    [
        (datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=UTC)),  # noqa: DTZ001 - a time without a zone
        (datetime(2026, 1, 1, 12, tzinfo=WEST), datetime(2026, 1, 1, 17, tzinfo=UTC)),
        (datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_times_are_kept_in_utc_s3_05(given_time: datetime, kept: datetime) -> None:
    assert Event(text="x", timestamp=given_time).timestamp == kept


@pytest.mark.parametrize(
    "fields",
    [
        {"text": None},
        {"text": "x", "role": "nobody"},
        {"text": "x", "metadata": {"a": [1]}},
        {"text": "x", "metadata": {"a": float("nan")}},
        {"text": "x", "timestamp": datetime.max.replace(tzinfo=WEST)},
        {"text": "x", "unknown": 1},
    ],
)
def test_what_no_store_can_hold_is_refused_s3_04(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Event.model_validate(fields)
