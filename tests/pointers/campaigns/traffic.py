"""The results that the campaigns save, the processes that save them, and their checks."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from llm_common.agents import ContextPointer, FileContextPointerStore
from llm_common.errors import StoreError
from tests.pointers.campaigns.children import child
from tests.pointers.campaigns.naive_store import NaiveStore, PointerStore

__all__ = ["NAIVE", "OURS", "MakeStore", "content", "faults", "save", "writer"]

MakeStore = Callable[[Path], PointerStore]

OURS: Final[MakeStore] = partial(FileContextPointerStore, durability="rename", lock_timeout_s=60)
NAIVE: Final[MakeStore] = NaiveStore

_UNTIL_KILLED: Final = range(1_000_000_000)


async def save(
    store: PointerStore, name: str, result: Any, *, query_id: str = "q"
) -> ContextPointer:
    """Save a result of the call with this name."""
    return await store.save(
        query_id=query_id, task_id=None, tool_name="t", args={"name": name}, result=result
    )


def content(name: str, number: int) -> dict[str, Any]:
    """Return a result that shows its writer and whether it is whole. Every other has 200 KB."""
    return {
        "name": name,
        "n": number,
        "body": f"{name}-{number} " * (20_000 if number % 2 else 200),
    }


def write(
    sender: Connection,
    make: MakeStore,
    base: Path,
    name: str,
    numbers: Iterable[int],
    *,
    same: bool,
    at_once: int,
) -> None:
    """Save results one by one or concurrently, and send the number of each completed save."""
    left = iter(numbers)

    async def save_one(store: PointerStore, number: int) -> None:
        await save(store, "same" if same else f"{name}-{number}", content(name, number))
        sender.send(number)

    async def work() -> None:
        store = make(base)
        while some := list(islice(left, at_once)):
            await asyncio.gather(*(save_one(store, number) for number in some))

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        asyncio.run(work())


def writer(
    make: MakeStore,
    base: Path,
    name: str,
    *,
    same: bool,
    numbers: Iterable[int] | None = None,
    at_once: int = 1,
) -> AbstractContextManager[tuple[BaseProcess, Connection]]:
    """Start a process that saves results of one call, or of a call each, until it is killed."""
    return child(
        write,
        make,
        base,
        name,
        _UNTIL_KILLED if numbers is None else numbers,
        same=same,
        at_once=at_once,
    )


def faults(base: Path, *, newest: int | None = None) -> tuple[list[ContextPointer], Counter[str]]:
    """Return the listed results, and the problems with all or the newest of them, by kind."""
    store, wrong = FileContextPointerStore(base), Counter[str]()
    pointers = store.list(query_id="q")
    for pointer in pointers[-(newest or len(pointers)) :]:
        try:
            result = store.load_result(pointer=pointer)
            wrong["mixed"] += result != content(result["name"], result["n"])
        except StoreError as exc:
            wrong[type(exc).__name__] += 1
    return pointers, +wrong
