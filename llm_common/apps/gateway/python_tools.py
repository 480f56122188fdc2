"""Use the tools of MCP servers in Python, as a `ToolRegistry`: `mcp_tools`."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp import MCPError

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.gateway import store_of
from llm_common.apps.gateway.host_results import ResultScope, result_data
from llm_common.apps.gateway.host_session import HostSession
from llm_common.apps.gateway.servers.tool_listing import ServerTool, shown_description
from llm_common.errors import ConfigError, ToolFailedError, UnserialisableError
from llm_common.tools import Tool, ToolRegistry

_log = logging.getLogger(__name__)


@asynccontextmanager
async def mcp_tools(config: GatewayConfig) -> AsyncIterator[ToolRegistry]:
    """Yield a registry of the servers' tools, then end the servers and remove stored results.

    The tools have the same names and rules as for a host of the gateway. Large results are replaced
    by previews, and the registry includes the tool that reads them back, `context`. For an executor
    that stores results itself, set `max_whole_tokens` to None. A tool raises `ToolFailedError` if
    its server reports an error.

    Servers that do not start or whose entry is invalid are left out with a log line, and so are
    tools with a name or schema that `Tool` does not accept.

    Args:
        config: Servers, rules and limits. Its `tools` has no effect, because a registry has every
            tool.
    """
    # Without a host, servers cannot ask a user or sample from a model.
    session = HostSession(
        config,
        store=store_of(config),
        scope=ResultScope.of_process(config.config_paths),
    )
    try:
        listing = (
            await session.catalogue.listing_of_all()
        )  # a registry cannot announce a late server
        for problem in config.left_out.values():
            _log.warning("a server is left out: %s", problem)
        for name, problem in session.catalogue.problems().items():
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
    """A server's tool, which raises its own errors unchanged."""

    __slots__ = ("_session",)

    def __init__(self, session: HostSession, name: str, tool: ServerTool) -> None:
        super().__init__(
            session.answer,  # never called, because `run` is overridden
            name=name,
            description=shown_description(tool),
            parameters=tool.parameters,
            read_only=tool.read_only,
        )
        self._session = session

    async def run(self, args: Mapping[str, Any]) -> Any:
        """Call the tool and return its result or a preview.

        A result with images or other media is a list that ends with their blocks.

        Raises:
            ToolArgumentsError: If the arguments are not valid. The server was not called.
            ToolFailedError: If the server is down or reports an error.
        """
        arguments = dict(self._bind(args))
        params = types.CallToolRequestParams(name=self.name, arguments=arguments)
        try:
            result = await self._session.answer(params)
        except MCPError as exc:
            raise _failure(self.name, exc.message) from exc
        if isinstance(result, types.InputRequiredResult):
            raise _failure(self.name, "it asks for the user's input, which is not available here")
        texts: list[str] = []
        media: list[Any] = []
        for block in result.content:
            if isinstance(block, types.TextContent):
                texts.append(block.text)
            else:
                media.append(block.model_dump(mode="json", by_alias=True, exclude_none=True))
        if result.is_error:
            raise _failure(self.name, "\n".join(texts))
        structured = result.structured_content
        if not media:
            return result_data(structured, texts)
        if structured is None:
            return [*texts, *media]
        return [result_data(structured, texts), *media]


def _failure(name: str, reason: str) -> ToolFailedError:
    error = ToolFailedError(f"{name} reported an error; see its reason", tool=name)
    error.reason = reason
    return error
