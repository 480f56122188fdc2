"""Hooks for Strands Agents: `LLMCommonPlugin`."""

from collections.abc import Mapping
from functools import partial
from secrets import token_hex
from typing import Any

from strands.hooks import AfterToolCallEvent
from strands.middleware import InvokeModelContext, InvokeModelStage
from strands.plugins import Plugin
from strands.tools.tools import PythonAgentTool

from llm_common.errors import ToolError
from llm_common.integrations.session_hooks import SessionHooks, ToolFacts, plain_text


class LLMCommonPlugin(Plugin):
    """Long results behind pointers, the tools that fit, a folded history, and the tools that read back.

    `Agent(plugins=[LLMCommonPlugin()])`. The agent's own messages keep previews instead of long
    results, and are never
    folded: each model call gets a folded copy. Strands' own conversation manager drops old messages
    for good; pass
    `conversation_manager=NullConversationManager()` to have them folded instead. Errors, images,
    documents, delegated answers and results of the application's own calls stay. An agent is a
    session, or its session manager's is.

    Args:
        hooks: Store, limits and policies; None takes the defaults. May be shared by agents.
    """

    name = "llm_common"

    def __init__(self, hooks: SessionHooks | None = None) -> None:
        super().__init__()
        self._session_hooks = hooks or SessionHooks()

    def init_agent(self, agent: Any) -> None:
        """Registers the hook, the middleware and the tools with an agent; Strands calls it."""
        hooks = self._session_hooks
        # without one, Strands' id is too short to be unique
        managed = getattr(agent, "_session_manager", None)
        session_id = hooks.session(
            agent.session_id if managed else f"{hooks.session_id}-{token_hex(8)}"
        )
        agent.add_hook(partial(self._offload, session_id), AfterToolCallEvent)
        agent.add_middleware(InvokeModelStage.Input, partial(self._prepare, session_id))
        for tool in hooks.tools(session_id):
            spec: Any = {
                "name": tool.name,
                "description": tool.description,
                "inputSchema": {"json": tool.parameters},
            }
            read: Any = partial(self._read_back, session_id)
            agent.tool_registry.register_tool(PythonAgentTool(tool.name, spec, read))

    async def _offload(self, session_id: str, event: AfterToolCallEvent) -> None:
        result, call, messages = event.result, event.tool_use, event.agent.messages
        caller = next((one for one in reversed(messages) if call["toolUseId"] in _ids(one)), None)
        is_answer = getattr(event.selected_tool, "delegate", False)
        values = [_value(block) for block in result["content"] if _value(block) is not None]
        if (
            caller is None
            or is_answer
            or not values
            or result["status"] != "success"
            or event.cancel_message
        ):
            return
        shown = await self._session_hooks.offload(
            values[0] if len(values) == 1 else values,
            tool_name=call["name"],
            args=call["input"],
            session_id=session_id,
            query=_query(messages),
            turn_id=caller.get("tracking_id") or _ids(caller)[0],
            calls=len(_ids(caller)),
        )
        if shown is not None:
            others = [block for block in result["content"] if _value(block) is None]
            event.result = {**result, "content": [{"text": shown.text}, *others]}

    async def _prepare(self, session_id: str, context: InvokeModelContext) -> InvokeModelContext:
        hooks = self._session_hooks
        called = {use["name"] for message in context.messages for use in _uses(message)}
        forced: Any = context.tool_choice or {}
        tools = await hooks.choose_tools(
            context.tool_specs,
            query=_query(context.messages),
            facts_of=_facts,
            keep={
                *called,
                *context.agent.tool_registry.dynamic_tools,
                forced.get("tool", {}).get("name"),
            },
        )
        messages = await hooks.fold_messages(
            context.messages, session_id=session_id, read=_read, write=_write
        )
        return context.replace(tool_specs=tools, messages=_alternating(messages))

    async def _read_back(
        self, session_id: str, call: Mapping[str, Any], **_: Any
    ) -> dict[str, Any]:
        try:
            text, status = (
                await self._session_hooks.read_back(
                    call["name"], call["input"], session_id=session_id
                ),
                "success",
            )
        except ToolError as exc:
            text, status = str(exc), "error"
        return {"toolUseId": call["toolUseId"], "status": status, "content": [{"text": text}]}


def _value(block: Mapping[str, Any]) -> Any:
    """What a block of a tool result says as text or data.

    None for an image, a document or nothing.
    """
    return block.get("text") or block.get("json")


def _uses(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block["toolUse"] for block in message["content"] if "toolUse" in block]


def _ids(message: Mapping[str, Any]) -> list[str]:
    return [use["toolUseId"] for use in _uses(message)]


def _query(messages: list[Any]) -> str:
    """What the user said last."""
    said = (
        plain_text(message["content"])
        for message in reversed(messages)
        if message["role"] == "user"
    )
    return next(filter(None, said), "")


def _facts(spec: Mapping[str, Any]) -> ToolFacts:
    return ToolFacts(spec["name"], spec.get("description", ""), spec["inputSchema"].get("json", {}))


def _read(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message in the shape of Anthropic's, whose blocks are in the same order.

    Images are named only.
    """
    return {"role": message["role"], "content": [_block(block) for block in message["content"]]}


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    if use := block.get("toolUse"):
        return {
            "type": "tool_use",
            "id": use["toolUseId"],
            "name": use["name"],
            "input": use["input"],
        }
    if result := block.get("toolResult"):
        parts = [_block(part) if _value(part) is None else part for part in result["content"]]
        return {
            "type": "tool_result",
            "tool_use_id": result["toolUseId"],
            "content": plain_text(parts) or parts,
        }
    return (
        {"type": "text", "text": block["text"]}
        if "text" in block
        else {"type": next(iter(block), "")}
    )


def _write(message: Any, content: Any) -> Any:
    """A message with a shorter text, or with shorter tool results; a new one without a message."""
    if message is None or isinstance(content, str):
        rest = [block for block in message["content"] if "text" not in block] if message else []
        return {
            "role": message["role"] if message else "user",
            "content": [{"text": content}, *rest],
        }
    blocks = [
        {"toolResult": {**old["toolResult"], "content": [{"text": new["content"]}]}}
        if "toolResult" in old and new != _block(old)
        else old
        for old, new in zip(message["content"], content, strict=True)
    ]
    return {**message, "content": blocks}


def _alternating(messages: list[Any]) -> list[Any]:
    """The messages with neighbours of one role joined, as Bedrock requires."""
    joined: list[Any] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1] = {**message, "content": [*joined[-1]["content"], *message["content"]]}
        else:
            joined.append(message)
    return joined
