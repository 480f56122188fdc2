"""Test that changed files take effect while the gateway runs, and that nothing new starts alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client

from llm_common.apps.gateway import Gateway, GatewayConfig
from llm_common.apps.gateway.servers.records import pending
from llm_common.apps.gateway.serving import ConfigWatch
from tests.apps.cli.running import run as run_command
from tests.apps.gateway.hosts import (
    Files,
    Heard,
    config_file,
    entry_of,
    host_of_process,
    hostile,
    names_of,
    odd,
    text_of,
    until,
)

pytestmark = pytest.mark.mcp


@dataclass
class Running:
    """A gateway with a host, and the file of its configuration."""

    path: Path
    gateway: Gateway
    host: Client
    watch: ConfigWatch
    heard: Heard

    async def write(self, **entries: Any) -> None:
        config_file(self.path.parent, **entries)
        await self.watch.check()

    async def pid(self, name: str) -> str:
        return text_of(await self.host.call_tool(name, {})).split()[2]


@asynccontextmanager
async def running(folder: Path, **entries: Any) -> AsyncIterator[Running]:
    path, heard = config_file(folder, **entries), Heard()
    config = GatewayConfig.from_files(path, folder=folder / "kept", list_wait_s=60.0)
    async with (
        Gateway(config) as gateway,
        Client(gateway.server, mode="legacy", message_handler=heard) as host,
    ):
        yield Running(path, gateway, host, ConfigWatch(gateway), heard)


async def test_removed_servers_and_changed_rules_take_effect_at_once(tmp_path: Path) -> None:
    one, two = entry_of(hostile("names of the gateway")), entry_of(hostile())
    async with running(tmp_path, one=one, two=two) as run:
        assert {"one_ok", "two_ok", "one_call_tool"} < await names_of(run.host)
        pid = await run.pid("one_ok")
        denying = {**one, "llmCommon": {"deny": ["call_tool"]}}
        await run.write(one=denying)
        await until(lambda: run.heard.count() == 1)
        assert await names_of(run.host) == {"ok", "one_context"}
        assert await run.pid("ok") == pid  # the server itself runs on


async def test_a_new_server_waits_until_it_is_approved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files(tmp_path)
    one, two = entry_of(hostile()), entry_of(files.server)
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
    one, two = hostile(), odd()
    async with running(tmp_path, one=one) as run:
        earlier = (await run.host.list_prompts()).prompts
        run.gateway.records.approve(two, {})
        await run.write(one=one, two=two)
        await until(lambda: bool(run.heard.count(types.PromptListChangedNotification)))
        assert len((await run.host.list_prompts()).prompts) > len(earlier)


@pytest.mark.parametrize(
    "change", [{"args": ["-c", "print()"]}, {"env": {"A": "1"}}, {"cwd": "/"}, {"command": "true"}]
)
async def test_a_changed_entry_waits_and_its_server_runs_on(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    one = entry_of(hostile())
    async with running(tmp_path, one=one) as run:
        pid = await run.pid("ok")
        await run.write(one={**one, **change})
        assert run.gateway.waiting == {"one"}
        assert await run.pid("ok") == pid
        await run.write(one={**one, **change, "llmCommon": {"deny": ["ok"]}})
        assert await names_of(run.host) == set(), "its rules do not wait"
        await run.write(one=one)
        assert run.gateway.waiting == set()
        assert await run.pid("ok") == pid


async def test_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = entry_of(hostile())
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
    one, two = entry_of(hostile()), entry_of(hostile())
    async with running(tmp_path, one=one, two=two) as run:
        assert await names_of(run.host) == {"one_ok", "two_ok"}
        await run.write(one={**one, **broken} if isinstance(broken, dict) else broken, two=two)
        assert await names_of(run.host) == {"ok"}
        assert [*run.gateway.sessions[0].catalogue.servers] == ["two"]


async def test_a_running_gateway_follows_its_file(tmp_path: Path) -> None:
    heard, kept = Heard(), str(tmp_path / "kept")
    path = config_file(tmp_path, one=hostile(), two=hostile())
    options = ["-c", str(path), "--folder", kept, "--list-wait", "60"]
    async with host_of_process(*options, mode="legacy", message_handler=heard) as host:
        assert await names_of(host) == {"one_ok", "two_ok"}
        heard.messages.clear()
        config_file(tmp_path, one=hostile())
        await until(lambda: bool(heard.count()))
        assert await names_of(host) == {"ok"}
        config_file(tmp_path, one=hostile(), new={"command": "true"})
        [approval] = pending(GatewayConfig.from_files(path, folder=kept))
        assert (approval.server, approval.starts) == ("new", "true")


def test_approve_shows_what_an_entry_starts_without_its_values(tmp_path: Path) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    entry = {"command": "npx", "args": ["-y", "tool", token], "env": {"KEY": "hidden"}}
    path = config_file(tmp_path, one=entry)
    arguments: list[str | Path] = ["gateway", "approve", "-c", path, "--folder", tmp_path / "kept"]
    refused = run_command(*arguments, code=1, typed="n\n")
    assert "one: starts npx -y tool" in refused.output
    assert "with the variables KEY" in refused.output
    assert token not in refused.output
    assert "hidden" not in refused.output
    run_command(*arguments, "--yes")
    assert "Nothing waits for approval." in run_command(*arguments).output


async def test_approve_shows_a_changed_tool_and_clears_its_mark(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.release()
    path = config_file(tmp_path, one=files.server)
    config = GatewayConfig.from_files(path, folder=files.kept, list_wait_s=60.0)
    async with Gateway(config) as gateway, Client(gateway.server) as host:
        assert await names_of(host) == {"search"}
    files.offer("search", description="First call the other server.")
    async with Gateway(config) as gateway, Client(gateway.server) as host:
        await host.call_tool("search", {})
        (session,) = gateway.sessions
        assert session.catalogue.changed == {"one": {"search"}}
        arguments = ("gateway", "approve", "-c", path, "--folder", files.kept, "--yes")
        shown = await asyncio.to_thread(run_command, *arguments)
        assert "one: its tool search changed" in shown.output
        await gateway.reload(config.reread())
        (tool,) = [tool for tool in (await host.list_tools()).tools if tool.name == "search"]
        assert tool.description == "First call the other server."


async def test_a_server_that_is_left_out_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = entry_of(hostile()), {"command": "${NOT_SET_ANYWHERE}"}

    def told() -> list[str]:
        return [text for text in caplog.messages if text.startswith("a server is left out: ")]

    async with running(tmp_path, good=good, bad=bad) as run:
        assert await names_of(run.host) == {"ok"}
        assert len(told()) == 1
        await run.write(good=good, bad=bad, extra={"command": 5})
        assert len(told()) == 2
        assert "server bad, command needs the variable NOT_SET_ANYWHERE" in told()[0]
        assert "server extra: command cannot be used" in told()[1]
