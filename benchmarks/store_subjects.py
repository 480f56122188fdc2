"""What `bench_store.py` measures: `Ours`, and `Floor`, what keeping a result costs at the least.

The floor is the system calls and the encoder in a bare loop. It makes the very calls on files that
the store makes, and looks at no answer. A save opens the folder and locks it, asks what the base,
the folder and the lock are, looks whether the pointer is there or was about to be, and puts two
files in place by a temporary one and a rename: the result and a record that commits it, both
flushed before either has its name. A load reads both files, a listing every record, after the
status of each result. Nothing is checked, redacted or described. A floor with a thread does what a
store cannot do without that verifies its results and never blocks the event loop.
"""

import asyncio
import fcntl
import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

import orjson

from llm_common.agents import ContextPointer, FileContextPointerStore
from llm_common.storage import Durability

__all__ = ["ARGS", "TOOL_NAME", "Floor", "Ours", "Subject"]

TOOL_NAME = "web_search"
ARGS = {"query": "event loops that never wait", "count": 10}
_OURS = os.O_NOFOLLOW | os.O_NONBLOCK


class Subject(Protocol):
    """A store that keeps results by query and number."""

    name: str

    async def save(self, query: str, number: int, value: object) -> None:
        """Save a new result."""

    async def load(self, query: str, number: int) -> object:
        """Load a result."""

    async def list(self, query: str) -> int:
        """Return the number of results in a listing of the query."""

    async def drop(self, query: str) -> None:
        """Remove the results of a query."""

    def reopen(self) -> "Subject":
        """Reopen the store without cached results."""


class Ours:
    """The store, through its public methods."""

    def __init__(self, name: str, base: Path, *, durability: Durability) -> None:
        self.name, self._base, self._durability = name, base, durability
        self._store = FileContextPointerStore(base, durability=durability)
        self._pointers: dict[tuple[str, int], ContextPointer] = {}

    async def save(self, query: str, number: int, value: object) -> None:
        self._pointers[query, number] = await self._store.save(
            query_id=query,
            task_id=None,
            tool_name=TOOL_NAME,
            args=ARGS | {"page": number},
            result=value,
        )

    async def load(self, query: str, number: int) -> object:
        value: object = self._store.load_result(pointer=self._pointers[query, number])
        return value

    async def list(self, query: str) -> int:
        return len(self._store.list(query_id=query))

    async def drop(self, query: str) -> None:
        self._store.delete(query_id=query)

    def reopen(self) -> "Ours":
        fresh = Ours(self.name, self._base, durability=self._durability)
        fresh._pointers = self._pointers
        return fresh


class _Thread:
    """Runs one function after another."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]]] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    async def run(self, function: Callable[[], None]) -> None:
        ended = asyncio.get_running_loop().create_future()
        self._calls.put((function, ended))
        await ended

    def _work(self) -> None:
        while True:
            function, ended = self._calls.get()
            function()
            ended.get_loop().call_soon_threadsafe(ended.set_result, None)


class Floor:
    """Results in a directory, a folder for each query.

    Args:
        base: The directory.
        fsync: Whether a save survives a power failure: both files are flushed, then the folder.
        sha256: Whether results are hashed, when saved and when loaded.
        thread: Whether saves leave the event loop free, by the shortest way to a thread and back.
    """

    def __init__(
        self,
        name: str,
        base: Path,
        *,
        fsync: bool = False,
        sha256: bool = False,
        thread: bool = False,
    ) -> None:
        self.name, self._base, self._fsync, self._sha256 = name, base, fsync, sha256
        self._thread = _Thread() if thread else None

    async def save(self, query: str, number: int, value: object) -> None:
        if self._thread is None:
            self._save(query, number, value)
        else:
            await self._thread.run(lambda: self._save(query, number, value))

    def _save(self, query: str, number: int, value: object) -> None:
        try:
            folder = self._open(query)
        except FileNotFoundError:
            os.makedirs(f"{self._base}/{query}")  # noqa: PTH103
            folder = self._open(query)
        lock = os.open(".lock", os.O_RDWR | os.O_CREAT | _OURS, 0o600, dir_fd=folder)
        os.fstat(lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.stat(f"{self._base}/{query}/.lock", follow_symlinks=False)  # noqa: PTH116
        for name in (_meta(number), f"{number:012x}.next"):
            with suppress(FileNotFoundError):
                os.close(os.open(name, os.O_RDONLY | _OURS, dir_fd=folder))
                raise FileExistsError(name)
        data = orjson.dumps(value)
        sha256 = hashlib.sha256(data).hexdigest() if self._sha256 else "0" * 64
        result = self._write(folder, data)
        meta = self._write(folder, orjson.dumps(_record(query, number, len(data), sha256)))
        if self._fsync:
            os.fsync(result[0])
            os.close(result[0])
            os.fsync(meta[0])
            os.close(meta[0])
        os.rename(result[1], f"{number:012x}.result.json", src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(meta[1], _meta(number), src_dir_fd=folder, dst_dir_fd=folder)
        if self._fsync:
            os.fsync(folder)
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)
        os.close(folder)

    async def load(self, query: str, number: int) -> object:
        folder = self._open(query)
        record = orjson.loads(_read(folder, _meta(number)))
        data = _read(folder, f"{number:012x}.result.json")
        os.close(folder)
        if self._sha256:
            assert hashlib.sha256(data).hexdigest() == record["result_sha256"]
        value: object = orjson.loads(data)
        return value

    async def list(self, query: str) -> int:
        folder = self._open(query)
        names = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".meta.json"):
                    names.append(entry.name)
                else:
                    entry.stat(follow_symlinks=False)
        records = [orjson.loads(_read(folder, name)) for name in names]
        os.close(folder)
        return len(records)

    async def drop(self, query: str) -> None:
        shutil.rmtree(self._base / query)

    def reopen(self) -> "Floor":
        return self

    def _open(self, query: str) -> int:
        """Open the folder after checking the owner of the folder and the base."""
        os.geteuid()
        os.stat(self._base)  # noqa: PTH116
        folder = os.open(f"{self._base}/{query}", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        os.fstat(folder)
        return folder

    def _write(self, folder: int, data: bytes) -> tuple[int, str]:
        """Write the temporary file, and keep it open if it must be flushed."""
        temporary = f".tmp-{os.getpid()}-{secrets.token_hex(8)}"
        file = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OURS, 0o600, dir_fd=folder
        )
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        if self._fsync:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            os.close(file)
        return file, temporary


def _meta(number: int) -> str:
    return f"{number:012x}.meta.json"


def _read(folder: int, name: str) -> bytes:
    file = os.open(name, os.O_RDONLY, dir_fd=folder)
    data = os.read(file, os.fstat(file).st_size)
    os.close(file)
    return data


def _record(query: str, number: int, size: int, sha256: str) -> dict[str, object]:
    """Return a commit record with the fields and about the size of a pointer."""
    return {
        "pointer_id": f"{number:012x}",
        "query_id": query,
        "task_id": None,
        "tool_name": TOOL_NAME,
        "args": ARGS | {"page": number},
        "created_at": "2025-01-01T00:00:00.000000+00:00",
        "summary": "web_search query=event loops that never wait count=10",
        "result_path": f"/{'p' * 70}",
        "source_urls": [],
        "result_bytes": size,
        "result_sha256": sha256,
        "digest": "words " * 112,
        "args_sha256": "0" * 64,
        "expires_at": None,
        "pinned": False,
        "result_fits_64_bits": True,
    }
