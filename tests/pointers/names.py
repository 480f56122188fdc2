"""The keys of a pointer's blobs in a store of files, as its contract lays them down (S0-10)."""

__all__ = ["meta_key", "next_key", "result_key"]


def meta_key(query_id: str, pointer_id: str) -> str:
    return f"{query_id}/{pointer_id}.meta.json"


def next_key(query_id: str, pointer_id: str) -> str:
    return f"{query_id}/{pointer_id}.next"


def result_key(query_id: str, pointer_id: str) -> str:
    return f"{query_id}/{pointer_id}.result.json"
