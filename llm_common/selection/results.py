"""What selectors are asked, return and report, and the settings of tool selection."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from llm_common import _env
from llm_common._telemetry import Attribute, Span, facts_of_found, operation
from llm_common.core.models import LLMUsage
from llm_common.core.selection_cache import SelectionCache
from llm_common.core.structured import Attempt, cost_of, usage_of
from llm_common.core.two_attempts import CallOptions, SelectionStatus
from llm_common.plans import PlannedTask, ToolCall
from llm_common.pointers.pointer import ContextPointer
from llm_common.tools.validation import Problem

_log = logging.getLogger(__name__)

_DEFAULT_PROVIDER = "zai"  # serves the default model under its plain name
_MAX_CALLS = 100
MAX_TIMEOUT_S = 3_600.0
MIN_TIMEOUT_S = 0.001


class ToolSelectionConfig(BaseModel):
    """How tools are selected.

    Attributes:
        model: Asked first. If it is not set and the client names another provider than z.ai, the
            client's own default is asked instead.
        fallback_model: Asked once if the first reply was not usable; may be the same. None makes no
            second call.
        max_calls: Most calls of a selection; the model's first ones are kept.
        timeout_s: Seconds for one attempt.
        deadline_s: Seconds for a whole selection, shared by its attempts and by reading the
            registry. None is `timeout_s` for each model that may be asked.
        temperature: Sampling temperature; 0, since a choice of tools should repeat.
        retry_dropped: Asks the fallback also if only some of the calls can run. The first model's
            choice stays unless the second answer has as many calls that can run. Off by default,
            since it costs a model call.
        fail_closed: Kept for callers. A failed selection is empty either way, never "all tools".
        max_catalogue_tokens: Limit of the tools in the prompt, as `UpperBoundCounter` counts. Up to
            it every tool is shown on one line (about 340 tools by default); above it, a shortlist.
            The default is where both cost about the same: 20 full schemas that are new each time,
            165 tokens each, against a prefix that endpoints cache for a tenth to a quarter of the
            price.
        shortlist_tools: How many tools a shortlist shows in full; a registry of at most that size
            is shown in full. On LiveMCPBench (510 tools) twenty hold 83% of the tools that a plan
            needs, ten 71%.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = "glm-4.5-air"
    fallback_model: str | None = None
    max_calls: int = Field(default=5, ge=1, le=_MAX_CALLS)
    timeout_s: float = Field(default=30, ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S)
    deadline_s: float | None = Field(default=None, ge=MIN_TIMEOUT_S, le=2 * MAX_TIMEOUT_S)
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    retry_dropped: bool = False
    fail_closed: bool = True
    max_catalogue_tokens: int = Field(default=16_000, ge=1)
    shortlist_tools: int = Field(default=20, ge=1)

    @property
    def total_s(self) -> float:
        """Seconds that a whole selection may take."""
        return self.call_options().total_s

    def call_options(
        self, cache: SelectionCache | None = None, *, client: object = None
    ) -> CallOptions:
        """The part of the settings that concerns the model calls of this client."""
        model: str | None = self.model
        provider = getattr(client, "provider", None)
        if (
            "model" not in self.model_fields_set
            and isinstance(provider, str)
            and provider != _DEFAULT_PROVIDER
        ):
            model = None  # the client's own
        return CallOptions(
            model=model,
            fallback_model=self.fallback_model,
            timeout_s=self.timeout_s,
            deadline_s=self.deadline_s,
            temperature=self.temperature,
            cache=cache,
        )

    @classmethod
    def from_env(cls) -> Self:
        """The settings of the `LLM_COMMON_TOOL_SELECTION_*` variables, empty ones unset.

        Raises:
            ConfigError: A variable cannot be used; the text names it and its value.
        """
        max_calls = _env.read_int(_env.TOOL_SELECTION_MAX_CALLS, minimum=1, maximum=_MAX_CALLS)
        timeout_s = _env.read_float(
            _env.TOOL_SELECTION_TIMEOUT_S, minimum=MIN_TIMEOUT_S, maximum=MAX_TIMEOUT_S
        )
        given = {
            # the default counts as not set
            "model": _env.read_text(replace(_env.TOOL_SELECTION_MODEL, default="")),
            "fallback_model": _env.read_text(_env.TOOL_SELECTION_FALLBACK_MODEL),
            "max_calls": max_calls,
            "timeout_s": timeout_s,
            "fail_closed": _env.read_flag(_env.TOOL_SELECTION_FAIL_CLOSED),
        }
        return cls.model_validate(
            {name: value for name, value in given.items() if value is not None}
        )


def checked_config(config: object) -> ToolSelectionConfig:
    """The configuration; None reads the environment.

    Raises:
        ConfigError: An environment variable cannot be used.
        TypeError: It is none.
    """
    if config is None:
        return ToolSelectionConfig.from_env()
    if not isinstance(config, ToolSelectionConfig):
        raise TypeError(
            f"config is of type {type(config).__name__}; pass a ToolSelectionConfig(model=..., "
            "max_calls=...)"
        )
    return config


