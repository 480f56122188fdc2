"""Unreachable endpoints: contexts that yield the configuration of a client for them."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llm_common.core import LLMConfig
from tests.core.loopback import answer, loopback, ok, self_signed

Place = Callable[[Path, pytest.MonkeyPatch], AbstractAsyncContextManager[LLMConfig]]


@asynccontextmanager
async def refusing(_: Path, __: pytest.MonkeyPatch) -> AsyncIterator[LLMConfig]:
    """Yield a port without a listener."""
    async with loopback(answer(200)) as server:
        config = server.config()
    yield config


@asynccontextmanager
async def without_a_name(_: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LLMConfig]:
    """Yield a host that the resolver does not know.

    The resolver is replaced, since a real one would make the test depend on the machine.
    """

    def fail(*_: object, **__: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    yield LLMConfig(base_url="http://model.invalid/v1", default_model="test-model")


@asynccontextmanager
async def untrusted(folder: Path, _: pytest.MonkeyPatch) -> AsyncIterator[LLMConfig]:
    """Yield an endpoint with a self-signed certificate, which must get no request."""
    context = self_signed(folder)
    async with loopback(answer(200, ok()), tls=context) as server:
        yield server.config()
        assert not server.requests


UNREACHABLE: dict[str, Place] = {"F-107": refusing, "F-108": without_a_name, "F-131": untrusted}
