"""What is asked of the context selector, and the values that pass between its stages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, FiniteFloat

from llm_common.core.tokens import TokenCounter, UpperBoundCounter

__all__ = [
    "APIType",
    "BudgetAllocation",
    "ContextSelectionRequest",
    "EntityKind",
    "ExtractedEntity",
    "IntentMetadata",
    "IntentType",
    "Kind",
    "Score",
    "Scores",
    "UserIntent",
]

Kind = Literal["turn", "file", "memory", "project", "output"]
EntityKind = Literal["file", "path", "symbol", "url", "quoted"]


class IntentType(StrEnum):
    """What the user wants done."""

    CODE_WRITING = "code_writing"
    CODE_DEBUGGING = "code_debugging"
    CODE_REFACTORING = "code_refactoring"
    FILE_ANALYSIS = "file_analysis"
    CONVERSATIONAL = "conversational"
    PROJECT_PLANNING = "project_planning"
    DOCUMENTATION = "documentation"
    COMMAND_EXECUTION = "command_execution"


class APIType(StrEnum):
    """What kind of call the bundle is for; `realtime` caps the budget at 4,096 tokens."""

    REALTIME = "realtime"
    COMPLETION = "completion"
    BATCH = "batch"
    STREAMING = "streaming"


class ExtractedEntity(BaseModel):
    """Something that the request names: its kind, and the text as it stands there."""

    model_config = ConfigDict(frozen=True)

    kind: EntityKind
    text: str


class IntentMetadata(BaseModel):
    """What an intent needs, and the project it is about."""

    model_config = ConfigDict(frozen=True)

    requires_code: bool = False
    requires_files: bool = False
    requires_history: bool = False
    requires_project: bool = False
    current_project: str | None = None


class UserIntent(BaseModel):
    """The user's request, classified."""

    model_config = ConfigDict(frozen=True)

    text: str
    classification: IntentType
    confidence: float = Field(ge=0.0, le=1.0)
    entities: tuple[ExtractedEntity, ...] = ()
    embeddings: tuple[float, ...] | None = None
    metadata: IntentMetadata = IntentMetadata()


def _whole_tokens(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("token_budget must be a whole number")  # noqa: TRY004 - pydantic turns it into its own error
    return value


class ContextSelectionRequest(BaseModel):
    """What to select for, and how much room there is.

    Attributes:
        intent: The classified request; see `classify_intent`.
        token_budget: Most tokens that the rendered bundle may take, positive; an int and nothing else.
        target_api: Caps the budget.
        priority_hints: Paths, names or topics that the user called important; they count as mentioned.
        exclude_patterns: Globs of paths and ids that stay out, whatever else speaks for them.
        min_relevance: Items that score less are left out; None takes the strategy's own cut-off.
        strategy: Name of the scoring strategy: `measured`, the default, or `spec`.
        weights: Factors for parts of the strategy's score, by name.
        counter: Counts what is sent; the default never counts too little.
        now: The moment that ages are measured from; None lets the selector take the present one.
    """

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    intent: UserIntent
    token_budget: Annotated[int, BeforeValidator(_whole_tokens), Field(gt=0)]
    target_api: APIType = APIType.COMPLETION
    priority_hints: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    min_relevance: float | None = Field(default=None, ge=0.0)
    strategy: str = "measured"
    weights: Mapping[str, FiniteFloat] = Field(default_factory=dict)
    counter: TokenCounter = Field(default_factory=UpperBoundCounter)
    now: datetime | None = None


@dataclass(frozen=True, slots=True)
class BudgetAllocation:
    """Tokens per part; `system` and the parts together are `total_budget` exactly."""

    system: int
    recent_turns: int
    files: int
    memory: int
    project: int
    total_budget: int


class Score(NamedTuple):
    """How much an item is worth to a request, and why.

    Attributes:
        value: Finite; higher is better; compares within a kind.
        parts: The summands by name.
        rule: Why it stands where it stands: `mentioned`, `pinned`, `ranked`, `excluded`, `below_cut_off`,
            `not_required`.
    """

    value: float
    parts: Mapping[str, float] = MappingProxyType({})
    rule: str = "ranked"


Scores = Mapping[tuple[Kind, str], Score]
"""The score of every item of the pool, by its kind and id."""
