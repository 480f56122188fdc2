"""The tests marked `mcp` are only collected when they are asked for: the others import no MCP."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not collection_path.name.startswith("test_") or "not mcp" not in config.option.markexpr:
        return None
    return True if "pytest.mark.mcp" in collection_path.read_text(encoding="utf-8") else None
