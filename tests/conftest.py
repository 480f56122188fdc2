"""What every test gets: a clean environment, sockets to loopback only.

And what a test can ask for.
"""

import gc
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from hypothesis import settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from llm_common._env import VARIABLES
from tests.s3_server import s3_server

# How many cases of each law are tried; `make torture` names the other profile.
settings.register_profile(
    "default", deadline=None, max_examples=15, derandomize=bool(os.environ.get("CI"))
)
settings.register_profile("torture", deadline=None, max_examples=200)
settings.load_profile("default")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: many tests wait for a process, a server or a clock."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end, so no search for garbage looks at it: a second less in each process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for variable in VARIABLES:
            patch.delenv(variable.name, raising=False)
        yield


@pytest.fixture(autouse=True, scope="session")
def _only_loopback() -> Iterator[None]:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if host and host not in {"127.0.0.1", "::1", "localhost"}:
            raise AssertionError(f"a test connects to {host}")
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", guarded)
        yield


@pytest.fixture(autouse=True, scope="session")
def _no_search_for_sniffio() -> Iterator[None]:
    """Answer httpcore at once, which imports it for every request: a quarter of what a request costs."""
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("sniffio") is None:
            patch.setitem(sys.modules, "sniffio", None)
        yield


@pytest.fixture
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without waiting. The number of retries is unchanged."""
    monkeypatch.setattr("llm_common.core.http.transport._WAIT_INITIAL_S", 0.0)
    monkeypatch.setattr("llm_common.core.http.transport._WAIT_JITTER_S", 0.0)
    monkeypatch.setattr("llm_common.storage.object_store._MAX_PAUSE_S", 0.0)


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a process that speaks S3, the same one for all tests.

    Each makes a bucket of its own.
    """
    with s3_server() as endpoint:
        yield endpoint


@pytest.fixture
def blockbuster() -> Iterator[BlockBuster]:
    """Fails a test in which our code blocks the event loop on a file, a socket, a lock or a sleep.

    Not for every test: `list` and `load_result` are synchronous by contract, and may be called from
    a coroutine.
    """
    with blockbuster_ctx("llm_common") as blocker:
        yield blocker


def exporter_of_spans(patch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Return the exporter that gets the spans of our code while the patch lasts."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    patch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """The spans that our code has ended, as opentelemetry exports them."""
    return exporter_of_spans(monkeypatch)


@pytest.fixture
def shared_root() -> Iterator[Path]:
    """Create a directory that another user can reach, unlike pytest's own."""
    root = Path(tempfile.mkdtemp(prefix="llm-common-test-"))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)
