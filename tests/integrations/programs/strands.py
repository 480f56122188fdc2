"""The program with Strands: an agent for each user, whose session manager writes files."""

from pathlib import Path

from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager

from llm_common.agents import Sessions
from llm_common.integrations.strands import LLMCommonPlugin
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAIModel:
    return OpenAIModel(client_args={"base_url": url, "api_key": "none"}, model_id="scripted")


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    async def ask(user: str, text: str) -> str:
        agent = Agent(
            model=model_of(url),
            tools=[tool(function) for function in tools],
            plugins=[LLMCommonPlugin(sessions)],
            session_manager=FileSessionManager(user, str(folder / "chats")),
            callback_handler=None,
        )
        return str(await agent.invoke_async(text))

    return ask
