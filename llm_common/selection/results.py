"""Defines the results, protocols, settings and telemetry that selectors share."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from llm_common import _env
from llm_common._telemetry import Attribute, Span, retrieval_attributes
from llm_common.core.models import LLMUsage
from llm_common.core.structured import Attempt, CallOptions, SelectionStatus, cost_of, usage_of
from llm_common.errors import ENDPOINT_WROTE
from llm_common.plans import PlannedTask, ToolCall
from llm_common.tools.validation import Problem

_log = logging.getLogger(__name__)

_DEFAULT_PROVIDER = "zai"  # serves the default model under its plain name
_MAX_CALLS = 100
# A timeout outside these is taken for a mistake, such as milliseconds.
MAX_TIMEOUT_S = 3_600.0
MIN_TIMEOUT_S = 0.001


class ToolSelectionConfig(BaseModel):
    """Settings of tool selection.

    Attributes:
        model: The model to ask first. If it is not set and the client's provider is not z.ai, the
            client's default model is asked instead.
        fallback_model: Asked once if the first reply was not usable. May be the same model. None
            makes no second call.
        max_calls: Maximum number of calls. The model's first calls are kept.
        timeout_s: Seconds for one attempt. A whole selection, including the reading of the
            registry, may take as long for each model that may be asked.
        temperature: Sampling temperature. 0 by default, so that choices can be repeated.
        fail_closed: For compatibility. A failed selection is always empty, never "all tools".
        max_catalogue_tokens: Maximum tokens of the tools in the prompt, as `UpperBoundCounter`
            counts. Within it, every tool has one line (about 340 tools by default). Above it, the
            prompt has a shortlist. At the default, both cost about the same: 20 full schemas of
            165 tokens that change with each prompt, or a prefix that endpoints cache for 10 to
            25% of the price.
        shortlist_tools: How many tools a shortlist shows in full. A registry of at most this size
            is shown in full. On LiveMCPBench (510 tools), 20 tools contain 83% of the tools that a
            plan needs, and 10 tools 71%.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")  # a misspelt setting is an error

    model: str = "glm-4.5-air"
    fallback_model: str | None = None
    max_calls: int = Field(default=5, ge=1, le=_MAX_CALLS)
    timeout_s: float = Field(default=30, ge=MIN_TIMEOUT_S, le=MAX_TIMEOUT_S)
    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    fail_closed: bool = True
    max_catalogue_tokens: int = Field(default=16_000, ge=1)
    shortlist_tools: int = Field(default=20, ge=1)

    @property
    def total_s(self) -> float:
        """Return the maximum seconds of a whole selection."""
        return self.call_options().total_s

    def call_options(self, *, client: object = None) -> CallOptions:
        """Return the settings of the model calls for a client."""
        model: str | None = self.model
        provider = getattr(client, "provider", None)
        if (
            "model" not in self.model_fields_set
            and isinstance(provider, str)  # a mock has any attribute
            and provider != _DEFAULT_PROVIDER
        ):
            model = None  # other providers do not serve the default model
        return CallOptions(
            model=model,
            fallback_model=self.fallback_model,
            timeout_s=self.timeout_s,
            temperature=self.temperature,
        )

    @classmethod
    def from_env(cls) -> Self:
        """Read the settings from the `LLM_COMMON_TOOL_SELECTION_*` variables.

        Empty variables count as unset.

        Raises:
            ConfigError: If a variable cannot be used. The message has its name and value.
        """
        max_calls = _env.read_int(_env.TOOL_SELECTION_MAX_CALLS, minimum=1, maximum=_MAX_CALLS)
        timeout_s = _env.read_float(
            _env.TOOL_SELECTION_TIMEOUT_S, minimum=MIN_TIMEOUT_S, maximum=MAX_TIMEOUT_S
        )
        settings = {
            # Without the variable's default, so that an unset model can become the client's own.
            "model": _env.read_text(replace(_env.TOOL_SELECTION_MODEL, default="")),
            "fallback_model": _env.read_text(_env.TOOL_SELECTION_FALLBACK_MODEL),
            "max_calls": max_calls,
            "timeout_s": timeout_s,
            "fail_closed": _env.read_flag(_env.TOOL_SELECTION_FAIL_CLOSED),
        }
        return cls.model_validate(
            {name: value for name, value in settings.items() if value is not None}
        )


def checked_config(config: object) -> ToolSelectionConfig:
    """Return the configuration. None reads the environment.

    Raises:
        ConfigError: If an environment variable cannot be used.
        TypeError: If it is not a `ToolSelectionConfig`.
    """
    if config is None:
        return ToolSelectionConfig.from_env()
    if not isinstance(config, ToolSelectionConfig):
        raise TypeError(
            f"config must be a ToolSelectionConfig, got {type(config).__name__}; "
            "pass ToolSelectionConfig(model=..., max_calls=...)"
        )
    return config


