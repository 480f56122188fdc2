import pytest

from llm_common.context.mentions import is_code, is_test


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
def test_code_is_told_by_name_then_by_language(path: str, language: str | None, *, expected: bool) -> None:
    assert is_code(path, language) is expected


@pytest.mark.parametrize(
    "path",
    [
        "tests/a.py",
        r"Tests\A.cs",
        "src/__tests__/a.ts",
        "a_test.go",
        "x/test_a.py",
        "a.spec.ts",
        "conftest.py",
        "t/a.t",
    ],
)
def test_tests_are_told_by_folder_or_name(path: str) -> None:
    assert is_test(path)


@pytest.mark.parametrize("path", ["contest.py", "latest/a.py", "src/testing.py", "spec.md", "attest_a.py", ""])
def test_other_names_are_no_tests(path: str) -> None:
    assert not is_test(path)
