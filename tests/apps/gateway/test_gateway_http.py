import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
from mcp.client.subscriptions import ResourceUpdated

from llm_common.apps.gateway.serving import serve_http
from llm_common.errors import ConfigError
from tests.apps.gateway.hosts import (
    ERAS,
    TOKENS,
    config_of,
    host_at,
    id_in,
    served,
    text_of,
    until,
)

pytestmark = pytest.mark.mcp


def results_in(folder: Path) -> list[Path]:
    return list(folder.rglob("*.result.json"))


async def test_hosts_over_http_share_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as address:
        for era in ERAS:
            async with (
                host_at(address, TOKENS[0], era) as one,
                host_at(address, TOKENS[1], era) as two,
            ):
                preview = text_of(await one.call_tool("list_items", {"count": 6_000}))
                part = {"id": id_in(preview), "path": "/4321"}
                assert "item 4321" in text_of(await one.call_tool("context", part))
                refused = await two.call_tool("context", part)
                assert refused.is_error
                assert "no stored result of this session" in text_of(refused)
                pids = [text_of(await host.call_tool("get_pid", {})) for host in (one, two)]
                assert pids[0] != pids[1]


async def test_hosts_over_http_are_notified_by_their_own_servers_only(tmp_path: Path) -> None:
    async with (
        served(tmp_path) as address,
        host_at(address, TOKENS[0], "auto") as one,
        host_at(address, TOKENS[1], "auto") as two,
        one.listen(resource_subscriptions=["odd://a"]) as told,
        two.listen(resource_subscriptions=["odd://a", "odd://b"]) as events,
    ):
        await one.call_tool("change_resource", {"uri": "odd://a"})
        assert await anext(told) == ResourceUpdated("odd://a")
        await two.call_tool("change_resource", {"uri": "odd://b"})
        assert await anext(events) == ResourceUpdated("odd://b")


async def test_a_leaving_host_ends_its_servers_and_keeps_its_results(tmp_path: Path) -> None:
    async with served(tmp_path) as address, host_at(address, TOKENS[1], "legacy") as other:
        async with host_at(address, TOKENS[0], "legacy") as host:
            pid = text_of(await host.call_tool("get_pid", {}))
            await host.call_tool("list_items", {"count": 6_000})
            assert results_in(tmp_path)
        await until(lambda: not Path(f"/proc/{pid}").exists())
        assert results_in(tmp_path)
        assert text_of(await other.call_tool("add_one", {"number": 1})) == "2"


async def test_results_over_http_are_forgotten_at_sigterm_if_asked(tmp_path: Path) -> None:
    # The host stays connected, because the gateway forgets the results of one that leaves anyway.
    async with AsyncExitStack() as hosts:
        async with served(tmp_path, "--forget") as address:  # sends SIGTERM at its end
            host = await hosts.enter_async_context(host_at(address, TOKENS[0], "legacy"))
            await host.call_tool("list_items", {"count": 6_000})
            assert results_in(tmp_path)
        assert results_in(tmp_path) == []


async def test_addresses_other_than_loopback_are_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as address, httpx2.AsyncClient() as http:
        for header, status in (("Host", 421), ("Origin", 403)):
            headers = {"Authorization": f"Bearer {TOKENS[0]}", header: "http://evil.example"}
            assert (await http.post(address, json={}, headers=headers)).status_code == status


async def test_work_in_threads_delays_the_event_loop_of_a_gateway_by_a_millisecond() -> None:
    before = sys.getswitchinterval()
    serving = asyncio.create_task(serve_http(config_of(), tokens=TOKENS))
    try:
        await until(lambda: sys.getswitchinterval() < before)
        assert sys.getswitchinterval() == pytest.approx(0.001)
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        sys.setswitchinterval(before)


@pytest.mark.parametrize("tokens", [(), ("short",)])
async def test_missing_and_short_tokens_are_refused(tokens: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        await serve_http(config_of(), tokens=tokens)
