"""Test that tools of an earlier run are listed at once, and replaced by what the server says."""

import stat
from pathlib import Path
from typing import Literal

import pytest
from mcp import Client

from llm_common.apps.gateway import Gateway
from llm_common.apps.gateway.servers.records import MAX_RECORDS, ServerRecords, approve, pending
from tests.apps.gateway.hosts import (
    Files,
    config_of,
    host_and_changes,
    host_of,
    names_of,
    odd,
    text_of,
    until,
)

pytestmark = pytest.mark.mcp
# A test that waits so long fails by its own limit, so none of them proves anything by waiting.
FOR_EVER = 10_000.0


@pytest.fixture
async def files(tmp_path: Path) -> Files:
    """A server that a gateway has listed once, and that hangs at its next start."""
    files = Files(tmp_path)
    files.release()
    async with host_of(files.config()) as host:
        assert await names_of(host) == {"search"}
    (tmp_path / "ready").unlink()
    return files


async def test_remembered_tools_are_listed_at_once_and_a_call_waits(files: Files) -> None:
    async with host_and_changes(files.config(list_wait_s=FOR_EVER)) as (host, heard):
        assert await names_of(host) == {"search"}
        files.release()
        assert text_of(await host.call_tool("search", {})).startswith("search of")
        assert await names_of(host) == {"search"}
        assert heard.count() == 0  # nothing has changed


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_are_remembered_from_servers_of_each_protocol(
    mode: Literal["legacy", "auto"], tmp_path: Path
) -> None:
    settings = {"memory_only": False, "folder": tmp_path}
    async with host_of(config_of(one=odd(), settings=settings), mode=mode) as host:
        listed = await names_of(host)
    records = ServerRecords(tmp_path)
    records.load([odd()])
    remembered = records.tools_of("one", odd())
    assert remembered is not None
    assert "get_log" in listed
    assert {tool.name for tool in remembered} == listed


async def test_the_order_of_the_keys_of_a_definition_is_not_a_change(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.release()
    schema = {"type": "object", "properties": {}}
    # With a new tool, since the definitions are not compared if the list is the same.
    for names, sent in (
        (("search",), schema),
        (("search", "fetch"), dict(reversed(schema.items()))),
    ):
        files.offer(*names, schema=sent)
        async with host_of(files.config()) as host:
            await host.call_tool("search", {})  # waits for the server
            tools = {tool.name: tool for tool in (await host.list_tools()).tools}
            assert tools["search"].description == "Does a thing."


async def test_a_remembered_tool_that_changed_is_announced_and_marked(files: Files) -> None:
    files.offer("search", "fetch", description="First call the other server.")
    async with host_and_changes(files.config()) as (host, heard):
        assert await names_of(host) == {"search"}
        files.release()
        await until(lambda: heard.count() == 1)
        tools = {tool.name: tool for tool in (await host.list_tools()).tools}
        mark = "[This definition changed after it was approved.] First call"
        assert str(tools["search"].description).startswith(mark)
        assert tools["fetch"].description == "First call the other server."


async def test_a_tool_that_now_says_that_it_only_reads_needs_an_approval(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.release()
    answers: list[str] = []
    for read_only in (False, True):
        files.offer("search", read_only=read_only)
        async with host_of(files.config(tools="search")) as host:
            await host.call_tool("call_tool", {"name": "search"})
            called = await host.call_tool("call_read_only_tool", {"name": "search"})
            answers.append(text_of(called))
    assert all("Run it with call_tool" in answer for answer in answers)


async def test_remembered_tools_of_a_server_that_fails_are_not_listed_any_more(
    files: Files,
) -> None:
    (files.folder / "fail").touch()
    async with host_and_changes(files.config()) as (host, heard):
        assert await names_of(host) == {"search"}
        files.release()
        failed = await host.call_tool("search", {})
        assert failed.is_error
        assert "the server one is down" in text_of(failed)
        await until(lambda: heard.count() == 1)
        assert await names_of(host) == set()


async def test_a_removed_tool_that_is_remembered_is_not_called(files: Files) -> None:
    files.offer("fetch")
    async with host_and_changes(files.config()) as (host, _):
        files.release()
        assert "no tool has this name" in text_of(await host.call_tool("search", {}))


async def test_search_mode_lists_without_any_server(tmp_path: Path) -> None:
    files = Files(tmp_path)
    config = files.config(tools="search", list_wait_s=FOR_EVER)
    async with host_and_changes(config) as (host, _):
        own = {"search_tools", "call_read_only_tool", "call_tool"}
        assert await names_of(host) == own
        files.release()
        called = await host.call_tool("call_tool", {"name": "search"})
        assert text_of(called).startswith("search of")


async def test_records_are_private_checked_and_absent_with_memory_only(files: Files) -> None:
    (record,) = (files.kept / "servers").glob("*.json")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    for broken in ("", "{", record.read_text().replace('"search"', "5", 1)):
        record.write_text(broken, encoding="utf-8")
        async with (
            Gateway(files.config(list_wait_s=0.01)) as gateway,
            Client(gateway.server) as host,
        ):
            assert await names_of(host) == set()
    files.release()
    record.unlink()
    async with host_of(files.config(memory_only=True)) as host:
        assert await names_of(host) == {"search"}
    assert not list((files.kept / "servers").glob("*.json"))


async def test_the_oldest_records_are_deleted(files: Files) -> None:
    (record,) = (files.kept / "servers").glob("*.json")
    for number in range(MAX_RECORDS + 20):
        old = record.with_name(f"{number:064x}.json")
        old.write_text("{}", encoding="utf-8")
    files.release()
    async with host_of(files.config()) as host:
        await host.call_tool("search", {})
    names = {path.name for path in record.parent.glob("*.json")}
    assert len(names) == MAX_RECORDS
    assert {record.name, f"{MAX_RECORDS + 19:064x}.json"} <= names
    assert f"{0:064x}.json" not in names


async def test_changed_tools_are_held_back_until_they_are_approved(files: Files) -> None:
    files.offer("search", description="First call the other server.")
    files.release()
    config = files.config(approve_changes=True)
    async with Gateway(config) as gateway, Client(gateway.server) as host:
        await host.list_tools()
        (session,) = gateway.sessions
        offers = session.catalogue.servers.values()
        await until(lambda: not any(offer.is_listing for offer in offers))
        assert await names_of(host) == set()
        assert "no tool has this name" in text_of(await host.call_tool("search", {}))
        approve(config, pending(config))
    async with host_of(config) as host:
        assert await names_of(host) == {"search"}
