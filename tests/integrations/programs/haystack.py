"""The program with Haystack: the messages of each user are in a file."""

import json
from pathlib import Path

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools.from_function import create_tool_from_function
from haystack.utils import Secret

from llm_common.agents import Sessions
from llm_common.integrations.haystack import SESSION_KEY, LLMCommonHook
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAIChatGenerator:
    return OpenAIChatGenerator(
        model="scripted", api_base_url=url, api_key=Secret.from_token("none")
    )


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    hook = LLMCommonHook(sessions)
    functions = [create_tool_from_function(function) for function in tools]
    agent = Agent(
        chat_generator=model_of(url),
        tools=[*functions, *hook.tools],
        hooks={"before_llm": [hook]},
    )

    async def ask(user: str, text: str) -> str:
        file = folder / f"{user}.json"
        history = []
        if file.exists():
            history = [ChatMessage.from_dict(one) for one in json.loads(file.read_text())]
        result = await agent.run_async(
            messages=[*history, ChatMessage.from_user(text)], hook_context={SESSION_KEY: user}
        )
        messages = result["messages"]
        file.write_text(json.dumps([message.to_dict() for message in messages]))
        return str(messages[-1].text)

    return ask
