"""`llm-common`, the command line."""

import io
import logging
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack the characters that a file holds
    # An error on import is then shown with these streams.
    from llm_common.apps.cli.app import app  # noqa: PLC0415
    from llm_common.apps.cli.terminal import InertLogHandler  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, handlers=[InertLogHandler()])
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)  # says what our own error says, four times
    app()  # each command imports what it needs
