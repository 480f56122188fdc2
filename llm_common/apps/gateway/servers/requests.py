"""Send a host's requests to the server that lists what they name."""

import asyncio
from typing import Any, Final

import mcp_types as types
from mcp import MCPError
from pydantic import TypeAdapter

from llm_common.apps.gateway.servers.catalogue import Catalogue, Kind, ServerOffer
from llm_common.apps.gateway.servers.connection import ServerConnection
from llm_common.apps.gateway.servers.limits import REQUEST_WAIT_S
from llm_common.apps.gateway.servers.questions import HostContext
from llm_common.errors import ToolError

_RESOURCE: Final = TypeAdapter[Any](types.ReadResourceResult | types.InputRequiredResult)
_PROMPT: Final = TypeAdapter[Any](types.GetPromptResult | types.InputRequiredResult)


async def read_resource(
    catalogue: Catalogue, params: types.ReadResourceRequestParams, host: HostContext
) -> tuple[str, types.ReadResourceResult | types.InputRequiredResult]:
    """Read a resource, and return its server's name and its answer.

    If no server lists it, each server is asked, because templates have unlisted resources.

    Raises:
        MCPError: If no server has the resource.
    """
    lister = catalogue.lister("resource", str(params.uri))
    request = types.ReadResourceRequest(params=params.model_copy(update={"meta": None}))
    error = MCPError(types.INVALID_PARAMS, "no server has this resource")
    # A server that is asked on a guess must not keep the next one from being asked.
    offers = [*catalogue.servers.values()]
    timeout_s: float | None = REQUEST_WAIT_S
    if lister is not None:
        offers, timeout_s = [lister], None
    for offer in offers:
        server = offer.connection.name
        try:
            async with asyncio.timeout(timeout_s):
                return server, await _answer(offer.connection, request, _RESOURCE, params, host)
        except MCPError as exc:
            error = exc
        except TimeoutError:
            error = MCPError(types.INTERNAL_ERROR, f"{server} did not answer")
    raise error


async def get_prompt(
    catalogue: Catalogue, params: types.GetPromptRequestParams, host: HostContext
) -> Any:
    """Return a prompt with its arguments filled in.

    Raises:
        MCPError: If no server has the prompt, or its server refuses.
    """
    offer = await _lister(catalogue, "prompt", params.name)
    name = offer.names["prompt"][params.name]
    changes = {"name": name, "meta": None}
    request = types.GetPromptRequest(params=params.model_copy(update=changes))
    return await _answer(offer.connection, request, _PROMPT, params, host)


async def _lister(catalogue: Catalogue, kind: Kind, key: str) -> ServerOffer:
    offer = await catalogue.find_lister(kind, key)
    if offer is None:
        raise MCPError(types.INVALID_PARAMS, f"no server has this {kind}")
    return offer


async def _answer(
    connection: ServerConnection,
    request: types.ReadResourceRequest | types.GetPromptRequest,
    answer: TypeAdapter[Any],
    params: types.InputResponseRequestParams,
    host: HostContext,
) -> Any:
    """Send a host's request to its server. Every failure becomes an error of the protocol."""
    try:
        return await connection.request(request, answer, params, host)
    except ToolError as exc:
        raise MCPError(types.INTERNAL_ERROR, exc.message) from exc


async def complete(
    catalogue: Catalogue, params: types.CompleteRequestParams, host: HostContext
) -> types.CompleteResult:
    """Return completions for an argument of a prompt or a resource template.

    There are none if its server does not support completions.

    Raises:
        MCPError: If no server has the prompt or template, or its server refuses.
    """
    ref = params.ref
    if isinstance(ref, types.PromptReference):
        offer = await _lister(catalogue, "prompt", ref.name)
        ref = ref.model_copy(update={"name": offer.names["prompt"][ref.name]})
    else:
        offer = await _lister(catalogue, "template", ref.uri)
    request = types.CompleteRequest(params=params.model_copy(update={"ref": ref, "meta": None}))
    connection = offer.connection
    try:
        if (await connection.client()).server_capabilities.completions is None:
            return types.CompleteResult(completion=types.Completion(values=[]))
        return await connection.use(
            lambda session: session.send_request(request, types.CompleteResult), host=host
        )
    except ToolError as exc:
        raise MCPError(types.INTERNAL_ERROR, exc.message) from exc


async def watch(catalogue: Catalogue, uri: str, watcher: object) -> types.EmptyResult:
    """Ask the server of a resource to announce its changes.

    If no server lists the resource, all servers that support subscriptions are asked.

    Raises:
        MCPError: If no server can announce changes of the resource.
    """
    lister = await catalogue.find_lister("resource", uri)
    error = MCPError(types.INVALID_PARAMS, "no server announces changes of this resource")
    is_watched = False
    offers = [*catalogue.servers.values()]
    if lister is not None:
        offers = [lister]
    for offer in offers:
        try:
            async with asyncio.timeout(REQUEST_WAIT_S):
                able = (await offer.connection.client()).server_capabilities.resources
                if able and able.subscribe:
                    await offer.connection.watch(uri, watcher)
                    is_watched = True
        except MCPError as exc:
            error = exc
        except (ToolError, TimeoutError):
            continue
    if not is_watched:
        raise error
    return types.EmptyResult()


async def unwatch(
    catalogue: Catalogue, watcher: object, uri: str | None = None
) -> types.EmptyResult:
    """Stop watching a resource for a watcher, or all its resources."""
    await asyncio.gather(
        *(offer.connection.unwatch(watcher, uri) for offer in catalogue.servers.values())
    )
    return types.EmptyResult()
