"""Runs `programs.py` in interpreters of its own beside busy loops, each within a time limit."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import llm_common

NEVER_ENDED = "never ended"
MAX_BUSY_S = 1_800

_PROGRAMS = Path(__file__).with_name("programs.py")
_PACKAGE = Path(llm_common.__file__).parents[1]


def start(program: str, *args: object) -> subprocess.Popen[str]:
    """Start a program of `programs.py` with its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-B", str(_PROGRAMS), program, *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(_PACKAGE)},
    )


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a program.

    Attributes:
        status: `ended`, `failed` or `never ended`.
        output: Its output.
        errors: Its error output, with the stacks of all threads if it never ended.
    """

    status: str
    output: str
    errors: str


def run(program: str, *args: object, patience_s: float = 60) -> Ending:
    """Run a program of `programs.py`, and kill it after `patience_s`."""
    with start(program, *args) as process:
        try:
            output, errors = process.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            return Ending(NEVER_ENDED, "", _last_words(process))
        finally:
            process.kill()
    return Ending("failed" if process.returncode else "ended", output, errors)


def _last_words(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[1]


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run several processes that only compute, and kill them at the end of the block."""
    program = (
        f"import time\nend = time.monotonic() + {MAX_BUSY_S}\nwhile time.monotonic() < end: pass"
    )
    loops = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
