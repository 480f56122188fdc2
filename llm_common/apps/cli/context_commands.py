"""`llm-common context`: shows, searches, verifies and erases stored tool outputs."""

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from llm_common.apps.cli.stores import (
    Pointer,
    Query,
    Store,
    check_whole_pointer_id,
    find_query_id,
    no_query,
    open_store,
    pointer_id_for,
    query_id_for,
)
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
    listed,
    print_json,
    print_result,
    print_rows,
    print_text,
    say,
    show_progress,
)
from llm_common.text import counted

if TYPE_CHECKING:
    from llm_common.agents import ContextPointer

# A command imports what only it needs when it runs, so `--help` and completion answer quickly.
# ruff: noqa: PLC0415

_RANGE = re.compile(r"(\d{1,12})[:-](\d{1,12})")  # Python refuses to parse very long numbers
_EXCERPT_CHARS = 2_000  # about one screen

_Cursor = Annotated[
    str | None, typer.Option(metavar="CURSOR", help="Continue where the last answer ended.")
]
_LimitTokens = Annotated[
    int, typer.Option(metavar="TOKENS", min=200, help="Maximum tokens of an answer.")
]

context = typer.Typer(
    name="context",
    cls=InertErrorGroup,
    help="Show, search, verify and erase stored tool outputs.",
    no_args_is_help=True,
)


def _check_range(value: str | None) -> str | None:
    if value is not None:
        first, last = _parse_range(value) or (1, 0)
        if first > last:
            raise typer.BadParameter(
                f"{value[:40]!r} is not a range. Write the first and the last number as 10:20"
            )
    return value


def _check_words(value: str) -> str:
    from llm_common.ranking import search_stems

    if not search_stems(value):
        raise typer.BadParameter(
            f"{value[:40]!r} has no word to search for. Words like 'the' and 'of' are ignored"
        )
    return value


@context.command(
    "list", epilog=example("context list", 'context list "Which orders were refused?"')
)
def list_(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="List the pointers of this query.",
        ),
    ] = None,
    *,
    store: Store = None,
    limit: Limit = 50,
    offset: Offset = 0,
    json: AsJson = False,
) -> None:
    """List the queries of a store, or the pointers of a query, newest first.

    The command ends with 3 if the list is empty.
    """
    from llm_common.agents import output_label

    opened, location = open_store(store, reading=True)
    columns: dict[str, type]
    rows: list[tuple[object, ...]] = []
    if query is None:
        noun = "queries"
        with show_progress("Reading the folders", silent=json):
            page = opened.newest_queries(limit=limit, offset=offset)
        total = page.total
        document = {"store": location, "total": total, "queries": page.queries}
        columns = {"Query": str, "Pointers": int, "Bytes": int, "Changed": str, "Problem": str}
        for row in page.queries:
            changed_at = (row.changed_at or "")[:19]  # without fractions of a second
            rows.append((row.query_id, row.pointers, row.bytes, changed_at, row.problem))
    else:
        noun = "pointers"
        query_id = find_query_id(opened, query)
        if query_id is None:
            if json:
                empty = {"store": location, "query_id": query, "total": 0, "pointers": []}
                print_json(empty)
            end(no_query(query), ExitCode.NOTHING)
        listing = opened.newest(query_id=query_id, limit=limit, offset=offset)
        total = listing.total
        document = {"store": location, "query_id": query_id, "total": total}
        document["pointers"] = listing.pointers
        columns = {"Pointer": str, "Saved": str, "Bytes": int, "Output": str}
        for pointer in listing.pointers:
            saved_at = pointer.created_at[:19]
            label = output_label(pointer)
            rows.append((pointer.pointer_id, saved_at, pointer.result_bytes, label))
    print_result(document, columns, rows, as_json=json)
    nothing = f"There are no {noun} in {location}."
    end_list(total, limit, offset, noun, nothing=nothing, silent=json)


