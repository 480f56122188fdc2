"""`llm-common inspect`: pages over a store and its traces, in a browser of this machine."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from llm_common._env import POINTER_STORE_DIR, TRACE_DIR, read_path
from llm_common.apps.cli.terminal import say
from llm_common.errors import missing_extra

# The command imports what only it needs when it runs.
# ruff: noqa: PLC0415

_EXTRA = frozenset({"jinja2", "starlette", "uvicorn"})


def inspect(
    *,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            exists=True,
            help="The store.",
            show_default="LLM_COMMON_POINTER_STORE_DIR, else .llm-common/context",
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            exists=True,
            help="Traces of runs.",
            show_default="LLM_COMMON_TRACE_DIR",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(min=0, max=65_535, help="Where to listen on 127.0.0.1; 0 takes a free port."),
    ] = 0,
) -> None:
    """Look at stored outputs and recorded runs in a browser; changes nothing.

    Prints an address with a token on stderr and serves until Ctrl-C. Only this machine can reach
    it, and only who opens that address.
    """
    try:
        from llm_common.apps.inspector.application import Inspector, serve
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise missing_extra(f"inspect needs {exc.name}", "inspect") from exc
    place = store or read_path(POINTER_STORE_DIR) or Path(POINTER_STORE_DIR.default)
    if not place.expanduser().is_dir():
        say(f"There is no store in {place} yet; --store names another.")

    def tell(address: str) -> None:
        say(f"Open {address}")
        say("Ctrl-C ends it.")

    inspector = Inspector(place, traces or read_path(TRACE_DIR))
    serve(inspector, token=secrets.token_urlsafe(24), port=port, tell=tell)
