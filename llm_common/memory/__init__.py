"""Memory: keeps the events of a session and finds them again."""

from typing import TYPE_CHECKING

from llm_common.errors import ConfigError
from llm_common.memory.in_memory import InMemoryMemory
from llm_common.memory.protocol import (
    Event,
    Memory,
    MemoryFilters,
    MemoryHit,
    MemoryReader,
    MemoryWriter,
    Summariser,
    episode_summary,
)
from llm_common.memory.sqlite import SqliteMemory

if TYPE_CHECKING:
    from llm_common.memory.postgres import PostgresMemory

__all__ = [
    "Event",
    "InMemoryMemory",
    "Memory",
    "MemoryFilters",
    "MemoryHit",
    "MemoryReader",
    "MemoryWriter",
    "PostgresMemory",
    "SqliteMemory",
    "Summariser",
    "episode_summary",
]


def __getattr__(name: str) -> object:
    """`PostgresMemory`, which needs an extra, when it is asked for."""
    if name != "PostgresMemory":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from llm_common.memory.postgres import PostgresMemory  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise ConfigError(
            "PostgresMemory needs an extra: pip install 'llm-common[postgres]'", variable="postgres"
        ) from exc
    return PostgresMemory
