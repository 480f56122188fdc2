"""Test servers over HTTP, and the messages that servers send in addition to answers."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from llm_common.apps.gateway import ServerConfig
from tests.apps.gateway.hosts import (
    ERAS,
    ODD,
    config_file,
    config_of,
    free_port,
    host_of,
    host_of_process,
    id_in,
    is_open,
    odd,
    parent_of,
    runs,
    text_of,
    until,
)

pytestmark = pytest.mark.mcp
PATHS = {"streamable-http": "mcp", "sse": "sse"}


@asynccontextmanager
async def served(kind: str, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """A server on loopback in a process of its own, ended at the end."""
    settings = json.dumps({"serve": kind, "port": port})
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ODD), settings, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await is_open(port)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", PATHS)
async def test_a_server_over_http_works_like_any_other(kind: str, era: str) -> None:
    port = free_port()
    kept = {
        "url": f"http://127.0.0.1:{port}/{PATHS[kind]}",
        "type": "sse" if kind == "sse" else "http",
        "headers": {"X-Key": "a key"},
    }
    config = config_of(far=ServerConfig.model_validate(kept), near=odd())
    async with served(kind, port) as process, host_of(config, mode=era) as host:
        assert "near_add_one" in [tool.name for tool in (await host.list_tools()).tools]
        # the SDK takes a megabyte of the older kind
        count = 6_000 if kind == "streamable-http" else 4_000
        preview = text_of(await host.call_tool("far_list_items", {"count": count}))
        part = {"id": id_in(preview), "path": "/3210/name"}
        assert "item 3210" in text_of(await host.call_tool("context", part))
        assert text_of(await host.call_tool("far_get_header", {})) == "a key"
        process.kill()
        await process.wait()
        gone = await host.call_tool("far_add_one", {"number": 1})
        assert "far" in text_of(gone)
        assert gone.is_error
        assert text_of(await host.call_tool("near_add_one", {"number": 1})) == "2"
        async with served(kind, port):
            while (again := await host.call_tool("far_add_one", {"number": 1})).is_error:
                assert "the server far is down" in text_of(again)
                await asyncio.sleep(0.1)
            assert text_of(again) == "2"


async def test_a_header_that_a_tool_newly_requires_is_sent() -> None:
    port = free_port()
    config = config_of(far=ServerConfig(url=f"http://127.0.0.1:{port}/mcp"))
    async with served("streamable-http", port), host_of(config) as host:
        assert text_of(await host.call_tool("route", {"region": "north"})) == "from north"
        await host.call_tool("want_header", {})
        assert text_of(await host.call_tool("route", {"region": "north"})) == "by header from north"


@pytest.mark.parametrize("where", [(), ("--forget",), ("--memory-only",)])
async def test_a_gateway_ends_its_servers_on_sigterm(
    where: tuple[str, ...], tmp_path: Path
) -> None:
    config, folder = config_file(tmp_path, odd=odd()), tmp_path / "kept"
    async with host_of_process(
        "-c", str(config), "--folder", str(folder), *where, mode="legacy"
    ) as host:
        pid = int(text_of(await host.call_tool("get_pid", {})))
        await host.call_tool("get_log", {"lines": 20_000})
        assert bool(list(folder.rglob("*.result.json"))) is (where != ("--memory-only",))
        waiting = asyncio.create_task(host.call_tool("pause", {"seconds": 60, "number": 1}))
        await asyncio.sleep(0.1)
        gateway = parent_of(pid)
        os.kill(gateway, signal.SIGTERM)
        os.kill(gateway, signal.SIGTERM)
        await until(lambda: not Path(f"/proc/{pid}").exists() and not runs(gateway))
        # Results stay for the next gateway, unless the user wants them forgotten.
        assert bool(list(folder.rglob("*.result.json"))) is (where == ())
        assert folder.exists() is (where != ("--memory-only",))
        await asyncio.gather(waiting, return_exceptions=True)


STAYS = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "600"])
with open(sys.argv[1], "w") as file:
    file.write(f"{os.getpid()} {child.pid}")
child.wait()
"""


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="the test looks at /proc")
async def test_no_server_and_no_child_of_it_outlives_a_killed_gateway(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    server = ServerConfig(command=sys.executable, args=("-c", STAYS, str(pids)))
    gateway = await asyncio.create_subprocess_exec(
        *[sys.executable, "-c", "from llm_common.apps.cli import main; main()", "gateway"],
        *["doctor", "-c", str(config_file(tmp_path, stays=server))],
        stdout=asyncio.subprocess.DEVNULL,
    )
    await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    gateway.kill()
    await gateway.wait()
    await until(lambda: not any(runs(int(pid)) for pid in pids.read_text().split()))
