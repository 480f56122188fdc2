"""Test doubles for code that is built on llm-common."""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports
from llm_common.storage import MemoryBlobStore
from llm_common.testing.clients import ScriptedClient, UnexpectedCallError
from llm_common.testing.decision_clients import ScriptedDecisionClient

if TYPE_CHECKING:
    from llm_common.testing.decision_contract import DecisionClientContract

__all__ = [
    "DecisionClientContract",
    "MemoryBlobStore",
    "ScriptedClient",
    "ScriptedDecisionClient",
    "UnexpectedCallError",
]

# The contract suites need pytest, so they are imported on first use.
_MODULES = {
    "DecisionClientContract": "llm_common.testing.decision_contract",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
