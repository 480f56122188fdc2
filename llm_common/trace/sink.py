"""`Trace`: writes what a run chose and did to a file, one line for each event.

A failure to write loses the trace, and never affects the run.
"""

import errno
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from threading import BoundedSemaphore
from time import monotonic
from typing import Final, Self

import orjson

from llm_common import __version__
from llm_common._env import TRACE_DIR, read_path
from llm_common._telemetry import Recorder, is_recording, recording
from llm_common._threads import PerProcess, Threads
from llm_common.errors import ConfigError, InvalidIdError, LLMCommonError, NoThreadError
from llm_common.pointers.pointer import text_digest
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.storage.blob import folder_of
from llm_common.text.display import one_line, printable
from llm_common.trace.lines import Line, RunBegin, RunEnd
from llm_common.trace.recording import Recording
from llm_common.trace.run import RUN_FILE

_log = logging.getLogger(__name__)

_MAX_PENDING: Final = 1_000  # lines that wait for a slow disk
_MAX_QUERY_CHARS: Final = 20_000
_END_BYTES: Final = 1_000  # reserved for the last line, which says how many are missing
_RUNS_PER_CLEANUP: Final = 16  # listing the folder for every run would be slow
_MAX_ATTEMPTS: Final = 8  # to create a file while another process removes its folder
_MOMENT: Final = "%Y%m%dT%H%M%S%fZ"  # sorts by time as a text
# O_EXCL and O_NOFOLLOW: never write to a file or a link that another program created.
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
# One thread keeps the lines of a file in order.
_WRITER: Final = Threads(1, "trace")
# A line is built from values of callers and adapters, whose methods can raise any of these.
_LINE_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
    LLMCommonError,
)


