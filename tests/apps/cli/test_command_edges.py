"""What commands print and how they end, at their edges."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore
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
    path = put(home / ".claude.json", SERVERS)
    before = path.read_text(encoding="utf-8")
    planned = run("gateway", "install", "claude-code", "--dry-run")
    assert "+" in planned.stdout
    assert "Restart" not in planned.stderr
    assert path.read_text(encoding="utf-8") == before
    shown = json.loads(run("gateway", "install", "claude-code", "--print").stdout)
    assert len(shown) == 1
    assert path.read_text(encoding="utf-8") == before
    lines = run("gateway", "install", "claude-code").stderr.splitlines()
    assert "local moved to the gateway" in lines
    assert [line for line in lines if "llm-common gateway login far --config" in line]
    assert lines[-1].startswith("Restart claude-code. ")
    again = run("gateway", "install", "claude-code").stderr
    assert again == "Nothing to change.\n"
    back = run("gateway", "uninstall", "claude-code").stderr
    assert "local moved back" in back
    assert "Restart" not in back


def test_nothing_waits_for_approval(home: Path) -> None:
    config = put(home / "mcp.json", {})
    result = run("gateway", "approve", "-c", config, "--folder", home / "gateway")
    assert result.stderr == "Nothing waits for approval.\n"


def test_parts_of_scores_are_in_the_document_only_on_request(home: Path) -> None:
    tree = home / "tree"
    tree.mkdir()
    (tree / "a.py").write_text("cookie = 1\n", encoding="utf-8")
    document = json.loads(run("pack", "cookie", tree, "--json").stdout)
    assert document["explain"] is None
    explained = json.loads(run("pack", "cookie", tree, "--json", "--explain").stdout)
    assert explained["explain"]
    assert "Left out" not in run("pack", "cookie", tree).stderr
    (tree / "b.png").write_bytes(b"\x89PNG\0cookie")
    assert "Left out: 1 " in run("pack", "cookie", tree).stderr


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


@pytest.mark.parametrize(("module", "code"), [("typer", 2), ("llm_common.apps.cli.terminal", 1)])
def test_only_a_package_of_the_extra_is_named_as_missing(module: str, code: int) -> None:
    result = subprocess.run(
        [sys.executable, "-c", MISSING.format(module=module), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == code
    assert ("llm-common needs typer: " in result.stderr) == (code == 2)


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "llm_common", "--version"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == run("--version").stdout
