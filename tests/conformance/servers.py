"""Start the full server, bare or behind a gateway."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.conformance.suites import TOKEN

FULL = Path(__file__).with_name("full_server.py")
GATEWAY = (sys.executable, "-c", "from llm_common.apps.cli import main; main()", "gateway")
_START_S = 120


@contextmanager
def served(way: str, folder: Path) -> Iterator[str]:
    """Yield the address of the full server on one of the ways."""
    with ExitStack() as stack:
        entry: dict[str, Any] = {"command": sys.executable, "args": [str(FULL)]}
        if way != "gateway, stdio":
            url = stack.enter_context(_process((sys.executable, str(FULL), "{port}"), folder))
            if way == "bare":
                yield url
                return
            entry = {"url": url}
        config = folder / "mcp.json"
        config.write_text(json.dumps({"mcpServers": {"full": entry}}), encoding="utf-8")
        # Waits for a slow start, because a list without the server would fail the suite.
        options = ["-c", str(config), "--http", "{port}", "--memory-only", "--list-wait", "120"]
        yield stack.enter_context(_process((*GATEWAY, *options), folder))


@contextmanager
def _process(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Start a server in a process, and yield its address once it answers."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / f"{port}.log").open("wb") as log:
        process = subprocess.Popen(
            [part.replace("{port}", str(port)) for part in command],
            env={**os.environ, **environment(folder)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(port, process)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.terminate()
            process.wait()


def environment(folder: Path) -> Mapping[str, str]:
    """Return the variables of a gateway whose files are in a folder."""
    return {
        "HOME": str(folder),
        "LLM_COMMON_GATEWAY_TOKEN": TOKEN,
        "PYTHONPATH": ":".join(filter(None, sys.path)),
    }


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        assert process.poll() is None, f"the server of port {port} has ended"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens on port {port}")
