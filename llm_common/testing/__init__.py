"""Public doubles and contract suites, for tests of what is built on llm-common."""

from typing import TYPE_CHECKING

from llm_common.storage import MemoryBlobStore
from llm_common.testing.clients import ScriptedClient, UnexpectedCallError

if TYPE_CHECKING:
    from llm_common.testing.contracts import BlobStoreContract

__all__ = ["BlobStoreContract", "MemoryBlobStore", "ScriptedClient", "UnexpectedCallError"]


def __getattr__(name: str) -> object:
    """The contract suites, which need pytest, when they are asked for."""
    if name == "BlobStoreContract":
        from llm_common.testing.contracts import BlobStoreContract  # noqa: PLC0415 - pytest is no dependency

        return BlobStoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
