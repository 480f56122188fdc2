import time

import pytest

from llm_common.context.mentions import excluded_items
from llm_common.context.pool import ContextFile, DataPoolSnapshot
from tests.context.samples import PROJECT, memory, output, turn


def excluded(path: str, *patterns: str) -> bool:
    pool = DataPoolSnapshot(context_files=(ContextFile(id="#1", path=path, name=path.rpartition("/")[2], content=""),))
    return excluded_items(pool, patterns) == {("file", "#1")}


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.lock", "a/b/poetry.lock", True),
        ("*.lock", "a.locked", False),
        ("node_modules", "web/node_modules/x/y.js", True),
        ("node_modules/", "web/node_modules/x/y.js", True),
        ("/build", "build/a.py", True),
        ("/build", "src/build/a.py", False),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**", "src/deep/a.py", True),
        ("src/**/*.py", "src/a.py", True),
        ("**/tests/*.py", "a/b/tests/c.py", True),
        ("**/**/a.py", "x/y/a.py", True),
        ("./src", "src/a.py", True),
        ("secrets.env", "SECRETS.ENV", True),
        ("[!a].py", "b.py", True),
        ("a+b(.py", "a+b(.py", True),
        ("[", "a.py", False),
        ("", "a.py", False),
        ("/", "a.py", False),
        ("#1", "a.py", True),
        ("**", "a.py", True),
        (r"src\*.py", "src/a.py", True),
    ],
)
def test_a_pattern_covers_paths_as_in_a_gitignore_s1_09(pattern: str, path: str, *, expected: bool) -> None:
    assert excluded(path, "no-such-thing", pattern) is expected


def test_other_items_are_excluded_by_their_id_s1_09() -> None:
    pool = DataPoolSnapshot(
        session_log=(turn(1, "x"), turn(2, "x")),
        memory_hits=(memory(1, "x"),),
        tool_outputs=(output(1),),
        project_state=PROJECT,
    )
    assert excluded_items(pool, ("t0001", "m*", "0*1", "weather")) == {
        ("turn", "t0001"),
        ("memory", "m1"),
        ("output", "000000000001"),
        ("project", "weather"),
    }
    assert excluded_items(pool, ()) == frozenset()


def test_a_hostile_pattern_ends_soon() -> None:
    started = time.perf_counter()
    assert not excluded("a" * 5_000, "*a" * 20 + "b")
    assert not excluded("/".join("a" * 30), "**/a/" * 4 + "b")
    assert time.perf_counter() - started < 1.0
