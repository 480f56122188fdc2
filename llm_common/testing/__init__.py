"""Test doubles and contract suites for code that is built on llm-common."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports
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

# The contract suites need pytest, so they are imported on first use.
_MODULES = {
    "BlobStoreContract": "llm_common.testing.blob_contract",
    "ContextPointerStoreContract": "llm_common.testing.pointer_contract",
    "DecisionClientContract": "llm_common.testing.decision_contract",
    "FactMemoryContract": "llm_common.testing.memory_contract",
    "LockingBlobStoreContract": "llm_common.testing.blob_contract",
    "MemoryContract": "llm_common.testing.memory_contract",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
