"""Keep the tools of all servers of a host up to date: `ServerTools`."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from llm_common._threads import in_thread
from llm_common.apps.gateway.gateway_config import GatewayConfig
from llm_common.apps.gateway.server_connection import ServerConnection
from llm_common.apps.gateway.server_lists import tools_of
from llm_common.apps.gateway.server_records import ServerRecords
from llm_common.apps.gateway.tool_listing import ServerTool, ToolListing
from llm_common.core.tokens import TokenCounter
from llm_common.errors import ServerDownError, ToolError

_log = logging.getLogger(__name__)

# Of a search and of a call to an unknown name, which need the tools of a server that is starting.
_SEARCH_WAIT_S: Final = 15.0
_CHANGED: Final = "[This definition changed after it was approved.]"


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
        self._current: (
            tuple[GatewayConfig, dict[str, tuple[ServerTool, ...]], ToolListing] | None
        ) = None
        self._remember()

    async def listing(self, *, wait_s: float | None = None) -> ToolListing:
        """Return the tools of all servers that are known, and wait for those of the others.

        Args:
            wait_s: Seconds to wait. None for `list_wait_s` of the configuration.
        """
        if wait_s is None:
            wait_s = self._config.list_wait_s
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
        # In a thread, because counting thousands of definitions takes seconds.
        return await in_thread(self.current)

    def list_wait_s(self) -> float:
        """Return how long a host's list waits for servers.

        A list of only the tools that search and call depends on no server, so it waits for none.
        """
        rules = [self._config.rules, *(server.rules for server in self._config.servers.values())]
        if self._config.tools == "search" and not any(rule.pinned for rule in rules):
            return 0.0
        return self._config.list_wait_s

    def current(self) -> ToolListing:
        """Return the known tools, without waiting."""
        config, tools = self._config, dict[str, tuple[ServerTool, ...]]()
        for name in config.servers:
            offered = self._offered.get(name)
            if offered is not None:
                tools[name] = offered
        # One read: another thread may replace the attribute.
        current = self._current
        if current is None or current[0] is not config or current[1] != tools:
            listing = ToolListing(config, tools, self._counter)
            current = self._current = config, tools, listing
        return current[2]

    async def find(self, name: str) -> tuple[str, ServerTool] | None:
        """Return a tool with its name in the host, or None.

        A tool that is only remembered counts once its server has listed it.

        Raises:
            ToolError: If the server of a remembered tool has failed.
        """
        match = self.current().find(name)
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
        return self.current().find(name)

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
        self._config = config
        for name in ended:
            if task := self._tasks.pop(name, None):
                task.cancel()
            for known in (self._listed, self._offered, self._changed):
                known.pop(name, None)
            self._remembered.discard(name)
        for name in [*self._offered]:
            self._keep(name, self._listed[name])
        self._remember()

    def cancel(self) -> None:
        """End all waiting for servers."""
        for task in self._tasks.values():
            task.cancel()

    def _remember(self) -> None:
        """Offer what earlier runs have listed of servers that have not listed their tools."""
        for name, connection in self._connections.items():
            if name in self._tasks or name in self._offered:
                continue
            tools = self._records.tools_of(name, connection.config)
            if tools is not None:
                self._keep(name, tools)
                self._remembered.add(name)

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
        except BaseException:
            self._offered.pop(name, None)
            raise
        finally:
            self._remembered.discard(name)
        self._keep(name, tools)
        await in_thread(self._records.note_tools, connection.config, tools, connection.wire.version)

    def _keep(self, name: str, tools: tuple[ServerTool, ...]) -> None:
        """Offer a server's tools. Those that changed since they were approved are marked."""
        changed = self._records.changed(self._connections[name].config, tools)
        for tool_name in sorted(changed - self._changed.get(name, frozenset())):
            _log.warning("server %s: its tool %s changed after it was approved", name, tool_name)
        self._listed[name], self._changed[name] = tools, changed
        offered: list[ServerTool] = []
        for tool in tools:
            if tool.name not in changed:
                offered.append(tool)
            elif not self._config.approve_changes:
                # Nobody has approved the hint that it only reads either.
                hint = None if tool.read_only else tool.read_only
                description = f"{_CHANGED} {tool.description}"
                offered.append(replace(tool, description=description, read_only=hint))
        self._offered[name] = tuple(offered)

    def _tell(self, name: str, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        task.exception()  # marks it as retrieved, because it may never be asked for
        telling = asyncio.create_task(self._on_listed(name))
        # The event loop has only a weak reference to a task.
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
