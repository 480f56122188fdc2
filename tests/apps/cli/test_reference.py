"""Rules for all commands: their page, documents and exit codes, and the shell."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from llm_common.apps.cli.app import app
from llm_common.apps.cli.terminal import ExitCode
from tests.apps.cli.running import DOCS, run
from tools import cli_reference

REFRESH = "run python tools/cli_reference.py, and review the change"


def commands(command: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*names, name))
    if not hasattr(command, "commands"):
        yield " ".join(names), command


COMMANDS = dict(commands(typer.main.get_command(app)))
# They write pages, change files of a host, or log in and out.
WITHOUT_DOCUMENT = {"inspect", "trace export"} | {
    f"gateway {name}" for name in ("approve", "install", "uninstall", "login", "logout")
}


def test_the_pages_are_made_from_the_help() -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in (DOCS / "cli").glob("*.md")}
    pages[DOCS / "cli.md"] = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert cli_reference.pages() == pages, REFRESH


def test_every_command_prints_a_document() -> None:
    with_json = {
        name
        for name, command in COMMANDS.items()
        if any("--json" in option.opts for option in command.params)
    }
    assert with_json == {*COMMANDS} - WITHOUT_DOCUMENT


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_is_explained(name: str) -> None:
    assert COMMANDS[name].help
    assert not [
        option.name for option in COMMANDS[name].params if not getattr(option, "help", None)
    ]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_names_no_type_of_python_for_an_option(name: str) -> None:
    options = re.findall(r"^│ *(--?[a-z].*)", run(*name.split(), "--help").stdout, re.MULTILINE)
    assert any(line.startswith("--help") for line in options)
    assert not [line for line in options if re.search(r"<(?:bool|int|str|float|path|list)\b", line)]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_help_ends_with_an_example_whose_options_exist(name: str) -> None:
    command = COMMANDS[name]
    lines = re.findall(r"`llm-common ([^`]+)`", command.epilog or "")
    assert lines
    options = {option for each in command.params for option in each.opts}
    for line in lines:
        assert line.startswith(name)
        words = shlex.split(line)
        assert {word for word in words if word.startswith("-")} <= options


def test_exit_codes_are_on_the_page() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    assert all(f"| {code.value} | {cli_reference.MEANINGS[code]} |" in page for code in ExitCode)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("context list --store empty", 3),
        ("context list --store absent", 3),
        ("context verify --store a.json/store", 3),
        ("context search x --store empty --in elsewhere", 2),
        ("memory list absent", 3),
        ("memory list a.json", 1),
        ("tools list absent", 2),
        ("tools list a.json", 2),
        ("tools rank tools.json zebra", 3),
        ("tools check tools.json", 0),
        ("trace show absent", 2),
        ("trace show a.json", 2),
        ("trace show empty", 2),
        ("gateway -c absent", 2),
        ("gateway doctor -c a.json", 2),
        ("pack zebra empty", 3),
        ("pack zebra absent", 2),
        ("demo --output a.json", 2),
        ("inspect --store absent", 2),
    ],
)
def test_a_code_means_the_same_for_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.json").write_text('{"no": "such thing"}')
    (tmp_path / "tools.json").write_text(
        '[{"name": "weather", "description": "Tells it.", "parameters": {}}]'
    )
    result = run(*arguments.split(), code=code)
    assert result.stderr or code == 0


def test_the_shell_completes_commands() -> None:
    def completed(words: str) -> set[str]:
        variables = {"_LLM_COMMON_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": words}
        output = CliRunner().invoke(app, [], env=variables, prog_name="llm-common").stdout
        return {word for word in ("context", "memory", "verify") if word in output}

    assert completed("llm-common ") >= {"context", "memory"}
    assert completed("llm-common context ver") == {"verify"}
