"""Test that a server that fails says why, without secrets and without noise."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from mcp import Client

from llm_common.apps.gateway import Gateway, ServerConfig
from tests.apps.gateway.hosts import config_of, host_of, hostile, text_of, until

pytestmark = pytest.mark.mcp
METADATA = "http://127.0.0.1/.well-known/oauth-protected-resource"


def program(source: str) -> ServerConfig:
    return ServerConfig(command=sys.executable, args=("-S", "-c", source))


async def problem_of(server: ServerConfig) -> str:
    async with Gateway(config_of(one=server)) as gateway, Client(gateway.server) as host:
        await host.list_tools()
        (session,) = gateway.sessions
        problem = session.catalogue.problems()["one"]
        assert problem in text_of(await host.call_tool("any", {}))
        return problem


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import os; os.environ['API_TOKEN']", "exit 1: KeyError: 'API_TOKEN'"),
        ("import sys; sys.exit(4)", "exit 4"),
        ("import sys; sys.exit('first words\\nlast words')", "exit 1: last words"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        (
            "print('Error: no port\\n    at main\\n\\nNode.js v22', file=__import__('sys').stderr)",
            "exit 0: Error: no port",
        ),
    ],
)
async def test_a_server_that_ends_at_its_start_says_why(source: str, problem: str) -> None:
    assert await problem_of(program(source)) == f"it does not start ({problem})"


async def test_last_words_are_redacted_and_one_line() -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    problem = await problem_of(program(f"raise ValueError('token {token} ' + 'x' * 5_000)"))
    assert "exit 1: ValueError: token" in problem
    assert token not in problem
    assert len(problem) < 300


class Refusing(BaseHTTPRequestHandler):
    """Wants a login."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(401)
        self.send_header("WWW-Authenticate", f'Bearer resource_metadata="{METADATA}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def refusing() -> Iterator[str]:
    """The address of a server that wants a login."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/mcp"
        server.shutdown()


async def test_a_server_that_wants_a_login_says_so(refusing: str) -> None:
    problem = await problem_of(ServerConfig(url=refusing))
    login = "run llm-common gateway login one"
    assert problem == f"it does not start (401, wants a login; {login})"


async def test_lines_of_stderr_begin_with_the_name_of_their_server(
    capfd: pytest.CaptureFixture[str],
) -> None:
    await problem_of(program("import sys; sys.exit('first words\\nlast words')"))
    assert "[one] first words\n[one] last words\n" in capfd.readouterr().err


async def test_the_noise_of_a_refused_protocol_is_left_out_and_nothing_else(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def block(method: str) -> str:
        return (
            "WARNING:root:Failed to validate request: 2 validation errors for ClientRequest\n"
            "PingRequest.method\n"
            f"  Input should be 'ping' [input_value='{method}', input_type=str]\n"
            "    For further information visit https://errors.pydantic.dev/2.14/v/literal_error\n"
            "InitializeRequest.params.protocolVersion\n"
            "  Field required [type=missing]\n"
        )

    source = f"import sys\nsys.stderr.write({block('server/discover')!r})\nsys.stderr.write("
    source += f"'started\\n' + {block('tools/odd')!r})\nsys.exit('ended')"
    await problem_of(program(source))
    shown = capfd.readouterr().err
    assert "server/discover" not in shown
    assert "PingRequest" in shown
    assert shown.index("[one] started") < shown.index("tools/odd") < shown.index("[one] ended")


async def test_a_server_that_ends_during_a_call_says_how() -> None:
    async with host_of(config_of(one=hostile("an end in a call"))) as host:
        failed = await host.call_tool("ok", {})
    assert "it ended during the call (exit 3), which may have taken effect" in text_of(failed)


async def test_an_end_between_calls_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with host_of(config_of(one=hostile())) as host:
        pid = int(text_of(await host.call_tool("ok", {})).split()[2])
        os.kill(pid, signal.SIGKILL)
        await until(lambda: "server one: it ended (SIGKILL)" in caplog.text)
        assert not (await host.call_tool("ok", {})).is_error
    assert caplog.text.count("server one") == 1  # its end with the gateway is no news
