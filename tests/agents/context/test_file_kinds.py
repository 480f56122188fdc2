import pytest

from llm_common.agents.context.file_kinds import is_code


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
