"""`FileBlobStore`: blobs as plain files under one directory."""

import itertools
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from operator import itemgetter
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from llm_common.errors import InvalidIdError, PointerNotFoundError, StoreError
from llm_common.storage.blob import (
    FolderSurvey,
    StampedFile,
    check_folder,
    check_key,
    check_name,
    check_names,
    check_query_id,
)
from llm_common.storage.folder import (
    LOCK_NAME,
    Folder,
    Trust,
    as_store_errors,
    open_folder,
    remove_directory,
    take_turn,
)

__all__ = ["Durability", "FileBlobStore"]

Durability = Literal["full", "rename"]
Found = TypeVar("Found")
Look: TypeAlias = Generator[Found, None, int]

_log = logging.getLogger(__name__)

_REMOVALS = 8  # of a folder within the time that it takes to open one


class _Held(threading.local):
    """The folder that this thread has locked last, and still holds."""

    name: str | None = None
    folder: Folder | None = None

    def set(self, name: str | None, folder: Folder | None) -> None:
        self.name, self.folder = name, folder


class FileBlobStore:
    """A `BlobStore` of files `base_dir/folder/name` that survives kill -9, power failure and hostile neighbours.

    Every file is reached relative to the descriptor of its opened folder, and neither the folder nor the file may be a
    symbolic link, so swapping one in at any instant leads nowhere. New files are 0600, new directories 0700, whatever
    the umask. Needs POSIX (Linux, macOS): the construction fails elsewhere.

    Args:
        base_dir: Directory of the store, made absolute at once, created by the first put.
        durability: `full` flushes each file and its directory, so what a put returned for survives a power failure;
            `rename` leaves that to the system, so a power failure may lose the newest puts, but never mixes two.
        lock_timeout_s: Seconds that a caller waits for a folder; 10 outlasts any healthy save.
        allow_hard_links: True reads files with several names. Off, since a second name lets others alter what is read.
        allow_unsafe_dir: True accepts a base directory that everybody may write to and that belongs to another user,
            and folders and files of any owner.

    Raises:
        StoreError: The system is not POSIX.
    """

    def __init__(
        self,
        base_dir: Path | str,
        *,
        durability: Durability = "full",
        lock_timeout_s: float = 10.0,
        allow_hard_links: bool = False,
        allow_unsafe_dir: bool = False,
    ) -> None:
        if sys.platform == "win32":
            raise StoreError("FileBlobStore needs a POSIX system; use MemoryBlobStore or an object store instead")
        if durability not in ("full", "rename"):
            raise ValueError('durability must be "full" or "rename"')
        self._base_dir = Path(base_dir).expanduser().absolute()
        self._base = str(self._base_dir)
        self._durable = durability == "full"
        self._lock_timeout_s = lock_timeout_s
        self._trust = Trust(hard_links=allow_hard_links, unsafe_dir=allow_unsafe_dir)
        self._held = _Held()

    @property
    def base_dir(self) -> Path:
        """The absolute directory of the store."""
        return self._base_dir

    def put(self, key: str, data: bytes) -> None:
        """Stores the bytes by a temporary file and a rename; see `BlobStore.put`."""
        folder, name = check_key(key)
        self._write(folder, [(name, data)])

    def put_all(self, folder: str, blobs: Iterable[tuple[str, bytes]]) -> None:
        """Stores several blobs, all of them flushed before the first is renamed; see `LockingBlobStore.put_all`."""
        self._write(check_folder(folder), ((check_name(name), data) for name, data in blobs))

    def get(self, key: str) -> bytes:
        """The bytes of a plain file; see `BlobStore.get`."""
        folder, name = check_key(key)
        with as_store_errors("read"), self._open(folder) as opened:
            return opened.read(name)

    def get_many(self, keys: Iterable[str]) -> Iterator[bytes | None]:
        """The bytes of each key in turn, None for one that is missing or cannot be read.

        Raises:
            StoreError: The folder cannot be read, or the process has run out of descriptors or memory: that says
                nothing about the blobs.
        """
        for folder, run in itertools.groupby(map(check_key, keys), key=itemgetter(0)):
            names = [name for _, name in run]
            try:
                with as_store_errors("read"), self._open(folder) as opened:
                    for name in names:
                        yield opened.read_or_none(name)
            except PointerNotFoundError:
                yield from itertools.repeat(None, len(names))

    def list(self, folder: str) -> dict[str, int]:
        """Size in bytes of every plain file of a folder by its key, in key order.

        Other things in the folder are left out and counted in the log. Temporary files that a killed writer left more
        than an hour ago are removed on the way.
        """
        return {f"{folder}/{name}": size for name, size, _ in sorted(self.files(folder))}

    def files(self, folder: str, *, unseen: str | None = None) -> Iterator[StampedFile]:
        """Every plain file of a folder, otherwise as `list`; see `StampingBlobStore.files`."""
        return self._plain("list", folder, lambda opened: opened.files(unseen=unseen))

    def get_stamped(self, folder: str, names: Iterable[str]) -> Iterator[tuple[str, bytes, int]]:
        """Plain files of a folder with their stamps; see `StampingBlobStore.get_stamped`."""
        return self._plain("read", folder, lambda opened: opened.read_stamped(check_names(names)))

    def stamp(self, folder: str) -> int | None:
        """Changes with the names in a folder; see `StampingBlobStore.stamp`."""
        with suppress(PointerNotFoundError), as_store_errors("list"), self._open(check_folder(folder)) as opened:
            return opened.stamp()
        return None

    def folders(self) -> Iterator[str]:
        """Every directory, or link, whose name a query can have; see `BlobStore.folders`."""
        with suppress(PointerNotFoundError), as_store_errors("list"), os.scandir(self._base_dir) as entries:
            for entry in entries:
                with suppress(InvalidIdError):
                    if not entry.is_file(follow_symlinks=False):
                        yield check_query_id(entry.name)

    def survey(self, folder: str) -> FolderSurvey:
        """Everything that stands in a folder; see `BlobStore.survey`."""
        try:
            with as_store_errors("list"), self._open(check_folder(folder)) as opened:
                found = opened.survey()
        except PointerNotFoundError:
            return FolderSurvey({})
        return FolderSurvey(
            {f"{folder}/{name}": found.sizes[name] for name in sorted(found.sizes)},
            found.temporaries,
            tuple(sorted(found.unsafe)),
            tuple(sorted(found.hidden)),
        )

    def sweep(self, folder: str) -> None:
        """Removes temporary files that a killed writer left more than an hour ago."""
        with suppress(PointerNotFoundError), as_store_errors("delete"), self._open(check_folder(folder)) as opened:
            for name in opened.survey().temporaries:
                opened.remove(name)

    def delete(self, key: str, *, settle: bool = True) -> None:
        """Removes a file; see `BlobStore.delete`."""
        folder, name = check_key(key)
        with suppress(PointerNotFoundError), as_store_errors("delete"), self._open(folder) as opened:
            opened.remove(name)
            if settle and self._durable:
                opened.sync()

    def remove_folder(self, folder: str) -> None:
        """Removes what killed writers left in a folder, its lock and, unless more is in it, the folder itself."""
        path = self._base_dir / check_folder(folder)
        with as_store_errors("delete"):
            there = path.is_dir()
        if not there:
            return
        with (
            self.lock(folder),
            suppress(PointerNotFoundError),
            as_store_errors("delete"),
            self._open(folder) as opened,
        ):
            opened.remove_temporaries()  # writers of pairs hold the lock
            opened.remove(LOCK_NAME)  # whoever waits for it notices, and makes a new one
            remove_directory(path, durable=self._durable)

    @contextmanager
    def lock(self, folder: str, *, shared: bool = False) -> Iterator[None]:
        """Holds the folder's lock file by flock(2) for the duration of the block; see `BlobStore.lock`.

        A shared lock on a folder that no writer ever locked holds nothing, so that a read-only store can be read.
        """
        check_folder(folder)
        turn = None if shared else take_turn(f"{self._base}/{folder}", timeout_s=self._lock_timeout_s)
        try:
            with self._locked(folder, shared=shared) as opened:
                before = self._held.name, self._held.folder
                self._held.set(folder, opened)
                try:
                    yield
                finally:
                    self._held.set(*before)
        finally:
            if turn is not None:
                turn.release()

    def location(self, key: str) -> str:
        """The absolute path of the file."""
        check_key(key)
        return f"{self._base}/{key}"

    def _plain(self, action: str, folder: str, look: Callable[[Folder], Look[Found]]) -> Iterator[Found]:
        """What a look into a folder finds; what it finds to be no plain file is counted in the log."""
        odd = 0
        with suppress(PointerNotFoundError), as_store_errors(action), self._open(check_folder(folder)) as opened:
            odd = yield from look(opened)
        if odd:
            _log.warning("left out %d entries of a store folder that are not plain files", odd)

    def _write(self, folder: str, files: Iterable[tuple[str, bytes]]) -> None:
        with as_store_errors("write"), self._open(folder, create=True) as opened:
            opened.write(files, durable=self._durable)
            if self._durable:
                opened.sync()

    def _open(self, folder: str, *, create: bool = False) -> AbstractContextManager[Folder]:
        """The folder, which is open already for the thread that holds its lock."""
        held = self._held
        if held.name == folder and held.folder is not None:
            return nullcontext(held.folder)
        return open_folder(self._base, folder, create=create, durable=self._durable, trust=self._trust)

    def _locked(self, folder: str, *, shared: bool) -> AbstractContextManager[Folder | None]:
        """The folder, locked until it is closed; none where no writer ever was."""
        path, removals = f"{self._base}/{folder}", 0
        deadline = time.monotonic() + self._lock_timeout_s
        with suppress(PointerNotFoundError), as_store_errors("read" if shared else "write"):
            while True:
                opened = open_folder(self._base, folder, create=not shared, durable=self._durable, trust=self._trust)
                locked = False
                try:
                    locked = opened.lock(path, shared=shared, deadline=deadline, timeout_s=self._lock_timeout_s)
                    if locked:
                        return opened
                except FileNotFoundError:  # `remove_folder` of another may come between the folder and its lock
                    removals += 1
                    if removals > _REMOVALS:
                        raise
                finally:
                    if not locked:
                        opened.close()
        return nullcontext()
