"""Programs that use a store, run as `python programs.py NAME BASE ...`.

Each prints one line of JSON with its saves.
"""

import asyncio
import faulthandler
import json
import multiprocessing
import os
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from llm_common.agents import FileContextPointerStore
from llm_common.errors import StoreError
from tests.forking import run_in_child

CHILD_PATIENCE_S = 30
MAX_HANGING_CHILDREN = 3
SAVE_PATIENCE_S = 10


def value_of(query_id: str, number: int, size: int = 0) -> dict[str, Any]:
    """Return the result of a call in a query, which shows its owner and whether it is whole."""
    return {"query": query_id, "number": number, "body": "x" * size}


async def save(store: Any, query_id: str, number: int, size: int = 0) -> int:
    await store.save(
        query_id=query_id,
        task_id=None,
        tool_name="t",
        args={"number": number, "size": size},
        result=value_of(query_id, number, size),
    )
    return number


def open_store(base: Path, *, flush: bool = False) -> Any:
    return FileContextPointerStore(
        base, lock_timeout_s=60, durability="full" if flush else "rename"
    )


async def save_some(store: Any, seed: int, numbers: Iterable[int]) -> list[int]:
    """Save results concurrently in four queries. Every third result is large."""
    saves = (
        save(store, f"q{seed}-{number % 4}", number, 0 if number % 3 else 60_000)
        for number in numbers
    )
    return await asyncio.gather(*saves)


def end_after_saves(base: Path, seed: int) -> list[int]:
    """Await 12 to 200 saves, some of them concurrent, with occasional rests, and end."""
    chance, store = random.Random(seed), open_store(base)

    async def main() -> list[int]:
        numbers = list(range(chance.randint(12, 200)))
        saved: list[int] = []
        while len(saved) < len(numbers):
            saved += await save_some(
                store, seed, numbers[len(saved) :][: chance.choice((1, 2, 8, 40))]
            )
            if chance.random() < 0.3:
                await asyncio.sleep(chance.uniform(0, 0.07))
        return saved

    return asyncio.run(main())


def end_during_saves(base: Path, seed: int) -> list[int]:
    """Leave `asyncio.run` during 60 saves, which cancels them."""
    chance, store = random.Random(seed), open_store(base)

    async def main() -> list[int]:
        saved = await save_some(store, seed, range(12))
        tasks = [asyncio.create_task(save_some(store, seed, [number])) for number in range(12, 72)]
        await asyncio.sleep(chance.uniform(0, 0.05))
        return saved + [number for task in tasks if task.done() for number in task.result()]

    return asyncio.run(main())


def never_end(_: Path, __: int) -> list[int]:
    """Leave a thread that never ends, which the harness must notice."""
    threading.Thread(target=threading.Event().wait).start()
    return []


@contextmanager
def saving_thread(store: Any, *, size: int) -> Iterator[None]:
    """Save results in the query `q`, eight at a time, in the event loop of a thread."""
    begun, stopped = threading.Event(), threading.Event()

    async def work() -> None:
        number = 0
        while not stopped.is_set():
            await asyncio.gather(
                *(save(store, "q", number + one, size) for one in range(8 if size < 10_000 else 2))
            )
            begun.set()
            number = (number + 8) % 64
            await asyncio.sleep(0.002)

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    assert begun.wait(SAVE_PATIENCE_S), "the first save does not end"
    try:
        yield
    finally:
        stopped.set()
        thread.join(SAVE_PATIENCE_S)


def save_and_load(store: Any, query_id: str, number: int) -> None:
    """Save and load in a child. Raises if the saved result cannot be loaded."""
    asyncio.run(save(store, query_id, number))
    [pointer] = [
        one for one in store.list(query_id=query_id) if one.args == {"number": number, "size": 0}
    ]
    assert store.load_result(pointer=pointer) == value_of(query_id, number)


def stop_measuring() -> None:
    """Stop coverage in this process, which has a lock that no forked child can get.

    A thread holds it when it enters a file of the package, and a child that is forked meanwhile
    never ends.
    """
    if "coverage" not in sys.modules:
        return
    from coverage import Coverage

    if measuring := Coverage.current():
        measuring.stop()


