"""`llm-common`, the command line."""

import io
import logging
import sys

from llm_common.errors import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code; 2 without the extra `cli`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal may lack the characters that a file holds
            stream.reconfigure(errors="replace")
    try:
        # An error on import is then shown with these streams.
        from llm_common.apps.cli.app import app  # noqa: PLC0415
        from llm_common.apps.cli.terminal import InertLogHandler  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        if missing not in {"rich", "typer"}:
            raise
        sys.stderr.write(f"llm-common needs {missing}: {install_command('cli')}\n")
        sys.exit(2)

    logging.basicConfig(level=logging.WARNING, handlers=[InertLogHandler()])
    # says what our own error says, four times
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    app()  # each command imports what it needs
