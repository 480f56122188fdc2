"""`Settings`: the limits and policies of an application, from the environment."""

from dataclasses import dataclass, field
from typing import Final, Self

from llm_common import _env
from llm_common.agents.answering import Answering
from llm_common.agents.runs import RunLimits
from llm_common.agents.session.config import OffloadPolicy
from llm_common.history.policy import FoldPolicy
from llm_common.prompt.prompt_bundle import TokenBudget
from llm_common.selection.relevance import check_relevance_settings
from llm_common.selection.results import ToolSelectionConfig

_MAX_TOKENS: Final = 10_000_000
_MAX_CALLS: Final = 1_000_000
_MAX_AT_ONCE: Final = 1_000
_MAX_TIMEOUT_S: Final = 7 * 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The limits and policies of an application.

    The defaults are those of the library, so an application that passes them changes nothing.

    Attributes:
        tool_selection: How tool calls are chosen.
        budget: The tokens of a prompt and of an answer, for `Answering`.
        limits: The limits of each run.
        offload: Which results become previews.
        fold: When a history is folded, for `SessionConfig`.
    """

    tool_selection: ToolSelectionConfig = field(default_factory=ToolSelectionConfig)
    budget: TokenBudget = field(default_factory=lambda: Answering().budget)
    limits: RunLimits = field(default_factory=RunLimits)
    offload: OffloadPolicy = field(default_factory=OffloadPolicy)
    fold: FoldPolicy = field(default_factory=lambda: FoldPolicy(max_tokens=32_000))

    @classmethod
    def from_env(cls) -> Self:
        """Read and check the environment: the settings below, and those of selecting outputs.

        Raises:
            ConfigError: If a value is malformed or out of range. `.variable` is its variable.
        """
        check_relevance_settings()
        return cls(
            tool_selection=ToolSelectionConfig.from_env(),
            budget=TokenBudget(
                max_input_tokens=_whole(_env.BUDGET_MAX_INPUT_TOKENS),
                max_output_tokens=_whole(_env.BUDGET_MAX_OUTPUT_TOKENS),
            ),
            limits=RunLimits(
                max_calls=_env.read_int(_env.RUN_MAX_CALLS, minimum=1, maximum=_MAX_CALLS),
                max_tokens=_env.read_int(_env.RUN_MAX_TOKENS, minimum=1, maximum=_MAX_TOKENS),
                max_cost_usd=_env.read_float(_env.RUN_MAX_COST_USD, minimum=1e-6, maximum=1e6),
                timeout_s=_env.read_float(_env.RUN_TIMEOUT_S, minimum=0.1, maximum=_MAX_TIMEOUT_S),
                max_rounds=_whole(_env.RUN_MAX_ROUNDS, minimum=1, maximum=_MAX_AT_ONCE),
                max_parallel=_whole(_env.RUN_MAX_PARALLEL, minimum=1, maximum=_MAX_AT_ONCE),
                max_outputs_tokens=_whole(_env.RUN_MAX_OUTPUTS_TOKENS),
            ),
            offload=OffloadPolicy(
                max_whole_tokens=_whole(_env.OFFLOAD_MAX_WHOLE_TOKENS),
                max_preview_tokens=_whole(_env.OFFLOAD_MAX_PREVIEW_TOKENS),
                max_turn_tokens=_whole(_env.OFFLOAD_MAX_TURN_TOKENS),
            ),
            fold=FoldPolicy(
                max_tokens=_whole(_env.FOLD_MAX_TOKENS, minimum=200),
                target_share=_share(_env.FOLD_TARGET_SHARE, minimum=0.2, maximum=0.9),
                note_share=_share(_env.FOLD_NOTE_SHARE, minimum=0.05, maximum=0.5),
            ),
        )


# These variables have a default, so they always have a value.


def _whole(variable: _env.Variable, *, minimum: int = 0, maximum: int = _MAX_TOKENS) -> int:
    number = _env.read_int(variable, minimum=minimum, maximum=maximum)
    assert number is not None
    return number


def _share(variable: _env.Variable, *, minimum: float, maximum: float) -> float:
    share = _env.read_float(variable, minimum=minimum, maximum=maximum)
    assert share is not None
    return share
