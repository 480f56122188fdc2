"""Build a prompt from a session and a goal."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from llm_common.core.models import LLMMessage
from llm_common.errors import ToolFailedError
from llm_common.memory import MemoryFilters, MemoryReader, MemoryWriter
from llm_common.prompt.prompt_bundle import PromptBundle, TokenBudget
from llm_common.text.display import one_line
from llm_common.tools import ToolRegistry
from llm_common.tools.tool import third_party_code

_log = logging.getLogger(__name__)

_SUMMARY_TITLE = "Recent episode summary"
_RETRIEVED_TITLE = "Retrieved context"
_MAX_LINE_CHARS = 600  # of a retrieved line, so that one long line does not fill the prompt


class TriggerInput(BaseModel):
    """The session, goal, tools and budget of a prompt.

    Attributes:
        session_id: The session whose memory may be used. Other sessions are not read.
        goal: The task. It becomes the instructions, and the query for the memory. Nothing is
            retrieved for a blank goal.
        tool_hints: Names of the tools whose schemas are included. Unknown names are ignored.
        budget: The limit of `fit`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    goal: str | None = None
    tool_hints: list[str] = Field(default_factory=list)
    budget: TokenBudget = TokenBudget()


class ContextBuilder:
    """Builds prompts from the memory of a session. Concurrent builds may share a builder.

    Args:
        writer: Summarizes the session. None omits the summary.
        reader: Retrieves lines that match the goal. None omits them.
        system: System text of every prompt.
        tools: Describes the tools of `tool_hints`. None omits their schemas.
        k: Maximum number of retrieved lines.
        memory_timeout_s: Seconds to wait for each part of the memory before it is omitted.
    """

    def __init__(
        self,
        writer: MemoryWriter | None = None,
        reader: MemoryReader | None = None,
        *,
        system: str = "",
        tools: ToolRegistry | None = None,
        k: int = 4,
        memory_timeout_s: float = 5.0,
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._system = system
        self._tools = tools
        self._k = k
        self._memory_timeout_s = memory_timeout_s

    async def build(
        self,
        trigger: TriggerInput,
        *,
        history: Sequence[LLMMessage] = (),
    ) -> PromptBundle:
        """Build the prompt for a goal. Nothing is cut, since `fit` applies the budget.

        The documents are the summary of the session's recent episode and the retrieved lines, both
        requested concurrently. If a memory raises, takes too long or returns a wrong type, its part
        is omitted and a warning names it.

        Args:
            trigger: The session, the goal, the tools and the budget.
            history: The conversation so far, oldest first.

        Raises:
            TypeError: If `trigger` is not a `TriggerInput`.
        """
        if not isinstance(trigger, TriggerInput):
            kind = type(trigger).__name__
            raise TypeError(f"trigger is a {kind}; pass TriggerInput(session_id='…', goal='…')")
        # The errors of each memory are caught, so the failure of one keeps the part of the other.
        documents = await asyncio.gather(
            self._part("the memory writer", self._summary(trigger)),
            self._part("the memory reader", self._retrieved(trigger)),
        )
        return PromptBundle(
            system=self._system,
            instructions=trigger.goal or "",
            tools_json_schema=self._schemas(trigger.tool_hints),
            context_docs=[document for document in documents if document],
            history=list(history),
            budget=trigger.budget,
        )

    async def _part(self, memory: str, document: Awaitable[str]) -> str:
        """Return a document, or "" with a warning if its memory fails or takes too long."""
        try:
            # Outside the timeout, so that a memory that hangs fails like one that raises.
            with third_party_code(memory):
                async with asyncio.timeout(self._memory_timeout_s):
                    return await document
        except ToolFailedError as exc:
            _log.warning(
                "%s raised %s; the prompt lacks its part", exc.tool, type(exc.__cause__).__name__
            )
            return ""

    async def _summary(self, trigger: TriggerInput) -> str:
        if self._writer is None:
            return ""
        summary = ((await self._writer.summarize_episode(trigger.session_id)) or "").strip()
        if not summary:
            return ""
        return f"{_SUMMARY_TITLE}\n{summary}"

    async def _retrieved(self, trigger: TriggerInput) -> str:
        goal = (trigger.goal or "").strip()
        if self._reader is None or not goal:
            return ""
        filters = MemoryFilters(session_id=trigger.session_id)
        hits = await self._reader.retrieve(goal, self._k, filters)
        lines = [_RETRIEVED_TITLE]
        # Checked again, since a third-party reader may return other sessions' lines.
        events = [hit.event for hit in hits if hit.session_id == trigger.session_id]
        for event in events[: self._k]:  # a reader may return more than it was asked for
            text = one_line(event.text, max_chars=_MAX_LINE_CHARS)
            lines.append(f"- {event.role}: {text}")
        return "\n".join(lines) if len(lines) > 1 else ""

    def _schemas(self, names: Sequence[str]) -> str | None:
        if self._tools is None:
            return None
        definitions = []
        for name in sorted(set(names)):  # the order of the hints must not change the prompt
            tool = self._tools.get(name)
            if tool is not None:
                definitions.append(tool.definition.text)
        return f"[{','.join(definitions)}]" if definitions else None
