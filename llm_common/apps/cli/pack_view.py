"""A folder pack for people and for programs: a table of what was chosen, and one JSON document."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llm_common.apps.cli.terminal import safe_text
from llm_common.folders import FolderPack

_REASONS = {
    "mentioned": "named",
    "share": "matches",
    "no_room": "no tokens were left",
    "below_cut_off": "scores too low",
    "limit_reached": "enough files",
}


def pack_document(pack: FolderPack, *, explain: bool) -> dict[str, object]:
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


def show_pack(pack: FolderPack, console: Console, *, explain: bool) -> None:
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


def why_nothing(pack: FolderPack) -> str:
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


def _table(pack: FolderPack, *, explain: bool) -> Table:
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
