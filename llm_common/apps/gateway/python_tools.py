"""`mcp_tools`: the tools of MCP servers in a `ToolRegistry`."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import MCPError

from llm_common.apps.gateway.gateway import store_of
from llm_common.apps.gateway.gateway_config import GatewayConfig
from llm_common.apps.gateway.host_results import stored_value
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.server_connection import HostAbilities
from llm_common.apps.gateway.tool_listing import ServerTool, shown_description
from llm_common.errors import ConfigError, ToolArgumentsError, ToolFailedError, UnserialisableError
from llm_common.tools.registry import ToolRegistry
from llm_common.tools.tool import Tool

_log = logging.getLogger(__name__)


@asynccontextmanager
async def mcp_tools(config: GatewayConfig) -> AsyncIterator[ToolRegistry]:
    """A registry of the servers' tools.

    Ends the servers, and removes the stored results, at its end. The tools have the names and the
    rules that a host of the gateway sees. Large results come as previews, and the tools that read
    them back are in the registry too; with a `max_whole_tokens` of None each result comes whole,
    for an executor that keeps results itself. A tool raises `ToolFailedError` where its server
    reports an error.

    A server that does not start is left out, and so is a tool whose name or schema a `Tool` cannot
    have; the log says which. `tools` has no effect: a registry holds every tool.

    Args:
        config: Servers, rules and limits.
    """
    session = HostSession(config, abilities=HostAbilities(), store=store_of(config))
    try:
        listing = await session.listing()
        for name, problem in session.problems().items():
            _log.warning("left out the server %s: %s", name, problem)
        registry = ToolRegistry(session.results.tools.values())
        for name, tool in listing.tools.items():
            try:
                registry.register(_ServerTool(session, name, tool))
            except (ConfigError, UnserialisableError) as exc:
                _log.warning("left out a tool of the server %s: %s", tool.server, exc)
        yield registry
    finally:
        await session.close()


class _ServerTool(Tool):
    """A server's tool, whose failures are raised as they are."""

    __slots__ = ("_session",)

    def __init__(self, session: HostSession, name: str, tool: ServerTool) -> None:
        super().__init__(
            session.answer,
            name=name,
            description=shown_description(tool),
            parameters=tool.parameters,
            read_only=tool.read_only,
        )
        self._session = session

    async def run(self, args: Mapping[str, Any]) -> Any:
        """What the server answers, or a preview of it.

        With pictures and the like, a list that ends with their blocks.

        Raises:
            ToolArgumentsError: The arguments do not fit; the server was not asked.
            ToolFailedError: The server reports an error, or is not there.
        """
        arguments, problems = self._bind(args)
        if problems:
            raise ToolArgumentsError(
                f"{self.name} was not run: {'; '.join(map(str, problems))}", tool=self.name
            )
        params = types.CallToolRequestParams(name=self.name, arguments=dict(arguments))
        try:
            result = await self._session.answer(params)
        except MCPError as exc:
            raise _failure(self.name, exc.message) from exc
        if isinstance(result, types.InputRequiredResult):
            raise _failure(self.name, "it asks for input, which nobody can give here")
        texts = [block.text for block in result.content if isinstance(block, types.TextContent)]
        if result.is_error:
            raise _failure(self.name, "\n".join(texts))
        others = [block for block in result.content if not isinstance(block, types.TextContent)]
        if not others:
            return stored_value(result.structured_content, texts)
        said = (
            texts
            if result.structured_content is None
            else [stored_value(result.structured_content, texts)]
        )
        return [
            *said,
            *(block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in others),
        ]


def _failure(name: str, reason: str) -> ToolFailedError:
    error = ToolFailedError(f"{name} reported an error; see its reason", tool=name)
    error.reason = reason
    return error
