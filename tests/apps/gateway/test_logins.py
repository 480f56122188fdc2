"""OAuth for servers over HTTP, with a real authorization server on loopback."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyUrl

from llm_common.apps.gateway import ServerConfig
from llm_common.apps.gateway.servers.logins import Login, LoginError, LoginStore
from llm_common.apps.gateway.servers.oauth_login import log_in
from tests.apps.gateway.hosts import config_file, config_of, free_port, host_of, text_of, until
from tests.apps.gateway.oauth_server import OAuthServer, oauth_server

pytestmark = pytest.mark.mcp


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
async def far() -> AsyncIterator[OAuthServer]:
    async with oauth_server() as server:
        yield server


async def open_in_browser(url: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def logged_in(
    far: OAuthServer,
    *,
    scope: str = "",
    visit: Callable[[str], Coroutine[Any, Any, None]] = open_in_browser,
    **fields: object,
) -> Login:
    opening: list[asyncio.Task[None]] = []

    def show(url: str) -> None:
        opening.append(asyncio.create_task(visit(url)))

    server = ServerConfig.model_validate({"url": far.url, **fields})
    login = await log_in(server, show=show, scope=scope, timeout_s=30)
    await asyncio.gather(*opening)
    LoginStore().save(login)
    return login


def registered(far: OAuthServer, **more: str) -> dict[str, object]:
    """Register a client by hand, and return what an entry says of it."""
    port = free_port()
    far.clients["by-hand"] = [f"http://localhost:{port}/callback"]
    return {"clientId": "by-hand", "callbackPort": port, **more}


async def sum_from(far: OAuthServer, **headers: str) -> str:
    """Return what a tool of the server returns through a gateway."""
    config = config_of(far=ServerConfig(url=far.url, headers=headers))
    async with host_of(config) as host:
        tools = await host.list_tools()
        if "add" not in {tool.name for tool in tools.tools}:
            return "not listed"
        return text_of(await host.call_tool("add", {"a": 2, "b": 3}))


async def test_a_server_with_oauth_works_after_a_login(far: OAuthServer, home: Path) -> None:
    assert await sum_from(far) == "not listed"
    login = await logged_in(far)
    assert (login.issuer.rstrip("/"), login.resource) == (far.base, far.url)
    assert set(far.resources) == {far.url}
    assert "5" in await sum_from(far)
    [file] = (home / "llm-common" / "logins").glob("*/login.json")
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert login.tokens.access_token not in repr(login)


async def test_tokens_that_have_expired_or_are_refused_are_renewed(far: OAuthServer) -> None:
    far.expires_in = 1  # counts as expired at once
    await logged_in(far)
    far.expires_in = 3600
    assert "5" in await sum_from(far)
    assert far.renewals == 1
    far.revoke_access()
    assert "5" in await sum_from(far)
    assert far.renewals == 2


async def test_a_login_that_is_not_renewed_has_to_be_repeated(
    far: OAuthServer, caplog: pytest.LogCaptureFixture
) -> None:
    login = await logged_in(far)
    far.revoke_access()
    far.forgets = True
    caplog.set_level(logging.DEBUG)
    assert await sum_from(far) == "not listed"
    assert "401, wants a login; run llm-common gateway login far" in caplog.text
    assert login.tokens.access_token not in caplog.text
    assert str(login.tokens.refresh_token) not in caplog.text


async def test_another_address_gets_no_token(far: OAuthServer) -> None:
    await logged_in(far)
    assert LoginStore().load(far.url.replace("127.0.0.1", "localhost")) is None
    assert LoginStore().load(f"{far.base}/other") is None
    async with oauth_server() as other:
        other.access = far.access
        assert await sum_from(other) == "not listed"


async def test_the_token_of_an_entry_comes_before_a_login(far: OAuthServer) -> None:
    await logged_in(far)
    assert await sum_from(far, Authorization="Bearer wrong") == "not listed"


RENEW = """
import sys
from llm_common.apps.gateway.servers.logins import LoginStore
store = LoginStore()
login = store.load(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(store.renewed(login).tokens.access_token)
"""


async def test_two_processes_renew_a_token_once(far: OAuthServer) -> None:
    await logged_in(far)
    processes = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", RENEW, far.url],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        processes.append(process)
    answers = await asyncio.gather(*[process.communicate(b"\n") for process in processes])
    tokens = {output.decode().strip() for output, _ in answers}
    assert len(tokens) == 1
    assert tokens <= far.access.keys()
    assert far.renewals == 1


async def test_a_logout_waits_for_a_renewal_and_deletes_its_token_too(
    far: OAuthServer, home: Path
) -> None:
    login = await logged_in(far)
    requests = len(far.resources)
    renewal = asyncio.create_task(asyncio.to_thread(LoginStore().renewed, login))
    await until(lambda: len(far.resources) > requests)
    assert await asyncio.to_thread(LoginStore().remove, far.url)
    assert await renewal is not None
    assert LoginStore().load(far.url) is None
    assert not list((home / "llm-common" / "logins").glob("*/*.json"))


async def test_a_running_gateway_sends_no_token_after_a_logout(far: OAuthServer) -> None:
    await logged_in(far)
    async with host_of(config_of(far=ServerConfig(url=far.url))) as host:
        assert "5" in text_of(await host.call_tool("add", {"a": 2, "b": 3}))
        assert LoginStore().remove(far.url)
        refused = await host.call_tool("add", {"a": 2, "b": 3})  # the token is still good
        assert refused.is_error
        assert "401, wants a login; run llm-common gateway login far" in text_of(refused)
        await logged_in(far)
        assert "5" in text_of(await host.call_tool("add", {"a": 2, "b": 3}))


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n"])
async def test_a_slow_authorization_server_holds_no_lock_for_long(start: bytes) -> None:
    answers: list[asyncio.Task[Any] | None] = []

    async def answer_slowly(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(asyncio.current_task())
        with suppress(ConnectionError):
            writer.write(start)
            # Slow only as a whole: each read gets its byte in time.
            for _byte in range(40):
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.1)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(answer_slowly, "127.0.0.1", 0) as listening:
        address = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        client = OAuthClientInformationFull(client_id="id", redirect_uris=[AnyUrl(address)])
        tokens = OAuthToken(access_token="old", refresh_token="once")
        login = Login(
            resource=f"{address}/mcp",
            issuer=address,
            token_endpoint=f"{address}/token",
            client=client,
            tokens=tokens,
        )
        store = LoginStore(timeout_s=0.5)
        store.save(login)
        renewals = [asyncio.to_thread(store.renewed, login) for _ in range(2)]
        errors = await asyncio.gather(*renewals, return_exceptions=True)
        # The second one waited for the first, and not in vain.
        assert [type(error) for error in errors] == [LoginError] * 2
        assert all("cannot be reached (TimeoutError)" in str(error) for error in errors)
        await asyncio.gather(*filter(None, answers))
    assert store.load(login.resource) == login


async def test_an_answer_above_a_megabyte_renews_nothing(far: OAuthServer) -> None:
    login = await logged_in(far)
    far.padding = 1_000_001
    with pytest.raises(LoginError, match="cannot be reached"):
        await asyncio.to_thread(LoginStore().renewed, login)
    assert LoginStore().load(far.url) == login


async def test_a_refused_login_says_why_and_keeps_nothing(far: OAuthServer, home: Path) -> None:
    far.refuse = True
    with pytest.raises(LoginError, match="refused by the authorization server: the user said no"):
        await logged_in(far)
    assert not (home / "llm-common").exists()


async def test_a_client_that_is_registered_by_hand_logs_in(far: OAuthServer) -> None:
    far.takes_no_clients = True
    with pytest.raises(LoginError, match="Registration failed"):
        await logged_in(far)
    login = await logged_in(far, oauth=registered(far))
    assert login.client.client_id == "by-hand"
    assert "5" in await sum_from(far)


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_a_client_with_a_secret_uses_the_method_of_the_token_endpoint(
    far: OAuthServer, method: str
) -> None:
    far.methods = [method]
    await logged_in(far, oauth=registered(far, clientSecret="hush"))
    assert "5" in await sum_from(far)
    far.revoke_access()
    assert "5" in await sum_from(far)
    assert far.renewals == 1


async def test_a_server_that_guards_only_its_tools_works_after_a_login(far: OAuthServer) -> None:
    far.open_methods = {"", "initialize", "notifications/initialized"}
    async with host_of(config_of(far=ServerConfig(url=far.url))) as host:
        answer = text_of(await host.call_tool("add", {"a": 2, "b": 3}))
        assert "401, wants a login; run llm-common gateway login far" in answer
        await logged_in(far)
        assert "5" in text_of(await host.call_tool("add", {"a": 2, "b": 3}))


async def test_a_call_that_needs_more_rights_works_after_another_login(far: OAuthServer) -> None:
    far.rights = {"tools/call": "write"}
    await logged_in(far, scope="read")
    async with host_of(config_of(far=ServerConfig(url=far.url))) as host:
        answer = text_of(await host.call_tool("add", {"a": 2, "b": 3}))
        assert "403, wants a login with more rights; run llm-common gateway login far" in answer
        stored = LoginStore().load(far.url)
        assert stored is not None
        await logged_in(far, scope=stored.wanted_scope)
        assert {*far.access.values()} == {"read", "read write"}
        assert "5" in text_of(await host.call_tool("add", {"a": 2, "b": 3}))


async def test_a_login_over_plain_http_elsewhere_is_refused() -> None:
    with pytest.raises(LoginError, match="is not HTTPS"):
        await log_in(ServerConfig(url="http://host.invalid/mcp"), show=print)


@pytest.mark.parametrize("endpoint", ["authorize", "token"])
async def test_an_endpoint_that_others_could_read_ends_a_login_before_it_is_shown(
    far: OAuthServer, endpoint: str
) -> None:
    far.elsewhere.add(endpoint)
    shown: list[str] = []
    with pytest.raises(LoginError, match=r"http://login\.example is not HTTPS"):
        await log_in(ServerConfig(url=far.url), show=shown.append, timeout_s=30)
    assert not shown


@pytest.mark.parametrize("foreign", ["code=x", "code=x&state=forged", "error=access_denied"])
async def test_a_login_ignores_callbacks_with_another_state(far: OAuthServer, foreign: str) -> None:
    async def visit_both(url: str) -> None:
        [callback] = parse_qs(urlsplit(url).query)["redirect_uri"]
        await open_in_browser(f"{callback}?{foreign}")
        await open_in_browser(url)

    login = await logged_in(far, visit=visit_both)
    assert login.tokens.access_token in far.access


async def test_the_commands_log_in_and_out(far: OAuthServer, home: Path) -> None:
    path = config_file(home, far={"url": far.url})
    program = "from llm_common.apps.cli import main; main()"
    script = (
        "import sys, urllib.request as r; "
        "r.build_opener(r.ProxyHandler({})).open(sys.argv[1]).read()"
    )
    browser = home / "browser"
    browser.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{script}" "$1"\n')
    browser.chmod(0o700)

    async def run(*arguments: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-c", program, "gateway", *arguments, "--config", str(path)],
            env={"XDG_CONFIG_HOME": str(home), "PATH": "/usr/bin:/bin", "BROWSER": f"{browser} %s"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    code, told = await run("login", "far")
    assert code == 0, told
    assert f"Log in at {far.base}/authorize?" in told
    assert f"Logged in to far at {far.base}" in told
    login = LoginStore().load(far.url)
    assert login is not None
    assert login.tokens.access_token not in told
    code, told = await run("doctor")
    assert (code, "far: 1 tools" in told, login.tokens.access_token in told) == (0, True, False)
    assert await run("logout", "far") == (0, "Logged out of far.\n")
    assert LoginStore().load(far.url) is None
