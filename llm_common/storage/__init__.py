"""Bytes under two-part keys: one protocol, one set of key rules, several stores.

`ObjectBlobStore` needs the extra `object-store` and is imported from
`llm_common.storage.object_store`.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.storage.blob import (
        BlobEntry,
        BlobStore,
        FolderScan,
        LockedFolder,
        LockingBlobStore,
        MemoryBlobStore,
        check_query_id,
        folder_of,
        query_id_of,
    )
    from llm_common.storage.files import Durability, FileBlobStore

__all__ = [
    "BlobEntry",
    "BlobStore",
    "Durability",
    "FileBlobStore",
    "FolderScan",
    "LockedFolder",
    "LockingBlobStore",
    "MemoryBlobStore",
    "check_query_id",
    "folder_of",
    "query_id_of",
]

_MODULES = {
    "BlobEntry": "llm_common.storage.blob",
    "BlobStore": "llm_common.storage.blob",
    "Durability": "llm_common.storage.files",
    "FileBlobStore": "llm_common.storage.files",
    "FolderScan": "llm_common.storage.blob",
    "LockedFolder": "llm_common.storage.blob",
    "LockingBlobStore": "llm_common.storage.blob",
    "MemoryBlobStore": "llm_common.storage.blob",
    "check_query_id": "llm_common.storage.blob",
    "folder_of": "llm_common.storage.blob",
    "query_id_of": "llm_common.storage.blob",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
