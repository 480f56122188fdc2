"""Runs commands in process, and holds each document against the published schema."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
from typer.testing import CliRunner, Result

from llm_common.apps.cli.app import app

DOCS = Path(__file__).parents[3] / "docs"
SCHEMA = json.loads((DOCS / "cli.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


def run(*arguments: str | Path, code: int = 0, typed: str | None = None) -> Result:
    """The result of a command that ends with this code and without a traceback."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input=typed, env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def run_json(command: str, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """The document of a command, which fits its schema."""
    document: dict[str, Any] = json.loads(
        run(*command.split(), *arguments, "--json", code=code).stdout
    )
    check(command, document)
    return document


def check(command: str, document: object) -> None:
    """Fails unless the document fits the published schema of its command."""
    assert command in SCHEMA["properties"]
    problems = [error.message for error in VALIDATOR.iter_errors({command: document})]
    assert not problems
