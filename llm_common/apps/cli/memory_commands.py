"""`llm-common memory`: looks at what was remembered, finds it, and forgets it."""

import asyncio
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    print_json,
    print_rows,
    say,
    say_more,
)

if TYPE_CHECKING:
    from llm_common.memory.overview import KeptEvent, SessionSummary
    from llm_common.memory.postgres import PostgresMemory
    from llm_common.memory.protocol import MemoryHit
    from llm_common.memory.sqlite import SqliteMemory

# A command imports what only it needs when it runs: `--help` and completion answer at once.
# ruff: noqa: PLC0415

memory = typer.Typer(
    name="memory",
    cls=InertErrorGroup,
    help="What was remembered of users and sessions.",
    no_args_is_help=True,
)
_Memory = Annotated[
    str,
    typer.Argument(
        metavar="MEMORY",
        help="The file of a SqliteMemory, or a connection string of PostgreSQL such as "
        "postgresql://host/name. Leave its password to PGPASSWORD or ~/.pgpass: "
        "others see the arguments of a command.",
    ),
]
_Schema = Annotated[str, typer.Option(metavar="NAME", help="Where the tables of PostgreSQL are.")]
_Session = Annotated[str | None, typer.Option("--session", metavar="ID", help="A session.")]
_User = Annotated[
    str | None,
    typer.Option("--user", metavar="ID", help="Whose; none means sessions without a user."),
]


@memory.command("list")
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
    """List the sessions of a memory, of a user if one is named.

    With --session the events of a session. The newest come first. Ends with 3 where there are none.
    """
    from llm_common.memory.overview import list_events, list_sessions

    async def sessions() -> "tuple[list[SessionSummary], int]":
        async with _opened(source, schema, read_only=True) as opened:
            return await list_sessions(opened, user=user, limit=limit, offset=offset)

    async def events() -> "tuple[list[KeptEvent], int]":
        async with _opened(source, schema, read_only=True) as opened:
            return await list_events(
                opened, session_id=session, user=user, limit=limit, offset=offset
            )

    if session is None:
        found, total = asyncio.run(sessions())
        shown, noun = len(found), "sessions"
        if json:
            print_json({"total": total, "sessions": found})
        else:
            rows = (
                (one.user, one.session_id, one.events, one.current, one.newest_at.isoformat())
                for one in found
            )
            print_rows(
                {"User": str, "Session": str, "Events": int, "Current": int, "Newest": str}, rows
            )
    else:
        kept, total = asyncio.run(events())
        shown, noun = len(kept), "events"
        if json:
            print_json({"total": total, "events": kept})
        else:
            lines = (
                (one.id, one.event.role, one.key, "" if one.current else "past", one.event.text)
                for one in kept
            )
            print_rows({"Id": int, "Role": str, "Key": str, "State": str, "Text": str}, lines)
    if not total:
        end(f"There are no such {noun}.", ExitCode.NOTHING)
    if not json:
        say_more(shown, total, offset, noun)


@memory.command()
def search(
    source: _Memory,
    words: Annotated[str, typer.Argument(metavar="WORDS", help="What to look for.")],
    *,
    session: _Session = None,
    user: _User = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only facts under this key.")
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Superseded and expired events too.")
    ] = False,
    schema: _Schema = "llm_common",
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """Find events of a session, or of all sessions of a user, as an agent finds them; best first.

    Ends with 3 where nothing matches.
    """
    from llm_common.memory.protocol import MemoryFilters

    if session is None and user is None:
        raise typer.BadParameter(
            "name a --session or a --user; nobody's memories are searched together"
        )
    filters = MemoryFilters(
        session_id=session or "all",
        user=user,
        all_sessions=session is None,
        key=key,
        history=history,
    )

    async def hits() -> "list[MemoryHit]":
        async with _opened(source, schema, read_only=True) as opened:
            return await opened.retrieve(words, limit, filters)

    found = asyncio.run(hits())
    if json:
        print_json({"words": words, "hits": found})
    else:
        rows = (
            (one.id, one.session_id, one.event.role, f"{one.score:.2f}", one.event.text)
            for one in found
        )
        print_rows({"Id": int, "Session": str, "Role": str, "Score": int, "Text": str}, rows)
    if not found:
        end(f"No event has a word of {words[:200]!r}.", ExitCode.NOTHING)


@memory.command()
def forget(
    source: _Memory,
    *,
    session: _Session = None,
    user: _User = None,
    event: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="An event; list shows the ids.")
    ] = None,
    schema: _Schema = "llm_common",
    yes: Yes = False,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Erase the events that agree with every option, for good: a user's, a session's, or one.

    Ends with 3 where there are none.
    """
    from llm_common.memory.overview import list_events

    if session is None and user is None and event is None:
        raise typer.BadParameter("name a --session, a --user or an --id")

    async def count() -> int:
        async with _opened(source, schema, read_only=True) as opened:
            return (await list_events(opened, session_id=session, user=user, id=event, limit=1))[1]

    async def erase() -> int:
        async with _opened(source, schema, read_only=False) as opened:
            return await opened.forget(session_id=session, user=user, id=event)

    number = asyncio.run(count())
    if not number:
        end("There are no such events.", ExitCode.NOTHING)
    if not dry_run:
        confirm(f"Erase {number:,} events?", yes=yes)
        number = asyncio.run(erase())
    if json:
        print_json({"dry_run": dry_run, "events": number})
    say(f"Would erase {number:,} events." if dry_run else f"Erased {number:,} events.")


def _opened(
    source: str, schema: str, *, read_only: bool
) -> "AbstractAsyncContextManager[SqliteMemory | PostgresMemory]":
    """The memory; a file has to be there.

    Raises:
        ConfigError: The extra of PostgreSQL is missing, or the connection string is none.
        typer.Exit: There is no such file.
    """
    path = Path(source).expanduser()
    if "://" in source or ("=" in source and not path.exists()):
        from llm_common.memory import PostgresMemory

        return PostgresMemory(source, schema=schema, read_only=read_only)
    if not path.is_file():
        end(f"There is no memory at {path}; name its file.", ExitCode.NOTHING)
    from llm_common.memory.sqlite import SqliteMemory

    return SqliteMemory(path, read_only=read_only)
