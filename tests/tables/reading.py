"""How the tests of a folder read one table."""

from typing import Any

from llm_common.tables.finding import find_records
from llm_common.tables.sql.database import NamedTable, RecordDatabase
from llm_common.tables.table import Table


def only_table(result: Any) -> Table:
    """Return the table of a result that has one."""
    [table] = find_records(result).tables
    return table


def repeated(lines: str, count: int = 9) -> str:
    """Return lines again and again, each time with another number."""
    return "".join(lines.format(number) for number in range(count))


def database_of(**results: Any) -> RecordDatabase:
    """Return a database with the largest table of each result, under its name."""
    database = RecordDatabase()
    for name, result in results.items():
        database.add([NamedTable(name, find_records(result).tables[0])])
    return database
