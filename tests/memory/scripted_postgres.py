"""A loopback server that speaks PostgreSQL's protocol, and answers statements from a script."""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

BOOL, INT8, TEXT, TIMESTAMP, JSON = 16, 20, 25, 1184, 3802
_SETTINGS = {
    "client_encoding": "UTF8",
    "server_version": "15.0",
    "TimeZone": "UTC",
    "DateStyle": "ISO, MDY",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
}

Row = tuple[str | None, ...]
"""The values of a row as PostgreSQL writes them."""


@dataclass(frozen=True)
class Rows:
    """An answer with rows. `types` are the object ids of the columns."""

    types: tuple[int, ...]
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class Failure:
    """An answer with an error, by its SQLSTATE. None ends the connection."""

    sqlstate: str | None


Answer = Rows | Failure | None


@dataclass
class ScriptedPostgres:
    """The statements that were sent, and the answers to those that contain a text.

    Attributes:
        answers: By a part of the statement. The first part that fits counts. Any other statement
            returns no rows.
        sent: The statements in one line each, with their values.
    """

    answers: dict[str, Answer]
    sent: list[tuple[str, list[str | None]]] = field(default_factory=list)
    port: int = 0

    @property
    def conninfo(self) -> str:
        return f"postgresql://user:secret@127.0.0.1:{self.port}/name?sslmode=disable&gssencmode=disable"

    def statements(self, *words: str) -> list[str]:
        """Return the first of the words that each statement contains, in the order sent."""
        matches: list[str] = []
        for statement, _ in self.sent:
            matches += [word for word in words if word in statement][:1]
        return matches

    def values_of(self, word: str) -> list[str | None]:
        """Return the values of the only statement with a text."""
        [values] = [values for statement, values in self.sent if word in statement]
        return values

    def answer(self, statement: str, values: list[str | None]) -> Answer:
        statement = " ".join(statement.split())
        self.sent.append((statement, values))
        for part, answer in self.answers.items():
            if part in statement:
                return answer
        return None


@asynccontextmanager
async def scripted_postgres(answers: Mapping[str, Answer]) -> AsyncIterator[ScriptedPostgres]:
    """Serve until the block ends."""
    script = ScriptedPostgres(dict(answers))
    clients: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.current_task()
        assert client is not None
        clients.add(client)
        try:
            await _serve(script, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has closed, or the test is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    try:
        yield script
    finally:
        server.close()
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients)


def _message(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(payload) + 4) + payload


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


async def _serve(
    script: ScriptedPostgres, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    await _greet(reader, writer)
    # I outside of a transaction, T within one, E within one that failed.
    state, statement = b"I", ""
    while True:
        kind = await reader.readexactly(1)
        [size] = struct.unpack("!i", await reader.readexactly(4))
        payload = await reader.readexactly(size - 4)
        if kind == b"X":
            return
        if kind == b"P":
            statement = payload.split(b"\0")[1].decode()
            writer.write(_message(b"1"))
        if kind == b"Q":
            statement = payload.rstrip(b"\0").decode()
        if kind in b"BQ":
            values: list[str | None] = []
            if kind == b"B":
                writer.write(_message(b"2"))
                values = _values(payload)
            answer = script.answer(statement, values)
            if isinstance(answer, Failure) and answer.sqlstate is None:
                return
            _write_answer(writer, answer, statement)
            state = _next_state(state, statement, has_failed=isinstance(answer, Failure))
        if kind in b"SQ":
            writer.write(_message(b"Z", state))
        await writer.drain()


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    size, _ = struct.unpack("!ii", await reader.readexactly(8))
    await reader.readexactly(size - 8)
    writer.write(_message(b"R", struct.pack("!i", 0)))
    for name, value in _SETTINGS.items():
        writer.write(_message(b"S", _text(name) + _text(value)))
    writer.write(_message(b"Z", b"I"))


def _next_state(state: bytes, statement: str, *, has_failed: bool) -> bytes:
    if has_failed:
        return b"E" if state == b"T" else state
    command = statement.split(" ", 1)[0]
    return {"BEGIN": b"T", "COMMIT": b"I", "ROLLBACK": b"I"}.get(command, state)


def _values(bind: bytes) -> list[str | None]:
    """Return the values of a Bind message. Numbers may be binary."""
    _, _, rest = bind.split(b"\0", 2)
    [count] = struct.unpack_from("!h", rest)
    formats = struct.unpack_from(f"!{count}h", rest, 2)
    position = 2 + 2 * count
    [count] = struct.unpack_from("!h", rest, position)
    position += 2
    values: list[str | None] = []
    for index in range(count):
        [size] = struct.unpack_from("!i", rest, position)
        position += 4
        if size < 0:
            values.append(None)
            continue
        data = rest[position : position + size]
        position += size
        is_binary = formats and formats[min(index, len(formats) - 1)] == 1
        values.append(str(int.from_bytes(data, "big")) if is_binary else data.decode())
    return values


def _write_answer(writer: asyncio.StreamWriter, answer: Answer, statement: str) -> None:
    if isinstance(answer, Failure):
        assert answer.sqlstate is not None
        fields = b"SERROR\0VERROR\0C" + _text(answer.sqlstate) + b"Mscripted\0\0"
        writer.write(_message(b"E", fields))
        return
    if answer is None and not statement.lstrip().startswith(("SELECT", "WITH", "DELETE")):
        writer.write(_message(b"C", _text("OK")))
        return
    answer = answer or Rows((TEXT,))
    columns = b""
    for number, oid in enumerate(answer.types):
        columns += _text(f"c{number}") + struct.pack("!ihihih", 0, 0, oid, -1, -1, 0)
    writer.write(_message(b"T", struct.pack("!h", len(answer.types)) + columns))
    for row in answer.rows:
        data = b""
        for value in row:
            encoded = b"" if value is None else value.encode()
            data += struct.pack("!i", -1 if value is None else len(encoded)) + encoded
        writer.write(_message(b"D", struct.pack("!h", len(row)) + data))
    writer.write(_message(b"C", _text(f"SELECT {len(answer.rows)}")))
