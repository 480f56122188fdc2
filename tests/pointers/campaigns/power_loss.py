"""The possible contents of a disk after a power failure, by its file operations.

The model is harsher than ext4, xfs or btrfs. Any subset of the names that a folder got or lost
since its last flush may have reached the disk. A file that was written since its last flush may be
complete, as at its last flush, empty, cut in the middle, or full of zeros. A rename is one change.
"""

import itertools
import math
import os
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.pointers.campaigns.file_operations import Operation

__all__ = ["Disk", "World"]

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
    """Follows the operations of a store, and returns the possible contents after a failure."""

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
