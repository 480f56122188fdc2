"""`Trace`: keeps what runs chose and did, as one file of lines a run.

A failure costs the trace, never the run.
"""

import logging
import os
import re
import secrets
from collections.abc import Iterator, Mapping
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
from llm_common._telemetry import Recorder, is_recording, recording, subscribe
from llm_common._threads import Threads
from llm_common.errors import ConfigError, InvalidIdError, LLMCommonError, NoThreadError
from llm_common.redaction.redactor import DEFAULT_REDACTOR, Redactor
from llm_common.storage.blob import folder_of
from llm_common.text.display import one_line, printable
from llm_common.trace.lines import Line, RunBegin, RunEnd
from llm_common.trace.recording import Recording, digest

_log = logging.getLogger(__name__)

_MAX_PENDING: Final = 1_000  # lines that wait for the disk
_MAX_QUERY_CHARS: Final = 20_000
_END_BYTES: Final = 1_000  # kept free for the last line
_CHECKED_EVERY: Final = 16  # runs, between two looks for old ones
_MAX_ATTEMPTS: Final = 8
_MOMENT: Final = "%Y%m%dT%H%M%S%fZ"
_FILE = re.compile(r"\d{8}T\d{12}Z-[0-9a-f]{8}\.jsonl")
_FLAGS = (
    os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | os.O_CLOEXEC
)
# One thread, so that the lines of a file keep their order.
_WRITER: Final = Threads(1, "trace")
# All that making a line of values of others, or writing it, can raise.
_LOST = (
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
    """Writes one file a run, with a line for each choice, fold, model call and tool call.

    The file is `<directory>/<folder of the query>/<run>.jsonl`, for its owner alone. Lines hold
    ids, digests, sizes, scores and reasons. A thread writes them, one `write` a line: the run does
    not wait. A file that cannot be written costs the trace of that run and, once, a warning. A
    process that is killed leaves whole lines, and at most a part of one more, which readers ignore.

    Args:
        directory: Where the files go; a folder for traces alone. Made with the first line.
        texts: Also keeps questions, prompts, replies, arguments and the texts of items, up to
            400,000 characters a line.
        redactor: Takes secrets out of every line.
        max_runs: Most files; the oldest are removed when a run begins. A second process may keep 16
            more.
        max_run_bytes: Most bytes of a file; what comes later is counted in the last line.

    Raises:
        ValueError: A limit is too small.
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
        if max_runs <= _CHECKED_EVERY or max_run_bytes <= _END_BYTES:
            raise ValueError(
                f"max_runs is {max_runs} and max_run_bytes {max_run_bytes}; "
                f"give over {_CHECKED_EVERY} and {_END_BYTES}"
            )
        self.directory = Path(directory)
        self.texts = texts
        self.redactor = redactor
        self.max_run_bytes = max_run_bytes
        self.pending = BoundedSemaphore(_MAX_PENDING)
        self._max_runs = max_runs
        self._recording = Recording(texts=texts, redactor=redactor)
        self._runs = count()
        self._has_warned = False

    @staticmethod
    def from_env() -> "Trace | None":
        """The trace in `LLM_COMMON_TRACE_DIR`, the same one each time; None if that is not set.

        Raises:
            ConfigError: `~` names an unknown home folder.
        """
        directory = read_path(TRACE_DIR)
        return None if directory is None else _trace_in(str(directory))

    def begin(self, query_id: str, *, query: str | None = None) -> "Run":
        """A run that is recorded; the caller ends it.

        Args:
            query_id: Names the folder; one that no store takes is named by its digest.
            query: The question; its digest is kept, and its text if the trace holds texts.
        """
        run = Run(self, query_id)
        run.begin(query)
        return run

    @contextmanager
    def run(self, query_id: str, *, query: str | None = None) -> Iterator["Run"]:
        """Records what happens in the block; arguments as for `begin`."""
        with self.begin(query_id, query=query).recorded() as run:
            yield run

    def flush(self, *, timeout_s: float = 10.0) -> bool:
        """Waits until what was recorded so far is written; False if that takes longer."""
        done = _WRITER.submit(lambda: None)
        with suppress(TimeoutError):
            done.result(timeout_s)
        return done.done()

    def delete(self, query_id: str) -> int:
        """Removes the files of a query's runs, after those that are being written.

        How many there were.

        Raises:
            OSError: A file cannot be removed.
        """
        self.flush()
        files = [
            path
            for path in (self.directory / folder_name(query_id)).glob("*.jsonl")
            if _FILE.fullmatch(path.name)
        ]
        for path in files:
            path.unlink()
        return len(files)

    def open(self, path: Path) -> int:
        """A new file, after old ones have made room for it; for the writer's thread.

        Raises:
            OSError: The file cannot be made.
        """
        if next(self._runs) % _CHECKED_EVERY == 0:
            with suppress(OSError):  # other processes remove them too
                self._make_room()
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        attempts = 0
        while True:
            attempts += 1
            path.parent.mkdir(mode=0o700, exist_ok=True)
            try:
                return os.open(path, _FLAGS, 0o600)
            except FileNotFoundError:  # another process has just removed the empty folder
                if attempts == _MAX_ATTEMPTS:
                    raise

    def _make_room(self) -> None:
        files = [each for each in self.directory.glob("*/*.jsonl") if _FILE.fullmatch(each.name)]
        now = f"{datetime.now(UTC):{_MOMENT}}~"
        # Files of a later moment than now are of a clock that was wrong: they go first, not the
        # runs of today.
        files.sort(key=lambda each: (each.name < now, each.name), reverse=True)
        for old in files[self._max_runs - _CHECKED_EVERY :]:
            old.unlink(missing_ok=True)
            with suppress(OSError):
                old.parent.rmdir()  # if it is empty

    def line(self, kind: str, facts: Mapping[str, object], *, place: str) -> Line:
        """The line for what was recorded; see `Recording.line`."""
        return self._recording.line(kind, facts, place=place)

    def warn(self, error: BaseException) -> None:
        """Logs the first failure."""
        if not self._has_warned:
            self._has_warned = True
            reason = error.strerror if isinstance(error, OSError) else type(error).__name__
            _log.warning(
                "a run is not traced: %s; runs go on without a trace where that lasts", reason
            )


class Run(Recorder):
    """One run that is recorded, or none: without a trace nothing has an effect.

    Attributes:
        run_id: Its moment and eight random digits; names the file.
        path: The file; None without a trace.
    """

    def __init__(self, trace: Trace | None, query_id: str) -> None:
        moment = datetime.now(UTC)
        self.run_id = f"{moment:{_MOMENT}}-{secrets.token_hex(4)}"
        self.path = (
            None
            if trace is None
            else trace.directory / folder_name(query_id) / f"{self.run_id}.jsonl"
        )
        self._trace = trace
        self._query_id = query_id
        self._started = monotonic()
        self._steps, self._seqs = count(1), count(1)
        self._descriptor: int | None = None
        self._bytes = self._lost = 0
        self._has_ended = trace is None

    def begin(self, query: str | None) -> None:
        """Writes the first line."""
        assert self._trace is not None
        shown = None
        if query is not None and self._trace.texts:
            shown = printable(self._trace.redactor.beginning(query, max_chars=_MAX_QUERY_CHARS))
        line = RunBegin(
            library=__version__,
            query_id=one_line(self._trace.redactor.text(self._query_id), max_chars=200),
            query_digest=None if query is None else digest(query),
            query=shown,
            texts=self._trace.texts,
        )
        self._submit("", {"line": line}, 0, 0)

    def active(self) -> AbstractContextManager[None]:
        """Records what happens in the block; not around a `yield` of an async generator."""
        return recording(self) if not self._has_ended else nullcontext()

    @contextmanager
    def recorded(self) -> Iterator[Self]:
        """Records what happens in the block, and ends with it: `ok`, or `error` if it raised."""
        status = "error"
        try:
            with self.active():
                yield self
            status = "ok"
        finally:
            self.end(status)

    def end(self, status: str = "ok") -> None:
        """Writes the last line and closes the file; once."""
        if not self._has_ended:
            self._has_ended = True
            seconds = round(monotonic() - self._started, 3)
            self._submit("", {"line": RunEnd(status=status, seconds=seconds)}, 0, 0, is_last=True)

    def next_step(self) -> int:
        """See `Recorder`."""
        return next(self._steps)

    def record(self, kind: str, facts: Mapping[str, object], /, *, step: int, parent: int) -> None:
        """See `Recorder`."""
        if not self._has_ended:
            self._submit(kind, facts, step, parent)

    def _submit(
        self,
        kind: str,
        facts: Mapping[str, object],
        step: int,
        parent: int,
        *,
        is_last: bool = False,
    ) -> None:
        assert self._trace is not None
        room = self._trace.pending
        # the last line closes the file: it waits in any case
        if not is_last and not room.acquire(blocking=False):
            self._lost += 1
            return
        place: dict[str, object] = {
            "at": datetime.now(UTC).isoformat(),
            "step": step,
            "parent": parent,
        }
        try:
            written = _WRITER.submit(partial(self._write, self._trace, kind, facts, place))
        except NoThreadError:  # also where the interpreter ends
            if not is_last:
                room.release()
            return
        if not is_last:
            written.add_done_callback(lambda _: room.release())

    def _write(
        self, trace: Trace, kind: str, facts: Mapping[str, object], place: dict[str, object]
    ) -> None:
        """Makes the line and appends it, in the writer's thread."""
        try:
            seq = next(self._seqs)
            made = (
                facts["line"] if not kind else trace.line(kind, facts, place=f"{self.run_id}#{seq}")
            )
            assert isinstance(made, Line)
            last = {"lost": self._lost} if isinstance(made, RunEnd) else {}
            line = made.model_copy(update={**place, **last, "seq": seq})
            self._append(
                trace,
                orjson.dumps(line.model_dump(mode="json", exclude_none=True)) + b"\n",
                is_last=bool(last),
            )
            if last:
                self._close()
        except OSError as exc:  # one line that is cut ends the file: nothing may follow it
            trace.warn(exc)
            self._has_ended = True
            self._close()
        except _LOST as exc:
            trace.warn(exc)
            self._lost += 1

    def _append(self, trace: Trace, data: bytes, *, is_last: bool) -> None:
        if self._descriptor is None:
            if self._bytes:
                return  # closed
            assert self.path is not None
            self._descriptor = trace.open(self.path)
        room = trace.max_run_bytes - self._bytes - (0 if is_last else _END_BYTES)
        if len(data) > room:
            self._lost += 1
            return
        written = os.write(self._descriptor, data)
        self._bytes += written
        if written < len(data):
            raise OSError(28, "no room for a whole line")

    def _close(self) -> None:
        self._bytes += 1
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None


def begin_run(query_id: str, *, query: str | None = None, trace: Trace | None = None) -> Run:
    """Begin a run of the trace, else of the one that `LLM_COMMON_TRACE_DIR` names.

    Without either, the run records nothing.

    A run within another one records into that one.

    Args:
        query_id: As for `Trace.begin`.
        query: Likewise.
        trace: Where to; None reads the environment now.
    """
    try:
        chosen = None if is_recording() else trace or Trace.from_env()
    except ConfigError as exc:
        _log.warning("a run is not traced: %s", exc.message)
        chosen = None
    return Run(None, query_id) if chosen is None else chosen.begin(query_id, query=query)


def folder_name(query_id: str) -> str:
    """Return the folder of a query's traces: as in a store, or a digest of an invalid id."""
    try:
        return folder_of(query_id)
    except InvalidIdError:
        return f"query-{digest(str(query_id))}"


@cache
def _trace_in(directory: str) -> Trace:
    return Trace(directory)


subscribe(begin_run)
