"""Define what a selection works on: the pool, the request, its intent, budget and scores."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    model_validator,
)

from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.pointers.pointer import ContextPointer
from llm_common.text.display import one_line


def with_zone(moment: datetime) -> datetime:
    """Return a time with its zone, or else in UTC, so that all times can be compared."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# Exports of other applications may have null for an empty text.
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
Moment = Annotated[datetime, AfterValidator(with_zone)]


class _Item(BaseModel):
    # Items come from the exports of other applications, which may have more fields.
    model_config = ConfigDict(frozen=True, extra="ignore")


class TurnEntry(_Item):
    """A turn of the conversation.

    Attributes:
        id: Unique among the turns.
        timestamp: The time of the turn. A time without a zone is in UTC.
        role: The speaker, such as `user` or `assistant`.
        content: The text. None becomes "".
        tokens: The application's count, which is never used.
        metadata: Data of the application. `compress_turns` reads the ids of its summaries there.
    """

    id: str
    timestamp: Moment
    role: str
    content: Text
    tokens: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class FileMetadata(_Item):
    """Properties of a file.

    Attributes:
        size: Size in bytes. Never used.
        last_modified: Time of the last change. A time without a zone is in UTC.
        is_pinned: Whether the user pinned the file. It then comes before all but mentioned files.
    """

    size: int = 0
    last_modified: Moment | None = None
    is_pinned: bool = False


class ContextFile(_Item):
    """A file with its text.

    Attributes:
        id: Unique among the files.
        path: The path that the prompt shows and that requests may mention.
        name: The name, which requests may mention too.
        content: The text. None becomes "".
        tokens: The application's count, which is never used.
        language: The programming language, for files without a known extension.
        summary: A short text that may replace the content.
        embeddings: A vector that compares with that of the intent. Only `spec` uses it.
        metadata: Properties of the file.
    """

    id: str
    path: str
    name: str
    content: Text
    tokens: float | None = None
    language: str | None = None
    summary: str | None = None
    embeddings: tuple[float, ...] | None = None
    metadata: FileMetadata = FileMetadata()


class MemoryMetadata(_Item):
    """The project that a memory belongs to, if any.

    Attributes:
        project: Name of the project.
    """

    project: str | None = None


class MemorySnippet(_Item):
    """A remembered text.

    Attributes:
        id: Unique among the memories.
        text: The text. None becomes "".
        source: The origin, which the prompt shows.
        timestamp: The time of the memory. A time without a zone is in UTC.
        relevance_score: The relevance that its store returned, usually from 0 to 1.
        tokens: The application's count, which is never used.
        metadata: The project of the memory.
    """

    id: str
    text: Text
    source: str = ""
    timestamp: Moment
    relevance_score: float = 0.0
    tokens: float | None = None
    metadata: MemoryMetadata = MemoryMetadata()


class ProjectState(_Item):
    """The project, which is shown whole or not at all.

    Attributes:
        name: Name of the project.
        root_path: Its root folder.
        language: Its main programming language.
        framework: Its main framework.
        description: What it is for.
        goals: What is to be reached.
        constraints: What has to be kept to.
        recent_changes: What changed lately.
    """

    name: str
    root_path: str
    language: str
    framework: str | None = None
    description: str | None = None
    goals: tuple[str, ...] | None = None
    constraints: tuple[str, ...] | None = None
    recent_changes: tuple[str, ...] | None = None


class DataPoolSnapshot(_Item):
    """All candidates at one moment.

    The order within a kind never matters. An unknown field raises.

    Attributes:
        session_log: The turns of the conversation.
        context_files: The files.
        memory_hits: The memories.
        project_state: The project, if there is one.
        tool_outputs: Pointers to stored outputs.

    Raises:
        ValueError: If two items of a kind have the same id.
    """

    # Unlike items: under a misspelt name, all items of a kind would be left out silently.
    model_config = ConfigDict(extra="forbid")

    session_log: tuple[TurnEntry, ...] = ()
    context_files: tuple[ContextFile, ...] = ()
    memory_hits: tuple[MemorySnippet, ...] = ()
    project_state: ProjectState | None = None
    tool_outputs: tuple[ContextPointer, ...] = ()

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        ids_by_name = {
            "session_log": [turn.id for turn in self.session_log],
            "context_files": [file.id for file in self.context_files],
            "memory_hits": [memory.id for memory in self.memory_hits],
            "tool_outputs": [output.pointer_id for output in self.tool_outputs],
        }
        # Scores and accounts are looked up by kind and id.
        for name, ids in ids_by_name.items():
            if len(set(ids)) < len(ids):
                [(repeated, _)] = Counter(ids).most_common(1)
                repeated_id = one_line(repr(repeated), max_chars=80)
                raise ValueError(
                    f"two items of {name} have the same id {repeated_id}; give each its own"
                )
        return self


