"""`LexicalToolSelector`: chooses tool calls by full-text ranking, without a model."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llm_common._threads import in_thread
from llm_common.core.two_attempts import SelectionStatus
from llm_common.errors import ToolFailedError
from llm_common.selection.argument_filling import filled_call
from llm_common.selection.catalogue import Catalogue, tool_index
from llm_common.selection.results import DroppedCall, ToolSelection, ToolSelectionConfig
from llm_common.selection.tool_calls import check_calls
from llm_common.selection.tools import ChoosesTools, ToolRequest
from llm_common.tools.definitions import only_reads

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
    - each of its required arguments has one possible value (see `fill_arguments`).

    Deterministic; fails closed as `ToolSelector` does.

    Args:
        config: Only `max_calls` and the deadline of a whole selection are used; None reads the
            environment once, here.
        allow_writes: Also calls tools that may change something.

    Raises:
        ConfigError: An environment variable cannot be used.
        TypeError: `config` is no `ToolSelectionConfig`.
    """

    used = "lexical"

    def __init__(
        self, config: ToolSelectionConfig | None = None, *, allow_writes: bool = False
    ) -> None:
        super().__init__(config)
        self._allow_writes = allow_writes

    async def choose(
        self, catalogue: Catalogue, request: ToolRequest, *, ends_at: float
    ) -> tuple[ToolSelection, Sequence[str]]:
        """Return the calls that the ranking and the texts admit. See `ChoosesTools.choose`."""
        if not catalogue.definitions:
            raise ToolFailedError(
                "the registry's text cannot be read as tools; pass a registry of Tool objects",
                tool="the tool registry",
            )
        async with asyncio.timeout_at(ends_at):
            selection = await in_thread(self._matches, catalogue, request)
        return selection, catalogue.names

    def _matches(self, catalogue: Catalogue, request: ToolRequest) -> ToolSelection:
        proposed: list[dict[str, Any]] = []
        dropped: list[DroppedCall] = []
        context = request.context or {}
        for text in request.sub_tasks or request.whole:
            if proposed and not request.sub_tasks:
                break  # the query is only another wording of the task
            requests = [text]
            if not request.sub_tasks:
                requests = self._requests(catalogue, text)
            for part in requests:
                call = self._call(catalogue, part, [part, *request.whole], context)
                if isinstance(call, DroppedCall):
                    dropped.append(call)
                elif call is not None:
                    proposed.append(call)
        checked = check_calls(proposed, catalogue, max_calls=self.config.max_calls)
        status: SelectionStatus = "empty"
        problem = ""
        if checked.calls:
            status = "ok"
        elif dropped:
            status = "invalid"
            problem = "no chosen tool can be called; `dropped` says why"
        return ToolSelection(
            calls=checked.calls,
            status=status,
            used="lexical",
            dropped=(*dropped, *checked.dropped),
            tools_total=len(catalogue.definitions),
            tools_shown=len(catalogue.definitions),
            problem=problem,
        )

    def _requests(self, catalogue: Catalogue, text: str) -> list[str]:
        """Return the requests of a text.

        Each is a clause that fills a call, with the clauses after it that do not.
        """
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
        reads = tool.read_only
        if reads is None:
            reads = only_reads(tool.name, tool.parameters)
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
    clauses: list[tuple[int, int]] = []
    start = 0
    for seam in seams:
        clauses.append((start, seam.start()))
        start = seam.end()
    return [*clauses, (start, len(text))]
