"""What a selection tells its listeners, in numbers and names of the library's own; never a text of the user's."""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from llm_common.errors import ToolFailedError
from llm_common.tools.external import foreign_code

__all__ = [
    "ContextEvent",
    "EventName",
    "Listener",
    "budget_exceeded",
    "emit",
    "file_scored",
    "selection_complete",
    "selection_start",
]

EventName = Literal[
    "context.selection.start", "context.file.scored", "context.budget.exceeded", "context.selection.complete"
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ContextEvent:
    """One step of a selection (specification, "Observable Events").

    A selection emits `context.selection.start`, then `context.file.scored` once a file in the order of their ids, then
    `context.budget.exceeded` if the budget leaves nothing to select with, then `context.selection.complete`.

    Attributes:
        name: Which step.
        data: Its figures; the functions of this module tell which.
    """

    name: EventName
    data: Mapping[str, str | int | float]


Listener = Callable[[ContextEvent], None]
"""Called within the selection, so a slow one slows it down; what it returns or raises changes nothing."""


def selection_start(*, intent: str, budget: int) -> ContextEvent:
    """The event that opens a selection, with the tokens that it may take in effect."""
    return ContextEvent("context.selection.start", {"intent": str(intent), "budget": budget})


def file_scored(*, file_id: str, score: float) -> ContextEvent:
    """The event of one scored file."""
    return ContextEvent("context.file.scored", {"file": file_id, "score": score})


def budget_exceeded(*, requested: int, available: int) -> ContextEvent:
    """The event of a budget that the system's tokens take up: how many those are, and how many there are."""
    return ContextEvent("context.budget.exceeded", {"requested": requested, "available": available})


def selection_complete(
    *, duration_ms: float, files_selected: int, turns_selected: int, tokens_used: int, budget_utilization: float
) -> ContextEvent:
    """The event that closes a selection."""
    return ContextEvent(
        "context.selection.complete",
        {
            "duration_ms": duration_ms,
            "files_selected": files_selected,
            "turns_selected": turns_selected,
            "tokens_used": tokens_used,
            "budget_utilization": budget_utilization,
        },
    )


def emit(event: ContextEvent, listeners: Iterable[Listener]) -> None:
    """Tells every listener, in their order; one that raises is logged and the others hear the event all the same.

    A listener is not awaited: of an async one nothing runs.
    """
    for listener in listeners:
        try:
            with foreign_code("a context listener"):
                answer: object = listener(event)
                if inspect.iscoroutine(answer):
                    answer.close()
                    _log.warning("a context listener is async and was not run; give a plain function")
        except ToolFailedError as exc:
            _log.warning("a context listener failed on %s: %s", event.name, type(exc.__cause__).__name__)
