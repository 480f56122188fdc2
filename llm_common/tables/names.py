"""The names by which SQL uses the tables of a result."""

import re
from collections.abc import Sequence
from typing import Final

from llm_common.tables.table import Table, distinct_names

_MAX_CHARS: Final = 40  # of the tool's name, and of the path
_DIGITS: Final = 6
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")


def result_name(tool_name: str, pointer_id: str) -> str:
    """Return the name of a result's largest table: its tool and the first digits of its id.

    SQL takes it without quotes: it has letters, digits and underscores.
    """
    tool = _plain(tool_name)
    if not tool or tool[0].isdigit():
        tool = f"t_{tool}".rstrip("_")
    return f"{tool}_{pointer_id[:_DIGITS]}"


def names_of_tables(name: str, tables: Sequence[Table]) -> list[str]:
    """Return the names of the tables of a result, such as `get_orders_3ac5f0_items`.

    Args:
        name: The name of the first table.
        tables: The tables, in the order of `find_records`.
    """
    names = [name]
    for table in tables[1:]:
        member = _plain(table.path.rpartition(".")[2]) or "records"
        names.append(f"{name}_{member}")
    return distinct_names(names[: len(tables)])


def _plain(text: str) -> str:
    return _OTHER.sub("_", text).strip("_")[:_MAX_CHARS].rstrip("_")
