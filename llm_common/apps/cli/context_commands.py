"""`llm-common context`: looks at stored tool outputs, verifies, collects and erases them."""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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
    print_text,
    say,
    say_more,
    show_progress,
)
from llm_common.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from llm_common.pointers.reading import ResultPart
    from llm_common.pointers.search import PointerSearch
    from llm_common.pointers.store import ContextPointerStore

# A command imports what only it needs when it runs: `--help` and completion answer at once.
# ruff: noqa: PLC0415

_POINTER_ID = re.compile(r"[0-9a-f]{12,16}")
_RANGE = re.compile(r"(\d{1,12})[:-](\d{1,12})")
_EXCERPT_CHARS = 2_000
_MAX_NAMED = 5  # names in one message

context = typer.Typer(
    name="context",
    cls=InertErrorGroup,
    help="Stored tool outputs and their pointers.",
    no_args_is_help=True,
)


def _complete_query(ctx: typer.Context, incomplete: str) -> list[str]:
    """The queries that begin so, for the shell."""
    from llm_common.storage.blob import query_id_of

    try:
        folders = _opened(ctx.params.get("store"), reading=True)[0].records.blobs.folders()
        return sorted(one for one in map(query_id_of, folders) if one.startswith(incomplete))[:100]
    except (ConfigError, StoreError, typer.Exit):
        return []


def _checked_pointer_id(value: str) -> str:
    if not _POINTER_ID.fullmatch(value):
        raise typer.BadParameter(
            f"{value[:40]!r} is no pointer id; use 12 to 16 lower-case hex digits"
        )
    return value


def _range(value: str | None) -> str | None:
    if value is not None and not _RANGE.fullmatch(value):
        raise typer.BadParameter(
            f"{value[:40]!r} is no range; write the first and the last number as 10:20"
        )
    return value


def _searchable(value: str) -> str:
    from llm_common.ranking.lexical import search_stems

    if not search_stems(value):
        raise typer.BadParameter(
            f"{value[:40]!r} has no word to look for; 'the', 'of' and the like do not count"
        )
    return value


_Store = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="The store: a folder, or an address such as s3://bucket/prefix.",
        show_default="LLM_COMMON_POINTER_STORE_DIR, else .llm-common/context",
    ),
]
_Query = Annotated[
    str, typer.Argument(metavar="QUERY", help="Id of a query.", autocompletion=_complete_query)
]
_Pointer = Annotated[
    str,
    typer.Argument(metavar="POINTER", help="Id of a pointer of it.", callback=_checked_pointer_id),
]


@context.command("list")
def list_(
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="QUERY",
            help="Lists the pointers of this query.",
            autocompletion=_complete_query,
        ),
    ] = None,
    *,
    store: _Store = None,
    limit: Limit = 50,
    offset: Offset = 0,
    json: AsJson = False,
) -> None:
    """List the queries of a store, or the pointers of a query, newest first.

    Ends with 3 where there are none.
    """
    opened, where = _opened(store, reading=True)
    if query is None:
        with show_progress("Reading the folders", silent=json):
            found = opened.queries()
        shown = tuple(found[offset : offset + limit])
        total, noun = len(found), "queries"
        if json:
            print_json({"store": where, "total": total, "queries": shown})
        else:
            rows = (
                (one.query_id, one.pointers, one.bytes, (one.changed_at or "")[:19], one.problem)
                for one in shown
            )
            print_rows(
                {"Query": str, "Pointers": int, "Bytes": int, "Changed": str, "Problem": str}, rows
            )
    else:
        page = opened.newest(query_id=query, limit=limit, offset=offset)
        shown_pointers, total, noun = page.pointers, page.total, "pointers"
        if json:
            page_of = {"store": where, "query_id": query, "total": total}
            print_json({**page_of, "pointers": shown_pointers})
        else:
            lines = (
                (one.pointer_id, one.created_at[:19], one.result_bytes, one.summary)
                for one in shown_pointers
            )
            print_rows({"Pointer": str, "Saved": str, "Bytes": int, "Output": str}, lines)
    if not total:
        end(f"There are no {noun} in {where}.", ExitCode.NOTHING)
    if not json:
        say_more(min(limit, max(total - offset, 0)), total, offset, noun)


@context.command()
def show(query: _Query, pointer: _Pointer, *, store: _Store = None, json: AsJson = False) -> None:
    """Show a pointer: its call, size, times and summary, and an excerpt of its result."""
    from llm_common.text.canonical import decode_json
    from llm_common.text.display import excerpt_json

    stored, payload = _opened(store, reading=True)[0].load_payload(pointer, query_id=query)
    excerpt = excerpt_json(decode_json(payload), _EXCERPT_CHARS).text
    if json:
        total_chars = len(payload.decode("utf-8", "replace"))
        print_json({"pointer": stored, "excerpt": excerpt, "total_chars": total_chars})
        return
    facts = stored.model_dump(mode="json", exclude={"result_sha256", "args_sha256"})
    print_rows(
        {"Fact": str, "Value": str},
        ((name, value) for name, value in facts.items() if value not in (None, [])),
    )
    print_text(f"\n{excerpt}")


