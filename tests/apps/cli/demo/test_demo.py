"""`llm-common demo`: real runs, in process and as a process."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from llm_common.apps.cli.app import app
from llm_common.apps.cli.demo.exploration import CallRecord, explore
from llm_common.apps.cli.demo.exploration_view import show
from tests.apps.cli.running import check
from tests.folders.tree import PROGRAM

STANDARD_JSON = Path(json.__file__).parent
QUESTION = "how are strings escaped"
RUN = [sys.executable, "-c", PROGRAM]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the demo makes its store."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["demo", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code < 2 else result.output


def run_json(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json", code=code))
    check("demo", document)
    return document


@pytest.fixture(scope="module")
def escaping() -> dict[str, Any]:
    return run_json(STANDARD_JSON, "--query", QUESTION)


def test_the_passages_that_answer_are_in_the_packed_context(escaping: dict[str, Any]) -> None:
    packed = escaping["packed"]
    assert "def py_encode_basestring(" in packed
    assert "ESCAPE_DCT" in packed
    assert len(packed) <= 6_000


def test_every_task_made_calls_whose_outputs_are_kept(escaping: dict[str, Any]) -> None:
    assert [task["id"] for task in escaping["plan"]["tasks"]] == [1, 2, 3]
    assert {call["task"] for call in escaping["calls"]} == {1, 2, 3}
    assert [call["error"] for call in escaping["calls"]] == [None] * len(escaping["calls"])
    assert {call["tool"] for call in escaping["calls"]} == {
        "list_files",
        "file_stats",
        "grep",
        "read_file",
    }
    assert [call["pointer_id"] for call in escaping["calls"]] == [
        row["pointer_id"] for row in escaping["pointers"]
    ]


def test_the_selection_says_who_chose_and_why(escaping: dict[str, Any]) -> None:
    assert "full-text ranking" in escaping["tool_selector"]
    assert "full-text ranking" in escaping["context_selector"]
    assert escaping["selection"] == "ok"
    kept = [row for row in escaping["pointers"] if row["kept"]]
    assert kept
    assert all(row["why"] for row in escaping["pointers"])
    assert all(row["pointer_id"] in escaping["packed"] for row in kept)
    assert escaping["problems"] == []


def test_people_see_the_same_facts(escaping: dict[str, Any]) -> None:
    shown = run(STANDARD_JSON, "--query", QUESTION)
    for row in escaping["pointers"]:
        assert row["pointer_id"][:8] in shown
    for text in (
        "Survey the folder",
        "read_file(name='encoder.py')",
        "def py_encode_basestring(",
        "Time: ",
    ):
        assert text in shown


@pytest.mark.parametrize("budget", [0, 700, 20_000])
def test_the_budget_is_a_limit(budget: int) -> None:
    document = run_json(STANDARD_JSON, "--query", QUESTION, "--budget", str(budget))
    assert len(document["packed"]) <= budget
    assert document["budget_chars"] == budget


def test_without_a_question_the_folder_is_asked_its_subject() -> None:
    document = run_json(STANDARD_JSON)
    assert document["question"].startswith("Where is this done: JSON (JavaScript Object Notation)")
    assert document["packed"]


def test_nothing_is_connected_to_without_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert run_json(STANDARD_JSON, "--query", QUESTION)["packed"]


def test_outputs_are_removed_unless_they_are_to_be_kept(temporary: Path) -> None:
    run(STANDARD_JSON)
    assert list(temporary.iterdir()) == []
    document = run_json(STANDARD_JSON, "--keep")
    assert [str(path) for path in temporary.iterdir()] == [document["store"]]
    assert len(list(temporary.rglob("*.meta.json"))) == len(document["pointers"])
    assert document["store"] in run(STANDARD_JSON, "--keep") or len(list(temporary.iterdir())) == 2


def test_an_empty_folder_is_no_accident(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    document = run_json(tmp_path / "empty")
    assert document["files"] == 0


def test_what_files_hold_cannot_drive_the_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "evil.txt").write_text(
        "escape \x1b]0;title\x07 \x1b[2J [bold]markup[/bold] \x9b31m\n"
    )
    shown = run(folder, "--query", "escape markup")
    assert "[bold]markup[/bold]" in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", shown)


def test_the_error_of_a_call_cannot_drive_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    store = tmp_path / "store"
    explored = asyncio.run(
        explore(
            tmp_path / "folder",
            question="",
            budget_chars=0,
            store_dir=store,
            progress=lambda *_: None,
        )
    )
    failed = CallRecord(
        explored.plan.tasks[0].id, "grep", {}, None, "no \x1b]0;title\x07 \x9b2J\u202e file"
    )
    show(explored.model_copy(update={"calls": (failed,)}), store=None)
    shown = capsys.readouterr().out
    assert "failed: no " in shown
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", shown)


@pytest.mark.parametrize(
    "arguments",
    [["absent"], [__file__], [".", "--budget", "-1"], [".", "--budget", "many"], [".", "--what"]],
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert "Usage" in run(*arguments, code=2)


def test_a_wrong_setting_ends_with_2_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLM_COMMON_TOOL_SELECTION_MAX_CALLS", "many")
    assert "LLM_COMMON_TOOL_SELECTION_MAX_CALLS" in run(STANDARD_JSON, code=2).replace("\n", "")


class Endpoint(BaseHTTPRequestHandler):
    """A chat completions endpoint that calls the tools a task names and picks the outputs of `read_file`."""

    seen: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(request)
        body = json.dumps(
            {
                "id": "1",
                "model": request["model"],
                "choices": [
                    {
                        "message": {"role": "assistant", "content": self.answer(request)},
                        "finish_reason": "stop",
                    }
                ],
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
            return json.dumps(
                {"pointer_ids": re.findall(r"[0-9a-f]{12}(?=[^\n]{0,40}read_file)", text)[:1]}
            )
        files = re.findall(r'Read file \\*"([^"\\]+)', text)
        calls = [{"tool": "read_file", "args": {"name": path}} for path in files]
        return json.dumps({"calls": calls or [{"tool": "list_files", "args": {}}]})

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


def test_a_configured_endpoint_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    Endpoint.seen.clear()
    with served(Endpoint) as url:
        monkeypatch.setenv("LLM_COMMON_BASE_URL", url)
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        document = run_json(STANDARD_JSON, "--query", QUESTION)
    assert document["tool_selector"] == document["context_selector"] == f"small at {url}"
    assert {request["model"] for request in Endpoint.seen} == {"small"}
    assert [row["tool"] for row in document["pointers"] if row["kept"]] == ["read_file"]
    assert "py_encode_basestring" in document["packed"]


class Forgetful(Endpoint):
    """Chooses tools, but no outputs."""

    def answer(self, request: dict[str, Any]) -> str:
        answer = super().answer(request)
        return "I would rather not." if "pointer_ids" in answer else answer


def test_a_failed_choice_packs_nothing_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Forgetful) as url:
        monkeypatch.setenv("LLM_COMMON_BASE_URL", url)
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        document = run_json(STANDARD_JSON, "--query", QUESTION, code=1)
    assert document["selection"] == "invalid"
    assert document["packed"] == ""
    assert document["pointers"]
    assert not any(row["kept"] for row in document["pointers"])


class Refusing(Endpoint):
    """Chooses tools, and refuses to choose outputs."""

    def answer(self, request: dict[str, Any]) -> str:
        answer = super().answer(request)
        if "pointer_ids" in answer:
            self.send_error(400)
        return answer


def test_a_refused_choice_of_outputs_ends_with_1_s0_36(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Refusing) as url:
        monkeypatch.setenv("LLM_COMMON_BASE_URL", url)
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        document = run_json(STANDARD_JSON, "--query", QUESTION, code=1)
    assert (document["selection"], document["problems"], document["packed"]) == ("error", [], "")


def test_a_failing_endpoint_selects_nothing_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("LLM_COMMON_BASE_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        document = run_json(STANDARD_JSON, "--query", QUESTION, code=1)
        shown = run(STANDARD_JSON, "--query", QUESTION, code=1)
    assert document["packed"] == ""
    assert "status error" in document["problems"][0]
    assert "(nothing was selected)" in shown
    assert "status error" in shown
    assert list(temporary.iterdir()) == []


def test_a_process_shows_replacements_where_the_terminal_lacks_characters(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("caf\xe9 escape\n", encoding="utf-8")
    result = subprocess.run(
        [*RUN, "demo", str(tmp_path), "--query", "caf\xe9"],
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "caf? escape" in result.stdout
    assert result.stderr == ""


def test_ctrl_c_ends_with_130_and_leaves_nothing(temporary: Path, tmp_path: Path) -> None:
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
        silent.settimeout(10)
        connection, _ = silent.accept()
        with connection:
            assert len(list(temporary.iterdir())) == 1
            process.send_signal(signal.SIGINT)
            stdout, stderr = process.communicate(timeout=10)
    assert process.returncode == 130
    assert (stdout, stderr) == ("", "Interrupted.\n")
    assert list(temporary.iterdir()) == []


class Marking(Endpoint):
    """Asks for a file whose name is markup."""

    def answer(self, request: dict[str, Any]) -> str:
        answer = super().answer(request)
        call = {"tool": "read_file", "args": {"name": "[bold]no[/bold]"}}
        return answer if "pointer_ids" in answer else json.dumps({"calls": [call]})


def test_the_arguments_of_a_call_are_no_markup_f_174(monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Marking) as url:
        monkeypatch.setenv("LLM_COMMON_BASE_URL", url)
        monkeypatch.setenv("LLM_COMMON_MODEL", "small")
        assert "read_file(name='[bold]no[/bold]') -> failed" in run(
            STANDARD_JSON, "--query", QUESTION, code=1
        )
