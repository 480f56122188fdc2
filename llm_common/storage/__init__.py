"""Keeps bytes under two-part keys: one protocol, one set of key rules, several implementations.

`ObjectBlobStore` needs the extra `object-store` and is imported from
`llm_common.storage.object_store`.
"""

from llm_common.storage.blob import (
    OWN_FOLDER,
    BlobEntry,
    BlobStore,
    FolderScan,
    LockedFolder,
    LockingBlobStore,
    check_folder,
    check_key,
    check_name,
    check_query_id,
    folder_of,
    query_id_of,
)
from llm_common.storage.files import Durability, FileBlobStore
from llm_common.storage.in_memory_blobs import MemoryBlobStore

__all__ = [
    "OWN_FOLDER",
    "BlobEntry",
    "BlobStore",
    "Durability",
    "FileBlobStore",
    "FolderScan",
    "LockedFolder",
    "LockingBlobStore",
    "MemoryBlobStore",
    "check_folder",
    "check_key",
    "check_name",
    "check_query_id",
    "folder_of",
    "query_id_of",
]
