"""`ToolSelector`: a model chooses which tools to call for a task."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import span
from llm_common.agents.schemas import PlannedTask, ToolCall
from llm_common.agents.tools.calls import check_calls, read_native_calls
from llm_common.agents.tools.catalogue import Catalogue, OffersTools, read_catalogue
from llm_common.agents.tools.selection import SelectionStatus, SelectsTools, ToolSelection, ToolSelectionConfig
from llm_common.agents.tools.selection_prompt import build_prompt
from llm_common.core.models import LLMMessage
from llm_common.core.structured import Attempt, SupportsChat, ask
from llm_common.errors import (
    LLMError,
    LLMTimeoutError,
    MalformedReplyError,
    ToolFailedError,
    UnserialisableError,
)

__all__ = ["SelectsTools", "ToolSelection", "ToolSelectionConfig", "ToolSelector"]

_log = logging.getLogger(__name__)
_FINAL = frozenset({"auth", "cost_limit"})  # another model would be refused alike
_MAX_NAMED_DROPS = 5


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True)

    calls: list[object]  # each is checked by itself, so that one bad call does not take its siblings along


class ToolSelector:
    """Tool calls for a task, chosen by a model.

    Fails closed: whatever the model, the client or the registry does, the worst answer is no call, and
    `select_detailed` says why. The client is called once per selection, or twice when the first attempt gave nothing
    usable and a fallback model is set. One selector may serve many selections at once.

    Args:
        client: Any object with an async `chat_completion`.
        config: Settings; None reads the environment, here and once.

    Raises:
        ConfigError: An environment variable cannot be used.
    """

    def __init__(self, client: SupportsChat, config: ToolSelectionConfig | None = None) -> None:
        self._client = client
        self.config = config or ToolSelectionConfig.from_env()

    async def select_tool_calls(
        self,
        *,
        task: PlannedTask,
        tool_registry: OffersTools,
        query: str | None = None,
        context: dict[str, Any] | None = None,
    ) -> list[ToolCall]:
        """The calls of `select_detailed`: empty when no tool is needed and when choosing failed."""
        selection = await self.select_detailed(task=task, tool_registry=tool_registry, query=query, context=context)
        return list(selection.calls)

    async def select_detailed(
        self,
        *,
        task: PlannedTask,
        tool_registry: OffersTools,
        query: str | None = None,
        context: dict[str, Any] | None = None,
    ) -> ToolSelection:
        """The calls to run for the task, and how they were chosen.

        The registry is asked for its tools once. Where it gives structure (a `ToolRegistry`, or a list of definitions),
        calls are held against names and schemas: see `check_calls`. A reply whose calls are all unusable counts as a
        failure, an empty list does not. The fallback model is asked after any failure but a refused key or a spent
        budget; its prompt is the first one with what was wrong at the end.

        Args:
            task: What is to be done; its sub-tasks count as well.
            tool_registry: Asked by `get_tools_schema()`; a registry without tools costs no model call.
            query: The user's own words, if they are not the task.
            context: What is known already; anything that has a JSON form.

        Returns:
            A selection; failures of the model, the client, the registry or the context are its `status`. Only
            cancellation leaves as an exception.
        """
        with span("llm_common.select_tools") as current:
            selection = await self._select(task, tool_registry, query, context)
            current.set_attribute("status", selection.status)
            current.set_attribute("calls", len(selection.calls))
            current.set_attribute("attempts", len(selection.attempts))
        if selection.failed:
            _log.warning("tool selection failed: status %s, %d attempts", selection.status, len(selection.attempts))
        return selection

    async def _select(
        self, task: PlannedTask, registry: OffersTools, query: str | None, context: dict[str, Any] | None
    ) -> ToolSelection:
        try:
            catalogue = await read_catalogue(registry)
            if catalogue.empty:
                return ToolSelection(status="no_candidates", used="model", tools_total=0, tools_shown=0)
            # In a thread: describing and ranking a few thousand tools takes a good part of a second, once.
            prompt = await asyncio.to_thread(
                build_prompt, catalogue, self.config, task=task, query=query, context=context
            )
        except (ToolFailedError, UnserialisableError) as exc:
            return ToolSelection(status="error", used="model", problem=exc.message)
        attempts: list[Attempt] = []
        selection = await self._attempt(self.config.model, prompt.messages(), catalogue, attempts)
        if selection.failed and self.config.fallback_model and attempts[-1].error not in _FINAL:
            messages = prompt.messages(wrong=_what_was_wrong(selection))
            selection = await self._attempt(self.config.fallback_model, messages, catalogue, attempts)
        total = len(catalogue.definitions) if catalogue.checked else None
        return selection.model_copy(
            update={"attempts": tuple(attempts), "tools_total": total, "tools_shown": prompt.tools_shown}
        )

    async def _attempt(
        self, model: str, messages: list[LLMMessage], catalogue: Catalogue, attempts: list[Attempt]
    ) -> ToolSelection:
        """One model call, recorded in `attempts`, and what it led to."""
        try:
            reply = await ask(
                self._client,
                messages,
                reply_model=_Reply,
                model=model,
                timeout_s=self.config.timeout_s,
                temperature=self.config.temperature,
                attempts=attempts,
                read_tool_calls=read_native_calls,
            )
        except LLMError as exc:
            return ToolSelection(status=_status(exc), used="model", problem=exc.message)
        checked = check_calls(reply.calls, catalogue, max_calls=self.config.max_calls)
        if reply.calls and not checked.calls:
            attempts[-1] = replace(attempts[-1], error="malformed", reason="no_valid_call")
            problem = f"none of the {len(reply.calls)} proposed calls can run; `dropped` says why"
            return ToolSelection(status="invalid", used="model", dropped=checked.dropped, problem=problem)
        status: SelectionStatus = "ok" if checked.calls else "empty"
        return ToolSelection(calls=checked.calls, status=status, used="model", dropped=checked.dropped)


def _status(error: LLMError) -> SelectionStatus:
    if isinstance(error, LLMTimeoutError):
        return "timeout"
    return "invalid" if isinstance(error, MalformedReplyError) else "error"


def _what_was_wrong(selection: ToolSelection) -> str:
    drops = [f"- {call}" for call in selection.dropped[:_MAX_NAMED_DROPS]]
    return "\n".join([selection.problem, *drops])
