"""The program with Microsoft's Agent Framework: one agent, with a session file for each user."""

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from agent_framework import Agent, AgentSession
from agent_framework.openai import OpenAIChatCompletionClient

from llm_common.agents import Session, Sessions
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAIChatCompletionClient:
    return OpenAIChatCompletionClient(
        model="scripted",
        api_key="none",
        base_url=url,
        function_invocation_configuration={"include_detailed_errors": True},
    )


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    current: ContextVar[Session] = ContextVar("current")
    wrapped = [wrap_tool(function, current.get) for function in tools]
    functions: list[Any] = [*wrapped, *tool_functions(current.get)]
    agent: Any = Agent(model_of(url), "You answer questions about orders.", tools=functions)

    async def ask(user: str, text: str) -> str:
        current.set(sessions.get(user))
        file = folder / f"{user}.json"
        conversation = AgentSession()
        if file.exists():
            conversation = AgentSession.from_dict(json.loads(file.read_text()))
        answer = await agent.run(text, session=conversation)
        file.write_text(json.dumps(conversation.to_dict()))
        return str(answer.text)

    return ask
