"""Test where indexes are kept, and that damaged ones never stop the work."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from llm_common._env import default_cache_dir
from llm_common.errors import ConfigError
from llm_common.folders.tree_index import IndexCache, IndexQuery, TreeIndex
from tests.folders.tree import listed, write


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"a.py": "def cookies(): ...\n"})


def search(indexes: IndexCache, tree: Path, *, hidden: bool = False) -> list[str]:
    def work(index: TreeIndex) -> list[str]:
        index.refresh(tree, listed(tree), progress=lambda *_: None)
        return [hit.key for hit in index.search(IndexQuery("cookies"))]

    return indexes.use(tree, generated=False, hidden=hidden, work=work)


def files(cache: Path) -> list[str]:
    return sorted(path.name.partition("-")[2] for path in (cache / "indexes").glob("*.sqlite"))


def test_each_folder_and_filter_has_its_own_index(tmp_path: Path, tree: Path) -> None:
    indexes = IndexCache(tmp_path / "cache")
    assert (
        search(indexes, tree)
        == search(indexes, tree)
        == search(indexes, tree, hidden=True)
        == ["a.py"]
    )
    assert search(indexes, write(tmp_path / "other", {"b.py": "cookies"})) == ["b.py"]
    assert files(tmp_path / "cache") == ["1.sqlite"] * 3
    assert stat.S_IMODE((tmp_path / "cache/indexes").stat().st_mode) == 0o700
    assert indexes.notes == []


@pytest.mark.parametrize("damage", ["text", "zeros", "middle", "table"])
def test_a_damaged_index_is_rebuilt_with_a_note(tmp_path: Path, tree: Path, damage: str) -> None:
    search(IndexCache(tmp_path / "cache"), tree)
    file = next((tmp_path / "cache/indexes").glob("*.sqlite"))
    content = file.read_bytes()
    if damage == "table":
        with sqlite3.connect(file) as connection:
            connection.execute("DROP TABLE files")
            connection.execute("CREATE TABLE files (path)")
        connection.close()
    else:
        half = content[:4096] + b"\xff" * (len(content) - 4096)
        file.write_bytes(
            {"text": b"text" * 999, "zeros": bytes(len(content)), "middle": half}[damage]
        )
    indexes = IndexCache(tmp_path / "cache")
    assert search(indexes, tree) == ["a.py"]
    assert indexes.notes == ["the index of the folder was damaged and has been rebuilt"]
    assert files(tmp_path / "cache") == ["2.sqlite"]
    assert search(later := IndexCache(tmp_path / "cache"), tree) == ["a.py"]
    assert later.notes == []


def test_without_a_cache_folder_the_index_is_in_memory(tmp_path: Path, tree: Path) -> None:
    write(tmp_path, {"cache": "a file"})
    indexes = IndexCache(tmp_path / "cache")
    assert search(indexes, tree) == ["a.py"]
    assert "built in memory" in indexes.notes[0]


def test_an_index_locked_too_long_is_built_in_memory(tmp_path: Path, tree: Path) -> None:
    search(IndexCache(tmp_path / "cache"), tree)
    write(tree, {"b.py": "cookies"})
    file = next((tmp_path / "cache/indexes").glob("*.sqlite"))
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    indexes = IndexCache(tmp_path / "cache", lock_timeout_s=0.05)
    assert sorted(search(indexes, tree)) == ["a.py", "b.py"]
    other.close()
    assert "built in memory" in indexes.notes[0]
    assert files(tmp_path / "cache") == ["1.sqlite"]


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
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache/indexes").mkdir(parents=True)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    indexes = IndexCache(tmp_path / "cache")
    assert search(indexes, tree) == ["a.py"]
    assert files(tmp_path / "cache") == []
    assert "(PermissionError), so it was built in memory" in indexes.notes[0]
