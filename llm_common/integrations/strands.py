"""Hooks for Strands agents: `LLMCommonPlugin`."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

from strands.hooks import AfterToolCallEvent
from strands.middleware import (
    ExecuteToolContext,
    ExecuteToolStage,
    InvokeModelContext,
    InvokeModelStage,
)
from strands.plugins import Plugin
from strands.tools.tools import PythonAgentTool

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.delegation import calling, inlined, session_of_caller
from llm_common.integrations.translation import (
    choose_tools,
    fold_messages,
    plain_text,
    read_back,
)
from llm_common.tools import ToolDefinition

GetSession = Callable[[], Session]
"""Returns the session of an agent's call, which depends on who called the agent."""


class LLMCommonPlugin(Plugin):
    """A plugin that offloads long results, chooses tools and folds the history.

    Use it as `Agent(plugins=[LLMCommonPlugin()])`. The agent's own messages keep previews instead
    of long results and are never folded: each model call gets a folded copy. Strands' default
    conversation manager drops old messages for good. To have them folded instead, pass
    `conversation_manager=NullConversationManager()`. Errors, images, documents, delegated answers
    and results of the application's own calls are not changed.

    The id of the agent's session manager names the session. Without one, each agent has its own.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.
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
        conversation_id = f"{self.sessions.session_id_of(None)}-{token_hex(8)}"
        is_named = bool(getattr(agent, "_session_manager", None))
        if is_named:
            conversation_id = agent.session_id
        own = self.sessions.get(conversation_id)

        def session() -> Session:
            """Return the session of the agent, or of the agent that calls it as a tool."""
            caller = None if is_named else session_of_caller(self.sessions)
            return caller or own

        agent.add_hook(partial(self._offload, session), AfterToolCallEvent)
        agent.add_middleware(InvokeModelStage.Input, partial(self._prepare, session))
        agent.add_middleware(ExecuteToolStage, partial(self._execute, session))
        for tool in own.tools():
            spec: Any = {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {"json": tool.parameters},
            }
            read: Any = partial(self._read_back, session)
            agent.tool_registry.register_tool(PythonAgentTool(tool.name, spec, read))

    async def _execute(
        self, session: GetSession, context: ExecuteToolContext, call_next: Any
    ) -> AsyncGenerator[Any, None]:
        """Run a tool. An agent as a tool reads in this session, or gets the results themselves."""
        agent = getattr(context.tool, "agent", None)
        if agent is not None and session().tool_names[0] not in agent.tool_registry.registry:
            call: Any = {
                **context.tool_use,
                "input": await inlined(session(), context.tool_use["input"]),
            }
            context = context.replace(tool_use=call)
        async with aclosing(call_next(context)) as events:
            while True:
                # Not around the `yield`, which would leave the caller's code inside the block.
                with calling(session(), context.tool_use["input"]):
                    try:
                        event = await anext(events)
                    except StopAsyncIteration:
                        return
                yield event

    async def _offload(self, session: GetSession, event: AfterToolCallEvent) -> None:
        result, call, messages = event.result, event.tool_use, event.agent.messages
        contents: Any = []
        media: list[Any] = []
        for block in result["content"]:
            content = _content_of(block)
            if content is None:
                media.append(block)
            else:
                contents.append(content)
        # The result of a delegated agent goes to the user, not back to the model.
        is_answer = getattr(event.selected_tool, "delegate", False)
        if is_answer or not contents or result["status"] != "success" or event.cancel_message:
            return
        turn = _turn_of(call["toolUseId"], messages)
        if turn is None:  # a call of the application, not of the model
            return
        value = contents
        if len(contents) == 1:
            value = contents[0]
        preview = await session().offload(
            value,
            tool=call["name"],
            args=call["input"],
            turn=turn,
            messages=[*map(_read_message, messages)],
        )
        if not preview.is_whole:
            event.result = {**result, "content": [{"text": str(preview)}, *media]}

    async def _prepare(
        self, session: GetSession, context: InvokeModelContext
    ) -> InvokeModelContext:
        """Return the model call with the chosen tools and a folded history."""
        forced: Any = context.tool_choice or {}
        tool_specs = await choose_tools(
            session(),
            context.tool_specs,
            describe=_describe,
            messages=[*map(_read_message, context.messages)],
            # Tools that were loaded during the run, and a forced one, stay.
            keep={*context.agent.tool_registry.dynamic_tools, forced.get("tool", {}).get("name")},
        )
        messages = await fold_messages(
            session(), context.messages, read=_read_message, write=_write_message
        )
        # The note about folded messages has the user's role, as its neighbour may have.
        return context.replace(tool_specs=tool_specs, messages=_alternating(messages))

    async def _read_back(
        self, session: GetSession, call: Mapping[str, Any], **_: Any
    ) -> dict[str, Any]:
        try:
            text, status = await read_back(session(), call["name"], call["input"]), "success"
        except ToolError as exc:
            text, status = str(exc), "error"
        return {"toolUseId": call["toolUseId"], "status": status, "content": [{"text": text}]}


def _turn_of(call_id: str, messages: list[Any]) -> str | None:
    """Return a name for the message that made a call, or None if no message did."""
    for message in reversed(messages):
        ids = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        if call_id in ids:
            # A message may have no id, but each of its calls has one.
            return str(message.get("tracking_id") or ids[0])
    return None


def _describe(spec: Mapping[str, Any]) -> ToolDefinition:
    schema = spec["inputSchema"].get("json", {})
    return ToolDefinition(spec["name"], spec.get("description", ""), schema)


def _content_of(block: Mapping[str, Any]) -> Any:
    """Return the text or data of a block in a tool result, or None for an image or a document."""
    return block.get("text") or block.get("json")


def _read_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message in Anthropic's shape, with its blocks in the same order.

    An image becomes a block with its type only.
    """
    return {"role": message["role"], "content": [*map(_block, message["content"])]}


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    if call := block.get("toolUse"):
        return {
            "type": "tool_use",
            "id": call["toolUseId"],
            "name": call["name"],
            "input": call["input"],
        }
    if result := block.get("toolResult"):
        parts: list[Any] = []
        for part in result["content"]:
            parts.append(_block(part) if _content_of(part) is None else part)
        return {
            "type": "tool_result",
            "tool_use_id": result["toolUseId"],
            "content": plain_text(parts) or parts,
        }
    if "text" in block:
        return {"type": "text", "text": block["text"]}
    return {"type": next(iter(block), "")}


def _write_message(message: Any, content: Any) -> Any:
    """Return a copy of a message with another text or other tool results.

    Args:
        message: The message to copy. None makes a new one of the user.
        content: A text, or all blocks of the message, some of them shortened.
    """
    if message is None:
        return {"role": "user", "content": [{"text": content}]}
    blocks: list[Any] = []
    if isinstance(content, str):
        blocks = [block for block in message["content"] if "text" not in block]
        return {"role": message["role"], "content": [{"text": content}, *blocks]}
    for original, written in zip(message["content"], content, strict=True):
        # Only a result that was shortened differs from what was read.
        if "toolResult" in original and written != _block(original):
            shorter = {**original["toolResult"], "content": [{"text": written["content"]}]}
            blocks.append({"toolResult": shorter})
        else:
            blocks.append(original)
    return {**message, "content": blocks}


def _alternating(messages: list[Any]) -> list[Any]:
    """Return the messages with adjacent ones of the same role joined, as Bedrock requires."""
    joined: list[Any] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**message, "content": [*joined[-1]["content"], *message["content"]]}
        else:
            joined.append(message)
    return joined
