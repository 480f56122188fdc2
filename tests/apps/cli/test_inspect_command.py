"""`llm-common inspect` as a process, called over its port."""

import re
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.apps.cli.running import run
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
        (["--store", "s3://bucket/prefix"], "context list --store s3://bucket/prefix"),
    ],
)
def test_wrong_options_end_with_2(arguments: list[str], message: str) -> None:
    assert message in run("inspect", *arguments, code=2).stderr


def test_a_missing_store_and_a_port_in_use_are_reported_and_nothing_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_port: str
) -> None:
    monkeypatch.setenv("LLM_COMMON_POINTER_STORE_DIR", str(tmp_path / "absent"))
    told = run("inspect", "--port", busy_port, code=2).stderr
    assert f"There is no store in {tmp_path / 'absent'} yet" in told
    assert f"Port {busy_port} cannot be used" in told
    assert not [*tmp_path.iterdir()]
