"""Keep the servers, tools and results of one host, apart from all other hosts: `HostSession`."""

import asyncio
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import MCPError
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import event_from_wire
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from llm_common.agents import ContextPointerStore
from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.host_results import (
    HostResults,
    ResultScope,
    ServerOutput,
    previewable_texts,
)
from llm_common.apps.gateway.own_tools import (
    context_definition,
    instructions,
    search_definitions,
)
from llm_common.apps.gateway.servers.catalogue import Catalogue, ServerOffer
from llm_common.apps.gateway.servers.limits import MAX_LINE_CHARS
from llm_common.apps.gateway.servers.questions import (
    HostChannel,
    HostContext,
)
from llm_common.apps.gateway.servers.records import ServerRecords
from llm_common.apps.gateway.servers.requests import read_resource, unwatch, watch
from llm_common.apps.gateway.servers.streams import CAPABILITIES
from llm_common.apps.gateway.servers.tool_listing import (
    READ_CALL,
    TOOL_CALL,
    TOOL_SEARCH,
    ServerTool,
    ToolListing,
    definition_tokens,
    is_marked_read_only,
    shown_description,
    shown_parameters,
    visible_entry,
    visible_schema,
)
from llm_common.core import DefaultCounter, TokenCounter
from llm_common.errors import ServerDownError, ToolError
from llm_common.runtime import in_thread
from llm_common.text import one_line, visible

_ANSWER: Final = TypeAdapter[types.CallToolResult | types.InputRequiredResult](
    types.CallToolResult | types.InputRequiredResult
)
_OWN_META: Final = "llm-common/"
_LIST_TRIES: Final = 3  # while servers list their tools during the listing
_UNWATCH_WAIT_S: Final = 1.0
_PROTOCOL_META: Final = "io.modelcontextprotocol/"
_PASSED_ON: Final = ("sampling", "elicitation", "roots")  # of what a host can do
_RESOURCE_TOOL: Final = "resources/read"  # the name under which the text of a resource is stored

CallResult = types.CallToolResult | types.InputRequiredResult


