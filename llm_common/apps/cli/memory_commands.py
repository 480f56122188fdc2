"""`llm-common memory`: lists, searches and erases what an agent remembers."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from llm_common.apps.cli.terminal import (
    AsJson,
    DryRun,
    ExitCode,
    InertErrorGroup,
    Limit,
    Offset,
    Yes,
    confirm,
    end,
    end_list,
    example,
    print_json,
    print_result,
    say,
)
from llm_common.text import counted

if TYPE_CHECKING:
    from llm_common.memory import PostgresMemory, SqliteMemory

# A command imports what only it needs when it runs, so `--help` and completion answer quickly.
# ruff: noqa: PLC0415

T = TypeVar("T")

memory = typer.Typer(
    name="memory",
    cls=InertErrorGroup,
    help="List, search and erase memories of users and sessions.",
    no_args_is_help=True,
)
_Memory = Annotated[
    str,
    typer.Argument(
        metavar="MEMORY",
        help="File of a SqliteMemory, or a PostgreSQL connection string such as "
        "postgresql://host/name. Set the password in PGPASSWORD or ~/.pgpass, because other users "
        "of the machine can see the arguments of a command.",
    ),
]
_Schema = Annotated[str, typer.Option(metavar="NAME", help="PostgreSQL schema with the tables.")]
_Session = Annotated[str | None, typer.Option("--session", metavar="ID", help="Id of a session.")]
_User = Annotated[
    str | None,
    typer.Option(
        "--user",
        metavar="ID",
        help="Id of a user. Without it, --session names a session without a user.",
    ),
]


@memory.command("list", epilog=example("memory list memory.sqlite3"))
def list_(
    source: _Memory,
    *,
    session: _Session = None,
    user: _User = None,
    schema: _Schema = "llm_common",
    limit: Limit = 50,
    offset: Offset = 0,
    json: AsJson = False,
) -> None:
    """List sessions, or the events of one session, newest first.

    The command ends with 3 if the list is empty.
    """
    from llm_common.memory import list_events, list_sessions

    columns: dict[str, type]
    rows: list[tuple[object, ...]] = []
    document: dict[str, object]
    if session is None:
        noun = "sessions"
        columns = {"User": str, "Session": str, "Events": int, "Current": int, "Newest": str}
        summaries, total = _with_memory(
            source,
            schema,
            lambda opened: list_sessions(opened, user=user, limit=limit, offset=offset),
        )
        document = {"total": total, "sessions": summaries}
        for summary in summaries:
            newest_at = summary.newest_at.isoformat()
            row = (summary.user, summary.session_id, summary.events, summary.current, newest_at)
            rows.append(row)
    else:
        noun = "events"
        columns = {"Id": int, "Role": str, "Key": str, "State": str, "Text": str}
        records, total = _with_memory(
            source,
            schema,
            lambda opened: list_events(
                opened, session_id=session, user=user, limit=limit, offset=offset
            ),
        )
        document = {"total": total, "events": records}
        for record in records:
            state = "" if record.current else "past"
            rows.append((record.id, record.event.role, record.key, state, record.event.text))
    print_result(document, columns, rows, as_json=json)
    nothing = f"There are no such {noun}."
    end_list(total, limit, offset, noun, nothing=nothing, silent=json)


@memory.command(epilog=example('memory search memory.sqlite3 "invoice address" --user 42'))
def search(
    source: _Memory,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="Words to search for.")],
    *,
    session: _Session = None,
    user: _User = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only facts with this key.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Search superseded and expired events too.")
    ] = False,
    schema: _Schema = "llm_common",
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """Search events of a session, or of all sessions of a user, as an agent does, best first.

    The command ends with 3 if nothing matches.
    """
    from llm_common.memory import MemoryFilters

    if session is None and user is None:
        raise typer.BadParameter(
            "name a --session or a --user. A search never covers several users"
        )
    filters = MemoryFilters(
        session_id=session or "all",  # required, and ignored with `all_sessions`
        user=user,
        all_sessions=session is None,
        key=key,
        history=history,
    )
    matches = _with_memory(source, schema, lambda opened: opened.retrieve(words, limit, filters))
    rows = []
    for hit in matches:
        score = f"{hit.score:.2f}"
        rows.append((hit.id, hit.session_id, hit.event.role, score, hit.event.text))
    columns = {"Id": int, "Session": str, "Role": str, "Score": int, "Text": str}
    print_result({"words": words, "hits": matches}, columns, rows, as_json=json)
    if not matches:
        end(f"No event has a word of {words[:200]!r}.", ExitCode.NOTHING)


@memory.command(epilog=example("memory forget memory.sqlite3 --user 42"))
def forget(
    source: _Memory,
    *,
    session: _Session = None,
    user: _User = None,
    event: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Id of an event, as list shows it.")
    ] = None,
    schema: _Schema = "llm_common",
    yes: Yes = False,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Erase the events of a user or a session, or a single event, for good.

    An event must match every option. The command ends with 3 if no event does.
    """
    from llm_common.memory import list_events

    if session is None and user is None and event is None:
        raise typer.BadParameter("name a --session, a --user or an --id")

    # Counted first, without opening the memory for writes: the question names the number.
    _, total = _with_memory(
        source,
        schema,
        lambda opened: list_events(opened, session_id=session, user=user, id=event, limit=1),
    )
    if not total:
        end("There are no such events.", ExitCode.NOTHING)
    if not dry_run:
        confirm(f"Erase {counted(total, 'event')}?", yes=yes)
        # Events may arrive between the question and the answer, so report what was erased.
        total = _with_memory(
            source,
            schema,
            lambda opened: opened.forget(session_id=session, user=user, id=event),
            read_only=False,
        )
    if json:
        print_json({"dry_run": dry_run, "events": total})
    say(f"{'Would erase' if dry_run else 'Erased'} {counted(total, 'event')}.")


def _with_memory(
    source: str,
    schema: str,
    work: "Callable[[SqliteMemory | PostgresMemory], Awaitable[T]]",
    *,
    read_only: bool = True,
) -> T:
    """Open a memory, and return the result of some work with it. See `_open_memory`."""

    # Opened in the coroutine, since the connections of a pool belong to its event loop.
    async def run() -> T:
        async with _open_memory(source, schema, read_only=read_only) as opened:
            return await work(opened)

    return asyncio.run(run())


def _open_memory(
    source: str, schema: str, *, read_only: bool
) -> "AbstractAsyncContextManager[SqliteMemory | PostgresMemory]":
    """Return the memory of a file or a connection string.

    Raises:
        ConfigError: If the extra `postgres` is missing, or the connection string is invalid.
        typer.Exit: If the file does not exist.
    """
    path = Path(source).expanduser()
    # libpq also takes "host=... dbname=...", which a file name could look like
    if "://" in source or ("=" in source and not path.exists()):
        from llm_common.memory import PostgresMemory

        return PostgresMemory(source, schema=schema, read_only=read_only)
    if not path.is_file():
        # SQLite would create the file
        end(f"There is no memory at {path}. Name its file.", ExitCode.NOTHING)
    from llm_common.memory import SqliteMemory

    return SqliteMemory(path, read_only=read_only)
