"""Records inside results: finds them, sketches them for a question, and answers SQL about them.

`llm_common.agents.Session` has the methods for an application.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.tables.finding import are_mostly_records, find_records
    from llm_common.tables.table import Table, result_name
    from llm_common.tables.values import IN_ROW, Cell, are_mixed, shown_cell

__all__ = [
    "IN_ROW",
    "Cell",
    "Table",
    "are_mixed",
    "are_mostly_records",
    "find_records",
    "result_name",
    "shown_cell",
]

_MODULES = {
    "Cell": "llm_common.tables.values",
    "IN_ROW": "llm_common.tables.values",
    "Table": "llm_common.tables.table",
    "are_mixed": "llm_common.tables.values",
    "are_mostly_records": "llm_common.tables.finding",
    "find_records": "llm_common.tables.finding",
    "result_name": "llm_common.tables.table",
    "shown_cell": "llm_common.tables.values",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
