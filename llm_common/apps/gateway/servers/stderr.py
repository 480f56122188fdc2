"""Pass a server's stderr on with the server's name, and keep its last words: `StderrRelay`."""

import os
import re
import threading
from collections import deque
from contextlib import suppress
from typing import Final

from llm_common.agents import Redactor
from llm_common.apps.gateway.servers.limits import MAX_LINE_CHARS, MAX_NAME_CHARS
from llm_common.text import one_line

_MAX_LINE_BYTES: Final = 8_192  # a longer line is passed on in parts
_KEPT_LINES: Final = 20
_MAX_HELD_LINES: Final = 300
_STDERR: Final = 2
# The line of a traceback that says what went wrong. Other words may follow it.
_ERROR: Final = re.compile(r"^\s*(?:Uncaught )?[\w.]*(?:Error|Exception)\b.*: ?\S")
# A server of the SDK below 2.0 refuses the question for its protocol with some hundred lines.
_REFUSAL: Final = re.compile(rb"Failed to validate request: \d+ validation errors for ClientReq")
_REFUSAL_LINE: Final = re.compile(rb"\s|\w+(?:\.\w+)+\s*$|(?:\w+:)*Message that failed validation")
_PROBE: Final = b"server/discover"


class StderrRelay:
    """Reads a server's stderr in a thread, and writes it to the stderr of this process.

    Each line begins with the server's name. A thread, because a full pipe of the host may stop the
    writing, which must stop this server only, as it does without the gateway.

    Args:
        name: The server's name.

    Attributes:
        sink: The descriptor that the server writes to. The caller closes it after the start.
    """

    def __init__(self, name: str) -> None:
        source, self.sink = os.pipe()
        self._prefix = f"[{one_line(name, max_chars=MAX_NAME_CHARS)}] ".encode()
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._held: list[bytes] = []
        self._thread = threading.Thread(target=self._read, args=[source], daemon=True)
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait until the server and its child processes have closed their stderr."""
        self._thread.join(timeout_s)

    def last_words(self) -> str:
        """Return the line that best says why the server ended, without secrets, or ""."""
        lines = [line.decode("utf-8", "replace").strip() for line in list(self._lines)]
        lines = [line for line in lines if line]
        errors = [line for line in lines if _ERROR.match(line)]
        if not lines:
            return ""
        line = (errors or lines)[-1]
        return one_line(Redactor().text(line), max_chars=MAX_LINE_CHARS)

    def _read(self, source: int) -> None:
        with suppress(OSError), open(source, "rb") as stderr:
            while line := stderr.readline(_MAX_LINE_BYTES):
                self._pass_on(line)
            self._release()

    def _pass_on(self, line: bytes) -> None:
        if _REFUSAL.search(line):
            self._release()
            self._held.append(line)
        elif self._held and _REFUSAL_LINE.match(line) and len(self._held) < _MAX_HELD_LINES:
            self._held.append(line)
        else:
            self._release()
            self._write(line)

    def _release(self) -> None:
        """Write the held lines, unless they refuse the question for the protocol."""
        held, self._held = self._held, []
        if not any(_PROBE in line for line in held):
            for line in held:
                self._write(line)

    def _write(self, line: bytes) -> None:
        self._lines.append(line)
        rest = self._prefix + line
        if not line.endswith(b"\n"):
            rest += b"\n"
        with suppress(OSError):  # the host has closed its end
            while rest:
                rest = rest[os.write(_STDERR, rest) :]
