"""The tests marked `mcp` are only collected when they are asked for: the others import no MCP."""

from pathlib import Path

import pytest

NOT_MARKED = {
    "test_gateway_config.py",
    "test_host_files.py",
    "test_host_results.py",
    "test_tool_listing.py",
}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    marked = collection_path.name.startswith("test_") and collection_path.name not in NOT_MARKED
    return True if marked and "not mcp" in config.getoption("markexpr") else None
