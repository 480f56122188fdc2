"""`.env.example` and the README's table say what `VARIABLES` says."""

from pathlib import Path

import pytest

from llm_common._env import VARIABLES, Variable

ROOT = Path(__file__).parent.parent


def example_of(variable: Variable) -> str:
    return f"# {variable.meaning[0].upper()}{variable.meaning[1:]}.\n# {variable.name}={variable.default}"


def row_of(variable: Variable) -> str:
    default = f"`{variable.default}`" if variable.default else "unset"
    return f"| `{variable.name}` | {default} | {variable.meaning} |"


def test_the_example_file_shows_every_variable_with_its_default_and_meaning() -> None:
    head, *blocks = (ROOT / ".env.example").read_text(encoding="utf-8").strip().split("\n\n")
    assert head.startswith("#")
    assert blocks == [example_of(variable) for variable in VARIABLES]


def test_the_readme_table_lists_every_variable_with_its_default_and_meaning() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    _, heading, rest = readme.partition("\n## Settings\n")
    assert heading, "the README has no section of that name"
    rows = [line for line in rest.split("\n## ")[0].splitlines() if line.startswith("| `")]
    assert rows == [row_of(variable) for variable in VARIABLES]


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_a_secret_has_no_default(variable: Variable) -> None:
    assert not (variable.secret and variable.default)
