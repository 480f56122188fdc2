"""Wraps both selectors in one function type, for tests that hold for both."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from llm_common.agents import (
    ContextRelevanceSelector,
    ToolSelectionConfig,
)
from llm_common.core import Attempt
from tests.selection.doubles import candidate, select_tools
from tests.selection.odd_replies import OTHER, SOUND_CALL, SOUND_ID


class Outcome(NamedTuple):
    """The outcome of a selection, with `chosen` as in the model's reply."""

    chosen: list[Any]
    status: str
    attempts: tuple[Attempt, ...]


# Asks a client one question, with optional limits in seconds and a second model.
Chooser = Callable[..., Awaitable[Outcome]]


_CANDIDATES = [candidate(SOUND_ID), candidate(OTHER)]


async def choose_tools(
    client: Any,
    *,
    timeout_s: float = 60.0,
    fallback_model: str | None = None,
    query: str = "weather in Ulm",
) -> Outcome:
    config = ToolSelectionConfig(
        model="test-model", timeout_s=timeout_s, fallback_model=fallback_model
    )
    selection = await select_tools(client, config=config, query=query)
    chosen = [{"tool": call.tool, "args": call.args} for call in selection.calls]
    return Outcome(chosen, selection.status, selection.attempts)


async def choose_pointers(
    client: Any,
    *,
    timeout_s: float = 60.0,
    fallback_model: str | None = None,
    query: str = "weather in Ulm",
) -> Outcome:
    selector = ContextRelevanceSelector(
        client, "test-model", timeout_s=timeout_s, fallback_model=fallback_model
    )
    selection = await selector.select_detailed(query=query, pointers=_CANDIDATES)
    return Outcome(
        [pointer.pointer_id for pointer in selection.pointers], selection.status, selection.attempts
    )


CHOOSERS: dict[str, Chooser] = {"pointers": choose_pointers, "tools": choose_tools}
SOUND_CHOICE: dict[str, list[Any]] = {"pointers": [SOUND_ID], "tools": [SOUND_CALL]}
