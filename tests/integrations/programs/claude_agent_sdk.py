"""The program with the Claude Agent SDK: Claude Code keeps the conversations."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    SdkMcpTool,
    create_sdk_mcp_server,
    query,
)

from llm_common.agents import Sessions, Tool
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def in_process(function: Callable[..., Any]) -> SdkMcpTool[Any]:
    tool = Tool(function)

    async def handle(args: dict[str, Any]) -> dict[str, Any]:
        text = await asyncio.to_thread(function, **args)
        return {"content": [{"type": "text", "text": str(text)}]}

    return SdkMcpTool(tool.name, tool.description, dict(tool.parameters), handle)


def env_of(url: str, folder: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_API_KEY": "none",
        "ANTHROPIC_BASE_URL": url,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "DISABLE_AUTOUPDATER": "1",
    }


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    async def ask(user: str, text: str) -> str:
        session = sessions.get(user)
        wrapped = [wrap_tool(function, session, query=text) for function in tools]
        functions = [*wrapped, *tool_functions(session, sync=True)]
        declared = [in_process(function) for function in functions]
        file = folder / f"{user}.id"
        options = ClaudeAgentOptions(
            tools=[],
            mcp_servers={"desk": create_sdk_mcp_server("desk", tools=declared)},
            allowed_tools=["mcp__desk"],
            setting_sources=[],
            cwd=folder,
            env=env_of(url, folder),
            resume=file.read_text() if file.exists() else None,
        )
        answer = ""
        async for message in query(prompt=text, options=options):
            if isinstance(message, ResultMessage):
                answer = str(message.result)
                file.write_text(message.session_id)
        return answer

    return ask
