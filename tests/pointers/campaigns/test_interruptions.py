"""Changes that a user, a signal or the caller ends at any point."""

import asyncio
import time
from collections.abc import Coroutine, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import FileContextPointerStore
from tests.pointers.campaigns.changes import (
    CHANGES,
    OTHER,
    open_flushing_store,
    open_store,
    stored_values,
)
from tests.pointers.campaigns.failpoints import (
    Failpoint,
    check_while_running,
    each_time,
    open_descriptors,
)
from tests.pointers.campaigns.file_operations import Operation, intercepted_operations
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
    """Saves without acknowledgement leave the old or the new result, also later.

    Acknowledged saves remain.
    """
    change = CHANGES[name]
    for number, copy in each_time(tmp_path, change, step=step):
        failpoint = Failpoint(number, interrupt)
        descriptors = open_descriptors()
        with intercepted_operations(copy, failpoint), suppress(KeyboardInterrupt):
            change.run(open_flushing_store(copy))
        if not failpoint.reached:
            break
        check_while_running(change, copy)
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
    for number, copy in each_time(tmp_path, change):
        store = open_store(copy)
        if not asyncio.run(cancelled_at_wait(change.make(store), store, number)):
            assert number > 0
            break
        values = stored_values(store)
        assert change.allows({name: values[name] for name in values if name in change.after})
        assert values["b"] == OTHER