def selection_cap(max_selected: int | None) -> int:
    """Return the maximum number of pointers to keep: the argument, the variable's, or 6.

    Raises:
        ValueError: If the argument is negative.
        ConfigError: If the variable is not a number.
    """
    if max_selected is None:
        return _env.read_int(_env.CONTEXT_SELECTION_MAX_POINTERS, minimum=0, maximum=10_000) or 0
    if max_selected < 0:
        raise ValueError(f"max_selected is {max_selected}; it must be 0 or more")
    return max_selected


ChoiceReason = Literal["chosen", "not chosen", "over the cap", "not shown"]


@dataclass(frozen=True, slots=True)
class Weight:
    """What a selector holds of a candidate that it weighed.

    Attributes:
        probability: Probability that the candidate fits, from 0 to 1.
        share: Its part of the choice between all candidates, from 0 to 1.
    """

    probability: float = 0.0
    share: float = 0.0


class _Choice(BaseModel):
    """Why one candidate was kept (`chosen`) or was not.

    Attributes:
        probability: Probability that it is needed. None if the selector does not weigh candidates.
        share: Its part of the choice between all candidates. None likewise.
    """

    model_config = ConfigDict(frozen=True)

    reason: ChoiceReason
    probability: float | None = None
    share: float | None = None


class PointerChoice(_Choice):
    """Why one output was kept or was not."""

    pointer_id: str


class ToolChoice(_Choice):
    """Why one tool was chosen or was not."""

    tool: str


DropReason = Literal[
    "malformed", "unknown_tool", "invalid_args", "unfilled", "tie", "writes", "repeat", "over_limit"
]

_REASONS: dict[DropReason, str] = {
    "malformed": "malformed: it names no tool, or its args are no object",
    "unknown_tool": "unknown tool: none that is offered has this name",
    "invalid_args": "invalid args",
    "unfilled": "unfilled: the texts do not hold its required arguments",
    "tie": "tie: another tool fits as well",
    "writes": "writes: nothing says that it only reads, and `allow_writes` is not set",
    "repeat": "repeat: the same call came before",
    "over_limit": "over limit: there are `max_calls` valid calls before it",
}


@dataclass(frozen=True, slots=True)
class DroppedCall:
    """A proposed call that will not run.

    Attributes:
        tool: The proposed name, on one line of at most 64 characters. Empty without one.
        reason: `malformed` (no tool, or args that are not an object), `unknown_tool`,
            `invalid_args`, `unfilled` (a required argument has no value), `tie` (another tool fits
            as well), `writes` (nothing says that it only reads), `repeat`, or `over_limit` (beyond
            `max_calls`).
        problems: The problems of the arguments, without their values.
    """

    tool: str
    reason: DropReason
    problems: tuple[Problem, ...] = ()

    def __str__(self) -> str:
        text = f"{self.tool or 'a call'}: {_REASONS[self.reason]}"
        if self.problems:
            text += f" ({'; '.join(map(str, self.problems))})"
        return text


class _Selection(BaseModel):
    """What both kinds of selection tell. The subclasses document the fields."""

    model_config = ConfigDict(frozen=True)

    status: SelectionStatus
    used: Literal["model", "lexical"]
    attempts: tuple[Attempt, ...] = ()
    tokens_saved: int = 0
    cached: bool = False
    fallback: bool = False
    problem: str = ""

    @property
    def failed(self) -> bool:
        """Whether choosing failed. Choosing nothing is not a failure."""
        return self.status in {"error", "timeout", "invalid"}

    @property
    def cost_usd(self) -> float | None:
        """Dollars of all attempts together. None if the price of one is unknown."""
        return cost_of(self.attempts)


class ToolSelection(_Selection):
    """Which tools to call, and how they were chosen.

    Attributes:
        calls: The calls to run, most useful first; empty if `failed`.
        status: `ok`; `empty`, no tool is needed; `no_candidates`, the registry has none; `timeout`,
            `invalid` or `error`, as the last attempt ended, or `error` before any attempt.
        used: What chose: a `model`, or the `lexical` ranking.
        attempts: One record for each model call, in order.
        dropped: Proposed calls that will not run.
        notes: What was read leniently in the calls to run, such as a `null` for an optional
            argument; without values.
        again: Whether the model wants to choose again once it has seen what the calls return.
        choices: One entry for each tool that was weighed, sorted by name. Empty if the selector
            does not weigh tools.
        tools_total: Tools in the registry; None if it offers only text.
        tools_shown: Tools that the selector saw; fewer than `tools_total` with a shortlist.
        tokens_saved: Tokens of the signatures of all tools, less those of the shortlist, as
            `UpperBoundCounter` counts; 0 without a shortlist.
        cached: Whether the reply came from the cache; `attempts` then holds the calls before that.
        fallback: Whether the fallback model was asked.
        problem: What went wrong if `failed`, without text of a user, tool or reply; else "".
    """

    calls: tuple[ToolCall, ...] = ()
    dropped: tuple[DroppedCall, ...] = ()
    notes: tuple[str, ...] = ()
    again: bool = False
    choices: tuple[ToolChoice, ...] = ()
    tools_total: int | None = None
    tools_shown: int | None = None

    @property
    def shortlisted(self) -> bool:
        """Whether some tools were left out before the model chose."""
        return self.tools_shown != self.tools_total

    @property
    def usage(self) -> LLMUsage:
        """Tokens of all attempts together; an uncounted one adds nothing."""
        return usage_of(self.attempts)


