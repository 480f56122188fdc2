"""`llm-common pack`: packs the parts of a folder that answer a question."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    end,
    print_json,
    print_text,
    safe_text,
    show_progress,
    stderr_console,
)

if TYPE_CHECKING:
    from llm_common.folders import FolderPack

# The command imports what only it needs when it runs.
# ruff: noqa: PLC0415

_REASONS = {
    "mentioned": "named",
    "share": "matches",
    "no_room": "no tokens were left",
    "below_cut_off": "scores too low",
    "limit_reached": "enough files",
}

_Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[PATH]...",
        exists=True,
        readable=True,
        help="Folders to search; files among them are packed first, whatever their kind.",
        show_default="this folder",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", dir_okay=False, help="Write to a file, not to stdout."
    ),
]
_Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        "-x",
        metavar="GLOB",
        help="Leave out such paths, as in a .gitignore; repeatable.",
    ),
]
_Generated = Annotated[
    bool,
    typer.Option(
        "--generated", help="Search generated files too: lock files, minified and compiled sources."
    ),
]
_CacheDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        file_okay=False,
        help="Where the index is kept.",
        show_default="llm-common in the user's cache folder",
    ),
]
_MaxFiles = Annotated[
    int | None,
    typer.Option(
        "--max-files",
        metavar="NUMBER",
        min=1,
        help="Most files to show.",
        show_default="as many as fit",
    ),
]
_MinScore = Annotated[
    float,
    typer.Option(
        "--min-score",
        metavar="SCORE",
        help="Leave out files that score less; the best match by words is 1.",
    ),
]


def pack(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Question or task.", show_default=False)
    ],
    paths: _Paths = None,
    *,
    budget: Annotated[
        int,
        typer.Option(
            metavar="TOKENS", max=10_000_000, help="Most tokens of the packed text, at least 256."
        ),
    ] = 8_000,
    max_files: _MaxFiles = None,
    min_score: _MinScore = 0.0,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Show the parts of each score, and what was weighed and not chosen."
        ),
    ] = False,
    json: AsJson = False,
    output: _Output = None,
    exclude: _Exclude = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Search hidden files and folders too.")
    ] = False,
    generated: _Generated = False,
    cache_dir: _CacheDir = None,
) -> None:
    """Pack the parts of a folder that answer a question, within a hard budget of tokens.

    The files share the budget in proportion to their lead, and show the functions that match best
    first. A larger budget shows the same and more. The packed text goes to stdout, ready for a
    prompt; what was chosen and why goes to stderr. Nothing leaves this machine, and no model is
    asked. Where no file matches, nothing is packed and the command ends with 3.

    What git ignores is left out, and so are hidden, binary and generated files and those that
    usually hold secrets. Keys and tokens that their shape gives away are redacted in the rest.

    An index on disk, readable by you alone, makes the next question fast.
    """
    from llm_common.folders import pack_folder

    with _kept_index(), show_progress("Listing files", silent=json) as progress:
        packed = pack_folder(
            query,
            *paths or [],
            budget_tokens=budget,
            hidden=hidden,
            generated=generated,
            max_files=max_files,
            min_score=min_score,
            # it may hold the last answer
            exclude=[*(exclude or []), *([output] if output else [])],
            cache_dir=cache_dir,
            progress=progress,
        )
    if json:
        print_json(pack_document(packed, explain=explain), output)
    else:
        print_text(packed.text, output)
        show_pack(packed, stderr_console(), explain=explain)
    if not packed.text:
        end(f"Nothing was packed: {why_nothing(packed)}.", ExitCode.NOTHING)


@contextmanager
def _kept_index() -> Iterator[None]:
    """Says on Ctrl-C that the work so far is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        end("Interrupted; what was read so far is kept in the index.", ExitCode.INTERRUPTED)


def pack_document(pack: "FolderPack", *, explain: bool) -> dict[str, object]:
    """The pack as the document of the command.

    Args:
        pack: What to print.
        explain: True adds the account of every file that was weighed, with the parts of its score.
    """
    return {
        "query": pack.query,
        "folders": pack.folders,
        "intent": pack.intent,
        "budget_tokens": pack.budget_tokens,
        "tokens": pack.tokens,
        "counter": pack.counter,
        "searched": pack.searched,
        "read": pack.read,
        "left_out": pack.left_out,
        "weighed": len(pack.files) + len(pack.dropped),
        "files": pack.files,
        "notes": pack.notes,
        "seconds": pack.seconds,
        "packed": pack.text,
        "explain": pack.bundle.explain() if explain else None,
    }


def show_pack(pack: "FolderPack", console: Console, *, explain: bool) -> None:
    """Prints what was chosen and why; does not print the packed text.

    Args:
        pack: What to show.
        console: Where to.
        explain: True adds the files that were weighed and not chosen, and the parts of the scores.
    """
    console.print(_table(pack, explain=explain))
    size = f"{pack.tokens:,} of {pack.bundle.metadata.budget:,} tokens ({pack.counter})"
    console.print(
        f"{len(pack.files)} files, {size}",
        style="bold",
        highlight=False,
        markup=False,  # the name of an extra stands in brackets
    )
    others = ", ".join(f"{number:,} {reason}" for reason, number in sorted(pack.left_out.items()))
    weighed = len(pack.files) + len(pack.dropped)
    console.print(
        f"{pack.searched:,} files searched, {pack.read:,} of them read anew, {weighed} weighed"
        + (f"; left out: {others}" if others else ""),
        highlight=False,
    )
    console.print(
        ", ".join(f"{name} {value:.2f} s" for name, value in pack.seconds.items()), style="dim"
    )
    for note in pack.notes:
        console.print(safe_text(f"Note: {note}", style="yellow"))


def why_nothing(pack: "FolderPack") -> str:
    """Why nothing was packed, and the way out, in one sentence."""
    if not pack.searched:
        return "no file was left to search; name other paths or options"
    reasons = {file.reason for file in pack.dropped}
    if "no_room" in reasons:
        return "the budget has no room for a passage; give a larger --budget"
    if "empty" in reasons:
        return (
            "the files that match are empty; name other paths, or ask in words that other files use"
        )
    if "below_cut_off" in reasons:
        best = f"{pack.dropped[0].score:.2f}"
        return f"no file scores that much, the best {best}; give a lower --min-score"
    none = f"none of {pack.searched:,} files has a word of the question"
    return f"{none}; ask in words that the files use"


def _table(pack: "FolderPack", *, explain: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("File", overflow="fold")
    table.add_column("Form", no_wrap=True)
    table.add_column("Tokens", justify="right", no_wrap=True)
    table.add_column("Score", justify="right", no_wrap=True)
    table.add_column("Why")
    if explain:
        table.add_column("Parts")
    for file in (*pack.files, *(pack.dropped if explain else ())):
        style = "dim" if file.form == "left_out" else ""
        cells: list[str | Text] = [
            safe_text(file.path, style=style),
            Text(file.form.replace("_", " "), style=style),
            f"{file.tokens:,}",
            f"{file.score:.2f}",
            _REASONS.get(file.reason, file.reason),
        ]
        if explain:
            cells.append(" ".join(f"{name}={value:.2f}" for name, value in file.parts.items()))
        table.add_row(*cells)
    return table
