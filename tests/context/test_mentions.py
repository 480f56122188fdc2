import random

import pytest
from hypothesis import given, strategies as st

from llm_common.context import (
    ContextFile,
    ContextSelectionRequest,
    DataPoolSnapshot,
    classify_intent,
)
from llm_common.context.mentions import (
    excluded_items,
    files_named_in,
    is_code,
    is_test,
    mentioned_files,
)
from tests.context.samples import PROJECT, memory, output, turn


def file(path: str, name: str | None = None) -> ContextFile:
    return ContextFile(
        id=path, path=path, name=path.rpartition("/")[2] if name is None else name, content=""
    )


def mentioned_paths(text: str, *paths: str) -> list[str]:
    return sorted(files_named_in(text, map(file, paths)))


@pytest.mark.parametrize(
    ("text", "is_mentioned"),
    [
        *(
            (text, True)
            for text in (
                "explain the code in config.ts",
                "config.ts",
                "CONFIG.TS please",
                "see (config.ts), then go on",
                "`config.ts`",
                "look at config.ts:12",
                "what is in config.ts?",
                "It is config.ts.",
                "@config.ts explain",
                "src/config.ts",
                "./src/config.ts",
                "/home/me/project/src/config.ts",
                r"src\config.ts",
                "https://example.com/blob/main/src/config.ts#L10",
                "config.ts's types",
                "解释config.ts的代码",
            )
        ),
        # a name within a longer name
        *(
            (text, False)
            for text in (
                *("", "config", "myconfig.ts", "my-config.ts", "x.config.ts", "config.tsx"),
                *("config.ts.bak", "config.ts-old", "config.ts@v2", "config.ts~", "config.ts/"),
                *("lib/config.ts", "other/src/../config.ts"),
            )
        ),
    ],
)
def test_a_file_is_mentioned_by_path_or_name_in_any_case_s1_09(
    text: str, *, is_mentioned: bool
) -> None:
    assert (mentioned_paths(text, "src/config.ts") == ["src/config.ts"]) is is_mentioned


def test_a_path_mentions_the_files_that_fit_it_best_s1_09() -> None:
    paths = ("a.py", "lib/a.py", "src/lib/a.py", "src/a.py")
    assert mentioned_paths("a.py", *paths) == sorted(paths)
    assert mentioned_paths("lib/a.py", *paths) == ["lib/a.py", "src/lib/a.py"]
    assert mentioned_paths("/home/src/a.py", *paths) == ["src/a.py"]
    assert mentioned_paths("doc/a.py", *paths) == ["a.py"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("", "anything at all", False),
        (".", "Wait. What. ?", False),
        ("..", "up .. and up", False),
        ("a", "write a function", False),
        ("a", "open `a` now", True),
        ("A", "write a function", False),
        ("build", "build the project", False),
        ("build", 'read "build"', True),
        ("bin/build", "run bin/build", True),
        ("Test", "test it", False),
        ("profile", "check the profile", False),
        ("README", "update the readme", True),
        ("Makefile", "fix the makefile", True),
        ("a+b(.py", "explain a+b(.py now", True),
        ("a+b(.py", "explain aab(.py", False),
        ("[x]*.py", "open [x]*.py", True),
        ("(.*)", "anything", False),
        ("\\", "a \\ b", False),
        ("my file.txt", "open my file.txt", True),
        ("old notes/my file.txt", "open old notes/my file.txt", True),
        ("old notes/my file.txt", "open new notes/my file.txt", False),
        (".gitignore", "edit .gitignore", True),
        (".gitignore", "edit x.gitignore", False),
        ("main.c", "main.c++", False),
        ("配置.py", "open 配置.py", True),
    ],
)
def test_special_characters_in_names_match_literally_f_141(
    name: str, text: str, *, expected: bool
) -> None:
    assert bool(mentioned_paths(text, name)) is expected


def test_a_name_that_differs_from_the_path_counts_too() -> None:
    files = [file("blobs/3f2a", name="report.pdf")]
    assert files_named_in("summarize report.pdf", files) == {"blobs/3f2a"}


def test_hints_count_as_mentions_s1_09() -> None:
    request = ContextSelectionRequest(
        intent=classify_intent("explain b.py"),
        token_budget=500,
        priority_hints=("src/a.py", "build"),
    )
    files = [file(path) for path in ("src/a.py", "b.py", "c.py", "tools/build")]
    assert mentioned_files(files, request) == {"src/a.py", "b.py", "tools/build"}


