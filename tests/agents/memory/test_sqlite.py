from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llm_common.agents.memory import Memory, SqliteMemory
from llm_common.testing import MemoryContract


class TestSqliteMemory(MemoryContract):
    @pytest.fixture
    async def memory(self, tmp_path: Path) -> AsyncIterator[Memory]:
        async with SqliteMemory(tmp_path / "memory.db") as memory:
            yield memory
