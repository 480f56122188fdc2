"""`.env.example` and the page of settings say what `VARIABLES` says."""

import re
from pathlib import Path

import pytest

from llm_common._env import VARIABLES, Variable

ROOT = Path(__file__).parent.parent


def row_of(variable: Variable) -> str:
    default = f"`{variable.default}`" if variable.default else "unset"
    return f"| `{variable.name}` | {default} | {variable.meaning} |"


def test_the_example_file_documents_every_variable() -> None:
    head, *blocks = (ROOT / ".env.example").read_text(encoding="utf-8").strip().split("\n\n")
    assert head.startswith("#")
    assert blocks == [
        f"# {variable.meaning[0].upper()}{variable.meaning[1:]}.\n"
        f"# {variable.name}={variable.default}"
        for variable in VARIABLES
    ]


def test_the_settings_page_documents_every_variable() -> None:
    page = (ROOT / "docs" / "how-to" / "settings.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| `[A-Z_]+` \|", line)]
    assert rows == [row_of(variable) for variable in VARIABLES]


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_a_secret_has_no_default(variable: Variable) -> None:
    assert not (variable.secret and variable.default)
