"""What `llm-common gateway` says before it serves; `tests/mcp` has the serving."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from llm_common.cli.app import app


@pytest.mark.parametrize("command", [[], ["status"], ["doctor"]])
def test_help_is_at_hand(command: list[str]) -> None:
    result = CliRunner().invoke(app, ["gateway", *command, "--help"], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "--folder" in result.stdout or "--config" in result.stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "name the file with your servers: --config FILE"),
        ("{", "is not JSON"),
        ('{"mcpServers": {"a": {"command": "${NOT_SET_ANYWHERE}"}}}', "variable NOT_SET_ANYWHERE, which is not set"),
    ],
)
@pytest.mark.parametrize("command", [[], ["doctor"]])
def test_a_wrong_configuration_ends_with_2(command: list[str], text: str | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text or "", encoding="utf-8")
    arguments = ["gateway", *command, *(["-c", str(path)] if text else [])]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "400"})
    assert result.exit_code == 2
    assert said in result.output


def test_without_its_extra_it_says_how_to_get_it(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}', encoding="utf-8")
    program = "import sys; sys.modules['mcp'] = None; from llm_common.cli import main; main()"
    command = [sys.executable, "-c", program, "gateway", "-c", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={"COLUMNS": "200"})
    assert result.returncode == 2
    assert "pip install 'llm-common[mcp]'" in result.stderr
