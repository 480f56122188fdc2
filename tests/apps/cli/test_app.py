"""The version, help and options of `llm-common`."""

import pytest
from typer.testing import CliRunner

import llm_common
from llm_common.apps.cli.app import app


def test_the_version_is_the_packages_own() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"llm-common {llm_common.__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["context"], ["memory"], ["tools"], ["trace"]])
def test_a_group_without_arguments_shows_its_help_and_ends_with_0(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Usage" in result.stdout
