"""Opens the spans of memory operations, for every memory of this package.

Texts of events and queries never become attributes. OpenTelemetry's conventions have no operation
for reading the newest events of a session, so `recent` has no span.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from llm_common._telemetry import Attribute, operation, retrieval_attributes
from llm_common.memory.protocol import MemoryHit

P = ParamSpec("P")
MemoryT = TypeVar("MemoryT")


def writes_memory(
    method: Callable[Concatenate[MemoryT, P], Coroutine[Any, Any, str]],
) -> Callable[Concatenate[MemoryT, P], Coroutine[Any, Any, str]]:
    """Observe a method that stores an event, as `upsert_memory` if it may replace another."""

    @wraps(method)
    async def observed(memory: MemoryT, /, *args: P.args, **kwargs: P.kwargs) -> str:
        # Arguments are named here: `key` and `supersedes` are keyword-only in every memory.
        name = "upsert_memory" if kwargs.get("key") or kwargs.get("supersedes") else "create_memory"
        attributes = _attributes(memory) | {"gen_ai.memory.record.count": 1}
        with operation(name, attributes=attributes) as span:
            record_id = await method(memory, *args, **kwargs)
            span.set_attribute("gen_ai.memory.record.id", record_id)
        return record_id

    return observed


def searches_memory(
    method: Callable[Concatenate[MemoryT, P], Coroutine[Any, Any, list[MemoryHit]]],
) -> Callable[Concatenate[MemoryT, P], Coroutine[Any, Any, list[MemoryHit]]]:
    """Observe a method that searches events, as `search_memory`."""

    @wraps(method)
    async def observed(memory: MemoryT, /, *args: P.args, **kwargs: P.kwargs) -> list[MemoryHit]:
        with operation("search_memory", attributes=_attributes(memory)) as span:
            hits = await method(memory, *args, **kwargs)
            scores = retrieval_attributes({str(hit.id): hit.score for hit in hits})
            span.set_attributes({"gen_ai.memory.record.count": len(hits), **scores})
        return hits

    return observed


def forgets_memory(
    method: Callable[Concatenate[MemoryT, P], Coroutine[Any, Any, int]],
) -> Callable[Concatenate[MemoryT, P], Coroutine[Any, Any, int]]:
    """Observe a method that erases events, as `delete_memory`."""

    @wraps(method)
    async def observed(memory: MemoryT, /, *args: P.args, **kwargs: P.kwargs) -> int:
        with operation("delete_memory", attributes=_attributes(memory)) as span:
            forgotten = await method(memory, *args, **kwargs)
            span.set_attribute("gen_ai.memory.record.count", forgotten)
        return forgotten

    return observed


def _attributes(memory: object) -> dict[str, Attribute]:
    return {"llm_common.memory": type(memory).__name__}