class Trace:
    """Writes a file for each run, with a line for each choice, fold, model call and tool call.

    The file is `<directory>/<folder of the query>/<run>.jsonl`, and only its owner can read it. A
    line has ids, sizes, scores and reasons. A thread writes the lines, so the run does not
    wait. If a file cannot be written, the run has no trace, and a warning is logged once. A killed
    process leaves whole lines and at most a part of another, which readers skip.

    Args:
        directory: Folder for the files, and for nothing else. It is created with the first line.
        texts: Whether to keep questions, prompts, replies, arguments and the texts of items too, up
            to 400,000 characters a line. Defaults to False.
        redactor: Redacts every line.
        max_runs: Maximum number of files, over 16. Defaults to 200. The oldest are removed when a
            run begins. A second process may keep 16 more.
        max_run_bytes: Maximum bytes of a file, over 1,000. Defaults to 8 MB. Lines that do not fit
            are counted in the last line.

    Raises:
        ValueError: If a limit is too small.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        texts: bool = False,
        redactor: Redactor = DEFAULT_REDACTOR,
        max_runs: int = 200,
        max_run_bytes: int = 8_000_000,
    ) -> None:
        if max_runs <= _RUNS_PER_CLEANUP or max_run_bytes <= _END_BYTES:
            raise ValueError(
                f"max_runs is {max_runs} and max_run_bytes is {max_run_bytes}. "
                f"Set them over {_RUNS_PER_CLEANUP} and {_END_BYTES}"
            )
        self.directory = Path(directory)
        self.texts = texts
        self.redactor = redactor
        self.max_run_bytes = max_run_bytes
        # The writer of a parent frees no place in a forked child.
        self.pending = PerProcess(partial(BoundedSemaphore, _MAX_PENDING))
        self._max_runs = max_runs
        self.recording = Recording(texts=texts, redactor=redactor)
        self._runs = count()
        self._has_warned = False

    @staticmethod
    def from_env() -> "Trace | None":
        """Return the trace in `LLM_COMMON_TRACE_DIR`, or None if that is not set.

        The same folder gives the same object.

        Raises:
            ConfigError: If `~` names an unknown home folder.
        """
        directory = read_path(TRACE_DIR)
        return None if directory is None else _trace_in(str(directory))

    def begin(self, query_id: str, *, query: str | None = None) -> "Run":
        """Begin to record a run. The caller ends it.

        Args:
            query_id: Names the folder of the file. An id that stores refuse is replaced by its
                digest.
            query: The question, which is recorded if the trace has texts.

        Returns:
            The run, to which nothing is recorded before `Run.active` or `Run.recorded`.
        """
        run = Run(self, query_id)
        run.begin(query)
        return run

    @contextmanager
    def run(self, query_id: str, *, query: str | None = None) -> Iterator["Run"]:
        """Record what happens in the block. The arguments are those of `begin`."""
        with self.begin(query_id, query=query).recorded() as run:
            yield run

    def flush(self, *, timeout_s: float = 10.0) -> bool:
        """Wait until all recorded lines are written.

        Args:
            timeout_s: Maximum seconds to wait. Defaults to 10.

        Returns:
            Whether they were written in time.
        """
        done = _WRITER.submit(lambda: None)  # runs after everything submitted before
        with suppress(TimeoutError):
            done.result(timeout_s)
        return done.done()

    def delete(self, query_id: str) -> int:
        """Delete the files of a query's runs, after all recorded lines are written.

        Returns:
            The number of deleted files.

        Raises:
            OSError: If a file cannot be deleted.
        """
        self.flush()
        deleted = 0
        for path in [*(self.directory / folder_name(query_id)).glob("*.jsonl")]:
            if RUN_FILE.fullmatch(path.name):  # other programs may have files here
                path.unlink()
                deleted += 1
        return deleted

    def open(self, path: Path) -> int:
        """Create the file of a run, and delete the oldest files now and then.

        Only the writer's thread may call this.

        Raises:
            OSError: If the file cannot be created.
        """
        if next(self._runs) % _RUNS_PER_CLEANUP == 0:
            with suppress(OSError):  # another process may delete the same files
                self._delete_oldest()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_MAX_ATTEMPTS):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            # Another process may just have removed the empty folder.
            with suppress(FileNotFoundError):
                return os.open(path, _FLAGS, 0o600)
        raise FileNotFoundError(errno.ENOENT, "other processes remove its folder", str(path))

    def _delete_oldest(self) -> None:
        files = [path for path in self.directory.glob("*/*.jsonl") if RUN_FILE.fullmatch(path.name)]
        # `~` sorts after `-`, so that a run of this very microsecond is not in the future.
        now = f"{datetime.now(UTC):{_MOMENT}}~"
        # A file from the future was written with a wrong clock. It is deleted first, because it
        # would otherwise outlive the runs of today.
        files.sort(key=lambda path: (path.name < now, path.name), reverse=True)
        # Fewer than the limit, since more runs begin before the next cleanup.
        for path in files[self._max_runs - _RUNS_PER_CLEANUP :]:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                path.parent.rmdir()  # fails unless it is empty

    def warn(self, error: BaseException) -> None:
        """Log the first failure, and ignore the rest."""
        if not self._has_warned:
            self._has_warned = True
            # Not the text of another error, which may quote values of the run.
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            _log.warning("a run is not traced: %s. Later failures are not logged", reason)


class Run(Recorder):
    """A recorded run. Without a trace, its methods have no effect.

    Attributes:
        run_id: Time of its begin and eight random digits, which name the file.
        path: The file. None without a trace.
    """

    def __init__(self, trace: Trace | None, query_id: str) -> None:
        moment = datetime.now(UTC)
        # Two processes can begin a run in the same microsecond.
        self.run_id = f"{moment:{_MOMENT}}-{secrets.token_hex(4)}"
        self.path: Path | None = None
        if trace is not None:
            self.path = trace.directory / folder_name(query_id) / f"{self.run_id}.jsonl"
        self._trace = trace
        self._query_id = query_id
        self._started = monotonic()
        self._steps = count(1)
        self._seqs = count(1)
        self._descriptor: int | None = None
        self._bytes = 0
        self._lost = 0
        self._has_ended = trace is None

    def begin(self, query: str | None) -> None:
        """Write the first line."""
        assert self._trace is not None
        redactor = self._trace.redactor
        line = RunBegin(
            library=__version__,
            query_id=one_line(redactor.text(self._query_id), max_chars=200),
            texts=self._trace.texts,
        )
        if query is not None and self._trace.texts:
            text = printable(redactor.beginning(query, max_chars=_MAX_QUERY_CHARS))
            line = line.model_copy(update={"query": text})
        self._submit(lambda: line, step=0, parent=0)

    def active(self) -> AbstractContextManager[None]:
        """Record what happens in the block, and do not end the run with it.

        The block must not contain a `yield` of an async generator: the caller's code would then
        be recorded too.
        """
        return nullcontext() if self._has_ended else recording(self)

    @contextmanager
    def recorded(self) -> Iterator[Self]:
        """Record what happens in the block, then end the run as `ok`, or `error` if it raised."""
        status = "error"  # also for a cancellation, which is no Exception
        try:
            with self.active():
                yield self
            status = "ok"
        finally:
            self.end(status)

    def end(self, status: str = "ok") -> None:
        """Write the last line and close the file. Further calls have no effect."""
        if not self._has_ended:
            self._has_ended = True
            seconds = round(monotonic() - self._started, 3)
            line = RunEnd(status=status, seconds=seconds)
            self._submit(lambda: line, step=0, parent=0, is_last=True)

    def next_step(self) -> int:
        """Return the number of a new step. See `Recorder`."""
        return next(self._steps)

    def record(self, kind: str, fields: Mapping[str, object], /, *, step: int, parent: int) -> None:
        """Write a line. See `Recorder`."""
        if not self._has_ended:
            assert self._trace is not None
            self._submit(
                partial(self._trace.recording.line, kind, fields), step=step, parent=parent
            )

    def _submit(
        self, build: Callable[[], Line], *, step: int, parent: int, is_last: bool = False
    ) -> None:
        """Have the writer's thread build a line and append it."""
        assert self._trace is not None
        pending = self._trace.pending.get()
        # The last line closes the file, so it is queued even when the queue is full.
        if not is_last and not pending.acquire(blocking=False):
            self._lost += 1
            return
        # Taken here, because a slow disk may delay the write.
        position = {"at": datetime.now(UTC).isoformat(), "step": step, "parent": parent}
        try:
            write = _WRITER.submit(partial(self._write, self._trace, build, position))
        except NoThreadError:
            if is_last:
                # At the exit of the interpreter, which has waited for the other lines.
                self._write(self._trace, build, position)
            else:
                pending.release()
            return
        if not is_last:
            # Only a written line frees its place, so that a slow disk cannot fill the memory.
            write.add_done_callback(lambda _: pending.release())

    def _write(
        self, trace: Trace, build: Callable[[], Line], position: Mapping[str, object]
    ) -> None:
        try:
            seq = next(self._seqs)  # before the line is built, so a gap shows that one is missing
            line = build().model_copy(update={**position, "seq": seq})
            is_last = isinstance(line, RunEnd)
            if is_last:
                line = line.model_copy(update={"lost": self._lost})
            encoded = orjson.dumps(line.model_dump(mode="json", exclude_none=True)) + b"\n"
            self._append(trace, encoded, is_last=is_last)
            if is_last:
                self._close()
        except OSError as exc:
            # A part of a line may be in the file, and a reader skips only the last one.
            trace.warn(exc)
            self._has_ended = True
            self._close()
        except _LINE_ERRORS as exc:
            trace.warn(exc)
            self._lost += 1

    def _append(self, trace: Trace, data: bytes, *, is_last: bool) -> None:
        if self._descriptor is None:
            if self._bytes:
                return  # closed
            assert self.path is not None
            # Opened here and not in `begin`, since only this thread may wait for the disk.
            self._descriptor = trace.open(self.path)
        free_bytes = trace.max_run_bytes - self._bytes - (0 if is_last else _END_BYTES)
        if len(data) > free_bytes:
            self._lost += 1
            return
        written = os.write(self._descriptor, data)
        self._bytes += written
        # A regular file takes only a part of a line if the disk or the quota is full.
        if written < len(data):
            raise OSError(errno.ENOSPC, "no space for a whole line")

    def _close(self) -> None:
        self._bytes += 1  # so that `_append` never opens a second file
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def begin_run(query_id: str, *, query: str | None = None, trace: Trace | None = None) -> Run:
    """Begin a run of a trace, by default of the one in `LLM_COMMON_TRACE_DIR`.

    Args:
        query_id: See `Trace.begin`.
        query: See `Trace.begin`.
        trace: The trace. Defaults to the one that the environment names now.

    Returns:
        The run. It records nothing if there is no trace, or within another run, which then gets
        its lines.
    """
    try:
        chosen = None if is_recording() else trace or Trace.from_env()
    except ConfigError as exc:
        # A wrong setting loses the trace, and must not fail the run.
        _log.warning("a run is not traced: %s", exc.message)
        chosen = None
    return Run(None, query_id) if chosen is None else chosen.begin(query_id, query=query)


def folder_name(query_id: str) -> str:
    """Return the folder name that a store gives a query, or a digest of an invalid id."""
    try:
        return folder_of(query_id)
    except InvalidIdError:
        return f"query-{text_digest(str(query_id))[:16]}"


@cache  # one object a folder, so that its limit of files counts the runs of the whole process
def _trace_in(directory: str) -> Trace:
    return Trace(directory)
