"""Processes that can be killed, have their own file system, or measure their memory.

None outlives its block.
"""

import ctypes
import multiprocessing
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__, "llm_common.agents.context_pointers"])

_CLONE_NEWNS = 0x00020000
_PEAK = Path("/proc/self/clear_refs")

needs_memory_figures = pytest.mark.skipif(
    not _PEAK.exists(), reason="peaks of memory are read in /proc"
)


@contextmanager
def child(
    work: Callable[..., None], *args: Any, **options: Any
) -> Iterator[tuple[BaseProcess, Connection]]:
    """Run `work(sender, *args, **options)` in a process, and yield the process and receiver.

    The process is killed at the end of the block.
    """
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=work, args=(sender, *args), kwargs=options)
    process.start()
    sender.close()
    try:
        yield process, receiver
    finally:
        process.kill()
        process.join()
        receiver.close()


def answer(work: Callable[..., Any], *args: Any, timeout_s: float = 60.0, **options: Any) -> Any:
    """Run a function in another process, and return its result."""
    with child(_send_answer, work, args, options) as (_, receiver):
        assert receiver.poll(timeout_s), "no answer"
        return receiver.recv()


def _send_answer(
    sender: Connection, work: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    sender.send(work(*args, **options))


def heard_until_the_end(receiver: Connection) -> list[Any]:
    """Return everything that a process sent before it ended."""
    messages = []
    try:
        while True:
            messages.append(receiver.recv())
    except (EOFError, OSError):
        return messages


def mount_own_tmpfs(folder: Path, options: str) -> None:
    """Mount a size-limited file system that only this process sees."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True, capture_output=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True, capture_output=True
    )


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True, capture_output=True)


def needs_mounts() -> None:
    """Skip a test where no file system can be mounted."""
    if not answer(_can_mount):
        pytest.skip("file systems can be mounted on Linux by root only")


def _can_mount() -> bool:
    try:
        mount_own_tmpfs(Path("/mnt"), "size=4k")
    except (OSError, AttributeError, subprocess.CalledProcessError):
        return False
    return True


@contextmanager
def peak_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns by how many bytes this process has grown at most."""
    before = _memory("VmRSS")
    _PEAK.write_text("5")  # it starts anew
    yield lambda: _memory("VmHWM") - before


def _memory(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024
