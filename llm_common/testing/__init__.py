"""Test doubles for code that is built on llm-common."""

from llm_common.storage import MemoryBlobStore
from llm_common.testing.clients import ScriptedClient, UnexpectedCallError

__all__ = [
    "MemoryBlobStore",
    "ScriptedClient",
    "UnexpectedCallError",
]