class HostSession:
    """The state between one host and its servers.

    Args:
        config: Servers, rules and limits.
        store: Stores its results.
        scope: Whose results they are. None for a scope that nothing else has.
        records: The last known tools of the servers. None if nothing is known.
        counter: Counts tokens. None for the default counter.

    Attributes:
        results: The stored results.
        catalogue: What the servers offer.
        running: Number of the host's requests that are not answered yet.
        last_used: When the last request ended, by `time.monotonic`.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        store: ContextPointerStore,
        scope: ResultScope | None = None,
        records: ServerRecords | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self._counter = counter or DefaultCounter()
        self.results: Final = HostResults(config, store, scope=scope, counter=self._counter)
        self._channel: Final = HostChannel()
        self._records: Final = records or ServerRecords(None)
        self.catalogue: Final = Catalogue(
            config,
            channel=self._channel,
            records=self._records,
            counter=self._counter,
            on_listed=self._on_listed,
            on_notification=self._on_notification,
        )
        self._told: list[types.Tool] | None = None
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self.running = 0
        self.last_used: float = time.monotonic()

    @contextmanager
    def serving(self, host: HostContext) -> Iterator[None]:
        """Count a request of the host inside the block.

        Changes are announced over the connection of the newest request.
        """
        self._channel.newest = host
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1
            self.last_used = time.monotonic()

    async def list_tools(self) -> types.ListToolsResult:
        """Return the gateway's own tools, then the servers' tools that the host lists, by name."""
        tools: list[types.Tool] = []
        for _ in range(_LIST_TRIES):
            listing = await self.catalogue.listing_for_host()
            tools = await in_thread(self._tools_of, listing)
            # A server may have listed its tools while these were made.
            if self.catalogue.current is listing:
                break
        self._told = tools
        return types.ListToolsResult(tools=tools)

    def _tools_of(self, listing: ToolListing) -> list[types.Tool]:
        """Return the tools that the host lists."""
        tools = self._own_tools(searched=listing.searched)
        for name, tool in listing.listed().items():
            tools.append(self._definition(name, tool))
        return tools

    def _own_tools(self, *, searched: bool) -> list[types.Tool]:
        tools = [context_definition(tool) for tool in self.results.tools.values()]
        if searched:
            tools += search_definitions()
        return tools

    def listed_tokens(self, *, searched: bool) -> int:
        """Return the tokens that a host spends on the gateway before any call.

        These are the definitions that it lists, with the gateway's own, and the instructions.

        Args:
            searched: Whether to count the list of search mode.
        """
        listing = self.catalogue.current
        text = instructions(self.catalogue.config, self._records)
        tokens = self._counter.count(text or "")
        for own in self._own_tools(searched=searched):
            description = own.description or ""
            tokens += definition_tokens(own.name, description, own.input_schema, self._counter)
        names: Collection[str] = listing.tools
        if searched:
            names = listing.pinned_names
        # Summed from the counts of the listing, because counting thousands takes seconds.
        return tokens + sum(listing.definition_tokens.get(name, 0) for name in names)

    def _definition(self, name: str, tool: ServerTool) -> types.Tool:
        """Return the definition of a server's tool for the host."""
        changes: dict[str, Any] = {
            "name": name,
            "description": shown_description(tool),
            "input_schema": shown_parameters(tool),
            "execution": None,  # it offers tasks, which the gateway does not pass on
        }
        definition: types.Tool = tool.definition
        if definition.title:
            changes["title"] = visible(one_line(definition.title, max_chars=MAX_LINE_CHARS))
        if definition.annotations:
            changes["annotations"] = visible_entry(definition.annotations)
        if self.results.keeps:
            changes["output_schema"] = None  # a preview does not match the schema
        elif definition.output_schema:
            changes["output_schema"] = visible_schema(definition.output_schema)
        return definition.model_copy(update=changes)

    async def call(
        self, params: types.CallToolRequestParams, host: HostContext | None = None
    ) -> CallResult:
        """Call a tool and return the server's answer or a preview. Failures are results too.

        Raises:
            MCPError: If the server refused.
        """
        try:
            return await self.answer(params, host)
        except ToolError as exc:
            meta: dict[str, Any] = {"llm-common/error": type(exc).__name__}
            if isinstance(exc, ServerDownError):
                meta["llm-common/server"] = exc.server
                meta["llm-common/retryAfterS"] = exc.retry_after_s
            failure = _text_result(exc.message, is_error=True)
            return failure.model_copy(update={"meta": meta})

    async def answer(
        self, params: types.CallToolRequestParams, host: HostContext | None = None
    ) -> CallResult:
        """Return the same as `call`, but raise the failures of tools.

        Raises:
            ToolError: If the tool has no result. Its subclasses give the reason.
            MCPError: If the server refused.
        """
        name, arguments = params.name, dict(params.arguments or {})
        if name in self.results.tools:
            return _text_result(await self.results.answer(name, arguments))
        if name == TOOL_SEARCH:
            return _text_result(await self.catalogue.search(str(arguments.get("query", ""))))
        is_by_name = name in (READ_CALL, TOOL_CALL)
        if is_by_name:
            name, arguments = str(arguments.get("name", "")), arguments.get("arguments") or {}
        tool = await self.catalogue.find(name)
        if tool is None:
            return await self._unknown(name)
        if is_by_name and (refusal := self._refusal(params.name, name, tool, arguments)):
            return _text_result(refusal, is_error=True)
        return await self._run(name, tool, params, arguments, host)

    async def _unknown(self, name: str) -> types.CallToolResult:
        """Return an error with similar names, and with the servers whose tools are missing."""
        listing = self.catalogue.current
        text = f"no tool has this name; there are {len(listing.tools)} others"
        # In a thread, because it compares the name with those of all tools.
        if near := await in_thread(listing.near, name):
            text = f"no tool has this name; similar ones are {', '.join(near)}"
        for server, problem in self.catalogue.problems().items():
            text += f"; {server} has no tools: {problem}"
        return _text_result(text, is_error=True)

    def _refusal(self, caller: str, name: str, tool: ServerTool, arguments: object) -> str:
        """Return why one of the tools that call others does not run this tool, or ""."""
        # The host may have asked its user for one of the two tools only.
        if caller == READ_CALL and not is_marked_read_only(tool):
            call_tool = f"{self.catalogue.config.host_prefix}{TOOL_CALL}"
            return f"{name} was not run: it is not marked read-only. Run it with {call_tool}"
        if not isinstance(arguments, dict):
            return f"{name} was not run: its arguments must be one object with names as keys"
        # The host has no schema for these arguments, so it cannot have checked them.
        return self.catalogue.current.problems(name, arguments)

    async def _run(
        self,
        name: str,
        tool: ServerTool,
        params: types.CallToolRequestParams,
        arguments: dict[str, Any],
        host: HostContext | None,
    ) -> CallResult:
        connection = self.catalogue.servers[tool.server].connection
        request = types.CallToolRequest(
            params=types.CallToolRequestParams(
                name=tool.name,
                arguments=arguments,
                # With the newest protocol, the host answers a server's question with a second call.
                input_responses=params.input_responses,
                request_state=params.request_state,
                meta=_meta_to_forward(host),
            )
        )
        wants_progress = host is not None and "progress_token" in (host.meta or {})

        async def report(progress: float, total: float | None, message: str | None) -> None:
            # `object` is no kind of notification, so progress has a limit apart from the others.
            with self._channel.slot(tool.server, object) as is_free:
                if is_free and host is not None:
                    await host.session.report_progress(progress, total, message)

        server = self.catalogue.config.servers[tool.server]
        send = partial(
            connection.request,
            request,
            _ANSWER,
            params,
            host,
            timeout_s=server.call_timeout_s or self.catalogue.config.call_timeout_s,
            progress=report if wants_progress else None,
        )
        try:
            result: CallResult = await send()
        except MCPError as exc:
            if exc.code != types.HEADER_MISMATCH:
                raise await self._with_short_message(exc, tool, name, arguments) from exc
            # The tool's schema names headers, and it has changed. List it again, then retry.
            # A call that was refused for its headers has had no effect, so a retry is safe.
            self.catalogue.mark_stale(tool.server)
            await self.catalogue.listing()
            result = await send()
        if result.meta:  # a server must not use the gateway's own keys
            meta: Any = {
                key: value for key, value in result.meta.items() if not key.startswith(_OWN_META)
            }
            result = result.model_copy(update={"meta": meta or None})
        if isinstance(result, types.InputRequiredResult):
            return result
        return await self._with_preview(result, tool, name, arguments)

    async def _with_preview(
        self,
        result: types.CallToolResult,
        tool: ServerTool,
        name: str,
        arguments: Mapping[str, Any],
    ) -> types.CallToolResult:
        """Return a result with a preview instead of long text. Media and the error flag stay."""
        output = ServerOutput.of_result(result)
        preview = await self.results.preview(
            output,
            self.catalogue.config.result_limits(tool.server, tool.name, name),
            tool=name,
            args=arguments,
        )
        if preview is None:
            return result
        content: list[Any] = [types.TextContent(type="text", text=preview.text)]
        if preview.keeps_links:
            content += output.links
        content += output.media
        return types.CallToolResult(content=content, is_error=result.is_error, meta=result.meta)

    async def _with_short_message(
        self, error: MCPError, tool: ServerTool, name: str, arguments: Mapping[str, Any]
    ) -> MCPError:
        """Return a server's refusal, with a preview instead of a long message."""
        preview = await self.results.preview(
            ServerOutput(error.data, [error.message]),
            self.catalogue.config.result_limits(tool.server, tool.name, name),
            tool=name,
            args=arguments,
        )
        return MCPError(error.code, preview.text) if preview else error

    async def read_resource(
        self, params: types.ReadResourceRequestParams, host: HostContext
    ) -> types.ReadResourceResult | types.InputRequiredResult:
        """Read a resource, with a preview instead of long text for a model.

        Pages and binary contents stay whole, because hosts read these for themselves.

        Raises:
            MCPError: If no server has the resource.
        """
        server, result = await read_resource(self.catalogue, params, host)
        if isinstance(result, types.InputRequiredResult):
            return result
        texts = previewable_texts(result.contents)
        if not texts:
            return result
        uri = str(params.uri)
        preview = await self.results.preview(
            ServerOutput.of_resource(texts),
            self.catalogue.config.result_limits(server, uri),
            tool=_RESOURCE_TOOL,
            args={"uri": uri},
        )
        if preview is None:
            return result
        preview_text = types.TextResourceContents(
            uri=uri, mime_type="text/plain", text=preview.text
        )
        others = [content for content in result.contents if content not in texts]
        return result.model_copy(update={"contents": [preview_text, *others]})

    async def close(self) -> None:
        """End the servers and remove the results."""
        # The results are removed now, because a host may kill the gateway before its servers have
        # ended. They are removed again for calls that finished in between.
        await asyncio.gather(self.results.close(), self.catalogue.close())
        await self.results.close()

    async def reload(self, config: GatewayConfig) -> None:
        """Take over another configuration, and approvals, and announce what changes.

        Servers with another entry end, and their successors start unless the gateway is lazy.
        """
        ended = self.catalogue.reload(config)
        if not config.lazy:
            await self.catalogue.listing(wait_s=0.0)
        await self._announce_tools()
        if ended:
            await self._announce_lists()
        await asyncio.gather(
            *(connection.close("it left the configuration") for connection in ended)
        )

    async def _on_notification(self, server: str, message: types.ServerNotification) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self.catalogue.mark_stale(server)
            if not self.catalogue.current.lists_any_of(server):
                return  # the host's list does not change
        if isinstance(message, types.LoggingMessageNotification):
            await self._pass_log_on(server, message.params)
            return
        with self._channel.slot(server, type(message)) as is_free:
            if is_free:
                await self._notify_host(message)

    async def _pass_log_on(
        self, server: str, params: types.LoggingMessageNotificationParams
    ) -> None:
        """Send a server's log message on the stream of a running call, if the host wants it."""
        offer = self.catalogue.servers.get(server)
        call = offer.connection.questions.call if offer else None
        host = call or self._channel.newest
        if host is None or not self._channel.wants_log(host, params.level):
            return
        # The logger begins with the server's name.
        logger = "/".join(filter(None, [server, params.logger]))
        message = types.LoggingMessageNotification(
            params=params.model_copy(update={"logger": logger})
        )
        related_id = call.request_id if call else None
        with self._channel.slot(server, types.LoggingMessageNotification) as is_free:
            if is_free:
                await host.session.send_notification(message, related_id)

    async def set_log_level(
        self,
        params: types.SetLevelRequestParams,
        host: HostContext,  # noqa: ARG002
    ) -> types.EmptyResult:
        """Pass on only log messages of a level or above, and tell the servers."""
        self._channel.log_level = params.level
        await asyncio.gather(
            *(offer.connection.pass_log_level_on() for offer in self.catalogue.servers.values())
        )
        return types.EmptyResult()

    async def _on_listed(self, offer: ServerOffer) -> None:
        """Announce what a server has added to the lists of the host, or removed from them."""
        await self._announce_tools()
        if offer.is_late and not offer.problem:
            offer.is_late = False
            await self._announce_lists()

    async def _announce_lists(self) -> None:
        await self._notify_host(types.ResourceListChangedNotification())
        await self._notify_host(types.PromptListChangedNotification())

    async def _announce_tools(self) -> None:
        """Announce that the tools differ from the last list that the host was given, if so."""
        told = self._told
        if told is None:
            return
        listing = await self.catalogue.latest()
        # In a thread, because comparing thousands of definitions takes long.
        changed = await in_thread(lambda: self._tools_of(listing) != told)
        # The host may have been told meanwhile.
        if changed and self._told is told:
            self._told = None
            await self._notify_host(types.ToolListChangedNotification())

    async def announce_roots(self) -> None:
        """Tell all running servers that the host's roots have changed."""
        await asyncio.gather(
            *(offer.connection.announce_roots() for offer in self.catalogue.servers.values())
        )

    async def _notify_host(self, message: types.ServerNotification) -> None:
        host = self._channel.newest
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
        """Send changes to a host of the newest protocol until it ends the request."""
        uris, watcher = params.notifications.resource_subscriptions or (), object()
        try:
            # As the protocol requires, a resource that no server can watch is not an error.
            await asyncio.gather(
                *(watch(self.catalogue, uri, watcher) for uri in uris), return_exceptions=True
            )
            return await self._listen(host, params)
        finally:
            # Shielded: the request is usually cancelled, and the servers must still be told.
            with anyio.move_on_after(_UNWATCH_WAIT_S, shield=True):
                await unwatch(self.catalogue, watcher)


def _meta_to_forward(host: HostContext | None) -> Any:
    """Return a request's metadata for the server, without progress token and most protocol keys."""
    if host is None:
        return None
    meta: Mapping[str, Any] = host.meta or {}
    forwarded = {key: value for key, value in meta.items() if not key.startswith(_PROTOCOL_META)}
    if level := meta.get(types.LOG_LEVEL_META_KEY):
        forwarded[types.LOG_LEVEL_META_KEY] = level
    if able := meta.get(types.CLIENT_CAPABILITIES_META_KEY):
        forwarded[CAPABILITIES] = {key: able[key] for key in _PASSED_ON if key in able}
    forwarded.pop("progress_token", None)  # the gateway's own request has another one
    return forwarded or None


def _text_result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], is_error=is_error
    )
