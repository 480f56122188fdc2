"""What the servers serve: a repository with a long log, a database, files inside and outside."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.hosts.real_hosts import HOSTS, ROOT

SERVERS = ROOT / ".mcp-servers"
NODE = HOSTS / "npm" / "node_modules" / ".bin"
SLEEPY = Path(__file__).parents[1] / "apps" / "gateway" / "hostile_server.py"
COMMITS = 300
INSIDE = "the file in the workspace"
OUTSIDE = "the file outside of the workspace"


def make_workspace(folder: Path) -> Path:
    """Create the workspace, and a file outside that one server's command line allows."""
    workspace = folder / "work"
    outside = folder / "outside"
    workspace.mkdir(parents=True)
    outside.mkdir()
    (outside / "outside.txt").write_text(OUTSIDE, encoding="utf-8")
    (workspace / "inside.txt").write_text(INSIDE, encoding="utf-8")
    tool = {"name": "wake_up", "description": "Does nothing.", "inputSchema": {"type": "object"}}
    (folder / "tools.json").write_text(json.dumps([tool]), encoding="utf-8")
    (folder / "ready").touch()
    subprocess.run(["git", "init", "-q", "-b", "main", str(workspace)], check=True)
    commits = ""
    for number in range(1, COMMITS + 1):
        message = commit_message(number)
        commits += (
            "commit refs/heads/main\n"
            f"committer Ada <ada@localhost> {1_700_000_000 + number * 3_600} +0000\n"
            f"data {len(message)}\n{message}\n"
        )
    subprocess.run(
        ["git", "-C", str(workspace), "fast-import", "--quiet"],
        input=commits,
        text=True,
        check=True,
    )
    return workspace


def commit_message(number: int) -> str:
    """Return the message of a commit, so long that the whole log has 70,000 characters."""
    service = number % 7
    return (
        f"Change number {number} moves the port of service {service} "
        f"from {8_000 + number} to {9_000 + number}, so that two services can run side by side"
    )


def asleep_file(workspace: Path) -> Path:
    """Return the file that makes one of the servers not list its tools any more."""
    return workspace.parent / "asleep"


def servers_of(workspace: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of the servers, as most hosts write them."""

    def python(name: str, *arguments: str) -> dict[str, Any]:
        return {"command": str(SERVERS / name / "bin" / name), "args": list(arguments)}

    return {
        "git": python("mcp-server-git", "-r", str(workspace)),
        "sqlite": python("mcp-server-sqlite", "--db-path", str(workspace.parent / "items.db")),
        "filesystem": {
            "command": str(NODE / "mcp-server-filesystem"),
            "args": [str(workspace), str(workspace.parent / "outside")],
        },
        "everything": {"command": str(NODE / "mcp-server-everything"), "args": []},
        "sleepy": {
            "command": sys.executable,
            "args": [str(SLEEPY), "files", str(workspace.parent)],
        },
    }
