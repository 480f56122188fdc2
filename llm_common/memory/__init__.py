"""Stores the events of sessions and users, searches them and forgets them."""

from importlib import import_module
from typing import TYPE_CHECKING

from llm_common.errors import missing_name
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


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _MODULES:
        raise missing_name(__name__, name)
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
