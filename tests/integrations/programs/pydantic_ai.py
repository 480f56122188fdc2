"""The program with pydantic-ai: the messages of each user are in a file."""

from pathlib import Path

from pydantic_ai import Agent, ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from llm_common.agents import Sessions
from llm_common.integrations.pydantic_ai import LLMCommonCapability
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAIChatModel:
    return OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=url, api_key="none"))


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    capability = LLMCommonCapability(store=sessions)
    agent = Agent(model_of(url), tools=[*tools], capabilities=[capability])

    async def ask(user: str, text: str) -> str:
        file = folder / f"{user}.json"
        history = []
        if file.exists():
            history = ModelMessagesTypeAdapter.validate_json(file.read_bytes())
        result = await agent.run(text, message_history=history)
        file.write_bytes(result.all_messages_json())
        return str(result.output)

    return ask
