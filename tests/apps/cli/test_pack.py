"""`llm-common pack`, in this process and in a new one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from llm_common.folders import pack_folder
from tests.apps.cli import running
from tests.apps.cli.running import on_terminal
from tests.folders.tree import PROGRAM, write

RUN = [sys.executable, "-c", PROGRAM, "pack"]
FILLER = "".join(
    f"def other_{number}(value):\n    return value * {number}\n\n\n" for number in range(400)
)
FILES: dict[str, str | bytes] = {
    "src/cookies.py": f"{FILLER}def expire_cookie(jar):\n    jar.pop()\n",
    "src/server.py": "def serve(port):\n    return listen(port)\n",
    "tests/test_cookies.py": "def test_expired_cookies_leave_the_jar():\n    expire_cookie(jar)\n",
    "readme.md": "# A server of cookies\n",
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
    return running.run("pack", "--cache-dir", cache, *arguments, code=code)


def run_json(cache: Path, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(cache, *arguments, "--json", code=code).stdout)
    return document


def paths(document: dict[str, Any]) -> list[str]:
    return [file["path"] for file in document["files"]]


def test_the_document_has_the_values_of_the_library(cache: Path, tree: Path) -> None:
    document = run_json(cache, "when does a cookie expire", tree, "--budget", "1000")
    pack = pack_folder("when does a cookie expire", tree, budget_tokens=1000, cache_dir=cache)
    assert (document["packed"], document["tokens"], paths(document)) == (
        pack.text,
        pack.tokens,
        [file.path for file in pack.files],
    )
    assert (document["searched"], document["left_out"]) == (
        4,
        {"secret": 1, "generated": 1, "binary": 1},
    )
    assert document["budget_tokens"] == 1000


def test_options_choose_which_files_are_searched(cache: Path, tree: Path) -> None:
    document = run_json(
        cache, "cookie jar expire", tree, "--generated", "-x", "tests/", "--exclude", "*.md"
    )
    assert {"src/cookies.py", "yarn.lock"} <= set(paths(document))
    assert document["left_out"] == {"secret": 1, "binary": 1, "excluded": 2}
    assert len(paths(run_json(cache, "cookie jar", tree, "--max-files", "1"))) == 1


def test_without_a_path_this_folder_is_packed(
    cache: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    assert paths(run_json(cache, "serve a port"))[0] == "src/server.py"


def test_without_a_match_nothing_is_packed(cache: Path, tree: Path) -> None:
    kept = write(tree, {"kept.txt": "of before"}) / "kept.txt"
    run(cache, "xylophone", tree, "--output", kept, code=3)
    assert kept.read_text(encoding="utf-8") == "of before"
    kept.unlink()
    result = run(cache, "xylophone", tree, code=3)
    assert result.stdout.strip() == ""
    assert "none of 4 files has a word of the question" in result.stderr
    write(tree, {"xylophone.py": ""})
    assert "the matching files are empty" in run(cache, "xylophone", tree, code=3).stderr


def test_people_get_text_on_stdout_and_a_table_on_stderr(cache: Path, tree: Path) -> None:
    result = run(cache, "when does a cookie expire", tree, "--budget", "1000")
    document = run_json(cache, "when does a cookie expire", tree, "--budget", "1000")
    assert result.stdout == f"{document['packed']}\n"
    for text in ("src/cookies.py", "passages", "tokens", "files searched", "1 secret"):
        assert text in result.stderr
    assert "Left out" not in run(cache, "cookie", tree / "src").stderr


def test_the_format_options_are_those_of_the_library(cache: Path, tree: Path) -> None:
    options = ("--line-numbers", "--tree", "--question")
    document = run_json(cache, "when does a cookie expire", tree, *options)
    pack = pack_folder(
        "when does a cookie expire",
        tree,
        line_numbers=True,
        tree=True,
        question=True,
        cache_dir=cache,
    )
    assert document["packed"] == pack.text
    for text in (
        "## File tree (4 files searched)",
        "\n1:# A server of cookies",
        "## Question\nwhen",
    ):
        assert text in pack.text


def test_why_names_the_matched_words_or_that_the_file_is_named(cache: Path, tree: Path) -> None:
    question = ("when does a jar of cookies expire", tree, "--budget", "1000")
    files = {file["path"]: file for file in run_json(cache, *question)["files"]}
    assert set(files["src/cookies.py"]["words"]) == {"jar", "cookies", "expire"}
    assert files["readme.md"]["words"] == ["cookies"]
    rows = {line.split()[0]: line for line in run(cache, *question).stderr.splitlines() if line}
    for path, file in files.items():
        assert rows[path].rstrip().endswith(", ".join(file["words"]))
    named = run(cache, "cookies in readme.md", tree).stderr.splitlines()
    [row] = [line for line in named if line.startswith("readme.md")]
    assert row.rstrip().endswith(" named")


def test_explain_adds_score_parts_and_what_was_not_chosen(cache: Path, tree: Path) -> None:
    write(tree, {f"src/cookie_{number}.py": FILLER[:900] for number in range(9)})
    arguments = ("when does a cookie expire", tree, "--budget", "256", "--explain")
    assert run_json(cache, *arguments[:-1])["explain"] is None
    explained = run_json(cache, *arguments)["explain"]
    assert {"words", "code", "size", "named", "test"} == set(explained["kept"][0]["parts"])
    assert explained["dropped"]
    output = run(cache, *arguments).stderr
    assert "words=" in output
    assert "left out" in output


@pytest.mark.parametrize("as_json", [False, True])
def test_output_goes_to_a_file_that_is_never_packed(cache: Path, tree: Path, as_json: bool) -> None:
    options = ["--json"] if as_json else []
    for _ in range(2):
        assert (
            run(cache, "cookie jar expire", tree, "-o", tree / "packed.md", *options).stdout == ""
        )
        text = (tree / "packed.md").read_text()
        packed = json.loads(text)["packed"] if as_json else text
        assert "expire_cookie" in packed
        assert "### packed.md" not in packed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["q", "absent"], "does not exist"),
        (["   ", "."], "the question must not be empty; pass the question that the text is for"),
        (["q", ".", "--budget", "10"], "256"),
        (["q", "logo.png"], "not a text file"),
        (
            ["cookie", ".", "-o", "absent/x.md"],
            "absent/x.md cannot be written (No such file or directory)",
        ),
        (["cookie", ".", "-o", "circle"], "Name another file"),
    ],
)
def test_wrong_usage_is_reported_and_ends_with_2(
    cache: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tree)
    (tree / "circle").symlink_to("circle")
    assert message in " ".join(run(cache, *arguments, code=2).output.replace("│", " ").split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_stdout_is_named(cache: Path, tree: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*RUN, "cookie", str(tree), "--cache-dir", str(cache)]
        result = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert result.returncode == 1
    assert "stdout cannot be written" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_gone_reader_of_stdout_has_a_code_of_its_own(cache: Path, tree: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [*RUN, "cookie", str(tree), "--cache-dir", str(cache)]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert result.returncode == 141
    assert "Traceback" not in result.stderr


def test_a_damaged_index_is_noted(cache: Path, tree: Path) -> None:
    expected = run(cache, "cookie jar", tree).stdout
    next((cache / "indexes").glob("*.sqlite")).write_bytes(b"damaged" * 1000)
    result = run(cache, "cookie jar", tree)
    assert result.stdout == expected
    assert "was damaged" in result.stderr


def test_ctrl_c_ends_with_130_and_leaves_a_whole_index(cache: Path, tmp_path: Path) -> None:
    tree = write(
        tmp_path / "large",
        {f"{number}.txt": FILLER[:4000] + f"word{number}" for number in range(800)},
    )
    process = subprocess.Popen(
        [*RUN, "word7", str(tree), "--cache-dir", str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list((cache / "indexes").glob("*.sqlite")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.startswith("Interrupted")
    assert "Traceback" not in err
    assert paths(run_json(cache, "word7", tree))[0] == "7.txt"


def test_progress_shows_on_a_terminal_and_nowhere_else(cache: Path, tree: Path) -> None:
    shown, packed = on_terminal("stderr", "pack", "cookie", tree, "--cache-dir", cache)
    assert "\x1b[" in shown
    assert "\x1b[" not in packed
