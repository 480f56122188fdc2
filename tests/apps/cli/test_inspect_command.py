"""`llm-common inspect` as a process, called over its port."""

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
from tests.folders.tree import PROGRAM

COMMAND = [sys.executable, "-c", PROGRAM, "inspect"]


def test_it_serves_on_loopback_until_it_is_interrupted(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "--store", tmp_path], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            match = re.fullmatch(
                r"Open http://127\.0\.0\.1:(\d+)(/\?token=[\w-]{32})\n", server.stderr.readline()
            )
            assert match
            connection = HTTPConnection("127.0.0.1", int(match[1]), timeout=60)
            connection.request("GET", match[2])
            admitted = connection.getresponse()
            admitted.read()
            cookie = (admitted.getheader("set-cookie") or "").partition(";")[0]
            connection.request("GET", "/queries", headers={"cookie": cookie})
            page = connection.getresponse()
            assert (admitted.status, page.status) == (303, 200)
            assert page.getheader("server") is None
            assert str(tmp_path) in page.read().decode()
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
    ("arguments", "message"),
    [
        (["--store", "absent"], "absent"),
        (["--traces", "absent"], "absent"),
        (["--port", "70000"], "65535"),
    ],
)
def test_wrong_options_end_with_2(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["inspect", *arguments], env={"COLUMNS": "300"})
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_missing_store_is_reported_and_not_created(tmp_path: Path) -> None:
    environment = {"LLM_COMMON_POINTER_STORE_DIR": str(tmp_path / "absent"), "COLUMNS": "300"}
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        result = CliRunner().invoke(
            app, ["inspect", "--port", str(busy.getsockname()[1])], env=environment
        )
    assert f"There is no store in {tmp_path / 'absent'} yet" in result.stderr
    assert not [*tmp_path.iterdir()]


def test_a_port_in_use_ends_with_2(tmp_path: Path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        result = CliRunner().invoke(
            app, ["inspect", "--store", str(tmp_path), "--port", port], env={"COLUMNS": "300"}
        )
    assert result.exit_code == 2
    assert f"Port {port} cannot be used" in result.stderr
