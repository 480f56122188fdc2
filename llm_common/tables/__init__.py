"""Records inside results: finds them, sketches them for a question, and answers SQL about them.

`llm_common.agents.Session` has the methods for an application.
"""

from typing import TYPE_CHECKING

from llm_common._exports import lazy_exports

if TYPE_CHECKING:
    from llm_common.tables.finding import find_records
    from llm_common.tables.sketch import are_mostly_records
    from llm_common.tables.table import result_name
    from llm_common.tables.values import Cell, cell_text

__all__ = [
    "Cell",
    "are_mostly_records",
    "cell_text",
    "find_records",
    "result_name",
]

_MODULES = {
    "Cell": "llm_common.tables.values",
    "are_mostly_records": "llm_common.tables.sketch",
    "cell_text": "llm_common.tables.values",
    "find_records": "llm_common.tables.finding",
    "result_name": "llm_common.tables.table",
}

__getattr__, __dir__ = lazy_exports(__name__, _MODULES)
