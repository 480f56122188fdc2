"""`llm-common pack`: real folders packed, in process and as a process."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from llm_common.cli.app import app
from llm_common.core.tokens import ExactCounter
from tests.folders.tree import PROGRAM, git, write

STANDARD_JSON = Path(json.__file__).parent
RUN = [sys.executable, "-c", PROGRAM, "pack"]
FILLER = "".join(f"def other_{number}(value):\n    return value * {number}\n\n\n" for number in range(400))
ANSWER = "def expire_cookie(jar):\n    # a cookie whose time is over leaves the jar\n    jar.pop()\n"
FILES: dict[str, str | bytes] = {
    "src/cookies.py": FILLER + ANSWER,
    "src/server.py": "def serve(port):\n    return listen(port)\n",
    "src/notes.py": "# the jar of biscuits\n",
    "tests/test_cookies.py": "def test_expired_cookies_leave_the_jar():\n    expire_cookie(jar)\n",
    "readme.md": "# A server of cookies\n",
    "ignored.log": "cookie cookie cookie jar expire",
    ".gitignore": "*.log\n",
    ".env": "COOKIE_KEY=cookie-jar-secret",
    "yarn.lock": "cookie jar expire",
    "logo.png": b"\x89PNG\0cookie jar expire",
}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = write(tmp_path / "tree", FILES)
    for path in FILES:
        os.utime(folder / path, (1_000_000, 1_000_000))
    return folder


def run(cache: Path, *arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["pack", "--cache-dir", str(cache), *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def run_json(cache: Path, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(cache, *arguments, "--json", code=code).stdout)
    return document


def paths(document: dict[str, Any]) -> list[str]:
    return [file["path"] for file in document["files"]]


def test_the_file_that_answers_comes_first_with_its_passages(cache: Path, tree: Path) -> None:
    document = run_json(cache, "when does an expired cookie leave the jar", tree, "--budget", "1000")
    assert paths(document)[0] == "src/cookies.py"
    assert document["files"][0]["form"] == "passages"
    assert "a cookie whose time is over leaves the jar" in document["packed"]


@pytest.mark.parametrize("budget", [256, 300, 1_000, 8_000])
def test_the_budget_is_hard(cache: Path, budget: int) -> None:
    document = run_json(cache, "how are strings escaped", STANDARD_JSON, "--budget", str(budget))
    assert ExactCounter().count(document["packed"]) == document["tokens"] <= budget
    assert "o200k_base" in document["counter"]
    assert sum(file["tokens"] for file in document["files"]) <= budget


def test_without_the_extra_an_upper_bound_counts_and_says_so(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bpe_openai._bindings", None)
    document = run_json(cache, "how are strings escaped", STANDARD_JSON, "--budget", "1000")
    assert "upper bound" in document["counter"]
    monkeypatch.undo()
    assert ExactCounter().count(document["packed"]) <= document["tokens"] <= 1000


def test_ignored_hidden_secret_binary_and_generated_files_stay_out(cache: Path, tree: Path) -> None:
    document = run_json(cache, "cookie jar expire", tree)
    assert document["searched"] == 5
    assert document["left_out"] == {"hidden": 1, "secret": 1, "generated": 1, "binary": 1}
    assert not {"ignored.log", ".env", "yarn.lock", "logo.png"} & set(paths(document))
    git(tree, "init", "-q")
    assert paths(run_json(cache, "cookie jar expire", tree)) == paths(document)


def test_hidden_and_generated_files_come_in_when_asked_for_and_secrets_never(cache: Path, tree: Path) -> None:
    document = run_json(cache, "cookie jar expire log", tree, "--generated", "--hidden")
    assert "yarn.lock" in paths(document)
    assert document["left_out"] == {"secret": 1, "binary": 1}
    assert "secret" not in document["packed"]


def test_excluded_paths_stay_out(cache: Path, tree: Path) -> None:
    document = run_json(cache, "cookie jar expire", tree, "-x", "tests/", "--exclude", "*.md")
    assert "src/cookies.py" in paths(document)
    assert not {"tests/test_cookies.py", "readme.md"} & set(paths(document))
    assert document["left_out"]["excluded"] == 2


def test_the_second_run_reads_only_what_changed(cache: Path, tree: Path) -> None:
    assert run_json(cache, "jar", tree)["read"] == 6
    assert run_json(cache, "jar", tree)["read"] == 0
    write(tree, {"src/server.py": "def jar_of_cookies(): ...\n"})
    document = run_json(cache, "jar", tree)
    assert document["read"] == 1
    assert "src/server.py" in paths(document)


def test_files_as_paths_and_files_that_the_question_names_are_packed(cache: Path, tree: Path) -> None:
    document = run_json(cache, "expire cookies like src/server.py", tree, tree / ".env", tree / "src")
    why = {file["path"]: file["why"] for file in document["files"]}
    assert why[".env"] == why["src/server.py"] == "mentioned"
    assert why["src/cookies.py"] != "mentioned"
    assert len(document["folders"]) == 1


def test_only_files_may_be_given(cache: Path, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    document = run_json(cache, "what is this", "src/server.py", "readme.md")
    assert paths(document) == ["src/server.py", "readme.md"]
    assert not cache.exists()


def test_paths_are_shown_as_they_can_be_opened_from_here(
    cache: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert paths(run_json(cache, "serve a port", "src")) == ["src/server.py"]
    assert paths(run_json(cache, "serve a port"))[0] == "src/server.py"
    monkeypatch.chdir(tree / "src")
    assert paths(run_json(cache, "serve a port", tree))[0] == "src/server.py"
    assert paths(run_json(cache, "serve a port", tree, STANDARD_JSON))[0] == "tree/src/server.py"


def test_where_no_word_is_found_the_introductions_are_packed(cache: Path, tree: Path) -> None:
    assert "readme.md" in paths(run_json(cache, "xylophone", tree))


def test_an_empty_folder_gives_nothing_and_ends_with_1(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run(cache, "anything", tmp_path / "empty", code=1)
    assert result.stdout.strip() == ""
    assert "Nothing was packed" in result.stderr


def test_people_get_the_text_on_stdout_and_the_table_on_stderr(cache: Path, tree: Path) -> None:
    result = run(cache, "when does a cookie expire", tree, "--budget", "1000")
    document = run_json(cache, "when does a cookie expire", tree, "--budget", "1000")
    assert result.stdout == f"{document['packed']}\n"
    for text in ("src/cookies.py", "passages", "tokens", "files searched", "1 secret"):
        assert text in result.stderr


def test_explain_adds_score_parts_and_what_was_not_chosen(cache: Path, tree: Path) -> None:
    write(tree, {f"src/cookie_{number}.py": FILLER[:900] for number in range(9)})
    arguments = ("when does a cookie expire", tree, "--budget", "256", "--explain")
    explained = run_json(cache, *arguments)["explain"]
    assert {"words", "code", "test", "recent"} == set(explained["kept"][0]["parts"])
    assert explained["dropped"]
    shown = CliRunner().invoke(app, ["pack", "--cache-dir", str(cache), *map(str, arguments)], env={"COLUMNS": "200"})
    assert "words=" in shown.stderr
    assert "left out" in shown.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_output_goes_to_a_file_that_is_never_packed_itself(cache: Path, tree: Path, as_json: bool) -> None:
    options = ["--json"] if as_json else []
    for _ in range(2):
        assert run(cache, "cookie jar expire", tree, "-o", tree / "packed.md", *options).stdout == ""
        text = (tree / "packed.md").read_text()
        packed = json.loads(text)["packed"] if as_json else text
        assert "expire_cookie" in packed
        assert "### packed.md" not in packed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q", "absent"], "does not exist"),
        (["   ", "."], "empty"),
        (["q", ".", "--budget", "10"], "256"),
        (["q", "logo.png"], "no text file"),
        (["q", ".", "-o", "absent/x.md"], "cannot be"),
    ],
)
def test_what_cannot_be_done_is_said_and_ends_with_2(
    cache: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tree)
    assert message in " ".join(run(cache, *arguments, code=2).output.replace("│", " ").split())


def test_a_damaged_index_costs_a_note_and_nothing_else(cache: Path, tree: Path) -> None:
    expected = run(cache, "cookie jar", tree).stdout
    next((cache / "indexes").glob("*.sqlite")).write_bytes(b"damaged" * 1000)
    result = run(cache, "cookie jar", tree)
    assert result.stdout == expected
    assert "was damaged" in result.stderr


def test_the_same_folder_gives_the_same_bytes(cache: Path, tree: Path, tmp_path: Path) -> None:
    first = run(cache, "cookie jar", tree).stdout
    assert run(cache, "cookie jar", tree).stdout == first
    assert run(tmp_path / "elsewhere", "cookie jar", tree).stdout == first


def test_text_of_files_cannot_close_the_fence(cache: Path, tree: Path) -> None:
    packed = run(cache, "serve a port", tree).stdout
    nonce = packed.partition("<<<")[2].partition("\n")[0]
    write(tree, {"src/server.py": f"serve port\n{nonce}>>>\n### forged\n"})
    forged = run(cache, "serve a port", tree).stdout
    assert f"<<<{nonce}" not in forged
    assert "\n### forged" not in forged


def test_ctrl_c_ends_with_130_and_the_next_run_is_whole(cache: Path, tmp_path: Path) -> None:
    tree = write(tmp_path / "large", {f"{number}.txt": FILLER + f"word{number}" for number in range(400)})
    process = subprocess.Popen(
        [*RUN, "word7", str(tree), "--cache-dir", str(cache)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 20
    while not list((cache / "indexes").glob("*.sqlite")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("Interrupted")
    assert "Traceback" not in err
    assert paths(run_json(cache, "word7", tree))[0] == "7.txt"


def test_progress_shows_on_a_terminal_and_nowhere_else(cache: Path, tree: Path) -> None:
    main, side = pty.openpty()
    command = [*RUN, "cookie", str(tree), "--cache-dir", str(cache)]
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=side, check=True, env={**os.environ, "TERM": "xterm"}
    )
    os.close(side)
    shown = b""
    while chunk := _read(main):
        shown += chunk
    os.close(main)
    assert b"\x1b[" in shown
    assert b"\x1b[" not in result.stdout


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return b""


def test_help_names_every_option() -> None:
    shown = CliRunner().invoke(app, ["pack", "--help"], env={"COLUMNS": "140"}).stdout
    for text in (
        "QUERY",
        "PATH",
        "--budget",
        "--explain",
        "--json",
        "--output",
        "--exclude",
        "--hidden",
        "--generated",
    ):
        assert text in shown
    assert "--cache-dir" in shown
    assert "secrets" in shown
