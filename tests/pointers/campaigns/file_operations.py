"""Every call by which a store reaches its files, seen and met before the system does it."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

__all__ = ["Meet", "Operation", "meeting_operations"]

_ON_DESCRIPTORS: Final = ("write", "pwrite", "writev", "read", "ftruncate", "fsync", "fdatasync")
_ON_PATHS: Final = ("mkdir", "rmdir", "unlink", "remove", "scandir", "listdir", "stat", "utime")
_ON_TWO_PATHS: Final = ("replace", "rename", "link")
_READING: Final = frozenset({"read", "scandir", "listdir", "stat", "close"})


@dataclass(frozen=True, slots=True)
class Operation:
    """A call that is about to be made.

    Attributes:
        name: The function's.
        path: What it is about.
        target: The new name that a rename or link gives.
        data: What is written.
        flags: How a file is opened.
        descriptor: Through what, for those that have one.
    """

    name: str
    path: str
    target: str = ""
    data: bytes = b""
    flags: int = 0
    descriptor: int = -1

    @property
    def changes(self) -> bool:
        """Whether what is on disk, or who holds a lock, is another after it."""
        return bool(self.flags & os.O_CREAT) if self.name == "open" else self.name not in _READING


Meet = Callable[[Operation, Callable[[], Any]], Any]
"""Given an operation and how to do it; what it returns or raises is what the store gets."""


class _Calls:
    """Stands in for functions of `os`, for whatever lies at or below the base."""

    def __init__(self, base: Path, meet: Meet) -> None:
        self._base = str(base)
        self._meet = meet
        self._paths: dict[int, str] = {}
        self._written: set[int] = set()

    def open(self, real: Callable[..., int], path: Any, flags: int, *args: Any, **options: Any) -> int:
        descriptor: int = self._met(
            real, Operation("open", self._full(path, options.get("dir_fd")), flags=flags), path, flags, *args, **options
        )
        self._paths[descriptor] = self._full(path, options.get("dir_fd"))
        self._written.discard(descriptor)
        return descriptor

    def on_descriptor(self, name: str) -> Callable[..., Any]:
        def call(real: Callable[..., Any], descriptor: Any, *args: Any) -> Any:
            data = bytes(args[0]) if name in ("write", "pwrite") else b""
            operation = Operation(name, self._paths.get(descriptor, ""), data=data, descriptor=descriptor)
            if data:
                self._written.add(descriptor)
            return self._met(real, operation, descriptor, *args)

        return call

    def close(self, real: Callable[[int], None], descriptor: int) -> None:
        """Closing what was only read cannot fail; a close that fails has closed all the same."""
        path = self._paths.pop(descriptor, "")
        try:
            if descriptor in self._written:
                self._met(lambda: None, Operation("close", path, descriptor=descriptor))
        finally:
            real(descriptor)

    def on_path(self, name: str) -> Callable[..., Any]:
        def call(real: Callable[..., Any], path: Any = ".", *args: Any, **options: Any) -> Any:
            full = self._paths.get(path, "") if isinstance(path, int) else self._full(path, options.get("dir_fd"))
            return self._met(real, Operation(name, full), path, *args, **options)

        return call

    def on_two_paths(self, name: str) -> Callable[..., Any]:
        def call(real: Callable[..., Any], source: Any, target: Any, **options: Any) -> Any:
            operation = Operation(
                name, self._full(source, options.get("src_dir_fd")), self._full(target, options.get("dst_dir_fd"))
            )
            return self._met(real, operation, source, target, **options)

        return call

    def flock(self, real: Callable[..., None], descriptor: int, flags: int) -> None:
        if flags & fcntl.LOCK_UN:
            real(descriptor, flags)
        else:
            self._met(real, Operation("flock", self._paths.get(descriptor, "")), descriptor, flags)

    def _full(self, path: Any, folder: int | None) -> str:
        return os.path.join("" if folder is None else self._paths.get(folder, ""), os.fspath(path))  # noqa: PTH118

    def _met(self, real: Callable[..., Any], operation: Operation, *args: Any, **options: Any) -> Any:
        if not operation.path.startswith(self._base):
            return real(*args, **options)
        return self._meet(operation, lambda: real(*args, **options))


@contextmanager
def meeting_operations(base: Path, meet: Meet) -> Iterator[None]:
    """A block in which each operation on files at or below the base, of any thread, is given to `meet`."""
    calls = _Calls(base, meet)
    stand_ins: dict[str, Callable[..., Any]] = {"open": calls.open, "close": calls.close}
    stand_ins |= {name: calls.on_descriptor(name) for name in _ON_DESCRIPTORS}
    stand_ins |= {name: calls.on_path(name) for name in _ON_PATHS}
    stand_ins |= {name: calls.on_two_paths(name) for name in _ON_TWO_PATHS}
    with ExitStack() as patches:
        for name, stand_in in stand_ins.items():
            patches.enter_context(patch.object(os, name, _bound(stand_in, getattr(os, name))))
        patches.enter_context(patch.object(fcntl, "flock", _bound(calls.flock, fcntl.flock)))
        yield


def _bound(stand_in: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: stand_in(real, *args, **options)
