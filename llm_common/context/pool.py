"""The pool: everything that a prompt could hold, as frozen values."""

from collections import Counter
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

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
