"""`ToolShortlist`: the tools of one conversation, where all definitions take too many tokens.

A shortlist never takes a tool away for good. Tools that were called, found or shown before stay
while they fit, the best of the remaining tools fill the limit, and one tool finds the hidden ones.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from llm_common._threads import SharedCache
from llm_common.core.tokens import TokenCounter
from llm_common.errors import ConfigError
from llm_common.ranking.embeddings import Embedder
from llm_common.tools.definitions import ToolDefinition, read_definition
from llm_common.tools.tool import Tool
from llm_common.tools.tool_index import ToolIndex

DefinitionT = TypeVar("DefinitionT", bound=ToolDefinition | Tool | Mapping[str, Any])

_MAX_INDEXED: Final = 16  # sets of tools: an application has one or two for each of its agents
MAX_FOUND: Final = 20
"""Maximum number of found tools that stay in view. A dropped one can be found again."""


class IndexedTools(NamedTuple):
    """A set of tools with its index, and the tokens of each definition by name."""

    ranking: ToolIndex
    tokens: Mapping[str, int]


class ToolIndexes:
    """The indexes of sets of tools, which conversations share. Safe among threads.

    Args:
        embedder: Compares tools with a request by meaning too.
        counter: Counts the tokens of definitions.
    """

    def __init__(self, embedder: Embedder | None, counter: TokenCounter) -> None:
        self._embedder = embedder
        self._counter = counter
        self._indexed: SharedCache[tuple[str, ...], IndexedTools] = SharedCache(_MAX_INDEXED)

    def index(self, definitions: Sequence[ToolDefinition]) -> IndexedTools:
        """Return the index of these tools, which is built once."""
        # By the whole texts, since a tool may change under the same name.
        texts = tuple(definition.text for definition in definitions)

        def make() -> IndexedTools:
            tokens = {}
            for definition, text in zip(definitions, texts, strict=True):
                tokens[definition.name] = self._counter.count(text)
            return IndexedTools(ToolIndex(definitions, self._embedder), tokens)

        # Indexing thousands of tools takes seconds, so only one thread does it.
        return self._indexed.get_or_make(texts, make)


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools a prompt shows.

    Attributes:
        offered: Number of tools to choose from.
        names: Names of the tools that are shown, most important first.
        tokens: Tokens of their definitions.
    """

    offered: int
    names: tuple[str, ...]
    tokens: int

    @property
    def hidden(self) -> int:
        """Return the number of hidden tools."""
        return self.offered - len(self.names)


class ToolShortlist:
    """Chooses the tools of one conversation by words, without a model. Safe among threads.

    Args:
        indexes: The indexes that conversations share.
        max_tokens: Maximum tokens of all shown definitions.
        limit: Number of tools that the newest messages choose before tools shown earlier.
    """

    def __init__(self, indexes: ToolIndexes, *, max_tokens: int, limit: int) -> None:
        self._indexes = indexes
        self._max_tokens = max_tokens
        self._limit = limit
        self._offered: tuple[ToolDefinition, ...] = ()
        self._shown: tuple[str, ...] = ()
        self._found: SharedCache[str, None] = SharedCache(MAX_FOUND)

    def choose(
        self,
        definitions: Sequence[ToolDefinition],
        *,
        texts: Sequence[str],
        keep: Collection[str],
    ) -> ToolChoice:
        """Choose the tools to show, which are all tools if they fit.

        Otherwise `keep` and the tools that were found are shown. The remaining tokens go to the
        best tools for the texts, then to tools shown before, then to the other tools.

        Args:
            definitions: The tools to choose from.
            texts: The newest texts of the conversation, newest first.
            keep: Names of tools that are always shown.
        """
        indexed = self._indexes.index(definitions)
        self._offered = tuple(definitions)
        if sum(indexed.tokens.values()) <= self._max_tokens:
            names: tuple[str, ...] = tuple(indexed.tokens)
        else:
            names = self._fitting(indexed, texts, {*keep, *self._found.keys()}, self._shown)
            self._shown = names  # the later of two choices counts
        return ToolChoice(
            offered=len(indexed.tokens),
            names=names,
            tokens=sum(indexed.tokens[name] for name in names),
        )

    def _fitting(
        self,
        indexed: IndexedTools,
        texts: Sequence[str],
        keep: Collection[str],
        shown_before: Sequence[str],
    ) -> tuple[str, ...]:
        names = {name: None for name in indexed.tokens if name in keep}
        remaining = self._max_tokens - sum(indexed.tokens[name] for name in names)

        # Each text is ranked alone. "yes, do it" fits no tool, and the request before it decides.
        rows = indexed.ranking.rank("", len(indexed.tokens), texts)
        ranked = [row.name for row in rows if row.why]
        best = [name for name in ranked if name not in names][: self._limit]
        candidates: Iterable[str] = dict.fromkeys([*best, *shown_before, *ranked, *indexed.tokens])
        for name in candidates:
            tokens = indexed.tokens.get(name)
            if tokens is not None and name not in names and tokens <= remaining:
                names[name] = None
                remaining -= tokens
        return tuple(names)

    def find(self, words: str, *, limit: int) -> tuple[ToolDefinition, ...]:
        """Find tools in the last set of definitions, best first. The next choice shows them.

        Tools that share nothing with the words are not found.

        Args:
            words: A description of the tool's work.
            limit: Maximum number of tools.
        """
        offered = self._offered
        by_name = {definition.name: definition for definition in offered}
        ranked = self._indexes.index(offered).ranking.rank(words, limit)
        rows = [row for row in ranked if row.why]
        for row in reversed(rows):  # the best one becomes the newest, which is dropped last
            self._found.put(row.name, None)
        return tuple(by_name[row.name] for row in rows)


def definition_of(tool: ToolDefinition | Tool | Mapping[str, Any]) -> ToolDefinition:
    """Return the definition of a tool in any form.

    Raises:
        ConfigError: If the definition has no name.
    """
    if isinstance(tool, ToolDefinition):
        return tool
    if isinstance(tool, Tool):
        return tool.definition
    definition = read_definition(tool)
    if definition is None:
        raise ConfigError(
            f"a {type(tool).__name__} among the tools has no name; pass tools, or definitions as "
            "MCP, OpenAI or Anthropic spell them",
            variable="definitions",
        )
    return definition
