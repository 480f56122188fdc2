"""`ServerConnection`: one MCP server, started when it is needed, and again after its end."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeVar

import mcp_types as types
from mcp import Client, ClientSession, MCPError
from mcp.client import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp.server.context import ServerRequestContext
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.subscriptions import event_to_notification
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from llm_common import __version__
from llm_common.apps.gateway.gateway_config import ServerConfig
from llm_common.apps.gateway.server_transport import Wire, streams_of
from llm_common.errors import ServerDownError, ToolError, ToolFailedError

_log = logging.getLogger(__name__)

HostContext = ServerRequestContext[Any, Any]
OnNotification = Callable[[str, types.ServerNotification], Awaitable[None]]
ResultT = TypeVar("ResultT")

_MIN_WAIT_S: Final = 1.0
_MAX_WAIT_S: Final = 60.0
_CLOSE_WAIT_S: Final = 4.0  # a server is ended in two seconds at most
_MAX_QUESTIONS: Final = 100
_SESSION_ENDED: Final = "Session terminated"
_NO_ANSWER: Final = {
    types.PARSE_ERROR: "an answer that is no JSON-RPC",
    types.REQUEST_TIMEOUT: "no answer in time; the call may have taken effect",
}
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


@dataclass(frozen=True, slots=True)
class HostAbilities:
    """What the host of a session can do; a server is offered nothing else.

    Attributes:
        capabilities: Whether it samples for servers, asks its user and names its folders.
        mode: How a server is greeted: `legacy` for a host of that era, so that its requests reach
            the host; `auto` for others.
    """

    capabilities: types.ClientCapabilities = field(default_factory=types.ClientCapabilities)
    mode: str = "auto"

    @classmethod
    def of(cls, context: HostContext) -> Self:
        """Those of the host behind a request."""
        mode = "auto" if context.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
        return cls(context.session.client_capabilities or types.ClientCapabilities(), mode)


class ServerConnection:
    """A server's process or address, and the requests between it and a host.

    Any number of requests may run at once. A server that ends is started again by the next request,
    after a wait that doubles from one second to a minute while it keeps failing; until then
    requests fail at once. A server that was started again may have other tools, so it counts as one
    that has changed its list.

    Args:
        name: The server's name.
        config: How it is started or reached.
        abilities: What its host can do.
        start_timeout_s: Seconds that it has to start.
        on_notification: Told of the changes of its lists and of watched resources, and of its log.
    """

    def __init__(
        self,
        name: str,
        config: ServerConfig,
        *,
        abilities: HostAbilities,
        start_timeout_s: float,
        on_notification: OnNotification,
    ) -> None:
        self.name: Final = name
        self._config = config
        self._abilities = abilities
        self.start_timeout_s: Final = start_timeout_s
        self._on_notification = on_notification
        self._ready: asyncio.Future[Client] | None = None
        self._task: asyncio.Task[None] | None = None
        self.wire = Wire()
        """What is known of its stream, since its last start."""
        self._starting = asyncio.Lock()
        self._hosts: dict[object, HostContext] = {}
        self._watchers: dict[str, set[object]] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._questions = 0
        self._failures = 0
        self._retry_at = 0.0
        self._problem = ""
        self._noted = self._closed = self._has_run = False

    async def client(self) -> Client:
        """The server's client; starts the server if it does not run.

        Raises:
            ServerDownError: It does not start, or is not to be started yet or any more.
        """
        async with self._starting:
            if self._ready is None or self.wire.ended.is_set():
                wait_s = self._retry_at - time.monotonic()
                if wait_s > 0:
                    raise self._down(f"{self._problem}; it is started again in {wait_s:.0f} s")
                await self._finish()
                if self._closed:
                    raise self._down("the gateway ends")
                self.wire, self._noted = Wire(), False
                self._ready = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._run(self._ready, self.wire))
            ready = self._ready
        return await asyncio.shield(ready)

    async def use(
        self,
        work: Callable[[ClientSession], Awaitable[ResultT]],
        *,
        host: HostContext | None = None,
    ) -> ResultT:
        """What the work gets from the server; cancelling it tells the server.

        Args:
            work: Sends requests over the session that it is given.
            host: The host's request behind it: what the server asks meanwhile goes there.

        Raises:
            ServerDownError: The server is not there, or ended meanwhile.
            ToolFailedError: The answer is none of MCP, or none came in time.
            MCPError: The server refused.
        """
        client, wire = await self.client(), self.wire
        with self._serving(host):
            try:
                answer = await work(client.session)
            except MCPError as exc:
                if exc.code == types.CONNECTION_CLOSED or exc.message == _SESSION_ENDED:
                    wire.ended.set()
                    self._note_failure(f"{wire.reason} during a call")
                    raise self._down(
                        f"{wire.reason} during the call, which may have taken effect"
                    ) from exc
                if exc.code in _NO_ANSWER:
                    raise ToolFailedError(
                        f"{self.name} gave {_NO_ANSWER[exc.code]}", tool=""
                    ) from exc
                raise
            except ValidationError as exc:
                where = ", ".join(
                    sorted({".".join(map(str, part["loc"][:3])) for part in exc.errors()[:3]})
                )
                raise ToolFailedError(
                    f"{self.name} gave an answer that MCP does not know: {where}", tool=""
                ) from exc
        self._failures = 0
        return answer

    async def tell(self, message: types.RootsListChangedNotification) -> None:
        """Tells a server that runs something; one that does not run will ask when it is started."""
        ready = self._ready
        if (
            ready is not None
            and ready.done()
            and ready.exception() is None
            and not self.wire.ended.is_set()
        ):
            await ready.result().session.send_notification(message)

    async def watch(self, uri: str, watcher: object) -> None:
        """Has the server tell when a resource changes, also after it was started again.

        Args:
            uri: The resource.
            watcher: Who wants to know; the server is told of the first one, and once the last one
                is gone.

        Raises:
            ToolError: The server is not there.
            MCPError: It refused.
        """
        client = await self.client()
        watchers = self._watchers.setdefault(uri, set())
        watchers.add(watcher)
        if len(watchers) == 1:
            try:
                await self._begin_watching(client, uri)
            except BaseException:
                self._watchers.pop(uri, None)
                raise

    async def unwatch(self, watcher: object, uri: str | None = None) -> None:
        """Ends what a watcher wanted to know: of one resource, or of all."""
        for each in [*self._watchers] if uri is None else [uri]:
            watchers = self._watchers.get(each, set())
            if watcher not in watchers:
                continue
            watchers.discard(watcher)
            if watchers:
                continue
            del self._watchers[each]
            if following := self._following.pop(each, None):
                following.cancel()
            elif not self.wire.ended.is_set():
                request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=each))
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
        told = asyncio.Event()
        self._following[uri] = asyncio.create_task(
            self._follow(client, told, resource_subscriptions=[uri])
        )
        await told.wait()

    async def close(self) -> None:
        """Ends the server for good, also one that is just being started."""
        self._closed = True
        self.wire.ended.set()
        if self._task is not None and self._ready is not None and not self._ready.done():
            self._task.cancel()
        await self._finish()

    async def _finish(self) -> None:
        if self._task is None:
            return
        task, self._task, self._ready = self._task, None, None
        await asyncio.wait({task}, timeout=_CLOSE_WAIT_S)
        if not task.done():
            task.cancel()

    def _down(self, problem: str) -> ServerDownError:
        return ServerDownError(
            f"the server {self.name} is not there: {problem}",
            tool="",
            server=self.name,
            retry_after_s=round(max(self._retry_at - time.monotonic(), 0.0), 3),
        )

    def _note_failure(self, problem: str) -> None:
        """Sets the next start; once for each, whatever the number of calls that failed with it."""
        if self._noted:
            return
        self._noted, self._problem = True, problem
        self._retry_at = time.monotonic() + min(_MIN_WAIT_S * 2**self._failures, _MAX_WAIT_S)
        self._failures = min(self._failures + 1, 10)

    async def _run(self, ready: asyncio.Future[Client], wire: Wire) -> None:
        """Keeps the server until it ends or is to end."""
        task = asyncio.current_task()
        assert task is not None
        timer = asyncio.get_running_loop().call_later(self.start_timeout_s, task.cancel)
        problem = f"it did not start within {self.start_timeout_s:g} s"
        try:
            async with self._connected(wire) as client:
                timer.cancel()
                wire.version = client.protocol_version
                ready.set_result(client)
                await self._listen(client, wire.ended, again=self._has_run)
        except Exception as exc:  # noqa: BLE001 - starting a server fails in any way
            what = wire.reason if wire.ended.is_set() else _first(exc)
            problem = (
                f"it ended with {_first(exc)}" if ready.done() else f"it does not start ({what})"
            )
            _log.warning("server %s: %s", self.name, problem)
        finally:
            timer.cancel()
            wire.ended.set()
            if not ready.done():
                self._note_failure(problem)
                ready.set_exception(self._down(problem))
                ready.exception()  # nobody may be waiting any more

    async def _listen(self, client: Client, ended: asyncio.Event, *, again: bool) -> None:
        """Waits for the end.

        Meanwhile a server of the present era tells its changes only to those who listen.
        """
        self._has_run = True
        self._following = {}
        listening = asyncio.create_task(self._catch_up(client, again=again))
        try:
            await ended.wait()
        finally:
            for task in (listening, *self._following.values()):
                task.cancel()

    async def _catch_up(self, client: Client, *, again: bool) -> None:
        """Ask for changes of lists, and of what was watched before the server started again."""
        able = client.server_capabilities
        changes = any(
            part and part.list_changed for part in (able.tools, able.prompts, able.resources)
        )
        if changes and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            self._following[""] = asyncio.create_task(
                self._follow(client, asyncio.Event(), **_ALL_LISTS)
            )
        if again:
            await self._on_notification(self.name, types.ToolListChangedNotification())
        for uri in [*self._watchers]:
            with suppress(ToolError, MCPError):
                await self._begin_watching(client, uri)

    async def _follow(self, client: Client, told: asyncio.Event, **what: Any) -> None:
        """Passes on changes, and asks for them again when the server or a proxy ends the stream."""
        wait_s = _MIN_WAIT_S
        try:
            while True:
                with suppress(SubscriptionLost):
                    async with client.listen(**what) as events:
                        told.set()
                        async for event in events:
                            wait_s = _MIN_WAIT_S
                            await self._on_notification(self.name, event_to_notification(event, {}))
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, _MAX_WAIT_S)
        except MCPError:
            _log.info("server %s does not tell its changes", self.name)
        finally:
            told.set()

    def _connected(self, wire: Wire) -> Client:
        able = self._abilities.capabilities
        return Client(
            streams_of(self._config, wire),
            mode=self._abilities.mode,
            cache=None,
            client_info=types.Implementation(name="llm-common", version=__version__),
            sampling_callback=self._sample if able.sampling else None,
            sampling_capabilities=able.sampling,
            elicitation_callback=self._elicit if able.elicitation else None,
            list_roots_callback=self._list_roots if able.roots else None,
            message_handler=self._on_message,
        )

    async def _on_message(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, _PASSED_ON):
            await self._on_notification(self.name, message)

    @contextmanager
    def _serving(self, host: HostContext | None) -> Iterator[None]:
        key = object()
        if host is not None:
            self._hosts[key] = host
        try:
            yield
        finally:
            self._hosts.pop(key, None)

    async def _ask_host(self, request: types.ServerRequest, answer: type[BaseModel]) -> Any:
        """What the host of the newest running call answers to a server's request."""
        host = next(reversed(self._hosts.values()), None)
        if host is None:
            return types.ErrorData(
                code=types.INVALID_REQUEST, message="no call is running that the host could answer"
            )
        if self._questions >= _MAX_QUESTIONS:
            return types.ErrorData(
                code=types.INVALID_REQUEST, message="too many questions wait for the host"
            )
        self._questions += 1
        related = ServerMessageMetadata(related_request_id=host.request_id)
        try:
            return await host.session.send_request(request, answer, metadata=related)
        except MCPError as exc:
            return exc.error
        finally:
            self._questions -= 1

    async def _sample(
        self,
        context: ClientRequestContext,  # noqa: ARG002
        params: types.CreateMessageRequestParams,
    ) -> Any:
        with_tools = params.tools is not None or params.tool_choice is not None
        answer = types.CreateMessageResultWithTools if with_tools else types.CreateMessageResult
        return await self._ask_host(types.CreateMessageRequest(params=params), answer)

    async def _elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002
        params: types.ElicitRequestParams,
    ) -> Any:
        return await self._ask_host(types.ElicitRequest(params=params), types.ElicitResult)

    async def _list_roots(self, context: ClientRequestContext) -> Any:  # noqa: ARG002
        return await self._ask_host(types.ListRootsRequest(), types.ListRootsResult)


def _first(error: BaseException) -> str:
    """The class of an error, or of the first within a group; its text may hold secrets."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    name = type(error).__name__
    if isinstance(error, FileNotFoundError | PermissionError):
        return f"{name}: its program or folder cannot be used; correct its command or cwd"
    return name
