"""`ToolSelector`: a model chooses which tools to call for a task."""

import asyncio
import logging
from typing import Any

from pydantic import BaseModel, ConfigDict

from llm_common._telemetry import span
from llm_common.core.decision import Asking, Decision, Judged, Question, SelectionCache, decide
from llm_common.core.structured import SupportsChat
from llm_common.errors import LLMError, LLMTimeoutError, MalformedReplyError, ToolFailedError, UnserialisableError
from llm_common.plans import PlannedTask, ToolCall
from llm_common.selection.catalogue import Catalogue, OffersTools, read_catalogue
from llm_common.selection.results import SelectionStatus, SelectsTools, ToolSelection, ToolSelectionConfig
from llm_common.selection.tool_calls import CheckedCalls, check_calls, read_native_calls
from llm_common.selection.tool_prompt import SelectionPrompt, build_prompt

__all__ = ["SelectsTools", "ToolSelection", "ToolSelectionConfig", "ToolSelector"]

_log = logging.getLogger(__name__)
_CORRECTABLE = frozenset({"malformed", "unknown_tool", "invalid_args"})
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
        client: Any object with an async `chat_completion`. One whose `prefers_json_schema` is True gets the names of
            the tools as an enum, up to 500 of them.
        config: Settings; None reads the environment, here and once.
        cache: Where replies to the same question are kept for a while; None asks the model every time.

    Raises:
        ConfigError: An environment variable cannot be used.
    """

    def __init__(
        self, client: SupportsChat, config: ToolSelectionConfig | None = None, *, cache: SelectionCache | None = None
    ) -> None:
        self._client = client
        self._cache = cache
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
        budget, within the same deadline; its prompt is the first one with what was wrong at the end.

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
        ends_at = asyncio.get_running_loop().time() + self.config.total_s
        try:
            async with asyncio.timeout_at(ends_at):
                catalogue = await read_catalogue(registry)
                if catalogue.empty:
                    return ToolSelection(status="no_candidates", used="model", tools_total=0, tools_shown=0)
                # In a thread: describing and ranking a few thousand tools takes a good part of a second, once.
                prompt = await asyncio.to_thread(
                    build_prompt, catalogue, self.config, task=task, query=query, context=context
                )
        except (ToolFailedError, UnserialisableError) as exc:
            return ToolSelection(status="error", used="model", problem=exc.message)
        except TimeoutError:
            return ToolSelection(status="timeout", used="model", problem="the tool registry did not answer in time")
        asking = Asking(
            client=self._client,
            model=self.config.model,
            fallback_model=self.config.fallback_model,
            timeout_s=self.config.timeout_s,
            ends_at=ends_at,
            temperature=self.config.temperature,
            cache=self._cache,
        )
        decision = await decide(self._question(prompt, catalogue), asking)
        return _selection(decision, prompt, catalogue)

    def _question(self, prompt: SelectionPrompt, catalogue: Catalogue) -> Question[_Reply, CheckedCalls]:
        return Question(
            messages=lambda wrong: prompt.messages(wrong=wrong),
            reply_model=_Reply,
            judge=lambda reply: self._judge(reply, catalogue),
            json_schema=prompt.json_schema,
            read_tool_calls=read_native_calls,
            scope=f"{self.config.model_dump_json()}{catalogue.digest}" if self._cache is not None else "",
        )

    def _judge(self, reply: _Reply, catalogue: Catalogue) -> Judged[CheckedCalls]:
        checked = check_calls(reply.calls, catalogue, max_calls=self.config.max_calls)
        if reply.calls and not checked.calls:
            problem = f"none of the {len(reply.calls)} proposed calls can run; `dropped` says why"
            return Judged(checked, 0, usable=False, wrong=_listed(problem, checked), reason="no_valid_call")
        wrong = ""
        if self.config.retry_dropped and any(drop.reason in _CORRECTABLE for drop in checked.dropped):
            wrong = _listed("some of the proposed calls cannot run; answer with all that are needed", checked)
        return Judged(checked, len(checked.calls), wrong=wrong)


def _selection(decision: Decision[CheckedCalls], prompt: SelectionPrompt, catalogue: Catalogue) -> ToolSelection:
    judged = decision.judged
    status: SelectionStatus = "invalid"
    if judged is None:
        status = _status(decision.error)
    elif judged.usable:
        status = "ok" if judged.choice.calls else "empty"
    return ToolSelection(
        calls=judged.choice.calls if judged else (),
        status=status,
        used="model",
        attempts=decision.attempts,
        dropped=judged.choice.dropped if judged else (),
        tools_total=len(catalogue.definitions) if catalogue.checked else None,
        tools_shown=None if prompt.tools is None else len(prompt.tools),
        tokens_saved=prompt.tokens_saved,
        cached=decision.cached,
        problem=decision.wrong.partition("\n")[0] if status not in {"ok", "empty"} else "",
    )


def _status(error: LLMError | None) -> SelectionStatus:
    if isinstance(error, LLMTimeoutError):
        return "timeout"
    return "invalid" if isinstance(error, MalformedReplyError) else "error"


def _listed(problem: str, checked: CheckedCalls) -> str:
    return "\n".join([problem, *(f"- {call}" for call in checked.dropped[:_MAX_NAMED_DROPS])])
