"""What is selected from and for: the pool, the request, its intent, budget and scores."""

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


def _text(value: object) -> object:
    return "" if value is None else value


def _with_zone(moment: datetime) -> datetime:
    """A time without a zone is UTC, so that all times of a pool can be compared."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Text = Annotated[str, BeforeValidator(_text)]
Moment = Annotated[datetime, AfterValidator(_with_zone)]


class _Shape(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TurnEntry(_Shape):
    """One turn of the conversation. `tokens` is the owner's count, which is never used."""

    id: str
    timestamp: Moment
    role: str
    content: Text
    tokens: float | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


class FileMetadata(_Shape):
    """Size in bytes, time of the last change, and whether the user pinned the file."""

    size: int = 0
    last_modified: Moment | None = None
    is_pinned: bool = False


class ContextFile(_Shape):
    """One file with its text. `tokens` is never used; `summary` may replace the text."""

    id: str
    path: str
    name: str
    content: Text
    tokens: float | None = None
    language: str | None = None
    summary: str | None = None
    embeddings: tuple[float, ...] | None = None
    metadata: FileMetadata = FileMetadata()


class MemoryMetadata(_Shape):
    """The project that a memory belongs to, if any."""

    project: str | None = None


class MemorySnippet(_Shape):
    """One remembered text, with its store's relevance. `tokens` is never used."""

    id: str
    text: Text
    source: str = ""
    timestamp: Moment
    relevance_score: float = 0.0
    tokens: float | None = None
    metadata: MemoryMetadata = MemoryMetadata()


class ProjectState(_Shape):
    """Name, place and purpose of the project."""

    name: str
    root_path: str
    language: str
    framework: str | None = None
    description: str | None = None
    goals: tuple[str, ...] | None = None
    constraints: tuple[str, ...] | None = None
    recent_changes: tuple[str, ...] | None = None


class DataPoolSnapshot(_Shape):
    """All candidates at one moment.

    The order within a kind never matters. An unknown name is an error.

    Raises:
        ValueError: Two items of a kind share an id.
    """

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
    """Something that the request names: its kind, and its text in the request."""

    model_config = ConfigDict(frozen=True)

    kind: EntityKind
    text: str


class IntentMetadata(BaseModel):
    """The kinds of items that an intent needs, and the current project."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requires_code: bool = False
    requires_files: bool = False
    requires_history: bool = False
    requires_project: bool = False
    current_project: str | None = None


class UserIntent(BaseModel):
    """The user's request, classified."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    classification: IntentType
    confidence: float = Field(ge=0.0, le=1.0)
    entities: tuple[ExtractedEntity, ...] = ()
    embeddings: tuple[float, ...] | None = None
    metadata: IntentMetadata = IntentMetadata()


def require_intent(value: object) -> object:
    """Return the value, if it may be an intent.

    Raises:
        TypeError: It is a text that was not classified.
    """
    if isinstance(value, str):
        raise TypeError("intent is a str; pass classify_intent(text)")
    return value


