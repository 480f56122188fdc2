"""`llm-common inspect`: the real command, asked over its port."""

import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llm_common.apps.cli.app import app
from llm_common.errors import install_command
from tests.folders.tree import PROGRAM

COMMAND = [sys.executable, "-c", PROGRAM, "inspect"]


def test_it_serves_on_loopback_until_it_is_interrupted(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--store", tmp_path], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            found = re.fullmatch(
                r"Open http://127\.0\.0\.1:(\d+)(/\?token=[\w-]{32})\n", server.stderr.readline()
            )
            assert found
            connection = HTTPConnection("127.0.0.1", int(found[1]), timeout=10)
            connection.request("GET", found[2])
            admitted = connection.getresponse()
            admitted.read()
            cookie = (admitted.getheader("set-cookie") or "").partition(";")[0]
            connection.request("GET", "/queries", headers={"cookie": cookie})
            shown = connection.getresponse()
            assert (admitted.status, shown.status) == (303, 200)
            assert shown.getheader("server") is None
            assert str(tmp_path) in shown.read().decode()
            connection.close()
        finally:
            server.send_signal(signal.SIGINT)
        assert server.stdout is not None
        assert (server.stdout.read(), server.stderr.read()) == (
            "",
            "Press Ctrl-C to stop.\nInterrupted.\n",
        )
    assert server.returncode == 130
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--store", "absent"], "absent"),
        (["--traces", "absent"], "absent"),
        (["--port", "70000"], "65535"),
    ],
)
def test_wrong_options_end_with_2(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["inspect", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path) -> None:
    environment = {"LLM_COMMON_POINTER_STORE_DIR": str(tmp_path / "absent"), "COLUMNS": "300"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        result = CliRunner().invoke(
            app, ["inspect", "--port", str(taken.getsockname()[1])], env=environment
        )
    assert f"There is no store in {tmp_path / 'absent'} yet" in result.stderr
    assert not [*tmp_path.iterdir()]


def test_a_port_in_use_ends_with_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(
            app, ["inspect", "--store", str(tmp_path), "--port", port], env={"COLUMNS": "300"}
        )
    assert result.exit_code == 2
    assert f"Port {port} cannot be used" in result.stderr


def test_without_its_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "llm_common.apps.inspector.application", raising=False)
    result = CliRunner().invoke(app, ["inspect", "--store", str(tmp_path)], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert install_command("inspect") in result.stderr
