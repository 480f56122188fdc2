"""Hooks for agents of Google's Agent Development Kit (ADK): `LLMCommonPlugin`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
from google.adk.plugins import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.genai import types
from pydantic import BaseModel

from llm_common.agents import ContextPointerStore, Session, SessionConfig, Sessions
from llm_common.errors import ToolError
from llm_common.integrations.delegation import begin_call, inlined, session_of_caller
from llm_common.integrations.translation import (
    choose_tools,
    fold_messages,
    plain_text,
    read_back,
)
from llm_common.text import stable_json
from llm_common.tools import Tool, ToolDefinition

# ADK's own functions steer the agent: without one of them, a run cannot go on or end.
_CONTROL: Final = frozenset({"transfer_to_agent", "set_model_response", "finish_task", "exit_loop"})


class LLMCommonPlugin(BasePlugin):
    """A plugin that offloads long results, chooses tools and folds the history.

    Use it as `Runner(..., plugins=[LLMCommonPlugin()])`, for all agents of the runner. The events
    of the ADK session keep previews instead of long results, and only the contents sent to the
    model are folded. Errors, media, and results that are the agent's answer are not changed.

    The app, the user and the ADK session id name the session. ADK calls no further plugin or
    callback for a result that one has replaced: put plugins that must see all results first.

    Args:
        store: A store, the folder of one, or the `Sessions` of other hooks. None takes
            `.llm-common/context`, for a day after each save or read.
        config: Limits and policies. Ignored if `store` is a `Sessions`.
    """

    def __init__(
        self,
        store: Sessions | ContextPointerStore | Path | str | None = None,
        config: SessionConfig | None = None,
    ) -> None:
        super().__init__(name="llm_common")
        self.sessions = Sessions.over(store, config)
        self._readers = [_ReadBackTool(tool, self.sessions) for tool in self.sessions.tools()]

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any
    ) -> None:
        """Let an agent that is called as a tool read in this session. ADK calls this method."""
        if not isinstance(tool, AgentTool):
            return
        session = _session(self.sessions, tool_context)
        if tool.include_plugins:
            # ADK runs each call in a task, with the context variables that callbacks set.
            begin_call(session, tool_args)
        else:
            # Without plugins, the agent has no tool that reads.
            tool_args.update(await inlined(session, dict(tool_args)))

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> dict[str, Any] | None:
        """Return a preview that replaces a long result, or None. ADK calls this method."""
        value = _plain_value(result)
        # A result that ADK does not pass to the model is the answer to the user.
        if value is None or tool_context.actions.skip_summarization:
            return None
        turn, messages = _turn(tool_context)
        preview = await _session(self.sessions, tool_context).offload(
            value,
            tool=tool.name,
            args=tool_args,
            query=_query_of(tool_context),
            turn=turn,
            messages=messages,
        )
        if preview.is_whole:
            return None
        return {"result": str(preview)}

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> None:
        """Change the tools and contents of a model request. ADK calls this method."""
        config = llm_request.config
        has_other = config.tools or config.response_schema or config.response_json_schema
        if has_other and not _declaring(config):
            # Gemini refuses functions with its own tools or a schema, and folding needs functions.
            return
        llm_request.append_tools(
            [tool for tool in self._readers if tool.name not in llm_request.tools_dict]
        )
        session = _session(self.sessions, callback_context)
        messages = [*map(_read_content, llm_request.contents)]
        # ADK gives contents of other agents the user's role, so the real question goes last.
        messages.append({"role": "user", "content": _query_of(callback_context)})
        await self._choose(session, config, messages)
        llm_request.contents = await fold_messages(
            session, llm_request.contents, read=_read_content, write=_write_content
        )

    async def _choose(
        self, session: Session, config: types.GenerateContentConfig, messages: list[dict[str, Any]]
    ) -> None:
        """Remove functions that do not fit from the request. Tools of the provider stay."""
        calling: Any = config.tool_config and config.tool_config.function_calling_config
        forced = (calling and calling.allowed_function_names) or ()
        declared: list[Any] = []
        for tool in _declaring(config):
            declared += tool.function_declarations
        keep = {*_CONTROL, *forced}  # Gemini refuses to force an undeclared function
        chosen = await choose_tools(
            session, declared, describe=_definition_of, messages=messages, keep=keep
        )
        names = {function.name for function in chosen}
        for tool in _declaring(config):
            tool.function_declarations = [
                function for function in tool.function_declarations if function.name in names
            ]


class _ReadBackTool(BaseTool):
    """A tool that reads back from the session that calls it."""

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
    session = context.session
    # ADK runs an agent as a tool in a new session, with an id that it generates.
    caller = session_of_caller(sessions)
    # Two apps or users may have a session with the same id.
    return caller or sessions.get((session.app_name, session.user_id, session.id))


def _turn(context: Any) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the id of the event that made the call, and the contents up to this event."""
    events = context.session.events
    for index in reversed(range(len(events))):
        calls = events[index].get_function_calls()
        if any(call.id == context.function_call_id for call in calls):
            contents = [event.content for event in events[: index + 1] if event.content]
            return events[index].id, [*map(_read_content, contents)]
    return None, []


