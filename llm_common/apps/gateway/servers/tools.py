"""Keep the tools of all servers of a host up to date: `ServerTools`."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from llm_common.apps.gateway.configuration.gateway_config import GatewayConfig
from llm_common.apps.gateway.servers.connection import ServerConnection
from llm_common.apps.gateway.servers.lists import tools_of
from llm_common.apps.gateway.servers.records import ServerRecords
from llm_common.apps.gateway.servers.tool_listing import ServerTool, ToolListing
from llm_common.core import TokenCounter
from llm_common.errors import ServerDownError, ToolError
from llm_common.runtime import in_thread

_log = logging.getLogger(__name__)

# Of a search and of a call to an unknown name, which need the tools of a server that is starting.
_SEARCH_WAIT_S: Final = 15.0
_CHANGED: Final = "[This definition changed after it was approved.]"


@dataclass(frozen=True, slots=True)
class _Built:
    """A listing with what it was created from."""

    config: GatewayConfig
    tools: Mapping[str, tuple[ServerTool, ...]]
    listing: ToolListing

    def is_of(self, config: GatewayConfig, tools: Mapping[str, tuple[ServerTool, ...]]) -> bool:
        """Return whether these are the objects from which the listing was created."""
        if self.config is not config or self.tools.keys() != tools.keys():
            return False
        return all(self.is_of_server(server, config, tools[server]) for server in tools)

    def is_of_server(
        self, server: str, config: GatewayConfig, tools: tuple[ServerTool, ...] | None
    ) -> bool:
        """Return whether the listing has exactly these tools of a server."""
        # By identity, because comparing thousands of definitions takes long.
        return self.config is config and self.tools.get(server) is tools


@dataclass(frozen=True, slots=True)
class _Checked:
    """The tools of a server that a host may see, and the names of those that changed."""

    changed: frozenset[str]
    offered: tuple[ServerTool, ...]


class ServerTools:
    """The tools of all servers of one host.

    A server's tools of an earlier run are there at once. The server's own answer replaces them, and
    its failure removes them.

    Args:
        config: Rules, mode and limits.
        connections: The servers by name.
        records: The last known tools of the servers.
        counter: Counts the tokens of definitions.
        on_listed: Called with a server's name once it has listed its tools, or has failed to.
    """

    def __init__(
        self,
        config: GatewayConfig,
        connections: Mapping[str, ServerConnection],
        *,
        records: ServerRecords,
        counter: TokenCounter,
        on_listed: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._config = config
        self._connections = connections
        self._records = records
        self._counter = counter
        self._on_listed = on_listed
        self._listed: dict[str, tuple[ServerTool, ...]] = {}
        self._offered: dict[str, tuple[ServerTool, ...]] = {}
        self._changed: dict[str, frozenset[str]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._stale: set[str] = set()
        self._remembered: set[str] = set()
        self._unchecked = set(connections)
        self._updating = asyncio.Lock()
        self._built = _Built(config, {}, ToolListing(config, {}, counter))

    async def listing(self, *, wait_s: float | None = None) -> ToolListing:
        """Return the tools of all servers that are known, and wait for those of the others.

        Args:
            wait_s: Seconds to wait. None for `list_wait_s` of the configuration.
        """
        if wait_s is None:
            wait_s = self._config.list_wait_s
        await self.latest()
        # A lazy gateway starts no server to confirm what is remembered of it.
        lazy = self._remembered if self._config.lazy else ()
        names = {name for name in self._connections if name not in lazy}
        for _ in range(2):  # again for a server that changed its tools during the wait
            self._list_missing(names)
            waiting: set[asyncio.Task[None]] = set()
            for name, task in self._tasks.items():
                if not task.done() and name not in self._remembered:
                    waiting.add(task)
            if not waiting or wait_s == 0:
                break
            _, late = await asyncio.wait(waiting, timeout=wait_s)
            if late:
                break
            names = {*self._stale}
        return await self.latest()

    def list_wait_s(self) -> float:
        """Return how long a host's list waits for servers.

        A list of only the tools that search and call depends on no server, so it waits for none.
        """
        rules = [self._config.rules, *(server.rules for server in self._config.servers.values())]
        if self._config.tools == "search" and not any(rule.pinned for rule in rules):
            return 0.0
        return self._config.list_wait_s

    def current(self) -> ToolListing:
        """Return the listing that was created last, which may lack the newest changes."""
        return self._built.listing

    async def latest(self) -> ToolListing:
        """Return a listing of the tools that are known now, without waiting for servers."""
        # Two requests at the same time must not count the same definitions twice.
        async with self._updating:
            while True:
                if self._unchecked:
                    await self._check_next()
                    continue
                config, tools = self._config, self._offered_now()
                if self._built.is_of(config, tools):
                    return self._built.listing
                # In a thread, because counting thousands of definitions takes seconds.
                listing = await in_thread(ToolListing, config, tools, self._counter)
                self._built = _Built(config, tools, listing)

    def _offered_now(self) -> dict[str, tuple[ServerTool, ...]]:
        """Return the tools of the servers that are known, in the order of the configuration."""
        tools: dict[str, tuple[ServerTool, ...]] = {}
        for name in self._config.servers:
            offered = self._offered.get(name)
            if offered is not None:
                tools[name] = offered
        return tools

    async def find(self, name: str) -> tuple[str, ServerTool] | None:
        """Return a tool with its name in the host, or None.

        A tool that is only remembered counts once its server has listed it.

        Raises:
            ToolError: If the server of a remembered tool has failed.
        """
        match = await self._known(name)
        if match is None:
            return (await self.listing(wait_s=_SEARCH_WAIT_S)).find(name)
        server = match[1].server
        if server not in self._remembered:
            return match
        self._list_missing([server])
        task = self._tasks[server]
        # Not `await task`, because cancelling one call must not cancel the listing.
        await asyncio.wait({task})
        if not task.cancelled() and isinstance(error := task.exception(), ToolError):
            raise error
        return (await self.latest()).find(name)

    async def _known(self, name: str) -> tuple[str, ServerTool] | None:
        """Return a tool that is known now, or None."""
        match = self._built.listing.find(name)
        if match is not None:
            server = match[1].server
            # Valid even if another server has just listed thousands of tools.
            if self._built.is_of_server(server, self._config, self._offered.get(server)):
                return match
        return (await self.latest()).find(name)

    async def search(self, query: str) -> tuple[str, tuple[str, ...]]:
        """Return the tools that match a query as a text, and their names.

        The text also names the servers whose tools are not known.
        """
        listing = await self.listing(wait_s=_SEARCH_WAIT_S)
        answer, names = await in_thread(listing.search, query)
        unknown = [name for name in self._connections if name not in self._offered]
        for name in unknown:
            answer += f"\nNot searched: {name}, {self.problems().get(name, 'it is not started')}."
        return answer, names

    def problems(self) -> dict[str, str]:
        """Return the problems of the servers that have not listed their tools."""
        problems: dict[str, str] = {}
        for name, task in self._tasks.items():
            if not task.done() and name in self._remembered:
                problems[name] = "it is still starting; its tools are those of its last run"
            elif not task.done() and name not in self._offered:
                problems[name] = "it is still starting"
            elif task.done() and not task.cancelled() and (error := task.exception()):
                # Without the time of the next start, which is long past when somebody reads this.
                is_down = isinstance(error, ServerDownError)
                problems[name] = (is_down and self._connections[name].problem) or str(error)
        return problems

    def changed(self) -> dict[str, frozenset[str]]:
        """Return the names of tools that changed after they were approved, by server."""
        return {name: changed for name, changed in self._changed.items() if name in self._offered}

    def unfinished(self) -> set[str]:
        """Return the servers that are listing their tools, or starting."""
        return {name for name, task in self._tasks.items() if not task.done()}

    def mark_stale(self, name: str) -> None:
        """Note that a server's tools have changed, so that the next listing asks it again."""
        self._stale.add(name)

    def reload(self, config: GatewayConfig, ended: Iterable[str]) -> None:
        """Take over another configuration, and approvals.

        Args:
            config: The new configuration, whose servers the connections have already.
            ended: Servers that ended, or whose entry changed.
        """
        # An equal configuration needs no other listing.
        if config != self._config:
            self._config = config
        for name in ended:
            if task := self._tasks.pop(name, None):
                task.cancel()
            for known in (self._listed, self._offered, self._changed):
                known.pop(name, None)
            self._remembered.discard(name)
        self._unchecked = set(self._connections)

    def cancel(self) -> None:
        """End all waiting for servers."""
        for task in self._tasks.values():
            task.cancel()

    def _list_missing(self, names: Iterable[str]) -> None:
        """Start to list the tools of servers that changed them, failed or were never asked."""
        for name in names:
            task = self._tasks.get(name)
            if task is not None:
                if not task.done():
                    continue
                is_listed = not task.cancelled() and task.exception() is None
                if is_listed and name not in self._stale:
                    continue
            # First, so that a change during the listing causes another one.
            self._stale.discard(name)
            self._tasks[name] = asyncio.create_task(self._list(name))
            self._tasks[name].add_done_callback(lambda task, name=name: self._tell(name, task))  # type: ignore[misc]

    async def _list(self, name: str) -> None:
        """List a server's tools. The earlier ones stay until the list is complete."""
        connection = self._connections[name]
        try:
            tools = await tools_of(connection)
            self._listed[name] = tools
            self._unchecked.add(name)
            await self.latest()
        except BaseException:
            # After a reload, the name may belong to another entry.
            if self._tasks.get(name) is asyncio.current_task():
                self._listed.pop(name, None)
                self._offered.pop(name, None)
                self._remembered.discard(name)
            raise
        await in_thread(self._records.note_tools, connection.config, tools, connection.wire.version)

    async def _check_next(self) -> None:
        """Offer one server's tools, or those of its last run if it was never asked."""
        name = self._unchecked.pop()
        connection, tools = self._connections.get(name), self._listed.get(name)
        if connection is None or (tools is None and name in self._tasks):
            return
        try:
            checked = await in_thread(self._checked, connection, tools)
        except BaseException:
            # The request was cancelled. The next one checks the tools.
            self._unchecked.add(name)
            raise
        # The server may have listed its tools meanwhile, failed, or left the configuration.
        is_same = self._connections.get(name) is connection and self._listed.get(name) is tools
        if checked is None or not is_same or name in self._unchecked:
            return
        for tool_name in sorted(checked.changed - self._changed.get(name, frozenset())):
            _log.warning("server %s: its tool %s changed after it was approved", name, tool_name)
        self._changed[name], self._offered[name] = checked.changed, checked.offered
        if tools is None:
            self._remembered.add(name)
        else:
            self._remembered.discard(name)

    def _checked(
        self, connection: ServerConnection, tools: tuple[ServerTool, ...] | None
    ) -> "_Checked | None":
        """Return the tools to offer. Those that changed since they were approved are marked."""
        if tools is None:
            tools = self._records.tools_of(connection.name, connection.config)
        if tools is None:
            return None
        changed = self._records.changed(connection.config, tools)
        offered: list[ServerTool] = []
        for tool in tools:
            if tool.name not in changed:
                offered.append(tool)
            elif not self._config.approve_changes:
                # Nobody has approved the hint that it only reads either.
                hint = None if tool.read_only else tool.read_only
                description = f"{_CHANGED} {tool.description}"
                offered.append(replace(tool, description=description, read_only=hint))
        earlier = self._offered.get(connection.name)
        # The same object if nothing changed, so that no listing is created for it.
        if earlier is not None and earlier == tuple(offered):
            return _Checked(changed, earlier)
        return _Checked(changed, tuple(offered))

    def _tell(self, name: str, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        task.exception()  # marks it as retrieved, because it may never be asked for
        telling = asyncio.create_task(self._on_listed(name))
        # The event loop has only a weak reference to a task.
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
