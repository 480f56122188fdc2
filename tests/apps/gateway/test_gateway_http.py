"""Test the gateway over HTTP, where hosts with different tokens share nothing."""

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.subscriptions import ResourceUpdated

from llm_common.apps.gateway.serving import serve_http
from llm_common.errors import ConfigError
from tests.apps.gateway.hosts import (
    ERAS,
    TOKENS,
    bearer,
    config_of,
    host_at,
    id_in,
    odd,
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


PING = {"jsonrpc": "2.0", "id": 7, "method": "ping"}
LIST = {"jsonrpc": "2.0", "id": 8, "method": "tools/list"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "host", "version": "1"},
    },
}
# Each token has a share of two sessions.
MANY_TOKENS = tuple(f"token-of-the-host-{number}" for number in range(32))


class Raw:
    """A host that opens sessions without the SDK, and so without a process for each."""

    def __init__(self, http: httpx2.AsyncClient, address: str) -> None:
        self._http = http
        self._address = address

    async def post(self, message: Any, **headers: str) -> httpx2.Response:
        accept = {"accept": "application/json, text/event-stream"}
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._http.post(self._address, json=message, headers={**accept, **names})

    async def open(self) -> str:
        answer = await self.post(INITIALIZE)
        assert answer.status_code == 200
        return answer.headers["mcp-session-id"]

    async def status_in(self, session_id: str, message: Any = PING) -> int:
        return (await self.post(message, mcp_session_id=session_id)).status_code


def processes_with(word: str) -> int:
    """Return how many processes have a word in their command line."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            count += word.encode() in path.read_bytes()
        except OSError:  # it has just ended
            continue
    return count


async def test_another_token_can_neither_use_nor_end_a_session(tmp_path: Path) -> None:
    session_ids: set[str] = set()
    async with (
        served(tmp_path) as address,
        host_at(address, TOKENS[0], "legacy", session_ids) as host,
        httpx2.AsyncClient(headers=bearer(TOKENS[1])) as thief,
    ):
        pid = text_of(await host.call_tool("get_pid", {}))
        (session_id,) = session_ids
        for method in ("GET", "POST", "DELETE"):
            answers = []
            for tried_id in (session_id, "0" * 32):
                headers = {
                    "accept": "application/json, text/event-stream",
                    "mcp-session-id": tried_id,
                }
                answer = await thief.request(method, address, json=PING, headers=headers)
                answers.append((answer.status_code, answer.text))
            assert answers[0] == answers[1]
            assert answers[0][0] == 404
        assert text_of(await host.call_tool("get_pid", {})) == pid


async def test_a_token_in_another_form_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as address, httpx2.AsyncClient() as http:
        forms = ("{}", "bearer {}", "Bearer  {}", "Bearer Bearer {}", "Basic {}", "Bearer wrong")
        for form in forms:
            headers = {"Authorization": form.format(TOKENS[0])}
            answer = await http.post(address, json=PING, headers=headers)
            assert answer.status_code == 401, form
        assert (await http.post(address, json=PING)).status_code == 401


async def test_sessions_of_one_token_close_none_of_another(tmp_path: Path) -> None:
    async with (
        served(tmp_path, "--forget") as address,
        host_at(address, TOKENS[0], "legacy") as host,
        httpx2.AsyncClient(headers=bearer(TOKENS[1]), timeout=60) as http,
    ):
        preview = text_of(await host.call_tool("list_items", {"count": 6_000}))
        pid = text_of(await host.call_tool("get_pid", {}))
        other = Raw(http, address)
        for _ in range(80):
            await other.open()
        part = {"id": id_in(preview), "path": "/4321"}
        assert "item 4321" in text_of(await host.call_tool("context", part))
        assert text_of(await host.call_tool("get_pid", {})) == pid


async def test_the_longest_idle_session_of_the_token_is_closed(tmp_path: Path) -> None:
    async with (
        served(tmp_path, tokens=MANY_TOKENS) as address,
        httpx2.AsyncClient(headers=bearer(MANY_TOKENS[0]), timeout=60) as http,
    ):
        host = Raw(http, address)
        first, second = await host.open(), await host.open()
        assert await host.status_in(first, LIST) == 200
        third = await host.open()
        assert await host.status_in(second) == 404
        assert await host.status_in(first) == 200
        assert await host.status_in(third) == 200


async def test_no_session_opens_while_all_of_the_token_run(tmp_path: Path) -> None:
    marker = f"marker-of-{tmp_path.name}"
    async with (
        served(tmp_path, server=odd(marker=marker), tokens=MANY_TOKENS) as address,
        httpx2.AsyncClient(headers=bearer(MANY_TOKENS[0]), timeout=60) as http,
        AsyncExitStack() as stack,
    ):
        calls: list[asyncio.Task[Any]] = []
        for number in range(2):
            folder = tmp_path / str(number)
            folder.mkdir()
            host = await stack.enter_async_context(host_at(address, MANY_TOKENS[0], "legacy"))
            call = host.call_tool("wait_long", {"folder": str(folder)})
            calls.append(asyncio.create_task(call))
            await until((folder / "began").exists)
        raw = Raw(http, address)
        for headers in ({}, {"mcp_protocol_version": "2026-07-28"}):
            refusal = await raw.post(INITIALIZE, **headers)
            assert refusal.status_code == 503
            assert int(refusal.headers["retry-after"]) > 0
        async with host_at(address, MANY_TOKENS[1], "legacy") as other:
            assert text_of(await other.call_tool("add_one", {"number": 1})) == "2"
        await until(lambda: processes_with(marker) == 2)
        calls[0].cancel()
        while (await raw.post(INITIALIZE)).status_code == 503:  # noqa: ASYNC110 - a server's end
            await asyncio.sleep(0.05)
        calls[1].cancel()
        await asyncio.wait(calls)
