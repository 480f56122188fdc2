"""The program with smolagents: an agent for each user, which a restart ends."""

import asyncio
from pathlib import Path

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

from llm_common.agents import Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, run


def program(url: str, folder: Path) -> Ask:
    model = OpenAIServerModel("scripted", api_base=url, api_key="none")
    agents: dict[str, ToolCallingAgent] = {}

    def answer(user: str, text: str) -> str:
        if user not in agents:
            session = Session(folder / "context", session_id=user)
            wrapped = [wrap_tool(function, session) for function in TOOLS]
            functions = [*wrapped, *tool_functions(session, sync=True)]
            tools = [tool(function) for function in functions]
            agents[user] = ToolCallingAgent(tools=tools, model=model, verbosity_level=0)
        return str(agents[user].run(text, reset=False))

    async def ask(user: str, text: str) -> str:
        return await asyncio.to_thread(answer, user, text)

    return ask


if __name__ == "__main__":
    run(program)
