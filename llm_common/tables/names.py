"""The names by which SQL uses the tables of a result."""

import re
from collections.abc import Container, Sequence
from typing import Final

from llm_common.tables.table import Table

_MAX_CHARS: Final = 40
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")


def table_name(first: str, second: str, taken: Container[str] = ()) -> str:
    """Return a name that SQL takes without quotes: two parts in letters, digits and underscores.

    Args:
        first: The name of a tool or of a result's table.
        second: What tells the table from others, such as the digits of an id, or its path.
        taken: Names that are in use. A number is added to one of these.
    """
    start = _plain(first)[:_MAX_CHARS].strip("_")
    if not start or start[0].isdigit():
        start = f"t_{start}"
    name = f"{start}_{_plain(second.rpartition('.')[2]) or 'records'}"
    unused, copies = name, 1
    while unused in taken:
        copies += 1
        unused = f"{name}_{copies}"
    return unused


def _plain(text: str) -> str:
    return _OTHER.sub("_", text).strip("_")


def result_name(tool_name: str, pointer_id: str) -> str:
    """Return the name of a result's largest table: its tool and the first digits of its id."""
    return table_name(tool_name, pointer_id[:6])


def names_of_tables(name: str, tables: Sequence[Table]) -> list[str]:
    """Return the names of the tables of a result, such as `get_orders_3ac5f0_items`.

    Args:
        name: The name of the first table.
        tables: The tables, in the order of `find_records`.
    """
    names = [name]
    for table in tables[1:]:
        names.append(table_name(name, table.path, names))
    return names[: len(tables)]
