"""Start an MCP server when it is needed, and restart it after its end: `ServerConnection`."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import httpx2
import mcp_types as types
from mcp import Client, ClientSession, MCPError
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.subscriptions import event_to_notification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from llm_common import __version__
from llm_common.apps.gateway.configuration.gateway_config import ServerConfig
from llm_common.apps.gateway.servers.limits import MAX_MESSAGE_BYTES, REQUEST_WAIT_S, TOO_LONG
from llm_common.apps.gateway.servers.logins import LoginError
from llm_common.apps.gateway.servers.questions import (
    HostChannel,
    HostContext,
    ServerQuestions,
    with_server_names,
)
from llm_common.apps.gateway.servers.streams import streams_of
from llm_common.apps.gateway.servers.transport import Wire
from llm_common.errors import ServerDownError, ToolError, ToolFailedError

_log = logging.getLogger(__name__)

OnNotification = Callable[[str, types.ServerNotification], Awaitable[None]]
ResultT = TypeVar("ResultT")

# The wait before a server is started again, or its changes are requested again.
_MIN_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 60.0
_CLOSE_WAIT_S: Final = 4.0  # ending a process takes at most two seconds
# What the SDK says where the server sent nothing: the stream or the HTTP session is gone. Messages,
# because servers may use the code -32000 for errors of their own.
_ENDED: Final = ("Connection closed", "Session terminated")
_REFUSED: Final = "Server returned an error response"  # and no JSON-RPC in it
_NO_ANSWER: Final = {
    types.PARSE_ERROR: "returned an answer that is not valid JSON-RPC",
    types.REQUEST_TIMEOUT: "did not answer in time; the call may have taken effect",
}
# Other notifications, such as progress, belong to one request and are handled there.
_PASSED_ON: Final = (
    types.LoggingMessageNotification,
    types.ToolListChangedNotification,
    types.ResourceListChangedNotification,
    types.ResourceUpdatedNotification,
    types.PromptListChangedNotification,
    types.ElicitCompleteNotification,
)
_ALL_LISTS: Final = {
    "tools_list_changed": True,
    "prompts_list_changed": True,
    "resources_list_changed": True,
}


class ServerConnection:
    """A server's process or address, with the requests between it and a host.

    Requests may run concurrently. After a server has ended, the next request starts it again. While
    it keeps failing, the wait between two starts doubles from one second to a minute, and requests
    in between fail immediately. A restarted server may have other tools, so its tool list counts as
    changed.

    Args:
        name: The server's name.
        config: How to start or reach the server.
        start_timeout_s: Seconds for the server to start.
        on_notification: Called with changes of the server's lists and watched resources, and with
            its log messages.
        channel: The way to the host, and what the host is able to do.

    Attributes:
        config: How to start or reach the server.
        questions: The server's questions to the host.
        problem: Why the server failed last, or "".
        wire: The state of the stream since the last start.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig,
        *,
        start_timeout_s: float,
        on_notification: OnNotification,
        channel: HostChannel,
    ) -> None:
        self.name: Final = name
        self.config: Final = config
        self.start_timeout_s: Final = start_timeout_s
        self._on_notification = on_notification
        self._channel = channel
        self.questions: Final = ServerQuestions(name, channel)
        self._ready: asyncio.Future[Client] | None = None
        self._task: asyncio.Task[None] | None = None
        self.wire = Wire(name=name)
        self._starting = asyncio.Lock()
        self._watchers: dict[str, set[object]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._subscribing = asyncio.Lock()
        self._failures = 0
        self._retry_at = 0.0
        self.problem = ""
        self._close_reason = ""  # also says that the server is closed
        self._noted = self._has_run = False

    @property
    def is_running(self) -> bool:
        """Return whether the server has started and not ended."""
        ready = self._ready
        if ready is None or not ready.done() or ready.cancelled():
            return False
        return ready.exception() is None and not self.wire.ended.is_set()

    async def client(self) -> Client:
        """Return the server's client, and start the server if it does not run.

        Raises:
            ServerDownError: If the server does not start, waits for its next start, or the gateway
                is closing.
        """
        # Concurrent requests start the server only once.
        async with self._starting:
            if self._ready is None or self.wire.ended.is_set():
                wait_s = self._retry_at - time.monotonic()
                if wait_s > 0:
                    raise self._down(f"{self.problem}; the next start is in {wait_s:.0f} s")
                # The last process may hold a port or a lock until it has ended.
                await self._finish()
                # Checked here, because the gateway may close during the wait above.
                if self._close_reason:
                    raise self._down(self._close_reason)
                self.wire, self._noted = Wire(name=self.name), False
                self.questions.begin()
                self._ready = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._run(self._ready, self.wire))
            ready = self._ready
        # Shielded: cancelling one request must not cancel the start for the others.
        return await asyncio.shield(ready)

    async def use(
        self,
        work: Callable[[ClientSession], Awaitable[ResultT]],
        *,
        host: HostContext | None = None,
    ) -> ResultT:
        """Call `work` with the server's session and return its result.

        Cancelling the call also cancels the request at the server.

        Args:
            work: Sends requests over the session.
            host: The host's request that caused this one. Questions of the server go to that host.

        Raises:
            ServerDownError: If the server is down, or ended during the call.
            ToolFailedError: If the answer is not valid MCP, or did not come in time.
            MCPError: If the server refused.
        """
        # Kept here, because a restart during the call replaces the attribute.
        client, wire = await self.client(), self.wire
        with self.questions.during(host):
            if host is not None:
                await self.questions.await_roots(host, self.announce_roots)
            try:
                answer = await work(client.session)
            except MCPError as exc:
                if exc.message in _ENDED:
                    # The stream may notice the end later than this request, and until then the
                    # next request would use a dead server.
                    wire.ended.set()
                    self._note_failure(f"{wire.reason} during a call")
                    details = f" ({wire.details})" if wire.details else ""
                    raise self._down(
                        f"{wire.reason} during the call{details}, which may have taken effect"
                    ) from exc
                if exc.message == _REFUSED and wire.details:
                    raise ToolFailedError(f"{self.name}: {wire.details}", tool="") from exc
                if exc.code in _NO_ANSWER:
                    problem = _NO_ANSWER[exc.code]
                    if TOO_LONG in exc.message:
                        problem = f"returned an answer of over {MAX_MESSAGE_BYTES:,} bytes"
                    raise ToolFailedError(f"{self.name} {problem}", tool="") from exc
                raise
            except ValidationError as exc:
                fields = {".".join(map(str, problem["loc"][:3])) for problem in exc.errors()[:3]}
                raise ToolFailedError(
                    f"{self.name} returned an answer that is not valid MCP: "
                    f"{', '.join(sorted(fields))}",
                    tool="",
                ) from exc
        # Not after a start, because a server may start well and end at its first request.
        self._failures = 0
        return answer

    async def announce_roots(self) -> None:
        """Tell a running server that the roots changed. Others will ask after their start."""
        ready = self._ready
        if ready is not None and self.is_running:
            self.questions.expect_roots_question()
            await ready.result().session.send_notification(types.RootsListChangedNotification())

    async def pass_log_level_on(self) -> None:
        """Tell a running server which log messages the host wants."""
        level = self._channel.log_level
        if level is None or not self.is_running:
            return
        if (await self.client()).server_capabilities.logging is None:
            return
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
        with suppress(ToolError, MCPError):
            await self.use(
                lambda session: session.send_request(request, types.EmptyResult, REQUEST_WAIT_S)
            )

    async def request(
        self,
        request: types.ClientRequest,
        answer: TypeAdapter[Any],
        params: types.InputResponseRequestParams,
        host: HostContext | None,
        *,
        timeout_s: float | None = None,
        progress: ProgressFnT | None = None,
    ) -> Any:
        """Send a host's request and return the answer. Questions in it name the server.

        A question that the host has to answer before may take the place of the answer.

        Args:
            request: The request.
            answer: Reads the answer.
            params: What the host sent.
            host: The context of the host's request. None without a host.
            timeout_s: Seconds for the answer. None for no limit.
            progress: Called with the progress that the server reports. None to ask for none.

        Raises:
            ServerDownError: If the server is down, or ended during the call.
            ToolFailedError: If the answer is not valid MCP, or did not come in time.
            MCPError: If the server refused.
        """
        work = partial(
            self.use,
            lambda session: session.send_request(
                request, answer, timeout_s, progress_callback=progress
            ),
            host=host,
        )
        # A server of the newest protocol asks by itself, in its answer.
        asks_by_itself = (await self.client()).protocol_version in MODERN_PROTOCOL_VERSIONS
        if asks_by_itself or host is None or self._channel.accepts_questions():
            result = await work()
        else:  # a host of the newest protocol cannot be asked directly
            result = await self.questions.in_rounds(params, host, work)
        if isinstance(result, types.InputRequiredResult):
            return with_server_names(result, self.name)
        return result

    async def watch(self, uri: str, watcher: object) -> None:
        """Ask the server to announce changes of a resource, also after a restart.

        Args:
            uri: The resource.
            watcher: Identifies the watcher. The server is asked for the first watcher, and told
                when the last one has left.

        Raises:
            ToolError: If the server is down.
            MCPError: If the server refused.
        """
        client = await self.client()
        # A second watcher waits, so that it sends no second request, or sends it after a refusal.
        async with self._subscribing:
            if uri not in self._watchers:
                await self._begin_watching(client, uri)
            self._watchers.setdefault(uri, set()).add(watcher)

    async def unwatch(self, watcher: object, uri: str | None = None) -> None:
        """Stop watching a resource for a watcher, or all its resources."""
        for watched in [*self._watchers] if uri is None else [uri]:
            watchers = self._watchers.get(watched, set())
            if watcher not in watchers:
                continue
            watchers.discard(watcher)
            if watchers:
                continue
            del self._watchers[watched]
            if following := self._following.pop(watched, None):
                following.cancel()
            # A server that has ended watches nothing, and a request would start it again.
            elif not self.wire.ended.is_set():
                params = types.UnsubscribeRequestParams(uri=watched)
                request = types.UnsubscribeRequest(params=params)
                with suppress(ToolError, MCPError):
                    await self.use(
                        lambda session, request=request: session.send_request(  # type: ignore[misc]
                            request, types.EmptyResult
                        )
                    )

    async def _begin_watching(self, client: Client, uri: str) -> None:
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            await self.use(lambda session: session.send_request(request, types.EmptyResult))
            return
        started = asyncio.Event()
        self._following[uri] = asyncio.create_task(
            self._follow(client, started, resource_subscriptions=[uri])
        )
        # A change before the stream is open would be lost.
        await started.wait()

    async def close(self, reason: str = "the gateway is closing") -> None:
        """End the server for good, even while it starts.

        Args:
            reason: What later requests are told.
        """
        # First, so that a request that waits in `client` does not start the server again.
        self._close_reason = reason
        self.wire.ended.set()
        # A start does not watch `ended`, so it has to be cancelled.
        if self._task is not None and self._ready is not None and not self._ready.done():
            self._task.cancel()
        await self._finish()

    async def _finish(self) -> None:
        if self._task is None:
            return
        task, self._task, self._ready = self._task, None, None
        # The task ends the process itself, and is cancelled only if that hangs.
        await asyncio.wait({task}, timeout=_CLOSE_WAIT_S)
        if not task.done():
            task.cancel()

    def _down(self, problem: str) -> ServerDownError:
        return ServerDownError(
            f"the server {self.name} is down: {problem}",
            tool="",
            server=self.name,
            retry_after_s=round(max(self._retry_at - time.monotonic(), 0.0), 3),
        )

    def _note_failure(self, problem: str) -> None:
        """Schedule the next start after a failure."""
        # One end of the server fails all its running calls, but counts as one failure.
        if self._noted:
            return
        self._noted, self.problem = True, problem
        self._retry_at = time.monotonic() + min(_MIN_WAIT_S * 2**self._failures, _MAX_WAIT_S)
        self._failures = min(self._failures + 1, 10)

    async def _run(self, ready: asyncio.Future[Client], wire: Wire) -> None:
        """Run the server until it ends or is to end."""
        task = asyncio.current_task()
        assert task is not None
        # A timer instead of `asyncio.timeout`: only the start is limited, and this task runs on.
        timer = asyncio.get_running_loop().call_later(self.start_timeout_s, task.cancel)
        problem = f"it did not start within {self.start_timeout_s:g} s"
        try:
            async with self._connected(wire) as client:
                timer.cancel()
                wire.version = client.protocol_version
                wire.instructions = client.instructions or ""
                ready.set_result(client)
                await self._listen(client, wire.ended)
                if not self._close_reason:
                    details = f" ({wire.details})" if wire.details else ""
                    _log.warning("server %s: %s%s", self.name, wire.reason, details)
        except Exception as exc:  # noqa: BLE001 - a server may fail in any way
            reason = wire.reason if wire.ended.is_set() else _first_error(exc)
            problem = f"it does not start ({wire.details or reason})"
            if ready.done():
                problem = f"it ended with {_first_error(exc)}"
            _log.warning("server %s: %s", self.name, problem)
        finally:
            timer.cancel()
            wire.ended.set()
            if not ready.done():
                self._note_failure(problem)
                ready.set_exception(self._down(problem))
                # Mark the error as retrieved, or asyncio would log it if no request waits for it.
                ready.exception()

    async def _listen(self, client: Client, ended: asyncio.Event) -> None:
        """Wait for the end of the server, and follow its changes until then."""
        self._following = {}
        # A task, because the server may end before it answers the requests.
        listening = asyncio.create_task(self._catch_up(client))
        try:
            await ended.wait()
        finally:
            for task in (listening, *self._following.values()):
                task.cancel()

    async def _catch_up(self, client: Client) -> None:
        """Ask for changes of the lists, and for what a server was asked before a restart."""
        await self.pass_log_level_on()
        able = client.server_capabilities
        lists = (able.tools, able.prompts, able.resources)
        announces = any(capability and capability.list_changed for capability in lists)
        # Servers of older protocols announce changes without being asked.
        if announces and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._following[""] = asyncio.create_task(
                self._follow(client, asyncio.Event(), **_ALL_LISTS)
            )
        if self._has_run:
            await self._on_notification(self.name, types.ToolListChangedNotification())
        self._has_run = True
        for uri in [*self._watchers]:
            with suppress(ToolError, MCPError):
                await self._begin_watching(client, uri)

    async def _follow(self, client: Client, started: asyncio.Event, **changes: Any) -> None:
        """Pass on changes, and ask again when the server or a proxy ends the stream."""
        wait_s = _MIN_WAIT_S
        try:
            while True:
                with suppress(SubscriptionLost):
                    async with client.listen(**changes) as events:
                        started.set()
                        async for event in events:
                            wait_s = _MIN_WAIT_S
                            await self._on_notification(self.name, event_to_notification(event, {}))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _MAX_WAIT_S)
        except MCPError:
            _log.info("server %s does not announce its changes", self.name)
        finally:
            started.set()

    def _connected(self, wire: Wire) -> Client:
        # A server is offered what its host is able to do, and nothing else.
        able = self._channel.capabilities
        mode = "auto"
        if self._channel.newest is not None and self._channel.accepts_questions():
            mode = "legacy"  # only with an older protocol, a server can ask at any time
        return Client(
            streams_of(self.config, wire),
            mode=mode,
            cache=None,  # lists would come from the SDK's cache
            client_info=types.Implementation(name="llm-common", version=__version__),
            sampling_callback=self.questions.sample if able.sampling else None,
            sampling_capabilities=able.sampling,
            elicitation_callback=self.questions.elicit if able.elicitation else None,
            list_roots_callback=self.questions.list_roots if able.roots else None,
            message_handler=self._on_message,
        )

    async def _on_message(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, _PASSED_ON):
            await self._on_notification(self.name, message)


def _first_error(error: BaseException) -> str:
    """Return the class of an error, or of the first one in a group. Its text may hold secrets."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    name = type(error).__name__
    if isinstance(error, LoginError):
        return error.message
    if isinstance(error, FileNotFoundError | PermissionError):
        return f"{name}: its program or folder cannot be used; correct its command or cwd"
    cause: BaseException | None = error
    while cause is not None:  # the system's reason for a connection that was not made
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, socket.gaierror):
            return "its host name is unknown"
        cause = cause.__cause__ or cause.__context__
    return "no connection" if isinstance(error, httpx2.ConnectError) else name
