"""System calls of a real interpreter that the kernel's tracer makes fail."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llm_common.agents import FileContextPointerStore
from tests.pointers.campaigns.changes import NEW, OLD, stored_values
from tests.pointers.campaigns.traffic import save

PROGRAM = f"""
import asyncio, sys
from pathlib import Path
from llm_common.agents import FileContextPointerStore
from llm_common.errors import StoreError, StoreFullError
from tests.pointers.campaigns.traffic import save
try:
    asyncio.run(save(FileContextPointerStore(Path(sys.argv[1])), "a", {NEW}))
except StoreFullError:
    sys.exit(3)
except StoreError:
    sys.exit(4)
"""
SAVED, FULL, REFUSED = 0, 3, 4

FAULTS = [
    ("fsync:error=EIO", REFUSED, "F-061"),
    ("write:error=EINTR:when=1+2", SAVED, "F-062"),
    ("write:error=ENOSPC", FULL, "F-058"),
    ("write:error=EDQUOT", FULL, "F-060"),
    ("/^rename:error=ENOSPC", FULL, "F-059"),
    ("fsync:error=EACCES:when=2", REFUSED, "F-064"),
    ("flock:error=ENOLCK", REFUSED, "F-071"),
    ("fsync:error=EINTR:when=1", SAVED, "F-062-flush"),
]
QUICK = {"F-062"}


@pytest.fixture(scope="session")
def strace() -> str:
    """Return the path of strace, if this process may trace."""
    found = shutil.which("strace")
    if not found or subprocess.call(
        [found, "-qq", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL
    ):
        pytest.skip("strace is not there, or may not trace")
    return found


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        pytest.param(fault, code, id=row, marks=[] if row in QUICK else [pytest.mark.torture])
        for fault, code, row in FAULTS
    ],
)
def test_a_failing_system_call_is_typed_and_leaves_old_or_new(
    tmp_path: Path, strace: str, fault: str, code: int
) -> None:
    store = FileContextPointerStore(tmp_path / "base")
    asyncio.run(save(store, "a", OLD))
    # a shim of the interpreter would be traced in its place
    python = Path(sys.executable).resolve()
    call, *_ = fault.split(":")
    tracing: list[str | Path] = [
        strace,
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-o",
        tmp_path / "trace",
        "-e",
        f"trace={call}",
    ]
    done = subprocess.run(
        [*tracing, "-e", f"inject={fault}", python, "-B", "-c", PROGRAM, store.base_dir],
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "INJECTED" in (tmp_path / "trace").read_text()
    assert done.returncode == code, done.stderr
    values = stored_values(store)
    assert values == {"a": NEW} if code == SAVED else values["a"] in (OLD, NEW)
    assert code < 0 or not list(store.base_dir.rglob(".tmp-*"))
    asyncio.run(save(store, "a", NEW))
    assert stored_values(store) == {"a": NEW}
