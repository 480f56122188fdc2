"""`SaveThreads`: the loop turns while many saves begin, and threads are few and the store's own."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from functools import partial
from operator import methodcaller
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from llm_common.errors import LockTimeoutError
from llm_common.pointers import save_threads
from llm_common.pointers.save_threads import SaveThreads
from llm_common.pointers.store import FileContextPointerStore


async def test_what_begins_in_one_turn_of_the_loop_is_bounded_s0_20() -> None:
    threads, turns = SaveThreads(), 0
    done: list[int] = []

    def work() -> None:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        done.append(turns)

    async def count() -> None:
        nonlocal turns
        while len(done) < 40:
            turns += 1
            await asyncio.sleep(0)

    await asyncio.gather(count(), *(threads.here(work) for _ in range(40)))
    assert len(set(done)) >= 8
    assert max(done.count(turn) for turn in set(done)) <= 5


async def test_those_that_wait_for_a_turn_are_let_in_in_their_order_and_looked_at_once_s0_20(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, loop, done, calls = SaveThreads(), asyncio.get_running_loop(), list[int](), 0
    call_soon = loop.call_soon

    def counted(*args: Any, **options: Any) -> asyncio.Handle:
        nonlocal calls
        calls += 1
        return call_soon(*args, **options)

    def work(number: int) -> None:
        time.sleep(0.0005)
        done.append(number)

    waiting = [asyncio.create_task(threads.here(partial(work, number))) for number in range(400)]
    waiting[100].cancel()
    monkeypatch.setattr(loop, "call_soon", counted)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert done == [number for number in range(400) if number != 100]
    assert calls < 5 * len(waiting)


async def test_the_first_work_of_a_turn_is_done_before_anything_else_runs_s0_20() -> None:
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "loop")
    await SaveThreads().here(lambda: ran.append("work"))
    assert ran == ["work"]


def test_every_event_loop_has_turns_of_its_own() -> None:
    threads = SaveThreads()
    for number in range(3):
        asyncio.run(threads.here(lambda: time.sleep(0.01)))
        assert asyncio.run(threads.here(lambda: number)) == number  # noqa: B023 - called at once


async def test_at_most_four_saves_run_at_once_and_the_rest_wait_their_turn_l11() -> None:
    threads, running, most = SaveThreads(), 0, 0
    guard = threading.Lock()

    def work() -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with guard:
            running -= 1

    await asyncio.gather(*(threads.beside(work) for _ in range(20)))
    assert most == 4


async def test_what_is_cancelled_before_it_has_begun_never_begins() -> None:
    threads, gate, begun = SaveThreads(), threading.Event(), []
    busy = [asyncio.create_task(threads.beside(gate.wait)) for _ in range(4)]
    await asyncio.sleep(0.01)
    late = asyncio.create_task(threads.beside(lambda: begun.append(1)))
    await asyncio.sleep(0.01)
    late.cancel()
    gate.set()
    await asyncio.gather(*busy, late, return_exceptions=True)
    assert late.cancelled()
    assert begun == []


async def test_a_forked_child_saves_with_threads_of_its_own_f_069(tmp_path: Path) -> None:
    store = FileContextPointerStore(tmp_path, durability="rename")
    await store.save(query_id="q", task_id=None, tool_name="t", args={}, result="parent")

    def save_in_child() -> int:
        child = os.fork()
        if child == 0:
            saving = store.save(query_id="q", task_id=None, tool_name="t", args={"n": 1}, result="child")
            asyncio.run(asyncio.wait_for(saving, 10))
            os._exit(0)
        return os.waitpid(child, 0)[1]

    assert await asyncio.to_thread(save_in_child) == 0
    assert len(store.list(query_id="q")) == 2


Change = Callable[[list[str]], object]


def make(changes: Sequence[Change], done: list[str] | None = None) -> list[object]:
    """What each change returns, given the names of those that were made, or what it raises."""
    outcomes: list[object] = []
    for change in changes:
        try:
            outcomes.append(change([] if done is None else done))
        except ZeroDivisionError as exc:
            outcomes.append(exc)
    return outcomes


def together(threads: SaveThreads, change: Change, *, group: str = "q", done: list[str] | None = None) -> Any:
    return threads.together(change, group=group, make=partial(make, done=done))


async def test_what_belongs_to_one_group_is_done_in_order_and_holds_up_nothing_else() -> None:
    threads, gate, done = SaveThreads(), threading.Event(), list[str]()
    first = asyncio.create_task(together(threads, lambda _: gate.wait(), group="a", done=done))
    await asyncio.sleep(0.01)
    rest = [
        asyncio.create_task(together(threads, methodcaller("append", f"a{number}"), group="a", done=done))
        for number in range(9)
    ]
    await together(threads, methodcaller("append", "b"), group="b", done=done)
    await threads.beside(partial(done.append, "c"))
    assert done == ["b", "c"]
    rest[4].cancel()
    gate.set()
    await asyncio.gather(first, *rest, return_exceptions=True)
    assert done == ["b", "c", *(f"a{number}" for number in range(9) if number != 4)]
    await together(threads, methodcaller("append", "again"), group="a", done=done)
    assert done[-1] == "again"


async def test_what_comes_while_others_of_its_group_are_done_is_done_together() -> None:
    threads, gate, batches = SaveThreads(), threading.Event(), list[int]()

    def counted(changes: Sequence[Change]) -> list[object]:
        gate.wait()
        batches.append(len(changes))
        return make(changes)

    saves = [asyncio.create_task(threads.together(len, group="q", make=counted)) for _ in range(40)]
    await asyncio.sleep(0.01)
    gate.set()
    assert await asyncio.gather(*saves) == 40 * [0]
    assert batches == [1, 32, 7]


async def test_what_has_ended_is_told_while_what_follows_it_takes_long() -> None:
    threads, gate = SaveThreads(), threading.Event()
    first = asyncio.create_task(together(threads, lambda _: "first"))
    slow = asyncio.create_task(together(threads, lambda _: gate.wait()))
    assert await asyncio.wait_for(first, 5) == "first"
    assert not slow.done()
    gate.set()
    assert await slow is True


async def test_the_loop_is_woken_once_for_many_that_are_done_together(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, loop, wakes = SaveThreads(), asyncio.get_running_loop(), list[object]()
    wake = loop.call_soon_threadsafe

    def counted(call: Callable[[], None]) -> asyncio.Handle:
        wakes.append(call)
        return wake(call)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    await asyncio.gather(*(together(threads, lambda _: time.sleep(0.001)) for _ in range(33)))
    assert len(wakes) <= 4


async def test_a_lock_that_is_not_to_be_had_is_waited_for_together_f_070() -> None:
    threads = SaveThreads()

    def give_up(_: Sequence[Change]) -> list[object]:
        time.sleep(0.1)
        raise LockTimeoutError("held")

    began = time.perf_counter()
    outcomes = await asyncio.gather(
        *(threads.together(len, group="q", make=give_up) for _ in range(9)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == 9 * [LockTimeoutError]
    assert time.perf_counter() - began < 0.6


async def test_what_is_raised_reaches_who_waits_for_it_and_nobody_else() -> None:
    threads = SaveThreads()

    def division(by: int) -> Any:
        return together(threads, lambda _: divmod(7, by))

    outcomes = await asyncio.gather(*map(division, (0, 2, 0, 3)), return_exceptions=True)
    assert [outcome if isinstance(outcome, tuple) else type(outcome) for outcome in outcomes] == [
        ZeroDivisionError,
        (3, 1),
        ZeroDivisionError,
        (2, 1),
    ]


async def test_work_sees_the_variables_of_the_task_that_waits_for_it() -> None:
    threads, name = SaveThreads(), ContextVar[str]("name")

    async def told(value: str) -> tuple[str, object]:
        name.set(value)
        return await threads.beside(name.get), await together(threads, lambda _: name.get())

    assert await asyncio.gather(*(told(value) for value in "abc")) == [(value, value) for value in "abc"]


def test_nobody_need_wait_for_work_and_the_next_loop_is_served() -> None:
    threads, gate, done = SaveThreads(), threading.Event(), list[int]()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(together(threads, lambda _: gate.wait()), 0.01)

    asyncio.run(leave())
    gate.set()
    asyncio.run(together(threads, lambda _: done.append(1)))
    assert done == [1]


def test_a_thread_is_kept_for_the_next_save_and_ends_with_the_store() -> None:
    threads = SaveThreads()
    first = asyncio.run(threads.beside(threading.current_thread))
    time.sleep(0.2)
    assert asyncio.run(together(threads, lambda _: threading.current_thread())) is first
    assert first.is_alive()
    del threads
    first.join(5)
    assert not first.is_alive()


class SlowQueue(SimpleQueue[Any]):
    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        time.sleep(0.02)
        super().put(item, block, timeout)


async def test_no_save_waits_for_a_thread_that_ends_at_this_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(save_threads, "_PATIENCE_S", 0.01)
    monkeypatch.setattr(save_threads, "SimpleQueue", SlowQueue)
    threads = SaveThreads()
    for number in range(5):
        assert await asyncio.wait_for(together(threads, lambda _: number), 5) == number  # noqa: B023 - done by then


LEAVING = """
import asyncio, sys, time
from llm_common.pointers.save_threads import SaveThreads
threads = SaveThreads()
async def leave():
    slow = lambda: (time.sleep(0.2), print("done", flush=True))
    saving = asyncio.create_task(threads.beside(slow))
    await asyncio.sleep(0.05)
asyncio.run(leave())
print("left", flush=True)
"""


def test_what_has_begun_when_the_program_ends_is_finished_s0_18() -> None:
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", LEAVING], capture_output=True, text=True, check=True, timeout=20)
    assert ran.stdout.split() == ["left", "done"]
    assert time.monotonic() - began < 10
