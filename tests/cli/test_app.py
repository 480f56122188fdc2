"""`llm-common` itself: its version, its help, and what it says without its extras."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import llm_common
from llm_common.cli.app import app


def test_the_version_is_the_packages_own() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"llm-common {llm_common.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["demo", "--help"], ["pack", "--help"]])
def test_help_is_at_hand(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage" in result.stdout


def test_help_names_every_option_of_the_demo() -> None:
    shown = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "120"}).stdout
    for text in ("--query", "--budget", "--json", "--keep", "LLM_COMMON_PROVIDER"):
        assert text in shown


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_extras_it_says_how_to_get_them(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from llm_common.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", program, "demo"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == f"llm-common needs {missing}: run pip install 'llm-common[cli]'\n"


def test_a_broken_installation_is_not_taken_for_a_missing_extra() -> None:
    program = "import sys; sys.modules['pydantic'] = None; from llm_common.cli import main; main()"
    result = subprocess.run([sys.executable, "-c", program, "demo"], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "ModuleNotFoundError" in result.stderr
