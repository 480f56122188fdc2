"""Memory: keeps the events of sessions and users, finds them again, and forgets them."""

from typing import TYPE_CHECKING

from llm_common.errors import missing_extra
from llm_common.memory.in_memory import InMemoryMemory
from llm_common.memory.protocol import (
    Event,
    FactMemory,
    Memory,
    MemoryFilters,
    MemoryHit,
    MemoryReader,
    MemoryWriter,
    Summariser,
    episode_summary,
)
from llm_common.memory.sqlite import SqliteMemory
from llm_common.memory.users import UserMemory

if TYPE_CHECKING:
    from llm_common.memory.postgres import PostgresMemory as PostgresMemory

# Without `PostgresMemory`, which needs an extra: a star import must work without it.
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
    "Summariser",
    "UserMemory",
    "episode_summary",
]


def __getattr__(name: str) -> object:
    """`PostgresMemory`, which needs an extra, when it is asked for."""
    if name != "PostgresMemory":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from llm_common.memory.postgres import PostgresMemory  # noqa: PLC0415 - an extra
    except ImportError as exc:
        raise missing_extra("PostgresMemory needs an extra", "postgres") from exc
    return PostgresMemory


def __dir__() -> list[str]:
    return sorted({*globals(), "PostgresMemory"})
