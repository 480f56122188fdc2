"""Stores the events of sessions and users, searches them and forgets them."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.memory.in_memory import InMemoryMemory
    from llm_common.memory.overview import (
        KeptEvent as KeptEvent,
        SessionSummary as SessionSummary,
        list_events as list_events,
        list_sessions as list_sessions,
    )
    from llm_common.memory.postgres import PostgresMemory as PostgresMemory
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

# Without `PostgresMemory`: a star import must work without its extra. The other names are for the
# applications of this library, and may change.
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

_MODULES = {
    "Event": "llm_common.memory.protocol",
    "FactMemory": "llm_common.memory.protocol",
    "InMemoryMemory": "llm_common.memory.in_memory",
    "KeptEvent": "llm_common.memory.overview",
    "Memory": "llm_common.memory.protocol",
    "MemoryFilters": "llm_common.memory.protocol",
    "MemoryHit": "llm_common.memory.protocol",
    "MemoryReader": "llm_common.memory.protocol",
    "MemoryWriter": "llm_common.memory.protocol",
    "PostgresMemory": "llm_common.memory.postgres",
    "SessionSummary": "llm_common.memory.overview",
    "SqliteMemory": "llm_common.memory.sqlite",
    "UserMemory": "llm_common.memory.users",
    "list_events": "llm_common.memory.overview",
    "list_sessions": "llm_common.memory.overview",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