@context.command()
def read(
    query: _Query,
    pointer: _Pointer,
    *,
    path: Annotated[
        str | None, typer.Option(metavar="PATH", help="JSON pointer to a value: /items/0/name.")
    ] = None,
    select: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="JMESPATH", help="Expression over that value: items[].id."
        ),
    ] = None,
    keys: Annotated[
        bool, typer.Option("--keys", help="Names and shapes of the members, not the value.")
    ] = False,
    lines: Annotated[
        str | None,
        typer.Option(metavar="FIRST:LAST", callback=_range, help="Lines, counted from 1."),
    ] = None,
    chars: Annotated[
        str | None,
        typer.Option(metavar="FIRST:END", callback=_range, help="Characters, counted from 0."),
    ] = None,
    regex: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Places that match, with their text.")
    ] = None,
    cursor: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Goes on where an answer ended.")
    ] = None,
    limit_tokens: Annotated[
        int, typer.Option(metavar="TOKENS", min=200, help="Most tokens of an answer.")
    ] = 4_000,
    whole: Annotated[bool, typer.Option("--whole", help="All of it, however long.")] = False,
    store: _Store = None,
    json: AsJson = False,
) -> None:
    """Read a result, or a part of it, as the tool read_context gives it to a model.

    The text goes to stdout; how to go on goes to stderr.
    """
    from llm_common.core.tokens import DefaultCounter
    from llm_common.pointers.reading import read_payload

    part = _part(
        path=path,
        filter=select,
        keys=keys or None,
        lines=_ends(lines),
        chars=_ends(chars),
        regex=regex,
    )
    stored, payload = _opened(store, reading=True)[0].load_payload(pointer, query_id=query)
    limit = max(len(payload), limit_tokens) * 2 if whole else limit_tokens
    reading = read_payload(
        stored, payload, part=part, cursor=cursor, limit_tokens=limit, counter=DefaultCounter()
    )
    if json:
        print_json(reading)
        return
    print_text(reading.text)
    if reading.cursor:
        last = reading.start + len(reading.text)
        span = f"characters {reading.start:,} to {last:,} of {reading.total_chars:,}"
        say(f"{span}; --cursor {reading.cursor} goes on")


@context.command()
def search(
    words: Annotated[
        str, typer.Argument(metavar="WORDS", help="What to look for.", callback=_searchable)
    ],
    *,
    look_in: Annotated[
        Literal["calls", "results"],
        typer.Option(
            "--in",
            help="calls: tool, arguments and sources of each call, and the first 500 characters of "
            "its result; results: all of each stored result too, which reads the whole store.",
        ),
    ] = "calls",
    query: Annotated[
        str | None,
        typer.Option(
            metavar="QUERY", help="Looks in this query alone.", autocompletion=_complete_query
        ),
    ] = None,
    store: _Store = None,
    limit: Limit = 20,
    json: AsJson = False,
) -> None:
    """Find pointers that share a word with WORDS, best first; an English ending does not matter.

    Looks at calls and at the beginnings of results; --in results looks through the stored results
    too. Says what could not be read and so was not searched. Ends with 3 where nothing matches.
    """
    opened, where = _opened(store, reading=True)
    with show_progress("Searching", silent=json) as progress:
        found = opened.find(
            words,
            query_id=query,
            limit=limit,
            in_results=look_in == "results",
            progress=lambda done: progress("Pointers searched", done, 0),
        )
    if json:
        print_json({"words": words, "looked_in": look_in, **dict(found)})
    else:
        rows = (
            (one.pointer.query_id, one.pointer.pointer_id, f"{one.score:.2f}", one.pointer.summary)
            for one in found.matches
        )
        print_rows({"Query": str, "Pointer": str, "Score": int, "Output": str}, rows)
    if not json and found.matches:
        say_more(
            len(found.matches),
            found.total,
            found.total,
            "matches, the best first; a larger --limit shows more",
        )
    _say_unread(found)
    if not found.matches:
        where_else = (
            "; --in results looks through the stored results too" if look_in == "calls" else ""
        )
        end(
            f"None of {found.searched:,} pointers in {where} has a word of "
            f"{words[:200]!r}{where_else}.",
            ExitCode.NOTHING,
        )


def _say_unread(found: "PointerSearch") -> None:
    """Says what was not searched, and how to see why."""
    if found.unreadable:
        say(
            f"Pointers not searched, since they cannot be read: {found.unreadable:,}; "
            "context verify names them."
        )
    if queries := found.unreadable_queries:
        named = ", ".join(queries[:_MAX_NAMED]) + (" …" if len(queries) > _MAX_NAMED else "")
        say(f"Queries not searched, since they cannot be read: {len(queries):,}, {named}.")


