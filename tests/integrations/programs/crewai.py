"""The program with CrewAI: one crew for all users, which keeps no conversation."""

import asyncio
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from llm_common.agents import Session, Sessions
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> Any:
    return LLM(model="openai/gpt-4o", base_url=url, api_key="none", max_retries=0)


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    current: ContextVar[Session] = ContextVar("current")
    wrapped = [wrap_tool(function, current.get) for function in tools]
    functions = [*wrapped, *tool_functions(current.get, sync=True)]
    make: Any = Agent  # its types do not have the fields
    clerk = make(
        role="Clerk",
        goal="Answer",
        backstory="You know the shop.",
        tools=[tool(function) for function in functions],
        llm=model_of(url),
    )
    task = Task(description="{question}", expected_output="A text", agent=clerk)
    crew = Crew(agents=[clerk], tasks=[task])

    def answer(user: str, text: str) -> str:
        current.set(sessions.get(user))
        return str(crew.copy().kickoff(inputs={"question": text}))

    async def ask(user: str, text: str) -> str:
        return await asyncio.to_thread(answer, user, text)

    return ask