DropReason = Literal[
    "malformed",
    "unknown_tool",
    "invalid_args",
    "unfilled",
    "unread",
    "tie",
    "writes",
    "repeat",
    "over_limit",
]

_REASONS: dict[DropReason, str] = {
    "malformed": "malformed: it has no tool, or its args are not an object",
    "unknown_tool": "unknown tool: no offered tool has this name",
    "invalid_args": "invalid args",
    "unfilled": "unfilled: the texts have no value for its required arguments",
    "unread": "unread: the request states more than its arguments can have",
    "tie": "tie: another tool fits as well",
    "writes": "writes: it is not known to be read-only, and `allow_writes` is not set",
    "repeat": "repeat: the same call was proposed before",
    "over_limit": "over limit: `max_calls` valid calls come before it",
}


@dataclass(frozen=True, slots=True)
class DroppedCall:
    """A proposed call that will not run.

    Attributes:
        tool: The proposed name, on one line of at most 64 characters. "" without a name.
        reason: `malformed` (no tool, or args that are not an object), `unknown_tool`,
            `invalid_args`, `unfilled` (a required argument has no value), `unread` (the request
            states more than the arguments have), `tie` (another tool fits as well), `writes` (not
            known to be read-only), `repeat`, or `over_limit` (beyond `max_calls`).
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


class Selection(BaseModel):
    """The fields that both kinds of selection share. The subclasses document them."""

    model_config = ConfigDict(frozen=True)

    status: SelectionStatus
    used: Literal["model", "lexical"]
    attempts: tuple[Attempt, ...] = ()
    fallback: bool = False
    problem: str = ""

    @property
    def failed(self) -> bool:
        """Return whether the selection failed. An empty choice is not a failure."""
        return self.status in {"error", "timeout", "invalid"}

    @property
    def cost_usd(self) -> float | None:
        """Return the cost of all attempts in dollars. None if the price of one is unknown."""
        return cost_of(self.attempts)


class ToolSelection(Selection):
    """The tool calls to run, and how they were chosen.

    Attributes:
        calls: The calls to run, most useful first. Empty if `failed`.
        status: `ok`, `empty` (no tool is needed), `no_candidates` (the registry has no tools),
            `timeout`, `invalid` or `error`. The last three describe how the last attempt ended.
            `error` may also precede any attempt.
        used: `model`, or `lexical` for the full-text ranking.
        attempts: One record for each model call, in order.
        dropped: Proposed calls that will not run.
        notes: Conversions in the calls to run, such as a `null` for an optional argument that was
            left out. Without values.
        again: Whether the model asked to choose again after the calls return.
        tools_total: The number of tools in the registry. None if it offers only text.
        tools_shown: The number of tools that the selector saw. With a shortlist, fewer than
            `tools_total`.
        fallback: Whether the fallback model was asked.
        problem: The reason if `failed`, without text of a user, tool or reply. Else "".
    """

    calls: tuple[ToolCall, ...] = ()
    dropped: tuple[DroppedCall, ...] = ()
    notes: tuple[str, ...] = ()
    again: bool = False
    tools_total: int | None = None
    tools_shown: int | None = None

    @property
    def usage(self) -> LLMUsage:
        """Return the tokens of all attempts together. An uncounted attempt adds none."""
        return usage_of(self.attempts)


class SelectsTools(Protocol):
    """Turns a task into tool calls. Applications may implement it."""

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


Source = Literal["tool_outputs", "tools"]
_NOUNS: Final[Mapping[Source, str]] = {"tool_outputs": "outputs", "tools": "tools"}


def report_selection(
    span: Span, source: Source, selection: Selection, scores: Mapping[str, float | None]
) -> None:
    """Set the attributes of the span, and log one warning if the selection failed.

    Args:
        span: The span of the operation.
        source: The kind of candidates.
        selection: The selection.
        scores: The chosen ids with their scores. None for an unknown score.
    """
    attributes: dict[str, Attribute] = {
        "llm_common.selection.status": selection.status,
        "llm_common.selection.used": selection.used,
        "llm_common.selection.fallback": selection.fallback,
    }
    span.set_attributes({**attributes, **retrieval_attributes(dict(scores))})
    if selection.failed:
        span.fail(selection.status)
        # A selection that failed before any call has no model to name.
        models = [attempt.model for attempt in selection.attempts if attempt.model]
        model = ""
        if models and not selection.problem.startswith("model "):  # as an LLMError begins
            model = f", model {models[-1]}"
        _log.warning(
            "no %s were chosen: status %s%s: %s",
            _NOUNS[source],
            selection.status,
            model,
            selection.problem.partition(f". {ENDPOINT_WROTE}")[0],
        )
