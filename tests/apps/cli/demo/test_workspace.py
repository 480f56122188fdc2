"""`Workspace`: what is read from a folder, and what is not."""

import os
from pathlib import Path

import pytest

from llm_common.apps.cli.demo.workspace import Workspace
from tests.folders.tree import git, write
from tests.secret_samples import LETTERS, made_of


def test_text_files_are_found_below_the_folder_in_order(tmp_path: Path) -> None:
    workspace = Workspace(write(tmp_path, {"b.txt": "two", "a/x.py": "one\n", "a/é.md": "ü"}))
    assert workspace.paths == ("a/x.py", "a/é.md", "b.txt")
    assert workspace.text("a/x.py") == "one\n"
    assert workspace.text("./a/é.md") == "ü"
    assert workspace.skipped == 0


def test_hidden_generated_binary_and_huge_files_are_left_out(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "kept.txt": "kept",
        ".env": "KEY=1",
        "bin.dat": b"\0\1",
        "huge.txt": "x" * 600_000,
        "bad\nname.txt": "x",
        ".git/config": "x",
        ".venv/lib.py": "x",
        "node_modules/a.js": "x",
    }
    workspace = Workspace(write(tmp_path, files))
    assert workspace.paths == ("kept.txt",)
    assert workspace.skipped == 6


def test_text_that_is_not_utf8_is_still_text(tmp_path: Path) -> None:
    assert (
        Workspace(write(tmp_path, {"latin.txt": b"caf\xe9"})).text("latin.txt")
        == "caf\N{REPLACEMENT CHARACTER}"
    )


def test_a_git_checkout_shows_what_git_does_not_ignore(tmp_path: Path) -> None:
    write(
        tmp_path,
        {".gitignore": "*.log\nout/\n", "a.py": "a", "b.log": "b", "out/c.py": "c", "new.py": "d"},
    )
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "a.py")
    assert Workspace(tmp_path).paths == ("a.py", "new.py")


def test_an_ignored_folder_of_a_checkout_is_walked(tmp_path: Path) -> None:
    write(tmp_path, {".gitignore": "out/\n", "out/c.py": "c"})
    git(tmp_path, "init", "-q")
    assert Workspace(tmp_path / "out").paths == ("c.py",)


def test_a_checkouts_configuration_starts_no_program(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "a", "hook.sh": "#!/bin/sh\ntouch started\n"})
    (tmp_path / "hook.sh").chmod(0o755)
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.fsmonitor", str(tmp_path / "hook.sh"))
    assert "a.py" in Workspace(tmp_path).paths
    assert not (tmp_path / "started").exists()


def test_a_checkout_without_git_is_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a.py": "a"})
    git(tmp_path, "init", "-q")
    monkeypatch.setenv("PATH", "")
    assert Workspace(tmp_path).paths == ("a.py",)


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"secret.txt": "secret"})
    inside = write(tmp_path / "inside", {"real.txt": "real"})
    (inside / "file").symlink_to(outside / "secret.txt")
    (inside / "folder").symlink_to(outside)
    (inside / "same").symlink_to(inside / "real.txt")
    (inside / "broken").symlink_to(inside / "nothing")
    assert Workspace(inside).paths == ("real.txt", "same")


def test_what_may_hold_secrets_is_left_out_or_redacted_f_165_a_11(tmp_path: Path) -> None:
    key = f"ghp_{made_of(LETTERS, 36)}"
    workspace = Workspace(write(tmp_path / "tree", {"prod.env": "KEY=1", "a.py": f'use("{key}")'}))
    assert (workspace.paths, workspace.skipped) == (("a.py",), 1)
    assert workspace.text("a.py") == 'use("[redacted]")'
    (tmp_path / "tree/notes.txt").symlink_to("prod.env")
    assert Workspace(tmp_path / "tree").paths == ("a.py",)


def test_loops_of_links_are_left_out_f_162_a_09(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "up").symlink_to(".")
    workspace = Workspace(write(tmp_path, {"a.txt": "a"}))
    assert (workspace.paths, workspace.skipped) == (("a.txt",), 2)


def test_a_fifo_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert Workspace(write(tmp_path, {"a.txt": "a"})).paths == ("a.txt",)


@pytest.mark.parametrize(
    "path", ["../outside.txt", "/etc/passwd", "", ".", "a.txt/..", "absent.txt", "..\\outside.txt"]
)
def test_nothing_but_the_found_files_can_be_read(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"outside.txt": "secret", "inside/a.txt": "a"})
    with pytest.raises(ValueError, match="no such text file"):
        Workspace(tmp_path / "inside").text(path)


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    assert Workspace(tmp_path).paths == ()
