"""The version, help and options of `llm-common`."""

import pytest
from typer.testing import CliRunner

import llm_common
from llm_common.apps.cli.app import app


def test_the_version_is_the_packages_own() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"llm-common {llm_common.__version__}\n")


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["demo", "--help"], ["pack", "--help"]])
def test_help_shows_the_usage(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage" in result.stdout


def test_help_names_every_option_of_the_demo() -> None:
    output = CliRunner().invoke(app, ["demo", "--help"], env={"COLUMNS": "120"}).stdout
    for text in ("--output", "--json", "LLM_COMMON_PROVIDER"):
        assert text in output
