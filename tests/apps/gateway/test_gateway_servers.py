"""Test that a server that fails affects no other, and says why without secrets and without noise."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client

from llm_common.apps.gateway import Gateway, ServerConfig, mcp_tools
from llm_common.apps.gateway.gateway import store_of
from llm_common.apps.gateway.host_session import HostSession
from llm_common.errors import ServerDownError
from tests.apps.gateway.hosts import (
    ERAS,
    config_of,
    host_and_changes,
    host_of,
    names_of,
    odd,
    text_of,
    until,
)

pytestmark = pytest.mark.mcp


async def test_a_server_that_dies_during_a_call_fails_only_that_call() -> None:
    async with host_of(config_of(one=odd(), two=odd())) as host:
        slow = asyncio.create_task(host.call_tool("two_pause", {"seconds": 1, "number": 5}))
        await asyncio.sleep(0.1)
        ended = await host.call_tool("one_end_now", {})
        assert ended.is_error
        assert "the server one is down: it ended during the call (SIGKILL)" in text_of(ended)
        assert ended.meta is not None
        assert (ended.meta["llm-common/error"], ended.meta["llm-common/server"]) == (
            "ServerDownError",
            "one",
        )
        assert 0 < ended.meta["llm-common/retryAfterS"] <= 1
        assert text_of(await slow) == "5"
        while (again := await host.call_tool("one_get_pid", {})).is_error:
            assert "the next start is in" in text_of(again)
            await asyncio.sleep(0.1)
        assert int(text_of(again)) > 0


async def test_a_server_that_dies_between_calls_is_logged_and_restarted_immediately(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with host_of(config_of(one=odd())) as host:
        pid = int(text_of(await host.call_tool("get_pid", {})))
        os.kill(pid, signal.SIGKILL)
        await until(lambda: "server one: it ended (SIGKILL)" in caplog.text)
        answers = await asyncio.gather(*(host.call_tool("get_pid", {}) for _ in range(9)))
    pids = {text_of(answer) for answer in answers}
    assert len(pids) == 1
    assert pids != {str(pid)}
    assert caplog.text.count("server one") == 1  # its end with the gateway is no news


async def test_a_servers_death_fails_all_its_calls_and_counts_once() -> None:
    async with host_of(config_of(one=odd())) as host:
        await host.list_tools()
        waiting = [
            host.call_tool("pause", {"seconds": 60, "number": number}) for number in range(20)
        ]
        *failed, _ = await asyncio.gather(*waiting, host.call_tool("end_now", {}))
        assert all(result.is_error for result in failed)
        waits = [(result.meta or {})["llm-common/retryAfterS"] for result in failed]
        assert max(waits) <= 1  # one end, one failure


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (ServerConfig(command="/does/not/exist"), "it does not start"),
        (ServerConfig(url="http://127.0.0.1:9/mcp"), "it does not start (connection refused)"),
    ],
)
async def test_a_server_that_does_not_start_affects_no_other(
    broken: ServerConfig, said: str
) -> None:
    async with (
        Gateway(config_of(broken=broken, good=odd())) as gateway,
        Client(gateway.server) as host,
    ):
        assert "add_one" in [tool.name for tool in (await host.list_tools()).tools]
        assert text_of(await host.call_tool("add_one", {"number": 1})) == "2"
        (session,) = gateway.sessions
        assert said in session.catalogue.problems()["broken"]
        assert "broken has no tools" in text_of(await host.call_tool("its_tool", {}))


async def test_a_hanging_server_is_left_out_and_ended() -> None:
    settings = {"list_wait_s": 8.0, "start_timeout_s": 9.0}
    config = config_of(stuck=odd(hang=True), good=odd(), settings=settings)
    async with Gateway(config) as gateway, Client(gateway.server) as host:
        assert "add_one" in [tool.name for tool in (await host.list_tools()).tools]
        (session,) = gateway.sessions
        assert session.catalogue.problems() == {"stuck": "it is still starting"}
        await until(
            lambda: "did not start within 9 s" in session.catalogue.problems().get("stuck", "")
        )
        assert text_of(await host.call_tool("add_one", {"number": 1})) == "2"


async def test_a_late_server_is_announced() -> None:
    config = config_of(late=odd(), settings={"list_wait_s": 0.01})
    async with host_and_changes(config) as (host, heard):
        await host.list_tools()
        await host.list_prompts()
        await until(lambda: bool(heard.count(types.PromptListChangedNotification)))
        assert heard.count()
        assert heard.count(types.ResourceListChangedNotification)
        assert "add_one" in await names_of(host)


@pytest.mark.parametrize("era", ERAS)
async def test_the_first_request_for_a_prompt_waits_for_the_start_of_its_server(era: str) -> None:
    config = config_of(late=odd(), settings={"list_wait_s": 0.01, "lazy": True})
    async with host_of(config, mode=era) as host:
        assert (await host.get_prompt("summarise", {"subject": "bees"})).messages


async def test_lists_that_lack_no_server_are_not_announced() -> None:
    async with host_and_changes(config_of(one=odd(), two=odd())) as (host, heard):
        await host.list_tools()  # both servers are still starting
        await host.list_prompts()
        await host.list_resources()
        await host.call_tool("one_more_tools", {})
        await until(lambda: bool(heard.count()))
        assert heard.count() == len(heard.messages)


async def test_a_dead_server_raises_a_typed_error_in_python() -> None:
    async with mcp_tools(config_of(one=odd())) as registry:
        with pytest.raises(ServerDownError) as caught:
            await registry.execute("end_now")
    assert caught.value.server == "one"


async def test_a_server_gets_only_its_own_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEWAY_SECRET", "of the gateway")
    one = odd().model_copy(update={"env": {"ONE": "1"}})
    two = odd().model_copy(update={"env": {"TWO": "2"}})
    async with host_of(config_of(one=one, two=two)) as host:
        first, second = [
            (await host.call_tool(f"{name}_get_environment", {})).structured_content
            for name in ("one", "two")
        ]
    assert (first["ONE"], second["TWO"]) == ("1", "2")
    assert not {"GATEWAY_SECRET", "TWO"} & first.keys()
    assert not {"GATEWAY_SECRET", "ONE"} & second.keys()


async def test_a_starting_server_is_ended_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    config = config_of(stuck=odd(hang=True, pid_file=str(pid_file)), settings={"list_wait_s": 0.01})
    async with host_of(config) as host:
        await host.list_tools()
        await until(lambda: pid_file.exists() and pid_file.read_text() != "")
        pid = int(pid_file.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_nothing_is_started_after_a_session_has_ended() -> None:
    config = config_of(one=odd())
    session = HostSession(config, store=store_of(config))
    await session.catalogue.listing()
    await session.close()
    answer = await session.call(types.CallToolRequestParams(name="get_pid"))
    assert isinstance(answer, types.CallToolResult)
    assert text_of(answer) == "the server one is down: the gateway is closing"


async def test_a_restarted_server_lists_its_tools_again() -> None:
    async with host_and_changes(config_of(one=odd())) as (host, heard):
        await host.call_tool("more_tools", {})
        assert "new_tool" in await names_of(host)
        await until(lambda: heard.count() == 1)
        await host.call_tool("end_now", {})
        while (await host.call_tool("get_pid", {})).is_error:  # noqa: ASYNC110 - another process starts
            await asyncio.sleep(0.1)
        await until(lambda: heard.count() == 2)
        assert "new_tool" not in await names_of(host)


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
