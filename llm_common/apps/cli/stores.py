"""Opens the store that a command names, and finds what the user means in it.

A query is named by its id or by its question, and a pointer by its id or by the first digits of it.
"""

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llm_common.apps.cli.terminal import ExitCode, end, listed
from llm_common.errors import InvalidIdError

if TYPE_CHECKING:
    from llm_common.agents import ContextPointerStore

# A command imports what only it needs when it runs, so `--help` and completion answer quickly.
# ruff: noqa: PLC0415

_POINTER_ID = re.compile(r"[0-9a-f]{12,16}")  # a repeat that was kept has four more digits
_POINTER_PREFIX = re.compile(r"[0-9a-f]{4,11}")
_MAX_QUOTED_CHARS = 100
WAY_TO_A_STORE = "Name its folder with --store."

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FOLDER",
        help="The store: a folder, or an address such as s3://bucket/prefix.",
        show_default="LLM_COMMON_POINTER_STORE_DIR, else .llm-common/context",
    ),
]


def check_pointer_id(value: str) -> str:
    """Return the id of a pointer, or the first four digits of it or more.

    Raises:
        typer.BadParameter: If it is neither.
    """
    if not (_POINTER_ID.fullmatch(value) or _POINTER_PREFIX.fullmatch(value)):
        raise typer.BadParameter(
            f"{value[:40]!r} is not a pointer id. Use 12 to 16 lower-case hex digits, or the "
            "first 4 or more of them"
        )
    return value


def check_whole_pointer_id(value: str) -> str:
    """Return the whole id of a pointer.

    Raises:
        typer.BadParameter: If it is not one.
    """
    if not _POINTER_ID.fullmatch(value):
        raise typer.BadParameter(
            f"{value[:40]!r} is not a pointer id. Use 12 to 16 lower-case hex digits"
        )
    return value


Query = Annotated[
    str,
    typer.Argument(metavar="QUERY", help="A query: its id or its question."),
]
Pointer = Annotated[
    str,
    typer.Argument(
        metavar="POINTER",
        help="A pointer of the query: its id, or the first 4 digits of it or more.",
        callback=check_pointer_id,
    ),
]


def open_store(store: str | None, *, reading: bool) -> "tuple[ContextPointerStore, str]":
    """Return the store and its location. Only reading is allowed in another user's store.

    Raises:
        ConfigError: If it cannot be opened.
        typer.Exit: If there is none.
    """
    if store and "://" in store:
        from llm_common.agents import ObjectContextPointerStore

        return ObjectContextPointerStore.from_url(store), store
    from llm_common.agents import FileContextPointerStore

    # A store of another user can be read, but not changed.
    files = FileContextPointerStore(
        Path(store) if store else None, allow_hard_links=reading, allow_unsafe_dir=reading
    )
    # A misspelled folder would otherwise look like an empty store.
    if not files.base_dir.is_dir():
        end(f"There is no store at {files.base_dir}. {WAY_TO_A_STORE}", ExitCode.NOTHING)
    return files, str(files.base_dir)


def find_query_id(store: "ContextPointerStore", text: str) -> str | None:
    """Return the stored query that a text names by its id or its question, or None.

    Raises:
        typer.BadParameter: If several sessions asked the question.
        StoreError: If the store cannot be read.
    """
    from llm_common.agents import ToolContextManager
    from llm_common.pointers import QueryFiles
    from llm_common.storage import check_query_id, query_id_of

    with suppress(InvalidIdError):
        if not QueryFiles.of(store.records.blobs, check_query_id(text)).is_empty:
            return text
    hashed = ToolContextManager.hash_query(text)
    query_ids = []
    for folder in store.records.blobs.folders():
        query_id = query_id_of(folder)
        # A run of a named session has the session's id before the hash.
        if query_id == hashed or query_id.endswith(f"/{hashed}"):
            query_ids.append(query_id)
    if len(query_ids) > 1:
        raise typer.BadParameter(
            f"{len(query_ids)} queries have this question: {listed(sorted(query_ids))}. Use an id"
        )
    return query_ids[0] if query_ids else None


def no_query(text: str) -> str:
    """Return the sentence about a query that is not stored."""
    return f"There is no query {text[:_MAX_QUOTED_CHARS]!r} in the store. See context list."


def query_id_for(store: "ContextPointerStore", text: str) -> str:
    """Return the stored query that a text names by its id or its question.

    Raises:
        typer.BadParameter: If several sessions asked the question.
        typer.Exit: If none is stored.
        StoreError: If the store cannot be read.
    """
    query_id = find_query_id(store, text)
    if query_id is None:
        end(no_query(text), ExitCode.NOTHING)
    return query_id


def pointer_id_for(store: "ContextPointerStore", query_id: str, text: str) -> str:
    """Return the id of the query's only pointer that begins with a text.

    Raises:
        typer.BadParameter: If several do.
        typer.Exit: If none does.
        StoreError: If the store cannot be read.
    """
    from llm_common.pointers import QueryFiles

    if _POINTER_ID.fullmatch(text):
        return text
    stored = QueryFiles.of(store.records.blobs, query_id).by_pointer
    pointer_ids = sorted(pointer_id for pointer_id in stored if pointer_id.startswith(text))
    if not pointer_ids:
        end(f"No pointer of the query begins with {text}. See context list.", ExitCode.NOTHING)
    if len(pointer_ids) > 1:
        raise typer.BadParameter(
            f"{len(pointer_ids)} pointers begin with {text}: {listed(pointer_ids)}. Use more digits"
        )
    return pointer_ids[0]