@context.command(epilog=example('context show "Which orders were refused?" 3ac5'))
def show(query: Query, pointer: Pointer, *, store: Store = None, json: AsJson = False) -> None:
    """Show a pointer's call, size, times and summary, and an excerpt of its result.

    An excerpt of records has their number, fields and values, and whole records. Of other results,
    it has lines or values.
    """
    from llm_common.pointers import ResultParts
    from llm_common.tables import result_name
    from llm_common.text import decode_json

    stored, payload = _load(query, pointer, store)
    value, stored_text = decode_json(payload), payload.decode("utf-8", "replace")
    excerpt = value if isinstance(value, str) else stored_text
    if len(stored_text) > _EXCERPT_CHARS:
        name = result_name(stored.tool_name, stored.pointer_id)
        parts = ResultParts(excerpt, value, "", table_name=name)
        excerpt = parts.excerpt(_EXCERPT_CHARS, fill=True).text
    if json:
        print_json({"pointer": stored, "excerpt": excerpt, "total_chars": len(stored_text)})
        return
    fields = stored.model_dump(mode="json", exclude={"result_sha256", "args_sha256"})
    rows = [(name, value) for name, value in fields.items() if value not in (None, [])]
    print_rows({"Field": str, "Value": str}, rows)
    print_text(f"\n{excerpt}")


