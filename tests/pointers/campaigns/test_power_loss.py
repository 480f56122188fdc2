"""A store after a power failure at any moment of its changes, for every possible disk."""

import asyncio
import itertools
import math
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from llm_common.agents import FileContextPointerStore
from llm_common.errors import StoreError
from tests.pointers.campaigns.changes import save_at_once
from tests.pointers.campaigns.file_operations import Operation, intercepted_operations
from tests.pointers.campaigns.naive_store import NaiveStore
from tests.pointers.campaigns.traffic import save

World = dict[str, bytes | None]
"""Content by path; None for a folder."""

_FOLDER: Final = -1


@dataclass(slots=True)
class _File:
    content: bytes = b""
    flushed: bytes = b""

    def possible(self) -> list[bytes]:
        half, zeros = self.content[: len(self.content) // 2], bytes(len(self.content))
        if self.content == self.flushed:
            return [self.content]
        return list(dict.fromkeys([self.content, self.flushed, b"", half, zeros]))


@dataclass(frozen=True, slots=True)
class _NameChange:
    folder: str
    removed: str | None = None
    added: str | None = None
    what: int = _FOLDER

    def apply(self, names: dict[str, int]) -> None:
        if self.removed is not None:
            names.pop(self.removed, None)
        if self.added is not None:
            names[self.added] = self.what


@dataclass(slots=True)
class Disk:
    """Follows the operations of a store, and returns the possible contents after a failure.

    The model is harsher than ext4, xfs or btrfs. Any subset of the names that a folder got or lost
    since its last flush may have reached the disk. A file that was written since its last flush may
    be complete, as at its last flush, empty, cut in the middle, or full of zeros. A rename is one
    change.
    """

    root: Path
    files: list[_File] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    flushed: dict[str, int] = field(default_factory=dict)
    pending: list[_NameChange] = field(default_factory=list)

    def follow(self, operation: Operation) -> None:
        path = operation.path
        match operation.name:
            case "open" if operation.flags & os.O_CREAT and path not in self.names:
                self.files.append(_File())
                self._rename(added=path, what=len(self.files) - 1)
            case "open" if operation.flags & os.O_TRUNC:
                self.files[self.names[path]].content = b""
            case "write" | "writev":
                self.files[self.names[path]].content += operation.data
            case "mkdir":
                self._rename(added=path)
            case "rename" | "replace":
                self._rename(removed=path, added=operation.target, what=self.names[path])
            case "link":
                self._rename(added=operation.target, what=self.names[path])
            case "unlink" | "remove" | "rmdir":
                self._rename(removed=path)
            case "fsync" | "fdatasync":
                self._flush(path)

    def now(self) -> World:
        """Return the contents as long as the power stays on."""
        return {
            path: None if what == _FOLDER else self.files[what].content
            for path, what in self.names.items()
        }

    def worlds(self, *, most: int, chance: random.Random) -> Iterator[World]:
        """Return the possible contents after a power failure, a random sample if over `most`."""
        count = len(self.pending)
        masks = (
            range(1 << count)
            if 1 << count <= most
            else [chance.getrandbits(count) for _ in range(most)]
        )
        for mask in masks:
            names = dict(self.flushed)
            for number, change in enumerate(self.pending):
                if mask >> number & 1:
                    change.apply(names)
            yield from self._contents(
                self._reachable(names), most=most if 1 << count <= most else 4, chance=chance
            )

    def _contents(
        self, names: dict[str, int], *, most: int, chance: random.Random
    ) -> Iterator[World]:
        used = sorted({what for what in names.values() if what != _FOLDER})
        possible = [self.files[what].possible() for what in used]
        contents: Iterable[tuple[bytes, ...]] = itertools.product(*possible)
        if math.prod(map(len, possible)) > most:
            contents = (tuple(map(chance.choice, possible)) for _ in range(most))
        for chosen in contents:
            content = dict(zip(used, chosen, strict=True))
            yield {path: content.get(what) for path, what in names.items()}

    def _reachable(self, names: dict[str, int]) -> dict[str, int]:
        """Return the names without those in a folder whose own name is lost."""

        def there(path: Path) -> bool:
            return path == self.root or (str(path) in names and there(path.parent))

        return {path: what for path, what in names.items() if there(Path(path))}

    def _rename(
        self, *, removed: str | None = None, added: str | None = None, what: int = _FOLDER
    ) -> None:
        change = _NameChange(str(Path(added or removed or "").parent), removed, added, what)
        change.apply(self.names)
        self.pending.append(change)

    def _flush(self, path: str) -> None:
        if self.names.get(path, _FOLDER) != _FOLDER:
            file = self.files[self.names[path]]
            file.flushed = file.content
            return
        for change in [change for change in self.pending if change.folder == path]:
            change.apply(self.flushed)
            self.pending.remove(change)


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
