"""The version, help and options of `llm-common`."""

import pytest

import llm_common
from tests.apps.cli.running import run


def test_the_version_is_the_packages_own() -> None:
    assert run("--version").stdout == f"llm-common {llm_common.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["-h"], ["context"], ["memory"], ["tools"], ["trace"]])
def test_a_group_without_arguments_shows_its_help_and_ends_with_0(arguments: list[str]) -> None:
    shown = run(*arguments)
    assert shown.stderr == ""
    assert "Usage" in shown.stdout
