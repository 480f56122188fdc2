"""`ToolShortlist`: the tools that the next model call sees, if all take too many tokens."""

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from cachetools import LRUCache

from llm_common.core.tokens import TokenCounter
from llm_common.errors import ConfigError
from llm_common.ranking.embeddings import Embedder
from llm_common.tools.definitions import ToolDefinition, read_definition
from llm_common.tools.tool import Tool
from llm_common.tools.tool_index import ToolIndex

DefinitionT = TypeVar("DefinitionT", bound=ToolDefinition | Tool | Mapping[str, Any])

_MAX_INDEXED: Final = 16  # sets of tools: an application has one or two for each of its agents


class _Indexed(NamedTuple):
    """A set of tools that can be ranked, and the tokens of each definition by name."""

    ranking: ToolIndex
    tokens: Mapping[str, int]


class ToolShortlist:
    """Chooses tools by the words of a request, without a model. Safe among threads.

    Args:
        max_tokens: Tokens of the definitions together. None shows all tools.
        limit: How many tools are chosen besides those that are kept.
        embedder: Compares tools with the request by meaning too.
        counter: Counts tokens.
    """

    def __init__(
        self,
        *,
        max_tokens: int | None,
        limit: int,
        embedder: Embedder | None,
        counter: TokenCounter,
    ) -> None:
        self._max_tokens = max_tokens
        self._limit = limit
        self._embedder = embedder
        self._counter = counter
        self._lock = threading.Lock()
        self._indexed: LRUCache[tuple[str, ...], _Indexed] = LRUCache(_MAX_INDEXED)

    def choose(
        self, tools: Sequence[DefinitionT], *, request: str, keep: Collection[str]
    ) -> list[DefinitionT]:
        """Return the tools to show, in the order given; all of them if they fit.

        Args:
            tools: Tools, or definitions as MCP, OpenAI or Anthropic spell them.
            request: What the tools should help with.
            keep: Names of tools that are always shown.

        Raises:
            ConfigError: If a definition has no name.
        """
        if self._max_tokens is None:
            return list(tools)
        definitions = [_definition_of(tool) for tool in tools]
        names = self._names(definitions, request, keep, self._max_tokens)
        return [
            tool
            for tool, definition in zip(tools, definitions, strict=True)
            if definition.name in names
        ]

    def _names(
        self,
        definitions: Sequence[ToolDefinition],
        request: str,
        keep: Collection[str],
        max_tokens: int,
    ) -> Collection[str]:
        indexed = self._index(definitions)
        if sum(indexed.tokens.values()) <= max_tokens:
            return indexed.tokens.keys()
        names = {*keep} & indexed.tokens.keys()
        room = max_tokens - sum(indexed.tokens[name] for name in names)
        ranked = [row.name for row in indexed.ranking.rank(request, len(definitions))]
        others = [name for name in ranked if name not in names]
        for name in others[: self._limit]:
            if indexed.tokens[name] <= room:
                names.add(name)
                room -= indexed.tokens[name]
        return names

    def _index(self, definitions: Sequence[ToolDefinition]) -> _Indexed:
        """Return the index of these tools, which is made once."""
        texts = tuple(definition.text for definition in definitions)
        with self._lock:  # indexing thousands of tools takes seconds, and is done by one thread
            if texts not in self._indexed:
                tokens = {}
                for definition, text in zip(definitions, texts, strict=True):
                    tokens[definition.name] = self._counter.count(text)
                self._indexed[texts] = _Indexed(ToolIndex(definitions, self._embedder), tokens)
            return self._indexed[texts]


def _definition_of(tool: ToolDefinition | Tool | Mapping[str, Any]) -> ToolDefinition:
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
