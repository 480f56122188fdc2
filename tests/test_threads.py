"""Tools that hang hold threads that nothing else needs."""

import asyncio
import gc
import os
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from threading import Event, Semaphore, Thread, current_thread
from typing import Any
from unittest.mock import patch

import pytest

from llm_common import _threads
from llm_common._threads import (
    MAX_TOOL_THREADS,
    ForkSafeLock,
    SharedCache,
    Threads,
    computed_once,
    computing,
    in_thread,
    in_thread_if_long,
    in_tool_thread,
)
from llm_common.errors import NoThreadError
from tests.forking import held_by_a_thread, run_in_child
from tests.programs import printed

InThread = Callable[..., Awaitable[Any]]
BOTH = pytest.mark.parametrize("run", [in_thread, in_tool_thread])
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX")


@pytest.fixture
def hung() -> Iterator[Event]:
    """Return an event that hung tools wait for, and set it at the end to free their threads."""
    end = Event()
    yield end
    end.set()


@BOTH
async def test_work_runs_in_a_named_thread_with_its_context(run: InThread) -> None:
    request = ContextVar[str]("request")
    request.set("r1")
    assert await run(lambda a, *, b: (a, b, request.get()), 1, b=2) == (1, 2, "r1")
    assert (await run(current_thread)).name.startswith("llm-common-")
    with pytest.raises(ZeroDivisionError):
        await run(lambda: 1 / 0)
    with pytest.raises(KeyboardInterrupt):
        await run(_interrupt)


def _interrupt() -> None:
    raise KeyboardInterrupt


async def test_a_short_text_is_read_without_a_thread() -> None:
    assert await in_thread_if_long(65_536, current_thread) is current_thread()
    assert await in_thread_if_long(65_537, current_thread) is not current_thread()


async def test_hung_tools_do_not_block_the_librarys_work_f_161(hung: Event) -> None:
    calls = [asyncio.create_task(in_tool_thread(hung.wait)) for _ in range(MAX_TOOL_THREADS)]
    ran: list[int] = []
    waits = asyncio.create_task(in_tool_thread(ran.append, 1))
    await asyncio.sleep(0.05)
    assert await in_thread(abs, -1) == 1
    assert not waits.done()
    waits.cancel()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, waits, return_exceptions=True)
    assert await in_thread(abs, -2) == 2
    hung.set()
    assert await in_tool_thread(abs, -3) == 3
    assert ran == []  # its caller gave up before it had a thread


