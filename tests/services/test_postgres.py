"""`PostgresMemory` against a real server."""

import itertools
from collections.abc import AsyncIterator

import pytest

from llm_common.agents.memory import Memory, PostgresMemory
from llm_common.testing import MemoryContract
from tests.services.postgres_server import PostgresServer

pytestmark = pytest.mark.services

NUMBERS = itertools.count()


@pytest.fixture
def schema() -> str:
    """A new one for each test, since they share the server."""
    return f"memory_{next(NUMBERS)}"


@pytest.fixture
async def memory(postgres: PostgresServer, schema: str) -> AsyncIterator[Memory]:
    async with PostgresMemory(postgres.conninfo, schema=schema) as memory:
        yield memory


class TestPostgresMemory(MemoryContract):
    pass
