"""Hooks for Google's Agent Development Kit: `LLMCommonPlugin`."""

from pathlib import Path
from typing import Any, Final

from google.adk.plugins import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.genai import types

from llm_common.agents.session import Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.google_contents import (
    definition_of,
    plain_value,
    query_of,
    read_content,
    write_content,
)
from llm_common.integrations.translation import fold_messages, read_back
from llm_common.pointers.store import ContextPointerStore
from llm_common.tools.tool import Tool

_CONTROL: Final = frozenset({"transfer_to_agent", "set_model_response", "finish_task", "exit_loop"})


class LLMCommonPlugin(BasePlugin):
    """Long results behind pointers, the tools that fit, a folded history, and reading back.

    `Runner(..., plugins=[LLMCommonPlugin()])`, for all its agents. The session's events keep
    previews instead of long results; only what the model is sent is folded. Errors, media, and
    results that are the answer stay as they are. A session is that of the app, the user and the
    session service. ADK asks no further plugin or callback about a result that is replaced: put
    plugins that have to see all of them first.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None keeps results in
            memory, for a day.
        config: Limits and policies, unless `store` has them.
    """

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        super().__init__(name="llm_common")
        self.sessions = Sessions.over(store, config)
        self._readers = [_ReadBackTool(tool, self.sessions) for tool in self.sessions.get().tools()]

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> dict[str, Any] | None:
        """What replaces a long result; ADK calls it."""
        value = plain_value(result)
        if value is None or tool_context.actions.skip_summarization:
            return None
        turn, calls = _turn(tool_context)
        shown = await _session(self.sessions, tool_context).offload(
            value,
            tool=tool.name,
            args=tool_args,
            query=query_of(tool_context),
            turn=turn,
            messages=calls,
        )
        return None if shown.pointer_id is None else {"result": str(shown)}

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
        session = _session(self.sessions, callback_context)
        messages = [*map(read_content, llm_request.contents)]
        # Contents of other agents have the role of the user too: what was asked comes last.
        messages.append({"role": "user", "content": query_of(callback_context)})
        await self._choose(session, config, messages)
        llm_request.contents = await fold_messages(
            session, llm_request.contents, read=read_content, write=write_content
        )

    async def _choose(
        self, session: Session, config: types.GenerateContentConfig, messages: list[dict[str, Any]]
    ) -> None:
        """Leave the functions that fit in the request. Tools of other kinds stay."""
        forced: Any = config.tool_config and config.tool_config.function_calling_config
        keep = {*_CONTROL, *((forced and forced.allowed_function_names) or ())}
        declaring = _declaring(config)
        declared = [function for tool in declaring for function in tool.function_declarations]
        chosen = await session.choose_tools(
            [*map(definition_of, declared)], messages=messages, keep=keep
        )
        names = {definition.name for definition in chosen}
        for tool in declaring:
            functions = tool.function_declarations
            tool.function_declarations = [one for one in functions if one.name in names]


class _ReadBackTool(BaseTool):
    """A tool that reads back, in the session that calls it."""

    def __init__(self, tool: Tool, sessions: Sessions) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._parameters = tool.parameters
        self._sessions = sessions

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name, description=self.description, parameters_json_schema=self._parameters
        )

    async def run_async(self, *, args: dict[str, Any], tool_context: Any) -> dict[str, str]:
        session = _session(self._sessions, tool_context)
        try:
            return {"result": await read_back(session, self.name, args)}
        except ToolError as exc:
            return {"error": exc.message}


def _declaring(config: types.GenerateContentConfig) -> list[Any]:
    return [tool for tool in config.tools or () if getattr(tool, "function_declarations", None)]


def _session(sessions: Sessions, context: Any) -> Session:
    """Return the session. The same id may be there for several users and apps."""
    session = context.session
    return sessions.get((session.app_name, session.user_id, session.id))


def _turn(context: Any) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the event that made the call, and its calls as a message."""
    for event in reversed(context.session.events):
        calls = event.get_function_calls()
        if any(call.id == context.function_call_id for call in calls):
            functions = [{"function": {"name": call.name}} for call in calls]
            return event.id, [{"role": "assistant", "content": None, "tool_calls": functions}]
    return None, []
