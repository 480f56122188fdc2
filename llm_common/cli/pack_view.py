"""A folder pack for people and for programs: a table of what was chosen, and one JSON document."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llm_common.cli.terminal import safe_text
from llm_common.context.bundle import ItemAccount
from llm_common.folders.folder_pack import FolderPack

__all__ = ["pack_as_json", "show_pack"]

_REASONS = {
    "mentioned": "named",
    "share": "worth its room",
    "spare": "room was left",
    "no_room": "no room was left",
    "below_cut_off": "too far from the question",
}


def pack_as_json(pack: FolderPack, *, explain: bool) -> str:
    """The pack as one JSON document, indented.

    Args:
        pack: What to print.
        explain: True adds the account of every file that was weighed, with the parts of its score.
    """
    document: dict[str, Any] = {
        "query": pack.request.query,
        "folders": [str(folder) for folder in pack.request.folders.values()],
        "intent": pack.intent,
        "budget_tokens": pack.request.budget_tokens,
        "tokens": pack.bundle.metadata.total_tokens,
        "counter": pack.counter,
        "searched": pack.searched,
        "read": pack.read,
        "left_out": dict(pack.left_out),
        "weighed": pack.weighed,
        "files": [
            {"path": item.id, "form": item.form, "tokens": item.tokens, "score": item.score, "why": item.reason}
            for item in pack.bundle.kept
        ],
        "notes": list(pack.notes),
        "seconds": dict(pack.seconds),
        "packed": pack.packed,
    }
    if explain:
        document["explain"] = pack.bundle.explain()
    return json.dumps(document, indent=2, ensure_ascii=False)


def show_pack(pack: FolderPack, console: Console, *, explain: bool) -> None:
    """Prints what was chosen and why; the packed text itself is not shown.

    Args:
        pack: What to show.
        console: Where to.
        explain: True adds the files that were weighed and not chosen, and the parts of the scores.
    """
    accounts = [*pack.bundle.kept, *(pack.bundle.dropped if explain else ())]
    console.print(_table(accounts, explain=explain))
    figures = pack.bundle.metadata
    console.print(
        f"{len(pack.bundle.kept)} files, {figures.total_tokens:,} of {figures.budget:,} tokens ({pack.counter})",
        style="bold",
        highlight=False,
    )
    others = ", ".join(f"{number:,} {reason}" for reason, number in sorted(pack.left_out.items()))
    console.print(
        f"{pack.searched:,} files searched, {pack.read:,} of them read anew, {pack.weighed} weighed"
        + (f"; left out: {others}" if others else ""),
        highlight=False,
    )
    console.print(", ".join(f"{name} {value:.2f} s" for name, value in pack.seconds.items()), style="dim")
    for note in pack.notes:
        console.print(safe_text(f"Note: {note}", style="yellow"))


def _table(accounts: list[ItemAccount], *, explain: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("File", overflow="fold")
    table.add_column("Form", no_wrap=True)
    table.add_column("Tokens", justify="right", no_wrap=True)
    table.add_column("Score", justify="right", no_wrap=True)
    table.add_column("Why")
    if explain:
        table.add_column("Parts")
    for account in accounts:
        style = "dim" if account.form == "left_out" else ""
        cells: list[str | Text] = [
            safe_text(account.id, style=style),
            Text(account.form.replace("_", " "), style=style),
            f"{account.tokens:,}",
            f"{account.score:.2f}",
            _REASONS.get(account.reason, account.reason),
        ]
        if explain:
            cells.append(" ".join(f"{name}={value:.2f}" for name, value in account.parts.items()))
        table.add_row(*cells)
    return table
