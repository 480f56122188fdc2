"""Read the configuration of the gateway, and the files of hosts in the forms that they document."""

import json
from pathlib import Path
from typing import Any

import pytest

from llm_common.apps.gateway import GatewayConfig, ServerConfig
from llm_common.errors import ConfigError


def written(
    folder: Path, servers: object, *, name: str = "mcp.json", key: str = "mcpServers"
) -> Path:
    path = folder / name
    path.write_text(json.dumps({key: servers}), encoding="utf-8")
    return path


def test_later_files_replace_servers_of_the_same_name(tmp_path: Path) -> None:
    first = written(tmp_path, {"a": {"command": "one"}, "b": {"command": "two"}})
    second = written(
        tmp_path, {"b": {"url": "http://localhost/mcp"}}, name="other.json", key="servers"
    )
    config = GatewayConfig.from_files(first, second)
    assert [(name, server.command, server.url) for name, server in config.servers.items()] == [
        ("a", "one", ""),
        ("b", "", "http://localhost/mcp"),
    ]


def test_disabled_servers_and_the_gateway_itself_are_left_out(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "off": {"command": "x", "disabled": True, "env": {"KEY": "${NOT_SET_ANYWHERE}"}},
            "self": {"command": "/usr/bin/llm-common", "args": ["gateway", "-c", "mcp.json"]},
            "launched": {
                "command": "uvx",
                "args": ["--from", ".[mcp]", "llm-common", "gateway"],
            },
            "newest": {"command": "uvx", "args": ["llm-common@latest", "gateway"]},
            "version": {"command": "uvx", "args": ["llm_common==1.0", "gateway"]},
            "on windows": {"command": "cmd", "args": ["/c", "LLM-Common.exe", "gateway"]},
            "another": {"command": "llm-common", "args": ["demo", "gateway"]},
            "on": {"command": "x", "alwaysAllow": ["what other hosts write"], "timeout": 60_000},
        },
    )
    assert list(GatewayConfig.from_files(path).servers) == ["another", "on"]


def test_variables_in_texts_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_TEST_KEY", "k-1")
    monkeypatch.delenv("GATEWAY_TEST_OTHER", raising=False)
    unchanged = ("$HOME", "${1}", "{env:HOME}")
    entry = {
        "command": "x",
        "args": ["--key=${GATEWAY_TEST_KEY}", "${GATEWAY_TEST_OTHER:-none}", *unchanged],
        "env": {"A": "${env:GATEWAY_TEST_KEY}"},
    }
    server = GatewayConfig.from_files(written(tmp_path, {"a": entry})).servers["a"]
    assert server.args == ("--key=k-1", "none", *unchanged)
    assert server.env == {"A": "k-1"}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, 'not exactly one of "command" and "url"'),
        ({"command": "x", "url": "http://localhost"}, 'not exactly one of "command" and "url"'),
        ({"command": 5}, "server a: command cannot be used"),
        ({"command": "x", "type": "pigeon"}, "server a: type cannot be used"),
        ({"command": "x", "timeout": -1}, "server a: call_timeout_s cannot be used"),
        ({"command": "x", "llmCommon": {"alow": []}}, "llmCommon.alow cannot be used"),
        ({"command": "x", "llmCommon": 5}, "llmCommon cannot be used"),
        ({"command": "x", "envFile": ".env"}, "uses envFile, which is not read"),
        ({"command": "x", "sandboxEnabled": True}, "uses sandboxEnabled, which is not read"),
        (5, "server a is not an object"),
        (
            {"command": "x", "env": {"TOKEN": "${NOT_SET_ANYWHERE}"}},
            "server a, env, TOKEN needs the variable NOT_SET_ANYWHERE, which is not set",
        ),
        ({"command": "${env:NOT_SET_ANYWHERE}"}, "needs the variable NOT_SET_ANYWHERE"),
        (
            {"command": "${input:not-set}"},
            "needs the input not-set; set the variable INPUT_NOT_SET to it",
        ),
        ({"command": "${cmd:pass show key}"}, "uses cmd:, which only its host can fill in"),
        ({"command": "${command:ext.pick}"}, "uses command:, which only its host can fill in"),
    ],
)
def test_an_invalid_entry_leaves_one_server_out(
    entry: object, problem: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {"a": entry, "b": {"command": "y"}})
    config = GatewayConfig.from_files(path)
    assert list(config.servers) == ["b"]
    assert problem in config.left_out["a"]
    assert str(path) in config.left_out["a"]


def test_a_later_file_mends_a_server_that_was_left_out(tmp_path: Path) -> None:
    broken = written(tmp_path, {"a": {}})
    mended = written(tmp_path, {"a": {"command": "x"}}, name="other.json")
    config = GatewayConfig.from_files(broken, mended)
    assert (list(config.servers), dict(config.left_out)) == (["a"], {})
    config = GatewayConfig.from_files(mended, broken)
    assert (list(config.servers), list(config.left_out)) == ([], ["a"])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mcp.json", '{\n"a":\n{"b": [1]', "even with comments; close what begins in line 3"),
        ("mcp.json", '{\n// a\n"b" 1}', "is not JSON, even with comments; correct line 3"),
        ("mcp.json", '{"a": 1,\n' * 40_000, "is not JSON, even with comments; "),
        ("mcp.json", "[1]", "holds a JSON list"),
        ("mcp.json", '{"other": {}, "model": "x"}', "holds no MCP servers: it has other, model."),
        ("mcp.json", " ", "holds no MCP servers: it is empty."),
        ("mcp.json", '{"mcpServers": []}', "holds no MCP servers: it has mcpServers."),
        ("config.toml", 'key = "secret', "is not TOML: "),
        ("config.toml", 'model = "x"', "holds no MCP servers: it has model."),
        ("mcp.json", b"\xff{}", "is not UTF-8 at byte 0"),
    ],
)
def test_a_file_without_servers_is_named_with_what_it_has(
    name: str, text: str | bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        GatewayConfig.from_files(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_file_is_a_setting_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        GatewayConfig.from_files(tmp_path / "none.json")


@pytest.mark.parametrize(
    "settings", [{"max_whole_tokens": 10}, {"tools": "some"}, {"ttl_s": 0}, {"unknown": 1}]
)
def test_an_invalid_setting_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        GatewayConfig.from_files(**settings)


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
