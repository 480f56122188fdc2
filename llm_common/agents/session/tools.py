"""`ToolChooser`: hides an application's tools that do not fit, and has a tool that finds them.

Its `ToolShortlist` never takes a tool away for good. Tools that were called, found or shown before
stay while they fit, the best of the remaining tools fill the limit, and one tool finds the hidden
ones.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from llm_common._telemetry import record
from llm_common._threads import SharedCache, in_thread
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.trace import RecordedTool, SessionTrace
from llm_common.core.tokens import TokenCounter
from llm_common.errors import ConfigError
from llm_common.history.message_shapes import (
    HistoryMessage,
    Message,
    last_question,
    newest_first,
)
from llm_common.ranking.embeddings import Embedder
from llm_common.text.display import in_fence, one_line
from llm_common.tools.definitions import ToolDefinition, read_definition
from llm_common.tools.tool import Tool
from llm_common.tools.tool_index import ToolIndex

DefinitionT = TypeVar("DefinitionT", bound=ToolDefinition | Tool | Mapping[str, Any])

_MAX_INDEXED: Final = 16  # sets of tools: an application has one or two for each of its agents
MAX_FOUND: Final = 20
"""Maximum number of found tools that stay in view. A dropped one can be found again."""

_MAX_FOUND_TOOLS: Final = 5
_FOUND: Final = "- "  # before the name of a tool in an answer of the finder

# "yes, do it" says nothing about the tool: two turns before it do. More messages add no tool to the
# dialogues and runs of benchmarks/quality_shortlist.py, and take longer.
_MAX_TEXTS: Final = 4
_MAX_TEXT_CHARS: Final = 1_500

# As JSON Schema.
_TOOL_WORDS: Final = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tool should do."}},
    "required": ["query"],
    "additionalProperties": False,
}
# Tools that the newest messages choose before tools that were shown earlier.
_TOOLS_OF_NEWEST: Final = 20
_log = logging.getLogger(__name__)


class ToolChooser:
    """Chooses the tools of each prompt, within the tokens that the config allows.

    Args:
        config: The limits and names.
        max_tokens: Maximum tokens of all tool definitions.
        trace: Records what is chosen.
    """

    def __init__(self, config: SessionConfig, *, max_tokens: int, trace: SessionTrace) -> None:
        self._config = config
        self._trace = trace
        # In the config itself, as `computed_once` does, so that they end with it. All sessions of a
        # config share the indexes of tools, since building takes time.
        indexes = vars(config).setdefault(
            "_tool_indexes", ToolIndexes(config.embedder, config.counter)
        )
        self._shortlist = ToolShortlist(indexes, max_tokens=max_tokens, limit=_TOOLS_OF_NEWEST)

    async def choose(
        self,
        definitions: Sequence[DefinitionT],
        *,
        messages: Sequence[Message],
        keep: Collection[str],
    ) -> list[DefinitionT]:
        """Return the tools for the next model call. See `Session.choose_tools`."""
        with self._trace.recorded(lambda: last_question(messages)):
            return await in_thread(self._choose, definitions, messages, keep)

    def _choose(
        self,
        tools: Sequence[DefinitionT],
        messages: Sequence[Message],
        keep: Collection[str],
    ) -> list[DefinitionT]:
        definitions = [definition_of(tool) for tool in tools]
        by_name = {definition.name: definition for definition in definitions}
        # The finder is shown only beside hidden tools, so it does not compete with the others.
        finder = by_name.pop(self._config.finder_name, None)
        history = [*newest_first(messages)]
        called = {call.name for message in history for call in message.calls}
        # Another process of this conversation may have found them.
        found = _found_names(history, self._config.finder_name)
        shown, tokens = self._shortlist.choose(
            [*by_name.values()],
            texts=_ends_of_texts(history)[:_MAX_TEXTS],
            keep={*keep, *called, *found, *self._config.tool_names},
        )
        names = {*shown}
        hidden = [name for name in by_name if name not in names]
        record(
            "tool_list",
            session_id=self._trace.session_id,
            shown=shown,
            hidden=hidden,
            tokens=tokens,
            limit_tokens=self._config.max_tool_tokens,
        )
        if hidden:
            _log.info(
                "%d of %d tools are shown, %d tokens; %s finds the others",
                len(shown),
                len(by_name),
                tokens,
                self._config.finder_name if finder is not None else "no tool",
            )
            names.add(self._config.finder_name)
        return [
            tool
            for tool, definition in zip(tools, definitions, strict=True)
            if definition.name in names
        ]

    def finder(self) -> Tool:
        """Return the tool that finds hidden tools."""
        return RecordedTool(
            self._trace,
            self._find_tools,
            name=self._config.finder_name,
            description=(
                "Finds tools that are not in your list. Tools that it finds are in your list from "
                "the next step on, and you call them by their own names."
            ),
            parameters=_TOOL_WORDS,
        )

    async def _find_tools(self, query: str) -> str:
        definitions = await in_thread(self._shortlist.find, query, limit=_MAX_FOUND_TOOLS)
        if not definitions:
            return "No tool fits these words. Try other words, such as a verb and its object."
        lines = ["These tools are in your list from the next step on:"]
        for definition in definitions:
            lines.append(
                f"{_FOUND}{definition.name}: {one_line(definition.description, max_chars=200)}"
            )
        return in_fence("\n".join(lines))


def _found_names(newest_first: Sequence[HistoryMessage], finder_name: str) -> list[str]:
    """Return the newest tools that answers of the finder name, newest answer first."""
    finder_ids: set[str] = set()
    for message in newest_first:
        finder_ids.update(call.call_id for call in message.calls if call.name == finder_name)
    names: list[str] = []
    for message in newest_first:
        for output in message.outputs:
            if output.call_id in finder_ids:
                for line in output.text.splitlines():
                    if line.startswith(_FOUND):
                        names.append(line.removeprefix(_FOUND).partition(": ")[0])
    return names[:MAX_FOUND]


def _ends_of_texts(newest_first: Sequence[HistoryMessage]) -> list[str]:
    """Return the ends of the texts of user and assistant."""
    texts: list[str] = []
    for message in newest_first:
        if message.role in ("user", "assistant") and message.text:
            texts.append(message.text[-_MAX_TEXT_CHARS:])
    return texts


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
    ) -> tuple[tuple[str, ...], int]:
        """Return the names of the tools to show, most important first, and their tokens.

        These are all tools if they fit.

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
        return names, sum(indexed.tokens[name] for name in names)

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
