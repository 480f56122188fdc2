"""List what the servers of a host offer: `Catalogue`, with one `ServerOffer` for each server."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import mcp_types as types
from mcp import ClientSession, MCPError

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.servers.connection import OnNotification, ServerConnection
from llm_common.apps.gateway.servers.limits import (
    MAX_ENTRIES,
    MAX_LIST_BYTES,
    MAX_PAGES,
    REQUEST_WAIT_S,
)
from llm_common.apps.gateway.servers.questions import HostChannel
from llm_common.apps.gateway.servers.records import (
    ApprovedTool,
    ServerRecords,
    changed_names,
    entry_digest,
    server_tools,
)
from llm_common.apps.gateway.servers.tool_listing import (
    ServerTool,
    ToolListing,
    unique_names,
    visible_entry,
)
from llm_common.core import TokenCounter
from llm_common.errors import ServerDownError, ToolError, ToolFailedError
from llm_common.runtime import in_thread

_log = logging.getLogger(__name__)

_CHANGED: Final = "[This definition changed after it was approved.]"

Kind = Literal["resource", "template", "prompt"]
_Fetch = Callable[[ClientSession, types.PaginatedRequestParams], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class ListedTools:
    """What a server offers, by its own words.

    Attributes:
        tools: The tools.
        approved: The tools by name, as the user approved them.
    """

    tools: tuple[ServerTool, ...]
    approved: Mapping[str, ApprovedTool]


@dataclass(eq=False, slots=True)
class ServerOffer:
    """What one server offers to a host.

    A reload drops the offer of a server that ends. What is still done for it then has no effect.

    Attributes:
        connection: The server.
        listed: The tools that it has listed now or in an earlier run, or None.
        is_remembered: Whether they are of an earlier run.
        is_new: Whether an earlier run has yet to be looked up.
        is_stale: Whether the server has changed its tools since it was last asked.
        is_late: Whether a list of resources or prompts lacks the server, which was slow or down.
        task: Lists the tools, or did so last.
        names: What else it has listed, by kind: the names there, by what the host calls them. That
            is the URI of a resource or template.
    """

    connection: ServerConnection
    listed: ListedTools | None = None
    is_remembered: bool = False
    is_new: bool = True
    is_stale: bool = False
    is_late: bool = False
    task: asyncio.Task[None] | None = None
    names: dict[Kind, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_listing(self) -> bool:
        """Return whether the server is listing its tools, or starting."""
        return self.task is not None and not self.task.done()

    @property
    def error(self) -> BaseException | None:
        """Return why the server could not list its tools, or None."""
        if self.task is None or not self.task.done() or self.task.cancelled():
            return None
        return self.task.exception()

    @property
    def problem(self) -> str:
        """Return why the server has not listed its tools, or ""."""
        if self.is_listing and self.is_remembered:
            return "it is still starting; its tools are those of its last run"
        if self.is_listing and self.listed is None:
            return "it is still starting"
        error = self.error
        # Without the time of the next start, which is long past when somebody reads this.
        if isinstance(error, ServerDownError) and self.connection.problem:
            return self.connection.problem
        return str(error) if error else ""


class Catalogue:
    """What all servers of one host offer.

    A server's tools of an earlier run are there at once. The server's own answer replaces them, and
    its failure removes them.

    Resources and prompts are listed for each request. A resource keeps its URI, and the first
    server that lists it answers. Prompts with the same name get their server's prefix. A server
    that does not answer is left out.

    Args:
        config: Servers, rules, mode and limits.
        channel: The way to the host.
        records: The last known tools of the servers.
        counter: Counts the tokens of definitions.
        on_listed: Called with a server's offer once it has listed its tools, or has failed to.
        on_notification: Called with a server's name, and a change or a log message of it.

    Attributes:
        config: The configuration in use.
        current: The listing that was created last, which may lack the newest changes.
        changed: The names of its tools that changed after they were approved, by server.
        servers: The offers by the name of their server, in the order of the configuration.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        channel: HostChannel,
        records: ServerRecords,
        counter: TokenCounter,
        on_listed: Callable[[ServerOffer], Coroutine[Any, Any, None]],
        on_notification: OnNotification,
    ) -> None:
        self.config = config
        self._channel = channel
        self._records = records
        self._counter = counter
        self._on_listed = on_listed
        self._on_notification = on_notification
        self._telling: set[asyncio.Task[None]] = set()
        self._updating = asyncio.Lock()
        self.current = ToolListing(config, {}, counter)
        self.changed: Mapping[str, frozenset[str]] = {}
        # What the current listing was created from.
        self._source: tuple[GatewayConfig, dict[str, ListedTools]] = config, {}
        self._idle_rules: tuple[str, ...] = ()
        self.servers: dict[str, ServerOffer] = {}
        self.reload(config)

    def reload(self, config: GatewayConfig) -> list[ServerConnection]:
        """Take over another configuration, and approvals.

        Returns:
            The connections to servers that left, or whose entry changed. The caller closes them.
        """
        self.config = config
        earlier, self.servers = self.servers, {}
        is_change = bool(earlier)
        for name, entry in config.servers.items():
            offer = earlier.get(name)
            if offer and entry_digest(offer.connection.config) == entry_digest(entry):
                del earlier[name]
            else:
                connection = ServerConnection(
                    name,
                    entry,
                    start_timeout_s=entry.start_timeout_s or config.start_timeout_s,
                    on_notification=self._on_notification,
                    channel=self._channel,
                )
                # The lists that the host has lack a server that was added.
                offer = ServerOffer(connection, is_late=is_change)
            self._take_approvals(offer)
            self.servers[name] = offer
        _cancel(earlier.values())
        return [offer.connection for offer in earlier.values()]

    async def close(self) -> None:
        """End all servers, and all waiting for them."""
        _cancel(self.servers.values())
        await asyncio.gather(*(offer.connection.close() for offer in self.servers.values()))

    async def listing(self, *, wait_s: float = REQUEST_WAIT_S) -> ToolListing:
        """Return the tools of all servers that are known, and wait for those of the others.

        Args:
            wait_s: Seconds to wait.
        """
        await self.latest()
        for offer in self.servers.values():
            # A lazy gateway starts no server to confirm what is remembered of it.
            if not (self.config.lazy and offer.is_remembered):
                self._list_if_needed(offer)
        if await self._wait_for_unknown(wait_s):
            for offer in self.servers.values():
                if offer.is_stale:  # it changed its tools during the wait
                    self._list_if_needed(offer)
            await self._wait_for_unknown(wait_s)
        return await self.latest()

    async def _wait_for_unknown(self, wait_s: float) -> bool:
        """Wait for servers whose tools are not known, and return whether these have answered."""
        waiting: set[asyncio.Task[None]] = set()
        for offer in self.servers.values():
            if offer.task and not offer.task.done() and not offer.is_remembered:
                waiting.add(offer.task)
        if not waiting or wait_s == 0:
            return False
        _, late = await asyncio.wait(waiting, timeout=wait_s)
        return not late

    async def listing_of_all(self) -> ToolListing:
        """Return the tools of all servers, once each has listed them or has failed to."""
        limits_s = [offer.connection.start_timeout_s for offer in self.servers.values()]
        # A start and a listing have the same limit each.
        return await self.listing(wait_s=2 * max(limits_s, default=0.0) + 1)

    async def listing_for_host(self) -> ToolListing:
        """Return the tools for a list of the host.

        A list of only the tools that search and call depends on no server, so it waits for none.
        """
        rules = [self.config.rules, *(server.rules for server in self.config.servers.values())]
        wait_s = self.config.list_wait_s
        if self.config.tools == "search" and not any(rule.pinned for rule in rules):
            wait_s = 0.0
        return await self.listing(wait_s=wait_s)

    async def latest(self) -> ToolListing:
        """Return a listing of the tools that are known now, without waiting for servers."""
        # Two requests at the same time must not count the same definitions twice.
        async with self._updating:
            while True:
                offers = self.servers.values()
                new = next((offer for offer in offers if offer.is_new), None)
                if new is not None:
                    await self._remember(new)
                    continue
                source = self.config, dict[str, ListedTools]()
                for name, offer in self.servers.items():
                    if offer.listed is not None:
                        source[1][name] = offer.listed
                if source == self._source:
                    self._warn_of_idle_rules()
                    return self.current
                # In a thread, because counting thousands of definitions takes seconds.
                self.current, changed = await in_thread(self._new_listing, *source)
                self._source = source
                self._note_changed(changed)

    def idle_rules(self) -> tuple[str, ...]:
        """Return the rules that match no tool, or none while a server has not listed its tools."""
        for offer in self.servers.values():
            if offer.listed is None or offer.is_remembered:
                return ()
        if self.config.left_out:
            return ()
        return self.current.idle_rules

    def _warn_of_idle_rules(self) -> None:
        idle = self.idle_rules()
        for rule in idle:
            if rule not in self._idle_rules:
                _log.warning("the rule %s matches no tool", rule)
        self._idle_rules = idle

    async def find(self, name: str) -> ServerTool | None:
        """Return the tool with a name in the host, or None.

        A tool that is only remembered counts once its server has listed it.

        Raises:
            ToolError: If the server of a remembered tool has failed.
        """
        tool = self._current_tool(name) or (await self.latest()).tools.get(name)
        if tool is None:
            return (await self.listing()).tools.get(name)
        offer = self.servers[tool.server]
        if not offer.is_remembered:
            return tool
        task = self._list_if_needed(offer)
        # Not `await task`, because cancelling one call must not cancel the listing.
        await asyncio.wait({task})
        if isinstance(offer.error, ToolError):
            raise offer.error
        return (await self.latest()).tools.get(name)

    def _current_tool(self, name: str) -> ServerTool | None:
        """Return a tool of the current listing, if its server offers the same tools still."""
        tool = self.current.tools.get(name)
        offer = self.servers.get(tool.server) if tool else None
        config, listed = self._source
        # Valid even if another server has just listed thousands of tools.
        if offer and config == self.config and offer.listed is listed.get(offer.connection.name):
            return tool
        return None

    async def search(self, query: str) -> str:
        """Return the tools that match a query, and the servers whose tools are not known."""
        listing = await self.listing()
        answer = await in_thread(listing.search, query)
        for name, offer in self.servers.items():
            if offer.listed is None:
                answer += f"\nNot searched: {name}, {offer.problem or 'it is not started'}."
        return answer

    def problems(self) -> dict[str, str]:
        """Return the problems of the servers that have not listed their tools, by name."""
        problems: dict[str, str] = {}
        for name, offer in self.servers.items():
            if offer.problem:
                problems[name] = offer.problem
        return problems

    def mark_stale(self, name: str) -> None:
        """Note that a server's tools have changed, so that the next listing asks it again."""
        if offer := self.servers.get(name):
            offer.is_stale = True

    def _list_if_needed(self, offer: ServerOffer) -> asyncio.Task[None]:
        """List the tools of a server that changed them, failed or was never asked."""
        task = offer.task
        if task is not None and not task.done():
            return task
        if task is not None and not (task.cancelled() or offer.error or offer.is_stale):
            return task
        # First, so that a change during the listing causes another one.
        offer.is_stale = False
        offer.task = task = asyncio.create_task(self._list(offer))
        task.add_done_callback(lambda task: self._tell(offer, task))
        return task

    async def _list(self, offer: ServerOffer) -> None:
        """List a server's tools. The earlier ones stay until the list is complete."""
        connection = offer.connection
        try:
            tools = await _tools_of(connection)
            offer.listed = await in_thread(self._noted, offer, tools)
        except BaseException:
            offer.listed = None
            raise
        finally:
            offer.is_remembered = False
        # A user may have approved tools meanwhile.
        self._take_approvals(offer)
        await self.latest()

    def _noted(self, offer: ServerOffer, tools: tuple[ServerTool, ...]) -> ListedTools:
        """Keep the tools that a server has listed, and return them with what is approved."""
        entry = offer.connection.config
        self._records.note_tools(entry, tools, offer.connection.wire.instructions)
        listed = ListedTools(tools, self._records.of(entry).approved)
        # The same object if nothing changed, so that no listing is created for it.
        return offer.listed if offer.listed == listed else listed

    async def _remember(self, offer: ServerOffer) -> None:
        """Take over the tools that a server listed in an earlier run, if any."""
        name, entry = offer.connection.name, offer.connection.config
        tools = await in_thread(self._records.tools_of, name, entry)
        # Last, so that the next request looks them up if this one is cancelled.
        offer.is_new = False
        if tools is not None and offer.task is None:
            offer.listed = ListedTools(tools, self._records.of(entry).approved)
            offer.is_remembered = True

    def _take_approvals(self, offer: ServerOffer) -> None:
        approved = self._records.of(offer.connection.config).approved
        if offer.listed is not None and offer.listed.approved != approved:
            offer.listed = replace(offer.listed, approved=approved)

    def _tell(self, offer: ServerOffer, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        task.exception()  # marks it as retrieved, because it may never be asked for
        telling = asyncio.create_task(self._on_listed(offer))
        # The event loop has only a weak reference to a task.
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    def _new_listing(
        self, config: GatewayConfig, listed: Mapping[str, ListedTools]
    ) -> tuple[ToolListing, dict[str, frozenset[str]]]:
        """Return a listing, and the names of its changed tools, which are marked or held back."""
        changed: dict[str, frozenset[str]] = {}
        tools: dict[str, list[ServerTool]] = {}
        for server, offered in listed.items():
            changed[server] = changed_names(offered.approved, offered.tools)
            tools[server] = []
            for tool in offered.tools:
                is_changed = tool.name in changed[server]
                tools[server].append(_marked(tool, config) if is_changed else tool)
        return ToolListing(config, tools, self._counter), changed

    def _note_changed(self, changed: Mapping[str, frozenset[str]]) -> None:
        for server, names in changed.items():
            for name in sorted(names - self.changed.get(server, frozenset())):
                _log.warning("server %s: its tool %s changed after it was approved", server, name)
        self.changed = changed

    async def resources(self, wait_s: float | None = None) -> types.ListResourcesResult:
        """Return the resources of all servers.

        Args:
            wait_s: Seconds for a server that is starting. None for `list_wait_s`.
        """
        resources: list[types.Resource] = []
        for offer, entries in await self._list_all(
            "resources", lambda session, params: session.list_resources(params=params), wait_s
        ):
            offer.names["resource"] = {str(resource.uri): resource.name for resource in entries}
            # A host reads a resource by its URI, so its name is a text like the others.
            resources += [visible_entry(resource, "name") for resource in entries]
        return types.ListResourcesResult(resources=resources)

    async def templates(self, wait_s: float | None = None) -> types.ListResourceTemplatesResult:
        """Return the resource templates of all servers. See `resources` for the wait."""
        templates: list[types.ResourceTemplate] = []
        for offer, entries in await self._list_all(
            "resource_templates",
            lambda session, params: session.list_resource_templates(params=params),
            wait_s,
        ):
            offer.names["template"] = {entry.uri_template: entry.name for entry in entries}
            templates += [visible_entry(template, "name") for template in entries]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def prompts(self, wait_s: float | None = None) -> types.ListPromptsResult:
        """Return the prompts of all servers, under their names in the host.

        See `resources` for the wait.
        """
        listed = await self._list_all(
            "prompts", lambda session, params: session.list_prompts(params=params), wait_s
        )
        own_names: list[tuple[str, str]] = []
        for offer, entries in listed:
            own_names += [(offer.connection.name, prompt.name) for prompt in entries]
        names = iter(unique_names(own_names))
        prompts: list[types.Prompt] = []
        for offer, entries in listed:
            prompt_names: dict[str, str] = {}
            for prompt in entries:
                name = next(names)
                prompt_names[name] = prompt.name
                arguments = prompt.arguments
                if arguments is not None:
                    arguments = [visible_entry(argument) for argument in arguments]
                changes = {"name": name, "arguments": arguments}
                prompts.append(visible_entry(prompt).model_copy(update=changes))
            offer.names["prompt"] = prompt_names
        return types.ListPromptsResult(prompts=prompts)

    def lister(self, kind: Kind, key: str) -> ServerOffer | None:
        """Return the first server that has listed an entry, or None.

        Args:
            kind: The kind of the entry.
            key: The URI or URI template, or the prompt's name in the host.
        """
        for offer in self.servers.values():
            if key in offer.names.get(kind, ()):
                return offer
        return None

    async def find_lister(self, kind: Kind, key: str) -> ServerOffer | None:
        """Return the same as `lister`, and list the entries again to find it."""
        offer = self.lister(kind, key)
        if offer is None:
            again = {"resource": self.resources, "template": self.templates, "prompt": self.prompts}
            # Longer than for a list, because the entry may be of a server that is starting.
            await again[kind](REQUEST_WAIT_S)
            offer = self.lister(kind, key)
        return offer

    async def _list_all(
        self, field: str, fetch: _Fetch, wait_s: float | None
    ) -> list[tuple[ServerOffer, list[Any]]]:
        """Return what each server lists. Of servers that fail or are too slow, this is nothing."""

        async def list_one(offer: ServerOffer) -> list[Any]:
            try:
                async with asyncio.timeout(wait_s or self.config.list_wait_s) as limit:
                    able = (await offer.connection.client()).server_capabilities
                    # It has started, so it is only slow, and nothing announces its entries later.
                    limit.reschedule(asyncio.get_running_loop().time() + REQUEST_WAIT_S)
                    if (able.prompts if field == "prompts" else able.resources) is not None:
                        return await _all_pages(offer.connection, fetch, field)
            except (TimeoutError, ToolError):
                offer.is_late = True
            except MCPError:
                pass  # it has no such list
            return []

        offers = [*self.servers.values()]
        lists = await asyncio.gather(*map(list_one, offers))
        return list(zip(offers, lists, strict=True))


def _marked(tool: ServerTool, config: GatewayConfig) -> ServerTool:
    """Return a changed tool as a host sees it."""
    # Nobody has approved the hint that it only reads either.
    hint = None if tool.read_only else tool.read_only
    description = f"{_CHANGED} {tool.description}"
    return replace(tool, description=description, read_only=hint, is_held=config.approve_changes)


def _cancel(offers: Iterable[ServerOffer]) -> None:
    for offer in offers:
        if offer.task is not None:
            offer.task.cancel()


async def _all_pages(connection: ServerConnection, fetch: _Fetch, field: str) -> list[Any]:
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


async def _tools_of(connection: ServerConnection) -> tuple[ServerTool, ...]:
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
            definitions = await _all_pages(
                connection, lambda session, params: session.list_tools(params=params), "tools"
            )
    except TimeoutError as exc:
        problem = f"it did not list its tools within {connection.start_timeout_s:g} s"
        raise ToolFailedError(problem, tool="") from exc
    # In a thread, because cleaning thousands of schemas takes a second.
    return await in_thread(server_tools, connection.name, definitions, connection.wire)
