"""Faults at the n-th file operation of a change, and what must hold afterwards."""

import asyncio
import gc
import itertools
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.pointers.campaigns.changes import NEW, Change, open_store, stored_values
from tests.pointers.campaigns.file_operations import Operation
from tests.pointers.campaigns.traffic import save

_QUIET_S = 0.05


class Failpoint:
    """Acts once, before the n-th of the operations that count.

    Does not flush, which takes long.

    Args:
        number: Index of the operation, from 0.
        act: The action.
        counts: Selects the operations that count, by default those that change something.
    """

    def __init__(
        self,
        number: int,
        act: Callable[[Operation], None],
        *,
        counts: Callable[[Operation], bool] = lambda operation: operation.changes,
    ) -> None:
        self.reached = False
        self._left = number
        self._act = act
        self._counts = counts

    def __call__(self, operation: Operation, proceed: Callable[[], Any]) -> Any:
        if self._counts(operation):
            self._left -= 1
            if self._left == -1:
                self.reached = True
                self._act(operation)
        return None if operation.name == "fsync" else proceed()


def each_copy(
    base: Path, prepare: Callable[[Path], None], *, start: int = 0, step: int = 1
) -> Iterator[tuple[int, Path]]:
    """start, start + step, … each with a copy of a store that was prepared once.

    The caller ends it.
    """
    prepare(base / "before")
    gc.collect()  # of earlier tests, whose descriptors would be counted
    for number in itertools.count(start, step):
        copy = base / str(number)
        if (base / "before").exists():
            shutil.copytree(base / "before", copy)
        yield number, copy
        shutil.rmtree(copy, ignore_errors=True)


def check(change: Change, base: Path) -> None:
    """Check that the store holds the values before or after the change.

    The next save then succeeds, and `verify` reports nothing.
    """
    store = open_store(base)
    values = stored_values(store)
    assert change.allows(values), values
    with asyncio.Runner() as runner:
        runner.run(save(store, "a", NEW))
        runner.run(store.verify(repair=True))
        assert not runner.run(store.verify()).findings
    assert stored_values(open_store(base)) == {**values, "a": NEW}


def wait_until_quiet(base: Path, *, patience_s: float = 10) -> None:
    """Wait until no file of a store has changed for a while."""
    deadline, seen = time.monotonic() + patience_s, None
    while time.monotonic() < deadline:
        files = {
            path: path.lstat().st_ctime_ns for path in base.rglob("*") if os.path.lexists(path)
        }
        if files == seen and not any(path.name.startswith(".tmp-") for path in files):
            return
        seen = files
        time.sleep(_QUIET_S)
    raise AssertionError("the store's files go on changing")


def open_descriptors() -> int:
    """Count the open descriptors of this process, 0 if the system does not list them."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