@context.command(
    "query", epilog=example('context query QUERY "SELECT count(*) FROM get_orders_3ac5f0"')
)
def query_records(
    query: Query,
    sql: Annotated[
        str, typer.Argument(metavar="SQL", help='One SELECT. "SELECT * FROM tables" lists tables.')
    ],
    *,
    cursor: _Cursor = None,
    limit_tokens: _LimitTokens = 4_000,
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Run one SELECT over the stored records of a query, as the tool query_context does.

    `SELECT * FROM tables` lists the tables.
    """
    from llm_common.agents import Session, SessionConfig, is_run_id

    opened, _ = open_store(store, reading=True)
    query_id = query_id_for(opened, query)
    # No session has the id of a run, so one without a name reads it.
    is_run = is_run_id(query_id)
    session = Session(
        opened,
        session_id=None if is_run else query_id,
        config=SessionConfig(max_read_tokens=limit_tokens),
    )

    async def answer() -> None:
        await session.results.resume(query_id if is_run else None)
        if json:
            rows = await session.query_rows(sql)
            print_json({"columns": rows.columns, "rows": rows.rows, "is_cut": rows.is_cut})
        else:
            print_text(await session.query(sql, cursor=cursor))

    asyncio.run(answer())


@context.command(
    epilog=example(
        "context read QUERY 3ac5 --path /items/0", "context read QUERY 3ac5 --lines 10:20"
    )
)
def read(
    query: Query,
    pointer: Pointer,
    *,
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="JSON pointer to a value, as /items/0/name.")
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Show names and shapes of members, not the value.")
    ] = False,
    lines: Annotated[
        str | None,
        typer.Option(metavar="FIRST:LAST", callback=_check_range, help="Lines, counted from 1."),
    ] = None,
    chars: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST:END", callback=_check_range, help="Characters, counted from 0."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Matches of a regular expression, with context."),
    ] = None,
    cursor: _Cursor = None,
    limit_tokens: _LimitTokens = 4_000,
    whole: Annotated[bool, typer.Option("--whole", help="Read the whole result.")] = False,
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Read a result, or a part of it, as the tool read_context returns it to a model.

    The text goes to stdout. The cursor of the next part goes to stderr.
    """
    from llm_common.agents import read_context

    stored, payload = _load(query, pointer, store)
    if whole:
        # A token has at least one byte. The factor leaves space for the frame around the text.
        limit_tokens = max(len(payload), limit_tokens) * 2
    reading = asyncio.run(
        read_context(
            stored.pointer_id,
            load=lambda _: (stored, payload),
            path=path,
            keys=keys,
            lines=_parse_range(lines),
            chars=_parse_range(chars),
            pattern=pattern,
            cursor=cursor,
            max_tokens=limit_tokens,
        )
    )
    if json:
        print_json(reading)
        return
    print_text(reading.text)
    if reading.cursor:
        last = reading.start + len(reading.text)
        span = f"Characters {reading.start:,} to {last:,} of {reading.total_chars:,}."
        say(f"{span} Continue with --cursor {reading.cursor}")


@context.command(epilog=example('context search "refund policy" --in results'))
def search(
    words: Annotated[
        str, typer.Argument(metavar="WORDS", help="Words to search for.", callback=_check_words)
    ],
    *,
    look_in: Annotated[
        Literal["calls", "results"],
        typer.Option(
            "--in",
            help="`calls` searches the tool, arguments and sources of each call, and the first 500 "
            "characters of its result. `results` also searches each whole result, which reads the "
            "whole store.",
        ),
    ] = "calls",
    query: Annotated[
        str | None,
        typer.Option(metavar="QUERY", help="Search only this query."),
    ] = None,
    store: Store = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """Find pointers that share a word with WORDS, best first. English endings are ignored.

    Searches calls and the beginnings of results. With --in results it searches whole results too.
    Lists pointers and queries that could not be read. The command ends with 3 if nothing matches.
    """
    from llm_common.agents import output_label
    from llm_common.pointers import find_pointers

    opened, location = open_store(store, reading=True)
    with show_progress("Searching", silent=json) as progress:
        result = find_pointers(
            opened,
            words,
            query_id=None if query is None else query_id_for(opened, query),
            limit=limit,
            in_results=look_in == "results",
            # no total, because the number of pointers is not known in advance
            progress=lambda done: progress("Pointers searched", done, 0),
        )
    count = len(result.matches)
    rows = []
    for match in result.matches:
        pointer = match.pointer
        score = f"{match.score:.2f}"
        rows.append((pointer.query_id, pointer.pointer_id, score, output_label(pointer)))
    columns = {"Query": str, "Pointer": str, "Score": int, "Output": str}
    document = {"words": words, "looked_in": look_in, **dict(result)}
    print_result(document, columns, rows, as_json=json)
    if count < result.total and not json:
        say(f"{count:,} of {result.total:,} matches. Use a larger --limit for more.")
    if result.unreadable:
        say(
            f"Pointers not searched because they cannot be read: {result.unreadable:,}. "
            "Use context verify to list them."
        )
    if result.unreadable_queries:
        names = listed(result.unreadable_queries)
        say(f"Queries not searched because they cannot be read: {names}.")
    if not count:
        about = f"{result.searched:,} pointers in {location}"
        message = f"None of {about} has a word of {words[:200]!r}."
        if look_in == "calls":
            message += " Use --in results to search whole results."
        end(message, ExitCode.NOTHING)


@context.command(epilog=example("context verify --repair"))
def verify(
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Complete interrupted saves, and remove what can never be loaded."
        ),
    ] = False,
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Compare every result with its SHA-256, and list files that are damaged or unexpected.

    The command ends with 1 if it finds a problem. It changes nothing without --repair.
    """
    # Without --repair nothing is written, so the store may belong to another user.
    opened, location = open_store(store, reading=not repair)
    with show_progress("Verifying", silent=json):
        report = asyncio.run(opened.verify(repair=repair))
    rows = []
    for finding in report.findings:
        state = "repaired" if finding.repaired else ""
        rows.append((finding.query_id, finding.name, finding.kind, state))
    columns = {"Query": str, "File": str, "Finding": str, "State": str}
    document = {"store": location, "clean": report.is_clean, **dict(report)}
    print_result(document, columns, rows, as_json=json)
    if not json:
        say(
            f"{report.pointers:,} pointers of {report.queries:,} queries are whole, "
            f"{len(report.findings):,} findings."
        )
    if not report.is_clean:
        raise typer.Exit(ExitCode.FAILED)


@context.command(epilog=example("context gc --dry-run"))
def gc(*, dry_run: DryRun = False, store: Store = None, json: AsJson = False) -> None:
    """Remove expired pointers, and files that interrupted saves left behind."""
    opened, location = open_store(store, reading=dry_run)
    with show_progress("Collecting", silent=json):
        report = asyncio.run(opened.gc(dry_run=dry_run))
    rows = [(name.replace("_", " "), count) for name, count in report]
    document = {"store": location, "dry_run": dry_run, "report": report}
    print_result(document, {"What": str, "Count": int}, rows, as_json=json)
    if not json:
        say("Nothing was changed." if dry_run else f"Freed {report.freed_bytes:,} bytes.")


@dataclass(frozen=True, slots=True)
class _ErasableQuery:
    """The pointers of a query to erase, and the bytes of their records and results."""

    query_id: str
    pointers: tuple[str, ...]
    bytes: int


@context.command(epilog=example("context erase QUERY --dry-run"))
def erase(
    queries: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY",
            help="Queries: their ids or questions.",
        ),
    ],
    *,
    pointer: Annotated[
        list[str] | None,
        typer.Option(metavar="POINTER", help="Erase only this pointer of the query. Repeatable."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    store: Store = None,
    json: AsJson = False,
) -> None:
    """Erase queries with their pointers and results, for good.

    The command ends with 3 if there is nothing to erase.
    """
    from llm_common.pointers import QueryFiles

    requested = None if pointer is None else {*map(check_whole_pointer_id, pointer)}
    opened, location = open_store(store, reading=dry_run)
    # Collected before anything is erased, for the question and for --dry-run.
    by_id: dict[str, _ErasableQuery] = {}  # a repeated id counts once
    for text in queries:
        query_id = find_query_id(opened, text)
        if query_id is None:
            say(no_query(text))
            continue
        files = QueryFiles.of(opened.records.blobs, query_id)
        stored_ids = files.by_pointer.keys()
        pointer_ids = sorted(stored_ids if requested is None else stored_ids & requested)
        if pointer_ids:
            total_bytes = sum(map(files.size, pointer_ids))
            by_id[query_id] = _ErasableQuery(query_id, tuple(pointer_ids), total_bytes)
    erasable = [*by_id.values()]
    if not erasable:
        end(f"There is nothing to erase in {location}.", ExitCode.NOTHING)
    count = sum(len(query.pointers) for query in erasable)
    size = sum(query.bytes for query in erasable)
    names = listed([query.query_id for query in erasable])
    what = f"{counted(count, 'pointer')} of {names}, {counted(size, 'byte')}, from {location}"
    if not dry_run:
        confirm(f"Erase {what}?", yes=yes)
        for query in erasable:
            # Without ids the whole folder is deleted, also files that no pointer names.
            ids = None if requested is None else query.pointers
            opened.delete(query_id=query.query_id, pointer_ids=ids)
    rows = [(query.query_id, len(query.pointers), query.bytes) for query in erasable]
    document = {"store": location, "dry_run": dry_run, "queries": erasable}
    print_result(document, {"Query": str, "Pointers": int, "Bytes": int}, rows, as_json=json)
    if not json:
        say(f"Would erase {what}." if dry_run else f"Erased {what}.")


def _load(query: str, pointer: str, store: str | None) -> "tuple[ContextPointer, bytes]":
    """Return the pointer that the command line names, and the bytes of its result."""
    opened, _ = open_store(store, reading=True)
    query_id = query_id_for(opened, query)
    return opened.load_payload(pointer_id_for(opened, query_id, pointer), query_id=query_id)


def _parse_range(text: str | None) -> tuple[int, int] | None:
    match = _RANGE.fullmatch(text or "")
    return (int(match[1]), int(match[2])) if match else None
