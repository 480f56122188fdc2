import random
import time

import pytest
from hypothesis import given, strategies as st

from llm_common.context.intent import classify_intent
from llm_common.context.mentions import MentionFinder, mentioned_files
from llm_common.context.pool import ContextFile
from llm_common.context.request import ContextSelectionRequest


def file(path: str, name: str | None = None) -> ContextFile:
    return ContextFile(id=path, path=path, name=path.rpartition("/")[2] if name is None else name, content="")


def named(text: str, *paths: str) -> list[str]:
    return sorted(MentionFinder(file(path) for path in paths).find(text))


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_a_file_is_mentioned_by_path_or_name_in_any_case_s1_09(text: str) -> None:
    assert named(text, "src/config.ts") == ["src/config.ts"]


@pytest.mark.parametrize(
    "text",
    ["", "config", "myconfig.ts", "my-config.ts", "x.config.ts", "config.tsx", "config.ts.bak", "config.ts-old",
     "config.ts~", "config.ts/", "lib/config.ts", "other/src/../config.ts"],
)  # fmt: skip
def test_a_name_within_a_longer_one_is_no_mention_s1_09(text: str) -> None:
    assert named(text, "src/config.ts") == []


def test_a_path_means_the_files_that_it_fits_best_s1_09() -> None:
    paths = ("a.py", "lib/a.py", "src/lib/a.py", "src/a.py")
    assert named("a.py", *paths) == sorted(paths)
    assert named("lib/a.py", *paths) == ["lib/a.py", "src/lib/a.py"]
    assert named("/home/src/a.py", *paths) == ["src/a.py"]
    assert named("doc/a.py", *paths) == ["a.py"]


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
def test_odd_names_are_neither_patterns_nor_words_f_141(name: str, text: str, *, expected: bool) -> None:
    assert bool(named(text, name)) is expected


def test_the_name_counts_where_it_differs_from_the_path() -> None:
    finder = MentionFinder([file("blobs/3f2a", name="report.pdf")])
    assert finder.find("summarize report.pdf") == {"blobs/3f2a"}


def test_hints_count_as_mentions_s1_09() -> None:
    request = ContextSelectionRequest(
        intent=classify_intent("explain b.py"), token_budget=500, priority_hints=("src/a.py", "build")
    )
    files = [file(path) for path in ("src/a.py", "b.py", "c.py", "tools/build")]
    assert mentioned_files(files, request) == {"src/a.py", "b.py", "tools/build"}


def test_a_long_text_and_many_files_take_one_pass() -> None:
    rng = random.Random(1)
    files = [file(f"src/package-{number % 20}/module-{number}.py") for number in range(1_000)]
    words = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(5_000)]
    text = " ".join(rng.choices(words, k=140_000)) + " module-7.py"
    started = time.perf_counter()
    assert MentionFinder(files).find(text) == {"src/package-7/module-7.py"}
    assert time.perf_counter() - started < 1.0


@given(st.text(st.sampled_from("aB1._-/ ()*+\\é字"), max_size=12), st.text(max_size=20), st.text(max_size=20))
def test_any_name_in_any_text_is_looked_for_without_error_f_141(name: str, before: str, after: str) -> None:
    assert MentionFinder([file(name)]).find(f"{before} {name} {after}") <= {name}


@given(
    st.from_regex(r"[a-z]{1,8}(/[a-z]{1,8}){0,3}\.(py|ts|md)", fullmatch=True),
    st.sampled_from([" ", "\n", "(", "'", '"', ","]),
)
def test_an_ordinary_path_between_boundaries_is_always_found_s1_09(path: str, boundary: str) -> None:
    assert named(f"see{boundary}{path}{boundary}and so on", path) == [path]
    assert named(f"see{boundary}{path.rpartition('/')[2].upper()}{boundary}and so on", path) == [path]
