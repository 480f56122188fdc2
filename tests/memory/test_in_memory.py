import pytest

from llm_common.memory import (
    Event,
    FactMemory,
    InMemoryMemory,
    MemoryFilters,
    MemoryReader,
    MemoryWriter,
)
from tests.contracts.memory_contract import FactMemoryContract


class TestInMemoryMemory(FactMemoryContract):
    @pytest.fixture
    def memory(self) -> FactMemory:
        return InMemoryMemory()


async def test_finds_substrings_in_any_case_s3_05() -> None:
    memory = InMemoryMemory()
    await memory.append_event("s", Event(text="A Concatenated text; what about it?"))
    for query in ("CAT", "concat", "what about it"):
        assert len(await memory.retrieve(query, 4, MemoryFilters(session_id="s"))) == 1


def test_is_a_writer_and_a_reader_s3_04() -> None:
    memory = InMemoryMemory()
    assert isinstance(memory, MemoryWriter)
    assert isinstance(memory, MemoryReader)
