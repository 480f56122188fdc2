"""Keeps bytes under two-part keys: one protocol, one set of key rules, several homes."""

from llm_common.storage.blob import BlobStore, check_key, check_query_id
from llm_common.storage.filesystem import Durability, FileBlobStore
from llm_common.storage.memory import MemoryBlobStore

__all__ = ["BlobStore", "Durability", "FileBlobStore", "MemoryBlobStore", "check_key", "check_query_id"]
