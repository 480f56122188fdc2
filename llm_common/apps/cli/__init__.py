"""The command line `llm-common`."""

import io
import logging
import sys

from llm_common.runtime import install_command

__all__ = ["main"]


def main() -> None:
    """Run the command line.

    Raises:
        SystemExit: Always, with the code of the command. It is 2 without the extra `cli`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An ASCII terminal cannot encode every stored character. It shows "?" for those.
            stream.reconfigure(errors="replace")
    try:
        # Imported after the streams are set up, so that an import error can be printed.
        from llm_common.apps.cli.app import app  # noqa: PLC0415
        from llm_common.apps.cli.terminal import InertLogHandler  # noqa: PLC0415
    except ModuleNotFoundError as exc:
        missing = (exc.name or "").partition(".")[0]
        # Any other missing module is a bug, which its traceback shows.
        if missing not in {"rich", "typer"}:
            raise
        sys.stderr.write(f"llm-common needs {missing}: {install_command('cli')}\n")
        sys.exit(2)  # `ExitCode.USAGE`, whose module needs typer

    logging.basicConfig(level=logging.WARNING, handlers=[InertLogHandler()])
    # The pool logs a failed connection four times before our own error reports it.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    app()
