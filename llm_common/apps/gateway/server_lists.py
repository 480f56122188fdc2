"""`ServerLists`: what all servers list, page by page, and the way to what a host asks of it."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import mcp_types as types
from mcp import ClientSession, MCPError
from pydantic import TypeAdapter

from llm_common.apps.gateway.server_connection import HostContext, ServerConnection
from llm_common.apps.gateway.server_transport import MAX_ENTRIES
from llm_common.apps.gateway.tool_listing import ServerTool
from llm_common.errors import ToolError, ToolFailedError

MAX_PAGES: Final = 100
MAX_LIST_BYTES: Final = 32_000_000

_RESOURCE: Final = TypeAdapter[Any](types.ReadResourceResult | types.InputRequiredResult)
_PROMPT: Final = TypeAdapter[Any](types.GetPromptResult | types.InputRequiredResult)
_Fetch = Callable[[ClientSession, types.PaginatedRequestParams], Awaitable[Any]]


async def all_pages(connection: ServerConnection, fetch: _Fetch, field: str) -> list[Any]:
    """Return the entries of a server's list, up to 100 pages, 10,000 entries or 32 MB.

    A cursor that was seen before ends the list too.

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
            connection.wire.leave_out(
                f"the rest of its {field}", "the list is too long, or does not end"
            )
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
            listed = await all_pages(
                connection, lambda session, params: session.list_tools(params=params), "tools"
            )
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

    A resource keeps its address: the first server that lists it answers. Prompts of equal names get
    their server's prefix. A server that does not answer is left out.

    Args:
        connections: The servers by name.
        wait_s: Seconds that a list waits for a server.
    """

    def __init__(self, connections: Mapping[str, ServerConnection], *, wait_s: float) -> None:
        self._connections = connections
        self._wait_s = wait_s
        self._resources: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, str]] = {}

    async def resources(self) -> types.ListResourcesResult:
        """Every resource."""
        found = await self._of_all(
            "resources", lambda session, params: session.list_resources(params=params)
        )
        self._resources = {str(resource.uri): server for server, resource in reversed(found)}
        return types.ListResourcesResult(resources=[resource for _, resource in found])

    async def templates(self) -> types.ListResourceTemplatesResult:
        """Every template of resources."""
        found = await self._of_all(
            "resource_templates",
            lambda session, params: session.list_resource_templates(params=params),
        )
        self._templates = {template.uri_template: server for server, template in reversed(found)}
        return types.ListResourceTemplatesResult(
            resource_templates=[template for _, template in found]
        )

    async def prompts(self) -> types.ListPromptsResult:
        """Every prompt, under the name that the host sees."""
        found = await self._of_all(
            "prompts", lambda session, params: session.list_prompts(params=params)
        )
        counts = Counter(prompt.name for _, prompt in found)
        names = [
            prompt.name if counts[prompt.name] == 1 else f"{server}_{prompt.name}"
            for server, prompt in found
        ]
        self._prompts = {
            name: (server, prompt.name) for name, (server, prompt) in zip(names, found, strict=True)
        }
        shown = [
            prompt.model_copy(update={"name": name})
            for name, (_, prompt) in zip(names, found, strict=True)
        ]
        return types.ListPromptsResult(prompts=shown)

    async def read(self, params: types.ReadResourceRequestParams, host: HostContext) -> Any:
        """What the resource holds.

        Raises:
            MCPError: No server has it.
        """
        known = self._resources.get(str(params.uri))
        request = types.ReadResourceRequest(params=params.model_copy(update={"meta": None}))
        error = MCPError(types.INVALID_PARAMS, "no server has this resource")
        for server in self._connections if known is None else [known]:
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
        server, name = await self._prompt_place(params.name)
        request = types.GetPromptRequest(
            params=params.model_copy(update={"name": name, "meta": None})
        )
        try:
            return await self._connections[server].use(
                lambda session: session.send_request(request, _PROMPT), host=host
            )
        except ToolError as exc:
            raise MCPError(types.INTERNAL_ERROR, exc.message) from exc

    async def _prompt_place(self, shown: str) -> tuple[str, str]:
        if shown not in self._prompts:
            await self.prompts()
        if shown not in self._prompts:
            raise MCPError(types.INVALID_PARAMS, "no server has this prompt")
        return self._prompts[shown]

    async def complete(
        self, params: types.CompleteRequestParams, host: HostContext
    ) -> types.CompleteResult:
        """How an argument of a prompt or of a template of resources may go on.

        Nothing if its server does not say.

        Raises:
            MCPError: No server has that prompt or template, or it refuses.
        """
        ref = params.ref
        if isinstance(ref, types.PromptReference):
            server, name = await self._prompt_place(ref.name)
            ref = ref.model_copy(update={"name": name})
        else:
            if ref.uri not in self._templates:
                await self.templates()
            if ref.uri not in self._templates:
                raise MCPError(types.INVALID_PARAMS, "no server has this template")
            server = self._templates[ref.uri]
        request = types.CompleteRequest(params=params.model_copy(update={"ref": ref, "meta": None}))
        connection = self._connections[server]
        try:
            if (await connection.client()).server_capabilities.completions is None:
                return types.CompleteResult(completion=types.Completion(values=[]))
            return await connection.use(
                lambda session: session.send_request(request, types.CompleteResult), host=host
            )
        except ToolError as exc:
            raise MCPError(types.INTERNAL_ERROR, exc.message) from exc

    async def subscribe(self, params: types.SubscribeRequestParams) -> types.EmptyResult:
        """Has a host of the older era told when a resource changes.

        Raises:
            MCPError: No server can tell.
        """
        await self.watch(str(params.uri), self)
        return types.EmptyResult()

    async def unsubscribe(self, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """Ends what `subscribe` began."""
        await self.unwatch(self, str(params.uri))
        return types.EmptyResult()

    async def watch(self, uri: str, watcher: object) -> None:
        """Has the server of a resource tell its changes.

        For one that no server lists, each that can.

        Raises:
            MCPError: No server can tell.
        """
        if uri not in self._resources:
            await self.resources()
        known = self._resources.get(uri)
        error = MCPError(types.INVALID_PARAMS, "no server tells changes of this resource")
        is_watched = False
        for connection in (
            self._connections.values() if known is None else [self._connections[known]]
        ):
            try:
                async with asyncio.timeout(self._wait_s):
                    able = (await connection.client()).server_capabilities.resources
                    if able and able.subscribe:
                        await connection.watch(uri, watcher)
                        is_watched = True
            except MCPError as exc:
                error = exc
            except (ToolError, TimeoutError):
                continue
        if not is_watched:
            raise error

    async def unwatch(self, watcher: object, uri: str | None = None) -> None:
        """Ends what a watcher wanted to know: of one resource, or of all."""
        await asyncio.gather(
            *(connection.unwatch(watcher, uri) for connection in self._connections.values())
        )

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
        return [
            row
            for task in tasks
            if task not in late and task.exception() is None
            for row in task.result()
        ]
