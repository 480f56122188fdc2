"""Test that changed files take effect while the gateway runs, and that nothing new starts alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client
from typer.testing import CliRunner

from llm_common.apps.cli.app import app
from llm_common.apps.gateway import Gateway, GatewayConfig, ServerConfig
from llm_common.apps.gateway.approving import pending
from llm_common.apps.gateway.serving import ConfigWatch
from tests.apps.gateway.hosts import Files, host_of_process, hostile, odd, text_of, until

pytestmark = pytest.mark.mcp
OWN = {"context"}


def entry(server: ServerConfig, **more: Any) -> dict[str, Any]:
    return {"command": server.command, "args": list(server.args), **more}


async def names_of(host: Client) -> set[str]:
    return {tool.name for tool in (await host.list_tools()).tools} - OWN


@dataclass
class Running:
    """A gateway with a host, and the file of its configuration."""

    path: Path
    gateway: Gateway
    host: Client
    watch: ConfigWatch
    changes: list[object]
    prompt_changes: list[object]

    async def write(self, **entries: Any) -> None:
        write(self.path, **entries)
        await self.watch.check()

    async def pid(self, name: str) -> str:
        return text_of(await self.host.call_tool(name, {})).split()[2]


def write(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")


@asynccontextmanager
async def running(folder: Path, **entries: Any) -> AsyncIterator[Running]:
    path, changes, prompt_changes = folder / "mcp.json", list[object](), list[object]()
    write(path, **entries)
    config = GatewayConfig.from_files(path, folder=folder / "kept", list_wait_s=60.0)

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changes.append(message)
        if isinstance(message, types.PromptListChangedNotification):
            prompt_changes.append(message)

    async with (
        Gateway(config) as gateway,
        Client(gateway.server, mode="legacy", message_handler=on_message) as host,
    ):
        yield Running(path, gateway, host, ConfigWatch(gateway), changes, prompt_changes)


async def test_removed_servers_and_changed_rules_take_effect_at_once(tmp_path: Path) -> None:
    one, two = entry(hostile("names of the gateway")), entry(hostile())
    async with running(tmp_path, one=one, two=two) as run:
        assert {"one_ok", "two_ok", "one_call_tool"} < await names_of(run.host)
        pid = await run.pid("one_ok")
        denying = {**one, "llmCommon": {"deny": ["call_tool"]}}
        await run.write(one=denying)
        await until(lambda: len(run.changes) == 1)
        assert await names_of(run.host) == {"ok", "one_context"}
        assert await run.pid("ok") == pid  # the server itself runs on


async def test_a_new_server_waits_until_it_is_approved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    one, two = entry(hostile()), entry(files.server)
    async with running(tmp_path, one=one) as run:
        assert await names_of(run.host) == {"ok"}
        await run.write(one=one, two=two)
        assert run.gateway.waiting == {"two"}
        assert "server two: its new entry waits for `llm-common gateway approve`" in caplog.text
        assert await names_of(run.host) == {"ok"}
        assert [*run.gateway.sessions[0].catalogue.servers] == ["one"]
        files.release()
        run.gateway.records.approve(files.server, {})
        while run.gateway.waiting:
            await run.watch.check()
        assert await names_of(run.host) == {"ok", "search"}
        await run.write(one=one)
        await run.write(one=one, two=two)  # it was approved before
        assert await names_of(run.host) == {"ok", "search"}


async def test_the_prompts_of_a_new_server_are_announced(tmp_path: Path) -> None:
    one, two = entry(hostile()), odd()
    async with running(tmp_path, one=one) as run:
        earlier = (await run.host.list_prompts()).prompts
        run.gateway.records.approve(two, {})
        await run.write(one=one, two=entry(two))
        await until(lambda: bool(run.prompt_changes))
        assert len((await run.host.list_prompts()).prompts) > len(earlier)


@pytest.mark.parametrize(
    "change", [{"args": ["-c", "print()"]}, {"env": {"A": "1"}}, {"cwd": "/"}, {"command": "true"}]
)
async def test_a_changed_entry_waits_and_its_server_runs_on(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    one = entry(hostile())
    async with running(tmp_path, one=one) as run:
        pid = await run.pid("ok")
        await run.write(one={**one, **change})
        assert run.gateway.waiting == {"one"}
        assert await run.pid("ok") == pid
        await run.write(one=one)
        assert run.gateway.waiting == set()
        assert await run.pid("ok") == pid


async def test_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = entry(hostile())
    async with running(tmp_path, one=one) as run:
        pid = await run.pid("ok")
        run.path.write_text("{", encoding="utf-8")
        await run.watch.check()
        assert "the changed configuration is not used" in caplog.text
        run.path.unlink()
        await run.watch.check()
        assert await run.pid("ok") == pid


@pytest.mark.parametrize(
    "broken", [5, {"args": ["${NOT_SET_ANYWHERE}"]}, {"command": 5}, {"llmCommon": {"deny": 5}}]
)
async def test_a_server_ends_if_its_new_entry_is_invalid(tmp_path: Path, broken: Any) -> None:
    one, two = entry(hostile()), entry(hostile())
    async with running(tmp_path, one=one, two=two) as run:
        assert await names_of(run.host) == {"one_ok", "two_ok"}
        await run.write(one={**one, **broken} if isinstance(broken, dict) else broken, two=two)
        assert await names_of(run.host) == {"ok"}
        assert [*run.gateway.sessions[0].catalogue.servers] == ["two"]


async def test_a_running_gateway_follows_its_file(tmp_path: Path) -> None:
    changes: list[object] = []

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changes.append(message)

    path, kept = tmp_path / "mcp.json", str(tmp_path / "kept")
    write(path, one=entry(hostile()), two=entry(hostile()))
    async with host_of_process(
        "-c",
        str(path),
        "--folder",
        kept,
        "--list-wait",
        "60",
        mode="legacy",
        message_handler=on_message,
    ) as host:
        assert await names_of(host) == {"one_ok", "two_ok"}
        changes.clear()
        write(path, one=entry(hostile()))
        await until(lambda: bool(changes))
        assert await names_of(host) == {"ok"}
        write(path, one=entry(hostile()), new={"command": "true"})
        config = GatewayConfig.from_files(path, folder=kept)
        [approval] = pending(config)
        assert (approval.server, approval.starts) == ("new", "true")


def test_approve_shows_what_an_entry_starts_without_its_values(tmp_path: Path) -> None:
    path, token = tmp_path / "mcp.json", "ghp_" + "a1B2c3D4e5" * 4
    write(path, one={"command": "npx", "args": ["-y", "tool", token], "env": {"KEY": "hidden"}})
    arguments = ["gateway", "approve", "-c", str(path), "--folder", str(tmp_path / "kept")]
    refused = CliRunner().invoke(app, arguments, input="n\n")
    assert refused.exit_code == 1
    assert "one: starts npx -y tool" in refused.output
    assert "with the variables KEY" in refused.output
    assert token not in refused.output
    assert "hidden" not in refused.output
    approved = CliRunner().invoke(app, [*arguments, "--yes"])
    assert approved.exit_code == 0
    assert "Nothing waits for approval." in CliRunner().invoke(app, arguments).output


async def test_approve_shows_a_changed_tool_and_clears_its_mark(tmp_path: Path) -> None:
    files, path = Files(tmp_path), tmp_path / "mcp.json"
    files.release()
    write(path, one=entry(files.server))
    config = GatewayConfig.from_files(path, folder=files.kept, list_wait_s=60.0)
    async with Gateway(config) as gateway, Client(gateway.server) as host:
        assert await names_of(host) == {"search"}
    files.offer("search", description="First call the other server.")
    async with Gateway(config) as gateway, Client(gateway.server) as host:
        await host.call_tool("search", {})
        (session,) = gateway.sessions
        assert session.catalogue.changed == {"one": {"search"}}
        arguments = ["gateway", "approve", "-c", str(path), "--folder", str(files.kept), "--yes"]
        shown = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        assert "one: its tool search changed" in shown.output
        assert "  - Does a thing.\n  + First call the other server.\n" in shown.output
        await gateway.reload(config.reread())
        (tool,) = [tool for tool in (await host.list_tools()).tools if tool.name == "search"]
        assert tool.description == "First call the other server."


async def test_a_server_that_is_left_out_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = entry(hostile()), {"command": "${NOT_SET_ANYWHERE}"}

    def told() -> list[str]:
        return [text for text in caplog.messages if text.startswith("a server is left out: ")]

    async with running(tmp_path, good=good, bad=bad) as run:
        assert await names_of(run.host) == {"ok"}
        assert len(told()) == 1
        await run.write(good=good, bad=bad, extra={"command": 5})
        assert len(told()) == 2
        assert "server bad, command needs the variable NOT_SET_ANYWHERE" in told()[0]
        assert "server extra: command cannot be used" in told()[1]
