"""List the tools, resources and prompts of all servers, and route requests: `ServerLists`."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final

import mcp_types as types
from mcp import ClientSession, MCPError
from pydantic import TypeAdapter

from llm_common.apps.gateway.servers.connection import ServerConnection
from llm_common.apps.gateway.servers.listed_texts import visible_entry, visible_schema
from llm_common.apps.gateway.servers.questions import (
    HostContext,
    responses_for_server,
    with_server_names,
)
from llm_common.apps.gateway.servers.tool_listing import ServerTool
from llm_common.apps.gateway.servers.transport import MAX_ENTRIES, Wire
from llm_common.errors import ToolError, ToolFailedError
from llm_common.runtime import in_thread
from llm_common.text import visible

# A hostile server could send pages for ever.
MAX_PAGES: Final = 100
MAX_LIST_BYTES: Final = 32_000_000
# Of a request that one of several servers may answer.
_REQUEST_WAIT_S: Final = 15.0

_RESOURCE: Final = TypeAdapter[Any](types.ReadResourceResult | types.InputRequiredResult)
_PROMPT: Final = TypeAdapter[Any](types.GetPromptResult | types.InputRequiredResult)
_Fetch = Callable[[ClientSession, types.PaginatedRequestParams], Awaitable[Any]]


async def all_pages(connection: ServerConnection, fetch: _Fetch, field: str) -> list[Any]:
    """Return the entries of a server's list, up to 100 pages, 10,000 entries or 32 MB.

    A repeated cursor ends the list too.

    Args:
        connection: The server.
        fetch: Requests one page.
        field: The field of a page that has its entries.

    Raises:
        ToolError: If the server is down, or its answer is not MCP.
        MCPError: If the server refused.
    """
    entries: list[Any] = []
    params, cursors, size = types.PaginatedRequestParams(), set[str](), 0
    while True:
        page = await connection.use(lambda session, params=params: fetch(session, params))  # type: ignore[misc]
        entries.extend(getattr(page, field))
        size += len(page.model_dump_json())
        cursor = page.next_cursor
        if not cursor and len(entries) <= MAX_ENTRIES:
            return entries
        is_too_long = len(entries) > MAX_ENTRIES or size > MAX_LIST_BYTES
        is_last = not cursor or cursor in cursors or len(cursors) + 1 == MAX_PAGES
        if is_too_long or is_last:
            connection.wire.leave_out(
                f"the rest of its {field}", "the list is too long or does not end"
            )
            return entries[:MAX_ENTRIES]
        cursors.add(cursor)
        params = types.PaginatedRequestParams(cursor=cursor)


async def tools_of(connection: ServerConnection) -> tuple[ServerTool, ...]:
    """Return a server's tools, and only the first of each name.

    Raises:
        ToolError: If the server is down or too slow, or its answer is not MCP.
        MCPError: If the server refused.
    """
    # Outside the timeout, because a start has its own.
    await connection.client()
    connection.wire.left_out.clear()
    try:
        async with asyncio.timeout(connection.start_timeout_s):
            definitions = await all_pages(
                connection, lambda session, params: session.list_tools(params=params), "tools"
            )
    except TimeoutError as exc:
        problem = f"it did not list its tools within {connection.start_timeout_s:g} s"
        raise ToolFailedError(problem, tool="") from exc
    # In a thread, because cleaning thousands of schemas takes a second.
    return await in_thread(server_tools, connection.name, definitions, connection.wire)


def server_tools(
    server: str, definitions: Iterable[types.Tool], wire: Wire
) -> tuple[ServerTool, ...]:
    """Return the tools of a server's definitions, and only the first of each name."""
    tools: dict[str, ServerTool] = {}
    for tool in definitions:
        if tool.name in tools:
            wire.leave_out(tool.name, "another tool has its name")
            continue
        tools[tool.name] = ServerTool(
            server=server,
            name=tool.name,
            description=visible(tool.description or ""),
            parameters=visible_schema(tool.input_schema),
            read_only=tool.annotations.read_only_hint if tool.annotations else None,
            definition=tool,
        )
    return tuple(tools.values())


