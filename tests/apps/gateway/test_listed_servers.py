"""Test `llm-common tools` with an `mcpServers` file, whose servers are started."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apps.gateway.hosts import config_file, odd
from tests.folders.tree import PROGRAM

pytestmark = pytest.mark.mcp


def shown(*arguments: str | Path) -> dict[str, Any]:
    """The document of a real process: a server inherits its stderr."""
    command = [sys.executable, "-c", PROGRAM, "tools", *map(str, arguments), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "left out the server absent" in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_the_tools_of_servers_are_listed_ranked_and_checked(tmp_path: Path) -> None:
    path = config_file(tmp_path, odd=odd(), absent={"command": "no-such-program"})
    names = [tool["name"] for tool in shown("list", path)["tools"]]
    assert names
    assert shown("rank", path, names[0].replace("_", " "))["tools"][0]["name"] in names
    assert shown("check", path)["total"] == len(names)
