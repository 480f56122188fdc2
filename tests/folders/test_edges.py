"""Folders at their edges: nested checkouts, names with brackets, homonyms, several files."""

from pathlib import Path

import pytest

from llm_common.errors import ConfigError
from llm_common.folders import pack_folder
from llm_common.folders.candidates import FolderQuestion, FolderSearch, candidate_files
from llm_common.folders.contained_file import ContainedFile
from llm_common.folders.file_listing import list_paths
from llm_common.text.ignore_rules import IgnoreRules
from tests.folders.tree import git, write


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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


@pytest.mark.parametrize(
    ("rule", "ignored", "kept"),
    [
        ("a\\ ", "a ", "a"),
        ("a ", "a", "a "),
        ("a\\\\ ", "a\\", "a\\ "),
        ("b\\\\\\ ", "b\\ ", "b\\"),
        ("folder/**", "folder/x/y", "folder"),
        ("folder/**/y", "folder/x/z/y", "folder/x"),
        ("/a", "a", "b/a"),
        ("a?c", "abc", "a/c"),
        ("[!a]b", "cb", "ab"),
    ],
)
def test_a_rule_matches_one_path_and_not_another(rule: str, ignored: str, kept: str) -> None:
    rules = IgnoreRules(f"{rule}\n")
    assert (rules.verdict(ignored), rules.verdict(kept)) == (True, None)


def test_the_last_rule_that_matches_decides() -> None:
    rules = IgnoreRules("*.log\n!keep.log\nkeep.log/\n# !a.log\n\n")
    assert rules.verdict("a.log") is True
    assert rules.verdict("keep.log") is False
    assert rules.verdict("keep.log/") is True
    assert rules.verdict("a.txt") is None


@pytest.mark.parametrize("is_path", [False, True])
def test_a_path_excludes_a_name_with_brackets_and_a_glob_another(
    is_path: bool, tmp_path: Path
) -> None:
    folder = write(tmp_path / "tree", {"a[1].py": "cookie = 1\n", "a1.py": "cookie = 2\n"})
    exclude = folder / "a[1].py" if is_path else "a[1].py"
    pack = pack_folder("cookie", folder, exclude=[exclude])
    assert [file.path for file in pack.files] == (["a1.py"] if is_path else ["a[1].py"])


def test_a_file_with_two_names_is_shown_once(tmp_path: Path) -> None:
    folder = write(tmp_path / "tree", {"a.py": "def bake_cookie():\n    return 1\n"})
    (folder / "b.py").symlink_to("a.py")
    pack = pack_folder("where is bake_cookie", folder, folder / "a.py")
    assert pack.text.count("def bake_cookie") == 1


def test_passages_of_every_file_are_ranked_by_their_own_text(tmp_path: Path) -> None:
    filler = [f"def other_{n}(value):\n    return value * {n}\n\n\n" for n in range(600)]
    files = {}
    for name, lines in (("a", 10), ("b", 590), ("c", 300)):
        answer = (
            f"def {name}_expire(jar):\n    # a cookie leaves the jar of {name}\n    jar.pop()\n"
        )
        files[f"{name}.py"] = "".join([*filler[:lines], answer, *filler[lines:]])
    folder = write(tmp_path / "tree", files)
    pack = pack_folder("when does a cookie leave the jar", folder, budget_tokens=1_500)
    for name in files:
        assert f"a cookie leaves the jar of {name[0]}" in pack.text


@pytest.mark.parametrize(
    ("query", "problem"),
    [("", "must not be empty"), ("  ", "must not be empty"), (5, "must be a str, got int")],
)
def test_a_question_that_is_none_is_named(query: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        pack_folder(query, tmp_path)


def scored(tree: Path, query: str, search: FolderSearch) -> dict[str, dict[str, float]]:
    _, scores = candidate_files(FolderQuestion(query), search, {})
    return {path: dict(score.parts) for (_, path), score in scores.items()}


def test_files_of_one_name_share_what_the_name_earns(tmp_path: Path) -> None:
    paths = ["a/config.py", "b/config.py", "main.py"]
    write(tmp_path, dict.fromkeys(paths, "text\n"))
    search = FolderSearch(
        files={path: ContainedFile(tmp_path, path) for path in paths},
        scores=dict.fromkeys(paths, 1.0),
    )
    parts = scored(tmp_path, "what do config.py and main.py do", search)
    named = {path: part["named"] for path, part in parts.items()}
    assert named["a/config.py"] == named["b/config.py"] == named["main.py"] / 2 > 0
