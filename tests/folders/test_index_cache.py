"""Test where indexes are kept, and that damaged ones never stop the work."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from llm_common._env import default_cache_dir
from llm_common.errors import ConfigError
from llm_common.folders import pack_folder
from llm_common.folders.tree_index import IndexCache, IndexQuery, TreeIndex
from tests.folders.tree import listed, paths, write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"a.py": "def cookies(): ...\n"})


def files(cache: Path) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in (cache / "indexes").glob("*.sqlite"))


def test_each_folder_and_filter_has_its_own_index(cache: Path, tmp_path: Path, tree: Path) -> None:
    other = write(tmp_path / "other", {"b.py": "cookies"})
    for folder, hidden in ((tree, False), (tree, False), (tree, True), (other, False)):
        pack = pack_folder("cookies", folder, hidden=hidden)
        assert (len(pack.files), pack.notes) == (1, ())
    assert files(cache) == ["1.sqlite"] * 3
    assert stat.S_IMODE((cache / "indexes").stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["text", "zeros", "middle", "table"])
def test_a_damaged_index_is_rebuilt_with_a_note(cache: Path, tree: Path, damage: str) -> None:
    expected = pack_folder("cookies", tree)
    [file] = (cache / "indexes").glob("*.sqlite")
    content = file.read_bytes()
    if damage == "table":
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript("DROP TABLE files; CREATE TABLE files (path)")
    else:
        middle = content[:4096].ljust(len(content), b"\xff")
        damaged = {"text": b"text" * 999, "zeros": bytes(len(content)), "middle": middle}
        file.write_bytes(damaged[damage])
    pack = pack_folder("cookies", tree)
    assert pack.text == expected.text
    assert pack.notes == ("the index of the folder was damaged and has been rebuilt",)
    assert files(cache) == ["2.sqlite"]
    assert pack_folder("cookies", tree).notes == ()


def test_without_a_cache_folder_the_index_is_in_memory(tmp_path: Path, tree: Path) -> None:
    write(tmp_path, {"cache": "a file"})
    pack = pack_folder("cookies", tree)
    assert paths(pack) == ["a.py"]
    assert "built in memory" in pack.notes[0]


def test_an_index_locked_too_long_is_built_in_memory(cache: Path, tree: Path) -> None:
    def find(index: TreeIndex) -> list[str]:
        index.refresh(tree, listed(tree), progress=lambda *_: None)
        return sorted(index.search(IndexQuery("cookies")))

    pack_folder("cookies", tree)
    write(tree, {"b.py": "cookies"})
    [file] = (cache / "indexes").glob("*.sqlite")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        indexes = IndexCache(cache, lock_timeout_s=0.05)
        assert indexes.use(tree, generated=False, hidden=False, work=find) == ["a.py", "b.py"]
    assert "built in memory" in indexes.notes[0]
    assert files(cache) == ["1.sqlite"]


def test_errors_of_the_callback_do_not_count_as_damage(tmp_path: Path, tree: Path) -> None:
    def work(_: TreeIndex) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        IndexCache(tmp_path / "cache").use(tree, generated=False, hidden=False, work=work)


def test_the_cache_folder_follows_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "llm-common"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert default_cache_dir() == tmp_path / ".cache/llm-common"
    monkeypatch.setattr("sys.platform", "darwin")
    assert default_cache_dir() == tmp_path / "Library/Caches/llm-common"


def test_a_missing_home_folder_names_the_variable_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_user(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", no_such_user)
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
        default_cache_dir()


def test_a_cache_folder_of_another_user_is_not_used(
    cache: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "indexes").mkdir(parents=True)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    pack = pack_folder("cookies", tree)
    assert paths(pack) == ["a.py"]
    assert files(cache) == []
    assert "(PermissionError), so it was built in memory" in pack.notes[0]