def end_of_child(
    work: Callable[[], object], *, how: str = "os", patience_s: int = CHILD_PATIENCE_S
) -> str:
    """Do some work in a forked child, and return how it ended: ended, failed, or never ended."""

    def work_and_report() -> None:
        faulthandler.dump_traceback_later(0.8 * patience_s)
        work()

    if how == "os":
        code = run_in_child(work_and_report, patience_s=patience_s)
    else:
        process = multiprocessing.get_context("fork").Process(target=work_and_report)
        process.start()
        process.join(patience_s)
        code = -1 if process.exitcode is None else process.exitcode
        process.kill()
        process.join()
    return "never ended" if code < 0 else "failed" if code else "ended"


def fork_while_saving(
    make: Callable[[Path], Any],
    base: Path,
    *,
    how: str,
    count: int,
    size: int,
    patience_s: int = CHILD_PATIENCE_S,
) -> Counter[str]:
    """Fork children while a thread saves, and count those that ended, failed or hung."""
    stop_measuring()
    chance, store, ends = random.Random(size + count), make(base), Counter[str]()
    with saving_thread(store, size=size):
        for number in range(count):
            time.sleep(chance.uniform(0, 0.02))
            query_id = "q" if number % 4 == 0 else f"child-{number % 4}"
            work = partial(save_and_load, store, query_id, 1_000 + number)
            ends[end_of_child(work, how=how, patience_s=patience_s)] += 1
            if ends["never ended"] == MAX_HANGING_CHILDREN:
                break
    return ends


def save_without_threads(base: Path, uid: str) -> dict[str, Any]:
    """Save while no thread can be started, then while threads can be started again."""

    def outcomes_of(saves: list[Any]) -> list[str]:
        async def all_of_them() -> list[Any]:
            waiting = (asyncio.wait_for(one, SAVE_PATIENCE_S) for one in saves)
            return await asyncio.gather(*waiting, return_exceptions=True)

        return [
            "saved"
            if isinstance(one, int)
            else "StoreError"
            if isinstance(one, StoreError)
            else repr(one)
            for one in runner.run(all_of_them())
        ]

    def numbers(query_id: str) -> dict[int, int]:
        return {
            pointer.args["number"]: store.load_result(pointer=pointer)["number"]
            for pointer in store.list(query_id=query_id)
            if pointer.args["size"] == 0
        }

    store = open_store(base)
    with asyncio.Runner() as runner:
        runner.run(use_once(open_store(base / "imports")))  # another user may not read modules
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(int(uid))
            os.setuid(int(uid))
        warm = open_store(base)
        runner.run(save(warm, "warm", 0))
        _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
        resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
        report: dict[str, Any] = {"threads": can_start_threads()}
        report["one"] = outcomes_of([save(store, "one", 0)])
        report["eight"] = outcomes_of([save(store, "eight", number) for number in range(8)])
        report["warm"] = outcomes_of([save(warm, "warm", number) for number in range(1, 9)])
        resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
        report["threads again"] = can_start_threads()
        report["one again"] = outcomes_of([save(store, "one", 100)])
        report["eight again"] = outcomes_of(
            [save(store, "eight", number) for number in range(100, 108)]
        )
        report["warm again"] = outcomes_of(
            [save(warm, "warm", number) for number in range(100, 108)]
        )
        time.sleep(0.3)
        report["listed"] = {
            query_id: sorted(numbers(query_id)) for query_id in ("one", "eight", "warm")
        }
    return report


async def use_once(store: Any) -> None:
    await save(store, "q", 0)
    await store.verify()
    [pointer] = store.list(query_id="q")
    store.load_result(pointer=pointer)


def can_start_threads() -> bool:
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return False
    return True


PROGRAMS: dict[str, Callable[..., Any]] = {
    "saves": lambda base, seed: end_after_saves(base, int(seed)),
    "cancelled": lambda base, seed: end_during_saves(base, int(seed)),
    "stuck": lambda base, seed: never_end(base, int(seed)),
    "no-threads": save_without_threads,
}

if __name__ == "__main__":
    faulthandler.enable()
    sys.stdout.write(json.dumps(PROGRAMS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])) + "\n")
