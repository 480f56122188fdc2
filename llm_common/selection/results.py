"""`RelevanceSelection`: what a selector chose, and why."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from llm_common import _env
from llm_common.core.models import LLMUsage
from llm_common.core.structured import Attempt, cost_of, usage_of
from llm_common.plans import PlannedTask, ToolCall
from llm_common.pointers.pointer import ContextPointer
from llm_common.selection.tool_calls import DroppedCall

__all__ = [
    "ChoiceReason",
    "DroppedId",
    "PointerChoice",
    "RelevanceSelection",
    "SelectionStatus",
    "SelectsTools",
    "ToolSelection",
    "ToolSelectionConfig",
    "distinct",
    "explained",
]

SelectionStatus = Literal["ok", "empty", "no_candidates", "error", "timeout", "invalid"]

_MAX_CALLS = 100
_MAX_TIMEOUT_S = 3600.0
_MIN_TIMEOUT_S = 0.001


class ToolSelectionConfig(BaseModel):
    """How tools are selected.

    Attributes:
        model: Asked first.
        fallback_model: Asked once, when the first gave nothing usable; may be the same. None asks nobody else.
        max_calls: Most calls of a selection; the model's first ones are kept.
        timeout_s: Seconds for one attempt.
        deadline_s: Seconds for a whole selection, which its attempts share: reading the registry counts, and a second
            attempt gets what the first has left. None is `timeout_s` for each model that may be asked.
        temperature: Sampling temperature; 0, since choosing tools is no place for variety.
        retry_dropped: Whether the fallback is asked too when some of the calls can run and others cannot. What the
            first model chose stays, unless the second answer has as many calls that can run. Off by default: such an
            answer is a success, and costs one model call.
        fail_closed: Kept for callers. A failed selection is empty either way, never "all tools".
        max_catalogue_tokens: Room for tools in the prompt, as `UpperBoundCounter` counts. Up to it every tool is shown,
            on one line each (about 340 tools by default); above it, a shortlist. The default is where both cost about
            the same: 20 full schemas that are new each time, 165 tokens each, against a prefix that endpoints cache
            for a tenth to a quarter of the price.
        shortlist_tools: How many tools are shown in full where not all are; also the size up to which a registry is
            shown in full as it is. On LiveMCPBench (510 tools) twenty hold 83% of the tools that a plan needs, ten 71%.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = "glm-4.5-air"
    fallback_model: str | None = None
    max_calls: int = Field(default=5, ge=1, le=_MAX_CALLS)
    timeout_s: float = Field(default=30, ge=_MIN_TIMEOUT_S, le=_MAX_TIMEOUT_S)
    deadline_s: float | None = Field(default=None, ge=_MIN_TIMEOUT_S, le=2 * _MAX_TIMEOUT_S)
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    retry_dropped: bool = False
    fail_closed: bool = True
    max_catalogue_tokens: int = Field(default=16_000, ge=1)
    shortlist_tools: int = Field(default=20, ge=1)

    @property
    def total_s(self) -> float:
        """Seconds that a whole selection may take."""
        if self.deadline_s is not None:
            return self.deadline_s
        return self.timeout_s * (1 if self.fallback_model is None else 2)

    @classmethod
    def from_env(cls) -> Self:
        """The settings that the `LLM_COMMON_TOOL_SELECTION_*` variables give; an empty one counts as unset.

        Raises:
            ConfigError: A variable cannot be used; the text names it and its value.
        """
        max_calls = _env.read_int(_env.TOOL_SELECTION_MAX_CALLS, minimum=1, maximum=_MAX_CALLS)
        timeout_s = _env.read_float(_env.TOOL_SELECTION_TIMEOUT_S, minimum=_MIN_TIMEOUT_S, maximum=_MAX_TIMEOUT_S)
        given = {
            "model": _env.read_text(_env.TOOL_SELECTION_MODEL),
            "fallback_model": _env.read_text(_env.TOOL_SELECTION_FALLBACK_MODEL),
            "max_calls": max_calls,
            "timeout_s": timeout_s,
            "fail_closed": _env.read_flag(_env.TOOL_SELECTION_FAIL_CLOSED),
        }
        return cls.model_validate({name: value for name, value in given.items() if value is not None})


class ToolSelection(BaseModel):
    """Which tools to call, and how that came about.

    Attributes:
        calls: The calls to run, in the order of their usefulness; empty whenever `failed`.
        status: `ok`; `empty`, no tool is needed; `no_candidates`, the registry has none; `timeout`, `invalid` or
            `error`, as the last attempt ended, or `error` before any attempt.
        used: Who chose: a `model`, or the `lexical` ranking.
        attempts: One record per model call, in order; at most two.
        dropped: Proposed calls that will not run.
        tools_total: Tools in the registry; None when it offers nothing but text.
        tools_shown: Tools that the selector saw; fewer than `tools_total` when they were shortlisted.
        tokens_saved: Tokens that the signatures of all tools take, less those of the shortlist that was shown in their
            place, as `UpperBoundCounter` counts; 0 without a shortlist.
        cached: Whether the reply came from the selector's cache; its `attempts` are then those that came before it.
        problem: What went wrong when `failed`, without anything that a user, tool or model wrote; else "".
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    calls: tuple[ToolCall, ...] = ()
    status: SelectionStatus
    used: Literal["model", "lexical"]
    attempts: tuple[Attempt, ...] = ()
    dropped: tuple[DroppedCall, ...] = ()
    tools_total: int | None = None
    tools_shown: int | None = None
    tokens_saved: int = 0
    cached: bool = False
    problem: str = ""

    @property
    def failed(self) -> bool:
        """Whether choosing failed, which is not the same as choosing nothing."""
        return self.status in {"error", "timeout", "invalid"}

    @property
    def shortlisted(self) -> bool:
        """Whether some tools were left out before the model chose."""
        return self.tools_shown != self.tools_total

    @property
    def usage(self) -> LLMUsage:
        """Tokens of all attempts together; an attempt whose endpoint did not count them adds nothing."""
        return usage_of(self.attempts)

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts together; None as soon as one attempt's price is not known."""
        return cost_of(self.attempts)


class SelectsTools(Protocol):
    """Whatever turns a task into tool calls: `ToolSelector`, `LexicalToolSelector`, or an application's own."""

    async def select_detailed(
        self, *, task: PlannedTask, tool_registry: Any, query: str | None = None, context: dict[str, Any] | None = None
    ) -> ToolSelection:
        """The selection for one task, with its record; never an exception for what a model, tool or registry does."""


ChoiceReason = Literal["chosen", "not chosen", "over the cap", "not shown"]


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
