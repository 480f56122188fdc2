"""`llm-common gateway install` and `uninstall` with the files of the hosts."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from llm_common.apps.gateway import GatewayConfig
from llm_common.apps.gateway.configuration.install import REMOVED, with_entries
from llm_common.errors import ConfigError
from tests.apps.cli.running import run

CODEX = """\
# my settings
model = "gpt" # fast

[mcp_servers.git]
command = "git-server"
env_vars = ["KEY"]
tool_timeout_sec = 900

[mcp_servers.off]
command = "x"
enabled = false

[projects."/a"]
trust_level = "trusted"
"""
JSON = '{"theme": "dark", "KEYS": {"git": {"command": "git-server"}}, "ratio": 1.10}'
# The file of each host in the user's home, with one server called git.
FILES = {
    "claude-code": (".claude.json", JSON.replace("KEYS", "mcpServers")),
    "codex": (".codex/config.toml", CODEX),
    "opencode": (
        ".config/opencode/opencode.jsonc",
        '{\n  // mine\n  "mcp": {"git": {"type": "local", "command": ["git-server"]},},\n}\n',
    ),
    "qwen-code": (".qwen/settings.json", JSON.replace("KEYS", "mcpServers")),
    "vscode": (".config/Code/User/mcp.json", JSON.replace("KEYS", "servers")),
    "gemini-cli": (".gemini/settings.json", JSON.replace("KEYS", "mcpServers")),
    "cline": (
        ".cline/data/settings/cline_mcp_settings.json",
        JSON.replace("KEYS", "mcpServers"),
    ),
    "roo-code": (
        ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        JSON.replace("KEYS", "mcpServers"),
    ),
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        JSON.replace("KEYS", "mcpServers"),
    ),
    "cursor": (".cursor/mcp.json", JSON.replace("KEYS", "mcpServers")),
    "windsurf": (".codeium/windsurf/mcp_config.json", JSON.replace("KEYS", "mcpServers")),
    "zed": (".config/zed/settings.json", JSON.replace("KEYS", "context_servers")),
}
# What hosts put before the name of a tool of `gateway`. The others put nothing.
PREFIXES = {
    "claude-code": "mcp__gateway__",
    "cline": "gateway__",
    "gemini-cli": "mcp_gateway_",
    "opencode": "gateway_",
    "qwen-code": "mcp__gateway__",
    "roo-code": "mcp--gateway--",
    "vscode": "mcp_llm-common_",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")  # the paths of VS Code differ
    workspace = tmp_path / "project"
    workspace.mkdir()
    monkeypatch.chdir(workspace)
    return tmp_path


def put(home: Path, host: str) -> Path:
    name, text = FILES[host]
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o640)
    return path


def entries_of(path: Path, key: str) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    document = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    entries: dict[str, Any] = document[key]
    return entries


@pytest.mark.parametrize("host", FILES)
def test_the_gateway_takes_the_servers_over_and_gives_them_back(host: str, home: Path) -> None:
    path = put(home, host)
    before = path.read_text(encoding="utf-8")
    run("gateway", "install", host)
    installed = path.read_text(encoding="utf-8")
    assert "git-server" not in installed
    servers_file = (
        home / ".config/llm-common/gateway" / f"{host}{path.suffix.replace('jsonc', 'json')}"
    )
    # The host's entry is the gateway, which leaves itself out.
    assert GatewayConfig.from_files(path).servers == {}
    served = GatewayConfig.from_files(servers_file).servers
    assert {name: server.command for name, server in served.items()} == {"git": "git-server"}
    assert str(servers_file) in installed
    assert (path.stat().st_mode & 0o777, servers_file.stat().st_mode & 0o777) == (0o640, 0o600)
    assert path.with_name(f"{path.name}.bak").read_text(encoding="utf-8") == before

    assert run("gateway", "install", host).stderr.endswith("Nothing to change.\n")
    assert path.read_text(encoding="utf-8") == installed
    run("gateway", "uninstall", host)
    assert GatewayConfig.from_files(path).servers == served
    assert "llm-common" not in path.read_text(encoding="utf-8")
    assert not servers_file.exists()


@pytest.mark.parametrize("host", FILES)
def test_the_printed_entry_passes_the_prefix_of_the_host(host: str, home: Path) -> None:
    put(home, host)
    ((_, entry),) = json.loads(run("gateway", "install", host, "--print").stdout).items()
    words = [*(entry.get("args") or entry["command"])]
    prefix = None
    if "--host-prefix" in words:
        prefix = words[words.index("--host-prefix") + 1]
    assert prefix == PREFIXES.get(host)


@pytest.mark.parametrize(
    ("host", "timeout"),
    [("qwen-code", 900_000), ("gemini-cli", 900_000), ("zed", 900), ("roo-code", 900)],
)
def test_the_limit_for_calls_is_in_the_unit_of_the_host(
    host: str, timeout: int, home: Path
) -> None:
    put(home, host)
    slow = home / "slow.json"
    slow.write_text('{"mcpServers": {"slow": {"command": "x", "timeout": 900000}}}')
    printed = run("gateway", "install", host, "-c", slow, "--print").stdout
    assert json.loads(printed)["gateway"]["timeout"] == timeout


def test_a_host_without_files_in_projects_says_so(home: Path) -> None:
    put(home, "windsurf")
    told = run("gateway", "install", "windsurf", "--scope", "project", code=2).stderr
    assert "windsurf has no file for a project; use --scope user" in told


def test_codex_waits_for_the_gateway_and_passes_variables_on(home: Path) -> None:
    path = put(home, "codex")
    run("gateway", "install", "codex")
    text = path.read_text(encoding="utf-8")
    entry = entries_of(path, "mcp_servers")["gateway"]
    assert entry["required"] is True
    assert (entry["startup_timeout_sec"], entry["tool_timeout_sec"]) == (60, 900)
    assert entry["env_vars"] == ["KEY"]
    assert text.startswith('# my settings\nmodel = "gpt" # fast\n')
    assert '[projects."/a"]\ntrust_level = "trusted"\n' in text
    assert list(entries_of(path, "mcp_servers")) == ["off", "gateway"]


def test_a_server_with_approval_rules_stays_with_codex(home: Path) -> None:
    path = put(home, "codex")
    rules = '[mcp_servers.git.tools.push]\napproval_mode = "prompt"\n'
    path.write_text(f"{CODEX}{rules}", encoding="utf-8")
    told = run("gateway", "install", "codex", code=2).stderr
    assert "git: it has rules for approvals" in told
    path.write_text(
        f'{CODEX}{rules}[mcp_servers.web]\nurl = "https://host/mcp"\n', encoding="utf-8"
    )
    told = run("gateway", "install", "codex").stderr
    assert "git stays: it has rules for approvals" in told
    assert "If web asks for a login: llm-common gateway login web" in told
    assert list(entries_of(path, "mcp_servers")) == ["git", "off", "gateway"]


def test_a_project_gets_relative_paths(home: Path) -> None:
    path = Path(".mcp.json")
    path.write_text('{"mcpServers": {"git": {"command": "git-server"}}}')
    run("gateway", "install", "claude-code", "--scope", "project")
    entry = entries_of(path, "mcpServers")["project-gateway"]  # beside the user's own
    servers_file = ".mcp-gateway/claude-code.json"
    assert entry["command"] == "llm-common"
    prefix = "mcp__project-gateway__"
    assert entry["args"] == ["gateway", "--config", servers_file, "--host-prefix", prefix]
    assert list(GatewayConfig.from_files(servers_file).servers) == ["git"]


def test_a_named_file_leaves_the_hosts_servers_alone(home: Path) -> None:
    path = put(home, "claude-code")
    mine = home / "mine.json"
    mine.write_text('{"mcpServers": {}}')
    run("gateway", "install", "claude-code", "-c", mine, "--", "--tools", "search")
    entries = entries_of(path, "mcpServers")
    assert list(entries) == ["git", "gateway"]
    assert entries["gateway"]["args"][1:3] == ["--config", str(mine)]
    assert entries["gateway"]["args"][-2:] == ["--tools", "search"]
    run("gateway", "install", "claude-code", "-c", mine)
    assert entries_of(path, "mcpServers") == entries  # options of an earlier install stay


def test_servers_that_the_gateway_cannot_run_stay_with_the_host(home: Path) -> None:
    path = put(home, "claude-code")
    entries = {
        "git": {"command": "git-server"},
        "ask": {"command": "x", "env": {"KEY": "${NOT_SET_ANYWHERE}"}},
        "off": {"command": "x", "disabled": True},
    }
    path.write_text(json.dumps({"mcpServers": entries}))
    told = run("gateway", "install", "claude-code").stderr
    assert list(entries_of(path, "mcpServers")) == ["ask", "off", "gateway"]
    assert "ask stays: server ask, env, KEY needs the variable NOT_SET_ANYWHERE" in told
    assert "off stays: it is disabled" in told


def test_a_dry_run_shows_the_changes_without_secrets_and_writes_nothing(home: Path) -> None:
    path = put(home, "claude-code")
    secret = "sk-ant-api03-" + "a1B2" * 20
    entries = {"git": {"command": "git-server", "env": {"API_TOKEN": secret}}}
    path.write_text(json.dumps({"mcpServers": entries}, indent=2))
    before = path.read_text()
    shown = run("gateway", "install", "claude-code", "--dry-run")
    assert '-    "git": {' in shown.stdout
    assert '+    "gateway": {' in shown.stdout
    assert secret not in shown.stdout
    assert "Restart" not in shown.stderr
    assert path.read_text() == before
    assert sorted(child.name for child in home.iterdir()) == [".claude.json", "project"]
    printed = run("gateway", "install", "claude-code", "--print").stdout
    assert json.loads(printed)["gateway"]["args"][0] == "gateway"
    assert path.read_text() == before


def test_a_host_without_servers_or_entry_is_an_error(home: Path) -> None:
    assert "does not exist; name a file" in run("gateway", "install", "codex", code=2).stderr
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex/config.toml").write_text("")
    assert "has no servers to take over" in run("gateway", "install", "codex", code=2).stderr
    assert "has no entry of the gateway" in run("gateway", "uninstall", "codex", code=2).stderr


def test_a_link_to_the_hosts_file_stays_a_link(home: Path) -> None:
    target = home / "dotfiles.json"
    put(home, "claude-code").rename(target)
    (home / ".claude.json").symlink_to(target)
    run("gateway", "install", "claude-code")
    assert (home / ".claude.json").is_symlink()
    assert "gateway" in target.read_text()


TEXT = """{
  // top
  "model": 1.10, /* keep "this" */
  'single': 'x',
  "mcpServers": {
    "a": {"command": "}", "args": ["//no", "/*no"]}, // of a
    "b": {
      "command": "y", // in b
    }, // of b
  }, "z": [1e5, {"q": null}]
}
"""


@pytest.mark.parametrize("removed", [[], ["a"], ["b"], ["a", "b"]])
@pytest.mark.parametrize("added", [{}, {"c": {"x": [1]}}, {"b": {"x": 2}}])
@pytest.mark.parametrize("trailing", [True, False])
def test_an_edit_keeps_every_other_line(
    removed: list[str], added: dict[str, Any], *, trailing: bool
) -> None:
    text = TEXT if trailing else TEXT.replace("}, // of b", "} // of b")
    changes = dict.fromkeys(removed, REMOVED) | added
    # It checks by itself that the content is as wanted.
    edited = with_entries(text, "mcpServers", changes, path=Path("x.json"))
    kept = ["  // top", '  "model": 1.10, /* keep "this" */', "  'single': 'x',"]
    assert edited.splitlines()[1:4] == kept
    assert edited.endswith('"z": [1e5, {"q": null}]\n}\n')
    assert "// of b" in edited


@pytest.mark.parametrize("text", ["", "{}", '{"a": 1}', "{ /* none */ }", '{"mcp": {}}'])
def test_missing_objects_are_created(text: str) -> None:
    edited = with_entries(text, "mcp", {"a": {"x": 1}}, path=Path("x.jsonc"))
    assert '"a": {' in edited
    assert with_entries(edited, "mcp", {"a": {"x": 1}}, path=Path("x.jsonc")) == edited


@pytest.mark.parametrize(
    "text",
    [
        '{"mcp": [1]}',
        "{'a': '}', \"mcp\": {}}",  # a brace in single quotes
        '{"mcp": {"a": 2, "a": 3}}',
    ],
)
def test_a_file_that_cannot_be_changed_safely_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="cannot be changed without touching the rest"):
        with_entries(text, "mcp", {"a": REMOVED, "c": 1}, path=Path("x.json"))


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_a_file_of_windows_keeps_its_mark_and_line_breaks(line_break: str) -> None:
    text = '\ufeff{\n  "mcp": {\n    "a": {}\n  }\n}\n'.replace("\n", line_break)
    edited = with_entries(text, "mcp", {"b": {}}, path=Path("x.json"))
    assert edited.startswith(f'\ufeff{{{line_break}  "mcp": {{{line_break}    "a": {{}},')
    assert with_entries(edited, "mcp", {"b": REMOVED}, path=Path("x.json")) == text


@pytest.mark.parametrize("end", ["/" * 1_000, " " * 20_000, "// the end"])
def test_a_long_line_of_slashes_or_spaces_stays_and_takes_no_time(end: str) -> None:
    text = f'//{end}\n{{"mcp": {{"a": {{}}}}}}\n//{end}'
    edited = with_entries(text, "mcp", {"a": REMOVED}, path=Path("x.json"))
    assert edited == f'//{end}\n{{"mcp": {{}}}}\n//{end}'
