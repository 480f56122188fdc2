"""Stores the events of sessions and users, searches them and forgets them."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports
from llm_common.memory.in_memory import InMemoryMemory
from llm_common.memory.protocol import (
    Event,
    FactMemory,
    Memory,
    MemoryFilters,
    MemoryHit,
    MemoryReader,
    MemoryWriter,
)
from llm_common.memory.sqlite import SqliteMemory
from llm_common.memory.users import UserMemory

if TYPE_CHECKING:
    from llm_common.memory.postgres import PostgresMemory as PostgresMemory

# Without `PostgresMemory`: a star import must work without its extra.
__all__ = [
    "Event",
    "FactMemory",
    "InMemoryMemory",
    "Memory",
    "MemoryFilters",
    "MemoryHit",
    "MemoryReader",
    "MemoryWriter",
    "SqliteMemory",
    "UserMemory",
]

# Imported on first use, since it needs an extra.
_MODULES = {"PostgresMemory": "llm_common.memory.postgres"}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