@context.command()
def verify(
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Complete what can be completed, remove what can never be loaded."
        ),
    ] = False,
    store: _Store = None,
    json: AsJson = False,
) -> None:
    """Compare every result with its digest, and name what is not as a save leaves it.

    Ends with 1 if something is wrong. Without --repair nothing is changed.
    """
    opened, where = _opened(store, reading=not repair)
    with show_progress("Verifying", silent=json):
        report = asyncio.run(opened.verify(repair=repair))
    if json:
        print_json({"store": where, "clean": report.is_clean, **dict(report)})
    else:
        rows = (
            (one.query_id, one.name, one.kind, "repaired" if one.repaired else "")
            for one in report.findings
        )
        print_rows({"Query": str, "File": str, "Finding": str, "State": str}, rows)
        say(
            f"{report.pointers:,} pointers of {report.queries:,} queries are whole; "
            f"{len(report.findings):,} findings"
        )
    if not report.is_clean:
        raise typer.Exit(ExitCode.FAILED)


@context.command()
def gc(*, dry_run: DryRun = False, store: _Store = None, json: AsJson = False) -> None:
    """Remove expired pointers and what killed writers left behind."""
    opened, where = _opened(store, reading=dry_run)
    with show_progress("Collecting", silent=json):
        report = asyncio.run(opened.gc(dry_run=dry_run))
    if json:
        print_json({"store": where, "dry_run": dry_run, "report": report})
        return
    print_rows(
        {"What": str, "Number": int}, ((name.replace("_", " "), count) for name, count in report)
    )
    say("Nothing was changed." if dry_run else f"Freed {report.freed_bytes:,} bytes.")


@dataclass(frozen=True, slots=True)
class _ErasableQuery:
    """The pointers of a query that are to be erased, and the bytes of their records and results."""

    query_id: str
    pointers: tuple[str, ...]
    bytes: int


@context.command()
def erase(
    queries: Annotated[
        list[str],
        typer.Argument(metavar="QUERY...", help="Ids of queries.", autocompletion=_complete_query),
    ],
    *,
    pointer: Annotated[
        list[str] | None,
        typer.Option(metavar="POINTER", help="Only this pointer of the query; repeatable."),
    ] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    store: _Store = None,
    json: AsJson = False,
) -> None:
    """Erase the pointers of queries with their results, for good.

    Ends with 3 where there is nothing to erase.
    """
    chosen = None if pointer is None else [*map(_checked_pointer_id, pointer)]
    opened, where = _opened(store, reading=dry_run)
    erasable = [_erasable(opened, query_id, chosen) for query_id in dict.fromkeys(queries)]
    erasable = [query for query in erasable if query.pointers]
    number = sum(len(query.pointers) for query in erasable)
    size = sum(query.bytes for query in erasable)
    if not number:
        end(f"There is nothing to erase in {where}.", ExitCode.NOTHING)
    what = f"{number:,} pointers of {len(erasable):,} queries, {size:,} bytes, from {where}"
    if not dry_run:
        confirm(f"Erase {what}?", yes=yes)
        for query in erasable:
            # without ids the whole folder goes, with what no pointer names
            ids = None if chosen is None else query.pointers
            opened.delete(query_id=query.query_id, pointer_ids=ids)
    if json:
        print_json({"store": where, "dry_run": dry_run, "queries": erasable})
        return
    rows = [(query.query_id, len(query.pointers), query.bytes) for query in erasable]
    print_rows({"Query": str, "Pointers": int, "Bytes": int}, rows)
    say(f"Would erase {what}." if dry_run else f"Erased {what}.")


def _erasable(
    store: "ContextPointerStore", query_id: str, chosen: list[str] | None
) -> _ErasableQuery:
    from llm_common.pointers.records import QueryFiles

    files = QueryFiles.of(store.records.blobs, query_id)
    pointers = sorted(files.by_pointer if chosen is None else files.by_pointer.keys() & chosen)
    return _ErasableQuery(
        query_id=query_id, pointers=tuple(pointers), bytes=sum(map(files.size, pointers))
    )


def _opened(store: str | None, *, reading: bool) -> "tuple[ContextPointerStore, str]":
    """The store and where it is. Who only reads may read what belongs to another user.

    Raises:
        ConfigError: It cannot be opened.
        typer.Exit: There is none.
    """
    if store and "://" in store:
        from llm_common.pointers.object_records import ObjectContextPointerStore

        return ObjectContextPointerStore.from_url(store), store
    from llm_common.pointers.store import FileContextPointerStore

    files = FileContextPointerStore(
        Path(store) if store else None, allow_hard_links=reading, allow_unsafe_dir=reading
    )
    if not files.base_dir.is_dir():
        end(
            f"There is no store at {files.base_dir}; name its folder with --store.",
            ExitCode.NOTHING,
        )
    return files, str(files.base_dir)


def _ends(text: str | None) -> tuple[int, int] | None:
    match = _RANGE.fullmatch(text) if text else None
    return (int(match[1]), int(match[2])) if match else None


def _part(**fields: object) -> "ResultPart | None":
    """The part of a result that the options name, None for the whole.

    Raises:
        typer.BadParameter: They do not fit together.
    """
    from pydantic import ValidationError

    from llm_common.pointers.reading import ResultPart

    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return ResultPart.model_validate(given) if given else None
    except ValidationError as exc:
        raise typer.BadParameter(exc.errors()[0]["msg"]) from exc
