"""The program with smolagents: the same tools for the agents of all users."""

import asyncio
from contextvars import ContextVar
from pathlib import Path

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

from llm_common.agents import Session, Sessions
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAIServerModel:
    return OpenAIServerModel("scripted", api_base=url, api_key="none")


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    model = model_of(url)
    current: ContextVar[Session] = ContextVar("current")
    wrapped = [wrap_tool(function, current.get) for function in tools]
    functions = [*wrapped, *tool_functions(current.get, sync=True)]
    declared = [tool(function) for function in functions]
    agents: dict[str, ToolCallingAgent] = {}

    def answer(user: str, text: str) -> str:
        current.set(sessions.get(user))
        if user not in agents:
            agents[user] = ToolCallingAgent(tools=declared, model=model, verbosity_level=0)
        return str(agents[user].run(text, reset=False))

    async def ask(user: str, text: str) -> str:
        return await asyncio.to_thread(answer, user, text)

    return ask
