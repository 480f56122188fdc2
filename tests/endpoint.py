"""An endpoint on loopback whose model replies in turn."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.core.loopback import Received, Wire, loopback, ok, response


@asynccontextmanager
async def replying(*replies: str) -> AsyncIterator[tuple[dict[str, str], list[Received]]]:
    """Yield the settings of an endpoint and its requests, and check that it gave all replies."""
    remaining = deque(replies)

    async def script(wire: Wire) -> None:
        while await wire.request() is not None:
            await wire.send(response(200, ok(remaining.popleft())))

    async with loopback(script) as server:
        address = f"http://127.0.0.1:{server.port}/v1"
        yield {"LLM_COMMON_BASE_URL": address, "LLM_COMMON_MODEL": "test-model"}, server.requests
    assert not remaining
