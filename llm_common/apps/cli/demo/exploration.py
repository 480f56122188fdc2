"""`explore`: a plan run on a folder, its outputs chosen and packed, with a record of all of it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from llm_common.agents.context_pointers import (
    ContextPointer,
    ContextRelevanceSelector,
    LexicalRelevanceSelector,
    RelevanceSelection,
    RenderedContexts,
    render_selected_contexts,
)
from llm_common.agents.executor import AgenticExecutor
from llm_common.agents.session import ToolContextManager
from llm_common.apps.cli.demo.demo_plan import default_question, plan_for
from llm_common.apps.cli.demo.workspace import Workspace, WorkspaceTools
from llm_common.apps.cli.documents import Document
from llm_common.core.http.openai_compatible import OpenAICompatibleClient
from llm_common.core.http.providers import config_from_env
from llm_common.core.models import LLMConfig
from llm_common.folders import ProgressCallback
from llm_common.plans import ExecutionPlan
from llm_common.selection.lexical_tools import LexicalToolSelector
from llm_common.selection.results import SelectsTools, ToolSelectionConfig
from llm_common.selection.tools import ToolSelector

_CHARS_PER_OUTPUT = 2_000  # what an output should get; more outputs would show little of each


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One tool call of the run: its output's pointer, or its error."""

    task: int
    tool: str
    args: dict[str, Any]
    pointer_id: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class PointerRecord:
    """One stored output: whether it was kept, why, and how much of it the packed context shows."""

    pointer_id: str
    tool: str
    summary: str
    bytes: int | None
    kept: bool
    why: str
    shown: str


class Exploration(Document):
    """What a run on a folder did.

    `seconds` is wall time by step, `selection` the status of the choice.
    """

    folder: str
    files: int
    skipped: int
    question: str
    tool_selector: str
    context_selector: str
    plan: ExecutionPlan
    calls: tuple[CallRecord, ...]
    problems: tuple[str, ...]
    pointers: tuple[PointerRecord, ...]
    selection: str
    budget_chars: int
    packed: str
    seconds: dict[str, float]

    @property
    def failed(self) -> bool:
        """Whether a choice failed, or all calls of a task: the packed context is then not the one asked for."""
        tasks, done = (
            {call.task for call in self.calls},
            {call.task for call in self.calls if not call.error},
        )
        return bool(self.problems) or tasks != done or self.selection not in {"ok", "empty"}


async def explore(
    folder: Path, *, question: str, budget_chars: int, store_dir: Path, progress: ProgressCallback
) -> Exploration:
    """The record of a run on a folder: its plan, calls, stored outputs and packed context.

    Args:
        folder: What to read; it is not changed.
        question: What to find out; "" asks what the folder says it is about.
        budget_chars: Most characters of packed context.
        store_dir: Where outputs are kept.
        progress: Called with a short line before each step.

    Raises:
        ConfigError: A setting in the environment cannot be used.
    """
    marks = {"start": time.perf_counter()}
    workspace = Workspace(folder)
    question = question or default_question(workspace)
    plan = plan_for(workspace, question)
    marks["reading"] = time.perf_counter()
    manager = ToolContextManager(store_dir)
    async with _selectors_from_env(
        max_outputs=max(1, budget_chars // _CHARS_PER_OUTPUT)
    ) as selectors:
        registry = WorkspaceTools(workspace, question).registry()
        # One call at a time: a later output ranks higher, and the same folder should give the same
        # answer.
        executor = AgenticExecutor(
            None, registry, manager, selector=selectors.tools, max_parallel=1
        )
        calls: list[CallRecord] = []
        problems: list[str] = []
        async for event in executor.run_stream(plan, manager.hash_query(question), query=question):
            data = event.data
            if event.type == "thinking":
                progress(data, 0, 0)
            elif event.type in {"tool_result", "error"} and "args" in data:
                record = CallRecord(
                    data["task"],
                    data["tool"],
                    data["args"],
                    data.get("pointer_id"),
                    data.get("error"),
                )
                calls.append(record)
            elif event.type == "error":
                problems.append(data["error"])
        marks["tools"] = time.perf_counter()
        progress("Choosing outputs", 0, 0)
        pointers = manager.get_all_pointers()
        choice = await selectors.contexts.select_detailed(query=question, pointers=pointers)
        marks["choosing"] = time.perf_counter()
    rendered = render_selected_contexts(
        pointers=choice.pointers, store=manager.pointer_store, max_chars=budget_chars
    )
    marks["packing"] = time.perf_counter()
    return Exploration(
        folder=str(workspace.root),
        files=len(workspace.paths),
        skipped=workspace.skipped,
        question=question,
        tool_selector=selectors.label(selectors.tool_model),
        context_selector=selectors.label(choice.model),
        plan=plan,
        calls=tuple(calls),
        problems=tuple(problems),
        pointers=_records(pointers, choice, rendered),
        selection=choice.status,
        budget_chars=budget_chars,
        packed=rendered.text,
        seconds={
            name: round(end - begin, 4) for (_, begin), (name, end) in pairwise(marks.items())
        },
    )


def _records(
    pointers: list[ContextPointer], choice: RelevanceSelection, rendered: RenderedContexts
) -> tuple[PointerRecord, ...]:
    reasons = {each.pointer_id: each.reason for each in choice.choices}
    blocks = {block.pointer_id: block for block in rendered.blocks}
    return tuple(
        PointerRecord(
            pointer_id=pointer.pointer_id,
            tool=pointer.tool_name,
            summary=pointer.summary,
            bytes=pointer.result_bytes,
            kept=(block := blocks.get(pointer.pointer_id)) is not None,
            why=reasons.get(pointer.pointer_id, choice.status),
            shown=f"{block.status}, {block.chars_shown:,} of {block.chars_total:,} chars"
            if block
            else "",
        )
        for pointer in pointers
    )


@dataclass(frozen=True, slots=True)
class _Selectors:
    """The two selectors of a run; `endpoint` is None when they rank on this machine."""

    tools: SelectsTools
    contexts: ContextRelevanceSelector | LexicalRelevanceSelector
    endpoint: LLMConfig | None = None
    tool_model: str | None = None

    def label(self, model: str | None) -> str:
        """What chooses, in words; None stands for the endpoint's default model."""
        if self.endpoint is None:
            return "full-text ranking on this machine (no endpoint is configured)"
        return f"{model or self.endpoint.default_model} at {self.endpoint.base_url}"


@asynccontextmanager
async def _selectors_from_env(*, max_outputs: int) -> AsyncIterator[_Selectors]:
    """Selectors that ask the endpoint of the environment, or rank on this machine without one.

    Args:
        max_outputs: Most outputs to keep.

    Raises:
        ConfigError: A setting cannot be used.
    """
    tool_config = ToolSelectionConfig.from_env()
    endpoint = config_from_env()
    if endpoint is None:
        yield _Selectors(LexicalToolSelector(tool_config), LexicalRelevanceSelector(max_outputs))
        return
    async with OpenAICompatibleClient(endpoint) as client:
        contexts = ContextRelevanceSelector(client, max_selected=max_outputs)
        tool_model = tool_config.call_options(client=client).model
        yield _Selectors(ToolSelector(client, tool_config), contexts, endpoint, tool_model)
