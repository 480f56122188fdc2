"""Intercepts every file operation of a store before the system executes it.

Replaces functions of `os` and `fcntl` for all modules of the store. Of a file object of `open`,
only the opening is intercepted. A campaign that follows all changes notices what is written to it.
"""

import builtins
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

_ON_DESCRIPTORS: Final = (
    "write",
    "pwrite",
    "writev",
    "read",
    "pread",
    "ftruncate",
    "fsync",
    "fdatasync",
)
_ON_PATHS: Final = ("mkdir", "rmdir", "unlink", "remove", "scandir", "listdir", "stat", "utime")
_ON_TWO_PATHS: Final = ("replace", "rename", "link")
_READING: Final = frozenset({"read", "pread", "scandir", "listdir", "stat", "close"})


@dataclass(frozen=True, slots=True)
class Operation:
    """A call that is about to be made.

    Attributes:
        name: The function's.
        path: Of the file or folder.
        target: The new name that a rename or link gives.
        data: The bytes that are written.
        flags: Of an open.
        descriptor: Of the file, if the call takes one.
    """

    name: str
    path: str
    target: str = ""
    data: bytes = b""
    flags: int = 0
    descriptor: int = -1

    @property
    def changes(self) -> bool:
        """Return whether the operation changes the disk or takes a lock."""
        return bool(self.flags & os.O_CREAT) if self.name == "open" else self.name not in _READING


Handler = Callable[[Operation, Callable[[], Any]], Any]
"""Gets an operation and a function that does it; the store gets what it returns or raises."""


class _Calls:
    """Replaces functions of `os` and `fcntl` for paths at or below the base."""

    def __init__(self, base: Path, handler: Handler) -> None:
        self._base = str(base)
        self._handler = handler
        self._paths: dict[int, str] = {}
        self._written: set[int] = set()

    def open(
        self, real: Callable[..., int], path: Any, flags: int, *args: Any, **options: Any
    ) -> int:
        descriptor: int = self._hand_over(
            real,
            Operation("open", self._full(path, options.get("dir_fd")), flags=flags),
            path,
            flags,
            *args,
            **options,
        )
        self._paths[descriptor] = self._full(path, options.get("dir_fd"))
        self._written.discard(descriptor)
        return descriptor

    def on_descriptor(self, name: str) -> Callable[..., Any]:
        def call(real: Callable[..., Any], descriptor: Any, *args: Any) -> Any:
            data = (
                b"".join(args[0])
                if name == "writev"
                else bytes(args[0])
                if "write" in name
                else b""
            )
            operation = Operation(
                name, self._paths.get(descriptor, ""), data=data, descriptor=descriptor
            )
            if data:
                self._written.add(descriptor)
            return self._hand_over(real, operation, descriptor, *args)

        return call

    def close(self, real: Callable[[int], None], descriptor: int) -> None:
        """Close a file. A read-only one cannot fail, and a close that fails has closed it."""
        path = self._paths.pop(descriptor, "")
        try:
            if descriptor in self._written:
                self._hand_over(lambda: None, Operation("close", path, descriptor=descriptor))
        finally:
            real(descriptor)

    def on_path(self, name: str) -> Callable[..., Any]:
        def call(real: Callable[..., Any], path: Any = ".", *args: Any, **options: Any) -> Any:
            full = (
                self._paths.get(path, "")
                if isinstance(path, int)
                else self._full(path, options.get("dir_fd"))
            )
            return self._hand_over(real, Operation(name, full), path, *args, **options)

        return call

    def on_two_paths(self, name: str) -> Callable[..., Any]:
        def call(real: Callable[..., Any], source: Any, target: Any, **options: Any) -> Any:
            operation = Operation(
                name,
                self._full(source, options.get("src_dir_fd")),
                self._full(target, options.get("dst_dir_fd")),
            )
            return self._hand_over(real, operation, source, target, **options)

        return call

    def lock(self, real: Callable[..., None], descriptor: Any, flags: int, *args: Any) -> None:
        if flags & fcntl.LOCK_UN:
            real(descriptor, flags, *args)
        else:
            self._hand_over(
                real, Operation("flock", self._paths.get(descriptor, "")), descriptor, flags, *args
            )

    @staticmethod
    def open_file(real: Callable[..., Any], path: Any, *args: Any, **options: Any) -> Any:
        """Let `open` open the file with `os.open`, which is replaced."""
        if isinstance(path, int) or options.get("opener") is not None:
            return real(path, *args, **options)
        return real(
            path, *args, **options | {"opener": lambda name, flags: os.open(name, flags, 0o666)}
        )

    def _full(self, path: Any, folder: int | None) -> str:
        return os.path.join("" if folder is None else self._paths.get(folder, ""), os.fspath(path))  # noqa: PTH118

    def _hand_over(
        self, real: Callable[..., Any], operation: Operation, *args: Any, **options: Any
    ) -> Any:
        if not operation.path.startswith(self._base):
            return real(*args, **options)
        return self._handler(operation, lambda: real(*args, **options))


@contextmanager
def intercepted_operations(base: Path, handler: Handler) -> Iterator[None]:
    """Pass each operation on files at or below the base, of any thread, to `meet`."""
    calls = _Calls(base, handler)
    stand_ins: dict[str, Callable[..., Any]] = {"open": calls.open, "close": calls.close}
    stand_ins |= {name: calls.on_descriptor(name) for name in _ON_DESCRIPTORS}
    stand_ins |= {name: calls.on_path(name) for name in _ON_PATHS}
    stand_ins |= {name: calls.on_two_paths(name) for name in _ON_TWO_PATHS}
    with ExitStack() as patches:
        for name, stand_in in stand_ins.items():
            patches.enter_context(patch.object(os, name, _bound(stand_in, getattr(os, name))))
        for name in ("flock", "lockf"):
            patches.enter_context(
                patch.object(fcntl, name, _bound(calls.lock, getattr(fcntl, name)))
            )
        for module in (io, builtins):
            patches.enter_context(patch.object(module, "open", _bound(calls.open_file, io.open)))
        yield


def _bound(stand_in: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: stand_in(real, *args, **options)
