"""`ToolChooser`: hides an application's tools that do not fit, and has a tool that finds them."""

import logging
from collections.abc import Collection, Sequence
from typing import Final

from llm_common._telemetry import record
from llm_common._threads import in_thread
from llm_common.agents.session.config import SessionConfig
from llm_common.agents.session.trace import RecordedTool, SessionTrace
from llm_common.history.message_shapes import (
    HistoryMessage,
    Message,
    last_question,
    newest_first,
)
from llm_common.text.display import in_fence, one_line
from llm_common.tools.tool import Tool
from llm_common.tools.tool_shortlist import (
    MAX_FOUND,
    DefinitionT,
    ToolIndexes,
    ToolShortlist,
    definition_of,
)

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
        session_id: The session.
        config: The limits and names.
        max_tokens: Maximum tokens of all tool definitions.
        trace: Records what is chosen.
    """

    def __init__(
        self, session_id: str, config: SessionConfig, *, max_tokens: int, trace: SessionTrace
    ) -> None:
        self._session_id = session_id
        self._config = config
        self._trace = trace
        self._shortlist = ToolShortlist(
            _indexes_of(config), max_tokens=max_tokens, limit=_TOOLS_OF_NEWEST
        )

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
        choice = self._shortlist.choose(
            [*by_name.values()],
            texts=_ends_of_texts(history)[:_MAX_TEXTS],
            keep={*keep, *called, *found, *self._config.tool_names},
        )
        hidden = [name for name in by_name if name not in choice.names]
        record(
            "tool_list",
            session_id=self._session_id,
            shown=choice.names,
            hidden=hidden,
            tokens=choice.tokens,
            limit_tokens=self._config.max_tool_tokens,
        )
        if choice.hidden:
            _log.info(
                "%d of %d tools are shown, %d tokens; %s finds the others",
                len(choice.names),
                choice.offered,
                choice.tokens,
                self._config.finder_name if finder is not None else "no tool",
            )
        names = {*choice.names}
        if choice.hidden and finder is not None:
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


def _indexes_of(config: SessionConfig) -> ToolIndexes:
    """Return the indexes of tools, which all sessions of a config share: building takes time."""
    # In the config itself, as `computed_once` does, so that they end with it.
    indexes = ToolIndexes(config.embedder, config.counter)
    shared: ToolIndexes = vars(config).setdefault("_tool_indexes", indexes)
    return shared


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
