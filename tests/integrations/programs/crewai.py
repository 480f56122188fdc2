"""The program with CrewAI: a crew for each question, which keeps no conversation."""

import asyncio
from pathlib import Path
from typing import Any

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

from llm_common.agents import Session
from llm_common.integrations.functions import tool_functions, wrap_tool
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, run


def program(url: str, folder: Path) -> Ask:
    model = LLM(model="openai/gpt-4o", base_url=url, api_key="none", max_retries=0)
    make: Any = Agent  # its types do not have the fields

    def answer(user: str, text: str) -> str:
        session = Session(folder / "context", session_id=user)
        wrapped = [wrap_tool(function, session, query=text) for function in TOOLS]
        functions = [*wrapped, *tool_functions(session, sync=True)]
        agent = make(
            role="Clerk",
            goal="Answer",
            backstory="You know the shop.",
            tools=[tool(function) for function in functions],
            llm=model,
        )
        task = Task(description=text, expected_output="A text", agent=agent)
        return str(Crew(agents=[agent], tasks=[task]).kickoff())

    async def ask(user: str, text: str) -> str:
        return await asyncio.to_thread(answer, user, text)

    return ask


if __name__ == "__main__":
    run(program)
