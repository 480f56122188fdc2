"""The program with Agno: one agent, with a JSON file of sessions."""

from pathlib import Path
from typing import Any

from agno.agent import Agent
from agno.db.json import JsonDb
from agno.models.openai import OpenAIChat

from llm_common.agents import Sessions
from llm_common.integrations.agno import LLMCommonToolHook
from tests.integrations.programs.desk import TOOLS
from tests.integrations.programs.process import Ask, Tools


def model_of(url: str) -> OpenAIChat:
    return OpenAIChat(id="scripted", base_url=url, api_key="none")


def program(url: str, folder: Path, sessions: Sessions, tools: Tools = TOOLS) -> Ask:
    hook = LLMCommonToolHook(sessions)
    agent: Any = Agent(
        model=model_of(url),
        tools=[*tools, *hook.tools],
        tool_hooks=[hook],
        db=JsonDb(str(folder / "agno")),
        add_history_to_context=True,
        telemetry=False,
    )

    async def ask(user: str, text: str) -> str:
        return str((await agent.arun(text, session_id="chat-" + user, user_id=user)).content)

    return ask
