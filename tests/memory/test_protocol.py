"""Tests events, and the summaries made of them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from llm_common.core import MessageRole
from llm_common.memory import Event
from llm_common.memory.protocol import episode_summary

WEST = timezone(timedelta(hours=-5))


def test_an_event_defaults_to_role_user_and_the_current_time_s3_04() -> None:
    event = Event(text="x")
    assert (event.role, event.metadata) == (MessageRole.USER, {})
    assert abs(datetime.now(UTC) - event.timestamp) < timedelta(minutes=1)


@given(st.text(alphabet=st.characters()))
def test_texts_become_storable_everywhere_s3_05(text: str) -> None:
    event = Event(text=text, metadata={text: text})
    event.text.encode()
    assert "\0" not in event.text
    assert Event.model_validate(event.model_dump()) == event
    assert event.metadata == {event.text: event.text}


@pytest.mark.parametrize(
    ("timestamp", "stored"),
    [
        (datetime(2026, 1, 1, 12), datetime(2026, 1, 1, 12, tzinfo=UTC)),  # noqa: DTZ001 - a time without a zone
        (datetime(2026, 1, 1, 12, tzinfo=WEST), datetime(2026, 1, 1, 17, tzinfo=UTC)),
        (datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_timestamps_are_stored_in_utc_s3_05(timestamp: datetime, stored: datetime) -> None:
    assert Event(text="x", timestamp=timestamp).timestamp == stored


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
def test_invalid_fields_of_an_event_raise_s3_04(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Event.model_validate(fields)


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        (["One. Two."], "user: One."),
        (["Version 1.5 is out! Yes"], "user: Version 1.5 is out!"),
        (["今天开会。明天休息。"], "user: 今天开会。"),
        (["a line\nanother"], "user: a line"),
        (["  tab\there "], "user: tab here"),
        (["x" * 500], f"user: {'x' * 153}…"),
        ([], None),
        ([" \n", ""], None),
    ],
)
def test_a_summary_has_the_first_sentence_of_an_event_s3_04(
    texts: list[str], line: str | None
) -> None:
    assert episode_summary([Event(text=text) for text in texts]) == line


def test_a_summary_has_the_newest_lines_that_fit_s3_04() -> None:
    events = [
        Event(role=MessageRole.ASSISTANT, text=f"{number} {'word ' * 60}") for number in range(20)
    ]
    lines = (episode_summary(events) or "").splitlines()
    assert lines[-1].startswith("assistant: 19 ")
    assert len("\n".join(lines)) <= 1_200 < len("\n".join(lines)) + 170
