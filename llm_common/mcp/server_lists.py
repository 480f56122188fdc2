"""`ServerLists`: what all servers list, page by page: tools, and resources and prompts with the way to them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import mcp_types as types
from mcp import ClientSession, MCPError
from pydantic import TypeAdapter

from llm_common.errors import ToolError, ToolFailedError
from llm_common.mcp.server_connection import HostContext, ServerConnection
from llm_common.mcp.server_transport import MAX_ENTRIES
from llm_common.mcp.tool_listing import ServerTool

MAX_PAGES: Final = 100
MAX_LIST_BYTES: Final = 32_000_000

_RESOURCE: Final = TypeAdapter[Any](types.ReadResourceResult | types.InputRequiredResult)
_PROMPT: Final = TypeAdapter[Any](types.GetPromptResult | types.InputRequiredResult)
_Fetch = Callable[[ClientSession, types.PaginatedRequestParams], Awaitable[Any]]


async def all_pages(connection: ServerConnection, fetch: _Fetch, field: str) -> list[Any]:
    """The entries of a server's list, without those after 100 pages, 10,000 entries, 32 MB or a cursor seen before.

    Args:
        connection: The server.
        fetch: Asks for one page.
        field: Where a page has its entries.

    Raises:
        ToolError: The server is not there, or gave no MCP.
        MCPError: It refused.
    """
    entries: list[Any] = []
    params, seen, size = types.PaginatedRequestParams(), set[str](), 0
    while True:
        page = await connection.use(lambda session, params=params: fetch(session, params))  # type: ignore[misc]
        entries.extend(getattr(page, field))
        size += len(page.model_dump_json())
        cursor = page.next_cursor
        if not cursor and len(entries) <= MAX_ENTRIES:
            return entries
        too_long = len(entries) > MAX_ENTRIES or size > MAX_LIST_BYTES or len(seen) + 1 == MAX_PAGES
        if too_long or not cursor or cursor in seen:
            connection.wire.leave_out(f"the rest of its {field}", "the list is too long, or does not end")
            return entries[:MAX_ENTRIES]
        seen.add(cursor)
        params = types.PaginatedRequestParams(cursor=cursor)


async def tools_of(connection: ServerConnection) -> tuple[ServerTool, ...]:
    """A server's tools, the first of each name.

    Raises:
        ToolError: The server is not there, gave no MCP, or is too slow.
        MCPError: It refused.
    """
    await connection.client()
    connection.wire.left_out.clear()
    try:
        async with asyncio.timeout(connection.start_timeout_s):
            listed = await all_pages(connection, lambda session, params: session.list_tools(params=params), "tools")
    except TimeoutError as exc:
        problem = f"it did not list its tools within {connection.start_timeout_s:g} s"
        raise ToolFailedError(problem, tool="") from exc
    tools: dict[str, ServerTool] = {}
    for tool in listed:
        if tool.name in tools:
            connection.wire.leave_out(tool.name, "another tool has its name")
            continue
        tools[tool.name] = ServerTool(
            server=connection.name,
            name=tool.name,
            description=tool.description or "",
            parameters=tool.input_schema,
            read_only=tool.annotations.read_only_hint if tool.annotations else None,
            definition=tool,
        )
    return tuple(tools.values())


class ServerLists:
    """Resources and prompts of all servers as one list each.

    A resource keeps its address: the first server that lists it answers. Prompts of equal names get their server's
    prefix. A server that does not answer is left out.

    Args:
        connections: The servers by name.
        wait_s: Seconds that a list waits for a server.
    """

    def __init__(self, connections: Mapping[str, ServerConnection], *, wait_s: float) -> None:
        self._connections = connections
        self._wait_s = wait_s
        self._resources: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, str]] = {}

    async def resources(self) -> types.ListResourcesResult:
        """Every resource."""
        found = await self._of_all("resources", lambda session, params: session.list_resources(params=params))
        for server, resource in reversed(found):
            self._resources[str(resource.uri)] = server
        return types.ListResourcesResult(resources=[resource for _, resource in found])

    async def templates(self) -> types.ListResourceTemplatesResult:
        """Every template of resources."""
        found = await self._of_all(
            "resource_templates", lambda session, params: session.list_resource_templates(params=params)
        )
        return types.ListResourceTemplatesResult(resource_templates=[template for _, template in found])

    async def prompts(self) -> types.ListPromptsResult:
        """Every prompt, under the name that the host sees."""
        found = await self._of_all("prompts", lambda session, params: session.list_prompts(params=params))
        counts = Counter(prompt.name for _, prompt in found)
        names = [prompt.name if counts[prompt.name] == 1 else f"{server}_{prompt.name}" for server, prompt in found]
        self._prompts = {name: (server, prompt.name) for name, (server, prompt) in zip(names, found, strict=True)}
        shown = [prompt.model_copy(update={"name": name}) for name, (_, prompt) in zip(names, found, strict=True)]
        return types.ListPromptsResult(prompts=shown)

    async def read(self, params: types.ReadResourceRequestParams, host: HostContext) -> Any:
        """What the resource holds.

        Raises:
            MCPError: No server has it.
        """
        known = self._resources.get(str(params.uri))
        servers = list(self._connections) if known is None else [known]
        request = types.ReadResourceRequest(params=params.model_copy(update={"meta": None}))
        error = MCPError(types.INVALID_PARAMS, "no server has this resource")
        for server in servers:
            try:
                async with asyncio.timeout(self._wait_s if known is None else None):
                    return await self._connections[server].use(
                        lambda session: session.send_request(request, _RESOURCE), host=host
                    )
            except MCPError as exc:
                error = exc
            except ToolError as exc:
                error = MCPError(types.INTERNAL_ERROR, exc.message)
            except TimeoutError:
                error = MCPError(types.INTERNAL_ERROR, f"{server} did not answer")
        raise error

    async def prompt(self, params: types.GetPromptRequestParams, host: HostContext) -> Any:
        """The prompt with its arguments filled in.

        Raises:
            MCPError: No server has it, or it refuses.
        """
        if params.name not in self._prompts:
            await self.prompts()
        if params.name not in self._prompts:
            raise MCPError(types.INVALID_PARAMS, "no server has this prompt")
        server, name = self._prompts[params.name]
        request = types.GetPromptRequest(params=params.model_copy(update={"name": name, "meta": None}))
        try:
            return await self._connections[server].use(
                lambda session: session.send_request(request, _PROMPT), host=host
            )
        except ToolError as exc:
            raise MCPError(types.INTERNAL_ERROR, exc.message) from exc

    async def _of_all(self, field: str, fetch: _Fetch) -> list[tuple[str, Any]]:
        async def of(connection: ServerConnection) -> Iterable[tuple[str, Any]]:
            capabilities = (await connection.client()).server_capabilities
            if (capabilities.prompts if field == "prompts" else capabilities.resources) is None:
                return []
            return [(connection.name, entry) for entry in await all_pages(connection, fetch, field)]

        tasks = [asyncio.create_task(of(connection)) for connection in self._connections.values()]
        if not tasks:
            return []
        try:
            await asyncio.wait(tasks, timeout=self._wait_s)
        finally:
            late = [task for task in tasks if not task.done()]
            for task in late:
                task.cancel()
        return [row for task in tasks if task not in late and task.exception() is None for row in task.result()]
