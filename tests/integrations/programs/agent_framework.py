"""The program with Microsoft's Agent Framework: one agent, with a session file for each user."""

import json
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from agent_framework import Agent, AgentSession
from agent_framework.openai import OpenAIChatCompletionClient

from llm_common.agents import Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, run


def program(url: str, folder: Path) -> Ask:
    client = OpenAIChatCompletionClient(model="scripted", api_key="none", base_url=url)
    current: ContextVar[Session] = ContextVar("current")
    wrapped = [wrap_tool(function, current.get) for function in TOOLS]
    tools: list[Any] = [*wrapped, *tool_functions(current.get)]
    agent: Any = Agent(client, "You answer questions about orders.", tools=tools)

    async def ask(user: str, text: str) -> str:
        current.set(Session(folder / "context", session_id=user))
        file = folder / f"{user}.json"
        conversation = AgentSession()
        if file.exists():
            conversation = AgentSession.from_dict(json.loads(file.read_text()))
        answer = await agent.run(text, session=conversation)
        file.write_text(json.dumps(conversation.to_dict()))
        return str(answer.text)

    return ask


if __name__ == "__main__":
    run(program)
