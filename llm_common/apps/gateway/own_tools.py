"""Define the gateway's own tools for hosts, and its instructions.

A host sends all of this with every request of its model, so each word has its price.
"""

from typing import Any, Final

import mcp_types as types

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.servers.records import ServerRecords
from llm_common.apps.gateway.servers.tool_listing import (
    CONTEXT,
    INTENT_SCHEMA,
    READ_CALL,
    TOOL_CALL,
    TOOL_SEARCH,
)
from llm_common.tools import Tool

# Claude may hide tools until the model searches for them. These stay visible.
_ALWAYS_LOADED: Final = {"anthropic/alwaysLoad": True}
_READ_ONLY: Final = types.ToolAnnotations(read_only_hint=True)


def context_definition(tool: Tool) -> types.Tool:
    """Return the definition of the tool that reads stored results."""
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.parameters,
        annotations=_READ_ONLY,
        meta=_ALWAYS_LOADED,
    )


def search_definitions(*, intent: bool) -> list[types.Tool]:
    """Return the tools that a host lists in place of the servers' tools.

    Two of them call tools, so that a host can ask its user before one and not before the other.

    Args:
        intent: Whether a call may say what it wants from its result.
    """
    arguments: dict[str, Any] = {"name": {"type": "string"}, "arguments": {"type": "object"}}
    if intent:
        arguments["intent"] = INTENT_SCHEMA
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
        text = (
            f"Long results are stored: you see a preview, and {config.host_prefix}{CONTEXT} reads "
            "on."
        )
        if config.intent:
            text += " Say in the argument `intent` of a call what you want from its result."
        parts.append(text)
    for name, server in config.servers.items():
        if of_server := records.of(server).instructions:
            parts.append(f"[{name}] {of_server}")
    return "\n\n".join(parts) or None
