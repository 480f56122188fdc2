"""`HostSession`: one host's servers, tools and results.

Nothing of it is shared with another host.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import event_from_wire
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from llm_common._threads import in_thread
from llm_common.apps.gateway.gateway_config import GatewayConfig
from llm_common.apps.gateway.host_results import GatewayCounts, HostResults
from llm_common.apps.gateway.server_connection import HostAbilities, HostContext, ServerConnection
from llm_common.apps.gateway.server_lists import ServerLists, tools_of
from llm_common.apps.gateway.tool_listing import (
    TOOL_CALL,
    TOOL_SEARCH,
    ServerTool,
    ToolListing,
    shown_description,
)
from llm_common.core.tokens import DefaultCounter, TokenCounter
from llm_common.errors import ServerDownError, ToolError
from llm_common.pointers.store import ContextPointerStore
from llm_common.text.display import one_line

_ANSWER: Final = TypeAdapter[types.CallToolResult | types.InputRequiredResult](
    types.CallToolResult | types.InputRequiredResult
)
_ALWAYS_LOADED: Final = {"anthropic/alwaysLoad": True}
_OWN_META: Final = "llm-common/"
_MAX_WAITING: Final = 100
_UNWATCH_WAIT_S: Final = 1.0
_MAX_TITLE_CHARS: Final = 200
_PROTOCOL_META: Final = "io.modelcontextprotocol/"
_INTENT: Final = {"type": "string", "description": "What you want from the result."}
_SEARCH_TOOL: Final = types.Tool(
    name=TOOL_SEARCH,
    description=(
        "Finds tools by what they do, with their parameters. Search before you say that you cannot "
        "do a thing."
    ),
    input_schema={
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What is to be done, in plain words."}
        },
        "required": ["query"],
    },
    annotations=types.ToolAnnotations(read_only_hint=True),
    meta=_ALWAYS_LOADED,
)
_CALL_TOOL: Final = types.Tool(
    name=TOOL_CALL,
    description=f"Runs a tool that {TOOL_SEARCH} found.",
    input_schema={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The tool's name."},
            "arguments": {"type": "object", "description": "Its arguments, by its own schema."},
            "intent": _INTENT,
        },
        "required": ["name"],
    },
    meta=_ALWAYS_LOADED,
)

CallResult = types.CallToolResult | types.InputRequiredResult


class HostSession:
    """Everything between one host and the servers.

    Args:
        config: Servers, rules and limits.
        abilities: What the host can do.
        store: Where its results go.
        counts: Counts what is done.
        counter: Counts tokens; None takes the upper bound.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        abilities: HostAbilities,
        store: ContextPointerStore,
        counts: GatewayCounts | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._config = config
        self._counter = counter or DefaultCounter()
        self.results: Final = HostResults(config, store, counts=counts, counter=self._counter)
        self.connections: Final = {
            name: ServerConnection(
                name,
                server,
                abilities=abilities,
                start_timeout_s=config.start_timeout_s,
                on_notification=self._on_notification,
            )
            for name, server in config.servers.items()
        }
        self.lists: Final = ServerLists(self.connections, wait_s=config.list_wait_s)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._listed: dict[str, tuple[ServerTool, ...]] = {}
        self._stale: set[str] = set()
        self._waiting: Counter[tuple[str, type]] = Counter()
        self._current: tuple[dict[str, tuple[ServerTool, ...]], ToolListing] | None = None
        self._found: frozenset[str] = frozenset()
        self._telling: set[asyncio.Task[None]] = set()
        self._host: HostContext | None = None
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self.running = 0
        """Requests of the host that are not answered yet."""
        self.last_used: float = time.monotonic()

    @contextmanager
    def serving(self, host: HostContext) -> Iterator[None]:
        """Counts a request of the host in the block.

        Changes are announced over the connection of the newest.
        """
        self._host = host
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self.last_used = time.monotonic()

    async def listing(self) -> ToolListing:
        """The tools of all servers that are there.

        Waits for those that start, within the configured time.
        """
        for _ in range(2):  # once more for a server that changed its tools meanwhile
            self._list_missing()
            waiting = {task for task in self._tasks.values() if not task.done()}
            if not waiting:
                break
            _, late = await asyncio.wait(waiting, timeout=self._config.list_wait_s)
            for task in late:
                task.remove_done_callback(self._announce_late)  # once for each, whoever waits
                task.add_done_callback(self._announce_late)
            if late:
                break
        return await in_thread(self.known)  # thousands of definitions take seconds to count

    def _list_missing(self) -> None:
        for name in self.connections:
            task = self._tasks.get(name)
            if task is None or (
                task.done() and (name in self._stale or task.cancelled() or task.exception())
            ):
                self._stale.discard(name)
                self._tasks[name] = asyncio.create_task(self._list(name))

    async def _list(self, name: str) -> None:
        """Lists a server's tools; those of before stay meanwhile."""
        try:
            self._listed[name] = await tools_of(self.connections[name])
        except BaseException:
            self._listed.pop(name, None)
            raise

    def known(self) -> ToolListing:
        """The tools of the servers that have listed theirs."""
        lists = {
            name: tools
            for name in self.connections
            if (tools := self._listed.get(name)) is not None
        }
        current = self._current
        if current is None or current[0] != lists:
            current = self._current = lists, ToolListing(self._config, lists, self._counter)
        return current[1]

    def problems(self) -> dict[str, str]:
        """What is wrong with the servers that have listed no tools."""
        found = {}
        for name, task in self._tasks.items():
            if not task.done() and name not in self._listed:
                found[name] = "it is still starting"
            elif task.done() and not task.cancelled() and (error := task.exception()):
                found[name] = str(error)
        return found

    async def list_tools(self) -> types.ListToolsResult:
        """What the host lists: the gateway's own tools first, then those of the servers by name."""
        return types.ListToolsResult(tools=self._tools_of(await self.listing()))

    def _tools_of(self, listing: ToolListing) -> list[types.Tool]:
        own = [
            types.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tool.parameters,
                annotations=types.ToolAnnotations(read_only_hint=True),
                meta=_ALWAYS_LOADED,
            )
            for tool in self.results.tools.values()
        ]
        searching = [_SEARCH_TOOL, _CALL_TOOL] if listing.searched else []
        return [
            *own,
            *searching,
            *(self._shown(name, tool) for name, tool in listing.listed(self._found).items()),
        ]

    def shown_tokens(self) -> int:
        """Tokens of the definitions that the host lists."""
        shown = [
            tool.model_dump_json(include={"name", "description", "input_schema"}, by_alias=True)
            for tool in self._tools_of(self.known())
        ]
        return sum(map(self._counter.count, shown))

    def _shown(self, name: str, tool: ServerTool) -> types.Tool:
        changes: dict[str, Any] = {
            "name": name,
            "description": shown_description(tool),
            "execution": None,
        }
        if tool.definition.title:
            changes["title"] = one_line(tool.definition.title, max_chars=_MAX_TITLE_CHARS)
        if self._takes_intent(tool):
            properties = {**tool.parameters.get("properties", {}), "intent": _INTENT}
            changes["input_schema"] = {**tool.parameters, "properties": properties}
        if self.results.keeps:
            changes["output_schema"] = None  # a preview is no such output
        definition: types.Tool = tool.definition
        return definition.model_copy(update=changes)

    def _takes_intent(self, tool: ServerTool) -> bool:
        properties = tool.parameters.get("properties", {})
        return (
            self._config.intent
            and self.results.keeps
            and isinstance(properties, dict)
            and "intent" not in properties
        )

    async def call(
        self, params: types.CallToolRequestParams, host: HostContext | None = None
    ) -> CallResult:
        """What a tool answers: the server's answer, or a preview of it.

        Failures as results that say so.

        Raises:
            MCPError: The server refused.
        """
        try:
            return await self.answer(params, host)
        except ToolError as exc:
            return _failed(exc)

    async def answer(
        self, params: types.CallToolRequestParams, host: HostContext | None = None
    ) -> CallResult:
        """As `call`, for whoever handles the failures of tools.

        Raises:
            ToolError: The tool gave no result; its subclasses say why.
            MCPError: The server refused.
        """
        name, arguments = params.name, dict(params.arguments or {})
        if name in self.results.tools:
            return _text(await self.results.answer(name, arguments))
        if name == TOOL_SEARCH:
            return _text(await self._search(str(arguments.get("query", ""))))
        if name == TOOL_CALL:
            return await self._call_found(params, arguments, host)
        found = await self._find(name)
        if found is None:
            return _unknown(name, await self.listing(), self.problems())
        intent = str(arguments.pop("intent", None) or "") if self._takes_intent(found[1]) else ""
        return await self._run(*found, params, arguments, intent=intent, host=host)

    async def _find(self, name: str) -> tuple[str, ServerTool] | None:
        """A tool; does not wait for other servers if its own has listed it."""
        return self.known().find(name) or (await self.listing()).find(name)

    async def _search(self, query: str) -> str:
        listing = await self.listing()
        shown, names = await in_thread(listing.search, query)
        self.results.counts.tokens_read_back += self._counter.count(shown)
        if self._config.list_found and not self._found.issuperset(names):
            self._found |= frozenset(names)
            await self._tell(types.ToolListChangedNotification())
        return shown

    async def _call_found(
        self,
        params: types.CallToolRequestParams,
        arguments: Mapping[str, Any],
        host: HostContext | None,
    ) -> CallResult:
        name, inner = str(arguments.get("name", "")), arguments.get("arguments") or {}
        found = await self._find(name)
        if found is None:
            return _unknown(name, await self.listing(), self.problems())
        if not isinstance(inner, dict):
            return _text(
                f"{name} was not run: its arguments must be one object with names as keys",
                is_error=True,
            )
        if problems := self.known().problems(found[0], inner):
            return _text(problems, is_error=True)
        return await self._run(
            *found, params, inner, intent=str(arguments.get("intent") or ""), host=host
        )

    async def _run(
        self,
        name: str,
        tool: ServerTool,
        params: types.CallToolRequestParams,
        arguments: dict[str, Any],
        *,
        intent: str,
        host: HostContext | None,
    ) -> CallResult:
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=tool.name,
                arguments=arguments,
                input_responses=params.input_responses,
                request_state=params.request_state,
                meta=_passed_on(host),
            )
        )
        tells = host is not None and "progress_token" in (host.meta or {})

        async def report(progress: float, total: float | None, message: str | None) -> None:
            with self._room(tool.server, object) as free:
                if free and host is not None:
                    await host.session.report_progress(progress, total, message)

        async def send(session: ClientSession) -> CallResult:
            timeout_s = self._config.call_timeout_s
            return await session.send_request(
                request, _ANSWER, timeout_s, progress_callback=report if tells else None
            )

        connection = self.connections[tool.server]
        try:
            result = await connection.use(send, host=host)
        except MCPError as exc:
            if exc.code != types.HEADER_MISMATCH:
                raise
            self._stale.add(tool.server)  # its schema has changed
            await self.listing()
            result = await connection.use(send, host=host)
        if result.meta:  # what only the gateway says
            meta: Any = {
                key: value for key, value in result.meta.items() if not key.startswith(_OWN_META)
            }
            result = result.model_copy(update={"meta": meta or None})
        if isinstance(result, types.InputRequiredResult) or result.is_error:
            return result
        return await self._kept(result, name, arguments, intent)

    async def _kept(
        self, result: types.CallToolResult, name: str, arguments: Mapping[str, Any], intent: str
    ) -> types.CallToolResult:
        texts = [text for block in result.content if (text := _text_in(block)) is not None]
        preview = await self.results.preview(
            result.structured_content, texts, tool=name, args=arguments, intent=intent
        )
        if preview is None:
            return result
        others = [block for block in result.content if _text_in(block) is None]
        shown = types.TextContent(type="text", text=preview)
        return types.CallToolResult(content=[shown, *others], meta=result.meta)

    async def close(self) -> None:
        """Ends the servers and removes the results."""
        for task in self._tasks.values():
            task.cancel()
        # The results at once, for a host may not wait until the servers have ended; then those that
        # came meanwhile.
        await asyncio.gather(
            self.results.close(), *(connection.close() for connection in self.connections.values())
        )
        await self.results.close()

    async def _on_notification(self, server: str, message: types.ServerNotification) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._stale.add(server)
            if self._current is not None and not self._current[1].lists_any_of(server, self._found):
                return  # the host's list stays
        with self._room(server, type(message)) as free:
            if free:
                await self._tell(message)

    @contextmanager
    def _room(self, server: str, kind: type) -> Iterator[bool]:
        """Whether one more message may wait for the host; a flood is not kept."""
        key = server, kind
        self._waiting[key] += 1
        try:
            yield self._waiting[key] <= _MAX_WAITING
        finally:
            self._waiting[key] -= 1

    def _announce_late(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None:
            telling = asyncio.create_task(self._tell_of_late())
            self._telling.add(telling)  # a task that nobody holds may be collected
            telling.add_done_callback(self._telling.discard)

    async def _tell_of_late(self) -> None:
        for message in (
            types.ToolListChangedNotification(),
            types.ResourceListChangedNotification(),
            types.PromptListChangedNotification(),
        ):
            await self._tell(message)

    async def tell_servers(self, message: types.RootsListChangedNotification) -> None:
        """Passes on that the host's folders changed."""
        await asyncio.gather(
            *(connection.tell(message) for connection in self.connections.values())
        )

    async def _tell(self, message: types.ServerNotification) -> None:
        host = self._host
        if host is None:
            return
        if host.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            await host.session.send_notification(message)
        elif event := event_from_wire(
            message.method, message.model_dump(mode="json").get("params")
        ):
            await self._bus.publish(event)

    async def listen(
        self, params: types.SubscriptionsListenRequestParams, host: HostContext
    ) -> Any:
        """Tells a host of the present era what changes, until it ends the request."""
        uris, watcher = params.notifications.resource_subscriptions or (), object()
        try:  # one that no server can watch never changes, as the protocol has it
            await asyncio.gather(
                *(self.lists.watch(uri, watcher) for uri in uris), return_exceptions=True
            )
            return await self._listen(host, params)
        finally:
            with anyio.move_on_after(_UNWATCH_WAIT_S, shield=True):
                await self.lists.unwatch(watcher)


def _passed_on(host: HostContext | None) -> Any:
    """Return what a server gets of a request's metadata: the host's own, without its token."""
    meta = (host.meta if host else None) or {}
    kept = {
        key: value
        for key, value in meta.items()
        if key != "progress_token" and not key.startswith(_PROTOCOL_META)
    }
    return kept or None


def _text_in(block: types.ContentBlock) -> str | None:
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.EmbeddedResource) and isinstance(
        block.resource, types.TextResourceContents
    ):
        return block.resource.text
    return None


def _text(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )


def _failed(error: ToolError) -> types.CallToolResult:
    meta: dict[str, Any] = {"llm-common/error": type(error).__name__}
    if isinstance(error, ServerDownError):
        meta |= {"llm-common/server": error.server, "llm-common/retryAfterS": error.retry_after_s}
    return _text(error.message, is_error=True).model_copy(update={"meta": meta})


def _unknown(name: str, listing: ToolListing, problems: Mapping[str, str]) -> types.CallToolResult:
    near = get_close_matches(name[:64], listing.tools, n=3)
    hint = (
        f"the nearest are {', '.join(near)}" if near else f"{len(listing.tools)} others are there"
    )
    missing = "".join(f"; {server} gives none: {problem}" for server, problem in problems.items())
    return _text(f"no tool is called that; {hint}{missing}", is_error=True)
