"""Exchange messages with a server within limits: `streams_of`.

Lists of thousands of entries are read in parts, since the SDK handles each at once. Bursts are
thinned out, so that other servers need not wait: passing one message on takes about 0.2 ms of CPU
time, during which nothing else is answered.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
import mcp_types as types
from anyio.abc import ObjectSendStream, TaskGroup
from mcp.shared.message import SessionMessage
from mcp_types.methods import parse_server_result
from pydantic import ValidationError

from llm_common.apps.gateway.configuration.gateway_config import ServerConfig
from llm_common.apps.gateway.servers.limits import MAX_ENTRIES, MAX_LOGS, PAGE_ENTRIES
from llm_common.apps.gateway.servers.transport import Wire, transport_of
from llm_common.runtime import in_thread

CAPABILITIES: Final = "llm-common/capabilities"
"""The key in a request's metadata for what its host can do, in place of what all hosts can do."""

_CURSOR: Final = "llm-common/"  # no server's own cursor reaches this module again
_LISTS: Final = {
    "tools": "tools/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
    "prompts": "prompts/list",
}
_LOG: Final = "notifications/message"
# After each change, a host lists everything again. A server that adds ten tools sends ten.
_CHANGE: Final = (1, 0.5)
_LIMITS: Final = {
    _LOG: (MAX_LOGS, 1.0),
    "notifications/tools/list_changed": _CHANGE,
    "notifications/prompts/list_changed": _CHANGE,
    "notifications/resources/list_changed": _CHANGE,
}
"""How many messages of a method pass within how many seconds."""


@asynccontextmanager
async def streams_of(config: ServerConfig, wire: Wire) -> AsyncIterator[Any]:
    """Yield the streams from and to a server, for the client of the SDK.

    A process that was started is ended afterwards. A line that is too long ends the server. Lines
    that are not messages are skipped, and if one is a broken answer, its request fails. List
    entries that are not valid MCP are left out, so that the valid ones stay.

    Args:
        config: How to start or reach the server.
        wire: Receives the end and the entries that were left out.
    """
    async with transport_of(config, wire) as (source, write):
        # Streams without a buffer, so that a slow client slows a flooding server down.
        passing, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        lists = LongLists(write, passing)

        async def pump(bursts: MessageBursts) -> None:
            async with passing:
                async for message in source:
                    if isinstance(message, SessionMessage):
                        if isinstance(message.message, types.JSONRPCResponse):
                            await check_lists(message.message, lists, wire)
                        if not bursts.admits(message):
                            continue
                    with suppress(anyio.BrokenResourceError):  # the client has closed its end
                        await passing.send(message)
            wire.ended.set()

        async with passing, read, anyio.create_task_group() as group:
            group.start_soon(pump, MessageBursts(group, passing.send))
            try:
                yield read, lists
            finally:
                group.cancel_scope.cancel()


class LongLists(ObjectSendStream[SessionMessage]):
    """A stream to a server that answers requests for the other pages of a long list itself.

    The SDK gets the first page of a list, with a cursor to the next one.

    Args:
        to_server: The stream to the server.
        to_client: Receives the pages that were kept back.
    """

    def __init__(
        self,
        to_server: ObjectSendStream[SessionMessage],
        to_client: ObjectSendStream[SessionMessage],
    ) -> None:
        self._to_server = to_server
        self._to_client = to_client
        self._pages: dict[str, dict[str, Any]] = {}
        self._count = 0

    def first_page(self, result: dict[str, Any], field: str) -> dict[str, Any]:
        """Return the first page of a list, whose cursor leads to the others.

        Args:
            result: A server's answer.
            field: The field of its entries.
        """
        entries = result[field]
        # A list that was asked for again replaces what nobody has read of the earlier one.
        for cursor in [cursor for cursor in self._pages if cursor.startswith(_cursor(field))]:
            del self._pages[cursor]
        page = result
        for begin in reversed(range(0, len(entries), PAGE_ENTRIES)):
            page = {**page, field: entries[begin : begin + PAGE_ENTRIES]}
            if begin:
                self._count += 1
                cursor = f"{_cursor(field)}{self._count}"
                self._pages[cursor] = page
                page = {**result, "nextCursor": cursor}
        return page

    async def send(self, item: SessionMessage) -> None:
        """Send a message to the server, or answer a request for a page that was kept back.

        With the newest protocol, each request says what its own host can do.
        """
        request = item.message
        if isinstance(request, types.JSONRPCRequest) and request.params:
            page = self._pages.pop(str(request.params.get("cursor")), None)
            if page is not None:
                answer = types.JSONRPCResponse(jsonrpc="2.0", id=request.id, result=page)
                await self._to_client.send(SessionMessage(answer))
                return
            meta = request.params.get("_meta") or {}
            if CAPABILITIES in meta:
                meta[types.CLIENT_CAPABILITIES_META_KEY] = meta.pop(CAPABILITIES)
        await self._to_server.send(item)

    async def aclose(self) -> None:
        """Close the stream to the server."""
        await self._to_server.aclose()


