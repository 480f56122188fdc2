"""The program with the OpenAI Agents SDK: a session for each user."""

from pathlib import Path

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

from llm_common.agents import Sessions
from llm_common.integrations.openai_agents import LLMCommonSession
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAIChatCompletionsModel:
    set_tracing_disabled(True)
    return OpenAIChatCompletionsModel("scripted", AsyncOpenAI(base_url=url, api_key="none"))


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    model = model_of(url)
    functions = [function_tool(function) for function in tools]

    async def ask(user: str, text: str) -> str:
        session = LLMCommonSession(user, sessions)
        agent = session.equip(Agent("desk", model=model, tools=[*functions]))
        result = await Runner.run(agent, text, session=session, run_config=session.run_config())
        return str(result.final_output)

    return ask