@BOTH
async def test_work_runs_again_after_a_lack_of_threads_f_157(
    run: InThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []
    monkeypatch.setattr(_threads, "_WORK", Threads(1, "test"))  # else an idle thread takes it
    no_more = patch.object(Thread, "start", side_effect=RuntimeError("can't start new thread"))
    with no_more, pytest.raises(NoThreadError, match="nothing ran"):
        await run(ran.append, 1)
    await run(ran.append, 2)
    assert ran == [2]


@BOTH
@FORKS
async def test_a_forked_child_starts_its_own_threads_f_158(run: InThread, hung: Event) -> None:
    def use() -> None:
        asyncio.set_event_loop(None)
        asyncio.events._set_running_loop(None)
        assert asyncio.new_event_loop().run_until_complete(run(abs, -7)) == 7

    busy = [asyncio.create_task(in_tool_thread(hung.wait)) for _ in range(MAX_TOOL_THREADS)]
    await in_thread(abs, -1)
    assert run_in_child(use) == 0
    hung.set()
    await asyncio.gather(*busy)


class Ledger:
    """Two values that belong together."""

    def __init__(self) -> None:
        self.lock = ForkSafeLock(self.repair)
        self.repairs = 0

    def repair(self) -> None:
        self.repairs += 1

    def repairs_after_use(self) -> int:
        for _ in range(2):
            with self.lock:
                pass
        return self.repairs


@FORKS
def test_a_lock_that_a_thread_holds_is_free_in_a_child_f_201() -> None:
    held, idle = Ledger(), Ledger()

    def use() -> None:
        assert held.repairs_after_use() == 1
        assert idle.repairs_after_use() == 0

    with held_by_a_thread(held.lock):
        assert run_in_child(use) == 0
        assert not held.lock.acquire(timeout_s=0)
    assert held.repairs_after_use() == 0


@FORKS
def test_a_thread_that_forks_within_a_lock_leaves_it_twice_f_201() -> None:
    lock = ForkSafeLock()
    with lock:
        child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(timeout_s=0) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lock.acquire(timeout_s=0)


def test_a_lock_does_not_keep_its_owner_in_memory() -> None:
    owner = weakref.ref(Ledger())
    assert owner() is None


@FORKS
def test_a_value_that_a_thread_computes_is_computed_in_a_child_f_201(hung: Event) -> None:
    class Definition:
        @computed_once
        def text(self) -> str:
            begun.set()
            if os.getpid() == parent:
                hung.wait()
            return "text"

    parent, begun, shared = os.getpid(), Event(), Definition()
    thread = Thread(target=lambda: shared.text)
    thread.start()
    begun.wait()
    assert run_in_child(lambda: shared.text) == 0
    hung.set()
    thread.join()
    assert shared.text == "text"


async def test_a_cancelled_call_is_released_f_161(hung: Event) -> None:
    class Argument:
        pass

    calls = [asyncio.create_task(in_tool_thread(hung.wait)) for _ in range(MAX_TOOL_THREADS)]
    argument = Argument()
    seen = weakref.ref(argument)
    waits = asyncio.create_task(in_tool_thread(id, argument))
    await asyncio.sleep(0.01)
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    del argument, waits
    await asyncio.sleep(0.01)  # the loop lets go of the exception
    gc.collect(1)
    assert seen() is None
    hung.set()
    await asyncio.gather(*calls)


def test_a_program_exits_while_a_tool_hangs_f_161() -> None:
    program = """
import asyncio, threading
from llm_common.agents import ToolRegistry
async def main():
    registry = ToolRegistry()
    registry.register(hang)
    try:
        await asyncio.wait_for(registry.execute("hang", {}), 0.1)
    except TimeoutError:
        print("given up")
def hang() -> None:
    threading.Event().wait()
asyncio.run(main())
"""
    assert printed(program, timeout=30) == "given up\n"


def test_two_threads_compute_at_a_time_and_a_third_waits_no_longer_than_its_limit(
    hung: Event,
) -> None:
    def compute(begun: Event, end: Event) -> None:
        with computing():
            begun.set()
            end.wait()

    def started(end: Event) -> tuple[Thread, Event]:
        begun = Event()
        thread = Thread(target=compute, args=(begun, end))
        thread.start()
        return thread, begun

    free = Event()
    free.set()
    with patch.object(_threads, "_TURNS", _threads.PerProcess(lambda: Semaphore(2))):
        running = [started(hung), started(hung)]
        assert all(begun.wait(60) for _, begun in running)
        waiting, turn = started(free)
        assert not turn.wait(0.2)
        with patch.object(_threads, "_MAX_TURN_WAIT_S", 0.0):
            _, turn_without_waiting = started(free)
            assert turn_without_waiting.wait(60)
        assert not turn.is_set()
        hung.set()
        assert turn.wait(60)
        for thread in (waiting, *(thread for thread, _ in running)):
            thread.join(60)


def test_a_cache_keeps_what_was_used_last_within_its_size() -> None:
    cache: SharedCache[str, bytes] = SharedCache(20, len)
    cache.put("a", b"1234567890")
    cache.put("a", b"1")
    cache.put("b", b"1234567890")
    assert cache.get("a") == b"1"
    cache.put("c", b"1234567890")
    assert cache.get("b") is None
    assert sorted(cache.keys()) == ["a", "c"]
    cache.remove("a")
    cache.remove("a")
    cache.clear()
    assert cache.keys() == []


@FORKS
def test_a_child_forked_during_a_change_has_an_empty_cache_f_201() -> None:
    cache: SharedCache[str, int] = SharedCache(1)
    cache.put("a", 1)

    def use() -> None:
        assert cache.get("a") is None
        cache.put("b", 2)
        assert cache.get("b") == 2

    with held_by_a_thread(cache._lock):
        assert run_in_child(use) == 0
    assert cache.get("a") == 1


def test_threads_share_a_cache_and_make_each_value_once() -> None:
    cache: SharedCache[int, object] = SharedCache(20)
    made: list[object] = []

    def make() -> object:
        made.append(object())
        return made[-1]

    def work(number: int) -> None:
        for turn in range(300):
            cache.get_or_make((number + turn) % 20, make)
            cache.get(turn % 20)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == len(cache.keys()) == 20
