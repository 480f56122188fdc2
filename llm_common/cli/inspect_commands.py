"""`llm-common inspect`: pages over a store and its traces, in a browser of this machine."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from llm_common._env import POINTER_STORE_DIR, TRACE_DIR, read_path
from llm_common.errors import ConfigError, StoreError

# The command imports what only it needs when it runs.
# ruff: noqa: PLC0415

_INTERRUPTED = 130
_EXTRA = frozenset({"starlette", "uvicorn"})


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
        int, typer.Option(min=0, max=65_535, help="Where to listen on 127.0.0.1; 0 takes a free port.")
    ] = 0,
) -> None:
    """Look at stored outputs and recorded runs in a browser; changes nothing.

    Prints an address with a token on stderr and serves until Ctrl-C. Only this machine can reach it, and only who
    opens that address.
    """
    try:
        from llm_common.inspector.application import Inspector, serve

        inspector = Inspector(
            store or read_path(POINTER_STORE_DIR) or POINTER_STORE_DIR.default, traces or read_path(TRACE_DIR)
        )
        serve(inspector, token=secrets.token_urlsafe(24), port=port, tell=_tell)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise typer.BadParameter(f"inspect needs {exc.name}: run pip install 'llm-common[inspect]'") from exc
    except (ConfigError, StoreError) as exc:
        raise typer.BadParameter(exc.message) from exc
    except KeyboardInterrupt:
        raise typer.Exit(_INTERRUPTED) from None


def _tell(address: str) -> None:
    typer.echo(f"Open {address}\nCtrl-C ends it.", err=True)
