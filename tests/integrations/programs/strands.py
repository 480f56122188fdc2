"""The program with Strands: an agent for each user, whose session manager writes files."""

from pathlib import Path

from strands import Agent, tool
from strands.models.openai import OpenAIModel
from strands.session.file_session_manager import FileSessionManager

from llm_common.agents import Sessions
from llm_common.integrations.strands import LLMCommonPlugin
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import CONFIG, Ask, run


def program(url: str, folder: Path) -> Ask:
    arguments = {"base_url": url, "api_key": "none"}
    sessions = Sessions(folder / "context", CONFIG)

    async def ask(user: str, text: str) -> str:
        agent = Agent(
            model=OpenAIModel(client_args=arguments, model_id="scripted"),
            tools=[tool(function) for function in TOOLS],
            plugins=[LLMCommonPlugin(sessions)],
            session_manager=FileSessionManager(user, str(folder / "chats")),
            callback_handler=None,
        )
        return str(await agent.invoke_async(text))

    return ask


if __name__ == "__main__":
    run(program)
