"""`SessionConfig` and `OffloadPolicy`: the limits and policies of sessions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from llm_common._threads import computed_once
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.history.policy import SEARCH_NAME, FoldPolicy
from llm_common.pointers.reading import READER_NAME
from llm_common.ranking.embeddings import Embedder
from llm_common.tables.sql.database import QUERY_NAME

FINDER_NAME: Final = "find_tools"

_WHOLE_TOKENS: Final = 2_000
# Leaves half of a window of 64,000 tokens to instructions, tools and the answer.
_FOLD: Final = FoldPolicy(max_tokens=32_000)


@dataclass(frozen=True, slots=True)
class OffloadPolicy:
    """Which results stay whole, and the size of the previews of the longer ones.

    Attributes:
        max_whole_tokens: Maximum tokens of a result that stays whole. A longer one is offloaded.
        max_preview_tokens: Maximum tokens of a preview. Under about 200, a preview is one line with
            size and pointer.
        max_turn_tokens: Maximum tokens of all results and previews of one turn. None sets no limit.
        tools: Thresholds of single tools by name, in place of `max_whole_tokens`. 0 always
            offloads, and None offloads only what exceeds `max_turn_tokens`.
        reader_name: The model's name for the tool that reads back. Previews contain it.

    Raises:
        TypeError: If a limit is not an int.
        ValueError: If a limit is negative.
    """

    max_whole_tokens: int = _WHOLE_TOKENS
    max_preview_tokens: int = 400
    max_turn_tokens: int | None = 8_000
    tools: Mapping[str, int | None] = field(default_factory=lambda: MappingProxyType({}))
    reader_name: str = READER_NAME

    def __post_init__(self) -> None:
        _check_limit("max_whole_tokens", self.max_whole_tokens)
        _check_limit("max_preview_tokens", self.max_preview_tokens)
        if self.max_turn_tokens is not None:
            _check_limit("max_turn_tokens", self.max_turn_tokens)
        for tool, limit in self.tools.items():
            if limit is not None:
                _check_limit(f"tools[{tool!r}]", limit)

    def threshold(self, tool_name: str) -> int | None:
        """Return the tokens up to which a tool's results stay whole, or None without a limit."""
        return self.tools.get(tool_name, self.max_whole_tokens)


def _check_limit(name: str, limit: object) -> None:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"{name} must be a whole number of tokens, not {type(limit).__name__}")
    if limit < 0:
        raise ValueError(f"{name} is {limit}; pass 0 or more tokens")


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
        max_read_tokens: Maximum tokens of an answer of the tools that read and search. The default
            is that of a result that stays whole.
        search_name: The name of the tool that searches.
        query_name: The name of the tool that queries records.
        finder_name: The name of the tool that finds hidden tools.
        embedder: Also compares tools with the request by meaning, such as `StaticVectors`.
        counter: Counts tokens. The default is exact with the extra `tokens`, else an upper bound.
        ttl_s: Seconds from the last save or read of a result to its expiry. None takes the store's
            own lifetime.

    Raises:
        TypeError: If `pinned` is a str, or a policy or the counter is something else.
    """

    offload: OffloadPolicy = field(default_factory=OffloadPolicy)
    fold: FoldPolicy | None = _FOLD
    pinned: tuple[str, ...] = ()
    max_tool_tokens: int | None = 4_000
    max_read_tokens: int = _WHOLE_TOKENS
    search_name: str = SEARCH_NAME
    query_name: str = QUERY_NAME
    finder_name: str = FINDER_NAME
    embedder: Embedder | None = None
    counter: TokenCounter = field(default_factory=DefaultCounter)
    ttl_s: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.pinned, str):
            raise TypeError("pinned is a str, of which each letter would be pinned; pass a tuple")
        for name, value, kind, hint in (
            ("offload", self.offload, OffloadPolicy, "an OffloadPolicy"),
            ("fold", self.fold, FoldPolicy | None, "a FoldPolicy or None"),
            ("counter", self.counter, TokenCounter, "a TokenCounter"),
        ):
            if not isinstance(value, kind):
                raise TypeError(f"{name} must be {hint}, got {type(value).__name__}")

    # `computed_once` writes to `__dict__`, so it works in a frozen dataclass without slots.
    @computed_once
    def named_fold(self) -> FoldPolicy | None:
        """Return `fold` with the names of the session's tools."""
        names = {"reader_name": self.offload.reader_name, "search_name": self.search_name}
        return self.fold and self.fold.model_copy(update=names)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Return the names of a session's tools, whose results are never offloaded."""
        return (self.offload.reader_name, self.search_name, self.query_name, self.finder_name)
