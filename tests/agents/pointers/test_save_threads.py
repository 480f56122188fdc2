"""`SaveThreads`: the loop turns while many saves begin, and threads are few and the store's own."""

import asyncio
import os
import threading
import time
from pathlib import Path

from llm_common.agents.pointers.save_threads import SaveThreads
from llm_common.agents.pointers.store import FileContextPointerStore


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
