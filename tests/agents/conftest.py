"""What most tests of runs and sessions begin with."""

from pathlib import Path

import pytest

from llm_common.agents import InMemoryContextPointerStore, ToolContextManager


@pytest.fixture
def manager(tmp_path: Path) -> ToolContextManager:
    """A session over files, which has stored nothing yet."""
    return ToolContextManager(tmp_path)


@pytest.fixture
def store() -> InMemoryContextPointerStore:
    """A store that two sessions of a test may share."""
    return InMemoryContextPointerStore()
