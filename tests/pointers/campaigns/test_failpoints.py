"""A process that dies, and a system that refuses, at every file operation of every change."""

import errno
import itertools
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from llm_common.errors import StoreError, StoreFullError
from tests.pointers.campaigns.changes import (
    CHANGES,
    NEW,
    Change,
    open_flushing_store,
    open_store,
    stored_values,
)
from tests.pointers.campaigns.children import child, heard_until_the_end
from tests.pointers.campaigns.failpoints import Failpoint, check, each_copy, open_descriptors
from tests.pointers.campaigns.file_operations import Operation, intercepted_operations
from tests.pointers.campaigns.naive_store import NaiveStore

FAULTS = {
    "open": (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EACCES, errno.EROFS, errno.EIO),
    "mkdir": (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS),
    "write": (errno.ENOSPC, errno.EDQUOT, errno.EIO),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES),
    "replace": (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS),
    "unlink": (errno.EIO, errno.EACCES, errno.EROFS),
    "rmdir": (errno.EIO, errno.EACCES),
    "close": (errno.EIO, errno.EDQUOT, errno.ENOSPC),
    "read": (errno.EIO,),
    "stat": (errno.EIO, errno.EACCES),
    "scandir": (errno.EIO, errno.EACCES, errno.EMFILE),
    "flock": (errno.ENOLCK, errno.EOPNOTSUPP),
}
QUICK = {"write", "fsync", "replace", "flock"}

MakeStore = Callable[[Path], Any]


def die(operation: Operation) -> None:
    if operation.name == "write":
        os.pwrite(operation.descriptor, operation.data[: len(operation.data) // 2], 0)
    os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(sender: Connection, base: Path, name: str, number: int, make: MakeStore) -> None:
    with intercepted_operations(base, Failpoint(number, die)):
        CHANGES[name].run(make(base))
    sender.send("done")


def survives_kill(
    base: Path, name: str, number: int, make: MakeStore = open_flushing_store
) -> bool:
    """Kill a process at an operation, and return whether the change ended before it."""
    with child(run_and_die, base, name, number, make) as (_, receiver):
        return heard_until_the_end(receiver) == ["done"]


class Dead(BaseException):
    """Simulates a kill in the same process: from now on, no operation changes anything."""


class Death(Failpoint):
    def __call__(self, operation: Operation, proceed: Callable[[], Any]) -> Any:
        if self.reached and operation.changes:
            raise Dead
        return super().__call__(operation, proceed)


def stop(operation: Operation) -> None:
    if operation.name == "write":
        os.pwrite(operation.descriptor, operation.data[: len(operation.data) // 2], 0)
    raise Dead


def survives_death(
    base: Path, name: str, number: int, make: MakeStore = open_flushing_store
) -> bool:
    """Simulate a kill at an operation in this process, which also ends the locks."""
    death = Death(number, stop)
    with intercepted_operations(base, death), suppress(Dead):
        CHANGES[name].run(make(base))
    return not death.reached


Survives = Callable[[Path, str, int, MakeStore], bool]
SOME, ALL = 7, 1  # operations from one death to the next
DEATHS = pytest.mark.parametrize(
    ("survives", "step"),
    [
        pytest.param(survives_death, SOME, id="short"),
        pytest.param(survives_kill, ALL, id="full", marks=pytest.mark.torture),
    ],
)


def die_everywhere(
    base: Path,
    name: str,
    survives: Survives,
    step: int = ALL,
    make: MakeStore = open_flushing_store,
) -> Counter[str]:
    """Kill at each operation, and return the number of kills and the problems."""
    wrong = Counter[str]()
    for number, copy in each_copy(base, CHANGES[name].prepare, start=len(name) % step, step=step):
        if survives(copy, name, number, make):
            break
        wrong["deaths"] += 1
        try:
            check(CHANGES[name], copy)
        except (AssertionError, StoreError) as exc:
            wrong[type(exc).__name__] += 1
    return wrong


@DEATHS
@pytest.mark.parametrize("name", CHANGES)
def test_a_death_at_any_operation_leaves_before_or_after_l3_s0_18_s0_21_f_054_f_066(
    tmp_path: Path, name: str, survives: Survives, step: int
) -> None:
    wrong = die_everywhere(tmp_path, name, survives, step)
    assert wrong.pop("deaths", 0) >= 5 // step
    assert not wrong


@DEATHS
@pytest.mark.parametrize("name", ["first-save", "re-save"])
def test_the_harness_catches_a_store_that_writes_in_place_l3(
    tmp_path: Path, name: str, survives: Survives, step: int
) -> None:
    wrong = die_everywhere(tmp_path, name, survives, make=NaiveStore)
    assert len(wrong) > 1


@pytest.mark.torture
@pytest.mark.parametrize("name", CHANGES)
def test_a_second_kill_during_recovery_is_survived_l3_s0_18_f_054_f_066(
    tmp_path: Path, name: str
) -> None:
    deaths = 0
    for number, copy in each_copy(tmp_path / "once", CHANGES[name].prepare):
        if survives_death(copy, name, number):
            break
        before = stored_values(open_store(copy))
        for again in itertools.count():
            twice = tmp_path / "twice"
            if copy.exists():
                shutil.copytree(copy, twice)
            done = survives_death(twice, "re-save", again)
            check(Change(before, lambda _: None, {**before, "a": NEW}), twice)
            shutil.rmtree(twice)
            deaths += 2
            if done:
                break
    assert deaths > 0


def failing_with(code: int) -> Callable[[Operation], None]:
    def fail(_: Operation) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize(
    ("name", "refused", "code"),
    [
        pytest.param(
            name,
            refused,
            code,
            id=f"{name}-{refused}-{errno.errorcode[code]}",
            marks=[]
            if name == "re-save" and refused in QUICK and code == codes[0]
            else [pytest.mark.torture],
        )
        for name in CHANGES
        for refused, codes in FAULTS.items()
        for code in codes
    ],
)
def test_an_error_at_any_operation_is_typed_f_058_f_059_f_060_f_061_f_063_f_064_f_065_f_071(
    tmp_path: Path, name: str, refused: str, code: int
) -> None:
    change = CHANGES[name]
    for number, copy in each_copy(tmp_path, change.prepare):
        failpoint = Failpoint(
            number, failing_with(code), counts=lambda operation: operation.name == refused
        )
        descriptors, failure = open_descriptors(), None
        with intercepted_operations(copy, failpoint):
            try:
                change.run(open_flushing_store(copy))
            except StoreError as exc:
                failure = exc
        if not failpoint.reached:
            break
        assert open_descriptors() == descriptors
        if failure is None:
            values = stored_values(open_store(copy))
            assert {
                name: value for name, value in values.items() if name not in change.later
            } == change.after
        elif code in (errno.ENOSPC, errno.EDQUOT):
            assert type(failure) is StoreFullError
        if failure is not None and name.startswith("first"):
            assert stored_values(open_store(copy)) == change.before
        assert not list(copy.rglob(".tmp-*"))
        check(change, copy)
