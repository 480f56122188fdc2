"""Unreachable endpoints: contexts that yield the configuration of a client for them."""

import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from llm_common.core import LLMConfig
from tests.core.loopback import answer, loopback, ok

__all__ = ["UNREACHABLE", "Place"]

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
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 "
        "-subj /CN=127.0.0.1"
    )
    arguments = [*command.split(), "-keyout", "key.pem", "-out", "cert.pem"]
    try:
        subprocess.run(arguments, cwd=folder, check=True, capture_output=True)  # noqa: ASYNC221 - before the call
    except FileNotFoundError:
        pytest.skip("makes its certificate with openssl")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    async with loopback(answer(200, ok()), tls=context) as server:
        yield server.config()
        assert not server.requests


UNREACHABLE: dict[str, Place] = {"F-107": refusing, "F-108": without_a_name, "F-131": untrusted}
