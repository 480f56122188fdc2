"""Test which files of a folder are listed, in a checkout and elsewhere."""

import os
from pathlib import Path

import pytest

from llm_common.folders.file_listing import list_paths, stat_files
from tests.folders.tree import Pack, git, listed, paths, write

RULES: dict[str, str | bytes] = {
    ".gitignore": "*.log\n!keep.log\n/top.txt\nout/\ndoc/*.tmp\n[\n",
    "a.py": "",
    "a.log": "",
    "keep.log": "",
    "top.txt": "",
    "sub/top.txt": "",
    "out/x.py": "",
    "sub/out/x.py": "",
    "doc/a.tmp": "",
    "doc/b.md": "",
    "sub/.gitignore": "!a.log\nlocal*\n",
    "sub/a.log": "",
    "sub/local.py": "",
    "sub/deep/local.txt": "",
    "local.py": "",
}


def names(folder: Path) -> list[str]:
    return [path for path in list_paths(folder) if not path.endswith(".gitignore")]


def test_ignore_files_are_read_as_git_reads_them(tmp_path: Path) -> None:
    walked = names(write(tmp_path / "walked", RULES))
    checkout = write(tmp_path / "checkout", RULES)
    git(checkout, "init", "-q")
    assert sorted(walked) == names(checkout)
    assert "sub/a.log" in walked
    assert "sub/deep/local.txt" not in walked


def test_the_configuration_of_a_checkout_starts_no_program_f_164(tmp_path: Path) -> None:
    checkout, trace = write(tmp_path / "checkout", {"a.py": ""}), tmp_path / "trace"
    program = write(tmp_path, {"program": f'#!/bin/sh\necho ran > "{trace}"\n'}) / "program"
    program.chmod(0o700)
    git(checkout, "init", "-q")
    git(checkout, "add", "a.py")
    git(checkout, "config", "core.fsmonitor", str(program))
    git(checkout, "ls-files", "--others")
    assert trace.exists(), "git starts it when nothing is said against it"
    trace.unlink()
    assert list(list_paths(checkout)) == ["a.py"]
    assert not trace.exists()


WITH_HIDDEN = {".github/ci.yml": "", ".git/config": "", "a.py": ""}
UNREADABLE_RULES = {
    "a.py": "",
    "b/.gitignore/x": "",
    ".gitignore": b"# \xff\n" + b"*.py\n" * 400_000,
}


@pytest.mark.parametrize(
    ("files", "hidden", "expected"),
    [
        pytest.param(WITH_HIDDEN, False, {".github/", "a.py"}, id="a hidden folder"),
        pytest.param(
            WITH_HIDDEN, True, {"a.py", ".github/ci.yml"}, id="walked on request, but that of git"
        ),
        pytest.param(
            {".git": "gitdir: /absent\n", "a.py": ""}, True, {"a.py"}, id="the file of a worktree"
        ),
        pytest.param(
            UNREADABLE_RULES,
            False,
            {"a.py", ".gitignore", "b/.gitignore/"},
            id="an unreadable ignore file adds no rule",
        ),
    ],
)
def test_a_folder_is_listed_without_what_is_of_git(
    tmp_path: Path, files: dict[str, str | bytes], hidden: bool, expected: set[str]
) -> None:
    assert {*list_paths(write(tmp_path, files), hidden=hidden)} == expected


@pytest.mark.parametrize("path", ["folder", "absent", "out/secret", "link", "bad\nname"])
def test_anything_but_a_regular_file_of_the_folder_is_none(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"outside/secret": "s", "in/folder/x": "", "in/bad\nname": ""})
    root = tmp_path / "in"
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "link").symlink_to(tmp_path / "outside/secret")
    assert list(stat_files(root, [path])) == [(path, None)]


@pytest.mark.parametrize(
    "name",
    ["報告\u3000書.txt", "👨\u200d👩.txt", "a\xa0b.txt", "\u0378.txt", "\ue000.txt", "ñ\u0303"],
)
@pytest.mark.parametrize("checkout", [False, True])
def test_names_of_any_script_are_listed(
    tmp_path: Path, packed: Pack, name: str, checkout: bool
) -> None:
    if checkout:
        git(tmp_path, "init", "-q", "tree")
    pack = packed("target word", {f"{name}/{name}": "target word"})
    assert (paths(pack), pack.left_out) == ([f"{name}/{name}"], {})


UNSAFE = "\t\n\r\x1b\x7f\x85\u2028\u2029\u202e\u2066\u200f\U000e0041\udcff"


@pytest.mark.parametrize("character", UNSAFE, ids=ascii)
def test_names_that_could_be_misread_are_counted(packed: Pack, character: str) -> None:
    files = {f"a{character}b.txt": "target word", "c.txt": "target word"}
    pack = packed("target word", files)
    assert (paths(pack), pack.left_out) == (["c.txt"], {"unsafe name": 1})


def test_a_file_and_a_link_to_it_are_listed_with_size_and_time(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "12345"})
    os.utime(tmp_path / "a.py", ns=(7, 7))
    (tmp_path / "link").symlink_to(tmp_path / "a.py")
    found = sorted((file.path, file.size, file.mtime_ns) for file in listed(tmp_path))
    assert found == [("a.py", 5, 7), ("link", 5, 7)]


@pytest.mark.parametrize("variable", ["GIT_DIR", "GIT_INDEX_FILE"])
def test_a_repository_in_git_environment_variables_is_ignored(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = write(tmp_path / "one", {"a.py": ""}), write(tmp_path / "other", {"b.py": ""})
    for folder in (one, other):
        git(folder, "init", "-q")
        git(folder, "add", ".")
    monkeypatch.setenv(
        variable, str(other / ".git" / ("index" if variable == "GIT_INDEX_FILE" else ""))
    )
    assert list(list_paths(one)) == ["a.py"]


def test_nested_checkouts_are_listed_by_their_own_rules(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            ".gitignore": "*.tmp\n",
            "a.py": "",
            "sub/b.py": "",
            "sub/b.tmp": "",
            "sub/.gitignore": "no\n",
        },
    )
    write(tmp_path, {"sub/no": "", "sub/deep/c.py": "", "loop/d.py": "", "sub/160000 x\ty": ""})
    (tmp_path / "loop/up").symlink_to(tmp_path)
    for folder in ("sub/deep", "sub", "loop", ""):
        git(tmp_path / folder, "init", "-q")
    git(tmp_path / "sub", "add", "b.py")
    git(
        tmp_path / "sub",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "commit",
        "-qm",
        "one",
    )
    git(tmp_path, "add", "sub", "a.py")
    names = {*list_paths(tmp_path)} - {".gitignore", "sub/.gitignore"}
    assert names == {
        "a.py",
        "sub/b.py",
        "sub/b.tmp",
        "sub/deep/c.py",
        "loop/d.py",
        "loop/up",
        "sub/160000 x\ty",
    }


def test_checkouts_within_checkouts_are_listed_to_the_fifth_level(tmp_path: Path) -> None:
    folder, paths = tmp_path / "tree", []
    folder.mkdir()
    below = folder
    for level in range(7):
        git(below, "init", "-q")
        write(below, {f"file{level}.txt": "x\n"})
        paths.append((below / f"file{level}.txt").relative_to(folder).as_posix())
        below /= f"level{level}"
        below.mkdir()
    listed = [path for path in list_paths(folder) if path.endswith(".txt")]
    assert sorted(listed) == sorted(paths[:6])


def test_a_removed_folder_is_one_path(tmp_path: Path) -> None:
    assert list(stat_files(tmp_path / "gone", list_paths(tmp_path / "gone"))) == [("/", None)]
