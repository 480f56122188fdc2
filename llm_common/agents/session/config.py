"""`SessionConfig`: the limits and policies of sessions, and the parameters of their tools."""

from dataclasses import dataclass, field
from typing import Final

from llm_common._threads import computed_once
from llm_common.agents.session.offloading import OffloadPolicy
from llm_common.agents.session.overview import DROP_NAME, RESTORE_NAME
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.history.folding import FoldPolicy
from llm_common.ranking.embeddings import Embedder
from llm_common.tables.database import QUERY_NAME
from llm_common.tools.read_back import DEFAULT_MAX_TOKENS
from llm_common.tools.tool_shortlist import ToolIndexes

SEARCH_NAME: Final = "search_context"
FINDER_NAME: Final = "find_tools"

# Leaves half of a window of 64,000 tokens to instructions, tools and the answer.
_FOLD: Final = FoldPolicy(max_tokens=32_000)

# As JSON Schema.
WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Words that were said or returned."}},
    "required": ["query"],
    "additionalProperties": False,
}
QUERY: Final = {
    "type": "object",
    "properties": {
        "sql": {"type": "string"},
        "cursor": {
            "type": ["string", "null"],
            "description": "From the answer before; pass the same sql.",
        },
    },
    "required": ["sql"],
    "additionalProperties": False,
}
TOOL_WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do."}},
    "required": ["query"],
    "additionalProperties": False,
}


@dataclass(frozen=True)
class SessionConfig:
    """Limits and policies, which the sessions of an application share.

    Attributes:
        offload: Which results stay whole, and the size of the previews. Its `reader_name` is the
            name of the tool that reads back.
        fold: When a history is folded. None never folds. The session sets the names of its tools.
        pinned: Texts that each prompt of `fold` has word for word, such as an application's rules.
        max_tool_tokens: Maximum tokens of all tool definitions, above which `choose_tools` hides
            some. None always shows all tools.
        tool_limit: Number of tools that the newest messages choose before tools shown earlier.
        max_read_tokens: Maximum tokens of an answer of the tools that read and search.
        search_name: The name of the tool that searches.
        query_name: The name of the tool that queries records.
        finder_name: The name of the tool that finds hidden tools.
        embedder: Also compares tools with the request by meaning, such as `StaticVectors`.
        counter: Counts tokens. The default is exact with the extra `tokens`, else an upper bound.
        drops_outputs: Whether the model has `drop_context` and `restore_context`, which take
            outputs out of the prompt and show them again. See `Session.overview`.
        ttl_s: Seconds from the last save or read of a result to its expiry. None takes the store's
            own lifetime.
    """

    offload: OffloadPolicy = field(default_factory=OffloadPolicy)
    fold: FoldPolicy | None = _FOLD
    pinned: tuple[str, ...] = ()
    max_tool_tokens: int | None = 4_000
    tool_limit: int = 20
    max_read_tokens: int = DEFAULT_MAX_TOKENS
    search_name: str = SEARCH_NAME
    query_name: str = QUERY_NAME
    finder_name: str = FINDER_NAME
    embedder: Embedder | None = None
    counter: TokenCounter = field(default_factory=DefaultCounter)
    drops_outputs: bool = False
    ttl_s: float | None = None

    # `computed_once` writes to `__dict__`, so it works in a frozen dataclass without slots.
    @computed_once
    def tool_indexes(self) -> ToolIndexes:
        """Return the indexes of tools, which sessions share because building one takes time."""
        return ToolIndexes(self.embedder, self.counter)

    @computed_once
    def named_fold(self) -> FoldPolicy | None:
        """Return `fold` with the names of the session's tools."""
        names = {"reader_name": self.offload.reader_name, "search_name": self.search_name}
        if self.drops_outputs:
            names |= {"drop_name": DROP_NAME, "restore_name": RESTORE_NAME}
        return self.fold and self.fold.model_copy(update=names)
