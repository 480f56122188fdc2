"""The files of hosts, in the forms that their documentation shows."""

import json
from pathlib import Path

import pytest

from llm_common.apps.gateway import GatewayConfig, ServerConfig

FILES = {
    "Claude Code": (
        ".mcp.json",
        """{"mcpServers": {
            "web": {"type": "http", "url": "https://host/mcp", "headers": {"X": "${KEY:-none}"}},
            "git": {"command": "git-server", "args": ["-r", "."], "timeout": 600000}}}""",
        {
            "web": ServerConfig(type="http", url="https://host/mcp", headers={"X": "k-1"}),
            "git": ServerConfig(command="git-server", args=("-r", "."), call_timeout_s=600),
        },
    ),
    "Codex": (
        "config.toml",
        """
        model = "gpt"
        [mcp_servers.git]
        command = "git-server"
        args = ["-c", "echo ${NOT_A_VARIABLE_HERE}"]
        env_vars = ["KEY", "NOT_SET_ANYWHERE"]
        env = { MODE = "fast" }
        startup_timeout_sec = 20
        tool_timeout_sec = 90.5
        enabled_tools = ["log"]
        disabled_tools = ["reset"]
        [mcp_servers.web]
        url = "https://host/mcp"
        bearer_token_env_var = "KEY"
        http_headers = { "X-Region" = "eu" }
        env_http_headers = { "X-Key" = "KEY", "X-None" = "NOT_SET_ANYWHERE" }
        startup_timeout_ms = 5000
        [mcp_servers.off]
        command = "x"
        enabled = false
        """,
        {
            "git": ServerConfig.model_validate(
                {
                    "command": "git-server",
                    "args": ["-c", "echo ${NOT_A_VARIABLE_HERE}"],
                    "env": {"KEY": "k-1", "MODE": "fast"},
                    "start_timeout_s": 20,
                    "call_timeout_s": 90.5,
                    "llmCommon": {"allow": ["log"], "deny": ["reset"]},
                }
            ),
            "web": ServerConfig(
                url="https://host/mcp",
                headers={"X-Region": "eu", "X-Key": "k-1", "Authorization": "Bearer k-1"},
                start_timeout_s=5,
            ),
        },
    ),
    "opencode": (
        "opencode.jsonc",
        """{
            // comments, and trailing commas
            "mcp": {
                "git": {"type": "local", "command": ["git-server", "-r", "${HOME}"],
                        "environment": {"TOKEN": "{env:KEY}"}, "enabled": true, "timeout": 30000,},
                "web": {"type": "remote", "url": "https://host/sse"},
                "off": {"type": "local", "command": ["x"], "enabled": false},
            },
        }""",
        {
            "git": ServerConfig(
                type="stdio",
                command="git-server",
                args=("-r", "${HOME}"),
                env={"TOKEN": "k-1"},
                start_timeout_s=30,
                call_timeout_s=30,
            ),
            "web": ServerConfig(type="sse", url="https://host/sse"),
        },
    ),
    "VS Code": (
        ".vscode/mcp.json",
        """{
            /* asked once */ "inputs": [{"type": "promptString", "id": "api-key"}],
            "servers": {"git": {"type": "stdio", "command": "git-server", "args": ["${env:KEY}"],
                "env": {"TOKEN": "${input:api-key}"}}},
        }""",
        {
            "git": ServerConfig(
                type="stdio", command="git-server", args=("k-1",), env={"TOKEN": "answer"}
            )
        },
    ),
    "settings of VS Code": (
        "settings.json",
        '{"editor.fontSize": 12, "mcp": {"servers": {"git": {"command": "git-server"}}}}',
        {"git": ServerConfig(command="git-server")},
    ),
    "Qwen Code": (
        ".qwen/settings.json",
        """{"mcp": {"excluded": ["off"]}, "mcpServers": {
            "web": {"httpUrl": "https://host/mcp", "timeout": 15000, "discoveryTimeoutMs": 7000,
                    "includeTools": ["log(x)"], "excludeTools": ["reset"]},
            "old": {"url": "https://host/events", "headers": {"X": "$KEY"}},
            "off": {"command": "x"}}}""",
        {
            "web": ServerConfig.model_validate(
                {
                    "type": "http",
                    "url": "https://host/mcp",
                    "start_timeout_s": 7,
                    "call_timeout_s": 15,
                    "llmCommon": {"allow": ["log"], "deny": ["reset"]},
                }
            ),
            "old": ServerConfig(type="sse", url="https://host/events", headers={"X": "k-1"}),
        },
    ),
    "Gemini CLI with allowed servers": (
        ".gemini/settings.json",
        '{"mcp": {"allowed": ["on"]}, "mcpServers": {"on": {"command": "x"}, "off": {"command": "y"}}}',
        {"on": ServerConfig(command="x")},
    ),
    "Windsurf": (
        "mcp_config.json",
        '{"mcpServers": {"web": {"serverUrl": "https://host/mcp", "disabledTools": ["reset"]}}}',
        {
            "web": ServerConfig.model_validate(
                {"url": "https://host/mcp", "llmCommon": {"deny": ["reset"]}}
            )
        },
    ),
    "Cline": (
        "cline_mcp_settings.json",
        '{"mcpServers": {"web": {"type": "streamableHttp", "url": "https://host/mcp", "timeout": 1800}}}',
        {"web": ServerConfig(type="http", url="https://host/mcp", call_timeout_s=1800)},
    ),
    "Zed": (
        "settings.json",
        """{"context_servers": {
            "git": {"source": "custom", "command": "git-server", "args": ["-r"], "timeout": 90},
            "old": {"command": {"path": "git-server", "args": ["-r"], "env": {"A": "b"}}}}}""",
        {
            "git": ServerConfig(command="git-server", args=("-r",), call_timeout_s=90),
            "old": ServerConfig(command="git-server", args=("-r",), env={"A": "b"}),
        },
    ),
}


@pytest.mark.parametrize("host", FILES)
def test_the_file_of_a_host_is_read_as_the_host_reads_it(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "k-1")
    monkeypatch.setenv("INPUT_API_KEY", "answer")
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    name, text, expected = FILES[host]
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    config = GatewayConfig.from_files(path)
    assert config.left_out == {}
    assert config.servers == expected


def test_folders_of_the_user_and_the_workspace_are_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    text = "${userHome}|${workspaceFolder}|${workspaceFolderBasename}|${/}"
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"servers": {"a": {"command": text}}}), encoding="utf-8")
    folder = Path.cwd()
    command = GatewayConfig.from_files(path).servers["a"].command
    assert command == f"{tmp_path}|{folder}|{folder.name}|/"


def test_an_empty_list_of_allowed_tools_allows_none(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[mcp_servers.a]\ncommand = "x"\nenabled_tools = []', encoding="utf-8")
    assert not GatewayConfig.from_files(path).servers["a"].rules.admits("a", "log")
