"""Hooks for Strands Agents: `LLMCommonPlugin`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from strands.hooks import AfterToolCallEvent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.tools.tools import PythonAgentTool

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.strands_messages import (
    alternating,
    content_of,
    read_message,
    uses_in,
    write_message,
)
from llm_common.integrations.translation import fold_messages, read_back
from llm_common.pointers.store import ContextPointerStore
from llm_common.tools.definitions import ToolDefinition


class LLMCommonPlugin(Plugin):
    """Long results behind pointers, the tools that fit, a folded history, and reading back.

    `Agent(plugins=[LLMCommonPlugin()])`. The agent's own messages keep previews instead of long
    results, and are never folded: each model call gets a folded copy. Strands' own conversation
    manager drops old messages for good; pass `conversation_manager=NullConversationManager()` to
    have them folded instead. Errors, images, documents, delegated answers and results of the
    application's own calls stay. An agent is a session, or its session manager's is.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.
    """

    name = "llm_common"

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        super().__init__()
        self.sessions = Sessions.over(store, config)

    def init_agent(self, agent: Any) -> None:
        """Register the hook, the middleware and the tools with an agent. Strands calls it."""
        # Without a session manager, Strands' own id is too short to be unique.
        conversation_id = f"{self.sessions.get().session_id}-{token_hex(8)}"
        if getattr(agent, "_session_manager", None):
            conversation_id = agent.session_id
        session = self.sessions.get(conversation_id)
        agent.add_hook(partial(self._offload, session), AfterToolCallEvent)
        agent.add_middleware(InvokeModelStage.Input, partial(self._prepare, session))
        for tool in session.tools():
            spec: Any = {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {"json": tool.parameters},
            }
            read: Any = partial(self._read_back, session)
            agent.tool_registry.register_tool(PythonAgentTool(tool.name, spec, read))

    async def _offload(self, session: Session, event: AfterToolCallEvent) -> None:
        result, call, messages = event.result, event.tool_use, event.agent.messages
        contents = [content_of(block) for block in result["content"]]
        values = [content for content in contents if content is not None]
        is_answer = getattr(event.selected_tool, "delegate", False)
        if is_answer or not values or result["status"] != "success" or event.cancel_message:
            return
        turn = _turn_of(call["toolUseId"], messages)
        if turn is None:  # a call that the application made itself
            return
        shown = await session.offload(
            values[0] if len(values) == 1 else values,
            tool=call["name"],
            args=call["input"],
            turn=turn,
            messages=[*map(read_message, messages)],
        )
        if shown.pointer_id is not None:
            others = [block for block in result["content"] if content_of(block) is None]
            event.result = {**result, "content": [{"text": str(shown)}, *others]}

    async def _prepare(self, session: Session, context: InvokeModelContext) -> InvokeModelContext:
        forced: Any = context.tool_choice or {}
        chosen = await session.choose_tools(
            [*map(_definition, context.tool_specs)],
            messages=[*map(read_message, context.messages)],
            keep={
                *context.agent.tool_registry.dynamic_tools,
                forced.get("tool", {}).get("name"),
            },
        )
        names = {definition.name for definition in chosen}
        messages = await fold_messages(
            session, context.messages, read=read_message, write=write_message
        )
        return context.replace(
            tool_specs=[spec for spec in context.tool_specs if spec["name"] in names],
            messages=alternating(messages),
        )

    async def _read_back(
        self, session: Session, call: Mapping[str, Any], **_: Any
    ) -> dict[str, Any]:
        try:
            text, status = await read_back(session, call["name"], call["input"]), "success"
        except ToolError as exc:
            text, status = str(exc), "error"
        return {"toolUseId": call["toolUseId"], "status": status, "content": [{"text": text}]}


def _turn_of(call_id: str, messages: list[Any]) -> str | None:
    """Return what names the message that made a call."""
    for message in reversed(messages):
        ids = [use["toolUseId"] for use in uses_in(message)]
        if call_id in ids:
            return str(message.get("tracking_id") or ids[0])
    return None


def _definition(spec: Mapping[str, Any]) -> ToolDefinition:
    schema = spec["inputSchema"].get("json", {})
    return ToolDefinition(spec["name"], spec.get("description", ""), schema)
