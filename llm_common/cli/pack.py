"""`llm-common pack`: the parts of a folder that answer a question, within a budget of tokens."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["pack"]

_LEAST_BUDGET = 256

_Query = Annotated[str, typer.Argument(metavar="QUERY", help="Question or task.", show_default=False)]
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
_Budget = Annotated[
    int, typer.Option(metavar="TOKENS", min=_LEAST_BUDGET, max=10_000_000, help="Most tokens of the packed text.")
]
_Explain = Annotated[
    bool, typer.Option("--explain", help="Show the parts of each score, and what was weighed and not chosen.")
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
_Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", dir_okay=False, help="Write to a file, not to stdout.")
]
_Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", "-x", metavar="GLOB", help="Leave out such paths, as in a .gitignore; repeatable."),
]
_Hidden = Annotated[bool, typer.Option("--hidden", help="Search hidden files and folders too.")]
_Generated = Annotated[
    bool, typer.Option("--generated", help="Search generated files too: lock files, minified and compiled sources.")
]
_CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="FOLDER",
        file_okay=False,
        help="Where the index is kept.",
        show_default="llm-common in the user's cache folder",
    ),
]


def pack(
    query: _Query,
    paths: _Paths = None,
    *,
    budget: _Budget = 8_000,
    explain: _Explain = False,
    json: _Json = False,
    output: _Output = None,
    exclude: _Exclude = None,
    hidden: _Hidden = False,
    generated: _Generated = False,
    cache_dir: _CacheDir = None,
) -> None:
    """Pack the parts of a folder that answer a question, within a hard budget of tokens.

    The best files get room first: whole where they fit, else the passages that fit the question best, else an outline
    of definitions. The packed text goes to stdout, ready for a prompt; what was chosen and why goes to stderr. Nothing
    leaves this machine, and no model is asked.

    What git ignores is left out, and so are hidden, binary and generated files and those that usually hold secrets.
    An index on disk, readable by you alone, makes the next question fast.
    """
    # Index and ranking, which no other command needs.
    from llm_common.cli.pack_run import run_pack  # noqa: PLC0415
    from llm_common.folders.searched_folder import FileChoice  # noqa: PLC0415

    run_pack(
        query,
        paths or [Path()],
        budget_tokens=budget,
        choice=FileChoice(hidden=hidden, generated=generated, exclude=tuple(exclude or ())),
        cache_dir=cache_dir,
        output=output,
        explain=explain,
        json=json,
    )