def test_one_of_many_files_is_found_in_a_long_text() -> None:
    rng = random.Random(1)
    files = [file(f"src/package-{index % 20}/module-{index}.py") for index in range(1_000)]
    words = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(5_000)]
    text = " ".join(rng.choices(words, k=140_000)) + " module-7.py"
    assert files_named_in(text, files) == {"src/package-7/module-7.py"}


@given(
    st.text(st.sampled_from("aB1._-/ ()*+\\é字"), max_size=12),
    st.text(max_size=20),
    st.text(max_size=20),
)
def test_any_name_can_be_searched_for_in_any_text_f_141(name: str, before: str, after: str) -> None:
    assert files_named_in(f"{before} {name} {after}", [file(name)]) <= {name}


@given(
    st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,3}\.(py|ts|md)", fullmatch=True),
    st.sampled_from([" ", "\n", "(", "'", '"', ","]),
)
def test_an_ordinary_path_between_boundaries_is_always_found_s1_09(
    path: str, boundary: str
) -> None:
    assert mentioned_paths(f"see{boundary}{path}{boundary}and so on", path) == [path]
    assert mentioned_paths(
        f"see{boundary}{path.rpartition('/')[2].upper()}{boundary}and so on", path
    ) == [path]


def excluded(path: str, *patterns: str) -> bool:
    pool = DataPoolSnapshot(
        context_files=(ContextFile(id="#1", path=path, name=path.rpartition("/")[2], content=""),)
    )
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
        ("*.ENV", "a/secrets.env", True),
        ("Secrets.*", "a/secrets.env", True),
        ("SECRETS.env", "a/secrets.env", True),
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
def test_a_pattern_covers_paths_as_in_a_gitignore_s1_09(
    pattern: str, path: str, *, expected: bool
) -> None:
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


def test_a_hostile_pattern_is_matched_quickly() -> None:
    assert not excluded("a" * 5_000, "*a" * 20 + "b")
    assert not excluded("/".join("a" * 200), "**/a/" * 20 + "b")


@pytest.mark.parametrize(
    ("path", "language", "expected"),
    [
        ("src/app.PY", None, True),
        ("Makefile", None, True),
        ("notes.md", "python", False),
        ("data.json", None, False),
        ("script", "Python", True),
        ("script", "text", False),
        ("script", None, False),
        (r"src\app.rs", None, True),
        ("", None, False),
        (".", None, False),
        ("v1.2", None, False),
    ],
)
def test_code_is_recognized_by_name_then_by_language(
    path: str, language: str | None, *, expected: bool
) -> None:
    assert is_code(path, language) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *(("tests/a.py", True), (r"Tests\A.cs", True), ("src/__tests__/a.ts", True)),
        *(("tests/agents/pool.py", True), ("pkg\\test\\pool.py", True), ("t/a.t", True)),
        *(("a_test.go", True), ("x/test_a.py", True), ("a.spec.ts", True), ("conftest.py", True)),
        *(("contest.py", False), ("contest/rules.md", False), ("latest/a.py", False)),
        *(("src/testing.py", False), ("src/spec_scoring.py", False), ("spec.md", False)),
        *(("attest_a.py", False), ("", False)),
    ],
)
def test_tests_are_recognized_by_folder_or_name(path: str, *, expected: bool) -> None:
    assert is_test(path) is expected


def matches(glob: list[str], parts: list[str]) -> bool:
    """Match a pattern by trying every way, as its definition reads."""
    if not glob:
        return True
    if glob[0] == "**":
        return any(matches(glob[1:], parts[skipped:]) for skipped in range(len(parts) + 1))
    return bool(parts) and glob[0] in ("*", parts[0]) and matches(glob[1:], parts[1:])


@given(
    st.lists(st.sampled_from(["**", "*", "a", "b"]), min_size=2, max_size=6),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=7),
)
def test_a_pattern_matches_as_the_plain_definition(glob: list[str], parts: list[str]) -> None:
    pool = DataPoolSnapshot(
        context_files=(file("/".join(parts), name="x").model_copy(update={"id": "x"}),)
    )
    expected = matches(glob, parts) or matches(glob, ["x"])
    assert bool(excluded_items(pool, ["/".join(glob)])) == expected
