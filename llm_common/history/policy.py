"""`FoldPolicy`: when a history is folded and how far, and `FoldedPart`, what then is stored."""

from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from llm_common.pointers.reading import READER_NAME

HISTORY_TOOL: Final = "history"
"""The tool name under which folded messages are stored."""
SEARCH_NAME: Final = "search_context"

Kind = Literal["messages", "output", "text"]


class FoldPolicy(BaseModel):
    """When a history is folded, and how far.

    Attributes:
        max_tokens: Maximum tokens of the folded messages, with those around them.
        target_share: Share of the limit that remains after a step of folding. A smaller share
            means fewer steps, and shorter histories after each.
        note_share: Share of the limit for the note about folded messages.
        reader_name: The model's name for `read_context`.
        search_name: The model's name for `search_context`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(default=8_000, ge=200)
    target_share: float = Field(default=0.6, ge=0.2, le=0.9)
    note_share: float = Field(default=0.35, ge=0.05, le=0.5)
    reader_name: str = READER_NAME
    search_name: str = SEARCH_NAME


class FoldedPart(BaseModel):
    """A part of the history that is stored behind a pointer.

    Attributes:
        pointer_id: The id to read the part back.
        kind: `messages` for a range of messages, `output` for the output of a call, `text` for the
            middle of a long message.
        first: Number of the first message, from 1.
        last: Number of the last message.
        tokens: Tokens of the part before folding.
    """

    model_config = ConfigDict(frozen=True)

    pointer_id: str
    kind: Kind
    first: int
    last: int
    tokens: int
