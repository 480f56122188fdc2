import logging
from collections.abc import Callable

import pytest

from llm_common.context.request import IntentType
from llm_common.context.selector import (
    ContextEvent,
    budget_exceeded,
    emit,
    file_scored,
    selection_complete,
    selection_start,
)

EVENT = selection_start(intent=IntentType.CODE_WRITING, budget=500)


def test_events_hold_the_figures_of_the_specification_s1_12() -> None:
    events = [
        EVENT,
        file_scored(file_id="f1", score=1.5),
        budget_exceeded(requested=200, available=100),
        selection_complete(duration_ms=1.5, files_selected=1, turns_selected=2, tokens_used=3, budget_utilization=0.5),
    ]
    assert [(event.name, dict(event.data)) for event in events] == [
        ("context.selection.start", {"intent": "code_writing", "budget": 500}),
        ("context.file.scored", {"file": "f1", "score": 1.5}),
        ("context.budget.exceeded", {"requested": 200, "available": 100}),
        (
            "context.selection.complete",
            {"duration_ms": 1.5, "files_selected": 1, "turns_selected": 2, "tokens_used": 3, "budget_utilization": 0.5},
        ),
    ]


def raises(_: ContextEvent) -> None:
    raise RuntimeError("secret of the listener")


async def waits(_: ContextEvent) -> None:
    raise AssertionError("is never run")


@pytest.mark.parametrize("listener", [raises, waits], ids=["F-143-raises", "F-143-async"])
def test_a_bad_listener_keeps_no_other_from_hearing_s1_12(
    listener: Callable[[ContextEvent], None], caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[ContextEvent] = []
    with caplog.at_level(logging.WARNING):
        emit(EVENT, [heard.append, listener, heard.append])
    assert heard == [EVENT, EVENT]
    assert "context listener" in caplog.text
    assert "secret" not in caplog.text


def test_an_interrupt_within_a_listener_is_not_swallowed() -> None:
    def interrupted(_: ContextEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        emit(EVENT, [interrupted])
