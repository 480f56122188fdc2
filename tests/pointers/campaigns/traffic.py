"""The results that the campaigns save, the processes that save them, and their checks."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

from llm_common.agents import ContextPointer, ContextPointerStore, FileContextPointerStore
from llm_common.errors import StoreError
from tests.pointers.campaigns.children import child, heard_until_the_end
from tests.pointers.campaigns.naive_store import NaiveStore, PointerStore

MakeStore = Callable[[Path], PointerStore]

OURS: Final[MakeStore] = partial(FileContextPointerStore, durability="rename", lock_timeout_s=60)
NAIVE: Final[MakeStore] = NaiveStore

_UNTIL_KILLED: Final = range(1_000_000_000)
_MAX_LIFE_S: Final = 0.01


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


def faults(
    store: ContextPointerStore, *, newest: int | None = None
) -> tuple[list[ContextPointer], Counter[str]]:
    """Return the listed results, and the problems with all or the newest of them, by kind."""
    wrong = Counter[str]()
    pointers = store.list(query_id="q")
    for pointer in pointers[-(newest or len(pointers)) :]:
        try:
            result = store.load_result(pointer=pointer)
            wrong["mixed"] += result != content(result["name"], result["n"])
        except StoreError as exc:
            wrong[type(exc).__name__] += 1
    return pointers, +wrong


def save_together(
    make: MakeStore,
    base: Path,
    *,
    processes: int,
    saves: int,
    same: bool,
    at_once: int = 1,
    reader: Callable[[Path], ContextPointerStore] = FileContextPointerStore,
) -> Counter[str]:
    """Save in several processes. Returns the numbers of pointers and lists, and the problems."""
    wrong = Counter[str]()
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                writer(make, base, f"w{number}", same=same, numbers=range(saves), at_once=at_once)
            )
            for number in range(processes)
        ]
        writers[0][1].recv()
        while any(process.is_alive() for process, _ in writers):
            try:
                pointers, found = faults(reader(base), newest=20)
            except Exception as exc:  # noqa: BLE001 - the control's reader meets all kinds
                wrong[type(exc).__name__] += 1
                continue
            wrong += found
            wrong["empty lists"] += not pointers
            wrong["lists"] += 1
        wrong["failed writers"] = sum(process.exitcode != 0 for process, _ in writers)
    pointers, found = faults(reader(base))
    wrong["listed"] = len(pointers)
    return +(wrong + found)


def kill_while_saving(
    make: MakeStore,
    base: Path,
    *,
    kills: int,
    same: bool,
    by: signal.Signals = signal.SIGKILL,
    at_once: int = 1,
    reader: Callable[[Path], ContextPointerStore] = FileContextPointerStore,
) -> Counter[str]:
    """Kill writers at random moments, and return the problems and the missing saves."""
    chance, wrong, saved = random.Random(7), Counter[str](), set()
    for number in range(kills):
        with writer(make, base, f"w{number}", same=same, at_once=at_once) as (process, receiver):
            acknowledged = [receiver.recv()]
            time.sleep(chance.uniform(0, _MAX_LIFE_S))
            assert process.pid is not None
            os.kill(process.pid, by)
            acknowledged += heard_until_the_end(receiver)
        saved |= {f"w{number}-{one}" for one in acknowledged}
        if same or number == kills - 1:
            pointers, found = faults(reader(base))
            wrong += found
            wrong["nothing listed"] += not pointers
    asyncio.run(reader(base).verify(repair=True))
    wrong["not repaired"] = len(asyncio.run(reader(base).verify()).findings)
    if not same:
        wrong["missing"] = len(saved - {pointer.args["name"] for pointer in pointers})
    return +wrong
