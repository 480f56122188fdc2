"""`llm-common`, the command line."""

import io
import logging
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal may lack the characters that a file holds
            stream.reconfigure(errors="replace")
    # An error on import is then shown with these streams.
    from llm_common.apps.cli.app import app  # noqa: PLC0415
    from llm_common.apps.cli.terminal import InertLogHandler  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, handlers=[InertLogHandler()])
    # says what our own error says, four times
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    app()  # each command imports what it needs
