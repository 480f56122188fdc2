"""What tests of a store call the keys of a pointer's blobs (S0-10), and why a result is gone."""

from llm_common.agents import ContextPointer, ContextPointerStore
from llm_common.errors import CorruptPointerError, PointerNotFoundError


def meta_key(query_id: str, pointer_id: str) -> str:
    return f"{query_id}/{pointer_id}.meta.json"


def next_key(query_id: str, pointer_id: str) -> str:
    return f"{query_id}/{pointer_id}.next"


def result_key(query_id: str, pointer_id: str) -> str:
    return f"{query_id}/{pointer_id}.result.json"


def reason(store: ContextPointerStore, pointer: ContextPointer) -> str | None:
    """Return why the result of a pointer cannot be loaded, None if it can."""
    try:
        store.load_result(pointer=pointer)
    except PointerNotFoundError as exc:
        return exc.reason
    except CorruptPointerError:
        return "damaged"
    return None
