"""`assemble`: the bundle made of what was placed."""

from collections.abc import Iterable, Sequence

from llm_common.context.bundle import BundleMetadata, ContextBundle, ItemAccount
from llm_common.context.packing.candidate import Placed
from llm_common.context.pool import ContextFile, MemorySnippet, ProjectState, TurnEntry
from llm_common.context.rendering import KINDS
from llm_common.context.request import BudgetAllocation, ContextSelectionRequest
from llm_common.pointers.pointer import ContextPointer

__all__ = ["assemble", "in_bundle_order"]

_SECTION = {kind: number for number, kind in enumerate(KINDS)}


def in_bundle_order(placed: Iterable[Placed]) -> list[Placed]:
    """By section; turns by time, other items as the previous bundle had them, then the new ones by tier and score."""
    return sorted(placed, key=_place)


def assemble(
    placed: Sequence[Placed],
    dropped: Sequence[ItemAccount],
    *,
    request: ContextSelectionRequest,
    allocation: BudgetAllocation,
    total_tokens: int,
) -> ContextBundle:
    """The bundle of what was placed, in that order, with the accounts of what was not."""
    shown = [_as_shown(each) for each in placed]
    turns = tuple(item for item in shown if isinstance(item, TurnEntry))
    files = tuple(item for item in shown if isinstance(item, ContextFile))
    memory = tuple(item for item in shown if isinstance(item, MemorySnippet))
    outputs = tuple(item for item in shown if isinstance(item, ContextPointer))
    budget = allocation.total_budget
    return ContextBundle(
        turns=turns,
        files=files,
        memory=memory,
        project=next((item for item in shown if isinstance(item, ProjectState)), None),
        outputs=outputs,
        blocks=tuple(each.block for each in placed),
        kept=tuple(each.account for each in placed),
        dropped=dropped,
        metadata=BundleMetadata(
            total_tokens=total_tokens,
            budget=budget,
            budget_utilization=total_tokens / budget,
            selection_strategy=f"intent:{request.intent.classification} budget:{budget} strategy:{request.strategy}",
            files_selected=len(files),
            turns_selected=len(turns),
            memory_selected=len(memory),
            outputs_selected=len(outputs),
            intent=request.intent.classification,
            strategy=request.strategy,
        ),
    )


def _as_shown(placed: Placed) -> TurnEntry | ContextFile | MemorySnippet | ProjectState | ContextPointer:
    """The item itself when it is shown whole; else with the text that is shown instead of it."""
    item = placed.candidate.item
    if placed.form == "whole" or isinstance(item, ProjectState | ContextPointer):
        return item
    text = "text" if isinstance(item, MemorySnippet) else "content"
    return item.model_copy(update={text: placed.shown, "tokens": placed.tokens})


def _place(placed: Placed) -> tuple[int, bool, float, int, float, str]:
    candidate = placed.candidate
    section = _SECTION[candidate.kind]
    if isinstance(candidate.item, TurnEntry):
        return section, False, candidate.item.timestamp.timestamp(), 0, 0.0, candidate.id
    if candidate.before is not None:
        return section, False, candidate.before, 0, 0.0, candidate.id
    return section, True, 0.0, candidate.tier, -candidate.worth, candidate.id
