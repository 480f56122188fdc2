"""Something that happens at the n-th file operation of a change, and what must hold afterwards."""

import asyncio
import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.pointers.campaigns.changes import NEW, Change, open_store, stored_values
from tests.pointers.campaigns.file_operations import Operation
from tests.pointers.campaigns.traffic import save

__all__ = ["Failpoint", "check", "each_time", "open_descriptors"]


class Failpoint:
    """Acts before the operation of that number among those that count, once; flushes nothing, which takes long.

    Args:
        number: 0 for the first.
        act: What happens there.
        counts: Which operations count; those that change something unless given.
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


def each_time(base: Path, change: Change) -> Iterator[tuple[int, Path]]:
    """0, 1, … each with a store as it is before the change."""
    change.prepare(base / "before")
    for number in itertools.count():
        copy = base / str(number)
        if (base / "before").exists():
            shutil.copytree(base / "before", copy)
        yield number, copy
        shutil.rmtree(copy, ignore_errors=True)


def check(change: Change, base: Path) -> None:
    """What is seen is from before or after; the next save succeeds, and then nothing is left over that matters."""
    store = open_store(base)
    values = stored_values(store)
    assert change.allows(values), values
    with asyncio.Runner() as runner:
        runner.run(save(store, "a", NEW))
        runner.run(store.verify(repair=True))
        assert not runner.run(store.verify()).findings
    assert stored_values(open_store(base)) == {**values, "a": NEW}


def open_descriptors() -> int:
    """How many there are, 0 where that is not told."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0