def _cursor(field: str) -> str:
    return f"{_CURSOR}{field}/"


async def check_lists(answer: types.JSONRPCResponse, lists: LongLists, wire: Wire) -> None:
    """Remove invalid entries from an answer's lists, and keep all but the first page back."""
    for name in _LISTS:
        if isinstance(answer.result.get(name), list):
            # In a thread, because validating thousands of entries takes seconds.
            await in_thread(remove_invalid_entries, answer.result, name, wire)
            answer.result = lists.first_page(answer.result, name)


def remove_invalid_entries(result: dict[str, Any], name: str, wire: Wire) -> None:
    """Remove invalid entries from a list, because one of them would fail the whole answer.

    Args:
        result: The result of a request for a list.
        name: The field of its entries.
        wire: The protocol version. Receives the entries that were left out.
    """
    method, entries, valid = _LISTS[name], result[name], list[Any]()
    if len(entries) > MAX_ENTRIES:
        wire.leave_out("the rest", "the list is too long")
    # If the answer is invalid even without entries, no entry can be checked by itself.
    if _problem(method, wire.version, {**result, name: []}):
        entries = []
    for begin in range(0, min(len(entries), MAX_ENTRIES), PAGE_ENTRIES):
        some = entries[begin : min(begin + PAGE_ENTRIES, MAX_ENTRIES)]
        if not _problem(method, wire.version, {**result, name: some}):
            valid += some
            continue
        for entry in some:
            if problem := _problem(method, wire.version, {**result, name: [entry]}):
                title = entry.get("name") if isinstance(entry, dict) else None
                wire.leave_out(str(title), problem)
            else:
                valid.append(entry)
    result[name] = valid


def _problem(method: str, version: str, result: dict[str, Any]) -> str:
    """Return the path of the first invalid field in a result, or "".

    A result counts as valid if its protocol version does not have the method.
    """
    try:
        parse_server_result(method, version, result)
    except KeyError:
        return ""
    except ValidationError as exc:
        return ".".join(str(step) for step in exc.errors()[0]["loc"][2:5]) or "it"
    except ValueError:  # the version is not negotiated yet
        return ""
    return ""


@dataclass(slots=True)
class _Window:
    """The messages of one kind within an interval.

    Attributes:
        passed: Number of messages that were passed on.
        dropped: Number of the others.
        last: The last of the others.
    """

    passed: int = 1
    dropped: int = 0
    last: SessionMessage | None = None


class MessageBursts:
    """The log messages and changes of lists that a server has sent in the last interval.

    The first change of a list passes at once. Those that follow within half a second become one
    change at its end. After a hundred log messages in a second, the others are dropped, and one
    message at its end says how many.

    Args:
        group: Runs the tasks that wait for the end of an interval.
        send: Sends a message to the client.
    """

    def __init__(self, group: TaskGroup, send: Callable[[SessionMessage], Awaitable[None]]) -> None:
        self._group = group
        self._send = send
        self._windows: dict[str, _Window] = {}

    def admits(self, message: SessionMessage) -> bool:
        """Return whether to pass a message on now. The last change of a list is sent later."""
        method = getattr(message.message, "method", "")
        if method not in _LIMITS:
            return True
        window = self._windows.get(method)
        if window is None:
            self._windows[method] = _Window()
            self._group.start_soon(self._close_windows, method)
            return True
        if window.passed < _LIMITS[method][0]:
            window.passed += 1
            return True
        window.dropped += 1
        window.last = message
        return False

    async def _close_windows(self, method: str) -> None:
        """Wait for the end of each interval of a burst, and send what stands for the dropped."""
        while True:
            await anyio.sleep(_LIMITS[method][1])
            window = self._windows.pop(method)
            if window.last is None:
                return
            # Before the message is sent, because the client may take long to accept it.
            self._windows[method] = _Window()
            last = window.last
            if method == _LOG:
                text = f"{window.dropped:,} more log messages of this second were dropped"
                params = {"level": "warning", "data": text}
                last = SessionMessage(
                    types.JSONRPCNotification(jsonrpc="2.0", method=_LOG, params=params)
                )
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self._send(last)
