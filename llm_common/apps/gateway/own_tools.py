"""The gateway's own tools for hosts, and its instructions.

A host sends all of this with every request of its model, so each word has its price.
"""

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

from llm_common.agents import Session
from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.servers.records import ServerRecords
from llm_common.apps.gateway.servers.tool_listing import (
    CONTEXT,
    READ_CALL,
    TOOL_CALL,
    TOOL_SEARCH,
)
from llm_common.errors import ToolArgumentsError
from llm_common.text import in_fence, one_line
from llm_common.tools import Tool

_DESCRIPTION: Final = (
    "Reads stored tool results. With an id: the result, or the part that path, keys, lines, "
    "chars and pattern select, in this order. With sql: the rows of one SELECT (SQLite) over "
    "the tables that previews name; number(x) reads texts such as $1,234.50. With words: where "
    "results hold them. With none: a list of results."
)
_LINE_CHARS: Final = 160
_FRAME_TOKENS: Final = 60  # for the fence, and for the line that counts older results
# Claude may hide tools until the model searches for them. These stay visible.
_ALWAYS_LOADED: Final = {"anthropic/alwaysLoad": True}
_READ_ONLY: Final = types.ToolAnnotations(read_only_hint=True)


class ContextTool(Tool):
    """One tool over the stored results of a session, with its `max_read_tokens` in an answer.

    Args:
        session: The session, whose config has the limit of an answer.
        name: The tool's name.
    """

    __slots__ = ("_querier", "_reader", "_searcher", "_session")

    def __init__(self, session: Session, *, name: str) -> None:
        self._reader, self._searcher, self._querier = session.tools()[:3]
        properties: dict[str, Any] = {}
        for tool in (self._searcher, self._querier, self._reader):
            properties |= tool.parameters["properties"]
        super().__init__(
            self._list,  # in a thread, because it reads the store
            name=name,
            description=_DESCRIPTION,
            parameters={
                "type": "object",
                "properties": properties,
                "additionalProperties": False,
            },
            read_only=True,
        )
        self._session = session

    async def run(self, args: Mapping[str, Any]) -> str:
        """Read, query, search or list the results, as the arguments request.

        Raises:
            ToolArgumentsError: If the arguments do not fit. The message tells the model what to do.
            ToolFailedError: If the result cannot be read. The message says why.
        """
        # Strict function calling sends null for an omitted argument.
        present = {name for name, value in args.items() if value is not None}
        requested = [name for name in ("id", "sql", "words") if name in present]
        if len(requested) > 1:
            raise self._refusal(f"pass only one of {' and '.join(requested)}")
        if "sql" in present:
            return str(await self._querier.run(args))
        if "words" in present:
            return str(await self._searcher.run(args))
        if present <= {"cursor"}:
            cursor = str(args.get("cursor") or "0")
            if not cursor.isdecimal():
                raise self._refusal("the cursor is not one of a list; leave it out")
            return str(await super().run({"cursor": cursor}))
        return str(await self._reader.run(args))

    def _refusal(self, problem: str) -> ToolArgumentsError:
        return ToolArgumentsError(
            f"{self.name} was not run: {problem}. Correct the call", tool=self.name
        )

    def _list(self, cursor: str) -> str:
        """Return the stored results, newest first, from a position on."""
        position = int(cursor[:12])  # no session has a trillion results
        # Results that were read or saved may have expired, or made room for others since.
        pointers = self._session.results.list_all()[::-1]
        config = self._session.config
        max_tokens = config.max_read_tokens - _FRAME_TOKENS
        lines: list[str] = []
        for pointer in pointers[position:]:
            summary = one_line(pointer.summary, max_chars=_LINE_CHARS)
            line = f"{pointer.pointer_id}: {summary} ({pointer.result_bytes or 0:,} bytes)"
            if config.counter.count("\n".join([*lines, line])) > max_tokens:
                break
            lines.append(line)
        head = f"{len(pointers)} results are stored in this conversation."
        if not pointers:
            head += " An earlier one is read by its id, and queried by the name of its table."
        older = len(pointers) - position - len(lines)
        if older > 0:
            head += f' {older} older ones follow with cursor "{position + len(lines)}".'
        return f"{head}\n{in_fence(chr(10).join(lines))}"


def context_definition(tool: Tool) -> types.Tool:
    """Return the definition of the tool that reads stored results."""
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters,
        annotations=_READ_ONLY,
        meta=_ALWAYS_LOADED,
    )


def search_definitions() -> list[types.Tool]:
    """Return the tools that a host lists in place of the servers' tools.

    Two of them call tools, so that a host can ask its user before one and not before the other.
    """
    arguments = {"name": {"type": "string"}, "arguments": {"type": "object"}}
    call_schema = {"type": "object", "properties": arguments, "required": ["name"]}
    query = {"type": "string", "description": "What is to be done, in plain words."}
    search = types.Tool(
        name=TOOL_SEARCH,
        description=(
            "Finds tools by what they do, with their parameters. Search before you say that you "
            "cannot do a thing."
        ),
        input_schema={"type": "object", "properties": {"query": query}, "required": ["query"]},
        annotations=_READ_ONLY,
        meta=_ALWAYS_LOADED,
    )
    read = types.Tool(
        name=READ_CALL,
        description=f"Runs a tool that {TOOL_SEARCH} marks as read-only.",
        input_schema=call_schema,
        annotations=_READ_ONLY,
        meta=_ALWAYS_LOADED,
    )
    call = types.Tool(
        name=TOOL_CALL,
        description=f"Runs any tool that {TOOL_SEARCH} found.",
        input_schema=call_schema,
        meta=_ALWAYS_LOADED,
    )
    return [search, read, call]


def instructions(config: GatewayConfig, records: ServerRecords) -> str | None:
    """Return what a host tells its model about the gateway and its servers, or None for nothing.

    Args:
        config: Servers and limits.
        records: What the servers told about themselves when they last ran.
    """
    parts: list[str] = []
    if config.max_whole_tokens is not None:
        reader = f"{config.host_prefix}{CONTEXT}"
        parts.append(f"Long results are stored: you see a preview, and {reader} reads on.")
    for name, server in config.servers.items():
        if of_server := records.of(server).instructions:
            parts.append(f"[{name}] {of_server}")
    return "\n\n".join(parts) or None
