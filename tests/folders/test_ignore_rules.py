"""Test that rules of `.gitignore` files match as in git, and in linear time."""

import re
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import assume, given, strategies as st

from llm_common.text.ignore_rules import IgnoreRules
from tests.folders.tree import git

PARTS = ["a", "b", "ab", "aab", "b.c", "!x", "a b", "#a", "*", "[", "-", "]"]
PATHS = [
    *PARTS,
    *(f"{first}/{second}" for first in PARTS[:5] for second in PARTS[:6]),
    *(
        f"{first}/{second}/{third}"
        for first in PARTS[:3]
        for second in PARTS[:4]
        for third in PARTS[:4]
    ),
]
PIECES = [
    *"aaabbb",
    "*",
    "*",
    "**",
    "/",
    "/",
    "/**/",
    "?",
    "[ab]",
    "[!a]",
    "[a-b]",
    "[]-]",
    ".",
    "\\",
    "\\*",
    " ",
    "#",
]
QUIRK = re.compile(r"[^*/]\*\*")
PIECES += [
    "!",
    "[",
    "[[:alpha:]]",
    "[^b-a]",
    "[b-a]",
    "\\ ",
    "**/",
    "***",
    "-",
    "[!]a]",
    "[[:no:]]",
    "[\\]]",
    "]",
]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    git(folder, "init", "-q")
    return folder


def verdicts_of_git(checkout: Path, rules: str, paths: list[str]) -> dict[str, bool | None]:
    """Return the verdict of the last rule that matches the path, as git reports it."""
    (checkout / ".gitignore").write_text(rules)
    command = [
        "git",
        "-C",
        str(checkout),
        "check-ignore",
        "--no-index",
        "-v",
        "-n",
        "-z",
        "--stdin",
    ]
    result = subprocess.run(
        command, input="\0".join(paths), capture_output=True, text=True, check=False
    )
    fields = result.stdout.split("\0")[:-1]
    found = zip(fields[2::4], fields[3::4], strict=True)
    return {path: None if not rule else not rule.startswith("!") for rule, path in found}


def verdict(rules: IgnoreRules, path: str) -> bool | None:
    """Return git's verdict for a path: that of its outermost ignored folder, else its own."""
    folders = [path[:place] for place, char in enumerate(path, start=1) if char == "/"]
    return next((True for folder in folders if rules.verdict(folder)), rules.verdict(path))


# git reads a `**` that follows plain text as any depth, against its documentation: not generated.
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join))
def test_a_rule_matches_the_same_paths_as_in_git(checkout: Path, rule: str) -> None:
    assume(not QUIRK.search(rule))
    rules = IgnoreRules(f"{rule}\n")
    assert {path: verdict(rules, path) for path in PATHS} == verdicts_of_git(
        checkout, f"{rule}\n", PATHS
    )


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("*.log\n!keep.log\n", "keep.log", False),
        ("!keep.log\n*.log\n", "keep.log", True),
        ("*.log\n!keep.log\n*.log\n", "keep.log", True),
        ("*.log\n", "a.txt", None),
        ("\ufeffa\n", "a", True),
        ("a\r\nb\r\n", "a", True),
        ("a\x0cb\n", "a", None),
        ("# a\n\\#a\n", "#a", True),
        ("# a\n", "# a", None),
        ("\n \n", "a", None),
        ("a   \n", "a", True),
        ("a\\ \n", "a ", True),
        ("a\\\\ \n", "a\\", True),
        ("out/\n", "out/", True),
        ("out/\n", "out", None),
        ("out\n", "deep/out/", True),
        ("/out\n", "deep/out/", None),
        ("deep/out\n", "a/deep/out", None),
        ("doc/*.txt\n", "doc/a/b.txt", None),
        ("doc/**/b.txt\n", "doc/b.txt", True),
        ("doc/**\n", "doc", None),
        ("**/doc/x\n", "a/b/doc/x", True),
        ("x/**/m/**/y\n", "x/1/m/2/m/3/y", True),
        ("x/**/m/n/**/y\n", "x/m/1/m/n/y", True),
        ("a[+-9]b\n", "a/b", None),
        ("[[:upper:][:digit:]_]\n", "_", True),
        ("[[:upper:][:digit:]_]\n", "a", None),
        ("[b-a]\n", "b", True),
        ("[b-a]\n", "a", None),
        ("[[:nothing:]]\n", "n", None),
        ("[a\n", "[a", None),
        ("a\\\n", "a", None),
        ("/\n", "a", None),
        ("!\n", "a", None),
        ("*a*a*b*\n", "xaxaxbx", True),
        ("*ab*ab\n", "abab", True),
        ("*ab*ab\n", "ab", None),
        ("a\\\\ \n", "a\\ ", None),
        ("a\\ \n", "a", None),
        ("b\\\\\\ \n", "b\\ ", True),
        ("b\\\\\\ \n", "b\\", None),
        ("folder/**\n", "folder/x/y", True),
        ("folder/**/y\n", "folder/x/z/y", True),
        ("folder/**/y\n", "folder/x", None),
        ("a?c\n", "abc", True),
        ("a?c\n", "a/c", None),
        ("[!a]b\n", "cb", True),
        ("[!a]b\n", "ab", None),
        ("*.log\n!keep.log\nkeep.log/\n# !a.log\n\n", "a.log", True),
        ("*.log\n!keep.log\nkeep.log/\n# !a.log\n\n", "keep.log", False),
        ("*.log\n!keep.log\nkeep.log/\n# !a.log\n\n", "keep.log/", True),
        (f"{'a' * 4096}\n", "a" * 4096, True),
        (f"{'a' * 4097}\n", "a" * 4097, None),
    ],
)
def test_lines_are_read_as_rules(text: str, path: str, expected: bool | None) -> None:
    assert IgnoreRules(text).verdict(path) is expected


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ("*a*a*a*a*a*a*b", "a" * 100),
        ("*?*?*?*?*?*?*?*b", "a" * 255),
        ("*[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*b", "a" * 255),
        ("*" + "a*" * 500 + "b", "a" * 255),
        ("**/a/**/a/**/a/**/a/**/a/**/b", "a/" * 500 + "a"),
        ("/**/*a*a/**/*a*a/**/*a*a/**/b", "aaaa/" * 200 + "a"),
        ("[" * 4000, "a"),
        ("[[:a:]" * 600, "a"),
        ("\\" * 4001, "a"),
        (" " * 4000 + "x", "a"),
    ],
)
def test_every_rule_is_fast_f_163(rule: str, path: str) -> None:
    begin = time.thread_time()
    assert IgnoreRules(f"{rule}\n").verdict(path) is None
    assert time.thread_time() - begin < 1
