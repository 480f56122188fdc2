"""Real processes that save at the same time or are killed while they do.

`NaiveStore` is the positive control: the same harness must catch a store that writes in place, meta first.
"""

import asyncio
import itertools
import json
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import pytest

from llm_common.agents.pointers.pointer import ContextPointer, compute_pointer_id
from llm_common.agents.pointers.store import FileContextPointerStore
from llm_common.errors import StoreError

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.agents.pointers.test_store_processes"])


class Saves(Protocol):
    async def save(
        self, *, query_id: str, task_id: str | None, tool_name: str, args: dict[str, Any], result: Any
    ) -> ContextPointer: ...


class NaiveStore:
    def __init__(self, base: Path) -> None:
        self.base = base

    async def save(
        self, *, query_id: str, task_id: str | None, tool_name: str, args: dict[str, Any], result: Any
    ) -> ContextPointer:
        pointer_id = compute_pointer_id(tool_name=tool_name, args=args, query_id=query_id, task_id=task_id)
        folder = self.base / query_id
        folder.mkdir(parents=True, exist_ok=True)
        pointer = ContextPointer(
            pointer_id=pointer_id,
            query_id=query_id,
            tool_name=tool_name,
            args=args,
            created_at="now",
            summary="",
            result_path="",
        )
        (folder / f"{pointer_id}.meta.json").write_text(pointer.model_dump_json())
        (folder / f"{pointer_id}.result.json").write_text(json.dumps(result))
        return pointer


def make_store(base: Path, *, naive: bool) -> Saves:
    return NaiveStore(base) if naive else FileContextPointerStore(base, durability="rename", lock_timeout_s=60)


def content(name: str, number: int) -> dict[str, Any]:
    return {"name": name, "n": number, "body": f"{name}-{number} " * (20_000 if number % 2 else 200)}


def write(base: Path, name: str, numbers: range | None, told: Connection, *, same: bool, naive: bool) -> None:
    """Saves one result after another and tells the number of each when it is saved."""

    async def work() -> None:
        store = make_store(base, naive=naive)
        for number in itertools.count() if numbers is None else numbers:
            args = {} if same else {"name": name, "n": number}
            await store.save(query_id="q", task_id=None, tool_name="t", args=args, result=content(name, number))
            told.send(number)

    asyncio.run(work())


@contextmanager
def writer(
    base: Path, name: str, *, same: bool, naive: bool = False, numbers: range | None = None
) -> Iterator[tuple[BaseProcess, Connection]]:
    heard, told = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=write, args=(base, name, numbers, told), kwargs={"same": same, "naive": naive})
    process.start()
    told.close()
    try:
        yield process, heard
    finally:
        process.kill()
        process.join()
        heard.close()


def numbers_told(heard: Connection) -> list[int]:
    numbers = []
    try:
        while True:
            numbers.append(heard.recv())
    except (EOFError, OSError):
        return numbers


def faults(base: Path) -> tuple[list[ContextPointer], Counter[str]]:
    """What is listed, and what is wrong with it by kind."""
    store, wrong = FileContextPointerStore(base), Counter[str]()
    pointers = store.list(query_id="q")
    for pointer in pointers:
        try:
            result = store.load_result(pointer=pointer)
            wrong["mixed"] += result != content(result["name"], result["n"])
        except StoreError as exc:
            wrong[type(exc).__name__] += 1
    return pointers, +wrong


def kill_while_saving(base: Path, *, kills: int, same: bool, naive: bool = False) -> Counter[str]:
    """What was wrong after each of that many writers was killed at a random instant, and which saves went missing."""
    chance, wrong, saved = random.Random(7), Counter[str](), set()
    for number in range(kills):
        with writer(base, f"w{number}", same=same, naive=naive) as (process, heard):
            told = [heard.recv()]
            time.sleep(chance.uniform(0, 0.01))
            process.kill()
            told += numbers_told(heard)
        saved |= {(f"w{number}", one) for one in told}
        if same or number == kills - 1:
            pointers, found = faults(base)
            wrong += found
            wrong["nothing listed"] += not pointers
    if not same:
        wrong["missing"] = len(saved - {(pointer.args["name"], pointer.args["n"]) for pointer in pointers})
    return +wrong


def test_killed_first_saves_leave_nothing_torn_s0_18_f_066(tmp_path: Path) -> None:
    assert not kill_while_saving(tmp_path, kills=10, same=False)


def test_killed_second_saves_leave_old_or_new_s0_05_s0_18_f_066(tmp_path: Path) -> None:
    assert not kill_while_saving(tmp_path, kills=10, same=True)


def test_the_harness_catches_a_store_that_writes_in_place(tmp_path: Path) -> None:
    for same in (False, True):
        assert kill_while_saving(tmp_path / str(same), kills=20, same=same, naive=True)


@pytest.mark.torture
@pytest.mark.parametrize("same", [False, True], ids=["L1", "L2"])
def test_a_thousand_kills_leave_nothing_torn_s0_18_f_066(tmp_path: Path, same: bool) -> None:
    assert not kill_while_saving(tmp_path, kills=1_000, same=same)


def test_processes_that_save_different_calls_lose_none_f_072(tmp_path: Path) -> None:
    with (
        writer(tmp_path, "a", same=False, numbers=range(50)) as one,
        writer(tmp_path, "b", same=False, numbers=range(50)) as two,
        writer(tmp_path, "c", same=False, numbers=range(50)) as three,
        writer(tmp_path, "d", same=False, numbers=range(50)) as four,
    ):
        while any(process.is_alive() for process, _ in (one, two, three, four)):
            assert not faults(tmp_path)[1]
    pointers, wrong = faults(tmp_path)
    assert (len(pointers), wrong) == (200, Counter())


def test_processes_that_save_one_call_never_hide_or_mix_it_s0_05_f_072(tmp_path: Path) -> None:
    with (
        writer(tmp_path, "a", same=True, numbers=range(60)) as one,
        writer(tmp_path, "b", same=True, numbers=range(60)) as two,
    ):
        one[1].recv()
        listings = 0
        while any(process.is_alive() for process, _ in (one, two)):
            pointers, wrong = faults(tmp_path)
            assert (len(pointers), wrong) == (1, Counter())
            listings += 1
    assert listings > 5
