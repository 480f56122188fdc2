"""Run commands in this process."""

import hashlib
import json
import os
import pty
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from llm_common.apps.cli.app import app
from tests.folders.tree import PROGRAM

DOCS = Path(__file__).parents[3] / "docs"
# Scripts rely on the names at the top of each document.
FIELDS = {
    "context list": "store total queries | store query_id total pointers",
    "context query": "columns rows is_cut",
    "context show": "pointer excerpt total_chars",
    "context read": "pointer_id text form start total_chars cursor",
    "context search": "words looked_in matches total searched unreadable unreadable_queries",
    "context verify": "store clean queries pointers findings",
    "context gc": "store dry_run report",
    "context erase": "store dry_run queries",
    "memory list": "total sessions | total events",
    "memory search": "words hits",
    "memory forget": "dry_run events",
    "tools list": "total tokens counter tools",
    "tools rank": "request total tools",
    "tools check": "total tokens errors problems",
    "doctor": "version python variables store endpoint problems",
    "demo": "budget_tokens counter folder questions store traces",
    "audit": "counter other_files sessions",
    "gateway doctor": "servers idle_rules tokens_of_all tokens_listed searched tokens_otherwise",
}


def files_of(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the time of change and the hash of every file."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    }


def on_terminal(stream: str, *arguments: str | Path) -> tuple[str, str]:
    """Run a command whose stdout or stderr is a terminal. Return what both have got."""
    main, side = pty.openpty()
    streams: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE) | {stream: side}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    result = subprocess.run(command, check=True, env={**os.environ, "TERM": "xterm"}, **streams)
    os.close(side)
    output = b"".join(iter(partial(_read, main), b""))
    os.close(main)
    return output.decode(), (result.stdout or result.stderr or b"").decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other side is closed
        return b""


def run(*arguments: str | Path, code: int = 0, typed: str | None = None) -> Result:
    """Run a command that must end with this code and without a traceback."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input=typed, env={"COLUMNS": "200"})
    assert result.exit_code == code, (result.output, result.exception)
    assert "Traceback" not in result.output
    return result


def run_json(command: str, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """Return the document that a command prints with `--json`."""
    document: dict[str, Any] = json.loads(
        run(*command.split(), *arguments, "--json", code=code).stdout
    )
    assert set(document) in [set(names.split()) for names in FIELDS[command].split("|")]
    return document
