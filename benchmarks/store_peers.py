"""The released stores that `bench_store.py` compares with, each used as its documentation says, with its defaults.

All but diskcache take text or bytes: a result is encoded by the standard library, as their own
frameworks do, unless it is text. haystack-ai and diskcache have no asynchronous methods; haystack's
agent and diskcache's documentation both call them in a thread, and so does this. None flushes to
the disk, keeps a digest, redacts, or keeps a pointer with arguments and summary beside the result.
"""

import asyncio
import importlib
import json
import shutil
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Self

import orjson

from benchmarks.store_subjects import Subject

__all__ = ["PEERS", "Haystack", "installed_peers", "open_peers"]


class Codec:
    """How a result becomes text and comes back: as the frameworks do it, or by orjson, which one might use instead."""

    def __init__(self, *, fast: bool) -> None:
        self._fast = fast

    def dumps(self, value: object) -> str:
        if isinstance(value, str):
            return value
        return orjson.dumps(value).decode() if self._fast else json.dumps(value, ensure_ascii=False)

    def loads(self, text: str | bytes) -> object:
        value: object = (orjson.loads if self._fast else json.loads)(text)
        return value


class Peer:
    """A released store of another package: a directory with a folder per query."""

    name: str

    def __init__(self, base: Path, codec: Codec) -> None:
        self._base, self._codec = base, codec

    async def drop(self, query: str) -> None:
        shutil.rmtree(self._base / query)

    def reopen(self) -> Self:
        return type(self)(self._base, self._codec)


class Strands(Peer):
    """`LocalFileStorage`, where the context offloader puts tool results; it lists keys.

    Atomic by a temporary file and a rename. Its methods are coroutines that do everything on the
    event loop.
    """

    name = "strands-agents"

    def __init__(self, base: Path, codec: Codec) -> None:
        super().__init__(base, codec)
        self._storage: Any = importlib.import_module("strands.storage").LocalFileStorage(str(base))

    async def save(self, query: str, number: int, value: object) -> None:
        await self._storage.write(f"{query}/{number}", self._codec.dumps(value).encode())

    async def load(self, query: str, number: int) -> object:
        return self._codec.loads(await self._storage.read(f"{query}/{number}"))

    async def list(self, query: str) -> int:
        return len(await self._storage.list(f"{query}/"))


class Haystack(Peer):
    """`FileSystemToolResultStore` of the offloading hook; it cannot list.

    A plain write: a reader may see half a file, and a killed process leaves one.
    """

    name = "haystack-ai"

    def __init__(self, base: Path, codec: Codec) -> None:
        super().__init__(base, codec)
        offloading = importlib.import_module("haystack.hooks.tool_result_offloading")
        self._store: Any = offloading.FileSystemToolResultStore(root=base)

    async def save(self, query: str, number: int, value: object) -> None:
        await asyncio.to_thread(
            lambda: self._store.write(key=f"{query}/{number}.txt", content=self._codec.dumps(value))
        )

    async def load(self, query: str, number: int) -> object:
        return self._codec.loads(await asyncio.to_thread(self._store.read, f"{query}/{number}.txt"))

    async def list(self, query: str) -> int:
        raise NotImplementedError


class DeepAgents(Peer):
    """`FilesystemBackend`, where large tool results are moved; it lists paths, sizes and times.

    A plain write in a thread: a reader may see half a file, and a killed process leaves one.
    """

    name = "deepagents"

    def __init__(self, base: Path, codec: Codec) -> None:
        super().__init__(base, codec)
        self._backend: Any = importlib.import_module("deepagents.backends").FilesystemBackend(
            root_dir=base
        )

    async def save(self, query: str, number: int, value: object) -> None:
        written = await self._backend.awrite(f"/{query}/{number}", self._codec.dumps(value))
        assert written.error is None, written.error

    async def load(self, query: str, number: int) -> object:
        read = await self._backend.aread(f"/{query}/{number}")
        return self._codec.loads(read.file_data["content"])

    async def list(self, query: str) -> int:
        return len((await self._backend.als(f"/{query}")).entries)


class DiskCache(Peer):
    """`Cache`; it lists keys.

    Atomic by SQLite, with a file of its own for a value from 32 KB. It pickles, so whoever can
    write its files runs code in its readers, and from a gigabyte on it drops what is oldest.
    """

    name = "diskcache"

    def __init__(self, base: Path, codec: Codec) -> None:
        super().__init__(base, codec)
        self._cache: Any = importlib.import_module("diskcache").Cache(str(base))

    async def save(self, query: str, number: int, value: object) -> None:
        await asyncio.to_thread(self._cache.set, (query, number), value)

    async def load(self, query: str, number: int) -> object:
        value: object = await asyncio.to_thread(self._cache.get, (query, number))
        return value

    async def list(self, query: str) -> int:
        return await asyncio.to_thread(lambda: sum(key[0] == query for key in self._cache))

    async def drop(self, query: str) -> None:
        await asyncio.to_thread(
            lambda: [self._cache.delete(key) for key in self._cache if key[0] == query]
        )


class Adk(Peer):
    """`FileArtifactService`; it lists names, for which it reads the record of each newest version.

    Atomic by a folder that is renamed, all in a thread; keeps every version, with its type and
    time.
    """

    name = "google-adk"

    def __init__(self, base: Path, codec: Codec) -> None:
        super().__init__(base, codec)
        artifacts = importlib.import_module("google.adk.artifacts.file_artifact_service")
        self._service: Any = artifacts.FileArtifactService(root_dir=base)
        self._part: Any = importlib.import_module("google.genai.types").Part

    async def save(self, query: str, number: int, value: object) -> None:
        part = self._part.from_bytes(
            data=self._codec.dumps(value).encode(), mime_type="application/json"
        )
        await self._service.save_artifact(
            **self._scope(query), filename=f"{number}.json", artifact=part
        )

    async def load(self, query: str, number: int) -> object:
        part = await self._service.load_artifact(**self._scope(query), filename=f"{number}.json")
        return self._codec.loads(part.inline_data.data)

    async def list(self, query: str) -> int:
        return len(await self._service.list_artifact_keys(**self._scope(query)))

    async def drop(self, query: str) -> None:
        shutil.rmtree(self._base / "apps/bench/users/user/sessions" / query)

    def _scope(self, query: str) -> dict[str, str]:
        return {"app_name": "bench", "user_id": "user", "session_id": query}


PEERS = (Strands, Haystack, DeepAgents, DiskCache, Adk)


def installed_peers() -> list[str]:
    """Return the installed packages of the peers."""
    found = []
    for peer in PEERS:
        with suppress(PackageNotFoundError):
            version(peer.name)
            found.append(peer.name)
    return found


def open_peers(folder: Path, *, fast: bool) -> list[Subject]:
    """Open a store of each installed peer in a separate folder.

    Args:
        folder: Where their folders are made.
        fast: Whether orjson encodes for them, instead of the standard library.
    """
    codec = Codec(fast=fast)
    installed = installed_peers()
    return [peer(folder / peer.name, codec) for peer in PEERS if peer.name in installed]
