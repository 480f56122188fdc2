"""`llm-common pack`: packs the parts of a folder that answer a question."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from llm_common.apps.cli.terminal import (
    AsJson,
    ExitCode,
    end,
    print_json,
    print_text,
    rows_table,
    safe_text,
    show_progress,
    stderr_console,
)
from llm_common.text import counted

if TYPE_CHECKING:
    from llm_common.folders import FolderPack

# The command imports what only it needs when it runs, so `--help` answers quickly.
# ruff: noqa: PLC0415

# Words for the reasons of a bundle's account.
_REASONS = {
    "mentioned": "named",
    "share": "matches",
    "no_room": "no tokens were left",
    "poor_match": "matches far less than the best",
    "limit_reached": "enough files",
}
# Why nothing was packed, from the reason that is easiest to remedy: the files do match.
_NOTHING = {
    "no_room": "the budget is too small for a passage. Use a larger --budget",
    "empty": "the matching files are empty. Name other paths, or use words of other files",
}


def pack(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="Question or task.", show_default=False)
    ],
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            exists=True,
            readable=True,
            help="Folders to search. A file named here is packed first, whatever its kind.",
            show_default="this folder",
        ),
    ] = None,
    *,
    budget: Annotated[
        int,
        typer.Option(
            metavar="TOKENS",
            max=10_000_000,
            help="Maximum tokens of the packed text, at least 256.",
        ),
    ] = 8_000,
    max_files: Annotated[
        int | None,
        typer.Option(
            "--max-files",
            metavar="NUMBER",
            min=1,
            help="Maximum number of files to show.",
            show_default="as many as fit",
        ),
    ] = None,
    line_numbers: Annotated[
        bool,
        typer.Option(
            "--line-numbers",
            help="Begin each line with its number in the file, so that a model can cite it.",
        ),
    ] = False,
    tree: Annotated[
        bool,
        typer.Option(
            "--tree",
            help="Begin with a tree of the searched folders and the packed files, in at most a "
            "tenth of the budget.",
        ),
    ] = False,
    question: Annotated[
        bool,
        typer.Option("--question", help="End with the question, ready to paste into a chat."),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the parts of each score, and the files left out."),
    ] = False,
    json: AsJson = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", dir_okay=False, help="Write to a file, not to stdout."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude",
            "-x",
            metavar="GLOB",
            help="Leave out paths that match, as in .gitignore. Repeatable.",
        ),
    ] = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Search hidden files and folders too.")
    ] = False,
    generated: Annotated[
        bool,
        typer.Option(
            "--generated",
            help="Search generated files too: lock files, minified and compiled sources.",
        ),
    ] = False,
    cache_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="Folder for the index.",
            show_default="llm-common in the user's cache folder",
        ),
    ] = None,
) -> None:
    """Pack the parts of a folder that answer a question, within a hard budget of tokens.

    Files with a higher score get a larger share of the budget and show their best functions first.
    A larger budget shows the same and more. The packed text goes to stdout, ready for a prompt. A
    table goes to stderr, with the words of the question that each file contains, rarest first.
    Nothing leaves this machine, and no model is called. If no file matches, the command packs
    nothing and ends with 3.

    Files that git ignores are left out, and so are hidden, binary and generated files and files
    that usually hold secrets. In all other files, keys and tokens of a known format are redacted.

    An index on disk, which only you can read, makes the next question fast.
    """
    from llm_common.folders import pack_folder

    try:
        with show_progress("Listing files", silent=json) as progress:
            packed = pack_folder(
                query,
                *paths or [],
                budget_tokens=budget,
                hidden=hidden,
                generated=generated,
                max_files=max_files,
                line_numbers=line_numbers,
                tree=tree,
                question=question,
                # the output of the last run would match the same question
                exclude=[*(exclude or []), *([output] if output else [])],
                cache_dir=cache_dir,
                progress=progress,
            )
    except KeyboardInterrupt:
        end("Interrupted. Files read so far stay in the index.", ExitCode.INTERRUPTED)
    if json:
        print_json(
            {
                "query": packed.query,
                "folders": packed.folders,
                "budget_tokens": packed.budget_tokens,
                "tokens": packed.tokens,
                "counter": packed.counter,
                "searched": packed.searched,
                "read": packed.read,
                "left_out": packed.left_out,
                "weighed": len(packed.files) + len(packed.dropped),
                "files": packed.files,
                "notes": packed.notes,
                "seconds": packed.seconds,
                "packed": packed.text,
                "explain": packed.bundle.explain() if explain else None,
            },
            output,
        )
    elif packed.text:  # a file keeps its text if there is nothing to write
        print_text(packed.text, output)
    if not json:
        _show(packed, stderr_console(), explain=explain)
    if not packed.text:
        end(f"Nothing was packed: {_why_nothing(packed)}.", ExitCode.NOTHING)


def _show(pack: "FolderPack", console: Console, *, explain: bool) -> None:
    """Print the chosen files with reasons, then counts, times and notes."""
    files = [*pack.files, *pack.dropped] if explain else pack.files
    columns: dict[str, type] = {"File": str, "Form": str, "Tokens": int, "Score": int, "Why": str}
    if explain:
        columns["Parts"] = str
    rows = []
    for file in files:
        style = "dim" if file.form == "left_out" else ""
        why = _REASONS.get(file.reason, file.reason)
        if file.reason == "share" and file.words:
            why = ", ".join(file.words)  # those that it shares with the question
        cells: list[str | Text] = [
            safe_text(file.path, style=style),
            Text(file.form.replace("_", " "), style=style),
            f"{file.tokens:,}",
            f"{file.score:.2f}",
            safe_text(why),
        ]
        if explain:
            cells.append(" ".join(f"{name}={value:z.2f}" for name, value in file.parts.items()))
        rows.append(cells)
    console.print(rows_table(columns, rows))
    tokens = f"{pack.tokens:,} of {pack.bundle.metadata.budget:,} tokens ({pack.counter})"
    console.print(
        f"{counted(len(pack.files), 'file')}, {tokens}",
        style="bold",
        highlight=False,
        markup=False,  # the name of an extra in brackets is no markup
    )
    weighed = len(pack.files) + len(pack.dropped)
    summary = f"{counted(pack.searched, 'file')} searched, {pack.read:,} new or changed, "
    summary += f"{weighed} weighed"
    if pack.left_out:
        counts = [f"{count:,} {reason}" for reason, count in sorted(pack.left_out.items())]
        summary += f". Left out: {', '.join(counts)}"
    console.print(summary, highlight=False)
    times = [f"{step} {seconds:.2f} s" for step, seconds in pack.seconds.items()]
    console.print(", ".join(times), style="dim")
    for note in pack.notes:
        console.print(safe_text(f"Note: {note}", style="yellow"))


def _why_nothing(pack: "FolderPack") -> str:
    """Return why no file was packed, and the way out."""
    if not pack.searched:
        return "no file was left to search. Name other paths or options"
    reasons = {file.reason for file in pack.dropped}
    for reason, sentence in _NOTHING.items():
        if reason in reasons:
            return sentence
    return (
        f"none of {pack.searched:,} files has a word of the question. "
        "Use words that occur in the files"
    )
