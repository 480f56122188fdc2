"""`llm-common`, the command line; this entry point works without the extra `cli`."""

import io
import sys

__all__ = ["main"]

_EXTRAS = frozenset({"click", "rich", "typer"})


def main() -> None:
    """Runs the command line and exits with its code; 2 when its extras are not installed."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack the characters that a file holds
    try:
        from llm_common.cli.app import app  # noqa: PLC0415 - needs the extras

        app()  # each command imports what it needs
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        sys.stderr.write(f"llm-common needs {missing}: run pip install 'llm-common[cli]'\n")
        sys.exit(2)
