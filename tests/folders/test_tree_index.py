"""Test the ranking and the updates of `TreeIndex`."""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llm_common.errors import ConfigError
from llm_common.folders.tree_index import IndexQuery, TreeIndex
from tests.folders.tree import listed, write, write_old

FILES = {
    "src/cookies.py": "class CookieJar:\n    def expire(self): ...\n",
    "src/server.py": "def serve(port):\n    return listen(port)\n",
    "docs/readme.md": "# Cookies\nCookies expire. A server serves.\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write_old(tmp_path / "tree", FILES)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[TreeIndex]:
    with closing(TreeIndex(tmp_path / "tree.sqlite")) as index:
        yield index


def refresh(index: TreeIndex, tree: Path) -> int:
    return len(index.refresh(tree, listed(tree), progress=lambda *_: None))


def found(index: TreeIndex, query: str) -> list[str]:
    return [*index.search(IndexQuery(query))]


def test_files_are_ranked_by_content_path_and_symbols(index: TreeIndex, tree: Path) -> None:
    assert refresh(index, tree) == 3
    assert found(index, "when do cookies expire?") == ["src/cookies.py", "docs/readme.md"]
    assert found(index, "cookie jar")[0] == "src/cookies.py"
    assert found(index, "listening")[0] == "src/server.py"
    assert found(index, "the of") == found(index, "nowhere") == []


def test_a_file_that_answers_one_sentence_comes_before_one_with_a_word_of_each(
    index: TreeIndex, tmp_path: Path
) -> None:
    texts = {
        "of-each.md": "card branch deposit\n",
        "of-one.md": "deposit salary page\n",
        "other.md": "nothing of these\n",
    }
    assert refresh(index, write(tmp_path / "bank", texts)) == 3
    question = (
        "My card is lost.\n\nIs the branch open on a holiday? The deposit of my salary is late."
    )
    assert found(index, question)[0] == "of-one.md"
    # In one sentence, the file with more of its words is first.
    assert found(index, question.replace(".", ",").replace("?", ","))[0] == "of-each.md"


def test_a_question_of_a_million_sentences_is_read_in_time_that_has_a_limit() -> None:
    query = IndexQuery("I. Is card lost? A. B. The branch? " * 30_000)
    assert len(query.sentences) < 10
    pairs = "".join(f"Pair {first} {second}. " for first in range(10) for second in range(10))
    assert len(IndexQuery(pairs + pairs.replace("Pair", "Couple")).sentences) == 128


def test_changed_new_and_removed_files_update_the_index(index: TreeIndex, tree: Path) -> None:
    refresh(index, tree)
    write(tree, {"src/server.py": "def wait(): ...\n", "src/new.py": "def fresh(): ...\n"})
    (tree / "docs/readme.md").unlink()
    assert refresh(index, tree) == 2
    assert found(index, "listen serve") == []
    assert found(index, "fresh") == ["src/new.py"]
    assert found(index, "cookies") == ["src/cookies.py"]


def test_a_touched_file_is_read_but_not_indexed_again(index: TreeIndex, tree: Path) -> None:
    refresh(index, tree)
    scores = index.search(IndexQuery("listen server"))
    os.utime(tree / "src/server.py", (2_000_000, 2_000_000))
    assert refresh(index, tree) == 1
    assert refresh(index, tree) == 0
    assert index.search(IndexQuery("listen server")) == scores


def test_a_change_of_equal_size_within_a_tick_is_noticed(index: TreeIndex, tree: Path) -> None:
    write(tree, {"a.py": "alpha"})
    now = time.time_ns()
    os.utime(tree / "a.py", ns=(now, now))
    refresh(index, tree)
    write(tree, {"a.py": "gamma"})
    os.utime(tree / "a.py", ns=(now, now))
    refresh(index, tree)
    assert found(index, "gamma") == ["a.py"]


def test_an_index_of_many_changes_scores_like_a_new_one(index: TreeIndex, tree: Path) -> None:
    write(tree, {f"many/{number}.txt": "listen to cookies" for number in range(1_100)})
    refresh(index, tree)
    shutil.rmtree(tree / "many")
    for _ in range(2):
        refresh(index, tree)
    with closing(TreeIndex(None)) as new:
        refresh(new, tree)
        assert index.search(IndexQuery("listen to cookies")) == new.search(
            IndexQuery("listen to cookies")
        )


def test_unsearched_files_are_counted_with_their_reason(index: TreeIndex, tree: Path) -> None:
    write(tree, {"a.bin": b"\0", "big.txt": b"x" * (1024 * 1024 + 1), "g.py": "# @generated\n"})
    refresh(index, tree)
    assert index.skip_reasons() == {"a.bin": "binary", "big.txt": "too large", "g.py": "generated"}
    write(tree, {"a.bin": "cookies"})
    refresh(index, tree)
    assert "a.bin" in found(index, "cookies")


def test_only_the_owner_can_read_the_index(index: TreeIndex, tree: Path, tmp_path: Path) -> None:
    refresh(index, tree)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("tree.sqlite*")} == {0o600}


def test_a_query_is_never_syntax(index: TreeIndex, tree: Path) -> None:
    refresh(index, tree)
    assert found(index, 'cookies" OR * NEAR( paths : -^') != []


@pytest.mark.parametrize(
    ("processes", "files"),
    [(2, 250), pytest.param(6, 2_000, marks=pytest.mark.torture)],
    ids=["short", "long"],
)
def test_processes_build_one_index_together(tmp_path: Path, processes: int, files: int) -> None:
    tree = write(
        tmp_path / "many", {f"f{number}.txt": f"word{number} shared" for number in range(files)}
    )
    program = (
        "import sys; from contextlib import closing; from pathlib import Path\n"
        "from llm_common.folders.tree_index import "
        "IndexQuery, TreeIndex\n"
        "from tests.folders.tree import listed\n"
        "tree = Path(sys.argv[1])\n"
        "with closing(TreeIndex(Path(sys.argv[2]))) as index:\n"
        "    index.refresh(tree, listed(tree), progress=lambda *_: None)\n"
        "    print(len(index.search(IndexQuery('shared'))))\n"
    )
    command = [sys.executable, "-c", program, str(tree), str(tmp_path / "shared.sqlite")]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == [
        str(files)
    ] * processes
    with closing(TreeIndex(tmp_path / "shared.sqlite")) as index:
        assert len(index.search(IndexQuery("shared"))) == files


def test_a_sqlite_without_fts5_is_a_configuration_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutFts5(sqlite3.Connection):
        def execute(self, sql: str, parameters: object = (), /) -> sqlite3.Cursor:
            raise sqlite3.OperationalError("no such module: fts5")

    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: connect(*args, **options, factory=WithoutFts5)
    )
    with pytest.raises(ConfigError, match="no FTS5") as caught:
        TreeIndex(None)
    assert caught.value.value == sqlite3.sqlite_version
