"""Test that a server that fails says why, without secrets and without noise."""

import sys

import pytest
from mcp import Client

from llm_common.apps.gateway import Gateway, ServerConfig
from tests.apps.gateway.hosts import config_of, text_of

pytestmark = pytest.mark.mcp


def program(source: str) -> ServerConfig:
    return ServerConfig(command=sys.executable, args=("-S", "-c", source))


async def problem_of(server: ServerConfig) -> str:
    async with Gateway(config_of(one=server)) as gateway, Client(gateway.server) as host:
        await host.list_tools()
        (session,) = gateway.sessions
        problem = session.catalogue.problems()["one"]
        assert problem in text_of(await host.call_tool("any", {}))
        answer = await session.catalogue.search("any")
        assert answer.endswith(f"\nNot searched: one, {problem}.")
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
