"""Read and write lists of thousands of entries in parts, since the SDK handles each at once."""

from typing import Any, Final

import mcp_types as types
from anyio.abc import ObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types.methods import SERVER_RESULTS
from pydantic import TypeAdapter, ValidationError

from llm_common.apps.gateway.servers.limits import PAGE_ENTRIES

CAPABILITIES: Final = "llm-common/capabilities"
"""The key in a request's metadata for what its host can do, in place of what all hosts can do."""

_CURSOR: Final = "llm-common/"  # no server's own cursor reaches this module again


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


def validated_tools(
    result: types.ListToolsResult, version: str
) -> types.ListToolsResult | dict[str, Any]:
    """Return a list of tools in the form that the SDK sends without validating it again.

    Args:
        result: The list.
        version: The protocol version of the host.
    """
    form: Any = SERVER_RESULTS.get(("tools/list", version))
    if form is None or len(result.tools) <= PAGE_ENTRIES:
        return result
    adapter = TypeAdapter[Any](form)
    empty = result.model_copy(update={"tools": []})
    fields = empty.model_dump(by_alias=True, mode="json", exclude_none=True)
    tools: list[Any] = []
    for begin in range(0, len(result.tools), PAGE_ENTRIES):
        page = result.model_copy(update={"tools": result.tools[begin : begin + PAGE_ENTRIES]})
        dumped = page.model_dump(by_alias=True, mode="json", exclude_none=True)
        try:
            tools += adapter.validate_python(dumped, by_name=False).tools
        except ValidationError:
            return result  # the SDK reports the error
    return {**fields, "tools": tools}


def _cursor(field: str) -> str:
    return f"{_CURSOR}{field}/"
