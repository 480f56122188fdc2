"""`RelevanceSelection`: what a selector chose, and why."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from llm_common.core.models import LLMUsage
from llm_common.core.structured import Attempt, cost_of
from llm_common.pointers.pointer import ContextPointer

__all__ = [
    "ChoiceReason",
    "DroppedId",
    "PointerChoice",
    "RelevanceSelection",
    "SelectionStatus",
    "distinct",
    "explained",
]

ChoiceReason = Literal["chosen", "not chosen", "over the cap", "not shown"]
SelectionStatus = Literal["ok", "empty", "no_candidates", "error", "timeout", "invalid"]


class PointerChoice(BaseModel):
    """Why one candidate was kept (`chosen`) or was not."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    pointer_id: str
    reason: ChoiceReason


class DroppedId(BaseModel):
    """An entry of the model's list that was ignored: not an id of a candidate that it was shown, or there before."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    reason: Literal["unknown", "repeat"]


class RelevanceSelection(BaseModel):
    """The chosen pointers with an account of the choice.

    Attributes:
        pointers: The chosen ones, most useful first.
        status: `ok`; `empty`: a sound answer that nothing is relevant; `no_candidates`: nothing to choose from, or
            nothing allowed, and no call was made; `timeout`, `error`: the model gave no answer; `invalid`: its answer
            was not what was asked for.
        used: What chose: the model, or the local ranking.
        attempts: Every model call with its latency, usage and failure.
        model: The model that was asked last; None when none was named or asked.
        usage: Tokens of all attempts together, where the endpoint counted any.
        choices: One entry for each candidate, in the order given.
        dropped: Entries of the model's list that were ignored, the first 100.
        not_shown: Candidates that the model was not shown, for lack of room.
        tokens_saved: Tokens that those would have taken, as `UpperBoundCounter` counts the first of the others.
        cached: Whether the reply came from the selector's cache; its `attempts` are then those that came before it.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    pointers: list[ContextPointer] = []
    status: SelectionStatus
    used: Literal["model", "lexical"]
    attempts: tuple[Attempt, ...] = ()
    model: str | None = None
    usage: LLMUsage | None = None
    choices: tuple[PointerChoice, ...] = ()
    dropped: tuple[DroppedId, ...] = ()
    not_shown: int = 0
    tokens_saved: int = 0
    cached: bool = False

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts together; None as soon as one attempt's price is not known."""
        return cost_of(self.attempts)


def distinct(pointers: Sequence[ContextPointer]) -> list[ContextPointer]:
    """The pointers in order, each id once; the last pointer of an id counts, since it was saved last."""
    return list({pointer.pointer_id: pointer for pointer in pointers}.values())


def explained(
    candidates: Sequence[ContextPointer],
    chosen: Sequence[ContextPointer],
    *,
    over_the_cap: Sequence[ContextPointer] = (),
    not_shown: Sequence[ContextPointer] = (),
) -> tuple[PointerChoice, ...]:
    """One entry for each candidate, in their order."""
    reasons: dict[str, ChoiceReason] = {pointer.pointer_id: "not chosen" for pointer in candidates}
    reasons.update((pointer.pointer_id, "not shown") for pointer in not_shown)
    reasons.update((pointer.pointer_id, "over the cap") for pointer in over_the_cap)
    reasons.update((pointer.pointer_id, "chosen") for pointer in chosen)
    return tuple(PointerChoice(pointer_id=pointer_id, reason=reason) for pointer_id, reason in reasons.items())