Kind = Literal["turn", "file", "memory", "project", "output"]
EntityKind = Literal["file", "path", "symbol", "url", "quoted"]


class IntentType(StrEnum):
    """The kind of task that the user wants done."""

    CODE_WRITING = "code_writing"
    CODE_DEBUGGING = "code_debugging"
    CODE_REFACTORING = "code_refactoring"
    FILE_ANALYSIS = "file_analysis"
    CONVERSATIONAL = "conversational"
    PROJECT_PLANNING = "project_planning"
    DOCUMENTATION = "documentation"
    COMMAND_EXECUTION = "command_execution"


class APIType(StrEnum):
    """The kind of call that the bundle is for. `realtime` caps the budget at 4,096 tokens."""

    REALTIME = "realtime"
    COMPLETION = "completion"
    BATCH = "batch"
    STREAMING = "streaming"


class ExtractedEntity(BaseModel):
    """A name in the request, such as a file or a symbol.

    Attributes:
        kind: Whether it names a file, a path, a symbol or an address, or is quoted.
        text: The name as the request has it.
    """

    model_config = ConfigDict(frozen=True)

    kind: EntityKind
    text: str


class IntentMetadata(BaseModel):
    """The needs of an intent.

    Attributes:
        requires_code: Whether it needs code. `spec` then prefers files with code.
        requires_files: Whether it needs files. For the application only.
        requires_history: Whether it needs earlier turns. For the application only.
        requires_project: Whether it needs the project, which is excluded otherwise.
        current_project: Name of the current project, whose memories are preferred.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    requires_code: bool = False
    requires_files: bool = False
    requires_history: bool = False
    requires_project: bool = False
    current_project: str | None = None


class UserIntent(BaseModel):
    """A classified request.

    Attributes:
        text: The user's request.
        classification: The kind of task.
        confidence: Confidence in the classification, from 0 to 1.
        entities: The names in the request.
        embeddings: A vector of the request, which `spec` compares with those of the files.
        metadata: The needs of the intent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    classification: IntentType
    confidence: float = Field(ge=0.0, le=1.0)
    entities: tuple[ExtractedEntity, ...] = ()
    embeddings: tuple[float, ...] | None = None
    metadata: IntentMetadata = IntentMetadata()


def require_intent(value: object) -> object:
    """Return the value unless it is a str, which is a request that was not classified.

    Raises:
        TypeError: If the value is a str.
    """
    if isinstance(value, str):
        raise TypeError("intent is a str; pass classify_intent(text)")
    return value


