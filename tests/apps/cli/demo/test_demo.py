"""`llm-common demo` with endpoints that answer, refuse, hang or do not exist."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.apps.cli.running import run, run_json
from tests.folders.tree import PROGRAM

RUN = [sys.executable, "-c", PROGRAM]


def test_a_wrong_setting_is_reported_and_ends_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_COMMON_TOOL_SELECTION_MAX_CALLS", "many")
    output = run("demo", code=2).output
    assert "LLM_COMMON_TOOL_SELECTION_MAX_CALLS" in output.replace("\n", "")


class Endpoint(BaseHTTPRequestHandler):
    """A chat completions endpoint that always calls one tool and gives the same answer."""

    seen: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(request)
        message = {"role": "assistant", "content": self.answer(request)}
        body = json.dumps(
            {
                "id": "1",
                "model": request["model"],
                "choices": [{"message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            }
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def answer(self, request: dict[str, Any]) -> str:
        text = "\n".join(message["content"] for message in request["messages"])
        if "pointer_ids" in text:
            return json.dumps({"pointer_ids": re.findall(r"\b[0-9a-f]{12}\b", text)[:1]})
        if '"calls"' in text:
            return json.dumps({"calls": [{"tool": "get_commits", "args": {}}]})
        return "It was 118.9 mm."

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_configured_endpoint_chooses_and_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Endpoint.seen.clear()
    with served(Endpoint) as url:
        monkeypatch.setenv("LLM_COMMON_BASE_URL", url)
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        document = run_json("demo", "--output", tmp_path)
    assert document["model"] == f"small at {url}"
    assert {request["model"] for request in Endpoint.seen} == {"small"}
    last = document["questions"][-1]
    assert {output["tool"] for output in last["outputs"]} == {"get_commits"}
    assert last["answer"] == "It was 118.9 mm."


class Refusing(Endpoint):
    """An endpoint that refuses every request, as for an unknown model."""

    def do_POST(self) -> None:
        self.send_error(400)


def test_a_refused_choice_is_reported_and_ends_with_1_s0_36(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with served(Refusing) as url:
        monkeypatch.setenv("LLM_COMMON_BASE_URL", url)
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        document = run_json("demo", "--output", tmp_path, code=1)
    for question in document["questions"]:
        assert "400" in question["problem"]
        assert (question["outputs"], question["answer"]) == ([], None)


def test_a_failing_endpoint_ends_with_1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("LLM_COMMON_BASE_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        output = run("demo", "--output", tmp_path / "pages", code=1).stdout
    assert "Question 1: " in output


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        process = subprocess.Popen(
            [*RUN, "demo", "--output", str(tmp_path / "pages")],
            env=os.environ
            | {"LLM_COMMON_BASE_URL": f"http://127.0.0.1:{port}/v1", "LLM_COMMON_MODEL": "small"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(100)
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=100)
    assert process.returncode == 130
    assert (stdout, stderr) == ("", "Interrupted.\n")
