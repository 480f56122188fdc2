"""What most tests of runs and sessions begin with."""

from pathlib import Path

import pytest

from llm_common.agents import ToolContextManager


@pytest.fixture
def manager(tmp_path: Path) -> ToolContextManager:
    """A session over files, which has stored nothing yet."""
    return ToolContextManager(tmp_path)
