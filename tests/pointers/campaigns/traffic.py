"""What the campaigns save, the processes that save it, and what is wrong with what is stored."""

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
    """Saves a result of the call of that name."""
    return await store.save(
        query_id=query_id, task_id=None, tool_name="t", args={"name": name}, result=result
    )


def content(name: str, number: int) -> dict[str, Any]:
    """A result, every other one of 200 KB, that shows who saved it and whether it is whole."""
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
    """Saves one result after another, or some at once, and sends the number of each when it is saved."""
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
    """A process that saves these numbers, or until it is killed: results of one call, or of one call each."""
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
    """What is listed, and what is wrong with it, or with the newest of it, by kind."""
    store, wrong = FileContextPointerStore(base), Counter[str]()
    pointers = store.list(query_id="q")
    for pointer in pointers[-(newest or len(pointers)) :]:
        try:
            result = store.load_result(pointer=pointer)
            wrong["mixed"] += result != content(result["name"], result["n"])
        except StoreError as exc:
            wrong[type(exc).__name__] += 1
    return pointers, +wrong
