"""`.gitignore` files: rules mean what they mean to git, and none of them costs much time."""

import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from llm_common.folders.ignore_rules import IgnoreRules
from tests.folders.tree import git

PARTS = ["a", "b", "ab", "aab", "b.c", "!x", "a b", "#a", "*", "[", "-", "]"]
PATHS = [
    *PARTS,
    *(f"{first}/{second}" for first in PARTS[:5] for second in PARTS[:6]),
    *(f"{first}/{second}/{third}" for first in PARTS[:3] for second in PARTS[:4] for third in PARTS[:4]),
]
PIECES = [*"aaabbb", "*", "*", "**", "/", "/", "/**/", "?", "[ab]", "[!a]", "[a-b]", "[]-]", ".", "\\", "\\*", " ", "#"]
PIECES += ["!", "[", "[[:alpha:]]", "[^b-a]", "[b-a]", "\\ ", "**/", "***", "-", "[!]a]", "[[:no:]]", "[\\]]", "]"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    git(folder, "init", "-q")
    return folder


def verdicts_of_git(checkout: Path, rules: str, paths: list[str]) -> dict[str, bool | None]:
    """Of the last rule that matches the path itself, as git reports it."""
    (checkout / ".gitignore").write_text(rules)
    command = ["git", "-C", str(checkout), "check-ignore", "--no-index", "-v", "-n", "-z", "--stdin"]
    result = subprocess.run(command, input="\0".join(paths), capture_output=True, text=True, check=False)
    fields = result.stdout.split("\0")[:-1]
    found = zip(fields[2::4], fields[3::4], strict=True)
    return {path: None if not rule else not rule.startswith("!") for rule, path in found}
