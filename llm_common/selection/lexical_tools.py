"""`LexicalToolSelector`: chooses tool calls by full-text ranking, without a model."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

from llm_common._telemetry import record
from llm_common._threads import in_thread
from llm_common.core.two_attempts import SelectionStatus
from llm_common.errors import NoThreadError, ToolFailedError, UnserialisableError
from llm_common.plans import PlannedTask
from llm_common.selection.argument_filling import filled_call
from llm_common.selection.catalogue import (
    LATE,
    Catalogue,
    OffersTools,
    read_catalogue,
    tool_index,
)
from llm_common.selection.results import (
    ChoosesTools,
    ToolSelection,
    ToolSelectionConfig,
    check_question,
    checked_config,
    retrieval,
)
from llm_common.selection.tool_calls import DroppedCall, check_calls
from llm_common.tools.definitions import ToolDefinition
from llm_common.tools.read_only import only_reads

# Chosen on the tuning half of the sets whose requests may fit no tool, bfcl_select and
# metatool_select.
_MIN_SCORE: Final = 0.5
_TIE: Final = 0.05  # of the score; closer tools are told apart by chance
_CLAUSE_SEAM: Final = re.compile(r"(?<=[.!?;])\s+|\n+|,\s+|,?\s+(?:and|then)\s+", re.IGNORECASE)
_MAX_CLAUSES: Final = 8


class LexicalToolSelector(ChoosesTools):
    """Tool calls for a task by full-text ranking; reads arguments from the texts.

    Takes the best ranked tool for each sub-task; without sub-tasks for each request in the task,
    then for the query. A clause of the task is a request of its own if a tool fits it whose
    arguments the clause fills. A tool is called if

    - it scores at least .5 in a `ToolIndex`, and no other tool scores within 5% of it;
    - it only reads: it is marked (`Tool(read_only=True)`, MCP's `readOnlyHint`), or, unmarked, its
      name has a verb such as `get` or `search`, and neither it nor a parameter one such as `send`;
    - `fill_arguments` finds its required arguments in the texts, and they fit its schema.

    Deterministic; fails closed as `ToolSelector` does.

    Args:
        config: Only `max_calls` and the deadline of a whole selection are used; None reads the
            environment once, here.
        allow_writes: Also calls tools that may change something.

    Raises:
        ConfigError: An environment variable cannot be used.
        TypeError: `config` is no `ToolSelectionConfig`.
    """

    def __init__(
        self, config: ToolSelectionConfig | None = None, *, allow_writes: bool = False
    ) -> None:
        self.config = checked_config(config)
        self._allow_writes = allow_writes

    async def select_detailed(
        self,
        *,
        task: PlannedTask,
        tool_registry: OffersTools,
        query: str | None = None,
        context: dict[str, Any] | None = None,
    ) -> ToolSelection:
        """The calls to run for the task, and the dropped ones; `attempts` is empty.

        Args:
            task: What is to be done; each sub-task gets at most one call.
            tool_registry: Its `get_tools_schema()` must return definitions, as a list or as JSON.
            query: Chosen for if the task has no sub-tasks and fits no tool; else only searched for
                values.
            context: Known values by parameter name; they take precedence over the texts.

        Returns:
            A selection; a failure of the registry is its `status`, never raised.

        Raises:
            TypeError: `task` is no `PlannedTask`, or `query` no text.
        """
        check_question(task, query)
        offered: tuple[ToolDefinition, ...] = ()
        with retrieval("tools", max_selected=self.config.max_calls) as observed:
            try:
                async with asyncio.timeout(self.config.total_s):
                    catalogue = await read_catalogue(tool_registry)
                    if catalogue.empty:
                        selection = ToolSelection(
                            status="no_candidates", used="lexical", tools_total=0, tools_shown=0
                        )
                    else:
                        selection = await in_thread(
                            self._select, catalogue, task, query, context or {}
                        )
                        offered = catalogue.definitions
            except (ToolFailedError, UnserialisableError, NoThreadError) as exc:
                selection = ToolSelection(status="error", used="lexical", problem=exc.message)
            except TimeoutError:
                selection = ToolSelection(status="timeout", used="lexical", problem=LATE)
            observed.ends(selection)
            shown = [tool.name for tool in offered]
            record(
                "tools", selection=selection, offered=offered, shown=shown, task=task, query=query
            )
        return selection

    def _select(
        self, catalogue: Catalogue, task: PlannedTask, query: str | None, context: Mapping[str, Any]
    ) -> ToolSelection:
        if not catalogue.definitions:
            return ToolSelection(
                status="error",
                used="lexical",
                problem="the registry's text cannot be read as tools",
            )
        proposed: list[dict[str, Any]] = []
        dropped: list[DroppedCall] = []
        whole = [task.description, *([query] if query else [])]
        parts = [sub_task.description for sub_task in task.sub_tasks]
        for text in parts or whole:
            if proposed and not parts:
                break  # the query is only another wording of the task
            for request in [text] if parts else self._requests(catalogue, text):
                call = self._call(catalogue, request, [request, *whole], context)
                if isinstance(call, DroppedCall):
                    dropped.append(call)
                elif call is not None:
                    proposed.append(call)
        checked = check_calls(proposed, catalogue, max_calls=self.config.max_calls)
        status: SelectionStatus = "ok" if checked.calls else "invalid" if dropped else "empty"
        count = len(catalogue.definitions)
        problem = "no chosen tool can be called; `dropped` says why" if status == "invalid" else ""
        return ToolSelection(
            calls=checked.calls,
            status=status,
            used="lexical",
            dropped=(*dropped, *checked.dropped),
            tools_total=count,
            tools_shown=count,
            problem=problem,
        )

    def _requests(self, catalogue: Catalogue, text: str) -> list[str]:
        """The requests of a text: each clause that fills a call of its own, with the clauses after it that do not."""
        spans: list[tuple[int, int]] = []
        calls = 0
        for start, end in _clauses(text):
            clause = text[start:end]
            fills = isinstance(self._call(catalogue, clause, [clause], {}), dict)
            calls += fills
            if spans and not (fills and calls > 1):
                start, _ = spans.pop()  # noqa: PLW2901 - the clause goes on with the request before it
            spans.append((start, end))
        return [text[start:end] for start, end in spans]

    def _call(
        self, catalogue: Catalogue, request: str, texts: list[str], context: Mapping[str, Any]
    ) -> dict[str, Any] | DroppedCall | None:
        """The call of the tool that fits best, why it is none, or None if no tool fits."""
        best = tool_index(catalogue).rank(request, 2)
        if not best or best[0].score < _MIN_SCORE:
            return None
        tool = catalogue.definitions_by_name[best[0].name]
        if len(best) > 1 and best[1].score >= best[0].score * (1 - _TIE):
            return DroppedCall(tool.name, "tie")
        reads = only_reads(tool.name, tool.parameters) if tool.read_only is None else tool.read_only
        if not self._allow_writes and not reads:
            return DroppedCall(tool.name, "writes")
        return filled_call(tool, texts, context, reasoning=best[0].why)


def _clauses(text: str) -> list[tuple[int, int]]:
    """Where the clauses of a text start and end.

    The whole if there are too many, since that is prose.
    """
    seams = [*_CLAUSE_SEAM.finditer(text)]
    if len(seams) >= _MAX_CLAUSES:
        return [(0, len(text))]
    return [
        *zip(
            [0, *(seam.end() for seam in seams)],
            [*(seam.start() for seam in seams), len(text)],
            strict=True,
        )
    ]
