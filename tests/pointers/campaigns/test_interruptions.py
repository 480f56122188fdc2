"""Changes that a user, a signal or the caller ends at any point.

A save may continue in a thread after a cancellation or the end of the event loop. Unacknowledged,
it leaves the old result or the new one. It never overwrites an acknowledged later save of the same
call in the same process.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import ContextPointer, FileContextPointerStore
from tests.pointers.campaigns.changes import (
    CHANGES,
    LATER,
    NEW,
    OLD,
    OTHER,
    open_flushing_store,
    open_store,
    stored_values,
)
from tests.pointers.campaigns.failpoints import (
    Failpoint,
    check,
    each_copy,
    open_descriptors,
    wait_until_quiet,
)
from tests.pointers.campaigns.file_operations import Operation, intercepted_operations
from tests.pointers.campaigns.naive_store import NaiveStore
from tests.pointers.campaigns.traffic import save

STEPS = pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param("first-save", 4, id="short-first-save"),
        *(pytest.param(name, 1, id=f"full-{name}", marks=pytest.mark.torture) for name in CHANGES),
    ],
)


def interrupt(_: Operation) -> None:
    raise KeyboardInterrupt


@STEPS
def test_control_c_at_any_operation_leaves_before_or_after_f_067(
    tmp_path: Path, name: str, step: int
) -> None:
    change = CHANGES[name]
    for number, copy in each_copy(tmp_path, change.prepare, step=step):
        failpoint = Failpoint(number, interrupt)
        descriptors = open_descriptors()
        with intercepted_operations(copy, failpoint), suppress(KeyboardInterrupt):
            change.run(open_flushing_store(copy))
        if not failpoint.reached:
            break
        wait_until_quiet(copy)
        check(change, copy)
        patience_s = time.monotonic() + 60
        while open_descriptors() != descriptors and time.monotonic() < patience_s:
            time.sleep(0.001)
        assert open_descriptors() == descriptors
        assert not list(copy.rglob(".tmp-*"))


class CancelledAt:
    """Awaits something that is cancelled where it waits for that time."""

    def __init__(self, number: int, waiting: Coroutine[Any, Any, Any]) -> None:
        self.reached = False
        self._number = number
        self._waiting = waiting

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._waiting.__await__()
        with suppress(StopIteration):
            for _ in range(self._number):
                yield next(steps)
            next(steps)
            self.reached = True
            pause = steps.throw(asyncio.CancelledError())
            while True:
                yield pause
                pause = next(steps)


async def cancelled_at_wait(
    saving: Coroutine[Any, Any, Any], store: FileContextPointerStore, number: int
) -> bool:
    waiting = CancelledAt(number, saving)
    with suppress(asyncio.CancelledError):
        await waiting
    await save(store, "b", OTHER)
    return waiting.reached


@pytest.mark.parametrize(
    "name",
    [
        "re-save",
        *(
            pytest.param(name, marks=pytest.mark.torture)
            for name in ("first-save-ever", "first-save", "first-save-over-quota")
        ),
    ],
)
def test_a_save_cancelled_at_any_await_leaves_before_or_after_f_068(
    tmp_path: Path, name: str
) -> None:
    change = CHANGES[name]
    for number, copy in each_copy(tmp_path, change.prepare):
        store = open_store(copy)
        if not asyncio.run(cancelled_at_wait(change.make(store), store, number)):
            assert number > 0
            break
        values = stored_values(store)
        assert change.allows({name: values[name] for name in values if name in change.after})
        assert values["b"] == OTHER


LATE_S = 0.3
"""For so long the first save is held up, unless the second one ends before."""

MakeStore = Callable[[Path], Any]


class Stop:
    """Holds up one thread at the file operation of that number, until it is released."""

    def __init__(self, number: int) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()
        self._left = number
        self._lock = threading.Lock()

    def __call__(self, operation: Operation, proceed: Callable[[], Any]) -> Any:
        with self._lock:
            self._left -= operation.changes
            here = self._left == -1 and not self.reached.is_set()
            if here:
                self.reached.set()
        if here:
            self.released.wait(LATE_S)
        return None if operation.name == "fsync" else proceed()


async def leave(stop: Stop, saving: Any, *, cancel: bool) -> bool:
    """Return whether the save was left while it was held up. Otherwise it has ended."""
    task = asyncio.ensure_future(saving)
    while not task.done() and not stop.reached.is_set():  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(0.001)
    if cancel:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return stop.reached.is_set()


def save_twice(base: Path, make: MakeStore, number: int, *, by: str) -> tuple[bool, dict[str, int]]:
    """Leave a save at an operation, save the call again, and return what is stored."""
    stop, store = Stop(number), make(base)
    with intercepted_operations(base, stop):
        if by == "cancelled":

            async def both() -> bool:
                left = await leave(stop, save(store, "a", NEW), cancel=True)
                await save(store, "a", LATER)
                return left

            left = asyncio.run(both())
        else:
            left = asyncio.run(leave(stop, save(store, "a", NEW), cancel=False))
            successor = store if by == "loop-ended" else make(base)
            asyncio.run(save(successor, "a", LATER))
        stop.released.set()
        wait_until_quiet(base)
    return left, stored_values(make(base))


@pytest.mark.parametrize(
    "by",
    [
        "cancelled",
        pytest.param("loop-ended", marks=pytest.mark.torture),
        "loop-ended-and-another-store",
    ],
)
@pytest.mark.parametrize(
    "step", [pytest.param(6, id="short"), pytest.param(1, id="full", marks=pytest.mark.torture)]
)
def test_a_save_left_running_never_overwrites_a_later_one_f_067_f_068_s0_05(
    tmp_path: Path, by: str, step: int
) -> None:
    def prepare(base: Path) -> None:
        asyncio.run(save(open_store(base), "a", OLD))
        asyncio.run(save(open_store(base), "b", OTHER))

    for number, copy in each_copy(tmp_path, prepare, step=step):
        left, values = save_twice(copy, open_store, number, by=by)
        assert values == {"a": LATER, "b": OTHER}
        if not left:
            assert number > 3
            break


class NaiveThreadStore(NaiveStore):
    """Saves in a thread, also when its caller has been cancelled."""

    async def save(self, **call: Any) -> ContextPointer:
        saving = super().save(**call)
        return await asyncio.to_thread(asyncio.run, saving)


def test_the_harness_catches_a_store_whose_late_saves_overwrite_f_068(tmp_path: Path) -> None:
    left, values = save_twice(tmp_path / "base", NaiveThreadStore, 1, by="cancelled")
    assert left
    assert values["a"] == NEW
