"""The homes of pointers: files, memory and an object store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore.store
import pytest

from llm_common.agents import (
    ContextPointerStore,
    FileContextPointerStore,
    ObjectContextPointerStore,
)
from llm_common.pointers.records import LockedRecords
from llm_common.storage import MemoryBlobStore

HOMES = ("files", "memory", "objects")

Open = Callable[..., ContextPointerStore]


def opener(home: str, base: Path) -> Open:
    """Return a function that opens the same store again, as after a restart."""
    memory, objects = MemoryBlobStore(), obstore.store.MemoryStore()

    def open_store(**options: Any) -> ContextPointerStore:
        if home == "files":
            return FileContextPointerStore(base, durability="rename", **options)
        if home == "memory":
            return ContextPointerStore(LockedRecords(memory), **options)
        return ObjectContextPointerStore(objects, **options)

    return open_store


@pytest.fixture(params=HOMES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return opener(request.param, tmp_path / "base")


@pytest.fixture
def store(open_store: Open) -> ContextPointerStore:
    return open_store()


@pytest.fixture
def files(tmp_path: Path) -> FileContextPointerStore:
    """A store of files in the folder of the test."""
    return FileContextPointerStore(tmp_path, durability="rename")
