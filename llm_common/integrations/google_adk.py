"""Hooks for Google's Agent Development Kit: `LLMCommonPlugin`."""

from typing import Any, Final

from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.genai import types

from llm_common.errors import ToolError
from llm_common.integrations.google_contents import (
    facts_of,
    plain_value,
    query_of,
    read_content,
    write_content,
)
from llm_common.integrations.session_hooks import SessionHooks
from llm_common.tools.tool import Tool

_CONTROL: Final = frozenset({"transfer_to_agent", "set_model_response", "finish_task", "exit_loop"})


class LLMCommonPlugin(BasePlugin):
    """Long results behind pointers, the tools that fit, a folded history, and the tools that read back.

    `Runner(..., plugins=[LLMCommonPlugin()])`, for all its agents. The session's events keep
    previews instead of long results; only what the model is sent is folded. Errors, media, and
    results that are the answer stay as they are. A session is that of the app, the user and the
    session service. ADK asks no further plugin or callback about a result that is replaced: put
    plugins that have to see all of them first.

    Args:
        hooks: Store, limits and policies; None takes the defaults.
    """

    def __init__(self, hooks: SessionHooks | None = None) -> None:
        super().__init__(name="llm_common")
        self._hooks = hooks or SessionHooks()
        self._readers = [
            _ReadBackTool(tool, self._hooks) for tool in self._hooks.tools(self._hooks.session_id)
        ]

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> dict[str, Any] | None:
        """What replaces a long result; ADK calls it."""
        value = plain_value(result)
        if value is None or tool_context.actions.skip_summarization:
            return None
        session_id = _session(self._hooks, tool_context)
        shown = await self._hooks.offload(
            value, tool_name=tool.name, args=tool_args, session_id=session_id, **_turn(tool_context)
        )
        return {"result": shown.text} if shown else None

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Changes what the model is sent; ADK calls it."""
        config = llm_request.config
        if not _declaring(config) and (
            config.tools or config.response_schema or config.response_json_schema
        ):
            # Gemini takes no functions beside its own tools or a schema, and folding needs them
            return
        llm_request.append_tools(
            [tool for tool in self._readers if tool.name not in llm_request.tools_dict]
        )
        await self._choose(config, llm_request.contents, query=query_of(callback_context))
        session_id = _session(self._hooks, callback_context)
        llm_request.contents = await self._hooks.fold_messages(
            llm_request.contents, session_id=session_id, read=read_content, write=write_content
        )

    async def _choose(
        self, config: types.GenerateContentConfig, contents: list[types.Content], *, query: str
    ) -> None:
        """Leaves the functions that fit in the request; tools of other kinds stay."""
        called = {
            part.function_call.name
            for one in contents
            for part in one.parts or ()
            if part.function_call
        }
        forced: Any = config.tool_config and config.tool_config.function_calling_config
        keep = {*map(str, called), *_CONTROL, *((forced and forced.allowed_function_names) or ())}
        declaring = _declaring(config)
        declared = [one for tool in declaring for one in tool.function_declarations]
        chosen = await self._hooks.choose_tools(declared, query=query, facts_of=facts_of, keep=keep)
        names = {one.name for one in chosen}
        for tool in declaring:
            tool.function_declarations = [
                one for one in tool.function_declarations if one.name in names
            ]


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


def _declaring(config: types.GenerateContentConfig) -> list[Any]:
    return [tool for tool in config.tools or () if getattr(tool, "function_declarations", None)]


def _session(hooks: SessionHooks, context: Any) -> str:
    """The same session id may be there for several users and apps."""
    session = context.session
    return hooks.session((session.app_name, session.user_id, session.id))


def _turn(context: Any) -> dict[str, Any]:
    """The event that made the call, how many calls it made, and what the user said last."""
    for event in reversed(context.session.events):
        calls = event.get_function_calls()
        if any(call.id == context.function_call_id for call in calls):
            return {"turn_id": event.id, "calls": len(calls), "query": query_of(context)}
    return {"query": query_of(context)}
