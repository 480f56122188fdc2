"""`llm-common`, the command line."""

import io
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack the characters that a file holds
    from llm_common.cli.app import app  # noqa: PLC0415 - an error on import is then shown with these streams

    app()  # each command imports what it needs
