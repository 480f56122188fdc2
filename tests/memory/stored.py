"""Read and change the file of a memory behind its back."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any


def run_sql(path: Path, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements on a file, and return the rows of the last one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        rows = [connection.execute(statement).fetchall() for statement in statements]
    return rows[-1]