def _whole_tokens(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError(f"token_budget is {str(value)[:40]}; give a whole number above 0")
    return value


_SPEC_NAMES: Final[Mapping[str, str]] = {
    "selection_strategy": "strategy",
    "custom_weights": "weights",
}


class ContextSelectionRequest(BaseModel):
    """What to select for, and within how many tokens.

    `selection_strategy` and `custom_weights`, the specification's names, are understood for
    `strategy` and `weights`. An unknown name is an error.

    Attributes:
        intent: The classified request; see `classify_intent`.
        token_budget: Most tokens that the rendered bundle may take, positive; only an int is
            accepted.
        target_api: Caps the budget.
        priority_hints: Paths, names or topics that the user called important; they count as
            mentioned.
        exclude_patterns: Globs of paths and ids that stay out in any case.
        min_relevance: Items that score less are left out, the newest turns too; only files that are
            mentioned or pinned stay. The scores of `measured` are between 0 and 1. None takes the
            strategy's own cut-off.
        strategy: Name of the scoring strategy: `measured`, the default, or `spec`.
        weights: Factors for parts of the strategy's score, by name.
        counter: Counts what is sent; the default is `DefaultCounter`.
        now: The moment that ages are measured from; None lets the selector take the present one.
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
    def _with_our_names(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or _SPEC_NAMES.keys().isdisjoint(fields):
            return fields
        for theirs, ours in _SPEC_NAMES.items():
            if theirs in fields and ours in fields:
                raise ValueError(f"{ours} and {theirs} are the same field; give one of them")
        return {_SPEC_NAMES.get(name, name): value for name, value in fields.items()}


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
    """The relevance of an item to a request, and why.

    Attributes:
        value: Finite; higher is better; compares within a kind. From `score_pool` it is between 0
            and 1 by the strategy `measured`, and up to 2.0 for a file by `spec`.
        parts: The summands by name.
        rule: The rule that decides its place: `mentioned`, `pinned`, `ranked`, `excluded`,
            `below_cut_off`, `not_required`.
    """

    value: float
    parts: Mapping[str, float] = MappingProxyType({})
    rule: str = "ranked"


Scores = Mapping[tuple[Kind, str], Score]
"""The score of every item of the pool, by its kind and id."""


_SYSTEM_TOKENS: Final = 200
"""Tokens reserved for the text around the items: headings and fences.

The specification reserves them for a system prompt ("Phase 1: Budget Allocation"). Here the budget
is that of the bundle alone: the tokens of the reserve that headings and fences do not need go to
the items.
"""

_API_CAPS: Final[Mapping[APIType, int]] = {APIType.REALTIME: 4_096}
"""The window of a target, where it has a fixed one."""

# In percent, so that the parts come out exact for any whole number of tokens: turns, files, memory,
# project.
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
"""Percent for turns, files, memory and project, after the system part, by intent."""


FOLDER_STRATEGY: Final = "files"
"""The strategy in the account of a packed folder.

No `ContextSelector` has one of this name unless a caller adds it.
"""


def effective_budget(request: ContextSelectionRequest) -> int:
    """Return the request's budget, or the window of its target where that is smaller."""
    return min(request.token_budget, _API_CAPS.get(request.target_api, request.token_budget))


def allocate_budget(request: ContextSelectionRequest) -> BudgetAllocation:
    """Return whole tokens for each part, which sum up to the effective budget.

    The tokens that rounding down leaves over go to the parts that lost most by it, the first of
    equals first. A budget of at most 200 tokens belongs to the system part: nothing can be
    selected.

    Args:
        request: Its intent decides the shares (specification, "Phase 1: Budget Allocation").
    """
    budget = effective_budget(request)
    system = min(budget, _SYSTEM_TOKENS)
    shares = SHARES[request.intent.classification]
    whole, lost = zip(*(divmod((budget - system) * share, 100) for share in shares), strict=True)
    neediest = sorted(range(len(shares)), key=lambda part: -lost[part])[
        : budget - system - sum(whole)
    ]
    turns, files, memory, project = (
        tokens + (part in neediest) for part, tokens in enumerate(whole)
    )
    return BudgetAllocation(system, turns, files, memory, project, total_budget=budget)


def shares_of(classification: IntentType, allocation: BudgetAllocation) -> tuple[float, ...]:
    """Return the shares of turns, files, memory and project.

    They are those of the intent, or of an allocation of the caller's own.

    They do not change with the budget, as the parts of an allocation do by rounding.
    """
    parts = (allocation.recent_turns, allocation.files, allocation.memory, allocation.project)
    whole = sum(parts)
    shares = SHARES[classification]
    if all(abs(part - share * whole / 100) < 1 for part, share in zip(parts, shares, strict=True)):
        return shares
    return tuple(part / whole for part in parts) if whole else shares