def _query_of(context: Any) -> str:
    """Return the last text of the user."""
    content = context.user_content
    if not content or not content.parts:
        return ""
    return "\n".join(part.text for part in content.parts if part.text)


def _plain_value(result: Any) -> Any:
    """Return a tool's result as plain data, or None if it is an error or holds media."""
    if isinstance(result, Mapping):
        # ADK returns the answer of an MCP tool as a dict with its blocks and `isError`.
        if result.get("error") or result.get("isError"):
            return None
        blocks = result.get("content")
        if isinstance(blocks, list) and all(
            isinstance(block, Mapping) and "type" in block for block in blocks
        ):
            return plain_text(blocks)
    try:
        # A value that is not JSON may hold media, which a preview would lose.
        orjson.dumps(result, default=_as_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        return None
    return result


def _as_plain(value: object) -> Any:
    """Return a pydantic model of the application as data. Google's own models hold media."""
    if isinstance(value, BaseModel) and not type(value).__module__.startswith("google."):
        return value.model_dump(mode="json")
    raise TypeError


def _definition_of(tool: types.FunctionDeclaration) -> ToolDefinition:
    """Return a declared function as our definition."""
    schema = tool.parameters_json_schema
    if not schema and tool.parameters:
        schema = tool.parameters.model_dump(mode="json", exclude_none=True)
    return ToolDefinition(tool.name or "", tool.description or "", schema or {})


def _read_content(content: types.Content) -> dict[str, Any]:
    """Return a content as a message in Anthropic's shape, with one block per part.

    Media become an empty block.
    """
    role = "assistant" if content.role == "model" else "user"
    return {"role": role, "content": [*map(_block, content.parts or ())]}


def _block(part: types.Part) -> dict[str, Any]:
    if call := part.function_call:
        # ADK removes its own ids from contents, so the name pairs a call with its result.
        args = call.args or {}
        return {"type": "tool_use", "id": call.id or call.name, "name": call.name, "input": args}
    if result := part.function_response:
        response: Any = result.response
        # ADK puts a text into this field, as the hook does with a preview.
        if isinstance(response, dict) and [*response] == ["result"]:
            response = response["result"]
        return {
            "type": "tool_result",
            "tool_use_id": result.id or result.name,
            "content": response if isinstance(response, str) else stable_json(response),
        }
    if part.text is None:
        return {"type": "media"}
    return {"type": "text", "text": part.text}


def _write_content(content: types.Content | None, written: Any) -> types.Content:
    """Return a copy of a content with another text or other results.

    Args:
        content: The content to copy. None makes a new one of the user.
        written: A text, or all blocks of the message, some of them shortened.
    """
    if content is None:
        return types.Content(role="user", parts=[types.Part(text=written)])
    parts: list[types.Part] = []
    if isinstance(written, str):
        media = [part for part in content.parts or () if part.text is None]
        parts = [types.Part(text=written), *media]
    else:
        for part, block in zip(content.parts or (), written, strict=True):
            # Only a result that was shortened differs from what was read.
            if block != _block(part):
                result: Any = part.function_response
                result = result.model_copy(update={"response": {"result": block["content"]}})
                part = part.model_copy(update={"function_response": result})  # noqa: PLW2901
            parts.append(part)
    return content.model_copy(update={"parts": parts})
