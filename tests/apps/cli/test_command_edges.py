"""What commands print and how they end, at their edges."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore
from llm_common.errors import install_command
from tests.apps.cli.running import run, run_json

SERVERS = {"local": {"command": "git-server"}, "far": {"url": "https://mcp.example/mcp"}}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return tmp_path


def put(path: Path, servers: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return path


def test_a_logout_without_a_login_ends_with_3(home: Path) -> None:
    config = put(home / "mcp.json", SERVERS)
    result = run("gateway", "logout", "far", "-c", config, code=3)
    assert result.stderr == "There is no login to far.\n"
    assert "Logged out" not in result.output


@pytest.mark.parametrize("command", ["login", "logout"])
@pytest.mark.parametrize("name", ["local", "absent"])
def test_only_servers_with_an_address_have_a_login(command: str, name: str, home: Path) -> None:
    put(home / ".config/llm-common/gateway/claude.json", SERVERS)
    message = run("gateway", command, name, code=2).stderr
    assert "Servers with an address: far. Choose one" in message
    assert ("needs no login" in message) == (name == "local")
    empty = put(home / "empty.json", {})
    assert (
        "Servers with an address: none."
        in run("gateway", command, name, "-c", empty, code=2).stderr
    )


def test_an_install_tells_what_to_do_next(home: Path) -> None:
    put(home / ".claude.json", SERVERS)
    lines = run("gateway", "install", "claude-code").stderr.splitlines()
    assert "local moved to the gateway" in lines
    assert [line for line in lines if "llm-common gateway login far --config" in line]
    assert lines[-1].startswith("Restart claude-code. ")
    assert run("gateway", "install", "claude-code").stderr == "Nothing to change.\n"
    back = run("gateway", "uninstall", "claude-code").stderr
    assert "local moved back" in back
    assert "Restart" not in back


def test_nothing_waits_for_approval(home: Path) -> None:
    config = put(home / "mcp.json", {})
    result = run("gateway", "approve", "-c", config, "--folder", home / "gateway")
    assert result.stderr == "Nothing waits for approval.\n"


async def test_an_erasure_lists_the_ids_in_order(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename")
    ids = []
    for number in range(12):
        saved = await store.save(query_id="q", tool_name="t", args={"n": number}, result="x")
        ids.append(saved.pointer_id)
    document = run_json("context erase", "q", "--dry-run", "--store", tmp_path)
    [query] = document["queries"]
    assert query["pointers"] == sorted(ids)


MISSING = """
import sys
sys.modules[{module!r}] = None
from llm_common.apps.cli import main
main()
"""


def without(module: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where a module cannot be imported."""
    return subprocess.run(
        [sys.executable, "-c", MISSING.format(module=module), *arguments],
        cwd=folder,
        env=os.environ | {"COLUMNS": "300"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "extra", "command"),
    [
        ("typer", "cli", "--help"),
        ("rich", "cli", "--help"),
        ("uvicorn", "inspect", "inspect --store ."),
        ("mcp", "mcp", "gateway -c mcp.json"),
        ("mcp_types", "mcp", "gateway doctor -c mcp.json"),
        ("mcp_types", "mcp", "tools list mcp.json"),
    ],
    ids=["all", "colours", "inspect", "gateway", "doctor", "tools"],
)
def test_a_command_without_its_extra_says_how_to_get_it(
    module: str, extra: str, command: str, tmp_path: Path
) -> None:
    put(tmp_path / "mcp.json", SERVERS)
    result = without(module, *command.split(), folder=tmp_path)
    assert result.returncode == 2
    assert f"needs {module}: {install_command(extra)}\n" in result.stderr


def test_only_a_package_of_an_extra_is_named_as_missing(tmp_path: Path) -> None:
    result = without("llm_common.apps.cli.terminal", "--help", folder=tmp_path)
    assert result.returncode == 1
    assert "llm-common needs" not in result.stderr


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "llm_common", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == run("--version").stdout
