"""Bytes under two-part keys: one protocol, one set of key rules, several stores.

`ObjectBlobStore` needs the extra `object-store` and is imported from
`llm_common.storage.object_store`.
"""

from llm_common.storage.blob import BlobEntry, BlobStore, FolderScan, LockedFolder, LockingBlobStore
from llm_common.storage.files import Durability, FileBlobStore
from llm_common.storage.in_memory_blobs import MemoryBlobStore

__all__ = [
    "BlobEntry",
    "BlobStore",
    "Durability",
    "FileBlobStore",
    "FolderScan",
    "LockedFolder",
    "LockingBlobStore",
    "MemoryBlobStore",
]
