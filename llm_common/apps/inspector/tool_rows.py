"""The tools of a store and its runs: what they returned, and what their definitions cost."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from llm_common.agents import FileContextPointerStore
from llm_common.apps.inspector.recorded_runs import ToolCost, ToolCosts
from llm_common.pointers import QuerySummary

_MAX_COUNTED_POINTERS: Final = 10_000  # about a second
_READ_QUERIES: Final = 200


@dataclass
class ToolRow:
    """The cost of a tool, and the number and size of its stored outputs."""

    name: str
    cost: ToolCost
    outputs: int = 0
    stored_bytes: int = 0

    @property
    def bytes(self) -> int:
        """Return the bytes of its results, by the traces or by the store, whichever has more."""
        return max(self.cost.bytes, self.stored_bytes)


def tool_rows(store: FileContextPointerStore, costs: ToolCosts) -> tuple[list[ToolRow], int]:
    """Return the tools, those that returned most first, and the number of counted outputs."""
    tools = {name: ToolRow(name, cost) for name, cost in costs.by_tool.items()}
    counted = _count_outputs(store, tools)
    # Sorts are stable, so equal tools stay in the order of their names.
    rows = sorted(tools.values(), key=lambda row: row.name)
    rows.sort(key=lambda row: (row.bytes, row.cost.offered_tokens), reverse=True)
    return rows, counted


def _count_outputs(store: FileContextPointerStore, tools: dict[str, ToolRow]) -> int:
    """Add the stored outputs of the most recently changed queries, and return their number."""
    counted = 0
    for query in _queries_by_change(store):
        if query.problem:
            continue
        limit = _MAX_COUNTED_POINTERS - counted
        page = store.newest(query_id=query.query_id, limit=limit)
        for pointer in page.pointers:
            row = tools.setdefault(pointer.tool_name, ToolRow(pointer.tool_name, ToolCost()))
            row.outputs += 1
            row.stored_bytes += pointer.result_bytes or 0
        counted += len(page.pointers)
        if counted >= _MAX_COUNTED_POINTERS:
            break
    return counted


def _queries_by_change(store: FileContextPointerStore) -> Iterator[QuerySummary]:
    """Yield the queries of the store, last changed first, and read few more than are used."""
    for offset in itertools.count(step=_READ_QUERIES):
        page = store.newest_queries(limit=_READ_QUERIES, offset=offset)
        yield from page.queries
        if offset + _READ_QUERIES >= page.total:
            return
