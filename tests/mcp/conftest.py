"""The tests marked `mcp` are only collected when they are asked for: the others import no MCP."""

from pathlib import Path

import pytest

MARKED = {"test_gateway.py", "test_gateway_servers.py", "test_gateway_http.py", "test_real_servers.py"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    marked = collection_path.name in MARKED or collection_path.name == "test_gateway_docs.py"
    return True if marked and "not mcp" in config.getoption("markexpr") else None
