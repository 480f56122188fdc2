"""The pages of a store: its queries, the pointers of one, a pointer with its result, and what a search found."""

import shlex
from collections.abc import Iterable
from typing import Final

from llm_common.apps.inspector.layout import (
    address_of,
    expiry,
    link,
    moment,
    note,
    page,
    pager,
    size,
    with_parameters,
)
from llm_common.apps.inspector.result_parts import MAX_WHOLE_BYTES, ShownPart, View
from llm_common.apps.inspector.stored_pointers import PointerRow, QueryRow
from llm_common.pointers.pointer import ContextPointer
from llm_common.storage import query_id_of
from llm_common.text.canonical import stable_json
from llm_common.trace.markup import bdi, facts_list, long_text, number_cell, plain, table

_HOME: Final = ("/queries", "Queries")


def queries_page(
    rows: list[QueryRow], *, total: int, number: int, words: str, unread: int, where: str
) -> str:
    """The queries of a store, the one that changed last first."""
    cells = [
        [
            link(address_of("queries", row.folder), row.query_id)
            + (f"<small>{bdi(row.problem)}</small>" if row.problem else ""),
            number_cell(row.pointers) + _unless(row.is_read, " <small>so far</small>"),
            size(row.bytes),
            moment(row.changed_s),
        ]
        for row in rows
    ]
    named = f" whose id holds “{words}”" if words else ""
    filtered = (
        '<form class=filter action="/queries"><label for=part>Only ids that hold</label>'
        f'<input id=part name=words value="{plain(words)}"><button>Show</button></form>'
    )
    body = table(
        "Queries, the last changed first",
        ("Query", "Pointers", "Bytes", "Changed"),
        cells,
        kind="plain",
    )
    return page(
        "Queries",
        f"<p class=lead>{total:,} queries{bdi(named)} in {bdi(where)}</p>",
        note(_still_reading(unread)),
        filtered,
        body or "<p>There are none.</p>",
        pager("/queries", number, total, words=words),
        place="queries",
    )


def query_page(query: QueryRow, rows: list[PointerRow], *, number: int) -> str:
    """The pointers of a query, newest first."""
    address = address_of("queries", query.folder)
    return page(
        query.query_id,
        f"<p class=lead>{query.pointers:,} pointers, {size(query.bytes)}</p>",
        note(
            _unless(query.is_read, "The query is still being read: reload the page for the rest."),
            f"It cannot be read: {query.problem}." if query.problem else "",
        ),
        _pointers("Pointers, newest first", rows) or "<p>It has no pointers.</p>",
        pager(address, number, query.pointers),
        place="queries",
        above=[_HOME],
    )


def search_page(
    rows: list[PointerRow],
    queries: list[QueryRow],
    *,
    words: str,
    total: int,
    number: int,
    unread: int,
    where: str,
) -> str:
    """The queries and pointers that hold the words, and the command that looks through the results too."""
    named = "".join(
        f"<li>{link(address_of('queries', each.folder), each.query_id)}</li>" for each in queries
    )
    found = (
        f"{total:,} outputs hold “{words}”"
        if words
        else "Give the words that an output's call or beginning holds."
    )
    command = (
        f"llm-common context search {shlex.quote(words)} --in results --store {shlex.quote(where)}"
    )
    return page(
        "Search",
        f"<p class=lead>{bdi(found)}</p>",
        f"<p>This looks at calls and at how results begin. {bdi(command)} looks through the results.</p>"
        if words
        else "",
        note(_still_reading(unread)),
        f"<section aria-labelledby=ids><h2 id=ids>Queries with such an id</h2><ul>{named}</ul></section>"
        if named
        else "",
        _pointers("Outputs, best first", rows, with_query=True),
        pager("/search", number, total, words=words),
        place="search",
        words=words,
    )


def pointer_page(
    pointer: ContextPointer, folder: str, part: ShownPart | None, *, view: View, problem: str
) -> str:
    """A pointer with a part of its result."""
    address = address_of("queries", folder, pointer.pointer_id)
    sources = "".join(f"<li>{bdi(each)}</li>" for each in pointer.source_urls)
    facts = {"Tool": pointer.tool_name, "Task": pointer.task_id, "Pointer": pointer.pointer_id}
    facts |= {"Bytes": None if pointer.result_bytes is None else f"{pointer.result_bytes:,}"}
    facts |= {"Pinned": "yes" if pointer.pinned else None, "SHA-256": pointer.result_sha256}
    times = (
        f"<dl class=facts><div><dt>Saved</dt><dd>{moment(pointer.created_at)}</dd></div>"
        f"<div><dt>Expires</dt><dd>{expiry(None if pointer.pinned else pointer.expires_at)}</dd></div></dl>"
    )
    return page(
        pointer.summary,
        f"<p class=lead>{bdi(pointer.digest.partition('; ')[0])}</p>",
        note(problem),
        facts_list(facts),
        times,
        long_text("How it begins", pointer.digest.partition("; ")[2]),
        long_text("Arguments", stable_json(pointer.args) if pointer.args else None),
        f"<details><summary>Sources: {len(pointer.source_urls):,}</summary><ul>{sources}</ul></details>"
        if sources
        else "",
        _content(part, address, view, is_large=(pointer.result_bytes or 0) > MAX_WHOLE_BYTES)
        if part
        else "",
        place="queries",
        above=[_HOME, (address_of("queries", folder), pointer.query_id)],
    )


def _content(part: ShownPart, address: str, view: View, *, is_large: bool) -> str:
    other = "stored" if view == "pretty" else "pretty"
    names = {"stored": "Show as stored", "pretty": "Show indented"}
    switch = (
        ""
        if is_large
        else f'<a href="{plain(with_parameters(address, view=other))}">{names[other]}</a>'
    )
    goto = (
        f'<form class=filter action="{plain(address)}"><input type=hidden name=view value="{view}">'
        "<label for=line>Go to line</label><input id=line name=line type=number min=1><button>Go</button></form>"
    )
    ways = pager(address, part.number, part.count, 1, view=view)
    below = ways.replace("Pages of this list", "Pages of this list, again")
    return (
        f"<section aria-labelledby=result><h2 id=result>The result</h2><p>{part.place}, {part.form}. {switch}</p>"
        f"{ways}<pre class=whole tabindex=0 aria-labelledby=result>{bdi(part.text)}</pre>{below}"
        f"{'' if is_large or part.count == 1 else goto}</section>"
    )


def _pointers(caption: str, rows: Iterable[PointerRow], *, with_query: bool = False) -> str:
    columns = ["Output", "Tool", "Bytes", "Shape", "Saved", "Expires"]
    cells = [
        [
            link(address_of("queries", row.folder, row.pointer_id), row.summary or row.pointer_id)
            + f" <small class=id>{row.pointer_id}</small>",
            bdi(row.tool),
            size(row.bytes),
            bdi(row.shape),
            moment(row.created_at),
            expiry(row.expires_at),
            *(
                [link(address_of("queries", row.folder), query_id_of(row.folder))]
                if with_query
                else []
            ),
        ]
        for row in rows
    ]
    return table(caption, [*columns, *(["Query"] if with_query else [])], cells, kind="plain")


def _still_reading(unread: int) -> str:
    return f"Queries still being read: {unread:,}. Reload the page for the rest." if unread else ""


def _unless(done: bool, text: str) -> str:
    return "" if done else text
