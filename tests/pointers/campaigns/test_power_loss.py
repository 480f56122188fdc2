"""A store after a power failure at any moment of its changes, for every possible disk."""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import FileContextPointerStore
from llm_common.errors import StoreError
from tests.pointers.campaigns.changes import save_at_once
from tests.pointers.campaigns.file_operations import Operation, intercepted_operations
from tests.pointers.campaigns.naive_store import NaiveStore
from tests.pointers.campaigns.power_loss import Disk, World
from tests.pointers.campaigns.traffic import save

Values = dict[str, int]

AT_ONCE = {"b": 6_666_666, "c": 7_777_777, "d": 8_888_888}
STEPS: list[tuple[Callable[[Any], Any], Values]] = [
    (lambda store: save(store, "a", 1_111_111), {"a": 1_111_111}),
    (lambda store: save(store, "b", 5_555_555), {"a": 1_111_111, "b": 5_555_555}),
    (lambda store: save(store, "a", 2_222_222), {"a": 2_222_222, "b": 5_555_555}),
    (lambda store: save(store, "a", 3_333_333), {"a": 3_333_333, "b": 5_555_555}),
    (lambda store: store.delete(query_id="q"), {}),
    (lambda store: save(store, "a", 4_444_444), {"a": 4_444_444}),
    (lambda store: save_at_once(store, AT_ONCE), {"a": 4_444_444, **AT_ONCE}),
]
EVER_SAVED = {
    "a": {1_111_111, 2_222_222, 3_333_333, 4_444_444},
    "b": {5_555_555, 6_666_666},
    "c": {7_777_777},
    "d": {8_888_888},
}

FULL = partial(FileContextPointerStore, durability="full")
RENAME = partial(FileContextPointerStore, durability="rename")


def losses(
    root: Path, make: Callable[[Path], Any], *, most: int
) -> Iterator[tuple[World, Values, Values]]:
    """Yield the possible disks, the acknowledged values and the next ones at each operation."""
    disk, chance, recorded = Disk(root), random.Random(7), list[Operation]()

    def record(operation: Operation, proceed: Callable[[], Any]) -> Any:
        done = None if operation.name == "fsync" else proceed()
        recorded.append(operation)
        return done

    store, acknowledged = make(root / "base"), Values()
    for step, after in STEPS:
        with intercepted_operations(root, record):
            done = step(store)
            if asyncio.iscoroutine(done):
                asyncio.run(done)
        for operation in recorded:
            disk.follow(operation)
            if operation.changes:
                yield from (
                    (world, acknowledged, after) for world in disk.worlds(most=most, chance=chance)
                )
        recorded.clear()
        acknowledged = after
        assert disk.now() == on_disk(root), "an operation was not recorded"
        yield from ((world, acknowledged, after) for world in disk.worlds(most=most, chance=chance))


def on_disk(root: Path) -> World:
    return {str(path): None if path.is_dir() else path.read_bytes() for path in root.rglob("*")}


def put_on_disk(world: World, old: Path, new: Path) -> None:
    new.mkdir()
    for path in sorted(world):
        content, place = world[path], new / Path(path).relative_to(old)
        if content is None:
            place.mkdir()
        else:
            place.write_bytes(content)


def wrong_with(
    base: Path, acknowledged: Values, after: Values, runner: asyncio.Runner
) -> Iterator[str]:
    """Return the problems of a store after a power failure, by kind."""
    store, found = FileContextPointerStore(base, durability="rename", lock_timeout_s=1), Values()
    for pointer in store.list(query_id="q"):
        try:
            found[pointer.args["name"]] = store.load_result(pointer=pointer)
        except StoreError:
            yield "listed but refused"
    for name, ever in EVER_SAVED.items():
        if name in found and found[name] not in ever:
            yield "torn"
        elif found.get(name) not in (acknowledged.get(name), after.get(name)):
            yield "lost"
    pointer = runner.run(save(store, "a", 9_999_999))
    if pointer not in store.list(query_id="q") or store.load_result(pointer=pointer) != 9_999_999:
        yield "of no use any more"


def lose_power(
    base: Path, make: Callable[[Path], Any], *, most: int, checked: int | None = None
) -> Counter[str]:
    """Return the numbers of different and of checked disks, and the problems."""
    before, after = base / "before", base / "after"
    before.mkdir(parents=True)
    different = {
        (tuple(sorted(world.items())), tuple(acknowledged.items()), tuple(after.items()))
        for world, acknowledged, after in losses(before, make, most=most)
    }
    chosen = sorted(different, key=repr)
    if checked is not None:
        chosen = random.Random(7).sample(chosen, min(checked, len(chosen)))
    wrong = Counter({"worlds": len(different), "checked": len(chosen)})
    with asyncio.Runner() as runner:
        for world, acknowledged, wanted in chosen:
            put_on_disk(dict(world), before, after)
            wrong.update(set(wrong_with(after / "base", dict(acknowledged), dict(wanted), runner)))
            shutil.rmtree(after)
    return wrong


SIZES = pytest.mark.parametrize(
    ("most", "checked"),
    [
        pytest.param(4, 24, id="short"),
        pytest.param(1_024, 5_000, id="full", marks=pytest.mark.torture),
    ],
)


@SIZES
def test_after_a_flush_nothing_acknowledged_is_lost_l7_s0_18(
    tmp_path: Path, most: int, checked: int
) -> None:
    wrong = lose_power(tmp_path, FULL, most=most, checked=checked)
    assert wrong.pop("worlds") > 100
    assert wrong.keys() == {"checked"}


@SIZES
def test_without_flushes_a_save_may_be_lost_but_is_never_torn_l7_s0_18(
    tmp_path: Path, most: int, checked: int
) -> None:
    wrong = lose_power(tmp_path, RENAME, most=most, checked=checked)
    assert wrong.keys() <= {"worlds", "checked", "lost", "listed but refused"}


@SIZES
def test_the_harness_catches_a_store_that_does_not_flush_l7(
    tmp_path: Path, most: int, checked: int
) -> None:
    wrong = lose_power(tmp_path, NaiveStore, most=most, checked=checked)
    assert wrong["torn"]
    assert wrong["lost"]
