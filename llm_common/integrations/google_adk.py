"""Hooks for Google's Agent Development Kit: `LLMCommonPlugin`."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from google.adk.plugins import BasePlugin
from google.adk.tools import BaseTool
from google.genai import types

from llm_common.errors import ToolError
from llm_common.integrations.session_hooks import SessionHooks, ToolFacts, plain_text
from llm_common.text.canonical import stable_json
from llm_common.tools.tool import Tool

_CONTROL: Final = frozenset({"transfer_to_agent", "set_model_response", "finish_task", "exit_loop"})


class LLMCommonPlugin(BasePlugin):
    """Long results behind pointers, the tools that fit, a folded history, and the tools that read back.

    `Runner(..., plugins=[LLMCommonPlugin()])`, for all its agents. The session's events keep previews instead of long
    results; only what the model is sent is folded. Errors, media, and results that are the answer stay as they are. A
    session is that of the app, the user and the session service. ADK asks no further plugin or callback about a
    result that is replaced: put plugins that have to see all of them first.

    Args:
        hooks: Store, limits and policies; None takes the defaults.
    """

    def __init__(self, hooks: SessionHooks | None = None) -> None:
        super().__init__(name="llm_common")
        self._hooks = hooks or SessionHooks()
        self._readers = [_ReadBackTool(tool, self._hooks) for tool in self._hooks.tools(self._hooks.session_id)]

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> dict[str, Any] | None:
        """What replaces a long result; ADK calls it."""
        value = _value(result)
        if value is None or tool_context.actions.skip_summarization:
            return None
        turn_id, calls = _turn(tool_context)
        shown = await self._hooks.offload(
            value,
            tool_name=tool.name,
            args=tool_args,
            session_id=_session(self._hooks, tool_context),
            query=_query(tool_context),
            turn_id=turn_id,
            calls=calls,
        )
        return {"result": shown.preview} if shown else None

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Changes what the model is sent; ADK calls it."""
        config = llm_request.config
        has_functions = any(tool.function_declarations for tool in config.tools or ())
        if not has_functions and (config.tools or config.response_schema or config.response_json_schema):
            return  # Gemini takes no functions beside its own tools or a schema, and folding needs them
        llm_request.append_tools([tool for tool in self._readers if tool.name not in llm_request.tools_dict])
        contents = llm_request.contents
        called = {part.function_call.name for one in contents for part in one.parts or () if part.function_call}
        forced = config.tool_config and config.tool_config.function_calling_config
        query, keep = _query(callback_context), {*called, *_CONTROL}
        keep.update((forced and forced.allowed_function_names) or ())
        declared = [one for tool in config.tools for one in tool.function_declarations or ()]
        chosen = await self._hooks.choose_tools(declared, query=query, facts_of=_facts, keep=keep)
        names = {one.name for one in chosen}
        for tool in config.tools:
            if tool.function_declarations:
                tool.function_declarations = [one for one in tool.function_declarations if one.name in names]
        session_id = _session(self._hooks, callback_context)
        llm_request.contents = await self._hooks.fold_messages(
            contents, session_id=session_id, read=_read, write=_write
        )


class _ReadBackTool(BaseTool):
    """A tool that reads back, in the session that calls it."""

    def __init__(self, tool: Tool, hooks: SessionHooks) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._parameters, self._hooks = tool.parameters, hooks

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, str]:
        session_id = _session(self._hooks, tool_context)
        try:
            return {"result": await self._hooks.read_back(self.name, args, session_id=session_id)}
        except ToolError as exc:
            return {"error": exc.message}


def _session(hooks: SessionHooks, context: Any) -> str:
    """The same session id may be there for several users and apps."""
    session = context.session
    return hooks.session(stable_json([session.app_name, session.user_id, session.id]))


def _query(context: Any) -> str:
    """What the user said last."""
    parts = context.user_content.parts if context.user_content else None
    return "\n".join(part.text for part in parts or () if part.text)


def _turn(context: Any) -> tuple[str | None, int]:
    """The event that made the call, and how many calls it made."""
    for event in reversed(context.session.events):
        calls = event.get_function_calls()
        if any(call.id == context.function_call_id for call in calls):
            return event.id, len(calls)
    return None, 1


def _value(result: Any) -> Any:
    """A result as plain data; None for an error, and for what holds media."""
    if isinstance(result, Mapping):
        if result.get("error") or result.get("isError"):
            return None
        blocks = result.get("content")  # of a server of MCP
        if isinstance(blocks, list) and all(isinstance(block, Mapping) and "type" in block for block in blocks):
            return plain_text(blocks)
    try:
        orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return None
    return result


def _facts(tool: types.FunctionDeclaration) -> ToolFacts:
    schema = tool.parameters.model_dump(mode="json", exclude_none=True) if tool.parameters else {}
    return ToolFacts(tool.name, tool.description or "", tool.parameters_json_schema or schema)


def _read(content: types.Content) -> dict[str, Any]:
    """A message in the shape of Anthropic's, whose blocks are in the same order; media are named only."""
    role = "assistant" if content.role == "model" else "user"
    return {"role": role, "content": [_block(part) for part in content.parts or ()]}


def _block(part: types.Part) -> dict[str, Any]:
    if call := part.function_call:
        return {"type": "tool_use", "id": call.id or call.name, "name": call.name, "input": call.args or {}}
    if result := part.function_response:
        return {"type": "tool_result", "tool_use_id": result.id or result.name, "content": stable_json(result.response)}
    return {"type": "media"} if part.text is None else {"type": "text", "text": part.text}


def _write(content: types.Content | None, shown: Any) -> types.Content:
    """A content with a shorter text, or with shorter results; a new one of the user without a content."""
    if content is None:
        return types.Content(role="user", parts=[types.Part(text=shown)])
    if isinstance(shown, str):
        media = [part for part in content.parts or () if part.text is None]
        return types.Content(role=content.role, parts=[types.Part(text=shown), *media])
    parts = [_replaced(part, block) for part, block in zip(content.parts, shown, strict=True)]
    return types.Content(role=content.role, parts=parts)


def _replaced(part: types.Part, block: Mapping[str, Any]) -> types.Part:
    if not part.function_response or block == _block(part):
        return part
    response = part.function_response.model_copy(update={"response": {"result": block["content"]}})
    return part.model_copy(update={"function_response": response})
