"""Keeps bytes under two-part keys: one protocol, one set of key rules, several homes.

`ObjectBlobStore` needs the extra `object-store` and is imported from `llm_common.storage.object_store`.
"""

from llm_common.storage.blob import (
    OWN_FOLDER,
    BlobStore,
    BlobVersion,
    ConditionalBlobStore,
    FolderSurvey,
    LockingBlobStore,
    StampedFile,
    StampingBlobStore,
    check_folder,
    check_key,
    check_query_id,
)
from llm_common.storage.files import Durability, FileBlobStore
from llm_common.storage.in_memory_blobs import MemoryBlobStore

__all__ = [
    "OWN_FOLDER",
    "BlobStore",
    "BlobVersion",
    "ConditionalBlobStore",
    "Durability",
    "FileBlobStore",
    "FolderSurvey",
    "LockingBlobStore",
    "MemoryBlobStore",
    "StampedFile",
    "StampingBlobStore",
    "check_folder",
    "check_key",
    "check_query_id",
]
