"""Giant files and malformed tombstones, each of which affects only itself."""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llm_common.agents import (
    ContextPointer,
    ContextPointerStore,
    FileContextPointerStore,
)
from llm_common.errors import CorruptPointerError
from llm_common.pointers.records import MAX_RECORD_BYTES
from llm_common.storage.blob import OWN_FOLDER
from tests.pointers.conftest import opener
from tests.pointers.names import reason

GIANT_BYTES = 8_000_000_000
ADDRESS_SPACE_BYTES = 3_000_000_000
KINDS = ("meta.json", "next", "result.json", "tombstone")


def make_giant(path: Path) -> None:
    path.touch()
    with path.open("r+b") as file:
        file.truncate(GIANT_BYTES)  # sparse: it takes no room on the disk


async def save(store: ContextPointerStore, name: str, **changes: Any) -> ContextPointer:
    call: dict[str, Any] = {
        "query_id": "q",
        "task_id": None,
        "tool_name": "t",
        "args": {"name": name},
        "result": name,
    }
    return await store.save(**(call | changes))


async def use_store(base: Path, kind: str) -> None:
    """Use a store with one giant file. Raises if anything is wrong."""
    store = FileContextPointerStore(base, durability="rename")
    hit, well = await save(store, "hit"), await save(store, "well")
    other = await save(store, "other", query_id="r")
    if kind == "tombstone":
        store.delete(query_id="q", pointer_ids=[hit.pointer_id])
        [tombstone] = [
            path for path in (base / OWN_FOLDER).iterdir() if path.name.startswith("gone-")
        ]
        make_giant(tombstone)
        hit = await save(store, "hit")
    else:
        make_giant(base / "q" / f"{hit.pointer_id}.{kind}")
    listed = FileContextPointerStore(base).list_detailed(query_id="q")
    assert well in listed.pointers
    assert (hit in listed.pointers) == (kind in ("next", "tombstone"))
    assert store.load_result(pointer=well) == "well"
    if hit in listed.pointers:
        assert store.load_result(pointer=hit) == "hit"
    else:
        with pytest.raises(CorruptPointerError, match=hit.pointer_id):
            store.load_result(pointer=hit)
    report = await store.verify()
    assert report.queries == 2
    assert {one.pointer_id for one in report.findings} <= {hit.pointer_id}
    assert (await store.gc()).passed_over == 0
    assert (await store.verify(repair=True)).is_clean
    assert (await store.verify()).findings == ()
    again = await save(store, "hit")
    assert store.load_result(pointer=again) == "hit"
    assert store.delete(query_id="q") == 2
    assert store.load_result(pointer=other) == "other"
    assert reason(store, hit) == "erased"


def test_a_giant_file_affects_only_itself_f_167_s0_21(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.pointers.test_giant_files", str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]


def test_the_harness_fails_a_program_that_reads_giant_files(tmp_path: Path) -> None:
    make_giant(tmp_path / "giant")
    program = f"""
import pathlib, resource
resource.setrlimit(resource.RLIMIT_AS, ({ADDRESS_SPACE_BYTES}, {ADDRESS_SPACE_BYTES}))
pathlib.Path({str(tmp_path / "giant")!r}).read_bytes()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert "MemoryError" in done.stderr


# In a process of its own, in which nothing large was ever in memory.
SHORT_OF_MEMORY = """
import asyncio, pathlib, resource, sys
from llm_common.agents import FileContextPointerStore
from llm_common.errors import CorruptPointerError, StoreError

async def use(folder):
    store = FileContextPointerStore(folder, durability="rename")
    [pointer] = store.list(query_id="q")
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000, resource.RLIM_INFINITY))
    try:
        store.load_result(pointer=pointer)
    except StoreError as error:
        assert not isinstance(error, CorruptPointerError), error
        assert "does not fit in memory" in str(error)
    else:
        raise AssertionError("this process has memory enough")
    report = await store.verify(repair=True)
    findings = [(finding.kind, finding.repaired) for finding in report.findings]
    assert findings == [("unreadable", False)], findings

asyncio.run(use(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_repair_keeps_a_result_that_does_not_fit_in_memory_s0_21(
    files: FileContextPointerStore, tmp_path: Path
) -> None:
    pointer = await files.save(query_id="q", tool_name="t", args={}, result="x" * 90_000_000)
    program = [sys.executable, "-c", SHORT_OF_MEMORY, str(tmp_path)]
    done = await asyncio.to_thread(
        subprocess.run, program, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    assert len(files.load_result(pointer=pointer)) == 90_000_000
    assert (await files.verify()).is_clean


@pytest.mark.parametrize("home", ["memory", "objects"])
@pytest.mark.parametrize("kind", ["meta.json", "result.json"])
async def test_a_blob_over_its_size_limit_is_damaged(tmp_path: Path, home: str, kind: str) -> None:
    store = opener(home, tmp_path)()
    hit, well = await save(store, "hit"), await save(store, "well")
    [key] = [
        f"q/{name}"
        for name in store.records.blobs.scan("q").blobs
        if hit.pointer_id in name and kind in name
    ]
    large = b" " * (MAX_RECORD_BYTES + 1) + store.records.blobs.get(key)
    store.records.blobs.put(key, large)
    assert store.list(query_id="q") == [well]
    with pytest.raises(CorruptPointerError, match=hit.pointer_id):
        store.load_result(pointer=hit)
    assert not (await store.verify()).is_clean
    again = await save(store, "hit")
    assert store.load_result(pointer=again) == "hit"
    assert store.delete(query_id="q") == 2


TOMBSTONES = {
    "salt-of-a-text": b'{"salt": "not hexadecimal", "gone": {}}',
    "salt-too-long": b'{"salt": "' + b"0" * 400 + b'", "gone": {}}',
    "salt-empty": b'{"salt": "", "gone": {}}',
    "salt-a-number": b'{"salt": 5, "gone": {}}',
    "salt-with-a-newline": b'{"salt": "' + b"0" * 32 + b'\\n", "gone": {}}',
    "entries-of-a-list": b'{"gone": []}',
    "entry-without-a-day": b'{"gone": {"0": ["erased", "soon"]}}',
    "garbage": b"\x00\xff garbage",
    "empty": b"",
    "list": b"[]",
    "deep": b"[" * 5_000,
}


@pytest.mark.parametrize("data", TOMBSTONES.values(), ids=TOMBSTONES)
async def test_a_damaged_tombstone_does_not_stop_erasing_f_166_s0_21(
    files: FileContextPointerStore, tmp_path: Path, data: bytes
) -> None:
    first, second = await save(files, "first"), await save(files, "second")
    files.delete(query_id="q", pointer_ids=[first.pointer_id])
    [tombstone] = [
        path for path in (tmp_path / OWN_FOLDER).iterdir() if path.name.startswith("gone-")
    ]
    tombstone.write_bytes(data)
    assert reason(files, first) == "unknown"
    await files.gc()
    assert files.delete(query_id="q") == 1
    assert reason(files, second) == "erased"


async def test_a_broken_folder_of_tombstones_does_not_stop_erasing_f_166_s0_21(
    files: FileContextPointerStore, tmp_path: Path
) -> None:
    (tmp_path / OWN_FOLDER).write_text("no folder")
    await save(files, "a", ttl_s=1e-6)
    assert (await files.gc()).expired == 1
    await save(files, "b")
    assert files.delete(query_id="q") == 1


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    for each in KINDS:
        asyncio.run(use_store(Path(sys.argv[1]) / each, each))
