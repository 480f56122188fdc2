"""Public doubles and contract suites, for tests of what is built on llm-common."""

from importlib import import_module
from typing import TYPE_CHECKING

from llm_common.storage import MemoryBlobStore
from llm_common.testing.clients import ScriptedClient, UnexpectedCallError
from llm_common.testing.decision_clients import ScriptedDecisionClient

if TYPE_CHECKING:
    from llm_common.testing.blob_contract import (
        BlobStoreContract,
        LockingBlobStoreContract,
    )
    from llm_common.testing.decision_contract import DecisionClientContract
    from llm_common.testing.memory_contract import FactMemoryContract, MemoryContract
    from llm_common.testing.pointer_contract import ContextPointerStoreContract

__all__ = [
    "BlobStoreContract",
    "ContextPointerStoreContract",
    "DecisionClientContract",
    "FactMemoryContract",
    "LockingBlobStoreContract",
    "MemoryBlobStore",
    "MemoryContract",
    "ScriptedClient",
    "ScriptedDecisionClient",
    "UnexpectedCallError",
]

_CONTRACTS = {
    "BlobStoreContract": "blob_contract",
    "ContextPointerStoreContract": "pointer_contract",
    "DecisionClientContract": "decision_contract",
    "FactMemoryContract": "memory_contract",
    "LockingBlobStoreContract": "blob_contract",
    "MemoryContract": "memory_contract",
}


def __getattr__(name: str) -> object:
    """The contract suites, which need pytest, when they are asked for."""
    if name in _CONTRACTS:
        return getattr(import_module(f"llm_common.testing.{_CONTRACTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
