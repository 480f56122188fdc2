"""File systems that are really full, read-only, or refuse this user."""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import FileContextPointerStore
from llm_common.errors import StoreError, StoreFullError
from tests.pointers.campaigns.children import answer, mount_own_tmpfs, needs_mounts, remount
from tests.pointers.campaigns.naive_store import PointerStore
from tests.pointers.campaigns.traffic import NAIVE, OURS, MakeStore, content, faults, save

ANOTHER_USER = 65_534


def fill(
    runner: asyncio.Runner, store: PointerStore, turn: int, figures: Counter[str]
) -> Iterator[str]:
    """Save calls until twelve are refused, and return the names of the saved ones.

    One call is saved again and again.
    """
    refused = 0
    for number in itertools.count():
        name = f"{turn}-{number if number % 3 else 0}"
        try:
            runner.run(save(store, name, content(name, number)))
            yield name
        except StoreFullError:
            figures["refused"] += 1
            refused += 1
        except OSError as exc:
            figures[type(exc).__name__] += 1
            refused += 1
        if refused == 12:
            return


def fill_and_free(base: Path, make: MakeStore, options: str, rounds: int) -> Counter[str]:
    """Fill a small disk, free a part and fill it again. Returns the problems."""
    mount_own_tmpfs(base, options)
    store, reader, figures, saved = (
        make(base),
        FileContextPointerStore(base),
        Counter[str](),
        set[str](),
    )
    with asyncio.Runner() as runner:
        for turn in range(rounds):
            saved.update(fill(runner, store, turn, figures))
            pointers, wrong = faults(FileContextPointerStore(base))
            figures += wrong
            figures["lost"] += len(saved - {pointer.args["name"] for pointer in pointers})
            figures["saved"] += len(saved)
            kinds = {finding.kind for finding in runner.run(reader.verify()).findings}
            figures.update(kinds - {"leftover_next"})  # the next save of that call drops it
            freed = [
                pointer for pointer in pointers if pointer.args["name"].endswith(("1", "2", "4"))
            ]
            reader.delete(query_id="q", pointer_ids=[pointer.pointer_id for pointer in freed])
            saved -= {pointer.args["name"] for pointer in freed}
        figures["left over"] = len(list(base.rglob(".tmp-*")))
        runner.run(reader.verify(repair=True))
        figures["not repaired"] = len(runner.run(reader.verify()).findings)
    return +figures


DISKS = [
    pytest.param("size=1m", 2, id="short"),
    pytest.param("size=8m", 20, id="full", marks=pytest.mark.torture),
]


@pytest.mark.parametrize(
    ("options", "rounds"), [*DISKS, pytest.param("size=2m,nr_inodes=60", 2, id="short-of-inodes")]
)
def test_a_full_disk_is_a_typed_error_without_partial_saves_l6_f_058_f_059_f_065(
    tmp_path: Path, options: str, rounds: int
) -> None:
    needs_mounts()
    figures = answer(fill_and_free, tmp_path, OURS, options, rounds)
    assert figures.pop("saved") > 10
    assert figures.pop("refused") == 12 * rounds
    assert not figures


@pytest.mark.parametrize(("options", "rounds"), DISKS)
def test_the_harness_catches_a_store_that_writes_in_place_l6(
    tmp_path: Path, options: str, rounds: int
) -> None:
    needs_mounts()
    figures = answer(fill_and_free, tmp_path, NAIVE, options, rounds)
    assert figures.keys() - {"saved", "refused", "OSError"}


def outcome(action: Callable[[], Any]) -> str:
    """Return the name of the error that an action raises, or its result as text."""
    try:
        return repr(action())
    except StoreError as exc:
        return type(exc).__name__


def use(store: FileContextPointerStore) -> list[str]:
    """Save a new and an old call, delete, list and load, and return the outcomes."""
    return [
        outcome(lambda: asyncio.run(save(store, "new", 2))),
        outcome(lambda: asyncio.run(save(store, "old", 2))),
        outcome(lambda: store.delete(query_id="q")),
        outcome(
            lambda: [store.load_result(pointer=pointer) for pointer in store.list(query_id="q")]
        ),
    ]


REFUSED = ["StoreError", "StoreError", "StoreError", "[1]"]


def use_read_only(base: Path) -> list[str]:
    mount_own_tmpfs(base, "size=1m")
    store = FileContextPointerStore(base)
    asyncio.run(save(store, "old", 1))
    remount(base, "ro")
    said = use(store)
    remount(base, "rw")
    asyncio.run(save(store, "old", 1))
    return said


def test_a_read_only_disk_allows_only_reads_f_026(tmp_path: Path) -> None:
    needs_mounts()
    assert answer(use_read_only, tmp_path) == REFUSED


def use_without_rights(base: Path, mode: int) -> list[str]:
    os.chown(base, ANOTHER_USER, ANOTHER_USER)
    asyncio.run(asyncio.to_thread(int))  # imports what another user may not read
    os.setgroups([])
    os.setuid(ANOTHER_USER)
    store = FileContextPointerStore(base)
    asyncio.run(save(store, "old", 1))
    (base / "q").chmod(mode)
    said = use(store)
    (base / "q").chmod(0o700)
    assert outcome(lambda: asyncio.run(save(store, "old", 1))).startswith("ContextPointer")
    return said


@pytest.mark.parametrize(
    ("mode", "said"),
    [(0o500, REFUSED), (0o000, ["StoreError"] * 4)],
    ids=["F-064", "F-026-unreadable"],
)
def test_without_rights_nothing_is_changed_and_nothing_looks_empty(
    shared_root: Path, mode: int, said: list[str]
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    assert answer(use_without_rights, shared_root, mode) == said