def _whole_tokens(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:  # True is an int too
        raise ValueError(f"token_budget is {str(value)[:40]}; give a whole number above 0")
    return value


_SPEC_NAMES: Final[Mapping[str, str]] = {
    "selection_strategy": "strategy",
    "custom_weights": "weights",
}


class ContextSelectionRequest(BaseModel):
    """The task to select for, and the token budget.

    The specification's names `selection_strategy` and `custom_weights` are accepted for `strategy`
    and `weights`. An unknown field raises.

    Attributes:
        intent: The classified request. See `classify_intent`.
        token_budget: Maximum number of tokens of the rendered bundle, a positive int.
        target_api: The kind of call, which may cap the budget.
        priority_hints: Paths, names or topics that the user called important. They count as
            mentioned.
        exclude_patterns: Globs of paths and ids that are always excluded.
        min_relevance: Items that score less are dropped, even the newest turns. Only files that are
            mentioned or pinned stay. The scores of `measured` are between 0 and 1. None uses the
            strategy's own cut-off.
        strategy: Name of the scoring strategy: `measured`, the default, or `spec`.
        weights: Factors for the parts of the strategy's score, by name.
        counter: Counts tokens. The default is `DefaultCounter`.
        now: The time from which ages are measured. None lets the selector use the current time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    intent: Annotated[UserIntent, BeforeValidator(require_intent)]
    token_budget: Annotated[int, BeforeValidator(_whole_tokens), Field(gt=0)]
    target_api: APIType = APIType.COMPLETION
    priority_hints: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    min_relevance: float | None = Field(default=None, ge=0.0)
    strategy: str = "measured"
    weights: Mapping[str, FiniteFloat] = Field(default_factory=dict)
    counter: TokenCounter = Field(default_factory=DefaultCounter)
    now: datetime | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_spec_names(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or _SPEC_NAMES.keys().isdisjoint(fields):
            return fields
        for spec_name, name in _SPEC_NAMES.items():
            if spec_name in fields and name in fields:
                raise ValueError(f"{name} and {spec_name} are the same field; give one of them")
        return {_SPEC_NAMES.get(name, name): value for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class BudgetAllocation:
    """Tokens per part. `system` and the parts add up to `total_budget` exactly."""

    system: int
    recent_turns: int
    files: int
    memory: int
    project: int
    total_budget: int


class Score(NamedTuple):
    """The relevance of an item to a request, with its parts.

    Attributes:
        value: The finite score. Higher is better, and scores compare within a kind. `score_pool`
            returns values from 0 to 1 for the strategy `measured`, and up to 2.0 for a file with
            `spec`.
        parts: The summands of the value, by name.
        rule: The rule that applies to the item: `mentioned`, `pinned`, `ranked`, `excluded`,
            `below_cut_off` or `not_required`.
    """

    value: float
    parts: Mapping[str, float] = MappingProxyType({})
    rule: str = "ranked"


def weighted(
    parts: Mapping[str, float], weights: Mapping[str, float], *, maximum: float = math.inf
) -> Score:
    """Return the sum of the parts, each times the caller's factor for it. Always finite."""
    product = {name: value * weights.get(name, 1.0) for name, value in parts.items()}
    value = sum(product.values())
    # Weights and vectors come from the caller, so the sum may overflow.
    return Score(min(value, maximum) if math.isfinite(value) else 0.0, product)


Scores = Mapping[tuple[Kind, str], Score]
"""The score of every item of the pool, by its kind and id."""


_SYSTEM_TOKENS: Final = 200
"""Tokens reserved for headings and fences.

The specification reserves them for a system prompt ("Phase 1: Budget Allocation"). Here the budget
covers the bundle alone, and the items get what headings and fences leave over.
"""

_API_CAPS: Final[Mapping[APIType, int]] = {APIType.REALTIME: 4_096}
"""The window of each target with a fixed window."""

# Whole percentages, so that the parts are exact for any number of tokens.
SHARES: Final[Mapping[IntentType, tuple[int, int, int, int]]] = {
    IntentType.CODE_WRITING: (20, 60, 10, 10),
    IntentType.CODE_DEBUGGING: (30, 50, 10, 10),
    IntentType.CODE_REFACTORING: (15, 65, 10, 10),
    IntentType.FILE_ANALYSIS: (15, 70, 10, 5),
    IntentType.CONVERSATIONAL: (60, 10, 20, 10),
    IntentType.PROJECT_PLANNING: (25, 25, 20, 30),
    IntentType.DOCUMENTATION: (15, 60, 10, 15),
    IntentType.COMMAND_EXECUTION: (40, 25, 15, 20),
}
"""Percentages for turns, files, memory and project, after the system part, by intent."""


FOLDER_STRATEGY: Final = "files"
"""The name of the strategy of a packed folder. No `ContextSelector` has it by default."""


def allocate_budget(request: ContextSelectionRequest) -> BudgetAllocation:
    """Divide the effective budget into whole tokens for each part, without a remainder.

    That is the request's budget, or the window of its target if that is smaller. Shares are rounded
    down. The tokens left over go to the parts that lost most, and to the first of equals. A budget
    of at most 200 tokens belongs to the system part, so nothing can be selected.

    Args:
        request: The request, whose intent decides the shares (specification, "Phase 1: Budget
            Allocation").
    """
    budget = min(request.token_budget, _API_CAPS.get(request.target_api, request.token_budget))
    system = min(budget, _SYSTEM_TOKENS)
    parts: list[int] = []
    lost: list[int] = []
    for share in SHARES[request.intent.classification]:
        tokens, remainder = divmod((budget - system) * share, 100)
        parts.append(tokens)
        lost.append(remainder)
    leftover = budget - system - sum(parts)
    for neediest in sorted(range(len(parts)), key=lambda part: -lost[part])[:leftover]:
        parts[neediest] += 1
    turns, files, memory, project = parts
    return BudgetAllocation(system, turns, files, memory, project, total_budget=budget)


def shares_of(classification: IntentType, allocation: BudgetAllocation) -> tuple[float, ...]:
    """Return the shares of turns, files, memory and project in an allocation.

    Returns the exact shares of the intent if the allocation differs only by rounding. So the shares
    of `allocate_budget` do not change with the budget.
    """
    parts = (allocation.recent_turns, allocation.files, allocation.memory, allocation.project)
    total = sum(parts)
    shares = SHARES[classification]
    for part, share in zip(parts, shares, strict=True):
        # Rounding moves a part by less than one token.
        if total and abs(part - share * total / 100) >= 1:
            # Fractions beside the percentages of `SHARES`, since only their ratios matter.
            return tuple(part / total for part in parts)
    return shares