class DroppedId(BaseModel):
    """An ignored entry of the model's list: no id of a shown candidate, or a repeat."""

    model_config = ConfigDict(frozen=True)

    id: str
    reason: Literal["unknown", "repeat"]


class RelevanceSelection(_Selection):
    """The chosen pointers, and how they were chosen.

    Attributes:
        pointers: The chosen ones, most useful first.
        status: `ok`; `empty`: a sound answer that nothing is relevant; `no_candidates`: no
            candidates, or none allowed, and no call was made; `timeout`, `error`: the model gave no
            answer; `invalid`: its answer is not in the form that was asked for.
        used: What chose: the `model`, or the `lexical` ranking.
        attempts: One record for each model call, with latency, usage and error.
        choices: One entry for each candidate, in the order given.
        dropped: Entries of the model's list that were ignored, the first 100.
        not_shown: Candidates that no model was shown.
        tokens_saved: Tokens that those would have taken, estimated from the first that were shown.
        cached: Whether the reply came from the cache; `attempts` then holds the calls before that.
        fallback: Whether the fallback model was asked, or the ranking used in the model's place.
        problem: What went wrong if `failed`, without text of a user or reply; else "".
    """

    pointers: list[ContextPointer] = []
    choices: tuple[PointerChoice, ...] = ()
    dropped: tuple[DroppedId, ...] = ()
    not_shown: int = 0

    @property
    def model(self) -> str | None:
        """The model that was asked last. None if none was named or asked."""
        return self.attempts[-1].model if self.attempts else None

    @property
    def usage(self) -> LLMUsage | None:
        """Tokens of all attempts together. None if the endpoint counted none."""
        if any(attempt.usage for attempt in self.attempts):
            return usage_of(self.attempts)
        return None


class SelectsTools(Protocol):
    """Turns a task into tool calls: our selectors, or an application's own class."""

    async def select_detailed(
        self,
        *,
        task: PlannedTask,
        tool_registry: Any,
        query: str | None = None,
        context: dict[str, Any] | None = None,
        rounds_left: int = 0,
    ) -> ToolSelection:
        """Select the calls for one task. Failures are the selection's status, never raised.

        `rounds_left` is how many times the caller can choose again for this task. A selection
        asks for it with `again`.
        """


class SelectsPointers(Protocol):
    """Selects the outputs that a query needs: our selectors, or an application's own class."""

    async def select_detailed(
        self, *, query: str, pointers: Sequence[ContextPointer]
    ) -> RelevanceSelection:
        """Select pointers for one query. Failures are the selection's status, never raised."""


Source = Literal["tool_outputs", "tools"]
_NOUNS: Final[Mapping[Source, str]] = {"tool_outputs": "outputs", "tools": "tools"}


@contextmanager
def observed_selection(
    source: Source, *, candidates: int | None = None, max_selected: int | None = None
) -> Iterator[Span]:
    """Open a `retrieval` operation for the duration of a selection.

    Args:
        source: What is chosen from.
        candidates: How many there are, if that is known.
        max_selected: Maximum number that may be chosen, if there is one.
    """
    attributes: dict[str, Attribute] = {"gen_ai.data_source.id": source}
    if candidates is not None:
        attributes["llm_common.retrieval.candidates"] = candidates
    if max_selected is not None:
        attributes["gen_ai.retrieval.top_k"] = max_selected
    with operation("retrieval", source, attributes) as span:
        yield span


def report_selection(
    span: Span, source: Source, selection: _Selection, scores: Mapping[str, float | None]
) -> None:
    """Report what was chosen: attributes of the span, and one warning if choosing failed.

    Args:
        span: Of the operation.
        source: What was chosen from.
        selection: The whole selection.
        scores: The chosen ids with their scores or probabilities, where there are any.
    """
    attributes: dict[str, Attribute] = {
        "llm_common.selection.status": selection.status,
        "llm_common.selection.used": selection.used,
        "llm_common.selection.fallback": selection.fallback,
    }
    span.set_attributes({**attributes, **facts_of_found(dict(scores))})
    if selection.failed:
        span.fail(selection.status)
        models = [attempt.model for attempt in selection.attempts if attempt.model]
        model = f", model {models[-1]}" if models else ""
        _log.warning(
            "no %s were chosen: status %s%s: %s",
            _NOUNS[source],
            selection.status,
            model,
            selection.problem,
        )