class ServerLists:
    """One list of resources, one of resource templates and one of prompts, for all servers.

    A resource keeps its URI, and the first server that lists it answers. Prompts with the same name
    get their server's prefix. A server that does not answer is left out.

    Args:
        connections: The servers by name.
        wait_s: Seconds that a list waits for a server that is starting.

    Attributes:
        late: Servers that were left out of a list because they had not answered in time.
    """

    def __init__(self, connections: Mapping[str, ServerConnection], *, wait_s: float) -> None:
        self._connections = connections
        self._wait_s = wait_s
        self._resources: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._prompts: dict[str, tuple[str, str]] = {}
        self.late: Final = set[str]()

    def forget(self, servers: Collection[str]) -> None:
        """Forget what servers have listed that ended."""
        for origins in (self._resources, self._templates):
            for key in [key for key, server in origins.items() if server in servers]:
                del origins[key]
        for name in [name for name, origin in self._prompts.items() if origin[0] in servers]:
            del self._prompts[name]

    async def resources(self) -> types.ListResourcesResult:
        """Return the resources of all servers."""
        entries = await self._list_all(
            "resources", lambda session, params: session.list_resources(params=params)
        )
        # Reversed, so that the first server of a URI wins.
        self._resources = {str(resource.uri): server for server, resource in reversed(entries)}
        # A host reads a resource by its URI, so its name is a text like the others.
        resources = [visible_entry(resource, "name") for _, resource in entries]
        return types.ListResourcesResult(resources=resources)

    async def templates(self) -> types.ListResourceTemplatesResult:
        """Return the resource templates of all servers."""
        entries = await self._list_all(
            "resource_templates",
            lambda session, params: session.list_resource_templates(params=params),
        )
        self._templates = {template.uri_template: server for server, template in reversed(entries)}
        templates = [visible_entry(template, "name") for _, template in entries]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def prompts(self) -> types.ListPromptsResult:
        """Return the prompts of all servers, under their names in the host."""
        entries = await self._list_all(
            "prompts", lambda session, params: session.list_prompts(params=params)
        )
        counts = Counter(prompt.name for _, prompt in entries)
        origins: dict[str, tuple[str, str]] = {}
        prompts: list[types.Prompt] = []
        for server, prompt in entries:
            name = base = prompt.name
            if counts[base] > 1:
                name = base = f"{server}_{prompt.name}"
            suffix = 2
            # A prefixed name must not take the plain name of another prompt.
            while name in origins or (name != prompt.name and counts[name]):
                name, suffix = f"{base}_{suffix}", suffix + 1
            origins[name] = server, prompt.name
            arguments = prompt.arguments
            if arguments is not None:
                arguments = [visible_entry(argument) for argument in arguments]
            changes = {"name": name, "arguments": arguments}
            prompts.append(visible_entry(prompt).model_copy(update=changes))
        self._prompts = origins
        return types.ListPromptsResult(prompts=prompts)

    async def read(
        self, params: types.ReadResourceRequestParams, host: HostContext
    ) -> tuple[str, types.ReadResourceResult | types.InputRequiredResult]:
        """Read a resource, and return its server's name and its answer.

        If no server lists it, each server is asked, because templates have unlisted resources.

        Raises:
            MCPError: If no server has the resource.
        """
        lister = self._resources.get(str(params.uri))
        changes = {"meta": None, "input_responses": responses_for_server(params)}
        request = types.ReadResourceRequest(params=params.model_copy(update=changes))
        error = MCPError(types.INVALID_PARAMS, "no server has this resource")
        for server in [*self._connections] if lister is None else [lister]:
            try:
                # A server that is asked on a guess must not keep the next one from being asked.
                async with asyncio.timeout(_REQUEST_WAIT_S if lister is None else None):
                    return server, await self._request(server, request, _RESOURCE, params, host)
            except MCPError as exc:
                error = exc
            except ToolError as exc:
                error = MCPError(types.INTERNAL_ERROR, exc.message)
            except TimeoutError:
                error = MCPError(types.INTERNAL_ERROR, f"{server} did not answer")
        raise error

    async def prompt(self, params: types.GetPromptRequestParams, host: HostContext) -> Any:
        """Return a prompt with its arguments filled in.

        Raises:
            MCPError: If no server has the prompt, or its server refuses.
        """
        server, name = await self._prompt_origin(params.name)
        changes = {"name": name, "meta": None, "input_responses": responses_for_server(params)}
        request = types.GetPromptRequest(params=params.model_copy(update=changes))
        try:
            return await self._request(server, request, _PROMPT, params, host)
        except ToolError as exc:
            raise MCPError(types.INTERNAL_ERROR, exc.message) from exc

    async def _request(
        self,
        server: str,
        request: types.ReadResourceRequest | types.GetPromptRequest,
        answer: TypeAdapter[Any],
        params: types.InputResponseRequestParams,
        host: HostContext,
    ) -> Any:
        """Send a host's request to its server, after a question for the host's roots if needed."""
        connection = self._connections[server]
        if question := await connection.roots_first(params, host):
            return question
        result = await connection.use(
            lambda session: session.send_request(request, answer), host=host
        )
        if isinstance(result, types.InputRequiredResult):
            return with_server_names(result, server)
        return result

    async def _prompt_origin(self, name: str) -> tuple[str, str]:
        """Return the server of a prompt, and the prompt's name there."""
        if name not in self._prompts:
            await self.prompts()
        if name not in self._prompts:
            raise MCPError(types.INVALID_PARAMS, "no server has this prompt")
        return self._prompts[name]

    async def complete(
        self, params: types.CompleteRequestParams, host: HostContext
    ) -> types.CompleteResult:
        """Return completions for an argument of a prompt or a resource template.

        There are none if its server does not support completions.

        Raises:
            MCPError: If no server has the prompt or template, or its server refuses.
        """
        ref = params.ref
        if isinstance(ref, types.PromptReference):
            server, name = await self._prompt_origin(ref.name)
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
        """Subscribe a host of an older protocol to a resource.

        Raises:
            MCPError: If no server can announce changes of the resource.
        """
        await self.watch(str(params.uri), self)
        return types.EmptyResult()

    async def unsubscribe(self, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        """End a subscription of `subscribe`."""
        await self.unwatch(self, str(params.uri))
        return types.EmptyResult()

    async def watch(self, uri: str, watcher: object) -> None:
        """Ask the server of a resource to announce its changes.

        If no server lists the resource, all servers that support subscriptions are asked.

        Raises:
            MCPError: If no server can announce changes of the resource.
        """
        if uri not in self._resources:
            await self.resources()
        connections = [*self._connections.values()]
        if uri in self._resources:
            connections = [self._connections[self._resources[uri]]]
        error = MCPError(types.INVALID_PARAMS, "no server announces changes of this resource")
        is_watched = False
        for connection in connections:
            try:
                async with asyncio.timeout(_REQUEST_WAIT_S):
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
        """Stop watching a resource for a watcher, or all its resources."""
        await asyncio.gather(
            *(connection.unwatch(watcher, uri) for connection in self._connections.values())
        )

    async def _list_all(self, field: str, fetch: _Fetch) -> list[tuple[str, Any]]:
        """Return the entries of all servers, each with its server's name.

        Servers that fail or are too slow are left out.
        """

        async def list_one(connection: ServerConnection) -> list[Any]:
            capabilities = (await connection.client()).server_capabilities
            is_supported = capabilities.prompts if field == "prompts" else capabilities.resources
            if is_supported is None:
                return []
            return await all_pages(connection, fetch, field)

        tasks: dict[str, asyncio.Task[list[Any]]] = {}
        for name, connection in self._connections.items():
            tasks[name] = asyncio.create_task(list_one(connection))
        if not tasks:
            return []
        try:
            # Not `gather`, which would lose the complete lists when the time is over.
            await asyncio.wait(tasks.values(), timeout=self._wait_s)
            # A server that has started is only slow, and nothing announces its entries later.
            slow = [task for name, task in tasks.items() if self._connections[name].is_running]
            if slow:
                await asyncio.wait(slow, timeout=_REQUEST_WAIT_S)
        finally:
            late = {name for name, task in tasks.items() if task.cancel()}
        self.late.update(late)
        entries: list[tuple[str, Any]] = []
        for name, task in tasks.items():
            if name not in late and task.exception() is None:
                entries += [(name, entry) for entry in task.result()]
        return entries
